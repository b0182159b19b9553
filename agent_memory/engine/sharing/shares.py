"""`Share`: a namespace for several agents, and the grants of read and write access."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, get_args
from weakref import WeakValueDictionary

from agent_memory.core.ids import (
    Access,
    check_id,
    check_share,
    marker,
    share_of,
    shared_session,
    shared_user,
)
from agent_memory.core.limits import quoted
from agent_memory.core.messages import Message
from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Head, Record
from agent_memory.core.system_collections import GRANTS
from agent_memory.engine.edit.edit import Editor
from agent_memory.engine.edit.plans import Log, LogEdit, redacted
from agent_memory.engine.paging import all_heads, head_now, page_of
from agent_memory.engine.sharing.authorship import Authors, is_by
from agent_memory.engine.sharing.shared import SharedMemory, visible_head
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import RecordStore, SessionStore

if TYPE_CHECKING:
    from agent_memory.core.records import Head
    from agent_memory.engine.memory import AgentMemory

_PLACE, _SHARES = GRANTS.name, "shares"
_NONE = "none"
_ACCESS: dict[str | None, Access] = {"read": "read", "write": "write"}


class Grants:
    """Grants of access, indexed by namespace and agent, by agent, and by namespace.

    A grant or a revocation by a call has priority over the configuration, regardless of their
    order. They are separate records, so that neither overwrites the other.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def begin(self, shares: Mapping[str, Mapping[str, Access]]) -> None:
        """Write the grants of a configuration for pairs without any record."""
        new = []
        for share, access_of in shares.items():
            known = self._known(share)
            for agent, access in access_of.items():
                if agent not in known:
                    new += _records(share, agent, access, is_initial=True)
        if new:
            self._store.put_records(_PLACE, new)

    def overridden(self, shares: Mapping[str, Mapping[str, Access]]) -> list[str]:
        """Return a message for each grant of a configuration that is not in force."""
        return [
            f"{agent} has {current or 'no'} access to {share}, and not {access} as in the "
            "configuration: a later grant or revocation has priority. If that is not meant: "
            f"`agent-memory shares grant {share} {agent} {access}`."
            for share, access_of in shares.items()
            for known in [self._known(share)]
            for agent, access in access_of.items()
            if (current := known.get(agent, access)) != access
        ]

    def put(self, share: str, agent: str, access: Access | None) -> None:
        """Grant access, or revoke it with None. It is durable and in force everywhere on return."""
        self._store.put_records(_PLACE, _records(share, agent, access))

    def access(self, share: str, agent: str) -> Access | None:
        """Return an agent's access, by one small indexed read."""
        return _effective(self._store.records(_PLACE, _pair(share, agent)))

    def allows(self, share: str, agent: str, access: Access) -> bool:
        """Return whether an agent has this access."""
        return self.access(share, agent) in ("write", access)

    def agents(self, share: str) -> dict[str, Access]:
        """Return the agents with access to a namespace, by name."""
        return {agent: has for agent, has in self._known(share).items() if has is not None}

    def shares(self) -> list[str]:
        """Return the namespaces with past or current grants."""
        return sorted(record.text for record in self._store.records(_PLACE, _SHARES))

    def shares_of(self, agent: str) -> list[str]:
        """Return the namespaces with past or current grants for an agent."""
        found = self._store.records(_PLACE, _agent(agent))
        return sorted({record.metadata["share"] for record in found})

    def close(self, agent: str) -> None:
        """Revoke all grants of an agent. The names of its namespaces stay stored."""
        for share in self.shares_of(agent):
            self.put(share, agent, None)

    def drop_agent(self, agent: str) -> None:
        """Delete an agent's grants, except those granted after `close`."""
        for share in self.shares_of(agent):
            if self.access(share, agent) is None:
                self._drop(share, agent, found_by="agent")

    def drop_share(self, share: str) -> None:
        """Delete a namespace's grants."""
        for agent in self._known(share):
            self._drop(share, agent, found_by="share")
        self._store.delete_records(_PLACE, record_id=_id("name", share, ""))

    def _drop(self, share: str, agent: str, found_by: str) -> None:
        # the record that finds the others goes last, so that an interrupted run can resume
        for kind in sorted(("pair", "share", "agent"), key=lambda kind: kind == found_by):
            for initial in (True, False):
                self._store.delete_records(_PLACE, record_id=_id(kind, share, agent, initial))

    def _known(self, share: str) -> dict[str, Access | None]:
        """Return the access of all agents with past or current grants, by name."""
        by_agent: dict[str, list[Record]] = {}
        for record in self._store.records(_PLACE, _share(share)):
            by_agent.setdefault(record.metadata["agent"], []).append(record)
        return {agent: _effective(records) for agent, records in sorted(by_agent.items())}


