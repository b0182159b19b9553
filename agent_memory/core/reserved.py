"""The collections of records that the library keeps for itself, beside those of blocks. Pure.

A block's name begins with a letter. The names here begin with an underscore, so that none of them
can be a block's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reserved:
    """A collection of the library's own.

    What goes neither with a session nor with a user is the deployment's.

    Attributes:
        name: Its name; of an open number of collections, what their names begin with.
        holds: What is kept there.
        goes_with_session: Whether each record names its session, and is erased with it.
        goes_with_user: Whether what is kept there of a user is erased with that user, whatever
            becomes of the sessions.
        is_exported: Whether the snapshot of a session takes its records along.
        is_facts: Whether its records are facts of the store that holds the log. System messages may
            lie in a store of their own, which erases them itself; indexes hold vectors.
    """

    name: str
    holds: str
    goes_with_session: bool = False
    goes_with_user: bool = False
    is_exported: bool = False
    is_facts: bool = True


NOTES = Reserved("_notes", "what the engine has to remember: jobs, replays, unfinished deletions")
FAILED = Reserved(
    "_failed",
    "attempts of blocks that failed, and dead letters",
    goes_with_session=True,
    is_exported=True,
)
FORGOTTEN = Reserved(
    "_forgotten",
    "what blocks are not to learn again",
    goes_with_session=True,
    goes_with_user=True,
    is_exported=True,
)
AUTHORS = Reserved(
    "_authors",
    "where in a shared session an agent began to write",
    goes_with_session=True,
    goes_with_user=True,
)
GRANTS = Reserved(
    "_grants", "which agent may do what in which shared namespace", goes_with_user=True
)
REGISTRY = Reserved("_registry", "which blocks and indexes keep something in this store")
DELETED = Reserved(
    "_deleted", "that a session or a user was deleted, and when: its id as a hash, and no text"
)
VALUES = Reserved(
    "_values",
    "values by namespace and key, and what sessions are called",
    goes_with_session=True,
    goes_with_user=True,
    is_exported=True,
)
KEYS = Reserved(
    "_keys",
    "keys of the service: hashes, and for whom they are; those of one user alone go with the user",
    goes_with_user=True,
)
SYSTEM = Reserved(
    "_system",
    "system messages, where they have a store of their own",
    goes_with_session=True,
    is_exported=True,
    is_facts=False,
)
INDEXES = Reserved(
    "_index_", "the vectors of an index, one collection each", goes_with_user=True, is_facts=False
)

SPENDING = Reserved(
    "_spending", "what model calls took today, in all and by user: users as hashes, and no text"
)
FIGURES = Reserved(
    "_figures", "what processes of the service counted: model calls, tokens, recalls, and no text"
)
SENT = Reserved(
    "_sent", "what contexts that were sent to a model consisted of", goes_with_session=True
)
SENT_TEXTS = Reserved(
    "_sent_texts",
    "texts of such contexts: each goes with the session that it comes from",
    goes_with_session=True,
)
WORDS = Reserved(
    "_words",
    "which of a session's messages have which words: what hooks of coding agents look up",
    goes_with_session=True,
)

RESERVED = (
    *(NOTES, FAILED, FORGOTTEN, AUTHORS, GRANTS, REGISTRY, DELETED),
    *(VALUES, KEYS, SYSTEM, INDEXES, SPENDING, FIGURES, SENT, SENT_TEXTS, WORDS),
)
"""All of them: deletion, export and migration handle these, and no others."""


def reserved(name: str) -> Reserved | None:
    """The reserved collection of this name; None where it is a block's, or nobody's."""
    for one in RESERVED:
        if name == one.name or (one is INDEXES and name.startswith(one.name)):
            return one
    return None
