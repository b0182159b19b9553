"""`agent-memory demo`: play a conversation that overflows a small budget, and print the results."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from agent_memory.cli import common, terminal
from agent_memory.cli.config import described
from agent_memory.cli.importing import read_lines
from agent_memory.core.text import ranges
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from agent_memory.core.context import MemoryContext
    from agent_memory.core.messages import Message
    from agent_memory.core.records import Head, Recall, Scope
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.ltm_blocks.base import Block

Kind = StrEnum("Kind", ["trim", "summarize", "flush_to_ltm"])
"""The strategies that the demo shows."""

_BUDGET = 400
_REPLAY_BUDGET = 2000
_PATIENCE = 30.0
_ALL = 1_000_000


def demo(
    file: Annotated[
        Path | None, Option(metavar="FILE", exists=True, dir_okay=False, help="Play a chat log.")
    ] = None,
    strategy: Annotated[Kind | None, Option(help="The strategy; all three by default.")] = None,
    model: common.ModelOption = None,
    max_tokens: common.BudgetOption = None,
    ask: Annotated[str | None, Option(metavar="TEXT", help="The question at the end.")] = None,
    config: common.ConfigOption = None,
) -> None:
    """Show how a conversation overflows its budget, and what the memory still knows afterwards.

    Plays a conversation about an HR policy in 400 tokens, under each strategy. No key is
    needed. With --file, plays JSON lines with role and content, in 2000 tokens. With --model, that
    model writes the summary and extracts the facts. The store is temporary and deleted afterwards.
    """
    with terminal.quiet():
        if file is not None:
            kind, read = strategy or Kind.flush_to_ltm, read_lines(file)
            with _opened(kind, max_tokens or _REPLAY_BUDGET, model, config, ()) as memory:
                played = play(memory, read, file.name)
                questions = [message.text() for _, message in read if message.role == "user"]
                show_replay(memory, played, ask or next(reversed(questions), "What was said?"))
            return
        conversation, budget = read_lines(CONVERSATION), max_tokens or _BUDGET
        terminal.say(
            f"\nSarah asks HR about remote work: {len(conversation)} messages, {budget} tokens."
        )
        terminal.say(f"A model (--model NAME): {model or 'none'}.")
        for kind in [strategy] if strategy else Kind:
            with _opened(kind, budget, model, config, FACTS) as memory:
                played = play(memory, conversation, f"under {kind}")
                show_demo(memory, played, ask or QUESTION)


@contextmanager
def _opened(
    kind: Kind, max_tokens: int, model: str | None, config: Path | None, facts: tuple[str, ...]
) -> Iterator[AgentMemory]:
    """Open a memory with one strategy, in a temporary store that is deleted afterwards."""
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.ltm_blocks import ExtractiveMemory, StaticMemory, VectorMemory
    from agent_memory.strategies import FlushToLTM, Summarize, Trim

    fixed = [StaticMemory(facts=facts)] if facts else []
    learned = [ExtractiveMemory()] if facts or model else []
    strategies = {
        Kind.trim: Trim(),
        Kind.summarize: Summarize(max_summary_tokens=max(1, max_tokens // 4)),
        Kind.flush_to_ltm: FlushToLTM(blocks=(*fixed, *learned, VectorMemory()), max_stm_ratio=0.5),
    }
    with tempfile.TemporaryDirectory(prefix="agent-memory-") as folder:
        store = f"sqlite:///{Path(folder).as_posix()}/demo.db"
        fields = {"store": store, "namespace": "demo", "max_tokens": max_tokens, "model": model}
        fields |= {"embedding": None, "blocks": (), "recall_timeout": _PATIENCE}
        with AgentMemory(
            common.read_config(config, {**fields, "overflow": strategies[kind]})
        ) as memory:
            yield memory


SESSION = "hr-remote-work"
USER = "sarah"

FACTS = (
    "Remote work is possible up to 3 days a week, with the manager's approval.",
    "Eligible are employees with at least 6 months of service, satisfactory reviews, a suitable "
    "role, and the equipment and internet it takes.",
)

CONVERSATION = Path(__file__).with_name("demo.jsonl")
QUESTION = "Do I qualify for working from home, and which document do I fill in?"


CLAIMS = {
    "her name": r"\bSarah\b",
    "her department": r"\bMarketing\b",
    "her eligibility": r"(?i)\b(2|two) years\b|\b(she|you|sarah)( is|'re| are) eligible",
}
"""Facts that memory must have after the overflow, each with a pattern that matches it."""


@dataclass(slots=True)
class Played:
    messages: int = 0
    largest: int = 0  # tokens of the largest context
    violations: int = 0  # number of contexts that exceeded the budget
    # the heads before and after each overflow
    overflows: list[tuple[Head, Head]] = field(default_factory=list)


def play(memory: AgentMemory, messages: Sequence[tuple[str, Message]], name: str) -> Played:
    """Append messages one by one. After each, get a context and check its number of tokens."""
    from rich.markup import escape

    from agent_memory.core.token_counter import TokenCounter

    counter = TokenCounter(memory.config.model, memory.config.tokenizer)
    played, before = Played(), None
    with terminal.progress_bar() as progress:
        for where, message in progress.track(messages, description=escape(name)):
            try:
                head = memory.update(SESSION, message, user_id=USER)
            except InvalidInput as error:
                raise InvalidInput(f"{where}: {error}") from None
            if before and head.start != before.start:
                played.overflows.append((before, head))
            before = head
            context = memory.get(SESSION, user_id=USER)
            counted = counter.context(context.to_messages())
            played.messages += 1
            played.largest = max(played.largest, context.tokens)
            played.violations += max(context.tokens, counted) > context.max_tokens
    return played


def show_demo(memory: AgentMemory, played: Played, question: str) -> None:
    """Print a strategy's overflows, its long-term memory, and the final window."""
    from agent_memory.core.token_counter import TokenCounter

    terminal.out().print()
    about = described(memory.config.strategy, memory.config.model)
    terminal.out().rule(terminal.cell(about, "bold"), align="left", style="blue")
    _overflows(memory, played.overflows)
    _long_term(memory, listed=True)
    context = memory.get(SESSION, question, user_id=USER)
    count = TokenCounter(memory.config.model, memory.config.tokenizer).chat
    warnings = [terminal.cell(warning, "yellow") for warning in context.warnings]
    _part(f"The window after, asked “{question}”", _context_table(context, count), *warnings)
    listed = terminal.table(("", "", "where", "the words"), header=False)
    listed.columns[3].ratio, listed.expand = 1, True
    for what, evidence in CLAIMS.items():
        in_context, where, words = _evidence(memory, context, evidence)
        mark, style = ("✓", "bold green") if in_context else (terminal.NOTHING, "yellow")
        match = re.search(evidence, words)
        shown = terminal.one_line(words[max(0, match.start() - 24) if match else 0 :])
        shown.highlight_regex(evidence, "bold")
        listed.add_row(terminal.cell(mark, style), f"{what}?", where, shown)
    _part("Does it still know …", listed)


