"""The system collections: records that the library stores for itself, and not for a block. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Reserved(NamedTuple):
    name: str  # the name; for indexes, the prefix of the names of several collections
    holds: str  # the description of the records
    goes_with_session: bool = False  # whether a record belongs to a session, and is erased with it
    goes_with_user: bool = False  # whether a record can belong to a user, and is erased with them
    # Whether the records are facts in the store of the log. False for system messages, which may
    # have another store, and for indexes, which hold vectors.
    is_facts: bool = True


NOTES = Reserved("_notes", "state of the engine: jobs, replays, unfinished deletions")
FAILED = Reserved(
    "_failed", "attempts of blocks that failed, and dead letters", goes_with_session=True
)
FORGOTTEN = Reserved(
    "_forgotten",
    "facts that blocks must not learn again",
    goes_with_session=True,
    goes_with_user=True,
)
AUTHORS = Reserved(
    "_authors",
    "the seqs of shared sessions at which an agent began to write",
    goes_with_session=True,
    goes_with_user=True,
)
GRANTS = Reserved("_grants", "the access of agents to shared namespaces", goes_with_user=True)
REGISTRY = Reserved("_registry", "the blocks and indexes with data in this store")
DELETED = Reserved("_deleted", "deleted sessions and users with the time: ids as hashes, no text")
VALUES = Reserved(
    "_values",
    "values by namespace and key, and the metadata of sessions",
    goes_with_session=True,
    goes_with_user=True,
)
KEYS = Reserved(
    "_keys",
    "API keys of the service: hashes and owners; keys of a single user are erased with the user",
    goes_with_user=True,
)
SYSTEM = Reserved(
    "_system",
    "system messages, if they have their own store",
    goes_with_session=True,
    is_facts=False,
)
INDEXES = Reserved(
    "_index_", "the vectors of an index, one collection each", goes_with_user=True, is_facts=False
)

SPENDING = Reserved(
    "_spending", "today's spending on model calls, in total and by user: users as hashes, no text"
)
FIGURES = Reserved(
    "_figures", "counters of the service's processes: model calls, tokens, recalls, no text"
)
SENT = Reserved("_sent", "the contexts that were sent to a model", goes_with_session=True)
SENT_TEXTS = Reserved(
    "_sent_texts",
    "texts of these contexts, each erased with its source session",
    goes_with_session=True,
)

RESERVED = (
    *(NOTES, FAILED, FORGOTTEN, AUTHORS, GRANTS, REGISTRY, DELETED),
    *(VALUES, KEYS, SYSTEM, INDEXES, SPENDING, FIGURES, SENT, SENT_TEXTS),
)
"""All system collections. Deletion, export and migration use this list."""

PLAIN = (NOTES, REGISTRY, DELETED, SPENDING, FIGURES)
"""Collections with only ids, names and numbers. All users need them: they are not encrypted."""


def reserved(name: str) -> Reserved | None:
    """Return the system collection with this name. None for any other name."""
    for collection in RESERVED:
        if name == collection.name or (collection is INDEXES and name.startswith(collection.name)):
            return collection
    return None
