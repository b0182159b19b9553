"""Messages as turns to be found, and what was found as recalls, best first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agent_memory.core.long_texts import PART, Part, marked, passages
from agent_memory.core.records import Entry, Hit, Recall, Record, Scope, Source
from agent_memory.core.redacted import DELETED
from agent_memory.core.transcript import speaker
from agent_memory.core.window import role_of
from agent_memory.retrieval.features import Turn
from agent_memory.retrieval.languages import languages_of
from agent_memory.retrieval.score import PARTS, fitted
from agent_memory.retrieval.telling import tells_nothing
from agent_memory.retrieval.words import words

_BY_WORDS = tuple("unread" if name == "meaning" else name for name in PARTS)
"""The terms of a record without a vector. Its words stand in for its meaning."""


def spoken(entries: Sequence[Entry], roles: Sequence[str]) -> list[tuple[Entry, Turn]]:
    """The entries of some roles that have text, with their turns; a long one with several."""
    return [
        (entry, turn)
        for entry in entries
        if role_of(entry.message) in roles
        for turn in turns_said(entry)
    ]


def turns_said(entry: Entry) -> list[Turn]:
    """An entry as a turn, or where it is long as several; none where it has no text."""
    message, whole = entry.message, entry.message.text()
    text = whole.strip()
    begin = whole.index(text)
    found = passages(text) if text and text != DELETED else []
    count = len(text.split()) if found else 0
    return [
        Turn(
            speaker(message),
            text[start:end],
            entry.created_at,
            role_of(message) == "user",
            Part(number, len(found), begin + start),
            entry.session_id,
            entry.seq,
            count,
        )
        for number, (start, end) in enumerate(found)
    ]


def record_of_turn(entry: Entry, turn: Turn, record_id: str, owner: str) -> Record:
    """Return an entry and its turn as a record."""
    about: dict[str, Any] = {"role": role_of(entry.message) or "", "speaker": turn.speaker}
    if turn.part.of > 1:
        about[PART] = list(turn.part)
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
    """The messages that a record comes from."""
    return tuple((record.session_id, seq) for seq in record.sources)


def telling(question: str, hits: Iterable[Hit]) -> Iterator[Hit]:
    """Return the hits that tell something beside what was asked."""
    languages = languages_of(question)
    asked = frozenset(words(question, languages))
    return (hit for hit in hits if not tells_nothing(asked, languages, *_said(hit.record)))


def recalls(hits: Iterable[Hit], block: str, scope: Scope | None = None) -> Iterator[Recall]:
    """Return hits as recalls, in their order: those that are wanted, where a scope says which."""
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
                sources=sources,
                metadata=dict(record.metadata),
                views={
                    name: weight * value
                    for name, weight, value in zip(names, weights, hit.parts, strict=True)
                    if value
                },
                relevance=hit.relevance,
            )


def _said(record: Record) -> tuple[str, bool]:
    """The text of a record's turn, and whether a user said it."""
    said_by = str(record.metadata.get("speaker", ""))
    return record.text.removeprefix(f"{said_by}: "), record.metadata.get("role") == "user"
