"""Summaries without a model: the sentences that say most, and identifiers kept verbatim. Pure.

The extract is a greedy form of the classic sentence-extraction summary (Luhn 1958): a sentence
scores by how many of the conversation's frequent terms, names and identifiers it holds and that no
sentence chosen before it has, per token.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from agent_memory.core.records import Entry
from agent_memory.core.text import codes, identifiers, names, pieces, sentences, terms
from agent_memory.core.transcript import Count, clip, speaker, told

_NAME_WEIGHT = 2.0
_IDENTIFIER_WEIGHT = 3.0
_LEAST_TOKENS = 5
"""What an entry's sentence must have: "Lovely." says nothing."""
_SENTENCE_CHARS = 400
_TRIES = 4
HEADINGS = ("Open", "People", "Earlier")
"""Of a summary; what stands under the first is lost last."""
_HEADING = re.compile(
    rf"[\s#*_-]*(?P<name>{'|'.join(HEADINGS)})[\s*_]*(?::[\s*_]*(?P<rest>.*))?", re.IGNORECASE
)
_HEADING_TOKENS = 4


def extract(previous: str, entries: Sequence[Entry], count: Count, limit: int) -> str:
    """The weightiest sentences of the last summary and the entries, in order, within `limit`."""
    before = (one for one in sentences(previous) if not _bare(one))
    lines = list(dict.fromkeys([*before, *_lines(entries, count)]))
    signals = [_signals(text) for text in lines]
    frequency = Counter(signal for found in signals for signal in found)
    covered: set[str] = set()
    costs = [count(text) + 1 for text in lines]
    chosen: set[int] = set()
    room = limit
    while True:
        best, gain = -1, 0.0
        for i, found in enumerate(signals):
            if i in chosen or costs[i] > room:
                continue
            fresh = sum(w * frequency[s] ** 0.5 for s, w in found.items() if s not in covered)
            if fresh / (costs[i] + 5) > gain:
                best, gain = i, fresh / (costs[i] + 5)
        if best < 0:
            break
        chosen.add(best)
        covered |= signals[best].keys()
        room -= costs[best]
    if not chosen and lines:  # no line is short enough: the beginning of the weightiest
        chosen.add(max(range(len(lines)), key=lambda i: sum(signals[i].values()) / (costs[i] + 5)))
    return clip("\n".join(lines[i] for i in sorted(chosen)), count, limit)


def keep_codes(summary: str, sources: Sequence[str], count: Count, limit: int) -> str:
    """The summary within `limit`, with codes of the sources that it lost added verbatim.

    Newer sources come last and win the room, of which the list takes at most a quarter. A summary
    that is too long is shortened.
    """
    wanted = dict.fromkeys(found for text in reversed(sources) for found in codes(text))
    room = limit
    for _ in range(_TRIES):
        kept = shorten(summary, count, room)
        note = _note(kept, wanted, count, limit // 4)  # what the shorter summary loses as well
        if count(kept + note) <= limit:
            return kept + note
        room = min(room, limit - count(note)) - 2
    return shorten(summary, count, limit)


def shorten(summary: str, count: Count, limit: int) -> str:
    """The summary within `limit`, without what is worth least.

    Of what is under "Earlier" the first sentences go, which tell the oldest; then of what is under
    "People", and last of what is "Open", the weightiest stay. Without headings the weightiest of
    the whole stay.
    """
    if count(summary) <= limit:
        return summary
    *better, least = HEADINGS
    sections = _sections(summary)
    while (lines := sections.get(least)) and count(_joined(sections)) > limit:
        rest = " ".join(sentences(lines[0])[1:])
        sections[least] = [rest, *lines[1:]] if rest else lines[1:]
    for name in reversed(better):
        if count(_joined(sections)) > limit and (lines := sections.pop(name, None)):
            room = limit - count(_joined(sections)) - _HEADING_TOKENS
            if room >= _LEAST_TOKENS:
                sections[name] = extract("\n".join(lines), (), count, room).splitlines()
    kept = _joined(sections)
    return kept if kept and count(kept) <= limit else extract(summary, (), count, limit)


def _bare(text: str) -> bool:
    heading = _HEADING.fullmatch(text)
    return heading is not None and not heading["rest"]


def _sections(summary: str) -> dict[str, list[str]]:
    """A summary's lines by the heading that they stand under; before the first, under none."""
    found: dict[str, list[str]] = {"": []}
    current = ""
    for text in summary.splitlines():
        heading = _HEADING.fullmatch(text)
        if heading:
            current, text = heading["name"].capitalize(), heading["rest"] or ""
        if text.strip():
            found.setdefault(current, []).append(text.rstrip())
    return found


def _joined(sections: Mapping[str, Sequence[str]]) -> str:
    lines: list[str] = []
    for name in ("", *HEADINGS):
        under = sections.get(name, ())
        lines += [f"{name}:", *under] if name and under else under
    return "\n".join(lines)


def _note(summary: str, wanted: Iterable[str], count: Count, limit: int) -> str:
    held = set(identifiers(summary))
    note = ""
    for found in wanted:
        longer = f"{note}; {found}" if note else f"\nVerbatim: {found}"
        if found not in held and count(longer) <= limit:
            note = longer
    return note


def _lines(entries: Sequence[Entry], count: Count) -> list[str]:
    return [
        f"{speaker(entry.message)}: {piece}"
        for entry in entries
        for sentence in sentences(told(entry.message))
        for piece in pieces(sentence, _SENTENCE_CHARS)
        if count(piece) >= _LEAST_TOKENS
    ]


def _signals(text: str) -> dict[str, float]:
    found = dict.fromkeys(terms(text), 1.0)
    found |= dict.fromkeys(names(text), _NAME_WEIGHT)
    found |= dict.fromkeys(identifiers(text), _IDENTIFIER_WEIGHT)
    return found
