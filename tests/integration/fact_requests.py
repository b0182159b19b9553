"""Parse the requests in which a model is asked for facts, for models of tests."""

import html
import re
from typing import NamedTuple

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
    """Return the known facts in a first request."""
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
