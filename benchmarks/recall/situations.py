"""Questions of people's lives: `python -m benchmarks recall situations [--of NAME] [--notes]`.

A situation is a few dated sessions, a question, and the texts that its context must recall, must
not recall, or must recall in order. The rules were made with `situations.json` and every second
situation of the chats. The rules on the assistant's words were made with all files. The author of
all other files had not seen the code.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from agent_memory import AgentMemory
from benchmarks.recall.paraphrases import haystack

FOLDER = Path(__file__).parent
USER = "ana"
_ASKED_ON = "2025-06-02"
_EVENING = timedelta(hours=8)
_PATIENT: dict[str, Any] = {"recall_timeout": 60}  # a busy machine must not change the figures


class Outcome(NamedTuple):
    """The recalled texts of a situation, and whether they are complete, clean and ordered."""

    asked: str
    texts: list[str]
    shown: bool
    clean: bool
    ordered: bool

    @property
    def holds(self) -> bool:
        """Whether all three hold."""
        return self.shown and self.clean and self.ordered


def outcomes(situations: list[dict[str, Any]], notes: bool = False) -> Iterator[Outcome]:
    """Play situations, each in a memory of its own, which has newer notes if `notes` is true."""
    for situation in situations:
        with TemporaryDirectory() as folder, AgentMemory(f"{folder}/m.db", **_PATIENT) as memory:
            for number, session in enumerate(situation["sessions"]):
                for message in _messages(session):
                    memory.update(f"s{number}", message, user_id=USER)
            last = _noon(max(session["date"] for session in situation["sessions"]))
            asked_at = max(_noon(situation.get("asked_on") or _ASKED_ON), last + _EVENING)
            for number, messages in enumerate(haystack(None) if notes else ()):
                at = last + _EVENING / 2 + timedelta(seconds=number)
                dated = [{**message, "created_at": at} for message in messages]
                memory.update(f"notes{number}", dated, user_id=USER)
            if notes:
                memory.flush()
            asked = {"role": "user", "content": situation["asked"], "created_at": asked_at}
            recalls = memory.get("asking", asked, user_id=USER).recalls
            yield _judged(situation, [recall.text for recall in recalls])


def _messages(session: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for place, turn in enumerate(session["turns"]):
        yield {**turn, "created_at": _noon(session["date"]) + timedelta(seconds=30 * place)}


def _noon(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(hour=12, tzinfo=UTC)


def _judged(situation: dict[str, Any], texts: list[str]) -> Outcome:
    whole = "\n".join(texts)
    right, wrong = situation.get("must_order") or ("", "")
    return Outcome(
        situation["asked"],
        texts,
        all(text in whole for text in situation["must_show"]),
        not any(text in whole for text in situation["must_not_show"]),
        not right or wrong not in whole or -1 < whole.find(right) < whole.find(wrong),
    )


def main(of: str = "", show: bool = False, notes: bool = False) -> None:
    """Measure recall for `situations.json`, or with `--of` for "held_out" or "chats"."""
    name = f"situations_{of}.json" if of else "situations.json"
    console = Console()
    table = Table("kind", "number", "shown", "clean", "in order", "holds")
    for kind, situations in json.loads((FOLDER / name).read_text(encoding="utf-8")).items():
        found = list(outcomes(situations, notes))
        figures = [[getattr(one, what) for one in found] for what in ("shown", "clean", "ordered")]
        holds = sum(one.holds for one in found)
        table.add_row(kind, str(len(found)), *(str(sum(some)) for some in figures), str(holds))
        for one in found if show else ():
            if not one.holds:
                console.print(kind, one.asked, one.texts, markup=False)
    console.print(table)
