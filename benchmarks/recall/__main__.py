"""Measure recall in long conversations: `python -m benchmarks recall --data PATH`.

The data is LoCoMo's, BEAM's or LongMemEval's; see `formats`. The benchmark uses the public API. It
stores every turn in a memory with the default `VectorMemory`, and passes every question to `search`
and `get`. The result is the share of the question's evidence that is recalled.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from agent_memory import AgentMemory, VectorMemory
from benchmarks.recall.evidence import DEPTHS, Ranks, figures, interval
from benchmarks.recall.formats import ADVERSARIAL, Conversation, Question, read
from benchmarks.recall.paraphrases import FOREIGN, SMALL_TALK

BUDGETS = (1_000, 2_000, 4_000)
AS_SENT = 0
"""Stands for a context at default settings. Contexts of `BUDGETS` have `min_relevance=0`."""

Settings = dict[str, Any]
TurnOf = dict[tuple[str, int], str]
"""The id of each turn, by session and seq."""

_ROOM = 1_000_000  # tokens of a context, so that only recalls reach their limit


def main(
    data: Annotated[
        Path,
        typer.Option(
            exists=True, help="LoCoMo's JSON file, or BEAM's folder of chats, such as chats/100K."
        ),
    ],
    only: Annotated[
        list[str],
        typer.Option(
            help="Only this conversation; repeatable. The name of a chat is that of its folder."
        ),
    ] = [],  # noqa: B006 - typer reads it, nobody writes it
    change: Annotated[
        list[str],
        typer.Option("--set", help="Another setting of VectorMemory, NAME=JSON; repeatable."),
    ] = [],  # noqa: B006
    embedding: Annotated[str | None, typer.Option(help="Another embedding model.")] = None,
    out: Annotated[Path | None, typer.Option(help="A JSON file for the figures.")] = None,
) -> None:
    """Measure and print tables."""
    settings = dict(_setting(one) for one in change)
    some = _conversations(data, only)
    found: list[Ranks] = []
    quiet: list[bool] = []
    turns, indexing = 0, 0.0
    with Progress(console=Console(stderr=True)) as progress:
        asked = progress.add_task("questions", total=sum(len(one.questions) for one in some))
        for conversation in some:
            with TemporaryDirectory() as folder, ExitStack() as opened:
                url = f"sqlite:///{Path(folder, 'm.db').as_posix()}"
                memories = {
                    budget: opened.enter_context(_memory(url, budget, embedding, settings))
                    for budget in (*BUDGETS, AS_SENT)
                }
                turn_of, took = _say(memories[BUDGETS[0]], conversation)
                turns, indexing = turns + len(turn_of), indexing + took
                for question in conversation.questions:
                    found.append(_ask(memories, conversation.name, question, turn_of))
                    progress.advance(asked)
                quiet += [
                    not memories[AS_SENT].get("asking", what, user_id=conversation.name).recalls
                    for what in (*FOREIGN, *SMALL_TALK)
                ]
    told = {
        "conversations": [one.name for one in some],
        "turns": turns,
        "indexed_per_second": turns / indexing,
        "embedding": embedding,
        "idle_without_recall": 100 * fmean(quiet),
        **_report(settings, found),
    }
    _show(told, found)
    if out is not None:
        out.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def _conversations(data: Path, only: Sequence[str]) -> list[Conversation]:
    found = read(data)
    if not found:
        raise typer.BadParameter(f"{data} holds no conversation.", param_hint="--data")
    if strange := set(only) - {one.name for one in found}:
        names = ", ".join(one.name for one in found)
        raise typer.BadParameter(
            f"No conversation is named {min(strange)!r}; there are {names}.", param_hint="--only"
        )
    return [one for one in found if not only or one.name in only]


def _setting(given: str) -> tuple[str, Any]:
    name, mark, value = given.partition("=")
    if not mark:
        raise typer.BadParameter(f"{given!r} is not NAME=JSON.", param_hint="--set")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        raise typer.BadParameter(f"{value!r} is not JSON.", param_hint="--set") from None


def _memory(url: str, budget: int, embedding: str | None, settings: Settings) -> AgentMemory:
    limits: Settings = {"max_tokens": _ROOM, "recall_timeout": 60.0}
    if budget != AS_SENT:
        limits |= {"max_recall_tokens": budget, "min_relevance": 0}
    return AgentMemory(url, embedding=embedding, blocks=[VectorMemory(**settings)], **limits)


def _say(memory: AgentMemory, conversation: Conversation) -> tuple[TurnOf, float]:
    """Store all turns. Return their ids by place, and the seconds until all were absorbed."""
    turn_of: TurnOf = {}
    memory.search("warm", user_id=conversation.name)  # loads the embedder
    begun = perf_counter()
    for session, messages in conversation.sessions.items():
        memory.update(session, [message for _, message in messages], user_id=conversation.name)
        turn_of |= {(session, seq): turn for seq, (turn, _) in enumerate(messages, 1)}
    if errors := [one.error for one in memory.flush() if one.error]:
        raise RuntimeError(f"Not all was absorbed: {errors[0]}.")
    return turn_of, perf_counter() - begun


def _ask(memories: dict[int, AgentMemory], user: str, question: Question, turn_of: TurnOf) -> Ranks:
    begun = perf_counter()
    recalls = memories[BUDGETS[0]].search(question.text, user_id=user, limit=max(DEPTHS))
    took = perf_counter() - begun
    contexts = {
        budget: memory.get("asking", question.text, user_id=user)
        for budget, memory in memories.items()
    }
    return Ranks(
        category=question.category,
        evidence=question.evidence,
        ranked=tuple(frozenset(turn_of[at] for at in recall.sources) for recall in recalls),
        within={
            budget: frozenset(turn_of[at] for one in context.recalls for at in one.sources)
            for budget, context in contexts.items()
        },
        tokens={key: sum(one.tokens for one in some.recalls) for key, some in contexts.items()},
        seconds=took,
    )


def _components(found: Sequence[Ranks]) -> dict[str, list[Ranks]]:
    """Return all questions except adversarial ones, then the questions of each category."""
    parts = {"all": [one for one in found if one.category != ADVERSARIAL]}
    for name in sorted({one.category for one in found}):
        parts[name] = [one for one in found if one.category == name]
    return {name: part for name, part in parts.items() if part}


def _report(settings: Settings, found: Sequence[Ranks]) -> dict[str, Any]:
    times = [one.seconds * 1e3 for one in found]
    return {
        "settings": settings,
        "search_ms": {"p50": median(times), "p95": quantiles(times, n=20)[-1]},
        "figures": {
            name: figures(part, (*BUDGETS, AS_SENT)) for name, part in _components(found).items()
        },
    }


def _show(told: Mapping[str, Any], found: Sequence[Ranks]) -> None:
    console = Console()
    console.print(*_tables(told, _components(found)))
    times = told["search_ms"]
    console.print(
        f"{told['turns']:,} turns, {told['indexed_per_second']:,.0f} a second; a search takes "
        f"{times['p50']:.1f} ms (p50), {times['p95']:.1f} ms (p95). Of {len(FOREIGN)} foreign "
        f"requests and {len(SMALL_TALK)} of small talk, {told['idle_without_recall']:.0f} % bring "
        "nothing into a context."
    )


def _tables(told: Mapping[str, Any], parts: Mapping[str, Sequence[Ranks]]) -> tuple[Table, Table]:
    ranks = Table("questions", "number", *(f"R@{k}" for k in DEPTHS), "95 % of R@10", "all@10")
    budgets = Table("questions", *(f"within {b:,}" for b in BUDGETS), "as sent", "tokens")
    for name, part in parts.items():
        means = told["figures"][name]
        low, high = interval([one.recall(10) for one in part])
        depths = [f"{means[f'recall@{depth}']:.1f}" for depth in DEPTHS]
        between = f"{low:.1f} to {high:.1f}"
        ranks.add_row(name, f"{len(part)}", *depths, between, f"{means['all@10']:.1f}")
        shares = [f"{means[f'within {budget}']:.1f}" for budget in (*BUDGETS, AS_SENT)]
        budgets.add_row(name, *shares, f"{means[f'tokens at {AS_SENT}']:,.0f}")
    return ranks, budgets
