"""Searching a session's log itself, where no block remembers it."""

from __future__ import annotations

from agent_memory.core.records import Head, Recall
from agent_memory.stores.base import SessionStore

LOG = "log"
"""What stands for the block's name in what the log itself gives."""

_MOST = 5_000  # an index of these is made for each search, in about a second
_ROLES = ("user", "assistant")


def search_log(store: SessionStore, head: Head, query: str, limit: int) -> list[Recall]:
    """The messages of a session that bear on a query, best first; of the newest 5,000.

    By their words alone: an index is made for this search, and words cost least.
    """
    from agent_memory.models.embedders.none import NoEmbedder
    from agent_memory.retrieval.features import Features, Query
    from agent_memory.retrieval.index import TraitIndex
    from agent_memory.retrieval.turns import ranked, record_of_turn, spoken
    from agent_memory.retrieval.views import depth_for
    from agent_memory.stores.indexes import hits

    said = spoken(store.read(head.session_id, after=max(0, head.end - _MOST)), _ROLES)
    if not said:
        return []
    nothing = NoEmbedder()
    features = Features.of_turns([turn for _, turn in said], 0, nothing.embed)
    records = [record_of_turn(*one, f"{one[0].session_id}#{one[0].seq}", "") for one in said]
    by_id = {record.id: record for record in records}
    index = TraitIndex(nothing.dimension).extended(list(by_id), features)
    found = index.search(Query.of(query, nothing.embed([query])[0]), depth_for(limit))
    return ranked(LOG, query, hits(found, by_id), limit)
