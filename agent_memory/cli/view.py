"""Show messages, contexts and recalls in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.cli.common import plain
from agent_memory.core.limits import readable
from agent_memory.core.text import ranges

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from agent_memory.core.context import MemoryContext
    from agent_memory.core.records import Absorbed, Entry, Recall, Scope
    from agent_memory.ltm_blocks.base import Block

_COLORS = {"system": "magenta", "user": "green", "assistant": "cyan", "tool": "yellow"}
_ALL = 1_000_000

NOTHING = "\u2013"
"""Shown for an empty value or a check that does not apply."""


def cell(text: str, style: str = "") -> Text:
    """Return a text for a table. Markup is not interpreted, and control characters are replaced."""
    from rich.text import Text

    return Text(plain(text), style=style)


def one_line(text: str) -> Text:
    line = cell(" ".join(text.split()))
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def grid(*columns: str, right: Sequence[str] = (), header: bool = True) -> Table:
    """Return a table without lines. The columns named in `right` are right-aligned."""
    from rich.table import Table

    table = Table(box=None, show_header=header, header_style="dim", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def context_table(context: MemoryContext, count: Any) -> Table:
    """Return the messages of a context, with the tokens that `count` returns, and their total."""
    from agent_memory.core.messages import Message
    from agent_memory.core.transcript import full_text

    table = grid("role", "what the model is sent", "tokens", right=("tokens",))
    table.columns[1].ratio = 1
    table.expand = True
    used = 0
    for view in context.to_messages():
        tokens = count(view)
        used += tokens
        text = full_text(Message.of(view))
        special = text.startswith(("<memory>", "<summary>"))
        role = cell(view["role"], _COLORS.get(view["role"], ""))
        table.add_row(role, cell(text, "yellow") if special else one_line(text), str(tokens))
    table.add_row("", cell("the format of the chat", "dim"), str(context.tokens - used))
    total = f"{context.tokens} / {context.max_tokens}"
    table.add_row("", cell("total", "bold"), cell(total, "bold"))
    return table


def recalls_table(recalls: Iterable[Recall], *, explain: bool = False) -> Table:
    """Return recalls with their scores and sources. `explain` adds blocks' ranking signals."""
    shown = list(recalls)
    views = list(dict.fromkeys(view for recall in shown for view in recall.views)) * explain
    names = [view.replace("_", "\n") for view in views]
    table = grid("score", *names, "block", "text", "source", right=("score", *names))
    table.columns[2 + len(views)].ratio = 1
    for recall in shown:
        parts = (f"{recall.views[v]:.2f}" if v in recall.views else "" for v in views)
        text = (cell(str(recall)), cell(sources(recall)))
        table.add_row(f"{recall.score:.2f}", *parts, recall.block, *text)
    return table


def absorbed_table(done: Iterable[Absorbed]) -> Table:
    table = grid("session", "block", "absorbed", "")
    for batch in done:
        error = cell(batch.error or "", "yellow")
        table.add_row(cell(readable(batch.session_id)), batch.block, reach(batch), error)
    return table


def reach(batch: Absorbed) -> str:
    return f"#{batch.first} to #{batch.last}" if batch.last >= batch.first else "nothing"


def sources(recall: Recall) -> str:
    return ", ".join(f"{session} #{seq}" for session, seq in recall.sources) or "everyone"


def entry_line(entry: Entry, *, dim: bool = False) -> Text:
    """Return an entry in full: seq, time, role, tokens and text."""
    from rich.text import Text

    from agent_memory.core.transcript import full_text

    message = entry.message
    role = message.role or message.format or "raw"
    name = f" {message.name}" if message.name else ""
    line = Text.assemble(
        (f"#{entry.seq} {entry.created_at:%Y-%m-%d %H:%M} ", "dim"),
        cell(f"{role}{name}", _COLORS.get(role, "")),
        (f" ({entry.tokens} tokens)\n", "dim"),
        cell(full_text(message)),
        "\n",
    )
    if dim:
        line.stylize("dim")
    return line


def seqs(numbers: Sequence[int]) -> str:
    """Return seqs as ranges: #2 to #7, #9."""
    return ranges(sorted(numbers), "#") or "nothing"


def holdings(block: Block, scope: Scope) -> list[Recall]:
    """Return all records of a block for a scope, in the order of the log."""
    from agent_memory.core.records import Recall
    from agent_memory.engine.recall.runner import resolve
    from agent_memory.ltm_blocks.vector import VectorMemory
    from agent_memory.retrieval.turns import sources_of

    if isinstance(block, VectorMemory):
        recalls = [
            Recall(block=block.name, id=record.id, text=record.text, sources=sources_of(record))
            for records, _ in block.vectors.all_vectors(block.name)
            for record in records
            if record.owner == scope.owner
        ]
    else:
        recalls = resolve(block.get(scope, None, _ALL))
    return sorted(recalls, key=lambda recall: recall.sources)
