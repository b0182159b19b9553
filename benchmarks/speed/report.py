"""Results as Markdown tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.speed.contenders import FLOOR, OURS
from benchmarks.speed.run import Cell, Results, ratio

_CROWD = "sessions"
_STARTS = {
    "import": "import agent_memory",
    "names": "from agent_memory import AgentMemory",
    "update": "first update on SQLite",
}


@dataclass(frozen=True)
class Sheet:
    """A table. Its first `left` columns are text, and `note` is printed below it."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    left: int = 2
    note: str = ""


def sheets(results: Results) -> Iterator[Sheet]:
    """All tables of a run."""
    yield _contenders(results)
    for work, title in results.titles.items():
        yield _crowd(results, title) if work == _CROWD else _timings(results, work, title)
    if results.start:
        yield from _processes(results)


def markdown(results: Results) -> str:
    """All tables, as Markdown."""
    parts = []
    for sheet in sheets(results):
        rule = ["---" if n < sheet.left else "---:" for n in range(len(sheet.columns))]
        lines = [sheet.columns, rule, *(map(_cell, row) for row in sheet.rows)]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts.append(f"**{sheet.title}**\n\n{table}\n")
        if sheet.note:
            parts.append(f"{sheet.note}\n")
    return "\n".join(parts)


def _contenders(results: Results) -> Sheet:
    rows = [
        (one["name"], one.get("version") or one["missing"], one.get("durability", ""),
         one.get("note", ""))
        for one in results.contenders.values()
    ]  # fmt: skip
    columns = ("contender", "version", "an append survives the end of the", "note")
    return Sheet("Contenders", columns, rows, left=4)


def _timings(results: Results, work: str, title: str) -> Sheet:
    rows = [
        (cell.variant, _name(results, cell), *_timing(results, cell)) for cell in results.of(work)
    ]
    columns = (
        "history", "contender", "p50, µs", "p99, µs", "to raw sqlite3", "to ours", "ops a round",
        "why none",
    )  # fmt: skip
    return Sheet(title, columns, rows, note=_note(results, work))


def _timing(results: Results, cell: Cell) -> tuple[str, ...]:
    if cell.skipped or not cell.samples:
        return ("", "", "", "", "", cell.skipped or "")
    floor, ours = (results.cell(cell.work, cell.variant, key) for key in (FLOOR, OURS))
    return (
        number(cell.middle("p50")),
        number(cell.middle("p99")),
        number(ratio(cell, floor)),
        number(ratio(cell, ours)),
        f"{cell.middle('ops') or 0:,.0f}",
        "",
    )


def _crowd(results: Results, title: str) -> Sheet:
    rows = []
    for cell in results.of(_CROWD):
        if cell.skipped or not cell.samples:
            rows.append((cell.variant, _name(results, cell), *[""] * 6, cell.skipped or ""))
            continue
        rows.append(
            (
                cell.variant,
                _name(results, cell),
                f"{cell.middle('rate') or 0:,.0f}",
                f"{cell.middle('messages') or 0:,.0f}",
                *(_checked(cell, name) for name in ("lost", "doubled", "disordered")),
                f"{cell.total('errors'):,}",
                _trouble(cell),
            )
        )
    columns = (
        "from", "contender", "messages/s", "messages a round", "lost", "doubled",
        "sessions out of order", "errors", "first error, or why none",
    )  # fmt: skip
    return Sheet(title, columns, rows, note=_note(results, _CROWD))


def _checked(cell: Cell, name: str) -> str:
    return "unknown" if cell.total("unread") else f"{cell.total(name):,}"


def _trouble(cell: Cell) -> str:
    errors = [sample["error"] for sample in cell.samples if sample.get("error")]
    unread = cell.total("unread")
    told = [f"{unread:,} sessions could not be read back"] if unread else []
    return "; ".join([*told, *(error[:100] for error in errors[:1])])


def _processes(results: Results) -> Iterator[Sheet]:
    start = results.start
    bare = start["bare"]
    rows = []
    for name, label in _STARTS.items():
        part = start[name]
        over = part["rss"] - bare["rss"] if "rss" in part and "rss" in bare else None
        rows.append((label, number(part.get("ms")), number(part.get("wall_ms")), number(over)))
    columns = ("fresh process", "ms", "ms since its start", "MiB over bare Python")
    yield Sheet(f"Start (bare Python: {number(bare.get('wall_ms'))} ms)", columns, rows, left=1)
    firsts = [
        (results.contenders[key]["name"], number(part.get("wall_ms")), number(part.get("rss")))
        for key, part in start["first"].items()
        if part
    ]
    yield Sheet(
        "Start of a process to its first append done", ("contender", "ms", "MiB"), firsts, 1
    )


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _note(results: Results, work: str) -> str:
    """Name the contenders that are missing in a table."""
    if len({cell.contender for cell in results.of(work)}) == 1:
        return ""
    absent = [
        f"{about['name']}: {about['missing']}"
        for about in results.contenders.values()
        if "missing" in about
    ]
    return "; ".join(absent)


def _name(results: Results, cell: Cell) -> str:
    return str(results.contenders[cell.contender]["name"])


def number(value: float | None) -> str:
    """Return a number as text, without insignificant digits."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
