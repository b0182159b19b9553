"""`FlushToLTM`, which leaves room for recalls, and whose blocks absorb the entries that leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from agent_memory.ltm_blocks.duck_typed import BlockField
from agent_memory.strategies.base import Absorb
from agent_memory.strategies.bounded import Bounded

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.base import Block


class FlushToLTM(Bounded):
    """Keep the newest turns within a share of the budget. Blocks absorb the entries that leave.

    Attributes:
        blocks: The long-term blocks.
        max_stm_ratio: As `Bounded.max_stm_ratio`. The rest is for recalls.
        absorb: "overflow": blocks absorb entries that leave the window. "every_update": each
            message immediately. A number: whenever that many tokens are pending.
    """

    kind: Literal["flush_to_ltm"] = "flush_to_ltm"
    blocks: Annotated[Sequence[BlockField], AfterValidator(tuple)] = ()
    max_stm_ratio: float = 0.5
    absorb: Absorb = Field(default="overflow")

    @field_validator("absorb")
    @classmethod
    def _check_absorb(cls, value: Absorb) -> Absorb:
        if isinstance(value, int) and value <= 0:
            raise ValueError('give "overflow", "every_update" or a number of tokens above 0')
        return value

    @property
    def ltm_blocks(self) -> tuple[Block, ...]:
        return tuple(self.blocks)

    @property
    def absorbs(self) -> Absorb:
        return self.absorb
