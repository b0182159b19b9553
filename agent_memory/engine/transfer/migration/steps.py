"""What a migration reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Migrated:
    """What both stores hold, once it is verified.

    Attributes:
        sessions: Sessions.
        messages: Messages in their logs.
        facts: What blocks keep as text: facts, notes, files, and their bookkeeping.
        vectors: Records with vectors.
    """

    sessions: int
    messages: int
    facts: int
    vectors: int


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """One step of a migration.

    Attributes:
        what: What is moved, or compared.
        done: How many of them are done.
        total: How many there are, as known so far; None where that is not known.
        verified: What was moved; only in the last step, after all was compared.
    """

    what: Literal["facts", "vectors", "sessions", "verifying"]
    done: int
    total: int | None
    verified: Migrated | None = None
