"""Rebuilding a block from the log, session by session; what was interrupted goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from agent_memory.engine.leases import Leases
from agent_memory.engine.paging import all_heads
from agent_memory.engine.processing.absorb import Absorber
from agent_memory.engine.stats import Progress
from agent_memory.engine.system_records import Notes
from agent_memory.errors import LeaseLost
from agent_memory.stores.base import SessionStore

REPLAYS = "replays"
"""Kind of the notes that say how far replays have come."""

_WAIT = 60.0


class Replay:
    """Has a block absorb all sessions anew, while other calls go on.

    Args:
        store: The log.
        leases: One worker a session.
        absorber: Feeds the block.
        notes: Remembers how far a replay has come.
    """

    def __init__(
        self, store: SessionStore, leases: Leases, absorber: Absorber, notes: Notes
    ) -> None:
        self._store = store
        self._leases = leases
        self._absorber = absorber
        self._notes = notes

    def run(self, block: str) -> Iterator[Progress]:
        """Rebuild a block, from where an earlier replay of it stopped half-way."""
        begun = self._notes.read(REPLAYS).get(block, {"after": None, "done": 0})
        after, done = begun["after"], begun["done"]
        self._notes.write(REPLAYS, block, after=after, done=done)
        total = self._store.counts().sessions
        for head in all_heads(self._store, after=after):
            error = self._session(block, head.session_id)
            done += 1
            self._notes.write(REPLAYS, block, after=head.session_id, done=done)
            yield Progress(block, head.session_id, done, max(done, total), error)
        self._notes.drop(REPLAYS, block)

    def _session(self, block: str, session_id: str) -> str | None:
        while True:
            with suppress(LeaseLost):  # taken over before the block was rewound
                return self._anew(block, session_id)

    def _anew(self, block: str, session_id: str) -> str | None:
        with self._leases.hold(session_id, _WAIT) as lease:
            head = self._store.head(session_id)
            if head is None or head.deleting:
                return None
            self._absorber.rewind(block, lease, session_id)
            if lease is None:
                return "another worker holds the session, and is to absorb it anew"
            for fed in self._absorber.absorb({block: head.end}, lease):
                if fed.error:  # a worker goes on with it
                    self._store.put_off(self._store.head(session_id) or head, 0)
                return fed.error
            return None
