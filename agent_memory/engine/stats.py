"""What `stats` and `replay` report."""

from __future__ import annotations

from dataclasses import dataclass

from agent_memory.models.usage import Usage


@dataclass(frozen=True, slots=True)
class BlockStats:
    """How a long-term block stands.

    Attributes:
        lag: Messages in all logs that it has not absorbed yet.
        error: Why it could not absorb, the last time it tried; None when it could.
        dead_letters: Batches that it gave up; see `operations.dead_letters`.
    """

    lag: int
    error: str | None
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """How a memory stands.

    Attributes:
        sessions: Sessions in the namespace.
        entries: Messages in their logs.
        blocks: By name, the blocks that absorb.
        usage: Model calls of this process, their tokens and cost.
    """

    sessions: int
    entries: int
    blocks: dict[str, BlockStats]
    usage: Usage

    @property
    def dead_letters(self) -> int:
        """Batches that blocks gave up, in all."""
        return sum(block.dead_letters for block in self.blocks.values())


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of a replay, or of a flush.

    Attributes:
        block: What is rebuilt; None where all blocks absorb.
        session_id: The session that was just done.
        done: Sessions done.
        total: Sessions in all, as known so far.
        error: Why this session could not be finished, or None.
    """

    block: str | None
    session_id: str
    done: int
    total: int
    error: str | None
