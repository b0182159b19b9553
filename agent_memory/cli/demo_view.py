"""What `agent-memory demo` prints: every number comes from the engine's heads, log and contexts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent_memory.cli import conversation
from agent_memory.cli.common import head_of, local_embedder, out
from agent_memory.cli.demo_play import Overflowed, window_of
from agent_memory.cli.view import (
    NOTHING,
    cell,
    context_table,
    entries_table,
    grid,
    holdings,
    one_line,
    seqs,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from agent_memory.core.context import MemoryContext
    from agent_memory.core.records import Head, Summary
    from agent_memory.engine.memory import AgentMemory

_ABOUT = {
    "trim": ("Trim", "the newest turns stay; the rest is left to the log"),
    "summarize": ("Summarize", "one rolling summary stands for what left"),
    "flush_to_ltm": ("FlushToLTM", "half is the window's; what leaves goes on in long-term blocks"),
}
_LEAD = 24
_EXTRA = 'pip install "agent-memory[local]"'


def introduce(max_tokens: int, model: str | None) -> None:
    """Say what is about to be played."""
    console = out()
    console.print()
    console.print(cell("Sarah from Marketing asks an HR assistant about remote work", "bold"))
    if model:
        how = f"{model} writes the summary and extracts the facts."
    else:
        how = "No model, no key: what waits for one is said below (--model NAME gives one)."
    count = len(conversation.TURNS)
    what = (
        f"A system message, {count} questions and {count} answers; a budget of {max_tokens} tokens."
    )
    console.print(cell(what))
    console.print(cell(how))
    if not local_embedder():
        console.print(
            cell(f"VectorMemory goes by words alone. For meaning too: {_EXTRA}"),
            style="yellow",
        )


def report(memory: AgentMemory, overflows: Sequence[Overflowed], question: str) -> None:
    """Print one strategy's window before, overflows, long-term memory and window after."""
    console = out()
    name, about = _ABOUT[memory.config.strategy.kind]
    console.print()
    console.rule(f"[bold]{name}[/]: {about}", align="left", style="blue")
    _window_before(console, overflows)
    _what_happened(console, memory, overflows)
    _long_term(console, memory)
    _claims(console, memory, _window_after(console, memory, question))


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(cell(text, "bold blue"))


def _indented(console: Console, what: RenderableType) -> None:
    from rich.padding import Padding

    console.print(Padding(what, (0, 0, 0, 2)))


def _window_before(console: Console, overflows: Sequence[Overflowed]) -> None:
    if not overflows:
        _heading(console, "The window never overflowed")
        _indented(console, cell("Give a smaller budget with --max-tokens."))
        return
    first = overflows[0]
    _heading(
        console,
        f"The window before its first overflow: {first.tokens_before} tokens in "
        f"{len(first.window)} messages",
    )
    marks = dict.fromkeys(first.left, "leaves")
    _indented(console, entries_table(first.window, marks))


def _what_happened(console: Console, memory: AgentMemory, overflows: Sequence[Overflowed]) -> None:
    if not overflows:
        return
    times = (
        "once"
        if len(overflows) == 1
        else "twice"
        if len(overflows) == 2
        else f"{len(overflows)} times"
    )
    _heading(console, f"What happened: it overflowed {times}")
    table = grid("arrived", "left the window", "tokens", "in their place")
    for one in overflows:
        table.add_row(
            f"#{one.arrived.seq}",
            seqs(one.left),
            f"{one.tokens_before} → {one.head.window_tokens}",
            cell(_in_their_place(memory, one.head)),
        )
    _indented(console, table)
    summary = overflows[-1].head.summary
    if summary and summary.redo_after is not None:
        _indented(
            console,
            cell(
                "Waits for a model: a local extract stands in, and the first model at hand writes "
                "the summary anew from the log.",
                "yellow",
            ),
        )


def _in_their_place(memory: AgentMemory, head: Head) -> str:
    if head.summary:
        summary = head.summary
        return f"a summary up to #{summary.upto}, {summary.tokens} tokens, {_by(summary)}"
    reached = [
        f"{name} up to #{head.cursors[name]}" for name in memory.blocks if head.cursors.get(name)
    ]
    return "records: " + ", ".join(reached) if reached else "nothing"


