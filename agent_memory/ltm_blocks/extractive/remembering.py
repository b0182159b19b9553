"""The owners' facts that were asked for last, kept for a while."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from agent_memory.core.processes import fork_safe_lock

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.extractive.recalling import Remembered

_MOST_FACTS = 20_000


class Remembering:
    """Facts by their owners, as long as these have the same version. Safe to share."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._kept: OrderedDict[str, tuple[str, Remembered]] = OrderedDict()

    def get(self, owner: str, version: str | None) -> Remembered | None:
        """An owner's facts, if they are of this version still."""
        with self._lock:
            kept = self._kept.get(owner)
            if kept is None or kept[0] != version:
                return None
            self._kept.move_to_end(owner)
            return kept[1]

    def keep(self, owner: str, version: str | None, facts: Remembered) -> None:
        """Keep an owner's facts, in place of others that were not asked for lately."""
        with self._lock:
            self._kept.pop(owner, None)
            if version is not None:
                self._kept[owner] = (version, facts)
            while sum(len(one.facts) for _, one in self._kept.values()) > _MOST_FACTS:
                self._kept.popitem(last=False)
