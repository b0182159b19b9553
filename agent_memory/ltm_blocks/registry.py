"""Which blocks keep something outright in a store: whoever deletes has to know, whatever blocks he
has configured himself."""

from __future__ import annotations

from datetime import UTC, datetime

from agent_memory.core.records import Record, Scope
from agent_memory.core.reserved import REGISTRY
from agent_memory.ltm_blocks.base import record_id
from agent_memory.ltm_blocks.versions import version_owner
from agent_memory.stores.base import RecordStore, Store

_PLACE, _BLOCKS, _INDEXES = REGISTRY.name, "blocks", "indexes"


def register(store: RecordStore, block: str) -> None:
    """Have it known that a block keeps something; before it does."""
    _register(store, block, _BLOCKS)


def registered(store: RecordStore) -> set[str]:
    """The names of all that do, or did."""
    return _registered(store, _BLOCKS)


def register_index(store: RecordStore, place: str) -> None:
    """Have it known that users' vectors are kept in a place of their own; before they are."""
    _register(store, place, _INDEXES)


def erase_indexed(store: Store, user_id: str) -> None:
    """Erase the vectors that are kept of a user in such places."""
    for place in _registered(store, _INDEXES):
        store.delete_vectors(place, owner=Scope(user_id).owner)


def erase(store: RecordStore, block: str, scope: Scope) -> None:
    """Erase the facts that a block has of a session, of its entries after a seq, or of a user,
    without the block itself.

    Raises:
        LeaseLost: The scope's lease is not held any more.
    """
    owners = {scope.owner}
    if scope.session_id is None:
        store.delete_records(block, owner=scope.owner)
    else:
        owners.add(Scope(None, scope.session_id).owner)  # it may have had no user before
        store.delete_records(
            block, session_id=scope.session_id, after=scope.after, lease=scope.lease
        )
    for owner in owners:  # what other processes remember of them counts for nothing then
        store.delete_records(block, owner=version_owner(owner), lease=scope.lease)


def erase_derived(store: Store, block: str, scope: Scope) -> None:
    """As `erase`, of a session, the block's vectors in the store too.

    Raises:
        LeaseLost: The scope's lease is not held any more.
    """
    erase(store, block, scope)
    store.delete_vectors(block, session_id=scope.session_id, after=scope.after, lease=scope.lease)


def _register(store: RecordStore, name: str, owner: str) -> None:
    if name not in _registered(store, owner):
        now = datetime.now(UTC)
        record = Record(record_id(owner, name), owner, "", 0, 0, name, (), now)
        store.put_records(_PLACE, [record])


def _registered(store: RecordStore, owner: str) -> set[str]:
    return {record.text for record in store.records(_PLACE, owner)}
