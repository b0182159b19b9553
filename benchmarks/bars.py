"""The ratios that the project watches, beside what a run measured. Nothing fails by them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.contenders import FLOOR, IN_MEMORY, OURS
from benchmarks.results import Cell, Results, ratio
from benchmarks.workloads import BACKGROUND, INLINE, PLAIN, THREADS, TRIMMED


@dataclass(frozen=True)
class Bar:
    """A bar and what was measured; None where the run did not measure it."""

    name: str
    bar: str
    value: float | None
    unit: str = "x"

    @property
    def shown(self) -> str:
        """The figure with its unit."""
        if self.value is None:
            return "-"
        if self.unit == "x":
            return f"{self.value:.2f}x"
        return f"{self.value:,.0f} {self.unit}".rstrip()


def bars(results: Results) -> Iterator[Bar]:
    """All bars that the run can tell about."""
    for bar in _all(results):
        if bar.value is not None:
            yield bar


def _all(results: Results) -> Iterator[Bar]:
    cell = results.cell

    def append(size: int, key: str = OURS) -> Cell | None:
        return cell("append", f"{size:,} held", key)

    def everything(size: int, key: str = OURS) -> Cell | None:
        return cell("get", f"{size:,}, all in budget", key)

    yield Bar("append at 1,000, to raw sqlite3", "≤ 4x", ratio(append(1_000), append(1_000, FLOOR)))
    yield Bar("append at 100,000, to that at 100", "≤ 1.2x", ratio(append(100_000), append(100)))
    memory = append(1_000, IN_MEMORY)
    yield Bar("append at 1,000 in memory", "≤ 40 µs", _middle(memory, "p50"), "µs")
    plain, trimmed = (cell("overflow", label, OURS) for label in (PLAIN, TRIMMED))
    yield Bar("appends at a 4k budget, to those without", "≤ 1.3x", ratio(trimmed, plain))
    yield Bar("the same, whole runs", "-", ratio(trimmed, plain, "mean"))
    raw = cell("overflow", TRIMMED, FLOOR)
    yield Bar("the same, whole runs, to raw sqlite3", "≤ 6x", ratio(trimmed, raw, "mean"))
    high, middle = (_middle(trimmed, name) for name in ("p99", "p50"))
    yield Bar("their p99, to their p50", "≤ 10x", high / middle if high and middle else None)
    counts = cell("counts", TRIMMED, OURS)
    yield Bar("token counts a message", "1", _middle(counts, "counts"), "")
    floor = ratio(everything(1_000), everything(1_000, FLOOR))
    yield Bar("get of 1,000, to raw sqlite3", "≤ 1.5x", floor)
    as_sent = ratio(cell("get", "1,000, as chat dicts", OURS), everything(1_000, FLOOR))
    yield Bar("get of 1,000 as chat dicts, to raw sqlite3", "≤ 0.6x", as_sent)
    for label in ("1,000, each after an append", "1,000, first after opening"):
        floor = ratio(cell("get", label, OURS), cell("get", label, FLOOR))
        yield Bar(f"get of {label}, to raw sqlite3", "-", floor)
    small = cell("get", "4k budget, after 10,000", OURS)
    yield Bar("get at 4k after 10,000", "≤ 250 µs", _middle(small, "p50"), "µs")
    crowd, raw_crowd = (cell("sessions", THREADS, key) for key in (OURS, FLOOR))
    yield Bar("messages/s from 8 threads", "≥ 10,000", _middle(crowd, "rate"), "")
    yield Bar("the same, to raw sqlite3", "or ≥ 0.5x", ratio(crowd, raw_crowd, "rate"))
    for key, bar in (("openai-agents", "≥ 2x"), ("llamaindex-file", "≥ 100x")):
        name = results.contenders.get(key, {}).get("name", key)
        peer = ratio(append(1_000, key), append(1_000))
        yield Bar(f"append at 1,000: {name}, to ours", bar, peer)
    get = ratio(everything(1_000, "llamaindex-file"), everything(1_000))
    yield Bar("get of 1,000: LlamaIndex Memory, file, to ours", "≥ 5x", get)
    quiet, inline = (cell("background", label, OURS) for label in (BACKGROUND, INLINE))
    yield Bar("p99 in the background, to Trim's inline", "≤ 2x", ratio(quiet, inline, "p99"))
    yield from _starting(results)


def _starting(results: Results) -> Iterator[Bar]:
    if not results.start:
        return
    bare, update = (results.start.get(name, {}) for name in ("bare", "update"))
    for name, label in (("import", "import agent_memory"), ("names", "import of AgentMemory")):
        part = results.start.get(name, {})
        yield Bar(label, "≤ 120 ms", part.get("ms"), "ms")
        if "rss" in bare and "rss" in part:
            yield Bar(f"{label}, over bare Python", "≤ 35 MiB", part["rss"] - bare["rss"], "MiB")
    yield Bar("first update on SQLite", "≤ 400 ms", update.get("wall_ms"), "ms")
    size = results.start.get("install", {})
    yield Bar("distributions of the base install", "≤ 75", size.get("distributions"), "")


def _middle(cell: Cell | None, name: str) -> float | None:
    return None if cell is None else cell.middle(name)
