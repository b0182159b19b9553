"""Measure word search in other languages: `python -m benchmarks recall languages`.

Each language has pairs of a question and a message, which answers it in other inflected forms, and
distractors. No embedder is used. The rules were made with only the first half of the pairs.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from agent_memory import AgentMemory

_DATA = Path(__file__).with_suffix(".toml")
_USER = "somebody"


@dataclass(frozen=True)
class Language:
    """Questions with the messages that answer them, and distractors, of one language."""

    name: str
    pairs: tuple[tuple[str, str], ...]
    distractors: tuple[str, ...]


def languages() -> list[Language]:
    """All of the data."""
    read = tomllib.loads(_DATA.read_text("utf-8"))
    return [
        Language(name, tuple((q, m) for q, m in one["pairs"]), tuple(one["distractors"]))
        for name, one in read.items()
    ]


def first_hits(language: Language) -> list[bool]:
    """Return for each pair whether a search for the question returns its message first."""
    return [
        said == found for (_, said), found in zip(language.pairs, _found(language), strict=True)
    ]


def _found(language: Language) -> Iterator[str | None]:
    with AgentMemory(store="memory://", blocks=[], recall_timeout=60) as memory:
        messages = [*(message for _, message in language.pairs), *language.distractors]
        for number, message in enumerate(messages):
            memory.update(f"s-{number}", {"role": "user", "content": message}, user_id=_USER)
        for question, _ in language.pairs:
            recalls = memory.search(question, user_id=_USER, limit=1, blocks=["log"], least=0.0)
            yield recalls[0].text.removeprefix("user: ") if recalls else None


def main(misses: bool = typer.Option(False, help="List misses of the first half.")) -> None:
    """Say how often the first recall is the answer."""
    console = Console()
    table = Table("language", "pairs", "hit@1", "first half", "held out", title="by words alone")
    for language in languages():
        hits = first_hits(language)
        half = len(hits) // 2
        parts = (hits, hits[:half], hits[half:])
        table.add_row(language.name, str(len(hits)), *(f"{_share(part):.0%}" for part in parts))
        if misses:
            for (question, _), hit in list(zip(language.pairs, hits, strict=True))[:half]:
                if not hit:
                    console.print(f"{language.name}: {question}", markup=False)
    console.print(table)


def _share(hits: list[bool]) -> float:
    return sum(hits) / len(hits)
