"""What changes with every change of an owner's records, so that whoever remembers them knows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Generic, TypeVar
from uuid import uuid4

from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Record
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import RecordStore

T = TypeVar("T")

_MOST_REMEMBERED = 20_000


class Remembering(Generic[T]):
    """What was read of owners lately, as long as it has the same version. Safe to share.

    Args:
        size: How many records something was read from.
    """

    def __init__(self, size: Callable[[T], int]) -> None:
        self._size = size
        self._lock = fork_safe_lock()
        self._kept: OrderedDict[str, tuple[str, T]] = OrderedDict()

    def get(self, owner: str, version: str | None) -> T | None:
        """What was read of an owner, if it is of this version still."""
        with self._lock:
            kept = self._kept.get(owner)
            if kept is None or kept[0] != version:
                return None
            self._kept.move_to_end(owner)
            return kept[1]

    def last(self, owner: str) -> T | None:
        """What was read of an owner last, of whatever version."""
        with self._lock:
            kept = self._kept.get(owner)
            if kept is None:
                return None
            self._kept.move_to_end(owner)
            return kept[1]

    def keep(self, owner: str, version: str | None, read: T) -> None:
        """Keep what was read, in place of what was not asked for lately."""
        with self._lock:
            self._kept.pop(owner, None)
            if version is not None:
                self._kept[owner] = (version, read)
            while sum(self._size(one) for _, one in self._kept.values()) > _MOST_REMEMBERED:
                self._kept.popitem(last=False)

    def drop(self, owner: str) -> None:
        """Let go of what was read of an owner."""
        with self._lock:
            self._kept.pop(owner, None)


def version_of(store: RecordStore, block: str, owner: str) -> str | None:
    """The version of an owner's records; None where there are none."""
    of = version_owner(owner)  # beside which a trail's beginning may stand
    return next((one.text for one in store.records(block, of) if one.id == of), None)


def new_version(owner: str) -> Record:
    """The record of another version, to be kept with a change."""
    of = version_owner(owner)
    return Record(of, of, "", 0, 0, uuid4().hex, (), datetime.now(UTC))


def version_owner(owner: str) -> str:
    """The owner, and id, of the record of a version: no owner of other records begins so, and it
    names nobody."""
    return f"version:{record_id(owner)}"