def _by(summary: Summary) -> str:
    return "extracted locally" if summary.by == "local" else f"by {summary.by}"


def _long_term(console: Console, memory: AgentMemory) -> None:
    from agent_memory.core.records import Scope

    stats = memory.stats()
    _heading(console, "What long-term memory holds")
    if not memory.blocks:
        text = f"No blocks. The log keeps all {stats.entries} messages, whatever leaves the window."
        _indented(console, cell(text))
        return
    scope = Scope(conversation.USER, conversation.SESSION)
    head = head_of(memory, conversation.SESSION)
    for name, block in memory.blocks.items():
        held = holdings(block, scope)
        standing = stats.blocks.get(name)
        title = f"{name}: {len(held)} {'record' if len(held) == 1 else 'records'}"
        if standing:
            title += f", {standing.lag} messages not absorbed yet"
            if head.cursors.get(name, 0) >= head.start:
                title += " (the window still shows them)"
        _indented(console, cell(title, "bold"))
        table = grid("#", "text", right=("#",), header=False)
        for recall in held:
            table.add_row(" ".join(f"#{seq}" for _, seq in recall.sources), one_line(recall.text))
        if held:
            _indented(console, table)
        if standing and standing.error:
            waits = standing.error.startswith("ModelRequired")
            told = "Waits for a model (--model NAME)." if waits else standing.error
            _indented(console, cell(told, "yellow"))


def _window_after(console: Console, memory: AgentMemory, question: str) -> MemoryContext:
    from agent_memory.core.tokens.counter import TokenCounter

    context = memory.get(conversation.SESSION, question, user_id=conversation.USER)
    _heading(console, f"The window after, asked “{question}”")
    _indented(
        console,
        context_table(context, TokenCounter(memory.config.model, memory.config.tokenizer).chat),
    )
    for warning in context.warnings:
        _indented(console, cell(warning, "yellow"))
    return context


def _claims(console: Console, memory: AgentMemory, context: MemoryContext) -> None:
    _heading(console, "Does it still know …")
    table = grid("", "", "where", "the words", header=False)
    table.columns[3].ratio = 1
    table.expand = True
    for claim in conversation.CLAIMS:
        found = _evidence(memory, context, claim.evidence)
        mark = cell("✓", "bold green") if found else cell(NOTHING, "yellow")
        where, words = found or _in_log(memory, claim.evidence)
        table.add_row(mark, f"{claim.what}?", where, _excerpt(words, claim.evidence))
    _indented(console, table)


def _excerpt(text: str, pattern: str) -> Text:
    """A text from a little before the words that match, which stand out."""
    match = re.search(pattern, text)
    start = max(0, match.start() - _LEAD) if match else 0
    if start:
        start = text.find(" ", start) + 1
    shown = one_line(("… " if start else "") + text[start:])
    shown.highlight_regex(pattern, "bold")
    return shown


def _evidence(memory: AgentMemory, context: MemoryContext, pattern: str) -> tuple[str, str] | None:
    """Where in a context something about her is known, and the words; the policy proves nothing."""
    if context.head is None:
        return None
    places = [
        (f"recalled, {recall.block} {seqs([seq for _, seq in recall.sources])}", recall.text)
        for recall in context.recalls
        if recall.sources
    ]
    if context.head.summary:
        places += [("in the summary", line) for line in context.head.summary.text.splitlines()]
    shown = context.messages
    places += [
        (f"in the window, #{entry.seq}", entry.message.text())
        for entry in window_of(memory, context.head)
        if entry.message in shown
    ]
    return next((place for place in places if re.search(pattern, place[1])), None)


def _in_log(memory: AgentMemory, pattern: str) -> tuple[str, str]:
    for entry in memory.history(conversation.SESSION):
        if re.search(pattern, entry.message.text()):
            return f"in the log only, #{entry.seq}", entry.message.text()
    return "nowhere", ""
