"""Output to a terminal: lines, warnings, progress bars and tables. Markup is not interpreted."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent_memory.core.limits import readable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table
    from rich.text import Text

    from agent_memory.core.records import Absorbed, Recall

COLORS = {"system": "magenta", "user": "green", "assistant": "cyan", "tool": "yellow"}

NOTHING = "\u2013"
"""Shown for an empty value or a check that does not apply."""


def out(stderr: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 300  # lines of a pipe or a file: ids are not broken
    return console


def progress_bar(*columns: ProgressColumn) -> Progress:
    """Return a progress bar on stderr. The bar vanishes at its end."""
    from rich.progress import Progress

    return Progress(*columns, console=out(stderr=True), transient=True)


def say(text: str, style: str = "", *, stderr: bool = False) -> None:
    """Print a line of a result to stdout. Only a terminal wraps the line."""
    out(stderr).print(cell(text, style), soft_wrap=True)


def note(text: str, style: str = "yellow") -> None:
    """Print a line to stderr: a warning, an error, or what was done."""
    say(text, style, stderr=True)


def show_warnings() -> None:
    """Print the library's warnings as yellow lines on stderr."""
    logger = logging.getLogger("agent_memory")
    if not any(isinstance(handler, _Lines) for handler in logger.handlers):
        logger.addHandler(_Lines(logging.WARNING))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the library's warnings, for commands that report the same problems themselves."""
    logger = logging.getLogger("agent_memory")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "agent_memory.engine.assembly":  # only `doctor` reports missing parts
            note(f"warning: {record.getMessage()}")


def plain(text: str) -> str:
    """Return a text with control characters replaced, because they could change the terminal."""
    return "".join(c if c in "\n\t" or c.isprintable() or c == "\u200d" else "\ufffd" for c in text)


def cell(text: str, style: str = "") -> Text:
    """Return a text for a table. Markup is not interpreted, and control characters are replaced."""
    from rich.text import Text

    return Text(plain(text), style=style)


def one_line(text: str) -> Text:
    line = cell(" ".join(text.split()))
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]] = (),
    *,
    right: Sequence[str] = (),
    header: bool = True,
) -> Table:
    """Return a table without lines. The columns named in `right` are right-aligned."""
    from rich.table import Table

    listed = Table(box=None, show_header=header, header_style="dim", padding=(0, 2, 0, 0))
    for name in columns:
        listed.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        listed.add_row(*(cell(item) if isinstance(item, str) else item for item in row))
    return listed


def show(listed: Table, empty: str) -> None:
    """Print a table, or the text `empty` if the table has no rows."""
    out().print(listed if listed.row_count else empty)


def recalls_table(recalls: Iterable[Recall], *, explain: bool = False) -> Table:
    """Return recalls with their scores and sources. `explain` adds blocks' ranking signals."""
    shown = list(recalls)
    views = list(dict.fromkeys(view for recall in shown for view in recall.views)) * explain
    names = [view.replace("_", "\n") for view in views]
    listed = table(("score", *names, "block", "text", "source"), right=("score", *names))
    for recall in shown:
        parts = (f"{recall.views[v]:.2f}" if v in recall.views else "" for v in views)
        texts = (cell(str(recall)), cell(sources(recall)))
        listed.add_row(f"{recall.score:.2f}", *parts, recall.block, *texts)
    return listed


def absorbed_table(done: Iterable[Absorbed]) -> Table:
    rows = (
        (readable(batch.session_id), batch.block, reach(batch), cell(batch.error or "", "yellow"))
        for batch in done
    )
    return table(("session", "block", "absorbed", ""), rows)


def reach(batch: Absorbed) -> str:
    return f"#{batch.first} to #{batch.last}" if batch.last >= batch.first else "nothing"


def sources(recall: Recall) -> str:
    return ", ".join(f"{session} #{seq}" for session, seq in recall.sources) or NOTHING
