"""Feeding the log to long-term blocks: a cursor moves only once its block took the batch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from agent_memory.engine.bridge import resolve
from agent_memory.engine.leases import Leases
from agent_memory.engine.resting import Rests
from agent_memory.ltm_blocks.base import Block
from agent_memory.records import Absorbed, Entry, Head, Scope
from agent_memory.stores.base import SessionStore

logger = logging.getLogger(__name__)

BATCH_ENTRIES = 100
BATCH_TOKENS = 6_000


class Absorber:
    """Brings blocks up to date with sessions, one worker a session at a time.

    Args:
        store: The log.
        leases: Which the callers of `absorb` and `rewind` hold.
        blocks: Bound blocks; those that do not absorb are passed over.
    """

    def __init__(self, store: SessionStore, leases: Leases, blocks: Sequence[Block]) -> None:
        self._store = store
        self._leases = leases
        self.blocks = {block.name: block for block in blocks if block.absorbs}
        self.errors: dict[str, str] = {}
        self._rests = Rests()

    def troubles(self) -> list[str]:
        """What a context should warn of: the blocks that could not absorb, the last time."""
        return [
            f"The block {name!r} could not absorb, and will try again: {error}"
            for name, error in self.errors.copy().items()
        ]

    def ready(self) -> list[str]:
        """Names of the blocks that may be fed now: those that do not rest after a failure."""
        return [name for name in self.blocks if self._rests.ready(name)]

    def absorb(
        self,
        session_id: str,
        upto: int | None = None,
        only: str | None = None,
        *,
        insist: bool = False,
    ) -> list[Absorbed]:
        """Feed what waits, up to a seq, to each block. The caller holds the lease.

        A block that fails keeps its cursor and rests for a while, longer each time; the others go
        on. With `insist`, those that rest are fed too.
        """
        done: list[Absorbed] = []
        for name in self.blocks if insist else self.ready():
            if only not in (None, name):
                continue
            head = self._store.head(session_id)
            if head is None or head.deleting:
                break
            target = head.end if upto is None else min(upto, head.end)
            first = head.cursors.get(name, 0) + 1
            if first <= target:
                last, error = self._feed(self.blocks[name], head, target)
                done.append(Absorbed(session_id, name, first, last, error))
        return done

    def refused(self, head: Head) -> list[Absorbed]:
        """What to report of a session whose lease could not be had."""
        return [
            Absorbed(head.session_id, name, cursor + 1, cursor, "another worker holds the session")
            for name in self.blocks
            if (cursor := head.cursors.get(name, 0)) < head.end
        ]

    def rewind(self, session_id: str, block: str) -> None:
        """Put a block's cursor back to the beginning of a session."""
        while (head := self._store.head(session_id)) and not head.deleting:
            if self._store.move(replace(head, cursors={**head.cursors, block: 0})):
                return

    def _feed(self, block: Block, head: Head, target: int) -> tuple[int, str | None]:
        cursor = head.cursors.get(block.name, 0)
        scope = Scope(head.user_id, head.session_id)
        try:
            if cursor == 0:  # begin clean: the session may have been absorbed under another scope
                resolve(block.delete(scope))
            while cursor < target:
                if not self._leases.renew(head.session_id):
                    return cursor, "another worker took the session over"
                batch, last = self._batch(head.session_id, cursor, target)
                if batch:
                    resolve(block.update(scope, batch))
                if not self._advance(head, block.name, cursor, last):
                    return cursor, None  # another worker, a new owner or a deletion took over
                cursor = last
        except Exception as error:  # noqa: BLE001 - any block's failure must not lose a message
            told = f"{type(error).__name__}: {error}"
            if self.errors.get(block.name) != told:
                logger.warning(
                    "block %r could not absorb, and will try again: %s", block.name, told
                )
            self.errors[block.name] = told
            self._rests.failed(block.name)
            return cursor, told
        self.errors.pop(block.name, None)
        self._rests.succeeded(block.name)
        return cursor, None

    def _batch(self, session_id: str, cursor: int, target: int) -> tuple[list[Entry], int]:
        """The next entries to absorb (system messages never are), and the seq they reach to."""
        read = self._store.read(session_id, after=cursor, limit=min(BATCH_ENTRIES, target - cursor))
        tokens, last = 0, cursor
        batch: list[Entry] = []
        for entry in read:
            tokens += entry.tokens
            if batch and tokens > BATCH_TOKENS:
                break
            last = entry.seq
            if not entry.message.is_system:
                batch.append(entry)
        return batch, last

    def _advance(self, seen: Head, block: str, cursor: int, last: int) -> bool:
        """Move the block's cursor, unless the session changed hands since `seen`."""
        while True:
            head = self._store.head(seen.session_id)
            if head is None or head.deleting or head.user_id != seen.user_id:
                return False
            if head.cursors.get(block, 0) != cursor:
                return False
            if self._store.move(replace(head, cursors={**head.cursors, block: last})):
                return True
