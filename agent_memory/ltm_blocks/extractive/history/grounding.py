"""Whether what a model found is there. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from agent_memory.core.text import identifiers, names
from agent_memory.ltm_blocks.extractive.history.sources import Said
from agent_memory.retrieval.words import words

_LEAST = 6  # letters and digits of a code that nobody writes in another way
_MOST_QUOTED = 500  # words
_WORD = re.compile(r"[^\W_]+")
_MARKS = re.compile(r"[\W_]+")
_DATE = re.compile(
    r"(?<![\w-])(?:\d{4}-\d{2}(?:-\d{2}(?:T[\d:.]+Z?)?)?|(?:19|20)\d{2}-(?:19|20)\d{2}"
    r"|\d{1,2}([./])\d{1,2}\1\d{2,4})(?![\w-])"
)
_GROUPS = re.compile(r"\d+(?:[ ().-]{1,2}\d+)+")  # telephones, accounts, cards; "12 2024" is short
_OWNER = frozenset({"user"})  # a word of facts, not of messages


@dataclass(frozen=True, slots=True)
class Grounded:
    """A finding that stands on a message.

    Attributes:
        said: The message.
        quote: What it says, as it says it.
        span: Where in the message's text.
        role: The role that the finding comes from.
    """

    said: Said
    quote: str
    span: tuple[int, int]
    role: str


def grounded(
    number: int,
    quote: str,
    text: str,
    shown: Sequence[Said],
    weights: Mapping[str, int] | None = None,
) -> Grounded | str:
    """Where a finding stands, or why it is refused: "message", "quote" or "invented".

    Its role is that of the message that it quotes, or of a message of less weight without which a
    name or a code in it, or all that it tells, would be nowhere: who says "yes" to a text has not
    said what is in it. A code that is nowhere at all is invented.

    Args:
        number: The message that it says it comes from.
        quote: What it says that message says.
        text: The fact.
        shown: The messages that the model was shown.
        weights: What each role's word weighs.
    """
    said = next((one for one in shown if one.number == number), None)
    if said is None:
        return "message"
    place = find(quote, said.text)
    if place is None:
        return "quote"
    role = _origin(said, text, shown, weights or {})
    if role is None:
        return "invented"
    return Grounded(said, said.text[slice(*place)], place, role)


def find(quote: str, text: str) -> tuple[int, int] | None:
    """Where a text says what is quoted, letter by letter but for case.

    Models write some marks as the prompt showed them, and others as they like: quotation marks,
    dashes, blanks, what stands at the ends.
    """
    for form in dict.fromkeys((quote, html.unescape(quote))):
        wanted = " ".join(form.split())
        at = text.find(wanted) if wanted else -1
        if at >= 0:
            return at, at + len(wanted)
    loose = _WORD.findall(html.unescape(quote))
    if not 0 < len(loose) <= _MOST_QUOTED:
        return None
    pattern = r"[\W_]*?".join(map(re.escape, loose))
    found = re.search(rf"(?<![^\W_]){pattern}(?![^\W_])", text, re.IGNORECASE)
    return found.span() if found else None


def _origin(said: Said, text: str, shown: Sequence[Said], weights: Mapping[str, int]) -> str | None:
    """The role that a finding comes from; None where it holds a code that nobody said."""
    by_weight = sorted(shown, key=lambda one: -weights.get(one.role, 0))
    roles = [said.role]
    for code in _codes(text):
        bare = _bare(code)
        if not (holders := [one.role for one in by_weight if bare in _bare(one.text)]):
            return None
        roles.append(holders[0])
    for name in names(text):
        spelt = _spelt(name)
        roles += [one.role for one in by_weight if spelt.search(one.text.casefold())][:1]
    told = frozenset(words(text)) - _OWNER
    if not told.intersection(words(said.text)):
        roles += [one.role for one in shown if told.intersection(words(one.text))]
    return min(roles, key=lambda role: weights.get(role, 0))


def _codes(text: str) -> Collection[str]:
    """Numbers, addresses and the like that stand in a text as they were said, or are invented."""
    bare = _DATE.sub(" ", text)
    grouped = [one for one in _GROUPS.findall(bare) if len(_bare(one)) > _LEAST]
    return [*grouped, *(one for one in identifiers(bare) if len(_bare(one)) >= _LEAST)]


def _bare(text: str) -> str:
    return _MARKS.sub("", text.casefold())


def _spelt(name: str) -> re.Pattern[str]:
    """Finds a name, with whatever marks, where a word begins: there is no Rome in "from email"."""
    letters = r"[\W_]*".join(map(re.escape, _bare(name)))
    return re.compile(rf"(?<![^\W_]){letters}")
