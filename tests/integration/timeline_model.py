"""A model that knows what a generated user means, behind both of the questions that are asked."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from tests.integration.statements import BEGINNING, END, Statement
from tests.integration.timelines import History

T = TypeVar("T", bound=BaseModel)

_SAID = re.compile(r"^\[(\d+)\] .*?: Note (\S+) (\d+)\.", re.MULTILINE)
_LISTED = re.compile(r"^(\d+)\. (known|new), .*?, (\S+) to (\S*): (.*)$", re.MULTILINE)


def content(message: Sequence[Statement]) -> str:
    """What a user writes to say some things."""
    first = message[0]
    return f"Note {first.session} {first.seq}. {' '.join(one.text for one in message)}"


class TimelineModel:
    """Answers for one history. Stands where a language model does.

    Which of the older facts it names is left to chance, where any of them says enough.

    Args:
        history: What it knows.
    """

    model = "timeline"

    def __init__(self, history: History) -> None:
        self._statements = history.statements
        self._chance = random.Random(len(history.statements))
        self.calls = 0

    def context_window(self) -> int:
        """See `LLM.context_window`."""
        return 100_000

    def structured(self, messages: Sequence[dict[str, Any]], schema: type[T]) -> T:
        """See `LLM.structured`."""
        return schema.model_validate(self.answer(messages))

    def default(self, body: dict[str, Any]) -> str:
        """See `FakeLLM.default`."""
        return json.dumps(self.answer(body["messages"]))

    def answer(self, messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What it says to either question."""
        self.calls += 1
        asked = messages[-1]["content"]
        if asked.startswith("<messages>"):
            return {
                "facts": [
                    self._found(int(number), one)
                    for number, session, seq in _SAID.findall(asked)
                    for one in self._statements
                    if (one.session, one.seq) == (session, int(seq))
                ]
            }
        listed = [
            (int(number), kind, self._meant(*told))
            for number, kind, *told in _LISTED.findall(asked)
        ]
        return {
            "answers": [
                {
                    "number": number,
                    **self._answer(one, [(n, o) for n, _, o in listed if n < number]),
                }
                for number, kind, one in listed
                if kind == "new"
            ]
        }

    def _found(self, number: int, one: Statement) -> dict[str, Any]:
        return {
            "text": one.text, "subject": "user", "category": one.category, "message": number,
            "quote": one.text, "since": one.since, "until": one.until, "confidence": 1.0,
        }  # fmt: skip

    def _meant(self, since: str, until: str, text: str) -> Statement:
        """Which statement a line of the list stands for: the text, and where that was said of two
        times, the time that is nearest to it."""

        def near(one: Statement) -> tuple[bool, bool]:
            begin = "?" if one.begin == BEGINNING else f"{one.begin:%Y-%m-%d}"
            end = "" if one.end == END else f"{one.end:%Y-%m-%d}"
            return begin == since, end == until

        return max((one for one in self._statements if one.text == text), key=near)

    def _answer(self, one: Statement, before: Sequence[tuple[int, Statement]]) -> dict[str, Any]:
        same = [number for number, other in before if other.root == one.root]
        if same:
            return {"answer": "same", "which": same[0]}
        denied = {
            (other.thing, other.stretch)
            for _, other in before
            if other.kind == "denial" and other.number < one.number
        }
        thing = [
            (number, other)
            for number, other in before
            if other.thing == one.thing
            and other.kind != "denial"
            and (one.thing, other.stretch) not in denied
        ]
        stretch = [(n, other) for n, other in thing if other.stretch == one.stretch]
        wrong = [
            number
            for number, other in stretch
            if other.number < one.number and one.kind in ("denial", other.kind)
        ]
        if one.kind == "denial":
            return {"answer": "contradict", "which": wrong, "denies": True}
        if one.corrects and wrong:
            return {"answer": "contradict", "which": wrong}
        named = [number for number, _ in thing]
        if one.kind == "end":
            named = [number for number, other in stretch if other.kind == "value"]
        elif one.begin == BEGINNING:  # it ended when what it names began
            named = [n for n, other in thing if (other.stretch, other.kind) == (1, "value")]
        elif named:
            named = self._chance.sample(named, self._chance.randint(1, len(named)))
        if one.kind == "end" and named:
            return {"answer": "end", "which": named}
        return {"answer": "update" if named else "add", "which": named}