def _records(
    share: str, agent: str, access: Access | None, *, is_initial: bool = False
) -> list[Record]:
    now, text = datetime.now(UTC), access or _NONE
    metadata = {"share": share, "agent": agent, "initial": is_initial}
    owners = {"pair": _pair(share, agent), "agent": _agent(agent), "share": _share(share)}
    records = [
        Record(_id(kind, share, agent, is_initial), owner, "", 0, 0, text, (), now, metadata)
        for kind, owner in owners.items()
    ]
    return [*records, Record(_id("name", share, ""), _SHARES, "", 0, 0, share, (), now)]


def _effective(records: Iterable[Record]) -> Access | None:
    """Return the access of a pair: that of a call, else that of the configuration."""
    by_source = {record.metadata["initial"]: record.text for record in records}
    return _ACCESS.get(by_source.get(False, by_source.get(True)))


def _id(kind: str, share: str, agent: str, initial: bool = False) -> str:
    return record_id(kind, len(share), share, agent, initial)


def _pair(share: str, agent: str) -> str:
    return _id("of", share, agent)


def _agent(agent: str) -> str:
    return f"agent:{agent}"


def _share(share: str) -> str:
    return f"share:{share}"


class Share:
    """A shared namespace. Made by `AgentMemory.share`. Its holder decides who has access.

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
        """Grant an agent access, from its next call on, in every process. Durable on return.

        Args:
            agent_id: The agent. `delete_user` with the same id removes it, with its messages.
            access: "read", or "write", which includes reading. It replaces the previous access.

        Raises:
            InvalidId: The agent's id is not valid.
            InvalidInput: The access is neither "read" nor "write".
            StoreError: The store failed.
        """
        self._check(agent_id, access)
        for user_id in (
            agent_id,
            shared_user(self.name),
        ):  # or its unfinished deletion drops the grant
            self._components.deletion.settle(user_id)
        self._grants.put(self.name, agent_id, access)

    def revoke(self, agent_id: str) -> None:
        """Revoke an agent's access. Each of its calls that begins after the return fails.

        Its messages stay. The grants of a configuration do not restore its access. Idempotent.
        """
        self._check(agent_id)
        self._grants.put(self.name, agent_id, None)

    def has_access(self, agent_id: str, access: Access = "read") -> bool:
        """Return whether an agent may read, or write, now.

        Raises:
            InvalidInput: The access is neither "read" nor "write".
        """
        self._check(agent_id, access)
        return self._grants.allows(self.name, agent_id, access)

    def agents(self) -> dict[str, Access]:
        """Return the agents with access, in order of their ids, each with its access."""
        self._components.guard.check(None, None)
        return self._grants.agents(self.name)

    def agent(self, agent_id: str) -> SharedMemory:
        """Return the calls of an agent, which check its access each time.

        The agent may have no access yet, or lose it.

        Raises:
            InvalidId: The agent's id is not valid.
        """
        self._check(agent_id)
        return SharedMemory(self._memory, self.name, agent_id)

    def sessions(self, *, limit: int = 100, after: str | None = None) -> list[Head]:
        """Return a page of the namespace's sessions after `after`, in order of their ids."""
        self._components.guard.check(None, None)
        store, user = self._components.store, shared_user(self.name)
        first = marker(after)
        since = None if first is None else shared_session(self.name, first)
        page = page_of(store, user, limit=limit, after=since, shared=True)
        return [visible_head(head) for head in page]

    def delete(self) -> None:
        """Delete the namespace: first its grants, then its sessions and all derived records.

        Idempotent. An interrupted deletion is finished by a worker, `flush`, or the next call. The
        grants of a configuration are written again when a memory opens.
        """
        self._components.guard.check(None, None)
        self._components.deletion.user(shared_user(self.name))

    def _check(self, agent_id: str, access: str = "read") -> None:
        self._components.guard.check(None, None)
        check_id("agent_id", agent_id)
        if access not in get_args(Access):
            raise InvalidInput(f'access is {quoted(access)}. Give "read" or "write".')


