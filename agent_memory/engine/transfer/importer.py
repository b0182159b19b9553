"""Atomic import of sessions: a session is hidden until all of it is stored."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO, cast

from agent_memory.core.records import Entry, Head, Lease
from agent_memory.engine.leases import Leases
from agent_memory.engine.transfer.import_records import RecordImport
from agent_memory.engine.transfer.reading import Item, Reading
from agent_memory.engine.transfer.snapshot import refused
from agent_memory.errors import InvalidInput, SessionExists, StoreError
from agent_memory.stores.base import SessionStore

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components

logger = logging.getLogger(__name__)

_PAGE = 200
_TRIES = 5
_LONGEST_FIRST = 2**16
_LONGEST = 2**28  # bytes of a line: a message of 64 MiB takes at most 3 times as much in JSON


class Importer:
    def __init__(self, parts: Components) -> None:
        self._parts, self._store, self._deletion = parts, parts.store, parts.deletion

    def run(self, reading: Reading) -> Head:
        head, items = reading.head, reading.items()
        session_id = head.session_id
        self._make_way(session_id)
        page, item = self._page(items)
        begun = True
        try:
            with import_transaction(self._store, self._parts.leases, head, page) as transaction:
                begun = transaction is not None
                if transaction is None:
                    raise _exists(session_id)
                while item is None and page:
                    page, item = self._page(items)
                    if page:
                        transaction.add(page)
                records = RecordImport(self._parts, head, transaction.lease)
                for number, value in chain([item] if item else (), items):
                    records.take(number, value)
                # the last line was read, so the snapshot is complete
                shown = transaction.show(replace(head, cursors=records.finish()))
        except BaseException:  # it is raised again below, after the partial session is erased
            if begun:
                self._erase(session_id)
            raise
        self._parts.windows.forget(session_id)  # an earlier session with this id may be cached
        return shown

    def _make_way(self, session_id: str) -> None:
        """Finish an interrupted deletion of the session. Raise `SessionExists` if it exists."""
        head = self._store.head(session_id)
        if head is not None and head.deleting:
            self._deletion.finish(session_id)
            head = self._store.head(session_id)
        if head is not None:
            raise _exists(session_id)

    def _erase(self, session_id: str) -> None:
        try:
            self._deletion.finish(session_id)
        except StoreError:  # the original error is more useful than this error
            logger.exception(
                "the partial import of session %r was not erased; a worker or `delete` erases it",
                session_id,
            )

    def _page(
        self, items: Iterable[tuple[int, Item]]
    ) -> tuple[list[Entry], tuple[int, Item] | None]:
        """Return the next entries, and the item after them if the log ends there."""
        page: list[Entry] = []
        for number, item in items:
            if not isinstance(item, Entry):
                return page, (number, item)
            page.append(self._counted(item))
            if len(page) == _PAGE:
                break
        return page, None

    def _counted(self, entry: Entry) -> Entry:
        """Return the entry. If its token count is wrong, let contexts count it again."""
        counter = self._parts.resources.counter
        if entry.encoding != counter.encoding or counter.message(entry.message) == entry.tokens:
            return entry
        return replace(entry, encoding="")


def _exists(session_id: str) -> SessionExists:
    return SessionExists(
        f"Session {session_id!r} exists already and was not changed. Delete it first, or "
        "import into another store or namespace."
    )


def lines_of(source: str | Path | TextIO | Iterable[str], most: int = 0) -> Iterator[bytes]:
    """Yield the lines of a source: a path, an open text file, or lines.

    A line of a file may have 256 MiB, or `most` bytes if this is more.
    """
    if isinstance(source, str | Path):
        with open(source, "rb") as file:
            yield from _read(file, max(most, _LONGEST))
    elif hasattr(source, "readline"):
        yield from _read(cast("TextIO", source), max(most, _LONGEST))
    elif isinstance(source, bytes | bytearray) or not isinstance(source, Iterable):
        raise InvalidInput(
            f"No snapshot can be read from a {type(source).__name__}. Give a path, a text file, "
            "or lines of text."
        )
    else:
        for number, line in enumerate(source, 1):
            if not isinstance(line, str):
                raise refused(number, f"it is a {type(line).__name__}, not text")
            with _in_utf8(number):  # lines from a list may lack their line feed
                raw = (line if line.endswith("\n") else f"{line}\n").encode()
            yield raw


def _read(file: TextIO | BinaryIO, most: int) -> Iterator[bytes]:
    """Yield the lines of an open file. Refuse a line that is too long or endless."""
    number, at_first = 1, "this is not the beginning of a session's snapshot"
    while True:
        longest = _LONGEST_FIRST if number == 1 else most
        with _in_utf8(number):
            line = file.readline(longest + 1)
            raw = line.encode() if isinstance(line, str) else line
        if len(line) > longest:
            raise refused(number, at_first if number == 1 else f"it is longer than {most:,}")
        if not line:
            return
        yield raw
        number += 1


@contextmanager
def _in_utf8(number: int) -> Iterator[None]:
    try:
        yield
    except UnicodeError:
        raise refused(number, "it is not text in UTF-8") from None


@dataclass(eq=False, repr=False)
class ImportTransaction:
    """A session during its import.

    Until the import is complete, the session is marked as being deleted, so no call shows or
    recalls it. If the process is killed, a worker or the next call for the session erases it.
    """

    _store: SessionStore
    _head: Head
    lease: Lease

    def add(self, entries: Sequence[Entry], after: int | None = None) -> None:
        """Append entries to the log. With `after`, replace all entries after that seq."""
        head = self._head
        end = head.end if after is None else after
        self._head = self._there(self._store.rewrite(head, end, entries, lease=self.lease))

    def show(self, head: Head) -> Head:
        """Make the session visible with the fields of a head, and due for its blocks."""
        here = self._head
        shown = replace(head, end=here.end, total=here.total, version=here.version, deleting=False)
        arrived = self._there(self._store.move(shown, lease=self.lease))
        self._store.schedule(arrived, 0)
        return arrived

    def _there(self, head: Head | None) -> Head:
        if head is None:
            raise StoreError(
                f"Session {self.lease.session_id!r} was changed by another process during the "
                "import, and was not imported. Try again when no other process uses its id."
            )
        return head


@contextmanager
def import_transaction(
    store: SessionStore, leases: Leases, head: Head, first: Sequence[Entry]
) -> Iterator[ImportTransaction | None]:
    """Begin the import of a session with the first entries of its log, which may be empty.

    Call `show` after all entries are added. Without `show` the session stays marked as deleted.

    Yields:
        The transaction. None if a session with this id exists or its deletion is unfinished.
    """
    hidden = replace(head, version=0, deleting=True)
    for _ in range(_TRIES):
        begun = store.rewrite(hidden, head.expired, first[:1])
        if begun is None:
            yield None
            return
        with leases.hold(head.session_id, waiting=True) as lease:
            if lease is None:
                continue  # a worker has just erased the session
            transaction = ImportTransaction(store, begun, lease)
            # the entries are written again: before the lease was taken, a worker may have erased
            # the session, and another process may have created a session with this id
            transaction.add(first, head.expired)
            yield transaction
            return
    raise StoreError(
        f"Session {head.session_id!r} could not be locked for the import, and was not imported. "
        "Try again."
    )