def show_replay(memory: AgentMemory, played: Played, question: str) -> None:
    """Print the results of replaying a file. Exits with 1 if a context exceeded the budget."""
    kind = " and ".join(part.kind for part in memory.config.strategy.parts)
    budget = memory.config.max_tokens
    rows = (
        ("messages", f"{played.messages:,}"),
        ("overflows", f"{len(played.overflows):,}"),
        ("contexts checked", f"{played.messages:,}"),
        ("largest context", f"{played.largest:,} of {budget:,} tokens"),
        ("budget violations", f"{played.violations:,}"),
    )
    _part(f"Under {kind}, {budget} tokens", terminal.table(("", ""), rows, header=False))
    _long_term(memory, listed=False)
    results = memory.search(question, user_id=USER, limit=6)
    recalls = [recall for recall in results if question not in recall.text][:5]
    shown = terminal.recalls_table(recalls) if recalls else "Nothing."
    _part(f"Recalled for “{question}” (--ask asks another)", shown)
    if played.violations:
        raise typer.Exit(common.FAILED)


def _part(title: str, *shown: RenderableType) -> None:
    from rich.padding import Padding

    terminal.out().print("", terminal.cell(title, "bold blue"), sep="\n")
    for item in shown:
        terminal.out().print(Padding(item, (0, 0, 0, 2)))


