"""Measures the cost of an import and of a first append, in fresh processes."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.speed.contenders import Contender, Gone, Process, clean_environment

_MEASURE = """
import json, sys, time
def resident():
    try:
        lines = open("/proc/self/status").read().splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
began = time.perf_counter()
{work}
seconds = time.perf_counter() - began
print(json.dumps({{"ms": seconds * 1e3, "rss": resident()}}), flush=True)
"""
_WORKS = {
    "bare": "pass",
    "import": "import agent_memory",
    "names": "from agent_memory import AgentMemory",
    "update": """
from agent_memory import AgentMemory
memory = AgentMemory(store="sqlite:///" + sys.argv[1])
memory.update("s", {"role": "user", "content": "Hello"})
""",
}


def measure(
    contenders: Sequence[Contender],
    peers_dir: Path,
    folder: Path,
    rounds: int,
    advance: Callable[[str], None],
) -> dict[str, Any]:
    """Return medians over the rounds, each in a process of its own.

    For bare Python, imports and a first update: milliseconds of the statement ("ms") and since the
    start of the process ("wall_ms"), and MiB ("rss"). For contenders: seconds until the first
    append is done, and MiB.
    """
    parts: dict[str, list[dict[str, Any]]] = {name: [] for name in _WORKS}
    firsts: dict[str, list[dict[str, Any]]] = {one.key: [] for one in contenders}
    for number in range(rounds):
        for name, work in _WORKS.items():
            advance(f"start: {name}")
            parts[name].append(_measured(work, folder / f"start-{number}.db"))
        for contender in contenders:
            advance(f"start: first append of {contender.name}")
            firsts[contender.key] += _first(contender, peers_dir, folder)
    found: dict[str, Any] = {name: _medians(taken) for name, taken in parts.items()}
    return {**found, "first": {key: _medians(taken) for key, taken in firsts.items()}}


def _measured(work: str, database: Path) -> dict[str, Any]:
    began = perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", _MEASURE.format(work=work), str(database)],
        stdout=subprocess.PIPE,
        env=clean_environment(),
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        wall = perf_counter() - began
    if not line:
        return {}
    return {**json.loads(line), "wall_ms": wall * 1e3}


def _first(contender: Contender, peers_dir: Path, folder: Path) -> list[dict[str, Any]]:
    began = perf_counter()
    process = Process(contender, peers_dir, folder)
    try:
        process.meet()
        answer = process.ask({"work": "first"})
        wall = perf_counter() - began
    except Gone:
        return []
    finally:
        process.close()
    return [{"wall_ms": wall * 1e3, "rss": answer["rss"]}] if "rss" in answer else []


def _medians(taken: list[dict[str, Any]]) -> dict[str, float]:
    names = {name for one in taken for name, value in one.items() if value is not None}
    return {name: median(one[name] for one in taken if name in one) for name in sorted(names)}
