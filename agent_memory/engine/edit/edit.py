"""Edits of a stored log.

An edit first sets cursors back (a cursor is the last seq that a block has absorbed). The edit then
deletes records of blocks, and changes the log last. If the edit stops before the last step, the log
is unchanged, and blocks derive the deleted records again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head, Lease, Record, Scope, Span
from agent_memory.core.threads import is_unwanted, off_main_thread
from agent_memory.engine.edit.plans import Drafts, LogEdit, Plan, answered, changed, popped
from agent_memory.engine.leases import Leases
from agent_memory.engine.paging import range_of
from agent_memory.errors import LeaseLost, SessionDeleting
from agent_memory.ltm_blocks.registry import FORGOTTEN, erase_derived, moved_tombstones
from agent_memory.stores.kernel.log import check_owner

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components

logger = logging.getLogger(__name__)


Task = TypeVar("Task")
Done = TypeVar("Done")


def under_lease(
    leases: Leases,
    session_id: str,
    find: Callable[[], Task | None],
    work: Callable[[Task, Lease], Done | None],
    consequence: str,
) -> Done | None:
    """Do a task on a session under its lease. Return the result, or None if there is no task.

    `find` returns the task for the session's current state. It is called again if the session is
    gone, the lease is lost, or `work` returns None because another writer came first. If another
    worker holds the session for a minute, `StoreUnavailable` is raised. `consequence` is the end of
    its text: what was not done.
    """
    while find() is not None:
        with suppress(LeaseLost), leases.hold(session_id, consequence=consequence) as lease:
            while lease is not None and (task := find()) is not None:
                done = work(task, lease)
                if done is not None:
                    return done
    return None


class Edited(NamedTuple):
    """The stored head, and the entries that left the log."""

    head: Head
    taken: Sequence[Entry]


class Editor:
    def __init__(self, parts: Components) -> None:
        self._parts, self._store, self._absorber = parts, parts.store, parts.absorber

    def pop(self, session_id: str, count: int, user_id: str | None = None) -> list[Message]:
        consequence = "Nothing was taken back; try again."
        done = self.edit(session_id, popped(count), consequence, user_id=user_id)
        return [entry.message for entry in done.taken] if done else []

    def answer(
        self, part: Span, question: Message, drafts: Sequence[Draft], user_id: str | None
    ) -> Head | None:
        """Replace the answer to a question. Return the new head, or None if there is no session."""
        plan = answered(part, question, drafts)
        consequence = "Nothing was replaced; try again."
        done = self.edit(part.session_id, plan, consequence, user_id=user_id)
        return done.head if done else None

    def change(
        self,
        session_id: str,
        change: Callable[[list[Entry]], Iterable[Any]],
        user_id: str | None,
        drafted: Drafts,
    ) -> Head:
        """Replace a session's log with the result of a function. Return the new head.

        A session that does not exist is created.
        """
        begins = Head(session_id, user_id, created_at=datetime.now(UTC))
        plan = changed(change, user_id, drafted, self._parts.config.redact)
        consequence = "Nothing was changed; try again."
        done = self.edit(session_id, plan, consequence, begins, user_id=user_id)
        if done:
            return done.head
        head = self._store.head(session_id) or begins
        check_owner(head, user_id)
        return head

    @off_main_thread
    def edit(
        self,
        session_id: str,
        plan: Plan,
        consequence: str,
        begins: Head | None = None,
        *,
        user_id: str | None = None,
    ) -> Edited | None:
        """Change a session's log according to a plan.

        An edit that only adds entries takes no lease. Every other edit takes the session's lease.
        The plan is called again after each concurrent write. `begins` is the head with which a
        missing session is created. Return None if there is no session, or nothing to do.
        """
        planned: LogEdit | None = None

        def find() -> LogEdit | None:
            nonlocal planned
            if is_unwanted():  # the caller no longer waits: do not change newer messages
                return None
            head = self._head(session_id, begins)
            if head is not None:
                check_owner(head, user_id)
            if head is None or planned is None or planned.before != head:
                planned = plan(head, partial(range_of, self._store, head)) if head else None
            return planned

        def find_conflicting() -> LogEdit | None:
            change = find()
            return None if change is None or change.only_adds else change

        while (change := find()) is not None:
            if change.only_adds:
                done = self._commit(change)
            else:
                leases, edit = self._parts.leases, self._edit
                done = under_lease(leases, session_id, find_conflicting, edit, consequence)
            if done is not None:
                return done
        return None

    def reach(self, block: str, head: Head, end: int) -> int:
        """Return the seq after which a block deletes its records if a log is cut after `end`.

        Records and dead letters with messages on both sides of `end` are deleted too. The block
        then absorbs their messages again.
        """
        letters = self._parts.dead_letters.dead(block, head.session_id)
        cut = [letter.first - 1 for letter in letters if letter.last > end]
        owner = Scope(head.user_id, head.session_id).owner
        cut += [
            record.first - 1
            for record in self._store.records(block, owner)
            if record.session_id == head.session_id and record.first <= end < record.last
        ]
        # records of expired entries cannot be derived again
        return max(head.expired, min([end, *cut]))

    def _head(self, session_id: str, begins: Head | None) -> Head | None:
        head = self._store.head(session_id)
        if head is None:
            return begins
        if not head.deleting:
            return head
        if begins is None:
            return None
        raise SessionDeleting(
            f"Session {session_id!r} is being deleted. Delete it again to finish the deletion."
        )

    def _edit(self, edit: LogEdit, lease: Lease) -> Edited | None:
        head, session_id = edit.before, edit.before.session_id
        names = dict.fromkeys((*self._absorber.blocks, *head.cursors))
        anew = edit.anew
        if edit.after.user_id == head.user_id:  # these blocks can forget a part of a session
            anew -= self._absorber.blocks.keys()
        reaches = {
            name: head.expired if name in anew else self.reach(name, head, edit.end)
            for name in names
        }
        cursors = {
            name: 0 if name in anew else min(cursor, reaches[name])
            for name, cursor in head.cursors.items()
        }
        rewound = self._rewound(head, cursors, lease)
        if rewound is None or rewound.end != head.end:  # new messages arrived
            return None
        for name, reach in reaches.items():
            self._forget(name, head, rewound, min(reach, edit.since), lease)
        self._parts.dead_letters.forget(session_id, after=edit.since, lease=lease)
        self._parts.prompt_log.cut(session_id, min(edit.since, edit.end), lease)
        moved, records = edit.moved, {}
        if not edit.redacts:
            seqs = {old.seq: new.seq for old, new in moved}
            records[FORGOTTEN] = moved_tombstones(self._store, rewound, edit.end, seqs)
        after = replace(edit.after, cursors=cursors, version=rewound.version)
        done = self._commit(replace(edit, after=after), lease, records)
        if done is not None and moved:
            self._parts.pins.follow(head, moved)
        return done

    def _rewound(self, head: Head, cursors: Mapping[str, int], lease: Lease) -> Head | None:
        """Store the head with these cursors and return it. None if another writer was faster."""
        if cursors == head.cursors:
            return head
        moved = self._store.move(replace(head, cursors=dict(cursors)), lease=lease)
        if moved is not None:
            self._store.schedule(moved, 0)
        return moved

    def _forget(self, name: str, before: Head, rewound: Head, after: int, lease: Lease) -> None:
        """Delete a block's records that derive from entries after a seq.

        Records after the cursor are deleted too: a worker may have died before it moved the cursor.
        """
        scope = Scope(rewound.user_id, rewound.session_id, after, lease)
        block = self._absorber.blocks.get(name)
        if block is not None:
            self._absorber.forget(block, rewound, scope)
            return
        erase_derived(self._store, name, scope)
        # a block that is configured again first deletes its own data, but only if its cursor is 0
        if before.cursors.get(name, 0) > rewound.cursors.get(name, 0) > 0:
            logger.warning(
                "block %r absorbed session %r and is not configured now: its records of removed "
                "messages were deleted in this store, but not in other databases",
                name,
                rewound.session_id,
            )

    def _commit(
        self,
        edit: LogEdit,
        lease: Lease | None = None,
        records: Mapping[str, Sequence[Record]] = MappingProxyType({}),
    ) -> Edited | None:
        log = edit.after, edit.end, edit.entries
        stored = self._store.rewrite(*log, lease=lease, records=records)
        if stored is None:
            return None
        self._parts.windows.forget(stored.session_id)
        self._store.schedule(stored, 0)
        return Edited(stored, edit.taken)