def _overflows(memory: AgentMemory, overflows: Sequence[tuple[Head, Head]]) -> None:
    if not overflows:
        _part("The window never overflowed", "Give a smaller budget with --max-tokens.")
        return
    listed = terminal.table(("arrived", "left the window", "tokens", "in their place"))
    for before, after in overflows:
        gone = memory.history(SESSION, after=before.start, limit=after.start - before.start)
        left = _seqs([entry.seq for entry in gone if not entry.message.is_system])
        reached = [f"{name} up to #{seq}" for name, seq in after.cursors.items() if seq]
        place = f"records: {', '.join(reached)}" if reached else "nothing"
        if summary := after.summary:
            by = "extracted locally" if summary.by == "local" else f"by {summary.by}"
            place = f"a summary up to #{summary.upto}, {summary.tokens} tokens, {by}"
        tokens = f"{after.total - before.start_total} → {after.window_tokens}"
        listed.add_row(f"#{after.end}", left, tokens, terminal.cell(place))
    summary = overflows[-1][1].summary
    text = "A local extract replaces the summary until a model is available to write it."
    waits = [terminal.cell(text, "yellow")] if summary and summary.redo_after is not None else []
    _part(f"Overflows: {len(overflows)}", listed, *waits)


def _long_term(memory: AgentMemory, listed: bool) -> None:
    from agent_memory.core.records import Scope
    from agent_memory.models.embedders.local import is_installed

    stats = memory.stats()
    shown: list[RenderableType] = []
    for name, block in memory.blocks.items():
        held = _holdings(block, Scope(USER, SESSION))
        title = f"{name}: {len(held)} {'record' if len(held) == 1 else 'records'}"
        counts = stats.blocks.get(name)
        lag = f", {counts.lag} messages not absorbed yet" if counts else ""
        shown.append(terminal.cell(title + lag, "bold"))
        if held and listed:
            rows = (
                (" ".join(f"#{seq}" for _, seq in recall.sources), terminal.one_line(recall.text))
                for recall in held
            )
            shown.append(terminal.table(("#", "text"), rows, right=("#",), header=False))
        if error := counts and counts.error:
            shown.append(terminal.cell(error, "yellow"))
    shown += [terminal.cell(common.NO_EMBEDDER, "yellow")] if shown and not is_installed() else []
    log = f"No blocks. The log keeps all {stats.entries} messages."
    _part("What long-term memory holds", *(shown or [log]))


def _evidence(memory: AgentMemory, context: MemoryContext, pattern: str) -> tuple[bool, str, str]:
    """Return whether a context has a text that matches, where the text is from, and the text.

    If only the log has a match, return its text with False. Static facts do not count.
    """
    places = [
        (
            f"recalled, {recall.block} {_seqs([seq for _, seq in recall.sources])}",
            recall.text,
        )
        for recall in context.recalls
        if recall.sources
    ]
    if context.head is not None and context.head.summary:
        places += [("in the summary", line) for line in context.head.summary.text.splitlines()]
    log = [entry for entry in memory.history(SESSION) if not entry.message.is_system]
    shown = [entry for entry in log if entry.message in context.messages]
    places += [(f"in the window, #{entry.seq}", entry.message.text()) for entry in shown]
    visible = len(places)
    places += [(f"in the log only, #{entry.seq}", entry.message.text()) for entry in log]
    for i, (where, words) in enumerate(places):
        if re.search(pattern, words):
            return i < visible, where, words
    return False, "nowhere", ""


def _context_table(context: MemoryContext, count: Any) -> Table:
    """Return the messages of a context, with the tokens that `count` returns, and their total."""
    from agent_memory.core.messages import Message
    from agent_memory.core.transcript import full_text

    listed = terminal.table(("role", "what the model is sent", "tokens"), right=("tokens",))
    listed.columns[1].ratio, listed.expand = 1, True
    used = 0
    for view in context.to_messages():
        tokens = count(view)
        used += tokens
        text = full_text(Message.of(view))
        special = text.startswith(("<memory>", "<summary>"))
        role = terminal.cell(view["role"], terminal.COLORS.get(view["role"], ""))
        listed.add_row(
            role, terminal.cell(text, "yellow") if special else terminal.one_line(text), str(tokens)
        )
    listed.add_row("", terminal.cell("the format of the chat", "dim"), str(context.tokens - used))
    total = f"{context.tokens} / {context.max_tokens}"
    listed.add_row("", terminal.cell("total", "bold"), terminal.cell(total, "bold"))
    return listed


def _seqs(numbers: Sequence[int]) -> str:
    """Return seqs as ranges: #2 to #7, #9."""
    return ranges(sorted(numbers), "#") or "nothing"


def _holdings(block: Block, scope: Scope) -> list[Recall]:
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
