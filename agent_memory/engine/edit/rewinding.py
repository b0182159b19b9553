"""Having blocks forget what they made of a log from a place on, so that they absorb it anew."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from agent_memory.core.records import Head, Lease, Scope
from agent_memory.engine.processing.absorb import Absorber
from agent_memory.engine.processing.dead_letters import DeadLetters
from agent_memory.ltm_blocks.keepers import erase_derived
from agent_memory.stores.base import Store

logger = logging.getLogger(__name__)


class Rewinding:
    """Puts cursors back, and has blocks forget what lies past them.

    Args:
        store: The heads, and what blocks keep beside them.
        absorber: Whose blocks forget.
        failures: What blocks could not absorb.
    """

    def __init__(self, store: Store, absorber: Absorber, failures: DeadLetters) -> None:
        self._store = store
        self._absorber = absorber
        self._failures = failures

    def reach(self, block: str, head: Head, end: int) -> int:
        """The seq after which a block forgets, when nothing after seq `end` is to count.

        It lies before what the block made, or failed to make, of messages on both sides: that is
        made anew of those that stay.
        """
        letters = self._failures.dead(block, head.session_id)
        cut = [letter.first - 1 for letter in letters if letter.last > end]
        owner = Scope(head.user_id, head.session_id).owner
        cut += [
            record.first - 1
            for record in self._store.facts(block, owner)
            if record.session_id == head.session_id and record.first <= end < record.last
        ]
        return max(head.expired, min([end, *cut]))  # what has expired could not be made anew

    def reaches(self, head: Head, end: int) -> dict[str, int]:
        """`reach`, of each block that may have absorbed some of the session."""
        names = dict.fromkeys((*self._absorber.blocks, *head.cursors))
        return {name: self.reach(name, head, end) for name in names}

    def rewound(self, head: Head, reaches: Mapping[str, int], lease: Lease) -> Head | None:
        """The head with its cursors put back; None where another writer came first.

        Before anything is forgotten: if that stops half-way, it is absorbed again.
        """
        cursors = {name: min(cursor, reaches[name]) for name, cursor in head.cursors.items()}
        if cursors == head.cursors:
            return head
        moved = self._store.move(replace(head, cursors=cursors), lease=lease)
        if moved is not None:
            self._store.put_off(moved, 0)
        return moved

    def forget(self, head: Head, reaches: Mapping[str, int], lease: Lease) -> None:
        """Have each block forget what derives from entries after a seq."""
        for name, after in reaches.items():
            scope = Scope(head.user_id, head.session_id, after, lease)
            # whatever the cursors say: a worker that died may have left records past its own
            block = self._absorber.blocks.get(name)
            if block is not None:
                self._absorber.forget(block, head, scope)
                continue
            erase_derived(self._store, name, scope)
            logger.warning(
                "block %r absorbed session %r and is not configured now: what it keeps of messages "
                "that are gone was deleted in this store, and nowhere else",
                name,
                head.session_id,
            )
