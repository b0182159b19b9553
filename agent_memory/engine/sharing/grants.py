"""Access to shared namespaces, the authors in them, and the redaction of a deleted author."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from agent_memory.core.cache import Cache
from agent_memory.core.limits import Access, share_of, shared_user
from agent_memory.core.messages import Message
from agent_memory.core.records import Head, Record
from agent_memory.core.redaction import EMPTY_SYSTEM
from agent_memory.core.system_collections import AUTHORS, GRANTS
from agent_memory.engine.edit.plans import Log, LogEdit, redacted
from agent_memory.engine.paging import all_heads, entries_of, head_now
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import RecordStore

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components

_AUTHORS, _GRANTS, _SHARES = AUTHORS.name, GRANTS.name, "shares"
_NONE = "none"
_ACCESS: dict[str | None, Access] = {"read": "read", "write": "write"}
_MOST_CACHED = 10_000
_BUSY = (
    "Messages of the deleted agent remain in the session. If delete_user raised this error, a "
    "worker or `flush` removes them later; to remove them now, call delete_user again."
)


class Grants:
    """Stores the access of agents: one record for each namespace and agent.

    Further records list the namespaces, and the namespaces of each agent. A grant or revocation by
    a call overrides the configured access, even if the configuration is newer.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def begin(self, shares: Mapping[str, Mapping[str, Access]]) -> None:
        """Store the configured grants of agents that have no record in the namespace yet."""
        for share, access_of in shares.items():
            for agent in access_of.keys() - self._accesses(share).keys():
                self.note(share, agent)
                # a concurrent grant or revocation stays
                self._store.swap_record(_GRANTS, _grant(share, agent, access_of[agent]), None)

    def overridden(self, shares: Mapping[str, Mapping[str, Access]]) -> list[str]:
        """Return a message for each configured grant that a call has overridden."""
        return [
            f"{agent} has {current or 'no'} access to {share}, and not {access} as in the "
            "configuration, because a later grant or revocation has priority. To apply the "
            f"configuration: `agent-memory shares grant {share} {agent} {access}`."
            for share, access_of in shares.items()
            for stored in [self._accesses(share)]
            for agent, access in access_of.items()
            if (current := stored.get(agent, access)) != access
        ]

    def put(self, share: str, agent: str, access: Access | None) -> None:
        """Grant access, or revoke it with None. On return, the change is durable and in force."""
        records = [_grant(share, agent, access), *_listed(share, agent)]
        self._store.put_records(_GRANTS, records)

    def note(self, share: str, agent: str) -> None:
        """List a namespace, and list it among the namespaces of an agent. Grant nothing."""
        self._store.put_records(_GRANTS, _listed(share, agent))

    def access(self, share: str, agent: str) -> Access | None:
        """Return an agent's access, by one read of a record."""
        record = self._store.record(_GRANTS, _id("share", share, agent))
        return None if record is None else _ACCESS.get(record.text)

    def allows(self, share: str, agent: str, access: Access) -> bool:
        return self.access(share, agent) in ("write", access)

    def agents(self, share: str) -> dict[str, Access]:
        """Return the agents with access to a namespace, each with its access."""
        return {agent: has for agent, has in self._accesses(share).items() if has is not None}

    def shares(self) -> list[str]:
        """Return the namespaces with past or current grants."""
        return sorted(record.text for record in self._store.records(_GRANTS, _SHARES))

    def shares_of(self, agent: str) -> list[str]:
        """Return the namespaces with past or current grants for an agent."""
        return sorted(record.text for record in self._store.records(_GRANTS, f"agent:{agent}"))

    def close(self, agent: str) -> None:
        """Revoke all grants of an agent.

        The revoked grants stay stored, so that `shares_of` still finds the agent's namespaces.
        """
        for share in self.shares_of(agent):
            self.put(share, agent, None)

    def drop_agent(self, agent: str, shares: Iterable[str]) -> None:
        """Delete an agent's grants in namespaces, except those made after `close`."""
        for share in shares:
            if self.access(share, agent) is None:
                self._drop(_id("share", share, agent), _id("agent", share, agent))

    def drop_share(self, share: str) -> None:
        for agent in self._accesses(share):
            self._drop(_id("agent", share, agent), _id("share", share, agent))
        self._drop(_id("name", share, ""))

    def _drop(self, *ids: str) -> None:
        # the record by which the others are found comes last, so that a repeated call resumes
        for name in ids:
            self._store.delete_records(_GRANTS, record_id=name)

    def _accesses(self, share: str) -> dict[str, Access | None]:
        records = self._store.records(_GRANTS, f"share:{share}")
        ordered = sorted(records, key=lambda record: str(record.metadata["agent"]))
        return {record.metadata["agent"]: _ACCESS.get(record.text) for record in ordered}


def _grant(share: str, agent: str, access: Access | None) -> Record:
    return _record("share", f"share:{share}", share, agent, access or _NONE)


