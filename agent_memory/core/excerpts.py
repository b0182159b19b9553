"""Texts that are too long for their room, shown in part: the beginning, what bears on a question,
the end. Pure.

Each gap says how much is missing, and how a model reads on. Without a sentence that bears on the
question the excerpt does not depend on it, and stays the same from turn to turn.
"""

from __future__ import annotations

import heapq
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from agent_memory.core.kept import KEPT
from agent_memory.core.text import SENTENCE, last_break, terms

Count = Callable[[str], int]
Mark = Callable[[int, int], str]
"""Says what is missing: of how many characters, from which place of the text on."""
Span = tuple[int, int]

ELLIPSIS = "\u2026"
LONGEST_TOKEN = 16
"""Characters of a token at most, but for rows of blanks."""

_USUAL_TOKEN = 4
_TRIES = 12
_NEAR = 200  # characters in which a sentence or word may end
_SEARCHED = 1_000_000  # characters of a text that are searched for the question
_HITS = 5_000
_MOST_TRIED = 40
_ASKED = 1_000  # characters at either end of a question that count
_PASSAGE = 400  # characters of a passage; of a longer sentence it is the part round the words
_WORD = 40
_LEAST_SHARE = 0.5  # of the best passage's score


def excerpt(text: str, question: str, count: Count, limit: int, mark: Mark) -> str:
    """What of a text is shown within `limit` tokens; all of it, if it fits.

    Args:
        text: The text.
        question: What it is to be read for.
        count: Tokens of a text.
        limit: Tokens.
        mark: Stands in each gap.
    """
    key = (hash(text), len(text), count, limit, mark(0, 0))  # a text is hashed once
    frame = KEPT.get(key, lambda: _framed(text, count, limit, mark))
    if not question or not frame.passages:
        return frame.plain
    found = KEPT.get((*key, question), lambda: _passages(text, question, count, frame))
    if not found:
        return frame.plain
    return KEPT.get((*key, *found), lambda: _with(text, found, count, limit, mark, frame))


@dataclass(frozen=True, slots=True)
class _Frame:
    """What of an excerpt is the same for every question.

    Attributes:
        plain: The excerpt where nothing bears on the question.
        begin: Where the beginning ends where something does.
        last: Where the end begins.
        passages: Tokens that passages may take.
        gap: Tokens of a mark.
    """

    plain: str
    begin: int = 0
    last: int = 0
    passages: int = 0
    gap: int = 0


