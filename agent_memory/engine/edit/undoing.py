"""Taking the newest messages back with what derives from them, or putting others in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head
from agent_memory.engine.edit.forgetting import Forgetting
from agent_memory.engine.edit.rewinding import Rewinding
from agent_memory.engine.leases import Leases, busy
from agent_memory.engine.processing.compaction import Compaction
from agent_memory.engine.processing.dead_letters import DeadLetters
from agent_memory.errors import LeaseLost
from agent_memory.stores.base import SessionStore
from agent_memory.stores.log import entries_after

_WAIT = 60.0

Place = Callable[[Head], int]
"""Says after which seq a session's log is cut."""


class Undo:
    """Rewrites the ends of logs.

    Args:
        store: The log.
        leases: Which keep absorbing off meanwhile.
        rewinding: Has blocks forget.
        failures: What blocks could not absorb.
        forgetting: What is to stay forgotten.
        overflow: Says what becomes of the window.
    """

    def __init__(
        self,
        store: SessionStore,
        leases: Leases,
        rewinding: Rewinding,
        failures: DeadLetters,
        forgetting: Forgetting,
        overflow: Compaction,
    ) -> None:
        self._store = store
        self._leases = leases
        self._rewinding = rewinding
        self._failures = failures
        self._forgetting = forgetting
        self._overflow = overflow

    def pop(self, session_id: str, count: int) -> list[Message]:
        """Take messages back; see `AgentMemory.pop`."""

        def place(head: Head) -> int:
            least = head.expired + 1 if head.expired else 0  # or seqs would begin anew
            return max(least, head.end - count)

        done = self._rewritten(session_id, place) if count > 0 else None
        return [entry.message for entry in done[1]] if done else []

    def replace(self, session_id: str, place: Place, drafts: Sequence[Draft]) -> Head | None:
        """Put other messages in the place of a session's newest, in one step.

        System messages among those stay, before the others.

        Args:
            session_id: The session.
            place: Says after which seq; what it raises is raised, and nothing was changed.
            drafts: What comes in their place.

        Returns:
            The head afterwards; None where the session is gone.
        """
        done = self._rewritten(session_id, place, drafts)
        return done[0] if done else None

    def _rewritten(
        self, session_id: str, place: Place, drafts: Sequence[Draft] | None = None
    ) -> tuple[Head, list[Entry]] | None:
        """The head afterwards and what was taken away; None for a session that is gone."""
        while True:
            with suppress(LeaseLost):  # taken over half-way: the log is as it was
                return self._rewrite(session_id, place, drafts)

    def _rewrite(
        self, session_id: str, place: Place, drafts: Sequence[Draft] | None
    ) -> tuple[Head, list[Entry]] | None:
        with self._leases.hold(session_id, _WAIT) as lease:
            while True:
                head = self._store.head(session_id)
                if head is None or head.deleting:
                    return None
                if lease is None:
                    raise busy(session_id, _WAIT, "Nothing was taken back; try again.")
                end = place(head)
                taken = self._store.read(session_id, after=end, limit=head.end - end)
                reaches = self._rewinding.reaches(head, end)
                rewound = self._rewinding.rewound(head, reaches, lease)
                if rewound is None or rewound.end != head.end:  # messages came
                    continue
                self._rewinding.forget(rewound, reaches, lease)
                self._failures.forget(session_id, after=end, lease=lease)
                self._forgetting.after(rewound, end, lease)
                if drafts is None:
                    shorter, entries = self._overflow.shortened(rewound, end, taken), []
                else:
                    shorter = self._overflow.shortened(rewound, end, ())
                    entries = _following(rewound, end, taken, drafts)
                stored = self._store.rewrite(shorter, end, entries, lease=lease)
                if stored is not None:
                    if entries:
                        self._store.put_off(stored, 0)
                    return stored, taken


def _following(
    head: Head, end: int, taken: Sequence[Entry], drafts: Sequence[Draft]
) -> list[Entry]:
    """What comes in the place of entries: the system messages among them, then the drafts."""
    kept = [Draft(one.message, one.tokens, one.encoding) for one in taken if one.message.is_system]
    total = head.total - sum(one.counted for one in taken)
    return entries_after(head.session_id, end, total, [*kept, *drafts])
