"""Searching a session's log itself, where no block remembers it."""

from __future__ import annotations

from agent_memory.messages import Message
from agent_memory.records import Entry, Head, Recall
from agent_memory.stores.base import SessionStore
from agent_memory.transcript import speaker
from agent_memory.window import role_of

LOG = "log"
"""What stands for the block's name in what the log itself gives."""

_MOST = 5_000  # an index of these is made for each search, in about a second
_ROLES = ("user", "assistant")


def search_log(store: SessionStore, head: Head, query: str, limit: int) -> list[Recall]:
    """The messages of a session that bear on a query, best first; of the newest 5,000.

    By their words alone, see `agent_memory.ranking.turns`: there is nothing else to go by.
    """
    import numpy as np

    from agent_memory.ranking.turns import Turn, Turns

    said = [
        (entry, text)
        for entry in store.read(head.session_id, after=head.end - _MOST)
        if role_of(entry.message) in _ROLES and (text := entry.message.text().strip())
    ]
    turns = [
        Turn(speaker(entry.message), text, entry.created_at, role_of(entry.message) == "user")
        for entry, text in said
    ]
    scores = Turns([turns]).scores(query)
    best: list[int] = np.argsort(-scores, kind="stable")[:limit].tolist()
    found = [(said[place], float(scores[place])) for place in best]
    return [_recall(entry, text, score) for (entry, text), score in found if score > 0]


def _recall(entry: Entry, text: str, score: float) -> Recall:
    message: Message = entry.message
    return Recall(
        block=LOG,
        id=f"{entry.session_id}#{entry.seq}",
        text=f"{speaker(message)}: {text}",
        score=score,
        created_at=entry.created_at,
        sources=((entry.session_id, entry.seq),),
        metadata={"role": role_of(message) or ""},
    )
