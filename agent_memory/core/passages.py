"""Recalled messages as passages: cut to the point, joined where they belong. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import pairwise

from agent_memory.core.long_texts import GAP, part_of
from agent_memory.core.records import Recall
from agent_memory.core.text import overlap_scores, sentence_spans
from agent_memory.core.transcript import clip


def excerpt(text: str, question: str, count: Callable[[str], int], limit: int) -> str:
    """The part of a text that bears most on a question, at most `limit` tokens.

    It grows round the sentence that has most of the question's words, always by the better of the
    sentences beside it, and is clipped where that one alone is too long. What was left out shows as
    an ellipsis.
    """
    if count(text) <= limit:
        return text
    spans = sentence_spans(text) or [(0, len(text))]
    scores = overlap_scores(question, [text[start:end] for start, end in spans])
    first = last = max(range(len(spans)), key=lambda place: scores[place], default=0)
    best = _between(text, spans, first, last)
    if count(best) > limit:
        return clip(best, count, limit)
    while True:
        sides = [(scores[at], at) for at in (last + 1, first - 1) if 0 <= at < len(spans)]
        for _, at in sorted(sides, key=lambda side: -side[0]):
            longer = _between(text, spans, min(first, at), max(last, at))
            if count(longer) <= limit:
                first, last, best = min(first, at), max(last, at), longer
                break
        else:
            return best


def joined(recalls: Sequence[Recall], blocks: Collection[str]) -> list[Recall]:
    """The recalls, with neighbouring messages, and passages of one message, as one, in order.

    It stands where the best of them stood, under its id and with its score; its day is that of the
    first.

    Args:
        recalls: The recalls.
        blocks: The blocks that recall messages; what others tell stands alone.
    """
    best: dict[int, Recall] = {}
    runs: list[list[int]] = []
    for place, recall in enumerate(recalls):
        if recall.block in blocks and len(recall.sources) == 1:
            runs.append([place])
        else:
            best[place] = recall
    runs.sort(key=lambda run: _at(recalls[run[0]]))
    for before, run in reversed(list(pairwise(runs))):
        if _follows(recalls[before[0]], recalls[run[0]]):
            before += run
            run.clear()
    for run in runs:
        if run:
            place = min(run)
            best[place] = _passage([recalls[at] for at in run], recalls[place])
    return [best[place] for place in sorted(best)]


def _at(recall: Recall) -> tuple[str, str, int, int]:
    """Where a message, or its passage, stands, in the order of the log."""
    return (recall.block, *recall.sources[0], part_of(recall.metadata).number)


def _follows(one: Recall, other: Recall) -> bool:
    """Whether nothing is between two messages or passages of messages, whose times are told alike:
    what is said to be outdated stands apart."""
    (session_id, seq), (its_session, its_seq) = one.sources[0], other.sources[0]
    if (one.block, session_id, one.time) != (other.block, its_session, other.time):
        return False
    here, there = part_of(one.metadata), part_of(other.metadata)
    if seq == its_seq:
        return there.number == here.number + 1
    return its_seq == seq + 1 and here.is_last and there.number == 0


def _between(text: str, spans: Sequence[tuple[int, int]], first: int, last: int) -> str:
    before = f"{GAP} " if first > 0 else ""
    after = f" {GAP}" if last + 1 < len(spans) else ""
    return f"{before}{text[spans[first][0] : spans[last][1]]}{after}"


def _passage(run: Sequence[Recall], best: Recall) -> Recall:
    if len(run) == 1:
        return best
    text = run[0].text
    for one, other in pairwise(run):
        text = (
            _spliced(text, one, other) if one.sources == other.sources else f"{text}\n{other.text}"
        )
    return replace(
        best,
        text=text,
        created_at=run[0].created_at,
        sources=tuple(dict.fromkeys(source for recall in run for source in recall.sources)),
    )


def _spliced(text: str, one: Recall, other: Recall) -> str:
    """A text that ends with a passage, and the passage after it: what they share is told once."""
    said, rest = _said(one), _said(other)
    whole = said.removeprefix(f"{GAP} ").removesuffix(f" {GAP}")
    shared = part_of(one.metadata).offset + len(whole) - part_of(other.metadata).offset
    after = rest.removeprefix(f"{GAP} ")
    if shared > 0 and whole.endswith(after[:shared]):
        return text.removesuffix(f" {GAP}") + after[shared:]
    return f"{text}\n{rest}"  # they share nothing, or one of them was cut


def _said(recall: Recall) -> str:
    return recall.text.removeprefix(f"{recall.metadata.get('speaker')}: ")
