"""`Trim`: what leaves the window leaves without a trace in it."""

from __future__ import annotations

from typing import Literal

from agent_memory.strategies.bounded import Bounded


class Trim(Bounded):
    """Keep the newest whole turns, or those that say most; the log keeps the rest."""

    kind: Literal["trim"] = "trim"