def _framed(text: str, count: Count, limit: int, mark: Mark) -> _Frame:
    if fits(text, count, limit):
        return _Frame(text)
    gap = count(_gap(mark(len(text), len(text)))) + 1
    body = limit - 2 * gap
    if body < 2 * gap:
        return _Frame(_begun(text, count, limit, mark))
    length = len(text)
    size = _fitting(lambda size: text[length - size :], length, count, body // 4)
    last = _first_break(text, length - size)
    for room in _shrinking(body - body // 4):
        spans = _joined([(0, _beginning(text, count, room)), (last, length)])
        plain = _rendered(text, spans, mark)
        if count(plain) <= limit:
            begin = _beginning(text, count, body * 9 // 20)
            return _Frame(plain, begin, last, body * 3 // 10, gap)
    return _Frame(_begun(text, count, limit, mark))


def _with(
    text: str, found: Sequence[Span], count: Count, limit: int, mark: Mark, frame: _Frame
) -> str:
    """The excerpt with the passages that were found; without them, should it become too long."""
    spans = _joined([(0, frame.begin), *found, (frame.last, len(text))])
    shown = _rendered(text, spans, mark)
    return shown if count(shown) <= limit else frame.plain


def fits(text: str, count: Count, limit: int) -> bool:
    """Whether a text takes at most `limit` tokens; one that is far too long is not counted."""
    return len(text) <= limit * LONGEST_TOKEN and count(text) <= limit


def _begun(text: str, count: Count, limit: int, mark: Mark) -> str:
    """The beginning alone; in very little room only a sign that there was something."""
    for said in (mark, _short):
        room = limit - count(_gap(said(len(text), len(text)))) - 1
        for less in _shrinking(room):
            first = _beginning(text, count, less)
            shown = _rendered(text, [(0, first)], said)
            if first and count(shown) <= limit:
                return shown
    first = _beginning(text, count, limit - 2)
    shown = text[:first] + ELLIPSIS
    return shown if count(shown) <= limit else ELLIPSIS


def _short(missing: int, _: int) -> str:
    return f"[{ELLIPSIS}{missing:,} characters]"


def _shrinking(room: int) -> list[int]:
    """Rooms to try: what parts cost together may be more than what each costs."""
    return [less for less in (room, room - 2, room - 8, room - room // 8, room // 2) if less > 0]


def _gap(mark: str) -> str:
    return f"\n{mark}\n"


def _rendered(text: str, spans: Sequence[Span], mark: Mark) -> str:
    """The spans in order, with marks for what is between and behind them."""
    parts: list[str] = []
    at = 0
    for start, end in spans:
        if start > at:
            parts.append(mark(start - at, at))
        parts.append(text[start:end].strip())
        at = end
    if at < len(text):
        parts.append(mark(len(text) - at, at))
    return "\n".join(part for part in parts if part)


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Spans in order, those that touch or overlap as one."""
    done: list[Span] = []
    for start, end in sorted(spans):
        if done and start <= done[-1][1]:
            done[-1] = (done[-1][0], max(end, done[-1][1]))
        elif end > start:
            done.append((start, end))
    return done


def _beginning(text: str, count: Count, limit: int) -> int:
    """Where the beginning of a text ends that fits: with a sentence or a word where one is near."""
    end = _fitting(lambda size: text[:size], len(text), count, limit)
    near = max(0, end - _NEAR)
    return near + last_break(text[near : end + 1], end - near) if end < len(text) else end


def _first_break(text: str, start: int) -> int:
    """Where the end of a text begins: with a sentence or a word where one is near."""
    near = text[start : start + _NEAR]
    for pattern in (SENTENCE, _BLANK):
        found = pattern.search(near)
        if found is not None and found.end() < len(near):
            return start + found.end()
    return start


_BLANK = re.compile(r"\s+")


def _fitting(part: Callable[[int], str], length: int, count: Count, limit: int) -> int:
    """How many characters of a part of a text take about `limit` tokens, and never more."""
    low, high = 0, min(length, max(0, limit) * LONGEST_TOKEN)
    size = min(high, limit * _USUAL_TOKEN)
    for tried in range(_TRIES):
        if high <= low:
            break
        size = min(high, max(low + 1, size))
        cost = count(part(size))
        if cost <= limit:
            low = size
            if cost * 50 >= limit * 49:
                break
        else:
            high = size - 1
        size = (low + high + 1) // 2 if tried % 3 == 2 else size * limit // max(1, cost)
    return low


def _passages(text: str, question: str, count: Count, frame: _Frame) -> list[Span]:
    """The sentences between beginning and end that share most words with a question, as many as
    there is room for.

    The rarer a word is in the text, the more it counts.
    """
    limit, within = frame.passages, (frame.begin, frame.last)
    wanted = set(terms(question[:_ASKED])) | set(terms(question[-_ASKED:]))
    wanted = {word for word in wanted if len(word) > 1}
    if not wanted:
        return []
    searched = (within[0], min(within[1], within[0] + _SEARCHED))
    hits = _hits(
        text, searched, frozenset(wanted), max(_WORD, min(_PASSAGE, 2 * (limit - frame.gap)))
    )
    seen = Counter(word for words in hits.values() for word in words)
    weight = {word: math.log(1 + (len(hits) + 1) / (seen[word] + 0.5)) for word in seen}
    scores = {span: sum(weight[word] for word in words) for span, words in hits.items()}
    least = _LEAST_SHARE * max(scores.values(), default=0.0)
    chosen: list[Span] = []
    for span in heapq.nsmallest(_MOST_TRIED, scores, key=lambda span: (-scores[span], span)):
        cost = count(text[span[0] : span[1]]) + frame.gap
        if scores[span] >= least and cost <= limit:
            chosen.append(span)
            limit -= cost
    return chosen


def _hits(text: str, within: Span, wanted: frozenset[str], size: int) -> dict[Span, frozenset[str]]:
    """The sentences in which words stand, each with these; of one above `size` characters the part
    round them."""
    words = re.compile("|".join(map(re.escape, sorted(wanted))), re.IGNORECASE)
    places = [one.start() for one in islice(words.finditer(text, *within), _HITS)]
    if not places:
        return {}
    breaks = [within[0], *(one.end() for one in SENTENCE.finditer(text, *within)), within[1]]
    found: dict[Span, frozenset[str]] = {}
    for place in places:
        at = bisect_right(breaks, place) - 1
        start, end = breaks[at], breaks[at + 1]
        if end - start > size:
            if place - start > size // 2:
                start = _first_break(text, place - size // 2)
            end = min(end, place + size // 2)
        span = (min(start, place), end)
        held = wanted.intersection(terms(text[span[0] : span[1]]))
        if held:
            found[span] = held
    return found
