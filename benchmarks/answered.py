"""What a model makes of conversations: `python -m benchmarks.answered --model NAME`.

Conversations with an oracle are said to a memory with `ExtractiveMemory` and `VectorMemory`, and
what came out is held against the oracle. `--record FOLDER` keeps the model's answers, and
`--recorded FOLDER` takes them from there, without a model. benchmarks/MODELS.md tells what each
figure means.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from agent_memory import AgentMemory, ExtractiveMemory, Trim, VectorMemory
from benchmarks import oracles
from benchmarks.choosing import chosen
from benchmarks.judging import VIEWS, Context, Found, Judged, judge
from benchmarks.oracles import Told
from benchmarks.recorded_answers import Answers, NotRecorded, estimate

_ROOM = 1_000_000  # of contexts: nothing is to leave a window
_REQUESTS = 20  # that one batch may take, attempts included
_BLOCKS: dict[str, tuple[type[ExtractiveMemory | VectorMemory], ...]] = {
    "facts": (ExtractiveMemory,), "messages": (VectorMemory,),
    "both": (ExtractiveMemory, VectorMemory),
}  # fmt: skip
Settings = dict[str, Any]


class NotAbsorbed(Exception):
    """The model failed: what came out would tell nothing."""


def run(
    model: Annotated[str | None, typer.Option(help="A litellm model.")] = None,
    data: Annotated[
        Path, typer.Option(exists=True, help="A file or folder of conversations.")
    ] = oracles.TOLD,
    recorded: Annotated[
        Path | None, typer.Option(exists=True, help="Take a model's answers from this folder.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Keep the answers in this folder; those that it has are not asked for."),
    ] = None,
    only: Annotated[
        list[str],
        typer.Option(help="Only this conversation, by its name; repeatable."),
    ] = [],  # noqa: B006 - typer reads it, nobody writes it
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first messages of each conversation.")
    ] = None,
    tokens: Annotated[
        int, typer.Option(min=20, help="What is shown of memories for a question.")
    ] = 250,
    at_once: Annotated[int, typer.Option(min=1, help="Conversations at a time.")] = 2,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for one answer.")] = 120,
    api_base: Annotated[str | None, typer.Option(help="Address of the model's API.")] = None,
    api_key: Annotated[
        str | None, typer.Option(help="Its key, where it is not in the environment.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the model is.")] = False,
    amiss: Annotated[bool, typer.Option("--amiss", help="List what is amiss.")] = False,
    out: Annotated[Path | None, typer.Option(help="A JSON file for the counts.")] = None,
) -> None:
    """Measure and print tables."""
    if (model is None) == (recorded is None) or (record is not None and recorded is not None):
        raise typer.BadParameter("Give --model (and --record, to keep answers), or --recorded.")
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    told = chosen(oracles.read, data, only, "conversation", "--only")
    if limit is not None:
        told = [one.first(limit) for one in told]
    if record is not None:
        record.mkdir(parents=True, exist_ok=True)
    try:
        answers = Answers(recorded or record, model)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    settings: Settings = {
        "model": answers.model, "api_base": api_base, "api_key": api_key,
        "model_timeout": timeout, "absorb_timeout": timeout * _REQUESTS,
        "overflow": Trim(), "max_tokens": _ROOM, "max_recall_tokens": tokens, "min_relevance": 0,
        "recall_timeout": 60.0,
    }  # fmt: skip
    if model is not None:
        _warn(console, told, settings)
        if not yes:
            typer.confirm("Ask it?", abort=True)
    try:
        with answers.given():
            judged = _all(told, settings, at_once)
    except NotAbsorbed as error:
        console.print(f"[bold]No figures:[/] {escape(str(error))} Recorded answers are kept.")
        raise typer.Exit(1) from None
    if answers.amiss:
        console.print(
            f"[bold]No figures:[/] {recorded} does not fit what is asked now. Of {len(told)} "
            f"conversations, {len(answers.amiss)} met a request that has no recorded answer: "
            f"{'; '.join(sorted(set(answers.amiss)))}. Record anew, with --model and --record."
        )
        raise typer.Exit(1)
    if recorded is not None and answers.unused and not only and limit is None:
        console.print(f"{answers.unused} of the recorded answers were not asked for.")
    _show(console, answers.model, tokens, judged)
    if amiss:
        for name, one in judged.items():
            for sentence in one.amiss:
                console.print(f"{name}: {sentence}", markup=False)
    if out is not None:
        counts = {name: dict(one.counts) for name, one in judged.items()}
        whole = {"model": answers.model, "tokens": tokens, "conversations": counts}
        out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def _warn(console: Console, told: Sequence[Told], settings: Settings) -> None:
    messages = sum(len(said) for one in told for said in one.sessions.values())

    def feed() -> None:
        for one in told:
            with AgentMemory(store="memory://", blocks=[ExtractiveMemory()], **settings) as memory:
                _feed(memory, one)

    with console.status("Counting what will be asked"):
        one = estimate(settings["model"], messages, feed)
    price = "no price is known" if one.cost is None else f"about ${one.cost:.2f}"
    console.print(
        f"{len(told)} conversations of {messages:,} messages, for {settings['model']}: about "
        f"{one.calls:,} requests, {one.prompt_tokens:,} tokens to it and "
        f"{one.completion_tokens:,} from it: {price}."
    )


def _all(told: Sequence[Told], settings: Settings, at_once: int) -> dict[str, Judged]:
    judged: dict[str, Judged] = {}
    with (
        Progress(console=Console(stderr=True)) as progress,
        ThreadPoolExecutor(at_once) as threads,
    ):
        bar = progress.add_task("sessions", total=sum(len(one.sessions) for one in told))
        running = {
            threads.submit(_one, one, settings, lambda: progress.advance(bar)): one for one in told
        }
        for done in as_completed(running):
            try:
                judged[running[done].name] = done.result()
            except NotRecorded:
                continue
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise
    return {one.name: judged[one.name] for one in told if one.name in judged}


def _one(told: Told, settings: Settings, advance: Callable[[], object]) -> Judged:
    with TemporaryDirectory() as folder, ExitStack() as opened:
        url = f"sqlite:///{Path(folder, 'm.db').as_posix()}"
        memories = {
            view: opened.enter_context(
                AgentMemory(store=url, blocks=[kind() for kind in kinds], **settings)
            )
            for view, kinds in _BLOCKS.items()
        }
        memory = memories["both"]
        _feed(memory, told, advance)
        used = memory.stats().usage
        turn_of = {
            (session, seq): turn
            for session, said in told.sessions.items()
            for seq, (turn, _) in enumerate(said, 1)
        }
        contexts = [
            {view: _context(one, told.name, question, turn_of) for view, one in memories.items()}
            for question, _, _ in told.questions
        ]
        judged = judge(told, list(_found(memory, told, turn_of)), contexts)
    judged.counts["calls"], judged.counts["failed calls"] = used.calls, used.failures
    judged.counts["tokens"] = used.prompt_tokens + used.completion_tokens
    judged.counts["cents"] = round(100 * (used.cost or 0))
    return judged


def _feed(memory: AgentMemory, told: Told, advance: Callable[[], object] = lambda: None) -> None:
    """Say all, each session absorbed at its end.

    Raises:
        NotRecorded: An answer is missing.
        NotAbsorbed: Something could not be absorbed.
    """
    for session, said in told.sessions.items():
        memory.update(session, [message for _, message in said], user_id=told.name)
        if errors := [one.error for one in memory.end(session, user_id=told.name) if one.error]:
            missing = NotRecorded.__name__ in errors[0]
            raise (NotRecorded if missing else NotAbsorbed)(
                f"{session} was not absorbed: {errors[0]}"
            )
        advance()


def _found(
    memory: AgentMemory, told: Told, turn_of: Mapping[tuple[str, int], str]
) -> Iterator[Found]:
    """The facts that are current, and those that were so after any message."""
    user = memory.user(told.name)
    facts = {fact.id: (fact, True) for fact in user.facts()}
    for said in told.sessions.values():
        for turn, message in said:
            if turn in told.of_user:
                for fact in user.facts(known_at=message["created_at"]):
                    facts.setdefault(fact.id, (fact, False))
    for fact, current in facts.values():
        turns = frozenset(turn_of[source] for source in fact.sources)
        yield Found(fact.text, fact.valid_from, fact.valid_to, turns, current)


def _context(
    memory: AgentMemory, user: str, question: str, turn_of: Mapping[tuple[str, int], str]
) -> Context:
    context = memory.get("asking", question, user_id=user)
    shown = "\n".join(str(message["content"]) for message in context.to_messages()[:-1])
    sources = (source for recall in context.recalls for source in recall.sources)
    return Context(unescape(shown), frozenset(turn_of[source] for source in sources))


_ROWS: dict[str, str | tuple[str, str]] = {
    "messages": "messages",
    "facts per 100": ("facts", "messages"),
    "evidence behind a fact": ("evidence behind", "evidence"),
    "expected facts": ("expected found", "expected"),
    "dates right": ("date right", "dated"),
    "dates wrong": ("date wrong", "dated"),
    "dates invented": ("date invented", "dateless"),
    "duplicates": ("duplicates", "current"),
    "never": ("never there", "never"),
    "gone": ("gone there", "gone"),
    "questions": "questions",
    **{f"answered by {view}": (f"answered by {view}", "answers known") for view in VIEWS},
    "by either alone": ("answered by either", "answers known"),
    **{f"evidence in {view}": (f"evidence in {view}", "questions") for view in VIEWS},
    "calls": "calls",
    "tokens": "tokens",
}


def _show(console: Console, model: str, tokens: int, judged: Mapping[str, Judged]) -> None:
    whole = Judged(sum((one.counts for one in judged.values()), Counter()))
    columns = {**judged, "all": whole}
    title = f"{model}; questions with {tokens} tokens of memories; shares in %"
    table = Table("", title=escape(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(escape(name), justify="right", no_wrap=True)
    for row, what in _ROWS.items():
        if _cell(whole, what) != "-":
            table.add_row(row, *(_cell(one, what) for one in columns.values()))
    console.print(table)
    if cents := whole.counts["cents"]:
        console.print(f"It cost ${cents / 100:.2f}.")


def _cell(judged: Judged, what: str | tuple[str, str]) -> str:
    if isinstance(what, str):
        return f"{judged.counts[what]:,}"
    share = judged.share(*what)
    return "-" if share is None else f"{share:.0f}"


if __name__ == "__main__":
    typer.run(run)
