"""Messages as text: transcripts, passages of long texts, excerpts of recalls. Pure."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple

from agent_memory.core.formats.neutral import mapping
from agent_memory.core.formats.registry import form_of
from agent_memory.core.messages import Message, content_text
from agent_memory.core.records import Entry, Recall
from agent_memory.core.text import indented, last_break, overlap_scores, sentence_spans

Count = Callable[[str], int]

_UNREADABLE = ("encrypted_content", "signature", "id", "status")

_NEAR = 1_000  # the number of characters in which `split` looks for the end of a sentence or word


def speaker(message: Message) -> str:
    """Return the speaker's name, or the role if there is none."""
    if message.role is not None:
        return message.name or message.role
    view = message.to_openai() or {}
    return str(view.get("name") or view.get("role") or "raw")


def full_text(message: Message) -> str:
    """Return the whole content of a message as text. Files are shown by their kind and name."""
    views = message.views()
    if not views:
        return _unshown(message.raw or {}, message.format)
    return "\n".join(part for view in views for part in _parts(view) if part)


def _unshown(raw: dict[str, Any], name: str | None) -> str:
    """Return the readable fields of an item that has no chat form. Empty for a compaction."""
    readable = {key: value for key, value in raw.items() if value and key not in _UNREADABLE}
    if readable.keys() <= {"type"} or form_of(name).compacts(raw):
        return ""
    return json.dumps(readable, ensure_ascii=False)


def _parts(view: dict[str, Any]) -> list[str]:
    content = view.get("content")
    parts = [content_text(content)]
    if isinstance(content, list):
        parts += (_named(part) for part in content)
    calls = [*(view.get("tool_calls") or ()), {"function": view.get("function_call")}]
    return [*parts, *(_call(call) for call in calls)]


def _named(part: object) -> str:
    if not isinstance(part, dict) or isinstance(part.get("text"), str):
        return ""
    name = mapping(part.get("file")).get("filename")
    kind = str(part.get("type") or "part").removeprefix("input_").removesuffix("_url")
    return f"({kind} {name})" if name else f"({kind})"


def _call(call: dict[str, Any]) -> str:
    function = call.get("function")
    if isinstance(function, dict):
        return f"(calls {function.get('name')} with {function.get('arguments')})"
    rest = {key: value for key, value in call.items() if key not in ("id", "type") and value}
    return f"(calls {json.dumps(rest, ensure_ascii=False)})" if rest else ""


def line(entry: Entry) -> str:
    """Return a message of a transcript: day, speaker and text. Further lines are indented."""
    text = f"{speaker(entry.message)}: {full_text(entry.message)}"
    return f"{entry.local_time:%Y-%m-%d} {indented(text)}"


def chunks(entries: Sequence[Entry], count: Count, limit: int) -> Iterator[str]:
    """Yield the transcript in pieces of at most `limit` tokens. Longer messages are split."""
    piece: list[str] = []
    size = 0
    for entry in entries:
        for part in split(line(entry), count, limit):
            cost = count(part) + 1
            if piece and size + cost > limit:
                yield "\n".join(piece)
                piece, size = [], 0
            piece.append(part)
            size += cost
    if piece:
        yield "\n".join(piece)


