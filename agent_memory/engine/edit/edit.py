"""The one way in which a log that is there is changed, whatever is to become of it.

In this order, so that it can stop anywhere: cursors go back, blocks forget, the log is rewritten.
If it stops before the last step the log is as it was, and what was forgotten is absorbed again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head, Lease, Scope, Span, empty_head
from agent_memory.core.threads import apart, given_up
from agent_memory.engine.edit.plans import Drafts, LogEdit, Plan, answered, changed, popped
from agent_memory.engine.edit.tombstones import Tombstones
from agent_memory.engine.leases import Leases, Unheld, busy
from agent_memory.engine.paging import read_of
from agent_memory.engine.processing.absorb import Absorber
from agent_memory.engine.processing.dead_letters import DeadLetters
from agent_memory.engine.recall.sent import SentContexts
from agent_memory.engine.windows import Windows
from agent_memory.errors import LeaseLost, SessionDeleting
from agent_memory.ltm_blocks.registry import erase_derived
from agent_memory.stores.base import Store
from agent_memory.stores.log import check_owner

logger = logging.getLogger(__name__)


Task = TypeVar("Task")
Done = TypeVar("Done")


def under_lease(
    leases: Leases,
    session_id: str,
    look: Callable[[], Task | None],
    work: Callable[[Task, Lease], Done | None],
    told: str,
) -> Done | None:
    """Work on a session under its lease, for as long as there is something to do.

    Whoever finds the session gone, comes second, or loses the lease half-way, looks again.

    Args:
        leases: The store's.
        session_id: The session.
        look: Says what there is to do, of what is stored at that moment; None: nothing.
        work: Does it; None where another writer came first.
        told: What it means for the caller that another worker does not let go, and what to do.

    Returns:
        What was done; None where there was nothing to do, or is not any more.

    Raises:
        StoreUnavailable: Another worker did not let go, and there is something to do still.
    """
    while look() is not None:
        with suppress(LeaseLost), leases.take(session_id, waiting=True) as lease:
            while lease is not Unheld.GONE and (task := look()) is not None:
                if lease is Unheld.BUSY:
                    raise busy(session_id, told)
                done = work(task, lease)
                if done is not None:
                    return done
    return None


class Edited(NamedTuple):
    """What an edit has done.

    Attributes:
        head: The head as it is stored now.
        taken: The entries that are not in the log any more.
    """

    head: Head
    taken: Sequence[Entry]


class Editor:
    """Edits logs.

    Args:
        store: The log, and what blocks keep beside it.
        leases: Which keep absorbing off meanwhile.
        absorber: Whose blocks forget.
        dead_letters: What blocks could not absorb.
        tombstones: What is to stay forgotten.
        windows: What is kept of logs in memory.
        sent: What models were sent of them.
    """

    def __init__(
        self,
        store: Store,
        leases: Leases,
        absorber: Absorber,
        dead_letters: DeadLetters,
        tombstones: Tombstones,
        windows: Windows,
        sent: SentContexts,
    ) -> None:
        self._store = store
        self._leases = leases
        self._absorber = absorber
        self._dead_letters = dead_letters
        self._tombstones = tombstones
        self._windows = windows
        self._sent = sent

    def pop(self, session_id: str, count: int, user_id: str | None = None) -> list[Message]:
        """Take messages back; see `AgentMemory.pop`."""
        told = "Nothing was taken back; try again."
        done = self.edit(session_id, popped(count), told, user_id=user_id)
        return [entry.message for entry in done.taken] if done else []

    def answer(
        self, part: Span, question: Message, drafts: Sequence[Draft], user_id: str | None
    ) -> Head | None:
        """Put another answer in a former one's place, see `plans.answered`; the head afterwards.

        Returns:
            None where the session is gone.

        Raises:
            InvalidInput: The session went on; nothing was changed.
        """
        plan = answered(part, question, drafts)
        told = "Nothing was replaced; try again."
        done = self.edit(part.session_id, plan, told, user_id=user_id)
        return done.head if done else None

    def save(
        self, session_id: str, messages: Sequence[Message], user_id: str | None, drafted: Drafts
    ) -> None:
        """Have a session consist of these messages; it begins if need be.

        Raises:
            SessionOfAnotherUser: It has another user.
            SessionDeleting: A deletion of it has begun.
            UnsupportedOperation: None are given, and messages of it have expired.
            StoreUnavailable: It is being absorbed, and what was absorbed is to be replaced.
        """
        self.change(session_id, lambda log: messages, user_id, drafted)

    def change(
        self,
        session_id: str,
        change: Callable[[list[Entry]], Iterable[Any]],
        user_id: str | None,
        drafted: Drafts,
    ) -> Head:
        """Have a session's log be what a function makes of it; as `save`. The head afterwards."""
        begins = empty_head(session_id, user_id, datetime.now(UTC))
        plan = changed(change, user_id, drafted)
        told = "Nothing was changed; try again."
        done = self.edit(session_id, plan, told, begins, user_id=user_id)
        if done:
            return done.head
        there = self._store.head(session_id) or begins
        check_owner(there, user_id)
        return there

    @apart
    def edit(
        self,
        session_id: str,
        plan: Plan,
        told: str,
        begins: Head | None = None,
        *,
        user_id: str | None = None,
    ) -> Edited | None:
        """Make a session's log what a plan says.

        A plan that only adds disturbs nobody and waits for nobody. Others take the lease.

        Args:
            session_id: The session.
            plan: Says what is to become of it; asked again whenever somebody else came first.
            told: See `under_lease`.
            begins: The head to begin a session with, where there is none.
            user_id: Whose it has to be; the plan sees no other's.

        Returns:
            What was done; None where there is nothing to do, or no such session.

        Raises:
            SessionOfAnotherUser: It is another's.
            SessionDeleting: The session is to begin, and a deletion of it is not finished.
            StoreUnavailable: Another worker did not let go of the session; nothing was changed.
        """
        known: LogEdit | None = None

        def look() -> LogEdit | None:
            nonlocal known
            if given_up():  # what was said since is not what was to be changed
                return None
            head = self._head(session_id, begins)
            if head is not None:
                check_owner(head, user_id)
            if head is None or known is None or known.before != head:
                known = plan(head, self._log(head)) if head else None
            return known

        def look_further() -> LogEdit | None:
            found = look()
            return None if found is None or found.only_adds else found

        while (found := look()) is not None:
            if found.only_adds:
                done = self._commit(found)
            else:
                done = under_lease(self._leases, session_id, look_further, self._edit, told)
            if done is not None:
                return done
        return None

    def reach(self, block: str, head: Head, end: int) -> int:
        """The seq after which a block forgets, when nothing after seq `end` is to count.

        It lies before what the block made, or failed to make, of messages on both sides: that is
        made anew of those that stay.
        """
        letters = self._dead_letters.dead(block, head.session_id)
        cut = [letter.first - 1 for letter in letters if letter.last > end]
        owner = Scope(head.user_id, head.session_id).owner
        cut += [
            record.first - 1
            for record in self._store.records(block, owner)
            if record.session_id == head.session_id and record.first <= end < record.last
        ]
        return max(head.expired, min([end, *cut]))  # what has expired could not be made anew

    def _head(self, session_id: str, begins: Head | None) -> Head | None:
        head = self._store.head(session_id)
        if head is None:
            return begins
        if not head.deleting:
            return head
        if begins is None:
            return None
        raise SessionDeleting(
            f"Session {session_id!r} is being deleted. Delete it again to finish that."
        )

    def _log(self, head: Head) -> Callable[[int, int], list[Entry]]:
        def read(after: int, upto: int) -> list[Entry]:
            if upto <= after:
                return []
            return read_of(self._store, head, after=after, limit=upto - after)

        return read

    def _edit(self, edit: LogEdit, lease: Lease) -> Edited | None:
        """Do it; None where another writer came first."""
        head, session_id = edit.before, edit.before.session_id
        names = dict.fromkeys((*self._absorber.blocks, *head.cursors))
        reaches = {
            name: head.expired if name in edit.anew else self.reach(name, head, edit.end)
            for name in names
        }
        cursors = {
            name: 0 if name in edit.anew else min(cursor, reaches[name])
            for name, cursor in head.cursors.items()
        }
        rewound = self._rewound(head, cursors, lease)
        if rewound is None or rewound.end != head.end:  # messages came
            return None
        for name, reach in reaches.items():
            self._forget(name, head, rewound, min(reach, edit.since), lease)
        self._dead_letters.forget(session_id, after=edit.since, lease=lease)
        self._sent.cut(session_id, min(edit.since, edit.end), lease)
        if not edit.redacts:
            self._tombstones.after(rewound, edit.end, lease)
        after = replace(edit.after, cursors=cursors, version=rewound.version)
        return self._commit(replace(edit, after=after), lease)

    def _rewound(self, head: Head, cursors: Mapping[str, int], lease: Lease) -> Head | None:
        """The head with its cursors put back, before anything is forgotten."""
        if cursors == head.cursors:
            return head
        moved = self._store.move(replace(head, cursors=dict(cursors)), lease=lease)
        if moved is not None:
            self._store.schedule(moved, 0)
        return moved

    def _forget(self, name: str, before: Head, rewound: Head, after: int, lease: Lease) -> None:
        """Have a block forget what derives from entries after a seq, whatever its cursor says: a
        worker that died may have left records past it."""
        scope = Scope(rewound.user_id, rewound.session_id, after, lease)
        block = self._absorber.blocks.get(name)
        if block is not None:
            self._absorber.forget(block, rewound, scope)
            return
        erase_derived(self._store, name, scope)
        if before.cursors.get(name, 0) > rewound.cursors.get(name, 0) > 0:  # it goes on from there
            logger.warning(
                "block %r absorbed session %r and is not configured now: what it keeps of messages "
                "that are gone was deleted in this store, and nowhere else",
                name,
                rewound.session_id,
            )

    def _commit(self, edit: LogEdit, lease: Lease | None = None) -> Edited | None:
        stored = self._store.rewrite(edit.after, edit.end, edit.entries, lease=lease)
        if stored is None:
            return None
        self._windows.forget(stored.session_id)
        self._store.schedule(stored, 0)
        return Edited(stored, edit.taken)
