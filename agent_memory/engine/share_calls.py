"""The call of `AgentMemory` that opens a shared namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from weakref import WeakValueDictionary

from agent_memory.core.ids import check_share
from agent_memory.core.processes import fork_safe_lock
from agent_memory.engine.calls import Calls
from agent_memory.engine.sharing.shares import Share

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Parts
    from agent_memory.engine.memory import AgentMemory


class ShareCalls(Calls):
    """Namespaces that several agents read and write."""

    _parts: Parts

    def __init__(self) -> None:
        self._shares: WeakValueDictionary[str, Share] = WeakValueDictionary()
        self._shares_lock = fork_safe_lock()

    def shares(self) -> list[str]:
        """The names of all shared namespaces in which anything is granted, or was."""
        self._check(None, None)
        return self._parts.grants.shares()

    def share(self, name: str) -> Share:
        """A namespace that several agents read and write, each as far as it was granted.

        There is one of a name in a store, for all processes, and in this memory one object. Nothing
        is written until something is granted.

        Args:
            name: Its name: 1 to 64 characters.

        Raises:
            InvalidId: The name is not usable.
        """
        self._check(None, None)
        check_share(name)
        with self._shares_lock:
            share = self._shares.get(name)
            if share is None:
                share = self._shares[name] = Share(cast("AgentMemory", self), name)
            return share