def split(text: str, count: Count, limit: int) -> list[str]:
    """Split a text into parts of at most `limit` tokens by halving it at sentences, or at words."""
    if count(text) < limit or len(text) < 2:
        return [text]
    middle = len(text) // 2
    near = max(middle // 2, middle - _NEAR)
    at = near + last_break(text[near:middle], middle - near) or middle
    return [*split(text[:at], count, limit), *split(text[at:], count, limit)]


def clip(text: str, count: Count, limit: int) -> str:
    """Return the beginning of a text within `limit` tokens, up to the end of a sentence or a word.

    The end of a sentence counts only in the second half of the limit.
    """
    if count(text) <= limit:
        return text
    size = bisect_right(range(1, len(text)), limit, key=lambda size: count(text[:size]))
    beginning = text[: last_break(text, size)].rstrip()
    while beginning and count(beginning) > limit:  # a shorter text may have one more token
        beginning = beginning[:-1].rstrip()
    return beginning


LONG = 4_000
"""A text of more than 4,000 bytes (about 1,000 tokens) is stored and searched in passages.

For shorter texts, a search of passages finds less than a search of whole texts.
"""

PASSAGE = 1_000
"""The approximate bytes of a passage: about 250 tokens."""

MOST_PASSAGES = 2_000
"""The most passages of one text. Passages of a very long text are longer."""

_OVERLAP = 200  # maximum bytes of a sentence that two passages share

PART = "part"
"""The metadata key under which a record of a long message stores its `Part`."""

GAP = "\u2026"
"""Marks the places where a text was cut."""

Place = tuple[int, int]


class Part(NamedTuple):
    """The place of a passage in its message."""

    number: int  # the number of the passage, from 0
    of: int  # the number of passages in the message
    offset: int  # the index in the message's text at which the passage begins

    @property
    def is_last(self) -> bool:
        return self.number == self.of - 1


WHOLE = Part(0, 1, 0)
"""The place of a text that is not split."""


def passages(text: str) -> list[Place]:
    """Return the start and end of each passage. A text of up to `LONG` bytes is one passage.

    Passages have similar lengths and begin at sentences or lines. Each passage repeats the last
    sentence of the previous passage, unless that sentence is long.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size <= LONG:
        return [(0, len(text))]
    count = min(MOST_PASSAGES, ceil(size / PASSAGE))
    goal = len(text) / count
    overlap = _OVERLAP * len(text) / size
    places: list[Place] = []
    reached = -1
    last: Place = (0, 0)
    for place in _units(text, max(1, int(goal / 2))):
        start, end = place
        number = int((start + end) / 2 / goal)
        if number > reached:
            shares = bool(places) and last[1] - last[0] <= overlap
            places.append((last[0] if shares else start, end))
        else:
            places[-1] = (places[-1][0], end)
        reached, last = number, place
    return places or [(0, len(text))]


def part_of(metadata: Mapping[str, Any]) -> Part:
    """Return the passage of a record or a recall, from its metadata."""
    value = metadata.get(PART)
    if isinstance(value, list) and [type(item) for item in value] == [int] * len(WHOLE):
        return Part(*value)
    return WHOLE


def marked(text: str, part: Part) -> str:
    """Return a passage's text with an ellipsis at each cut."""
    before = f"{GAP} " if part.number > 0 else ""
    return f"{before}{text}" if part.is_last else f"{before}{text} {GAP}"


def _units(text: str, most: int) -> Iterator[Place]:
    """Yield the sentences and lines of a text. Those of more than `most` characters are split."""
    for start, end in sentence_spans(text):
        while end - start > most:
            at = _last_space(text, start, start + most)
            yield start, at
            start = at
            while start < end and text[start].isspace():
                start += 1
        if start < end:
            yield start, end


def _last_space(text: str, start: int, end: int) -> int:
    """Return the last space in the second half of a range, or the range's end if there is none."""
    if text[end : end + 1].isspace():
        return end
    at = max(text.rfind(space, start, end) for space in (" ", "\t"))
    return at if at - start > (end - start) // 2 else end


def excerpt(
    text: str,
    question: str,
    count: Callable[[str], int],
    limit: int,
    nearness: Sequence[float] = (),
) -> str:
    """Return the sentences of a text that are most relevant to a question, within `limit` tokens.

    The relevance of a sentence is the share of the question's words in it, plus its `nearness`. Of
    equally relevant sentences, those near the best one come first. If even the best sentence is too
    long, it is cut. An ellipsis marks omitted text.
    """
    if count(text) <= limit:
        return text
    spans = sentence_spans(text) or [(0, len(text))]
    scores = overlap_scores(question, [text[start:end] for start, end in spans])
    if len(nearness) == len(spans):
        scores = [*map(sum, zip(scores, nearness, strict=True))]
    best = max(range(len(spans)), key=lambda place: scores[place])
    shown = _shown(text, spans, [best])
    if count(shown) > limit:
        cut = clip(shown, count, limit - 1 - count(GAP))  # empty if there is no room for a mark
        return f"{cut} {GAP}" if cut else clip(shown, count, limit)
    chosen = [best]
    for place in sorted(range(len(spans)), key=lambda at: (-scores[at], abs(at - best), -at)):
        more = sorted({*chosen, place})
        if count(longer := _shown(text, spans, more)) > limit:
            break
        chosen, shown = more, longer
    return shown


def joined(recalls: Sequence[Recall], blocks: Collection[str]) -> list[Recall]:
    """Join the blocks' recalls of neighbouring messages, or of neighbouring passages of a message.

    A joined recall has the place, id and score of the best recall, and the first recall's time.
    """
    best: dict[int, Recall] = {}
    runs: list[list[int]] = []
    for place, recall in enumerate(recalls):
        if recall.block in blocks and len(recall.sources) == 1:
            runs.append([place])
        else:
            best[place] = recall
    places = [(it.block, *it.sources[:1], part_of(it.metadata).number) for it in recalls]
    runs.sort(key=lambda run: places[run[0]])  # the order of the log
    for before, run in reversed(list(pairwise(runs))):
        if _follows(recalls[before[0]], recalls[run[0]]):
            before += run
            run.clear()
    for run in runs:
        if run:
            place = min(run)
            best[place] = _passage([recalls[at] for at in run], recalls[place])
    return [best[place] for place in sorted(best)]


def _follows(first: Recall, second: Recall) -> bool:
    """Return whether `second` directly follows `first` in the log, with the same `time`.

    A recall marked as outdated has another `time`, and is therefore not joined.
    """
    (session_id, seq), (other_session, other_seq) = first.sources[0], second.sources[0]
    if (first.block, session_id, first.time) != (second.block, other_session, second.time):
        return False
    here, other = part_of(first.metadata), part_of(second.metadata)
    if seq == other_seq:
        return other.number == here.number + 1
    return other_seq == seq + 1 and here.is_last and other.number == 0


def _shown(text: str, spans: Sequence[Place], places: Sequence[int]) -> str:
    """Return the sentences at `places`, in order, with an ellipsis for each omitted part."""
    runs: list[Place] = []
    for place in places:
        start, end = spans[place]
        follows = bool(runs) and runs[-1][1] == spans[place - 1][1]
        runs[-1:] = [(runs[-1][0], end)] if follows else [*runs[-1:], (start, end)]
    before = f"{GAP} " if places[0] > 0 else ""
    after = f" {GAP}" if places[-1] + 1 < len(spans) else ""
    return before + f" {GAP} ".join(text[start:end] for start, end in runs) + after


def _passage(run: Sequence[Recall], best: Recall) -> Recall:
    if len(run) == 1:
        return best
    text, turns = run[0].text, list[int]()
    for first, second in pairwise(run):
        if first.sources == second.sources:
            text = _spliced(text, first, second)
        else:
            turns.append(len(text) + 1)
            text = f"{text}\n{second.text}"
    return replace(
        best,
        text=text,
        turns=tuple(turns),
        created_at=run[0].created_at,
        sources=tuple(dict.fromkeys(source for recall in run for source in recall.sources)),
    )


def _spliced(text: str, first: Recall, second: Recall) -> str:
    """Append the passage `second` to a text that ends with `first`, without their overlap."""
    before, rest = _body(first), _body(second)
    passage = before.removeprefix(f"{GAP} ").removesuffix(f" {GAP}")
    shared = part_of(first.metadata).offset + len(passage) - part_of(second.metadata).offset
    after = rest.removeprefix(f"{GAP} ")
    if shared > 0 and passage.endswith(after[:shared]):
        return text.removesuffix(f" {GAP}") + after[shared:]
    return f"{text}\n{rest}"  # no overlap, or one of the passages was cut


def _body(recall: Recall) -> str:
    return recall.text.removeprefix(f"{recall.metadata.get('speaker')}: ")
