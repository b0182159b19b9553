"""Which blocks keep something outright in a store: whoever deletes has to know, whatever blocks he
has configured himself."""

from __future__ import annotations

from datetime import UTC, datetime

from agent_memory.ltm_blocks.base import record_id
from agent_memory.ltm_blocks.versions import version_owner
from agent_memory.records import Record, Scope
from agent_memory.stores.base import FactStore

_PLACE, _OWNER = "_keepers", "keepers"  # no block's name begins so


def enrol(store: FactStore, block: str) -> None:
    """Have it known that a block keeps something; before it does."""
    if block not in enrolled(store):
        now = datetime.now(UTC)
        name = Record(record_id("keeper", block), _OWNER, "", 0, 0, block, (), now)
        store.put_facts(_PLACE, [name])


def enrolled(store: FactStore) -> set[str]:
    """The names of all that do, or did."""
    return {record.text for record in store.facts(_PLACE, _OWNER)}


def erase(store: FactStore, block: str, scope: Scope) -> None:
    """Erase the facts that a block has of a session, or of a user, without the block itself.

    Raises:
        LeaseLost: The scope's lease is not held any more.
    """
    owners = {scope.owner}
    if scope.session_id is None:
        store.delete_facts(block, owner=scope.owner)
    else:
        owners.add(Scope(None, scope.session_id).owner)  # it may have had no user before
        store.delete_facts(block, session_id=scope.session_id, lease=scope.lease)
    for owner in owners:  # what other processes remember of them counts for nothing then
        store.delete_facts(block, owner=version_owner(owner), lease=scope.lease)