def _listed(share: str, agent: str) -> list[Record]:
    return [
        _record("agent", f"agent:{agent}", share, agent, share),
        _record("name", _SHARES, share, "", share),
    ]


def _record(kind: str, owner: str, share: str, agent: str, text: str) -> Record:
    return Record(_id(kind, share, agent), owner, text=text, metadata={"agent": agent})


def _id(kind: str, share: str, agent: str) -> str:
    return record_id(kind, len(share), share, agent)


def signed(message: Message, agent: str) -> Message:
    """Return a message with `agent` as the author in its metadata."""
    return message.model_copy(update={"metadata": {**message.metadata, "agent": agent}})


def is_by(message: Message | None, agent: str) -> bool:
    """Return whether an agent wrote a message of a shared namespace.

    An erased system message has lost its author, and therefore counts as every agent's.
    """
    if message is None:
        return False
    unsigned = message.is_system and message.to_dict() == EMPTY_SYSTEM.to_dict()
    return unsigned or message.metadata.get("agent") == agent


class Authors:
    """Stores a seq for each agent and session. The agent wrote nothing before this seq."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._cached: Cache[tuple[str, str], datetime] = Cache(_MOST_CACHED)

    def knows(self, agent: str, session_id: str) -> bool:
        """Return whether this process has already stored the seq of an agent in a session."""
        return (agent, session_id) in self._cached

    def wrote(self, agent: str, before: Head | None, after: Head) -> None:
        """After an agent's first write to a session, store a seq before which it wrote nothing."""
        key = (agent, after.session_id)
        if self._cached.get(key) == after.created_at:
            return
        same = before is not None and before.created_at == after.created_at
        first = before.end + 1 if before is not None and same else 1
        if self.first(agent, after.session_id) is None:
            owner = _author(agent, after.session_id)
            record = Record(owner, owner, after.session_id, first, first)
            self._store.put_records(_AUTHORS, [record])
        self._cached.put(key, after.created_at)

    def first(self, agent: str, session_id: str) -> int | None:
        """Return a seq before which the agent wrote nothing in the session. None if not stored."""
        records = self._store.records(_AUTHORS, _author(agent, session_id))
        return min((record.first for record in records), default=None)

    def drop(self, agent: str, session_id: str) -> None:
        """Delete the seq. Call this after the agent's messages in the session were emptied."""
        self._store.delete_records(_AUTHORS, owner=_author(agent, session_id))
        self._cached.drop((agent, session_id))


def _author(agent: str, session_id: str) -> str:
    return record_id(len(agent), agent, session_id)


class Redaction:
    """Removes the messages and grants of deleted agents, and the grants of deleted namespaces."""

    def __init__(self, parts: Components) -> None:
        self._parts, self._store = parts, parts.store
        self._grants, self._authors = parts.grants, parts.authors

    def takes_part(self, user_id: str) -> bool:
        """Return whether the id names a namespace, or a user with past or current grants."""
        return share_of(user_id) is not None or bool(self._grants.shares_of(user_id))

    def close(self, user_id: str) -> None:
        """Revoke the access of a user, or of all agents of a namespace, before the deletion."""
        share = share_of(user_id)
        if share is None:
            self._grants.close(user_id)
        else:
            self._grants.drop_share(share)

    def erase(self, user_id: str) -> None:
        """Empty the messages that a user wrote as an agent, and delete the user's grants."""
        if share_of(user_id) is not None:
            return
        shares = self._grants.shares_of(user_id)
        for share in shares:
            for head in all_heads(self._store, shared_user(share)):
                self._redact(head, user_id)
        self._grants.drop_agent(user_id, shares)

    def late(self, agent: str, session_id: str) -> None:
        """Empty the messages of an agent that was deleted while it wrote to a session."""
        head, share = self._store.head(session_id), share_of(session_id)
        if head is not None and share and share not in self._grants.shares_of(agent):
            self._grants.note(share, agent)  # if this call fails, a later deletion finds it
            self._redact(head, agent)
            self._grants.drop_agent(agent, [share])

    def _redact(self, head: Head, agent: str) -> None:
        if head.deleting or not self._took_part(head, agent):
            return
        self._parts.editor.edit(head.session_id, partial(self._plan, agent), _BUSY)
        left = head_now(self._store, head)
        if left is not None and not left.deleting:
            self._authors.drop(agent, head.session_id)

    def _took_part(self, head: Head, agent: str) -> bool:
        noted = self._authors.first(agent, head.session_id) is not None
        by_agent = (is_by(entry.message, agent) for entry in entries_of(self._store, head))
        return noted or is_by(head.system, agent) or any(by_agent)

    def _plan(self, agent: str, head: Head, log: Log) -> LogEdit | None:
        first = self._authors.first(agent, head.session_id)
        return redacted(head, log, partial(is_by, agent=agent), first)
