"""`Trim`: what leaves the window leaves without a trace in it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agent_memory.core.importance import most_important
from agent_memory.core.window import Cut, apply, choose_cut, role_of
from agent_memory.strategies.base import Strategy, Window


class Trim(Strategy):
    """Keep the newest whole turns; the log keeps the rest.

    Attributes:
        keep_tokens: Tokens to cut down to; default 70 % of the window's limit.
        keep_messages: Messages to cut down to, at most.
        by: "age" keeps the newest turns. "importance" gives the newest half of the room, and fills
            the other half with the turns that say most (names, numbers, identifiers, questions by
            the user), wherever they stand.
    """

    kind: Literal["trim"] = "trim"
    keep_tokens: int | None = Field(default=None, gt=0)
    keep_messages: int | None = Field(default=None, gt=0)
    by: Literal["age", "importance"] = "age"

    def cut(self, window: Window) -> Cut | None:
        keep = min(self.keep_tokens or window.low_water, window.limit)
        messages = window.keep_messages(self.keep_messages)
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
