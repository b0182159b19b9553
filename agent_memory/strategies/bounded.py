"""`Bounded`: strategies whose settings say when a window is cut, and what of it stays."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from agent_memory.core.importance import most_important
from agent_memory.core.window import Cut, apply, choose_cut, role_of
from agent_memory.errors import InvalidShares
from agent_memory.strategies.base import Limits, Strategy, Window


class Bounded(Strategy):
    """A window is cut once it passes any of its limits, to what keeps all that is set here.

    What leaves are whole turns; of one that is too long alone its oldest steps.

    Attributes:
        max_stm_ratio: Share of `max_tokens` that short-term memory may fill, above 0 and at most 1:
            0.8 cuts the window before it is full.
        max_stm_tokens: Tokens that the window's turns may take at most.
        max_messages: Messages that it may show at most.
        max_turns: Turns that it may show at most.
        keep_tokens: Tokens to cut down to; default 70 % of the window's limit.
        keep_messages: Messages to cut down to, at most.
        keep_turns: Turns to cut down to, at most.
        take_messages: So many of the oldest messages leave at a time, to the end of their turn, in
            place of 30 %; more only where the limits ask for it.
        by: "age" keeps the newest turns. "importance" gives the newest half of the room, and fills
            the other half with the turns that say most (names, numbers, identifiers, questions by
            the user), wherever they stand.
    """

    max_stm_ratio: float = 1.0
    max_stm_tokens: int | None = Field(default=None, gt=0)
    max_messages: int | None = Field(default=None, ge=2)
    max_turns: int | None = Field(default=None, gt=0)
    keep_tokens: int | None = Field(default=None, gt=0)
    keep_messages: int | None = Field(default=None, gt=0)
    keep_turns: int | None = Field(default=None, gt=0)
    take_messages: int | None = Field(default=None, gt=0)
    by: Literal["age", "importance"] = "age"

    @field_validator("max_stm_ratio")
    @classmethod
    def _share(cls, value: float) -> float:
        if not 0 < value <= 1:
            raise InvalidShares(
                f"max_stm_ratio is {value:g}; it is a share of max_tokens, above 0 and at most 1."
            )
        return value

    @model_validator(mode="after")
    def _room(self) -> Self:
        for most, keep in (("max_stm_tokens", "keep_tokens"), ("max_messages", "keep_messages")):
            limit, kept = getattr(self, most), getattr(self, keep)
            if limit is not None and kept is not None and kept > limit:
                raise InvalidShares(f"{keep} is {kept}, and {most} {limit}. Keep less than fits.")
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
        kept = apply(window.entries, newest)
        if kept and role_of(kept[0].message) != "user":  # half the room is too little for its turn
            return choose_cut(window.entries, keep, messages)
        pins = most_important(
            [entry for entry in window.entries if entry not in kept],
            keep - sum(entry.tokens for entry in kept),
            messages and messages - len(kept),
        )
        return Cut(newest.start, tuple(sorted({*newest.pinned, *pins})))
