"""Export of sessions: the lines of a snapshot, and the file to which they are written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from agent_memory import __version__
from agent_memory.core.limits import quoted
from agent_memory.core.records import Entry, Head, Lease, Scope
from agent_memory.core.system_collections import VALUES
from agent_memory.core.timestamps import now_utc
from agent_memory.engine.paging import head_now, read_of
from agent_memory.engine.transfer.snapshot import Exported, Writing, owners_of
from agent_memory.engine.values.items import StoredValue, owner_of
from agent_memory.errors import InvalidInput, StoreUnavailable, UnsupportedOperation
from agent_memory.ltm_blocks.registry import FORGOTTEN, registered
from agent_memory.stores.kernel.log import check_owner

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components

_PAGE = 200
_RECORDS = ("fact", "vector", "dead_letter", "forgotten")


class Exporter:
    def __init__(self, parts: Components) -> None:
        self._parts, self._store, self._blocks = parts, parts.store, parts.all_blocks

    def run(
        self, session_id: str, write: Callable[[str], object], user_id: str | None = None
    ) -> Exported:
        consequence = "No snapshot was taken; try again."
        with self._parts.leases.hold(session_id, consequence=consequence) as lease:
            # without a lease, a head would belong to a newer session with the same id
            head = self._store.head(session_id) if lease is not None else None
            if lease is None or head is None or head.deleting:
                raise InvalidInput(f"There is no session {session_id!r} to take a snapshot of.")
            check_owner(head, user_id)
            writing, left_out = Writing(head), set[str]()
            for line in self._lines(head, writing, left_out):
                write(line)
            self._check_still(head, lease)
            counts = dict(writing.counts)
            write(writing.end())
        records = sum(counts.get(kind, 0) for kind in _RECORDS)
        return Exported(session_id, counts.get("entry", 0), records, tuple(sorted(left_out)))

    def _lines(self, head: Head, writing: Writing, left_out: set[str]) -> Iterator[str]:
        yield writing.opening(__version__)
        yield writing.head()
        for entry in self._entries(head):
            yield writing.line("entry", entry, at=entry.created_at)
        for key in self._store.keys(head.session_id):
            if key.seq <= head.end:
                yield writing.line("key", key)
        names = sorted({*self._blocks, *head.cursors, *registered(self._store)})
        for name in names:
            yield from self._vectors(name, head, writing, left_out)
        for name in names:
            if name not in left_out:
                yield from self._facts(name, head, writing)
        for name in sorted(head.cursors.keys() - left_out):
            for letter in self._parts.dead_letters.dead(name, head.session_id):
                if head.expired < letter.first and letter.last <= head.cursors[name]:
                    yield writing.line("dead_letter", letter)
        for note in self._store.records(FORGOTTEN, Scope(head.user_id, head.session_id).owner):
            if note.session_id == head.session_id:
                yield writing.line("forgotten", note, at=note.created_at, **note.metadata)
        now, of_session = now_utc(), Scope(None, head.session_id).owner
        for owner in self._store.owners(VALUES.name, owner_of(of_session, ())):
            for record in self._store.records(VALUES.name, owner):
                if not StoredValue(record).is_over(now):
                    yield writing.line("value", record, at=record.created_at)

    def _entries(self, head: Head) -> Iterator[Entry]:
        at = head.expired
        while at < head.end:
            page = read_of(self._store, head, after=at, limit=min(_PAGE, head.end - at))
            if not page or page[0].seq != at + 1:
                raise _gone(head)
            yield from page
            at = page[-1].seq

    def _facts(self, block: str, head: Head, writing: Writing) -> Iterator[str]:
        reach = self._reach(block, head)
        for owner in owners_of(head):
            for record in self._store.records(block, owner):
                if record.session_id == head.session_id and record.last <= reach:
                    yield writing.record(block, record)

    def _vectors(self, name: str, head: Head, writing: Writing, omitted: set[str]) -> Iterator[str]:
        block = self._blocks.get(name)
        vector_store = self._store if block is None else block.vectors
        opened = vector_store.vector_blocks().get(name)
        if opened is None:
            return
        try:
            pages = iter(vector_store.all_vectors(name, session_id=head.session_id))
            first = next(pages, None)
        except UnsupportedOperation:  # the block will absorb the imported session again
            omitted.add(name)
            return
        dimension, model = opened
        yield writing.line("vectors", block=name, dimension=dimension, model=model)
        if first is None:
            return
        from agent_memory.retrieval.index import Segment
        from agent_memory.stores.feature_bytes import bytes_of

        reach, owners = self._reach(name, head), owners_of(head)
        for records, features in chain([first], pages):
            for place, record in enumerate(records):
                if record.owner in owners and record.last <= reach:
                    segment = Segment.of([record.id], features.at([place]))
                    yield writing.record(name, record, bytes_of(segment))

    def _reach(self, name: str, head: Head) -> float:
        """Return the last seq that a block has absorbed. Infinity if the block absorbs no logs."""
        block = self._blocks.get(name)
        if name in head.cursors or (block is not None and block.absorbs):
            return max(head.cursors.get(name, 0), head.expired)
        return inf

    def _check_still(self, head: Head, lease: Lease) -> None:
        """Check that the session did not change, before the last line is written."""
        now = head_now(self._store, head)
        if now is None or now.deleting or not self._parts.leases.renew(lease):
            raise _gone(head)


def _gone(head: Head) -> StoreUnavailable:
    return StoreUnavailable(
        f"Session {head.session_id!r} was deleted, shortened or taken over while its snapshot was "
        "taken. The written part is incomplete. Try again."
    )


@contextmanager
def written(to: str | Path | TextIO) -> Iterator[TextIO]:
    """Yield a file to write to. If `to` is a path, the complete file replaces an existing file.

    A pipe or a device is written to directly.
    """
    if not isinstance(to, str | Path):
        if not hasattr(to, "write"):
            raise InvalidInput(f"Nothing can be written to {quoted(to)}. Give a path or text file.")
        yield to
        return
    try:
        path = Path(os.path.realpath(to))
        replaces = not path.exists() or path.is_file()
        descriptor, name = (
            tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            if replaces
            else (os.open(path, os.O_WRONLY), "")
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(f"Nothing can be written to {quoted(str(to))}: {why}.") from error
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
            yield file
            if replaces:
                file.flush()
                os.fsync(file.fileno())
        if replaces:
            os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)  # "" for a pipe or a device
        raise
