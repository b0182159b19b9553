"""Import a made-up ChatGPT export twice: `python -m benchmarks speed importing --megabytes 200`.

Each command runs in its own process. This script prints the command's seconds, peak memory and
output. The exit code is 1 if the second import stored anything, or if an import took more memory
than `--most`.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

_WORDS = [f"word{n}" for n in range(5_000)]


def main(
    megabytes: int = 200,
    most: Annotated[int, typer.Option(help="MiB that an import may take.")] = 150,
) -> None:
    """Write the export, inspect it, and import it twice."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "conversations.json")
        count = write(path, megabytes * 1_000_000)
        print(f"{count:,} messages in {path.stat().st_size:,} bytes")
        command = ["import", path.name, "--from", "chatgpt", "--user", "ana"]
        runs = [run(folder, *command, how) for how in ("--dry-run", "--yes", "--yes")]
    stored = "Everything was imported before." not in runs[-1][0]
    if stored or max(peak for _, peak in runs) > most:
        sys.exit(1)


def run(folder: str, *command: str) -> tuple[str, float]:
    """Run a command. Return its output and its peak memory in MiB."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", "from agent_memory.cli.entry import main; main()", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    told = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    most = used.ru_maxrss / 1024
    print(
        f"{command[-1]:>9} {time.perf_counter() - began:7.1f} s {most:6.0f} MiB  {told.strip()!r}"
    )
    return told, most


def write(path: Path, size: int) -> int:
    """Write an export of about `size` bytes. Return its number of messages."""
    draw, count, written = random.Random(1), 0, 0
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        number = 0
        while written < size:
            chat = conversation(f"c{number}", draw)
            text = json.dumps(chat)
            written += file.write(f", {text}" if number else text)
            count += len(chat["mapping"]) - 1
            number += 1
        file.write("]")
    return count


def conversation(own: str, draw: random.Random) -> dict[str, Any]:
    """Return a conversation of 2 to 30 messages. Some messages have two versions."""
    mapping: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None}}
    key = parent = "root"
    at = 1.6e9 + draw.random() * 1e8
    for place in range(draw.randint(2, 30)):
        for again in range(2 if place and draw.random() < 0.01 else 1):
            key = f"{own}-{place}-{again}"
            content = {"content_type": "text", "parts": [" ".join(draw.choices(_WORDS, k=120))]}
            message: dict[str, Any] = {
                "id": key,
                "author": {"role": "assistant" if place % 2 else "user"},
            }
            about = {"model_slug": "gpt-4o", "is_complete": True, "citations": []}
            message |= {"content": content, "create_time": at + place, "metadata": about}
            mapping[key] = {"id": key, "message": message, "parent": parent, "children": []}
        parent = key
    more = {"title": own, "create_time": at, "current_node": parent, "id": own}
    return {**more, "mapping": mapping}
