"""`ClearTools`: old tool results become stubs before any entry leaves the window."""

from __future__ import annotations

from typing import Annotated, Literal

from agent_memory.core.clearing import Clearing
from agent_memory.core.limits import MOST
from agent_memory.core.settings_model import Positive, Range
from agent_memory.core.window import Cut
from agent_memory.strategies.base import Strategy, Window


class ClearTools(Strategy):
    """Show stubs in place of old tool results, once the window exceeds its limit.

    The questions, the calls with their arguments and the answers stay. A stub has the tool, its
    arguments, the size, the first line and the `seq` of the result. With the `seq`, the tool
    `memory_read_message` returns the result in full. Results that are pinned, that begin like an
    error, or that the model has not read yet stay whole. The log keeps every result.

    If stubs free too little, all old calls are merged into one, whose result lists the `seq` of
    each result by tool. Questions, answers and text beside a call stay.

    In a `Chain` this comes before the cuts and summaries of the other members. Old results are
    cleared in batches, so that contexts share their prefix between two of them.

    Attributes:
        keep_tokens: Tokens of the newest results and their calls that stay whole; default a fifth
            of the window's limit.
        at_least: Tokens below which nothing is cleared; default a tenth of the window's limit.
    """

    kind: Literal["clear_tools"] = "clear_tools"
    keep_tokens: Annotated[int, Range(0, MOST)] | None = None
    at_least: Positive | None = None

    @property
    def clearing(self) -> Clearing:
        return Clearing(self.keep_tokens, self.at_least)

    def cut(self, window: Window) -> Cut | None:
        """Return the cut at the window's limit, for a memory with no other strategy."""
        over = sum(entry.counted for entry in window.entries) > window.limit
        return super().cut(window) if over else None
