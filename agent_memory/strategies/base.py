"""The base class `Strategy`, and `Chain`.

A strategy cuts a window, and summarises the entries that leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field

from agent_memory.core.plugins import ByKind
from agent_memory.core.settings_model import SettingsModel, as_base_init
from agent_memory.core.window import Cut, choose_cut
from agent_memory.core.window import turns as turns_of

if TYPE_CHECKING:
    from agent_memory.core.clearing import Clearing
    from agent_memory.core.records import Entry, Summary
    from agent_memory.errors import ModelError
    from agent_memory.ltm_blocks.base import Block, Resources

Absorb = Literal["overflow", "every_update"] | int

LOW_WATER = 0.7
"""The share of the limit to which an overflowing window is cut.

The cut leaves room for new messages. Until the next cut, all contexts begin alike.
"""


@dataclass(frozen=True, slots=True)
class Window:
    """An overflowing window.

    Attributes:
        entries: The pinned entries, then the newest entries of the log. If a message is long, the
            entry's `tokens` counts its shortened form, which has at most half of `limit`.
        limit: Maximum tokens of the window's turns.
        max_messages: Maximum number of messages in the window; None for no maximum.
        max_turns: Maximum number of turns in the window; None for no maximum.
        keep: The share of `limit` to which the window is cut.
    """

    entries: tuple[Entry, ...]
    limit: int
    max_messages: int | None = None
    max_turns: int | None = None
    keep: float = LOW_WATER

    @property
    def low_water(self) -> int:
        """The number of tokens to which the window is cut."""
        return int(self.limit * self.keep)

    def keep_messages(
        self, wanted: int | None = None, turns: int | None = None, take: int | None = None
    ) -> int | None:
        """Return the number of messages to which the window is cut; None for no maximum.

        Args:
            wanted: The strategy's own maximum of messages after a cut. None, or a number not below
                `max_messages`, becomes 70 % of `max_messages` or, with `take`, `max_messages`.
            turns: The strategy's own maximum of turns after a cut, limited by `max_turns` in the
                same way.
            take: The number of oldest messages that leave. More messages leave if another maximum
                requires it.
        """
        low = LOW_WATER if take is None else 1.0
        sizes = [len(turn) for turn in turns_of(self.entries)]
        turns_left = _room(turns, self.max_turns, low)
        limits = (
            _room(wanted, self.max_messages, low),
            None if turns_left is None else sum(sizes[-turns_left:]),
            None if take is None else max(1, sum(sizes) - take),
        )
        return min((limit for limit in limits if limit is not None), default=None)


def _room(wanted: int | None, most: int | None, low: float) -> int | None:
    """Return `wanted` if it is below the limit `most`, otherwise the share `low` of the limit."""
    if most is None or (wanted is not None and wanted < most):
        return wanted
    return max(1, int(most * low))


class Limits(NamedTuple):
    """Maximum numbers of tokens, messages and turns in a window. None means no maximum.

    These limits apply in addition to the window's share of the budget.
    """

    tokens: int | None = None
    messages: int | None = None
    turns: int | None = None

    def least(self, *others: Limits) -> Limits:
        """Return the smallest limit of each kind."""
        each = zip(self, *others, strict=True)
        return Limits(*(min((n for n in values if n is not None), default=None) for values in each))


@dataclass(frozen=True, slots=True)
class Departure:
    """The entries that leave a window.

    Attributes:
        entries: The entries that leave now, in order.
        upto: The seq of the last entry that leaves.
        previous: The summary of the entries that left before.
        history: `history(after, upto)` reads entries of the log.
        max_tokens: Maximum tokens of a summary.
        failed: A function that reports an error. Call it with the error if a model returned no
            summary. Contexts then have a warning about the error, and a later call retries.
    """

    entries: Sequence[Entry]
    upto: int
    previous: Summary | None
    history: Callable[[int, int], list[Entry]]
    max_tokens: int
    failed: Callable[[ModelError], None] = lambda error: None


class Strategy(SettingsModel):
    """Base of overflow strategies: an immutable value with a `kind`.

    A custom strategy subclasses this, sets a `kind` and overrides `cut`, `summarize` or both. The
    engine adjusts every result: tool calls stay with their results, contexts stay within the
    budget, and the newest message stays, with the user's message of its turn. A summary that is too
    long is cut.
    """

    kind: Any  # a string; `Any` lets a subclass narrow it to a literal

    @property
    def share(self) -> float:
        """The share of `max_tokens` that short-term memory may fill."""
        return 1.0

    @property
    def limits(self) -> Limits:
        """The limits of a window. A window that exceeds a limit is cut."""
        return Limits()

    @property
    def summary_tokens(self) -> int:
        """The number of tokens to reserve for a summary."""
        return 0

    @property
    def ltm_blocks(self) -> tuple[Block, ...]:
        """The long-term blocks of the strategy, in addition to the configured `blocks`."""
        return ()

    @property
    def clearing(self) -> Clearing | None:
        """The settings by which stubs replace old tool results; None keeps all results whole."""
        return None

    @property
    def parts(self) -> tuple[Strategy, ...]:
        """The strategies that a combination consists of. A single strategy consists of itself."""
        return (self,)

    @property
    def language_models(self) -> tuple[str | None, ...]:
        """The language models that the strategy itself calls; see `Block.language_models`."""
        return ()

    @property
    def absorbs(self) -> Absorb:
        """When blocks absorb: on overflow, at each update, or at a number of pending tokens."""
        return "overflow"

    def cut(self, window: Window) -> Cut | None:
        """Return the cut of the window; None leaves the window unchanged. Pure: no I/O."""
        return choose_cut(window.entries, window.low_water, window.keep_messages())

    def summarize(self, departure: Departure, resources: Resources) -> Summary | None:
        """Return the summary of all entries that left; by default the previous summary."""
        return departure.previous


StrategyField = Annotated[Strategy, ByKind("agent_memory.strategies")]
"""A strategy, or (in configuration files) a mapping with a strategy's `kind`."""


class Chain(Strategy):
    """A combination of strategies.

    The blocks of all members absorb the log. Of the members' shares and limits, the smallest apply.
    The member that keeps the fewest entries determines the cut. The summary is the first new
    summary that a member returns.

    Attributes:
        members: The strategies. They may be passed by position.
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
        counts = [absorb for absorb in eager if isinstance(absorb, int)]
        return min(counts) if counts else "overflow"

    def cut(self, window: Window) -> Cut | None:
        cuts = [cut for member in self.members if (cut := member.cut(window)) is not None]
        return max(cuts, key=lambda cut: (cut.start, -len(cut.pinned)), default=None)

    def summarize(self, departure: Departure, resources: Resources) -> Summary | None:
        for member in self.members:
            if (summary := member.summarize(departure, resources)) is not departure.previous:
                return summary
        return departure.previous
