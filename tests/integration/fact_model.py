"""A model for tests: tables say which facts it finds in which text, and how they are related."""

import html
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from agent_memory import AgentMemory, ExtractiveMemory, FlushToLTM
from agent_memory.testing import FakeLLM
from tests.kit import model_at

_MESSAGE = re.compile(r"^\[(\d+)\] \S+ [^:]*: (.*)$", re.MULTILINE)


_LINE = re.compile(r"^(New | *)(\d+)\. [^\[\n]*\[([^\]\n]*)\]: (.*)$", re.MULTILINE)


class Listed(NamedTuple):
    """A fact as a request lists it."""

    number: int
    time: str
    text: str


def messages_of(asked: str) -> str | None:
    """Return the messages in a first request, or None for a second one."""
    return asked.partition("<messages>")[2] if "<messages>" in asked else None


def known_of(asked: str) -> list[Listed]:
    return [fact for _, fact in _lines(asked.partition("<messages>")[0])]


def groups_of(asked: str) -> list[tuple[Listed, list[Listed]]]:
    """Return the new facts in a second request, each with the older facts listed under it."""
    groups: list[tuple[Listed, list[Listed]]] = []
    for is_new, fact in _lines(asked):
        if is_new:
            groups.append((fact, []))
        else:
            groups[-1][1].append(fact)
    return groups


def _lines(asked: str) -> list[tuple[bool, Listed]]:
    return [
        (mark == "New ", Listed(int(number), html.unescape(time), html.unescape(text)))
        for mark, number, time, text in _LINE.findall(asked)
    ]


@dataclass
class Model:
    """Answer both calls from tables."""

    finds: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    ties: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def tell(self, quote: str, text: str, ties: tuple[str, str] | None = None, **more: Any) -> str:
        """Have the model find a fact in messages with this quote, and return the quote."""
        self.finds.setdefault(quote, []).append({"text": text, **more})
        if ties is not None:
            self.ties[text] = (ties[0], [ties[1]])
        return quote

    def fill(self, quote: str, name: str, value: Any, **more: Any) -> str:
        """Have the model find a field's value in messages with this quote."""
        self.finds.setdefault(quote, []).append({"field": name, "value": value, **more})
        return quote

    def __call__(self, body: dict[str, Any]) -> str:
        self.asked.append(body["messages"][-1]["content"])
        told = body["messages"][1]["content"]  # the last message may be a correction
        messages = messages_of(told)
        if messages is None:
            return json.dumps({"answers": list(self._answers(told))})
        return json.dumps({"facts": list(self._facts(html.unescape(messages), known_of(told)))})

    def _tied(self, text: str | None, known: list[Listed]) -> tuple[str, list[int]]:
        word, wanted = self.ties.get(text or "", ("new", []))
        return word, [one.number for one in known if one.text in wanted]

    def _facts(self, told: str, known: list[Listed]) -> Iterator[dict[str, Any]]:
        for number, text in _MESSAGE.findall(told):
            for quote, found in self.finds.items():
                if quote in text:
                    for one in found:
                        word, numbers = self._tied(one.get("text"), known)
                        tied = {"relation": word, "known": numbers} if numbers else {}
                        yield {"message": int(number), "quote": quote, **tied, **one}

    def _answers(self, told: str) -> Iterator[dict[str, Any]]:
        for new, older in groups_of(told):
            word, which = self._tied(new.text, older)
            if which:
                yield {"number": new.number, "answer": word, "which": which}


@contextmanager
def remembering(
    model: Model, store: Any = "memory://", block: ExtractiveMemory | None = None, **fields: Any
) -> Iterator[AgentMemory]:
    """Open a memory whose only block uses this model."""
    overflow = FlushToLTM(blocks=[block or ExtractiveMemory()])
    fields = {"min_relevance": 0, **fields}  # contexts show all facts, however relevant
    with (
        FakeLLM(model) as fake,
        AgentMemory(store=store, overflow=overflow, **model_at(fake), **fields) as memory,
    ):
        yield memory


def at(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=UTC)


def dated(text: Any, day: str = "2024-01-05", role: str = "user", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": text, "created_at": at(day), **more}


def absorbed(
    memory: AgentMemory, session_id: str, *messages: dict[str, Any], user_id: str | None = "ada"
) -> None:
    memory.update(session_id, list(messages), user_id=user_id)
    failed = [one.error for one in memory.flush(session_id) if one.error]
    assert not failed, failed


def texts(facts: Any) -> list[str]:
    return [one.text for one in facts]
