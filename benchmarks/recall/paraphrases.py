"""Recall in other words: `python -m benchmarks recall paraphrases [--haystack FILE]`.

A user makes a statement, and asks for it later in other words (`paraphrases.json`). Each statement
is in its own session. All other sessions are a haystack: a conversation of LoCoMo's file, or 300
everyday notes, on which nothing was fitted. The table shows how often `search` has the statement
first and among ten, and how often `get` shows it. It also shows how many foreign requests and how
much small talk recall anything.

`--fit` prints `slope` and `middle` of `score.json`, which separate the statements from the best
records of foreign requests with equal weight.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from agent_memory import AgentMemory
from agent_memory.core.records import Recall
from agent_memory.retrieval.score import fitted
from benchmarks.recall import formats
from benchmarks.recall.intents import logistic

USER = "ana"
_SESSION = 6  # notes
_PAIRS = Path(__file__).with_name("paraphrases.json")
_HELD_OUT = _PAIRS.with_name("paraphrases_held_out.json")
_UNRELATED = json.loads(_PAIRS.with_name("unrelated.json").read_text(encoding="utf-8"))
FOREIGN: tuple[str, ...] = tuple(_UNRELATED["foreign"])
SMALL_TALK: tuple[str, ...] = tuple(_UNRELATED["small_talk"])
"""`FOREIGN` and small talk: requests for which a memory of the data should recall nothing."""

COURTESIES: tuple[str, ...] = tuple(_UNRELATED["courtesies"])
"""Small talk that is recognized by its words alone."""


@dataclass(frozen=True)
class Measured:
    """Shares of 1, measured in one haystack."""

    first: float
    among_ten: float
    shown: float
    foreign: float
    small_talk: float
    gates: tuple[list[float], list[float]]


def haystack(file: Path | None) -> Iterator[list[dict[str, Any]]]:
    """Yield sessions of messages that are irrelevant to the questions."""
    if file is None:
        notes = json.loads(_HELD_OUT.read_text(encoding="utf-8"))["notes"]
        for at in range(0, len(notes), _SESSION):
            yield [{"role": "user", "content": text} for text in notes[at : at + _SESSION]]
    else:
        for session in formats.read(file)[0].sessions.values():
            yield [message for _, message in session]


def measure(file: Path | None, data: dict[str, Any]) -> Measured:
    """Measure one haystack."""
    pairs = data["zero"]
    with TemporaryDirectory() as folder, AgentMemory(f"{folder}/m.db", max_tokens=8_000) as memory:
        for number, messages in enumerate(haystack(file)):
            memory.update(f"hay-{number}", messages, user_id=USER)
        for number, pair in enumerate(pairs):
            said = {"role": "user", "content": pair["said"]}
            memory.update(f"pair-{number}", said, user_id=USER)
        memory.flush()
        found = [memory.search(pair["asked"], user_id=USER, least=0.0) for pair in pairs]
        places = [
            next((at for at, one in enumerate(some) if pair["said"] in one.text), None)
            for pair, some in zip(pairs, found, strict=True)
        ]
        shown = [
            any(pair["said"] in one.text for one in _recalled(memory, pair["asked"]))
            for pair in pairs
        ]
        foreign = [*data["foreign"], *FOREIGN]
        chat = [*data["small_talk"], *SMALL_TALK]
        right = [_odds(some[at]) for at, some in zip(places, found, strict=True) if at is not None]
        wrong = [
            max(map(_odds, memory.search(one, user_id=USER, least=0.0)), default=-99.0)
            for one in foreign
        ]
        return Measured(
            sum(at == 0 for at in places) / len(pairs),
            sum(at is not None for at in places) / len(pairs),
            sum(shown) / len(pairs),
            sum(bool(_recalled(memory, one)) for one in foreign) / len(foreign),
            sum(bool(_recalled(memory, one)) for one in chat) / len(chat),
            (right, wrong),
        )


def _recalled(memory: AgentMemory, question: str) -> list[Recall]:
    return memory.get("asking", question, user_id=USER).recalls


def _odds(recall: Recall) -> float:
    """Return the log-odds that a recall is relevant."""
    likely = np.clip(recall.relevance or 0.0, 1e-9, 1 - 1e-9)
    return float(np.log(likely / (1 - likely)))


def main(
    file: Annotated[list[Path] | None, typer.Option("--haystack", help="LoCoMo's format.")] = None,
    pairs: Path = _PAIRS,
    fits: Annotated[bool, typer.Option("--fit")] = False,
) -> None:
    """Measure recall in other words."""
    data = json.loads(pairs.read_text(encoding="utf-8"))
    table = Table("haystack", "first", "among ten", "shown by get", "foreign", "small talk")
    right, wrong = list[float](), list[float]()
    for one in file or (None,):
        found = measure(one, data)
        figures = (found.first, found.among_ten, found.shown, found.foreign, found.small_talk)
        table.add_row(one.name if one else "notes", *(f"{figure:.2f}" for figure in figures))
        right += found.gates[0]
        wrong += found.gates[1]
    console = Console()
    console.print(table)
    if fits:
        by = fitted()["relevance"]
        factor, shift = logistic(np.array(right)[:, None], np.array(wrong)[:, None])
        slope = by["slope"] * factor
        console.print(f"slope {slope:.1f}, middle {by['middle'] - shift / slope:.2f}")
