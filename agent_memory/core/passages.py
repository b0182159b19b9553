"""Recalled messages as passages: cut to the point, joined where they belong. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from agent_memory.core.records import Recall
from agent_memory.core.text import overlap_scores, sentences
from agent_memory.core.transcript import clip

_GAP = "\u2026"


def excerpt(text: str, question: str, count: Callable[[str], int], limit: int) -> str:
    """The part of a text that bears most on a question, at most `limit` tokens.

    It grows round the sentence that has most of the question's words, always by the better of the
    sentences beside it, and is clipped where that one alone is too long. What was left out shows as
    an ellipsis.
    """
    if count(text) <= limit:
        return text
    spans = _spans(text)
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
    """The recalls, with neighbouring messages as one passage, in order.

    A passage stands where its best message stood, under its id and with its score; its day is that
    of its first.

    Args:
        recalls: The recalls.
        blocks: The blocks that recall messages; what others tell stands alone.
    """
    places = {
        (recall.block, *recall.sources[0]): place
        for place, recall in enumerate(recalls)
        if recall.block in blocks and len(recall.sources) == 1
    }
    passages: dict[int, Recall] = {}
    taken: set[int] = set()
    for place, recall in enumerate(recalls):
        if place in taken:
            continue
        run = [place]
        if recall.block in blocks and len(recall.sources) == 1:
            session_id, seq = recall.sources[0]
            here, before, after = recall.block, seq - 1, seq + 1
            while (found := places.get((here, session_id, before))) is not None:
                run.insert(0, found)
                before -= 1
            while (found := places.get((here, session_id, after))) is not None:
                run.append(found)
                after += 1
        taken |= set(run)
        passages[place] = _passage([recalls[at] for at in run], recall)
    return list(passages.values())


def _spans(text: str) -> list[tuple[int, int]]:
    """Where the sentences of a text begin and end; of a blank one, all of it."""
    spans = []
    end = 0
    for sentence in sentences(text) or [text]:
        start = text.index(sentence, end)
        end = start + len(sentence)
        spans.append((start, end))
    return spans


def _between(text: str, spans: Sequence[tuple[int, int]], first: int, last: int) -> str:
    before = f"{_GAP} " if first > 0 else ""
    after = f" {_GAP}" if last + 1 < len(spans) else ""
    return f"{before}{text[spans[first][0] : spans[last][1]]}{after}"


def _passage(run: Sequence[Recall], best: Recall) -> Recall:
    if len(run) == 1:
        return best
    return replace(
        best,
        text="\n".join(recall.text for recall in run),
        created_at=run[0].created_at,
        sources=tuple(source for recall in run for source in recall.sources),
    )
