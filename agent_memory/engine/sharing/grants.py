"""Which agent may do what in which shared namespace. Kept in the store, and read at every call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from agent_memory.core.ids import Access
from agent_memory.core.records import Record
from agent_memory.core.reserved import GRANTS
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import RecordStore

_PLACE, _SHARES = GRANTS.name, "shares"
_NONE = "none"
_ACCESS: dict[str | None, Access] = {"read": "read", "write": "write"}


class Grants:
    """Grants of access, each found by namespace and agent, by agent, and by namespace.

    What was granted or revoked in a call wins over what a configuration began with, whichever came
    first: the two are records of their own, so that none can overwrite the other.

    Args:
        store: Where they are kept.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def begin(self, shares: Mapping[str, Mapping[str, Access]]) -> None:
        """Write the grants of a configuration for pairs of which nothing is known."""
        new = []
        for share, given in shares.items():
            known = self._known(share)
            for agent, access in given.items():
                if agent not in known:
                    new += _records(share, agent, access, is_initial=True)
        if new:
            self._store.put_records(_PLACE, new)

    def in_vain(self, shares: Mapping[str, Mapping[str, Access]]) -> list[str]:
        """Which grants of a configuration are not in force, each with what to do."""
        return [
            f"{agent} has {has or 'no'} access to {share}, and not {access}, as the configuration "
            "begins with: what was granted or revoked since wins. If that is not meant: "
            f"`agent-memory shares grant {share} {agent} {access}`."
            for share, given in shares.items()
            for known in [self._known(share)]
            for agent, access in given.items()
            if (has := known.get(agent, access)) != access
        ]

    def put(self, share: str, agent: str, access: Access | None) -> None:
        """Grant, or with None revoke. Durable, and in force everywhere, on return."""
        self._store.put_records(_PLACE, _records(share, agent, access))

    def access(self, share: str, agent: str) -> Access | None:
        """What an agent may do: one small read, by an index, of no other's grant."""
        return _effective(self._store.records(_PLACE, _pair(share, agent)))

    def allows(self, share: str, agent: str, access: Access) -> bool:
        """Whether an agent may do so."""
        return self.access(share, agent) in ("write", access)

    def agents(self, share: str) -> dict[str, Access]:
        """All agents of a namespace that have access, by name."""
        return {agent: has for agent, has in self._known(share).items() if has is not None}

    def shares(self) -> list[str]:
        """The namespaces for which there are grants, or were."""
        return sorted(record.text for record in self._store.records(_PLACE, _SHARES))

    def shares_of(self, agent: str) -> list[str]:
        """The namespaces in which an agent has access, or had."""
        found = self._store.records(_PLACE, _agent(agent))
        return sorted({record.metadata["share"] for record in found})

    def close(self, agent: str) -> None:
        """Revoke all that an agent has; where that was stays known."""
        for share in self.shares_of(agent):
            self.put(share, agent, None)

    def drop_agent(self, agent: str) -> None:
        """Erase an agent's grants, but for those that it was given since `close`."""
        for share in self.shares_of(agent):
            if self.access(share, agent) is None:
                self._drop(share, agent, found_by="agent")

    def drop_share(self, share: str) -> None:
        """Erase a namespace's grants."""
        for agent in self._known(share):
            self._drop(share, agent, found_by="share")
        self._store.delete_records(_PLACE, record_id=_id("name", share, ""))

    def _drop(self, share: str, agent: str, found_by: str) -> None:
        # last what the others are found by, and what wins, should this stop half-way
        for kind in sorted(("pair", "share", "agent"), key=lambda kind: kind == found_by):
            for initial in (True, False):
                self._store.delete_records(_PLACE, record_id=_id(kind, share, agent, initial))

    def _known(self, share: str) -> dict[str, Access | None]:
        """What all agents may do for which anything was granted, or revoked, by name."""
        by_agent: dict[str, list[Record]] = {}
        for record in self._store.records(_PLACE, _share(share)):
            by_agent.setdefault(record.metadata["agent"], []).append(record)
        return {agent: _effective(records) for agent, records in sorted(by_agent.items())}


def _records(
    share: str, agent: str, access: Access | None, *, is_initial: bool = False
) -> list[Record]:
    now, told = datetime.now(UTC), access or _NONE
    metadata = {"share": share, "agent": agent, "initial": is_initial}
    owners = {"pair": _pair(share, agent), "agent": _agent(agent), "share": _share(share)}
    records = [
        Record(_id(kind, share, agent, is_initial), owner, "", 0, 0, told, (), now, metadata)
        for kind, owner in owners.items()
    ]
    return [*records, Record(_id("name", share, ""), _SHARES, "", 0, 0, share, (), now)]


def _effective(records: Iterable[Record]) -> Access | None:
    """What counts of the records of one pair: what was said in a call, else what it began with."""
    told = {record.metadata["initial"]: record.text for record in records}
    return _ACCESS.get(told.get(False, told.get(True)))


def _id(kind: str, share: str, agent: str, initial: bool = False) -> str:
    return record_id(kind, len(share), share, agent, initial)


def _pair(share: str, agent: str) -> str:
    return _id("of", share, agent)


def _agent(agent: str) -> str:
    return f"agent:{agent}"


def _share(share: str) -> str:
    return f"share:{share}"
