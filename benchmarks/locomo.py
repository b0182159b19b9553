"""What recall finds in long conversations: `python -m benchmarks.locomo --data FILE`.

Evidence recall on LoCoMo (see `conversations`), through the public API alone: every turn is said to
a memory with `VectorMemory` at its defaults, then every question is searched and got.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from agent_memory import AgentMemory, VectorMemory
from benchmarks.conversations import ADVERSARIAL, CATEGORIES, Conversation, Question, read
from benchmarks.evidence import DEPTHS, Found, figures, interval

BUDGETS = (1_000, 2_000, 4_000)
TurnOf = dict[tuple[str, int], str]
"""The turn at each place of the log."""

_ROOM = 1_000_000  # of contexts: only recalls are to be short of tokens


def run(
    data: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="The data, as JSON.")],
    change: Annotated[
        list[str],
        typer.Option("--set", help="Another setting of VectorMemory, NAME=JSON; repeatable."),
    ] = [],  # noqa: B006 - typer reads it, nobody writes it
    embedding: Annotated[str | None, typer.Option(help="Another embedding model.")] = None,
    out: Annotated[Path | None, typer.Option(help="A JSON file for the figures.")] = None,
) -> None:
    """Measure and print tables."""
    settings = dict(_setting(one) for one in change)
    conversations = read(data)
    found: list[Found] = []
    turns, indexing = 0, 0.0
    with Progress() as progress:
        asked = progress.add_task("questions", total=sum(len(c.questions) for c in conversations))
        for conversation in conversations:
            with TemporaryDirectory() as folder, ExitStack() as opened:
                url = f"sqlite:///{Path(folder, 'm.db').as_posix()}"
                memories = {
                    budget: opened.enter_context(_memory(url, budget, embedding, settings))
                    for budget in BUDGETS
                }
                turn_of, took = _say(memories[BUDGETS[0]], conversation)
                turns, indexing = turns + len(turn_of), indexing + took
                for question in conversation.questions:
                    found.append(_ask(memories, conversation.name, question, turn_of))
                    progress.advance(asked)
    rate, times = turns / indexing, [one.seconds * 1e3 for one in found]
    told = {
        "turns": turns,
        "indexed_per_second": rate,
        "search_ms": {"p50": median(times), "p95": quantiles(times, n=20)[-1]},
        "settings": settings,
        "embedding": embedding,
        "figures": {name: figures(part, BUDGETS) for name, part in _parts(found).items()},
    }
    _show(told, found)
    if out is not None:
        out.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def _setting(given: str) -> tuple[str, Any]:
    name, mark, value = given.partition("=")
    if not mark:
        raise typer.BadParameter(f"{given!r} is not NAME=JSON.", param_hint="--set")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        raise typer.BadParameter(f"{value!r} is not JSON.", param_hint="--set") from None


def _memory(url: str, budget: int, embedding: str | None, settings: dict[str, Any]) -> AgentMemory:
    return AgentMemory(
        store=url,
        max_tokens=_ROOM,
        max_recall_tokens=budget,
        embedding=embedding,
        blocks=[VectorMemory(**settings)],
        recall_timeout=60.0,
    )


def _say(memory: AgentMemory, conversation: Conversation) -> tuple[TurnOf, float]:
    """Say all turns; where they are, and the seconds until all were absorbed."""
    turn_of: TurnOf = {}
    memory.search("warm", user_id=conversation.name)  # loads the embedder
    begun = perf_counter()
    for session, messages in conversation.sessions.items():
        memory.update(session, [message for _, message in messages], user_id=conversation.name)
        turn_of |= {(session, seq): turn for seq, (turn, _) in enumerate(messages, 1)}
    if errors := [one.error for one in memory.flush() if one.error]:
        raise RuntimeError(f"Not all was absorbed: {errors[0]}.")
    return turn_of, perf_counter() - begun


def _ask(
    memories: dict[int, AgentMemory],
    user: str,
    question: Question,
    turn_of: TurnOf,
) -> Found:
    begun = perf_counter()
    recalls = memories[BUDGETS[0]].search(question.text, user_id=user, limit=max(DEPTHS))
    took = perf_counter() - begun
    contexts = {
        budget: memory.get("asking", question.text, user_id=user)
        for budget, memory in memories.items()
    }
    return Found(
        category=question.category,
        evidence=question.evidence,
        ranked=tuple(frozenset(turn_of[at] for at in recall.sources) for recall in recalls),
        within={
            budget: frozenset(turn_of[at] for one in context.recalls for at in one.sources)
            for budget, context in contexts.items()
        },
        tokens={
            budget: sum(one.tokens for one in context.recalls)
            for budget, context in contexts.items()
        },
        seconds=took,
    )


def _parts(found: Sequence[Found]) -> dict[str, list[Found]]:
    main = [one for one in found if one.category != ADVERSARIAL]
    parts = {"categories 1-4": main}
    for number, name in CATEGORIES.items():
        parts[name] = [one for one in found if one.category == number]
    return {name: part for name, part in parts.items() if part}


def _show(told: dict[str, Any], found: Sequence[Found]) -> None:
    console = Console()
    ranks = Table("questions", "number", *(f"R@{k}" for k in DEPTHS), "95 % of R@10", "all@10")
    budgets = Table("questions", "MRR", *(f"within {b:,}" for b in BUDGETS), "tokens at 1,000")
    for name, part in _parts(found).items():
        means = told["figures"][name]
        low, high = interval([one.recall(10) for one in part])
        depths = [f"{means[f'recall@{depth}']:.1f}" for depth in DEPTHS]
        between = f"{low:.1f} to {high:.1f}"
        ranks.add_row(name, f"{len(part)}", *depths, between, f"{means['all@10']:.1f}")
        shares = [f"{means[f'within {budget}']:.1f}" for budget in BUDGETS]
        budgets.add_row(name, f"{means['mrr']:.1f}", *shares, f"{means['tokens at 1000']:.0f}")
    console.print(ranks, budgets)
    times = told["search_ms"]
    console.print(
        f"{told['turns']:,} turns, {told['indexed_per_second']:,.0f} a second; a search takes "
        f"{times['p50']:.1f} ms (p50), {times['p95']:.1f} ms (p95)."
    )


if __name__ == "__main__":
    typer.run(run)
