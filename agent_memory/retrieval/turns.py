"""Messages as turns to be found, and what was found as recalls, best first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agent_memory.core.long_texts import PART, Part, marked, passages
from agent_memory.core.records import Entry, Hit, Recall, Record, Scope, Source
from agent_memory.core.redacted import DELETED
from agent_memory.core.transcript import speaker
from agent_memory.core.window import role_of
from agent_memory.retrieval.blending import blended, by_ranks, shares
from agent_memory.retrieval.features import Turn
from agent_memory.retrieval.languages import languages_of
from agent_memory.retrieval.priors import of_conversation, of_neighbours, priors
from agent_memory.retrieval.surroundings import FARTHEST
from agent_memory.retrieval.telling import only_asks, tells_nothing
from agent_memory.retrieval.views import LEAST, RRF, VIEWS, WEIGHTS, Fusion
from agent_memory.retrieval.words import words

_PRIORS = "priors"


def spoken(entries: Sequence[Entry], roles: Sequence[str]) -> list[tuple[Entry, Turn]]:
    """The entries of some roles that have text, with their turns; a long one with several."""
    return [
        (entry, turn)
        for entry in entries
        if role_of(entry.message) in roles
        for turn in turns_said(entry)
    ]


def said_before(entries: Sequence[Entry], roles: Sequence[str]) -> list[Turn]:
    """Of what was said before something, the turns that can belong to its surroundings."""
    said = [turn for _, turn in spoken(entries, roles)]
    return [turn for turn in said if turn.part.is_last][-FARTHEST:]


def turns_said(entry: Entry) -> list[Turn]:
    """An entry as a turn, or where it is long as several; none where it has no text."""
    message, whole = entry.message, entry.message.text()
    text = whole.strip()
    begin = whole.index(text)
    found = passages(text) if text and text != DELETED else []
    return [
        Turn(
            speaker(message),
            text[start:end],
            entry.created_at,
            role_of(message) == "user",
            Part(number, len(found), begin + start),
        )
        for number, (start, end) in enumerate(found)
    ]


def record_of_turn(entry: Entry, turn: Turn, record_id: str, owner: str) -> Record:
    """An entry and its turn as a record; `ranked` reads it."""
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


@dataclass(frozen=True, slots=True)
class Ranking:
    """Hits that bear on a question, best first.

    Attributes:
        hits: What was found, in any order.
        places: Of those that bear on it, best first.
        scores: (n,) how much each bears on it.
        views: (n, views) what each score is made of.
    """

    hits: Sequence[Hit]
    places: Sequence[int] = ()
    scores: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    views: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    def __len__(self) -> int:
        return len(self.places)

    def recalls(self, block: str, scope: Scope | None = None) -> Iterator[Recall]:
        """As recalls, best first: those that are wanted, where a scope says which."""
        for place in self.places:
            record = self.hits[place].record
            sources = sources_of(record)
            if scope is None or scope.wants(sources):
                score, views = float(self.scores[place]), self.views[place].tolist()
                yield _recall(block, record, sources, score, views)


def sources_of(record: Record) -> tuple[Source, ...]:
    """The messages that a record comes from."""
    return tuple((record.session_id, seq) for seq in record.sources)


def telling(question: str, hits: Sequence[Hit]) -> list[Hit]:
    """Those of what was found that tell something, beside what was asked."""
    languages = languages_of(question)
    asked = frozenset(words(question, languages))
    return [hit for hit in hits if not tells_nothing(asked, languages, *_said(hit.record)[1:])]


def ranked(
    question: str,
    hits: Sequence[Hit],
    *,
    fusion: Fusion = "blend",
    rrf_k: float = RRF,
    weights: Sequence[float] = WEIGHTS,
    prior_weight: float = 1.0,
    least: float = LEAST,
) -> Ranking:
    """The records that views found, in the order of how much they bear on a question.

    Args:
        question: The question.
        hits: As `VectorStore.search_vectors` gives them.
        fusion: How the views become one score.
        rrf_k: The constant of rank fusion.
        weights: What each view counts.
        prior_weight: By what the priors are multiplied.
        least: What the views together must give a record, of the 1 that they can.
    """
    if not hits:
        return Ranking(hits)
    turns = [_turn(hit.record) for hit in hits]
    telling = np.array([not only_asks(turn.text) for turn in turns])
    parts = shares(np.array([hit.scores for hit in hits], np.float32), telling)
    fused = blended(parts, weights) if fusion == "blend" else by_ranks(parts, weights, rrf_k)
    said = priors(question, turns)
    said = said + of_conversation(fused + said, [hit.record.session_id for hit in hits])
    said = said + of_neighbours(fused + said, [(h.record.session_id, h.record.first) for h in hits])
    scores = fused + prior_weight * said
    bearing = np.flatnonzero((fused >= least) & ((fused > 0) | (least <= 0))).tolist()
    order = sorted(bearing, key=lambda place: (-scores[place], hits[place].record.id))
    return Ranking(hits, order, scores, np.column_stack([parts, prior_weight * said]))


def _turn(record: Record) -> Turn:
    speaker, text, is_user = _said(record)
    return Turn(speaker, text, record.created_at, is_user)


def _said(record: Record) -> tuple[str, str, bool]:
    """Of a record's turn: who speaks, what he says, and whether he is a user."""
    said_by = str(record.metadata.get("speaker", ""))
    text = record.text.removeprefix(f"{said_by}: ")
    return said_by, text, record.metadata.get("role") == "user"


def _recall(
    block: str, record: Record, sources: tuple[Source, ...], score: float, views: Sequence[float]
) -> Recall:
    return Recall(
        block=block,
        id=record.id,
        text=record.text,
        score=score,
        created_at=record.created_at,
        sources=sources,
        metadata=dict(record.metadata),
        views=dict(zip((*VIEWS, _PRIORS), views, strict=True)),
    )
