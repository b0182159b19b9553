"""Measure a prompt's hook by the number of messages: `python -m benchmarks speed hooks`.

A coding agent starts the hook as a process for each prompt. The table shows processor time (user
and system), which does not depend on other load. It also shows Python alone.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from agent_memory import AgentMemory
from benchmarks.messages import machine, message_text, question_about

_USER = "ana"
_SESSION = 200  # messages
_MAIN = "from agent_memory.cli.entry import main; main()"


def fill(path: Path, count: int, parts: int) -> None:
    """Store messages in sessions, and encode them."""
    with AgentMemory(f"sqlite:///{path}", model=None) as memory:
        for begin in range(0, count, _SESSION):
            said = [
                {"role": "assistant" if number % 2 else "user", "content": _text(number, parts)}
                for number in range(begin, min(count, begin + _SESSION))
            ]
            memory.update(f"claude-code:{begin}", said, user_id=_USER)
            memory.flush(f"claude-code:{begin}", user_id=_USER)


def _text(number: int, parts: int) -> str:
    return " ".join(message_text(number * parts + part) for part in range(parts))


def processor_ms(command: Sequence[str], given: str, rounds: int) -> list[float]:
    """Return the milliseconds of user and system time of processes."""
    taken = []
    for _ in range(rounds):
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            assert process.stdin is not None
            process.stdin.write(given.encode())
            process.stdin.close()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{command} ended with {process.returncode}.")
        taken.append((usage.ru_utime + usage.ru_stime) * 1e3)
    return taken


def main(
    counts: Annotated[str, typer.Option(help="Numbers of messages.")] = "100,1000,10000",
    parts: Annotated[int, typer.Option(min=1, help="Of 33 words, so many in a message.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Processes of each kind.")] = 15,
) -> None:
    """Time a prompt's hook."""
    console, given = Console(), json.dumps({"session_id": "other", "prompt": question_about(7)})
    console.print(machine())
    table = Table("messages", title="A prompt's hook, processor time in ms")
    for column in ("least", "median"):
        table.add_column(column, justify="right")

    def row(count: str, taken: Sequence[float]) -> None:
        table.add_row(count, f"{min(taken):.0f}", f"{median(taken):.0f}")

    row("Python alone", processor_ms([sys.executable, "-c", "pass"], "", rounds))
    sizes = [int(count) for count in counts.split(",")]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("hooks", total=len(sizes))
        for count in sizes:
            with TemporaryDirectory() as folder:
                path = Path(folder) / "memory.db"
                fill(path, count, parts)
                hook = [sys.executable, "-c", _MAIN, "hook", "UserPromptSubmit", "--strict"]
                hook += ["--user", _USER, "--store", f"sqlite:///{path}"]
                row(f"{count:,}", processor_ms(hook, given, rounds))
            progress.advance(task)
    console.print(table)
