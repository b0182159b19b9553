"""What `stats` and `replay` report."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent_memory.core.usage import Purpose, Usage
from agent_memory.engine.spending import Today


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
class PromptStats:
    """How much of the contexts of this process was the same as in their session's context before.

    Attributes:
        contexts: Contexts that had one before them.
        tokens: Their tokens.
        kept_tokens: How many of these were the same; see `MemoryContext.kept_tokens`.
    """

    contexts: int = 0
    tokens: int = 0
    kept_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RecallStats:
    """How often something was looked for: for contexts and by searches, thanks and greetings left
    out.

    Attributes:
        asked: So often.
        empty: So often of these nothing was found, but for what is shown whatever is asked.
    """

    asked: int = 0
    empty: int = 0


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted.

    Attributes:
        usage: Model calls, by what models were asked for.
        prompts: Contexts, and how much of them prompt caches can take.
        recalls: How often something was looked for.
    """

    usage: dict[Purpose, Usage]
    prompts: PromptStats
    recalls: RecallStats


@dataclass(frozen=True, slots=True)
class Stats:
    """How a memory stands.

    Attributes:
        sessions: Sessions in the namespace.
        entries: Messages in their logs.
        blocks: By name, the blocks that absorb.
        usage: Model calls of this process, their tokens and cost.
        prompts: Contexts of this process, and how much of them prompt caches can take.
        usage_by_purpose: The same, by what models were asked for.
        spending: What memory spent today in all processes, where a limit of that is set; else None.
        recalls: How often something was looked for in this process, and nothing found.
    """

    sessions: int
    entries: int
    blocks: dict[str, BlockStats]
    usage: Usage
    prompts: PromptStats
    usage_by_purpose: dict[Purpose, Usage] = field(default_factory=dict)
    spending: Today | None = None
    recalls: RecallStats = RecallStats()

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
