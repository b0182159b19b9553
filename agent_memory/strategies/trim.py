"""`Trim`: entries leave the window without a summary."""

from __future__ import annotations

from typing import Literal

from agent_memory.strategies.bounded import Bounded


class Trim(Bounded):
    """Keep the newest whole turns, or the most important ones. The log keeps the rest."""

    kind: Literal["trim"] = "trim"
