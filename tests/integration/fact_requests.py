"""What a model is asked for facts, read again: for models of tests."""

import html
import re
from typing import NamedTuple

_LINE = re.compile(r"^(New | *)(\d+)\. [^\[\n]*\[([^\]\n]*)\]: (.*)$", re.MULTILINE)


class Listed(NamedTuple):
    """A fact as a request shows it."""

    number: int
    time: str
    text: str


def messages_of(asked: str) -> str | None:
    """The messages of a first call; None of another."""
    return asked.partition("<messages>")[2] if "<messages>" in asked else None


def known_of(asked: str) -> list[Listed]:
    """The known facts that a first call shows."""
    return [fact for _, fact in _lines(asked.partition("<messages>")[0])]


def groups_of(asked: str) -> list[tuple[Listed, list[Listed]]]:
    """Of a second call the new facts, and the older ones under each."""
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