class Shares:
    """The open shared namespaces of a memory: one object per name, as long as it is in use."""

    def __init__(self) -> None:
        self._shares: WeakValueDictionary[str, Share] = WeakValueDictionary()
        self._lock = fork_safe_lock()

    def of(self, memory: AgentMemory, name: str) -> Share:
        """Return a memory's namespace of a name.

        Raises:
            InvalidId: The name is not valid.
        """
        check_share(name)
        with self._lock:
            share = self._shares.get(name)
            if share is None:
                share = self._shares[name] = Share(memory, name)
            return share


_BUSY = "The deletion is finished later; call delete_user again."


_PAGE = 500


class Redaction:
    """Removes a deleted user, or a deleted namespace, from shared namespaces."""

    def __init__(
        self, store: SessionStore, editor: Editor, grants: Grants, authors: Authors
    ) -> None:
        self._store = store
        self._editor = editor
        self._grants = grants
        self._authors = authors

    def takes_part(self, user_id: str) -> bool:
        """Return whether it is a namespace, or a user with past or current grants."""
        return share_of(user_id) is not None or bool(self._grants.shares_of(user_id))

    def close(self, user_id: str) -> None:
        """Revoke the access of a user, or of all agents of a namespace, before the deletion."""
        share = share_of(user_id)
        if share is None:
            self._grants.close(user_id)
        else:
            self._grants.drop_share(share)

    def erase(self, user_id: str) -> None:
        """Empty the messages that a user wrote as an agent, and delete its grants. Idempotent."""
        if share_of(user_id) is not None:
            return
        for share in self._grants.shares_of(user_id):
            for head in all_heads(self._store, shared_user(share)):
                self._redact(head, user_id)
        self._grants.drop_agent(user_id)

    def late(self, agent: str, session_id: str) -> None:
        """Empty the messages of an agent that was deleted while it wrote to a session."""
        head = self._store.head(session_id)
        if head is not None and share_of(session_id) not in self._grants.shares_of(agent):
            self._redact(head, agent)

    def _redact(self, head: Head, agent: str) -> None:
        if head.deleting or not self._took_part(head, agent):
            return
        self._editor.edit(head.session_id, partial(self._plan, agent), _BUSY)
        left = head_now(self._store, head)
        if left is not None and not left.deleting:
            self._authors.drop(agent, head.session_id)

    def _took_part(self, head: Head, agent: str) -> bool:
        noted = self._authors.first(agent, head.session_id) is not None
        if noted or is_by(head.system, agent):
            return True
        after = head.expired
        while page := self._store.read(head.session_id, after=after, limit=_PAGE):
            if any(is_by(entry.message, agent) for entry in page):
                return True
            after = page[-1].seq
        return False

    def _plan(self, agent: str, head: Head, log: Log) -> LogEdit | None:
        def theirs(message: Message | None) -> bool:
            return is_by(message, agent)

        return redacted(head, log, theirs, self._authors.first(agent, head.session_id))
