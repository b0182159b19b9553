"""Excerpts of long texts: the beginning, passages relevant to a question, and the end. Pure."""

from __future__ import annotations

import heapq
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import neg

from agent_memory.core.cache import Cache
from agent_memory.core.text import SENTENCE, last_break, overlap_scores, terms

Count = Callable[[str], int]
Mark = Callable[[int, int], str]
"""Returns the text that stands for omitted characters, from their number and index."""
Span = tuple[int, int]

ELLIPSIS = "\u2026"
LONGEST_TOKEN = 16
"""The most characters of a token. Runs of blanks may be longer."""

_USUAL_TOKEN = 4
_TRIES = 12
_NEAR = 200  # a cut moves by at most this many characters, to the end of a sentence or word
_SEARCHED = 1_000_000  # characters of a text that are searched for the question
_HITS = 5_000
_MOST_TRIED = 40
_QUESTION_END = 1_000  # only so many characters at each end of a question are used
# The most characters of a passage. A longer sentence is cut to a part with a word of the question.
_PASSAGE = 400
_WORD = 40
_EXCERPTS: Cache[tuple[object, ...], str] = Cache(256)
_LEAST_SHARE = 0.5  # a passage needs this share of the best passage's score


def excerpt(text: str, question: str, count: Count, limit: int, mark: Mark) -> str:
    """Return the text, or an excerpt if the text takes more than `limit` tokens.

    The excerpt has the beginning, passages that are relevant to the question, and the end. `mark`
    renders the gaps.
    """
    key = (hash(text), len(text), count, limit, mark(0, 0), question)  # a string caches its hash
    return _EXCERPTS.computed(key, lambda: _excerpt(text, question, count, limit, mark))


def _excerpt(text: str, question: str, count: Count, limit: int, mark: Mark) -> str:
    frame = _framed(text, count, limit, mark)
    passages = _passages(text, question, count, frame) if question and frame.passages else []
    if not passages:
        return frame.plain
    spans = _joined([(0, frame.begin), *passages, (frame.last, len(text))])
    shown = _rendered(text, spans, mark)
    return shown if count(shown) <= limit else frame.plain


@dataclass(frozen=True, slots=True)
class _Frame:
    """The values for an excerpt that do not depend on the question."""

    plain: str  # the excerpt without passages
    begin: int = 0  # the end of the first part, in an excerpt with passages
    last: int = 0  # the start of the last part
    passages: int = 0  # tokens that passages may take
    gap: int = 0  # tokens of a mark


def _framed(text: str, count: Count, limit: int, mark: Mark) -> _Frame:
    # A very long text never fits, and is not counted.
    if len(text) <= limit * LONGEST_TOKEN and count(text) <= limit:
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


def _begun(text: str, count: Count, limit: int, mark: Mark) -> str:
    """Return an excerpt of the beginning alone. If `limit` is very small, return an ellipsis."""
    for render_mark in (mark, lambda missing, _: f"[{ELLIPSIS}{missing:,} characters]"):
        room = limit - count(_gap(render_mark(len(text), len(text)))) - 1
        for less in _shrinking(room):
            first = _beginning(text, count, less)
            shown = _rendered(text, [(0, first)], render_mark)
            if first and count(shown) <= limit:
                return shown
    first = _beginning(text, count, limit - 2)
    shown = text[:first] + ELLIPSIS
    return shown if count(shown) <= limit else ELLIPSIS


def _shrinking(room: int) -> list[int]:
    """Return sizes to try, largest first: joined parts may take more tokens than separate ones."""
    return [less for less in (room, room - 2, room - 8, room - room // 8, room // 2) if less > 0]


def _gap(mark: str) -> str:
    return f"\n{mark}\n"


def _rendered(text: str, spans: Sequence[Span], mark: Mark) -> str:
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
    """Sort spans, and merge spans that touch or overlap."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > start:
            merged.append((start, end))
    return merged


def _beginning(text: str, count: Count, limit: int) -> int:
    """Return the end of a first part that fits. If possible, a sentence or a word ends there."""
    end = _fitting(lambda size: text[:size], len(text), count, limit)
    near = max(0, end - _NEAR)
    return near + last_break(text[near : end + 1], end - near) if end < len(text) else end


def _first_break(text: str, start: int) -> int:
    """Return the start of a last part. If possible, a sentence or a word begins there."""
    near = text[start : start + _NEAR]
    for pattern in (SENTENCE, re.compile(r"\s+")):
        match = pattern.search(near)
        if match is not None and match.end() < len(near):
            return start + match.end()
    return start


def _fitting(part: Callable[[int], str], length: int, count: Count, limit: int) -> int:
    """Return about the largest size for which `part(size)` takes at most `limit` tokens."""
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
    """Return the sentences between the two parts that have the most words of a question."""
    limit = frame.passages
    ends = terms(f"{question[:_QUESTION_END]} {question[-_QUESTION_END:]}")
    wanted = {word for word in ends if len(word) > 1}
    if not wanted:
        return []
    searched = (frame.begin, min(frame.last, frame.begin + _SEARCHED))
    most = max(_WORD, min(_PASSAGE, 2 * (limit - frame.gap)))
    spans = _hits(text, searched, wanted, most)
    scores = overlap_scores(" ".join(wanted), [text[start:end] for start, end in spans])
    least = _LEAST_SHARE * max(scores, default=0.0)
    chosen: list[Span] = []
    for lost, span in heapq.nsmallest(_MOST_TRIED, zip(map(neg, scores), spans, strict=True)):
        cost = count(text[span[0] : span[1]]) + frame.gap
        if -lost >= least > 0 and cost <= limit:
            chosen.append(span)
            limit -= cost
    return chosen


def _hits(text: str, within: Span, wanted: Collection[str], size: int) -> list[Span]:
    """Return the sentences with wanted words, each cut to `size` characters around a word."""
    words = re.compile("|".join(map(re.escape, sorted(wanted))), re.IGNORECASE)
    places = [match.start() for match in islice(words.finditer(text, *within), _HITS)]
    if not places:
        return []
    breaks = [within[0], *(match.end() for match in SENTENCE.finditer(text, *within)), within[1]]
    hits: dict[Span, None] = {}
    for place in places:
        at = bisect_right(breaks, place) - 1
        start, end = breaks[at], breaks[at + 1]
        if end - start > size:
            if place - start > size // 2:
                start = _first_break(text, place - size // 2)
            end = min(end, place + size // 2)
        hits[min(start, place), end] = None
    return list(hits)
