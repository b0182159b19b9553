"""Conversion of messages to searchable texts and records, and of hits to recalls. Pure.

A `Turn` in this module is one message, or one passage of a long message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Any

import numpy as np

from agent_memory.core.records import Entry, Recall, Record, Scope, Source
from agent_memory.core.redaction import DELETED
from agent_memory.core.shapes import role_of
from agent_memory.core.text import sentence_spans
from agent_memory.core.transcript import PART, Part, marked, passages, speaker
from agent_memory.retrieval.features import Turn
from agent_memory.retrieval.score import PARTS, fitted
from agent_memory.retrieval.statements import TextHit
from agent_memory.retrieval.vectors import products

_BY_WORDS = tuple("unread" if name == "meaning" else name for name in PARTS)
"""The names of a score's terms for a record without a vector: "unread" replaces "meaning"."""

_LONG = 500
"""The sentences of a text of at least 500 characters (about 120 tokens) are compared."""

DAY = "day"
"""Metadata key of a record's local day. It is stored only if it differs from the day in UTC."""


def spoken(entries: Sequence[Entry], roles: Sequence[str]) -> list[tuple[Entry, Turn]]:
    """Return the turns of all entries with one of these roles, each with its entry."""
    return [
        (entry, turn)
        for entry in entries
        if role_of(entry.message) in roles
        for turn in turns_in(entry)
    ]


def turns_in(entry: Entry) -> list[Turn]:
    """Return the turns of an entry: several if the message is long, none if it has no text."""
    message, full = entry.message, entry.message.text()
    text = full.strip()
    begin = full.index(text)
    spans = passages(text) if text and text != DELETED else []
    return [
        Turn(
            speaker(message),
            text[start:end],
            entry.local_time,
            role_of(message) == "user",
            Part(number, len(spans), begin + start),
            entry.session_id,
            entry.seq,
        )
        for number, (start, end) in enumerate(spans)
    ]


def record_of_turn(entry: Entry, turn: Turn, record_id: str, owner: str) -> Record:
    about: dict[str, Any] = {"role": role_of(entry.message) or "", "speaker": turn.speaker}
    if turn.part.of > 1:
        about[PART] = list(turn.part)
    day = entry.local_time.date().isoformat()
    if day != entry.created_at.astimezone(UTC).date().isoformat():
        about[DAY] = day
    if entry.message.metadata:
        about["message"] = entry.message.metadata
    return Record(
        id=record_id,
        owner=owner,
        session_id=entry.session_id,
        first=entry.seq,
        last=entry.seq,
        text=f"{turn.speaker}: {marked(turn.text, turn.part)}",
        sources=(entry.seq,),
        created_at=entry.created_at,
        metadata=about,
    )


def sources_of(record: Record) -> tuple[Source, ...]:
    return tuple((record.session_id, seq) for seq in record.sources)


def recalls(
    hits: list[TextHit], block: str, scope: Scope | None = None, pieces: np.ndarray | None = None
) -> Iterator[Recall]:
    """Yield hits as recalls, in order. If `scope` is given, skip hits that it excludes.

    If the question's word pieces are given, the recalls of long texts have `sentences`.
    """
    weights = [fitted()["rank"][name] for name in PARTS]
    for hit in hits:
        record = hit.record
        names = PARTS if hit.cosine else _BY_WORDS
        sources = sources_of(record)
        if scope is None or scope.wants(sources):
            yield Recall(
                block=block,
                id=record.id,
                text=record.text,
                score=hit.score,
                created_at=record.created_at,
                time=record.metadata.get(DAY, ""),
                sources=sources,
                metadata=dict(record.metadata),
                views={
                    name: weight * value
                    for name, weight, value in zip(names, weights, hit.parts, strict=True)
                    if value
                },
                relevance=hit.relevance,
                sentences=() if pieces is None else _nearness(hit, pieces),
            )


def _nearness(hit: TextHit, pieces: np.ndarray) -> tuple[float, ...]:
    """Return how near each sentence of a long text is to a question.

    This is the mean, over the question's word pieces, of the highest cosine with a piece of the
    sentence. The places of the text's pieces are estimated from their order.
    """
    text = hit.text
    if len(text) < _LONG or hit.encoding is None or not len(pieces):
        return ()
    own = hit.encoding().tokens
    if not len(own):
        return ()
    cosines = products(own, pieces.astype(np.float32).T) / 127**2
    density = len(own) / len(text)
    return tuple(
        float(cosines[int(start * density) : int(end * density) + 1].max(axis=0).mean())
        for start, end in sentence_spans(text)
    )
