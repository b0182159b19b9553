"""Taking the newest messages back, with what derives from them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from agent_memory.engine.absorbing import Absorber
from agent_memory.engine.failures import Failures
from agent_memory.engine.forgetting import Forgetting
from agent_memory.engine.leases import Leases
from agent_memory.engine.overflow import Overflow
from agent_memory.errors import LeaseLost, StoreUnavailable
from agent_memory.messages import Message
from agent_memory.records import Head, Lease, Scope
from agent_memory.stores.base import SessionStore

_WAIT = 60.0


class Undo:
    """Shortens logs.

    Args:
        store: The log.
        leases: Which keep absorbing off meanwhile.
        absorber: Whose blocks forget.
        failures: What blocks could not absorb.
        forgetting: What is to stay forgotten.
        overflow: Says what becomes of the window.
    """

    def __init__(
        self,
        store: SessionStore,
        leases: Leases,
        absorber: Absorber,
        failures: Failures,
        forgetting: Forgetting,
        overflow: Overflow,
    ) -> None:
        self._store = store
        self._leases = leases
        self._absorber = absorber
        self._failures = failures
        self._forgetting = forgetting
        self._overflow = overflow

    def pop(self, session_id: str, count: int) -> list[Message]:
        """Take messages back; see `AgentMemory.pop`."""
        while True:
            with suppress(LeaseLost):  # taken over half-way: nothing was cut off yet
                return self._pop(session_id, count)

    def _pop(self, session_id: str, count: int) -> list[Message]:
        with self._leases.hold(session_id, _WAIT) as lease:
            while True:
                head = self._store.head(session_id)
                if head is None or head.deleting or count < 1:
                    return []
                if lease is None:
                    raise StoreUnavailable(
                        f"Session {session_id!r} is being absorbed and did not let go within "
                        f"{_WAIT:g} s. Nothing was taken back; try again."
                    )
                least = head.expired + 1 if head.expired else 0  # or seqs would begin anew
                end = max(least, head.end - count)
                taken = self._store.read(session_id, after=end, limit=head.end - end)
                # cursors first: if this stops half-way, what blocks forgot is absorbed again
                rewound = self._rewound(head, end, lease)
                if rewound is None or rewound.end != head.end:  # messages came
                    continue
                head = rewound
                # whatever the cursors say: a worker that died may have left records past its own
                for block in self._absorber.blocks.values():
                    self._absorber.forget(block, head, Scope(head.user_id, session_id, end, lease))
                self._failures.forget(session_id, after=end, lease=lease)
                self._forgetting.after(head, end, lease)
                shorter = self._overflow.shortened(head, end, taken)
                if self._store.truncate(shorter, end, lease=lease):
                    return [entry.message for entry in taken]

    def _rewound(self, head: Head, end: int, lease: Lease) -> Head | None:
        """The head with its cursors put back to `end`, or before a dead letter that is cut there.

        None where another writer came first.
        """
        cursors = {}
        for name, cursor in head.cursors.items():
            letters = self._failures.dead(name, head.session_id)
            cut = [letter.first - 1 for letter in letters if letter.last > end]
            cursors[name] = min([cursor, end, *cut])
        if cursors == head.cursors:
            return head
        moved = self._store.move(replace(head, cursors=cursors), lease=lease)
        if moved is not None:
            self._store.put_off(moved, 0)
        return moved
