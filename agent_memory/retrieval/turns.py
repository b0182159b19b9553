"""Messages as turns to be found, and what was found as recalls, best first. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent_memory.core.records import Entry, Hit, Recall, Record
from agent_memory.core.transcript import speaker
from agent_memory.core.window import role_of
from agent_memory.retrieval.blending import blended, by_ranks, shares
from agent_memory.retrieval.features import Turn
from agent_memory.retrieval.priors import of_conversation, priors
from agent_memory.retrieval.views import LEAST, VIEWS, WEIGHTS, Fusion

_PRIORS = "priors"


def spoken(entries: Sequence[Entry], roles: Sequence[str]) -> list[tuple[Entry, Turn]]:
    """The entries of some roles that have text, with their turns."""
    said = [(entry, turn_said(entry)) for entry in entries if role_of(entry.message) in roles]
    return [(entry, turn) for entry, turn in said if turn.text]


def turn_said(entry: Entry) -> Turn:
    """An entry as a turn."""
    message = entry.message
    is_user = role_of(message) == "user"
    return Turn(speaker(message), message.text().strip(), entry.created_at, is_user)


def record_of_turn(entry: Entry, turn: Turn, record_id: str, owner: str) -> Record:
    """An entry and its turn as a record; `ranked` reads it."""
    return Record(
        id=record_id,
        owner=owner,
        session_id=entry.session_id,
        first=entry.seq,
        last=entry.seq,
        text=str(turn),
        sources=(entry.seq,),
        created_at=entry.created_at,
        metadata={"role": role_of(entry.message) or "", "speaker": turn.speaker},
    )


def ranked(
    block: str,
    question: str,
    hits: Sequence[Hit],
    limit: int,
    *,
    fusion: Fusion = "blend",
    weights: Sequence[float] = WEIGHTS,
    prior_weight: float = 1.0,
    least: float = LEAST,
) -> list[Recall]:
    """The records that views found, in the order of how much they bear on a question.

    Args:
        block: Whose they are.
        question: The question.
        hits: As `VectorStore.search_vectors` gives them.
        limit: At most this many.
        fusion: How the views become one score.
        weights: What each view counts.
        prior_weight: By what the priors are multiplied.
        least: What the views together must give a record, of the 1 that they can.
    """
    if not hits:
        return []
    parts = shares(np.array([hit.scores for hit in hits], np.float32))
    fused = blended(parts, weights) if fusion == "blend" else by_ranks(parts, weights)
    said = priors(question, [_turn(hit.record) for hit in hits])
    said = said + of_conversation(fused + said, [hit.record.session_id for hit in hits])
    scores = fused + prior_weight * said
    views = np.column_stack([parts, prior_weight * said])
    bearing = np.flatnonzero((fused > 0) & (fused >= least)).tolist()
    order = sorted(bearing, key=lambda place: (-scores[place], hits[place].record.id))
    return [
        _recall(block, hits[place].record, float(scores[place]), views[place].tolist())
        for place in order[:limit]
    ]


def _turn(record: Record) -> Turn:
    said_by = str(record.metadata.get("speaker", ""))
    text = record.text.removeprefix(f"{said_by}: ")
    return Turn(said_by, text, record.created_at, record.metadata.get("role") == "user")


def _recall(block: str, record: Record, score: float, views: Sequence[float]) -> Recall:
    return Recall(
        block=block,
        id=record.id,
        text=record.text,
        score=score,
        created_at=record.created_at,
        sources=tuple((record.session_id, seq) for seq in record.sources),
        metadata=dict(record.metadata),
        views=dict(zip((*VIEWS, _PRIORS), views, strict=True)),
    )
