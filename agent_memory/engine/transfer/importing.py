"""Bringing a session into a store from the lines of its snapshot, as a whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain

from agent_memory.core.records import Entry, Head
from agent_memory.engine.edit.delete import Deletion
from agent_memory.engine.leases import Leases
from agent_memory.engine.processing.dead_letters import DeadLetters
from agent_memory.engine.transfer.arriving import arriving
from agent_memory.engine.transfer.receiving import Receiving
from agent_memory.engine.transfer.snapshots.reading import Item, Reading
from agent_memory.engine.windows import Windows
from agent_memory.errors import SessionExists, StoreError
from agent_memory.ltm_blocks.base import Block, Resources

logger = logging.getLogger(__name__)

_PAGE = 200


class Importing:
    """Imports sessions.

    Args:
        resources: What blocks are lent.
        leases: Which keep workers off meanwhile.
        deletion: Erases what has not arrived.
        failures: What blocks could not absorb.
        windows: What is kept of logs in memory.
        blocks: Bound blocks, by name.
    """

    def __init__(
        self,
        resources: Resources,
        leases: Leases,
        deletion: Deletion,
        failures: DeadLetters,
        windows: Windows,
        blocks: Mapping[str, Block],
    ) -> None:
        self._resources = resources
        self._store = resources.store
        self._leases = leases
        self._deletion = deletion
        self._failures = failures
        self._windows = windows
        self._blocks = blocks

    def run(self, reading: Reading) -> Head:
        """Import a session; see `operations.import_session`."""
        head, items = reading.head, reading.items()
        session_id = head.session_id
        self._make_way(session_id)
        page, item = self._page(items)
        begun = True
        try:
            with arriving(self._store, self._leases, head, page) as arrival:
                begun = arrival is not None
                if arrival is None:
                    raise _exists(session_id)
                while item is None and page:
                    page, item = self._page(items)
                    if page:
                        arrival.add(page)
                receiving = Receiving(
                    self._resources, self._failures, self._blocks, head, arrival.lease
                )
                for number, one in chain([item] if item else (), items):
                    receiving.take(number, one)
                # the last line was read: it is whole
                shown = arrival.show(replace(head, cursors=receiving.finish()))
        except BaseException:  # raised again, once what has arrived is erased
            if begun:
                self._erase(session_id)
            raise
        self._windows.forget(session_id)  # it may have been there before, and deleted elsewhere
        return shown

    def _make_way(self, session_id: str) -> None:
        """Finish a deletion of the session that was not finished.

        Raises:
            SessionExists: It is there.
        """
        head = self._store.head(session_id)
        if head is not None and head.deleting:
            self._deletion.finish(session_id)
            head = self._store.head(session_id)
        if head is not None:
            raise _exists(session_id)

    def _erase(self, session_id: str) -> None:
        try:
            self._deletion.finish(session_id)
        except StoreError:  # what it failed for says more
            logger.exception(
                "what has arrived of session %r was not erased; a worker or `delete` will do it",
                session_id,
            )

    def _page(
        self, items: Iterable[tuple[int, Item]]
    ) -> tuple[list[Entry], tuple[int, Item] | None]:
        """The next entries, and what came after them if they are the last."""
        page: list[Entry] = []
        for number, item in items:
            if not isinstance(item, Entry):
                return page, (number, item)
            page.append(self._counted(item))
            if len(page) == _PAGE:
                break
        return page, None

    def _counted(self, entry: Entry) -> Entry:
        """The entry; where our own counter counts otherwise, contexts are to count it anew."""
        counter = self._resources.counter
        if entry.encoding != counter.encoding or counter.message(entry.message) == entry.tokens:
            return entry
        return replace(entry, encoding="")


def _exists(session_id: str) -> SessionExists:
    return SessionExists(
        f"There is a session {session_id!r} already; it was left as it is. Delete it first, or "
        "import into another store or namespace."
    )
