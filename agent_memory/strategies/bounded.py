"""`Trim` and `FlushToLTM` cut a window by its limits. `ClearTools` shortens tool results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, field_validator, model_validator

from agent_memory.core.limits import MOST
from agent_memory.core.settings_model import Positive, Range
from agent_memory.core.shapes import role_of
from agent_memory.core.window import Cut, apply, choose_cut
from agent_memory.errors import InvalidShares
from agent_memory.ltm_blocks.duck_typed import BlockField
from agent_memory.strategies.base import Absorb, Limits, Strategy, Window

if TYPE_CHECKING:
    from agent_memory.core.clearing import Clearing
    from agent_memory.ltm_blocks.base import Block


class Bounded(Strategy):
    """Cut the window when it exceeds a limit, so that it meets all settings below.

    Whole turns leave. If a single turn is too long, its oldest messages leave, except the question.
    The newest message always stays. A tool call and its results stay or leave together.

    Attributes:
        max_stm_ratio: Share of `max_tokens` that short-term memory may fill, above 0 and at most 1.
            With 0.8, the window is cut if it would fill more than 80 % of `max_tokens`.
        max_stm_tokens: Maximum tokens of the window's turns.
        max_messages: Maximum number of messages in the window.
        max_turns: Maximum number of turns in the window.
        keep_tokens: Maximum tokens after a cut. The default is 70 % of the window's limit. With
            `take_messages`, the default is the window's limit.
        keep_messages: Maximum number of messages after a cut.
        keep_turns: Maximum number of turns after a cut.
        take_messages: The number of oldest messages that a cut removes, rounded up to whole turns.
            A cut removes more if another setting requires it. By default, a cut lowers the window
            to 70 % of each limit.
        by: "age" keeps the newest turns. "importance" gives half of the room to the newest turns.
            The other half goes to the most important older turns: those with many names, numbers
            and identifiers, above all in the user's messages.
    """

    max_stm_ratio: float = 1.0
    max_stm_tokens: Positive | None = None
    max_messages: Annotated[int, Range(2, MOST)] | None = None
    max_turns: Positive | None = None
    keep_tokens: Positive | None = None
    keep_messages: Positive | None = None
    keep_turns: Positive | None = None
    take_messages: Positive | None = None
    by: Literal["age", "importance"] = "age"

    @field_validator("max_stm_ratio")
    @classmethod
    def _share(cls, value: float) -> float:
        if not 0 < value <= 1:
            raise InvalidShares(
                f"max_stm_ratio is {value:g}. Set it to a share above 0 and at most 1."
            )
        return value

    @model_validator(mode="after")
    def _room(self) -> Self:
        for what in ("stm_tokens", "messages", "turns"):
            most, keep = f"max_{what}", f"keep_{what.removeprefix('stm_')}"
            limit, target = getattr(self, most), getattr(self, keep)
            if limit is not None and target is not None and target > limit:
                raise InvalidShares(f"{keep} is {target}, but {most} is {limit}. Lower {keep}.")
        return self

    @property
    def share(self) -> float:
        return self.max_stm_ratio

    @property
    def limits(self) -> Limits:
        return Limits(self.max_stm_tokens, self.max_messages, self.max_turns)

    def cut(self, window: Window) -> Cut | None:
        room = window.low_water if self.take_messages is None else window.limit
        keep = min(self.keep_tokens or room, window.limit)
        messages = window.keep_messages(self.keep_messages, self.keep_turns, self.take_messages)
        if self.by == "age":
            return choose_cut(window.entries, keep, messages)
        half = messages and max(1, messages // 2)
        newest = choose_cut(window.entries, keep // 2, half)
        if newest is None:
            return None
        from agent_memory.core.summaries import most_important

        newest_entries = apply(window.entries, newest)
        # if the newest half begins within a turn, older turns are left out, and the newest turns
        # get the whole room
        if newest_entries and role_of(newest_entries[0].message) != "user":
            return choose_cut(window.entries, keep, messages)
        pins = most_important(
            [entry for entry in window.entries if entry not in newest_entries],
            keep - sum(entry.tokens for entry in newest_entries),
            messages and messages - len(newest_entries),
        )
        return Cut(newest.start, tuple(sorted({*newest.pinned, *pins})))


class Trim(Bounded):
    """Keep the newest whole turns, or the most important turns. The log keeps every message."""

    kind: Literal["trim"] = "trim"


class FlushToLTM(Bounded):
    """Keep the newest turns within a share of the budget. Blocks absorb the entries that leave.

    Attributes:
        blocks: The long-term blocks.
        max_stm_ratio: See `Bounded.max_stm_ratio`. The rest of the budget is for recalls.
        absorb: When blocks absorb entries. "overflow": when the entries leave the window.
            "every_update": at each update. A number: whenever that many tokens are pending.
    """

    kind: Literal["flush_to_ltm"] = "flush_to_ltm"
    blocks: Annotated[Sequence[BlockField], AfterValidator(tuple)] = ()
    max_stm_ratio: float = 0.5
    absorb: Literal["overflow", "every_update"] | Positive = "overflow"

    @property
    def ltm_blocks(self) -> tuple[Block, ...]:
        return tuple(self.blocks)

    @property
    def absorbs(self) -> Absorb:
        return self.absorb


class ClearTools(Strategy):
    """Show stubs in place of old tool results when the window exceeds its limit.

    Questions, answers, and tool calls with their arguments stay. A stub has the tool's name and
    arguments, and the size, the first line and the `seq` of the result. With the `seq`, the tool
    `memory_read_message` returns the whole result. The newest result and pinned results stay whole.
    Results that begin like an error, or that the model has not read yet, also stay whole. The log
    keeps every result.

    If stubs free too few tokens, one call replaces all old calls. The result of this one call lists
    the `seq` of each old result, by tool. Questions, answers and the texts of messages with calls
    stay.

    In a `Chain`, clearing precedes the cuts and summaries of the other members. Old results are
    cleared in batches. Between two batches, all contexts begin alike.

    Attributes:
        keep_tokens: Tokens of the newest results and calls that stay whole; by default a fifth of
            the window's limit.
        at_least: Minimum number of tokens that a clearing must free; otherwise results stay whole.
            By default a tenth of the window's limit.
    """

    kind: Literal["clear_tools"] = "clear_tools"
    keep_tokens: Annotated[int, Range(0, MOST)] | None = None
    at_least: Positive | None = None

    @property
    def clearing(self) -> Clearing:
        from agent_memory.core.clearing import Clearing

        return Clearing(self.keep_tokens, self.at_least)

    def cut(self, window: Window) -> Cut | None:
        """Return the default cut, to `Window.low_water`, if the window exceeds its token limit."""
        over = sum(entry.counted for entry in window.entries) > window.limit
        return super().cut(window) if over else None
