"""What a strategy is: it says what leaves an overflowing window and what stands in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict

from agent_memory.core.kinds import ByKind
from agent_memory.core.records import Entry, Summary
from agent_memory.core.window import Cut, choose_cut
from agent_memory.ltm_blocks.base import Block, Resources

Absorb = Literal["overflow", "every_update"] | int

LOW_WATER = 0.7
"""An overflowing window is cut to this share of its limit, so that the next message has room and
successive contexts share their prefix."""


@dataclass(frozen=True, slots=True)
class Window:
    """An overflowing window.

    Attributes:
        entries: What it holds, pinned entries first, then the newest of the log. The `tokens` of a
            long one are what of it is shown in a window that is cut: at most half of the limit.
        limit: Tokens its turns may take at most.
        max_messages: Messages it may show at most; None for any number.
    """

    entries: tuple[Entry, ...]
    limit: int
    max_messages: int | None = None

    @property
    def low_water(self) -> int:
        """Tokens to cut it down to."""
        return int(self.limit * LOW_WATER)

    def keep_messages(self, wanted: int | None = None) -> int | None:
        """Messages to cut it down to; None for any number.

        Args:
            wanted: What the strategy's own settings say. The low water stands for None, and for
                what would leave no room.
        """
        if self.max_messages is None or (wanted is not None and wanted < self.max_messages):
            return wanted
        return int(self.max_messages * LOW_WATER)


@dataclass(frozen=True, slots=True)
class Departure:
    """What leaves a window.

    Attributes:
        entries: The entries that leave now, in order.
        upto: The seq up to which all has left after this.
        previous: The summary of what left before.
        history: Reads the log: `history(after, upto)`.
        max_tokens: What a summary may take at most here.
    """

    entries: Sequence[Entry]
    upto: int
    previous: Summary | None
    history: Callable[[int, int], list[Entry]]
    max_tokens: int


class Strategy(BaseModel):
    """Base of overflow strategies: a frozen value with a `kind`.

    A strategy of your own subclasses this, sets a `kind` and overrides `cut`, `summarize` or both.
    Whatever it answers, the engine keeps tool groups whole, the newest step with the question it
    serves, and contexts within the budget. A summary that is too long is cut.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True
    )

    kind: Any  # a string; typed so that a subclass may narrow it to its literal

    @property
    def share(self) -> float:
        """Share of `max_tokens` that short-term memory may fill."""
        return 1.0

    @property
    def summary_tokens(self) -> int:
        """Tokens to set aside for a summary."""
        return 0

    @property
    def ltm_blocks(self) -> tuple[Block, ...]:
        """Long-term blocks that absorb the log."""
        return ()

    @property
    def language_models(self) -> tuple[str | None, ...]:
        """The language models that it asks, its blocks' apart; as `Block.language_models`."""
        return ()

    @property
    def absorbs(self) -> Absorb:
        """When blocks absorb: on overflow, at every update, or once so many tokens are waiting."""
        return "overflow"

    def cut(self, window: Window) -> Cut | None:
        """Where the window is to begin; None leaves it as it is. Pure: no I/O."""
        return choose_cut(window.entries, window.low_water, window.keep_messages())

    def summarize(self, departure: Departure, resources: Resources) -> Summary | None:
        """What stands for everything that left. By default, what stood there before."""
        return departure.previous


StrategyField = Annotated[Strategy, ByKind("agent_memory.strategies")]
"""A strategy, or in configuration files a mapping with its `kind`."""
