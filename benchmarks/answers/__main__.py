"""Measure the accuracy of answers from three kinds of context.

    python -m benchmarks answers --data FILE --answers FOLDER

For each question a reader model answers three times: from this library's context, from the newest
messages, and from dense search alone, each within `--tokens`. A judge model compares each answer
with the right one, and sees neither the context nor the system. `--answers` stores all
answers; a run asks no model for stored ones. Data: LoCoMo, LongMemEval or BEAM.
"""

import json
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.answers.models import Answer, Messages, Model, NotStored, judging, reading, verdict
from benchmarks.answers.systems import SYSTEMS, Shown, systems
from benchmarks.recall.evidence import interval
from benchmarks.recall.formats import ADVERSARIAL, Conversation, Question, read


@dataclass(frozen=True)
class Case:
    """A question, and the text that one system shows for it."""

    conversation: str
    question: Question
    at: datetime
    system: str
    shown: Shown


@dataclass(frozen=True)
class Outcome:
    """A judged answer. `cost` is in US dollars; None if the price is unknown."""

    conversation: str
    question: str
    category: str
    system: str
    tokens: int
    right_answer: str
    answer: str
    right: bool
    cost: float | None


def main(
    data: Annotated[
        Path, typer.Option(exists=True, help="LoCoMo's or LongMemEval's file, BEAM's folder.")
    ],
    answers: Annotated[Path, typer.Option(help="A folder for the answers.")],
    reader: Annotated[str, typer.Option(help="A litellm model.")] = "openai/gpt-4o-mini",
    judge: Annotated[str, typer.Option(help="Another one.")] = "openai/gpt-4o",
    is_asked: Annotated[
        bool, typer.Option("--ask/--no-ask", help="Ask for answers that are not stored.")
    ] = True,
    questions: Annotated[
        int, typer.Option(min=1, help="Number of questions, drawn by --seed.")
    ] = 120,
    tokens: Annotated[int, typer.Option(min=50, help="Of memories, for each question.")] = 1_000,
    seed: int = 1,
    at_once: Annotated[int, typer.Option(min=1, help="Requests at a time.")] = 8,
    api_base: Annotated[str | None, typer.Option(help="Address of the models' API.")] = None,
    api_key: Annotated[str | None, typer.Option(help="Its key.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for an answer.")] = 120,
    out: Annotated[Path | None, typer.Option(help="A JSON file for all answers.")] = None,
) -> None:
    """Ask, judge and print tables."""
    settings = {"api_base": api_base, "api_key": api_key, "timeout": timeout}

    def answered(name: str, part: str, requests: Sequence[Messages]) -> list[Answer]:
        model = Model(name, answers / part, settings, is_asked)
        try:
            return _each(requests, model.answer, part, at_once)
        except NotStored as error:
            raise typer.BadParameter(f"{error} Run it with --ask.", param_hint="--no-ask") from None

    cases = _cases(_drawn(read(data), questions, seed), tokens)
    requests = [reading(one.question, one.at, one.shown.text) for one in cases]
    said_by_reader = answered(reader, "reader", requests)
    requests = [
        judging(one.question, said.text) for one, said in zip(cases, said_by_reader, strict=True)
    ]
    judged = answered(judge, "judge", requests)
    outcomes = [
        Outcome(
            one.conversation, one.question.text, one.question.category, one.system,
            one.shown.tokens, one.question.answer, said.text, verdict(ruling.text), said.cost,
        )
        for one, said, ruling in zip(cases, said_by_reader, judged, strict=True)
    ]  # fmt: skip
    Console().print(table(outcomes))
    if out is not None:
        rows = [asdict(one) for one in outcomes]
        out.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return the accuracy of each system by category, with 95 % intervals, tokens and cost."""
    shown = Table("questions", "number", *SYSTEMS)
    categories = ["all", *sorted({one.category for one in outcomes})]
    for category in categories:
        some = [one for one in outcomes if category in ("all", one.category)]
        cells = [_accuracy([one for one in some if one.system == system]) for system in SYSTEMS]
        shown.add_row(category, str(len(some) // len(SYSTEMS)), *cells)
    for name, mean in (("tokens", _tokens), ("US dollars", _cost)):
        cells = [mean([one for one in outcomes if one.system == system]) for system in SYSTEMS]
        shown.add_row(name, "", *cells)
    return shown


def _accuracy(outcomes: Sequence[Outcome]) -> str:
    shares = [float(one.right) for one in outcomes]
    low, high = interval(shares)
    return f"{100 * fmean(shares):.1f} % ({low:.0f} to {high:.0f})"


def _tokens(outcomes: Sequence[Outcome]) -> str:
    return f"{fmean(one.tokens for one in outcomes):,.0f}"


def _cost(outcomes: Sequence[Outcome]) -> str:
    costs = [one.cost for one in outcomes]
    return "-" if None in costs else f"{sum(cost for cost in costs if cost):.4f}"


def _drawn(
    some: Sequence[Conversation], number: int, seed: int
) -> list[tuple[Conversation, list[Question]]]:
    """Choose `number` questions that have an answer, at random."""
    asked = [
        (place, question)
        for place, one in enumerate(some)
        for question in one.questions
        if question.answer and question.category != ADVERSARIAL
    ]
    drawn = random.Random(seed).sample(asked, min(number, len(asked)))
    return [
        (one, [question for at, question in drawn if at == place])
        for place, one in enumerate(some)
        if any(at == place for at, _ in drawn)
    ]


def _cases(drawn: Sequence[tuple[Conversation, list[Question]]], tokens: int) -> list[Case]:
    cases: list[Case] = []
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("contexts", total=sum(len(asked) for _, asked in drawn))
        for conversation, asked in drawn:
            with systems(conversation, tokens) as each:
                for question in asked:
                    for name, shown in each.shown(question).items():
                        at = each.asked_at(question)
                        cases.append(Case(conversation.name, question, at, name, shown))
                    progress.advance(bar)
    return cases


def _each(
    requests: Sequence[Messages], answer: Callable[[Messages], Answer], part: str, at_once: int
) -> list[Answer]:
    """Return the answers to requests. They are asked in random order, to treat systems alike."""
    shuffled = random.Random(0).sample(range(len(requests)), len(requests))
    found: dict[int, Answer] = {}
    with Progress(console=Console(stderr=True)) as progress, ThreadPoolExecutor(at_once) as threads:
        bar = progress.add_task(part, total=len(requests))
        answers = threads.map(lambda at: answer(requests[at]), shuffled)
        for place, one in zip(shuffled, answers, strict=True):
            found[place] = one
            progress.advance(bar)
    return [found[place] for place in range(len(requests))]
