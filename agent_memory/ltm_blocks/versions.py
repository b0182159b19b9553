"""What changes with every change of an owner's records, so that whoever remembers them knows."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from agent_memory.core.records import Record
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import RecordStore


def version_of(store: RecordStore, block: str, owner: str) -> str | None:
    """The version of an owner's records; None where there are none."""
    found = store.records(block, version_owner(owner))
    return found[0].text if found else None


def new_version(owner: str) -> Record:
    """The record of another version, to be kept with a change."""
    of = version_owner(owner)
    return Record(of, of, "", 0, 0, uuid4().hex, (), datetime.now(UTC))


def version_owner(owner: str) -> str:
    """The owner, and id, of the record of a version: no owner of other records begins so, and it
    names nobody."""
    return f"version:{record_id(owner)}"
