"""Which messages bear on a prompt, by their words alone.

Words are compared and weighed as recall does it, but for its numbers in arrays
(`retrieval.terms`): loading numpy takes longer than all of this takes."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

from agent_memory.integrations.hooks.said import Part, StoredMessage
from agent_memory.retrieval.bm25 import TURN_LENGTH, damping, odds
from agent_memory.retrieval.languages import languages_of
from agent_memory.retrieval.words import roots, words

_MOST_ASKED = 2_000  # characters of a prompt, half at either end
_MOST_WORDS = 24
_MOST_PLACES = 2**32  # messages of a part
_LOOKED_AT = 60
_ENOUGH = 500
_TELLING = 8  # words of a prompt that a message is held against
_LEAST = 0.3
_NEW = 1  # words that a message has to have beside those of the prompt
_IDLE = (
    "ok okay yes yep no nope thanks thank great good nice cool sure done continue go ahead proceed "
    "please again try now next fix help want need make let lgtm"
)
_FILLER = frozenset(_IDLE.split())


class Found(NamedTuple):
    """A message that bears on a prompt.

    Attributes:
        micros: When it was said, in microseconds since 1970.
        role: Who says it.
        text: What it says.
        score: How much it bears on the prompt.
    """

    micros: int
    role: str
    text: str
    score: float


def bearing(
    prompt: str,
    parts: Iterable[Part],
    read: Callable[[int, int], StoredMessage | None],
    limit: int,
) -> list[Found]:
    """The messages that bear on a prompt, best first.

    Args:
        prompt: What the user says.
        parts: Messages. Each part is let go before the next one is taken.
        read: Gives a message by its session and its place there.
        limit: At most so many.
    """
    prompt = _ends(prompt)
    languages = languages_of(prompt)
    asked = [word for word in dict.fromkeys(words(prompt, languages)) if word not in _FILLER]
    if not asked:
        return []
    holding, where, count = _holding(roots(prompt, languages), asked, parts)
    rarity = {word: math.log1p(odds(count, len(holders))) for word, holders in holding.items()}
    least = _LEAST * sum(sorted(rarity.values(), reverse=True)[:_TELLING])
    found = []
    for which in _first_look(holding, rarity):
        session, seqs = where[which // _MOST_PLACES]
        message = read(session, seqs[which % _MOST_PLACES])
        if message is None:
            continue
        role, text = _spoken(message.json)
        counts = Counter(words(text, languages))
        shared = [word for word in rarity if counts[word]]
        if len(shared) < min(2, len(asked)) or sum(map(rarity.__getitem__, shared)) < least:
            continue
        if sum(1 for word in counts if word not in asked) < _NEW:
            continue  # it says what is asked, and no more
        against = damping(counts.total(), TURN_LENGTH)
        score = sum(rarity[word] * counts[word] / (counts[word] + against) for word in shared)
        found.append(Found(message.micros, role, text, score))
    return _different(sorted(found, key=lambda one: -one.score), limit)


def _ends(prompt: str) -> str:
    half = _MOST_ASKED // 2
    return prompt if len(prompt) <= _MOST_ASKED else f"{prompt[:half]} {prompt[-half:]}"


def _holding(
    root_of: Mapping[str, str], asked: Sequence[str], parts: Iterable[Part]
) -> tuple[dict[str, list[int]], list[tuple[int, Sequence[int]]], int]:
    """Which messages have what the prompt's words begin with; of a long prompt its longest words.

    Returns:
        For each word numbers of messages, which are of their part and of their place there; of each
        part its session and where in it the messages stand; and how many messages there are.
    """
    looked = sorted(asked, key=len, reverse=True)[:_MOST_WORDS]
    begun = {word: root for word in looked if (root := root_of.get(word, word))}
    holding: dict[str, list[int]] = {}
    where: list[tuple[int, Sequence[int]]] = []
    count = 0
    for part in parts:
        base = len(where) * _MOST_PLACES
        for word, root in begun.items():
            if places := part.holding(root):
                holding.setdefault(word, []).extend([base + place for place in places])
        where.append((part.session, part.seqs))
        count += part.size
    return holding, where, count


def _first_look(holding: dict[str, list[int]], rarity: dict[str, float]) -> list[int]:
    """Which messages have most of the rare words, about: the best of them are looked at closely."""
    scores: dict[int, float] = {}
    for word in sorted(holding, key=lambda one: len(holding[one])):
        among: Iterable[int] = holding[word]
        if len(scores) >= _ENOUGH:  # what has only common words cannot be among the best
            among = scores.keys() & among
        for which in among:
            scores[which] = scores.get(which, 0.0) + rarity[word]
    return nsmallest(_LOOKED_AT, scores, key=lambda which: (-scores[which], which))


def _spoken(stored: str) -> tuple[str, str]:
    """Who says what in a message; of one that was read in part, what was read."""
    message = json.loads(stored)
    content = message.get("content")
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        content = " ".join(part for part in parts if isinstance(part, str))
    return message["role"], content if isinstance(content, str) else ""


def _different(found: list[Found], limit: int) -> list[Found]:
    """The best, those that say the same once."""
    kept: dict[str, Found] = {}
    for one in found:
        kept.setdefault(" ".join(one.text.split()).casefold(), one)
    return list(kept.values())[:limit]
