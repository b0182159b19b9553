"""Putting another list of messages in the place of all that a session has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head, Lease, Scope, empty_head
from agent_memory.core.window import begun_anew, ruled
from agent_memory.engine.edit.forgetting import Forgetting
from agent_memory.engine.edit.rewinding import Rewinding
from agent_memory.engine.leases import Leases, busy
from agent_memory.engine.processing.dead_letters import DeadLetters
from agent_memory.errors import (
    LeaseLost,
    SessionDeleting,
    SessionOfAnotherUser,
    UnsupportedOperation,
)
from agent_memory.ltm_blocks.keepers import erase_derived
from agent_memory.stores.base import Store
from agent_memory.stores.log import entries_after

_WAIT = 60.0

Drafts = Callable[[Sequence[Message]], list[Draft]]
"""Counts what messages cost."""


@dataclass(frozen=True, slots=True)
class Change:
    """What makes a session's log another list of messages.

    Attributes:
        before: The head that it was made for.
        after: The head that goes with the other list; end, total and version as before.
        end: The seq up to which both lists agree, and the log stays.
        entries: What follows it.
    """

    before: Head
    after: Head
    end: int
    entries: list[Entry]

    @property
    def only_adds(self) -> bool:
        """Whether all that is there stays."""
        return self.end == self.before.end


def change(
    head: Head, log: Sequence[Entry], messages: Sequence[Message], drafted: Drafts
) -> Change:
    """What makes a log these messages. Pure.

    What agrees with the log from its beginning stays as it is there. A block that has absorbed more
    than that begins the session anew: only so does it forget the rest wherever it keeps it.

    Args:
        head: The session's.
        log: All that its log still has.
        messages: What it is to have.
        drafted: Counts those that are new.
    """
    same = _agreeing(log, messages)
    drafts = drafted(messages[same:])
    end, first = head.expired + same, log[0] if log else None
    before = first.before if first else 0
    total = log[same - 1].total if same else before
    entries = entries_after(head.session_id, end, total, drafts)
    cursors = {name: cursor if cursor <= end else 0 for name, cursor in head.cursors.items()}
    after = replace(_ruled(head, log, same, drafts), cursors=cursors)
    if same < len(log) and head.start >= end:  # of what the window began after, some is replaced
        after = begun_anew(after, first)
    return Change(head, after, end, entries)


class Replacement:
    """Replaces what sessions have.

    Args:
        store: The log, and what blocks keep beside it.
        leases: Which keep absorbing off meanwhile.
        rewinding: Puts cursors back.
        failures: What blocks could not absorb.
        forgetting: What is to stay forgotten.
        drafted: Counts messages.
    """

    def __init__(
        self,
        store: Store,
        leases: Leases,
        rewinding: Rewinding,
        failures: DeadLetters,
        forgetting: Forgetting,
        drafted: Drafts,
    ) -> None:
        self._store = store
        self._leases = leases
        self._rewinding = rewinding
        self._failures = failures
        self._forgetting = forgetting
        self._drafted = drafted

    def save(self, session_id: str, messages: Sequence[Message], user_id: str | None) -> None:
        """Have a session consist of these messages; it begins if need be.

        Raises:
            SessionOfAnotherUser: It has another user.
            SessionDeleting: A deletion of it has begun.
            UnsupportedOperation: None are given, and messages of it have expired.
            StoreUnavailable: It is being absorbed, and what was absorbed is to be replaced.
        """
        while True:
            with suppress(LeaseLost):  # taken over half-way: the log is as it was
                if self._saved(session_id, messages, user_id):
                    return

    def _saved(self, session_id: str, messages: Sequence[Message], user_id: str | None) -> bool:
        """Whether it was done: False where another writer came first."""
        plan = self._plan(session_id, messages, user_id)
        if plan.only_adds:  # that disturbs nobody, and waits for nobody
            return self._written(plan)
        with self._leases.hold(session_id, _WAIT) as lease:
            if lease is None:
                if self._store.head(session_id) is None:
                    return False
                raise busy(session_id, _WAIT, "Nothing was saved; try again.")
            plan = self._plan(session_id, messages, user_id)  # of what is there by now
            left = self._forgotten(plan, lease)
            return left is not None and self._written(left, lease)

    def _plan(self, session_id: str, messages: Sequence[Message], user_id: str | None) -> Change:
        head = self._store.head(session_id)
        if head is None:
            return change(
                empty_head(session_id, user_id, datetime.now(UTC)), [], messages, self._drafted
            )
        if head.deleting:
            raise SessionDeleting(
                f"Session {session_id!r} is being deleted. Delete it again to finish that."
            )
        if user_id is not None and head.user_id not in (None, user_id):
            raise SessionOfAnotherUser(f"Session {session_id!r} belongs to another user.")
        if head.expired and not messages:
            raise UnsupportedOperation(
                f"Session {session_id!r} cannot be made empty: messages of it have expired, and "
                "the numbers of new ones go on from theirs. Clear it."
            )
        count = head.end - head.expired
        log = self._store.read(session_id, after=head.expired, limit=count) if count else []
        plan = change(head, log, messages, self._drafted)
        if user_id is None or head.user_id is not None:
            return plan
        # blocks absorb what was nobody's once more, as the user's
        return replace(plan, after=replace(plan.after, user_id=user_id, cursors={}))

    def _forgotten(self, plan: Change, lease: Lease) -> Change | None:
        """The change that is left once blocks have forgotten; None where another came first."""
        head, cursors = plan.before, plan.after.cursors
        reaches = {name: cursors.get(name, 0) for name in head.cursors}
        rewound = self._rewinding.rewound(head, reaches, lease)
        if rewound is None:
            return None
        for name, reach in reaches.items():
            after = max(head.expired, reach)
            erase_derived(self._store, name, Scope(head.user_id, head.session_id, after, lease))
        self._failures.forget(head.session_id, after=plan.end, lease=lease)
        self._forgetting.after(head, plan.end, lease)
        return replace(plan, before=rewound, after=replace(plan.after, version=rewound.version))

    def _written(self, plan: Change, lease: Lease | None = None) -> bool:
        if plan.after == plan.before and plan.after.version and not plan.entries and plan.only_adds:
            return True  # it is so already
        stored = self._store.rewrite(plan.after, plan.end, plan.entries, lease=lease)
        if stored is not None:
            self._store.put_off(stored, 0)
        return stored is not None


def _agreeing(log: Sequence[Entry], messages: Sequence[Message]) -> int:
    """How many messages a log and a list have in common from their beginning.

    A message that was given without a time of its own agrees with one that was so too, whenever.
    """
    for count, (entry, message) in enumerate(zip(log, messages, strict=False)):
        if entry.message.to_json() != message.to_json():
            return count
    return min(len(log), len(messages))


def _ruled(head: Head, log: Sequence[Entry], same: int, drafts: Sequence[Draft]) -> Head:
    """The head with the system message of the list; one of before the log stays, if none comes."""
    changed = [*(entry.message for entry in log[same:]), *(draft.message for draft in drafts)]
    if not any(message.is_system for message in changed):
        return head
    return ruled(head, [*log[:same], *drafts])
