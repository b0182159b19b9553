"""`Chain`: several strategies combined, such as long-term records and a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from agent_memory.core.clearing import Clearing
from agent_memory.core.records import Summary
from agent_memory.core.settings_model import as_base_init
from agent_memory.core.window import Cut
from agent_memory.ltm_blocks.base import Block, Resources
from agent_memory.strategies.base import Absorb, Departure, Limits, Strategy, StrategyField, Window


class Chain(Strategy):
    """Combine strategies: all blocks absorb, and summaries are made in order.

    The window has the smallest of the members' shares and limits. The cut is that of the member
    that keeps the least.

    Attributes:
        members: The strategies; may be passed by position.
    """

    kind: Literal["chain"] = "chain"
    members: tuple[StrategyField, ...] = Field(min_length=1)

    def __init__(self, members: Sequence[Any] | None = None, /, **fields: Any) -> None:
        super().__init__(**fields if members is None else {"members": members, **fields})

    as_base_init(__init__)

    @property
    def share(self) -> float:
        return min(member.share for member in self.members)

    @property
    def limits(self) -> Limits:
        return Limits().least(*(member.limits for member in self.members))

    @property
    def summary_tokens(self) -> int:
        return max(member.summary_tokens for member in self.members)

    @property
    def ltm_blocks(self) -> tuple[Block, ...]:
        return tuple(block for member in self.members for block in member.ltm_blocks)

    @property
    def clearing(self) -> Clearing | None:
        settings = (member.clearing for member in self.members)
        return next((clearing for clearing in settings if clearing is not None), None)

    @property
    def parts(self) -> tuple[Strategy, ...]:
        return tuple(part for member in self.members for part in member.parts)

    @property
    def language_models(self) -> tuple[str | None, ...]:
        return tuple(name for member in self.members for name in member.language_models)

    @property
    def absorbs(self) -> Absorb:
        eager = [m.absorbs for m in self.members if m.ltm_blocks and m.absorbs != "overflow"]
        if "every_update" in eager:
            return "every_update"
        token_counts = [absorb for absorb in eager if isinstance(absorb, int)]
        return min(token_counts) if token_counts else "overflow"

    def cut(self, window: Window) -> Cut | None:
        cuts = [cut for member in self.members if (cut := member.cut(window)) is not None]
        return max(cuts, key=lambda cut: (cut.start, -len(cut.pinned)), default=None)

    def summarize(self, departure: Departure, resources: Resources) -> Summary | None:
        for member in self.members:
            if (summary := member.summarize(departure, resources)) is not departure.previous:
                return summary
        return departure.previous
