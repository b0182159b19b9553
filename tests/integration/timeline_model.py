"""A model that knows what a generated user means, for both requests of extraction."""

import json
import random
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from agent_memory.ltm_blocks.extractive.history.periods import written
from tests.integration.fact_model import Listed, groups_of, messages_of
from tests.integration.statements import BEGINNING, END, Statement
from tests.integration.timelines import History

T = TypeVar("T", bound=BaseModel)

_SAID = re.compile(r"^\[(\d+)\] .*?: Note (\S+) (\d+)\.", re.MULTILINE)


def content(message: Sequence[Statement]) -> str:
    """Return a user's message with these statements."""
    first = message[0]
    return f"Note {first.session} {first.seq}. {' '.join(one.text for one in message)}"


class TimelineModel:
    """Answers for one history like a language model."""

    model = "timeline"

    def __init__(self, history: History) -> None:
        self._statements = history.statements
        self._chance = random.Random(len(history.statements))
        self.calls = 0

    def context_window(self) -> int:
        return 100_000

    def structured(self, messages: Sequence[dict[str, Any]], schema: type[T]) -> T:
        return schema.model_validate(self.answer(messages))

    def default(self, body: dict[str, Any]) -> str:
        return json.dumps(self.answer(body["messages"]))

    def answer(self, messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        self.calls += 1
        asked = messages[-1]["content"]
        if messages_of(asked) is not None:
            return {
                "facts": [
                    self._found(int(number), one)
                    for number, session, seq in _SAID.findall(asked)
                    for one in self._statements
                    if (one.session, one.seq) == (session, int(seq))
                ]
            }
        return {
            "answers": [
                {
                    "number": new.number,
                    **self._answer(
                        self._meant(new), [(one.number, self._meant(one)) for one in older]
                    ),
                }
                for new, older in groups_of(asked)
            ]
        }

    def _found(self, number: int, one: Statement) -> dict[str, Any]:
        return {
            "text": one.text, "subject": "user", "category": one.category, "message": number,
            "quote": one.text, "since": one.since, "until": one.until, "confidence": 1.0,
        }  # fmt: skip

    def _meant(self, listed: Listed) -> Statement:
        """Return the statement that a listed line stands for, by its text and its time."""

        def near(one: Statement) -> tuple[bool, bool]:
            begin = None if one.since is None else one.begin
            said = "" if begin else f"said {one.at:%Y-%m-%d}"
            first = said or written(begin, None).removeprefix("since ")
            end = None if one.end == END else one.end
            told = ", ".join(filter(None, (written(begin, end), said)))
            return first in listed.time, told == listed.time

        return max((one for one in self._statements if one.text == listed.text), key=near)

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
            return {"answer": "deny", "which": wrong}
        if one.corrects and wrong:
            return {"answer": "contradict", "which": wrong}
        named = [number for number, _ in thing]
        if one.kind == "end":
            named = [number for number, other in stretch if other.kind == "value"]
        elif one.begin == BEGINNING:  # it ended when the named fact began
            named = [n for n, other in thing if (other.stretch, other.kind) == (1, "value")]
        elif named:
            named = self._chance.sample(named, self._chance.randint(1, len(named)))
        if one.kind == "end" and named:
            return {"answer": "end", "which": named}
        return {"answer": "update" if named else "add", "which": named}
