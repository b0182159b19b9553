"""The system collections: records that the library stores for itself, and not for a block. Pure."""

from __future__ import annotations

from typing import NamedTuple


class SystemCollection(NamedTuple):
    name: str  # the name; for indexes, the prefix of the names of several collections
    goes_with_session: bool = False  # whether a record belongs to a session, and is erased with it
    goes_with_user: bool = False  # whether a record can belong to a user, and is erased with them
    # Whether the records are facts in the store of the log. False for system messages, which may
    # have another store, and for indexes, which hold vectors.
    is_facts: bool = True


# State of the engine: jobs, replays, unfinished deletions.
NOTES = SystemCollection("_notes")
# Attempts of blocks that failed, and dead letters.
FAILED = SystemCollection("_failed", goes_with_session=True)
# Facts that blocks must not learn again.
FORGOTTEN = SystemCollection("_forgotten", goes_with_session=True, goes_with_user=True)
# The seqs of shared sessions at which an agent began to write.
AUTHORS = SystemCollection("_authors", goes_with_session=True, goes_with_user=True)
# The access of agents to shared namespaces.
GRANTS = SystemCollection("_grants", goes_with_user=True)
# The blocks and indexes with data in this store.
REGISTRY = SystemCollection("_registry")
# Deleted sessions and users with the time: ids as hashes, no text.
DELETED = SystemCollection("_deleted")
# Values by namespace and key, and the metadata of sessions.
VALUES = SystemCollection("_values", goes_with_session=True, goes_with_user=True)
# API keys of the service: hashes and owners. Keys of a single user are erased with the user.
KEYS = SystemCollection("_keys", goes_with_user=True)
# System messages, if they have their own store.
SYSTEM = SystemCollection("_system", goes_with_session=True, is_facts=False)
# The vectors of an index, one collection each.
INDEXES = SystemCollection("_index_", goes_with_user=True, is_facts=False)
# Today's spending on model calls, in total and by user: users as hashes, no text.
SPENDING = SystemCollection("_spending")
# Counters of the service's processes: model calls, tokens, recalls, no text.
METRICS = SystemCollection("_figures")
# The contexts that were sent to a model, and texts of these contexts. Each text is erased with its
# source session.
PROMPT_LOG = SystemCollection("_sent", goes_with_session=True)
PROMPT_TEXTS = SystemCollection("_sent_texts", goes_with_session=True)

SYSTEM_COLLECTIONS = (
    *(NOTES, FAILED, FORGOTTEN, AUTHORS, GRANTS, REGISTRY, DELETED),
    *(VALUES, KEYS, SYSTEM, INDEXES, SPENDING, METRICS, PROMPT_LOG, PROMPT_TEXTS),
)
"""All system collections. Deletion, export and migration use this list."""

PLAIN = (NOTES, REGISTRY, DELETED, SPENDING, METRICS)
"""Collections with only ids, names and numbers. All users need them: they are not encrypted."""


def system_collection(name: str) -> SystemCollection | None:
    """Return the system collection with this name. None for any other name."""
    for collection in SYSTEM_COLLECTIONS:
        if name == collection.name or (collection is INDEXES and name.startswith(collection.name)):
            return collection
    return None
