"""`Share`: a namespace that several agents read and write, in the hands of the application."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args
from weakref import WeakValueDictionary

from agent_memory.core.ids import (
    Access,
    check_id,
    check_share,
    marker,
    shared_session,
    shared_user,
)
from agent_memory.core.limits import quoted
from agent_memory.core.processes import fork_safe_lock
from agent_memory.engine.paging import page_of
from agent_memory.engine.sharing.shared import SharedMemory
from agent_memory.engine.sharing.visible import visible_head
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from agent_memory.core.records import Head
    from agent_memory.engine.memory import AgentMemory


class Share:
    """A shared namespace; `AgentMemory.share` gives it. Who holds it decides who has access.

    Args:
        memory: The memory.
        name: The namespace's name, checked.
    """

    def __init__(self, memory: AgentMemory, name: str) -> None:
        self._memory = memory
        self._components = memory.components
        self._grants = memory.components.grants
        self.name = name

    def __repr__(self) -> str:
        return f"Share({self.name!r})"

    def grant(self, agent_id: str, access: Access = "read") -> None:
        """Let an agent in, from its next call on, in every process. Durable on return.

        Args:
            agent_id: The agent. `delete_user` of the same id takes it out again, with its words.
            access: "read", or "write", which takes in reading. What the agent had before is over.

        Raises:
            InvalidId: The agent's id is not usable.
            InvalidInput: There is no such access.
            StoreError: The store failed.
        """
        self._check(agent_id, access)
        for user_id in (agent_id, shared_user(self.name)):  # or it would take the new grant along
            self._components.deletion.settle(user_id)
        self._grants.put(self.name, agent_id, access)

    def revoke(self, agent_id: str) -> None:
        """Shut an agent out: no call of it that begins after this returned succeeds anywhere.

        What it wrote stays. A configuration's first grants do not bring it back. Idempotent.
        """
        self._check(agent_id)
        self._grants.put(self.name, agent_id, None)

    def has_access(self, agent_id: str, access: Access = "read") -> bool:
        """Whether an agent may read, or write, now.

        Raises:
            InvalidInput: There is no such access.
        """
        self._check(agent_id, access)
        return self._grants.allows(self.name, agent_id, access)

    def agents(self) -> dict[str, Access]:
        """The agents that have access, in order of their ids, each with what it may do."""
        self._components.guard.check(None, None)
        return self._grants.agents(self.name)

    def agent(self, agent_id: str) -> SharedMemory:
        """What to hand to an agent: calls that are checked, each time, for it alone.

        It may have no access yet, or lose it.

        Raises:
            InvalidId: Its id is not usable.
        """
        self._check(agent_id)
        return SharedMemory(self._memory, self.name, agent_id)

    def sessions(self, *, limit: int = 100, after: str | None = None) -> list[Head]:
        """A page of the namespace's sessions in order of their ids: those after `after`."""
        self._components.guard.check(None, None)
        store, user = self._components.store, shared_user(self.name)
        first = marker(after)
        since = None if first is None else shared_session(self.name, first)
        page = page_of(store, user, limit=limit, after=since, shared=True)
        return [visible_head(head) for head in page]

    def delete(self) -> None:
        """Erase the namespace: its grants first, then its sessions and all that derives from them.

        Idempotent; what was interrupted is finished by a worker, `flush`, or the next call. What
        the configuration grants is granted again when a memory opens.
        """
        self._components.guard.check(None, None)
        self._components.deletion.user(shared_user(self.name))

    def _check(self, agent_id: str, access: str = "read") -> None:
        self._components.guard.check(None, None)
        check_id("agent_id", agent_id)
        if access not in get_args(Access):
            raise InvalidInput(f'access is {quoted(access)}. Give "read" or "write".')


class Shares:
    """The open shared namespaces of a memory: one object a name, as long as anybody has it."""

    def __init__(self) -> None:
        self._shares: WeakValueDictionary[str, Share] = WeakValueDictionary()
        self._lock = fork_safe_lock()

    def of(self, memory: AgentMemory, name: str) -> Share:
        """A memory's namespace of a name.

        Raises:
            InvalidId: The name is not usable.
        """
        check_share(name)
        with self._lock:
            share = self._shares.get(name)
            if share is None:
                share = self._shares[name] = Share(memory, name)
            return share
