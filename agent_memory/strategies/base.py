"""What a strategy is: it says what leaves an overflowing window and what stands in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from agent_memory.core.kinds import ByKind
from agent_memory.core.records import Entry, Summary
from agent_memory.core.window import Cut, choose_cut
from agent_memory.core.window import turns as turns_of
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
        max_turns: Turns it may show at most; None for any number.
        keep: Share of the limit to cut it down to.
    """

    entries: tuple[Entry, ...]
    limit: int
    max_messages: int | None = None
    max_turns: int | None = None
    keep: float = LOW_WATER

    @property
    def low_water(self) -> int:
        """Tokens to cut it down to."""
        return int(self.limit * self.keep)

    def keep_messages(
        self, wanted: int | None = None, turns: int | None = None, take: int | None = None
    ) -> int | None:
        """Messages to cut it down to; None for any number.

        Args:
            wanted: What the strategy's own settings say. The low water stands for None, and for
                what would leave no room.
            turns: The same in turns.
            take: How many of the oldest are to leave, and no more than the limits ask for.
        """
        low = LOW_WATER if take is None else 1.0
        kept = _room(turns, self.max_turns, low)
        if take is None and kept is None:  # as a rule: no turn need be told
            return _room(wanted, self.max_messages, low)
        shown = [len(turn) for turn in turns_of(self.entries)]
        if take is not None:
            left = max(1, sum(shown) - take)
            wanted = left if wanted is None else min(left, wanted)
        messages = _room(wanted, self.max_messages, low)
        if kept is None:
            return messages
        of_turns = sum(shown[-kept:])
        return of_turns if messages is None else min(of_turns, messages)


def _room(wanted: int | None, most: int | None, low: float) -> int | None:
    """What to keep of something of which there may be so much."""
    if most is None or (wanted is not None and wanted < most):
        return wanted
    return max(1, int(most * low))


class Limits(NamedTuple):
    """What a window may hold before it is cut, beside its share of the budget; None for any number.

    Attributes:
        tokens: Tokens of its turns.
        messages: Messages that it shows.
        turns: Turns that it shows.
    """

    tokens: int | None = None
    messages: int | None = None
    turns: int | None = None

    def least(self, *others: Limits) -> Limits:
        """The smallest of each."""
        each = zip(self, *others, strict=True)
        return Limits(*(min((n for n in one if n is not None), default=None) for one in each))


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
    def limits(self) -> Limits:
        """What a window may hold beside that before it is cut."""
        return Limits()

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
