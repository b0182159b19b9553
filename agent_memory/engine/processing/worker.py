"""Threads that tend sessions while updates return at once; also the `agent-memory worker`."""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from math import inf
from time import monotonic

from agent_memory.core.processes import begin_anew_in_child, wait_for_imports
from agent_memory.core.records import Head, Scope
from agent_memory.engine.backoff import Backoff
from agent_memory.engine.processing.session_work import Tended, Tender
from agent_memory.engine.processing.turns import Turns
from agent_memory.models.loading import break_off_loading
from agent_memory.stores.base import SessionStore

logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
_PAGE = 64
_EXIT_SECONDS = 2.0
_PREPARE_SECONDS = 60.0

Told = Callable[[str, Tended], None]
"""Called, on one of the worker's threads, with a session and what was done for it."""

_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


class Worker:
    """Tends the sessions that are due, several at a time, users in turn.

    Sessions come from `wake` and from the store, which remembers what is due: whatever a process
    leaves undone, the next worker over the same store finds.

    Args:
        store: What is due.
        tender: Works on one session.
        prepare: Done before the first session, and every minute.
        threads: How many sessions at a time.
        told: Called with what was done for a session.
    """

    def __init__(
        self,
        store: SessionStore,
        tender: Tender,
        prepare: Callable[[], None],
        threads: int,
        told: Told | None = None,
    ) -> None:
        self._store = store
        self._tender = tender
        self._prepare = prepare
        self._count = threads
        self._told = told
        self._begin()
        _workers.add(self)
        begin_anew_in_child(self, Worker._begin)  # the next wake starts new threads

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._turns = Turns()
        self._busy: dict[str, bool] = {}  # whether each was woken again meanwhile
        self._drains: dict[object, dict[str, int]] = {}
        self._threads: list[threading.Thread] = []
        self._stopping = False
        self._rests = Backoff()
        self._poll_at = 0.0
        self._more = False
        self._prepare_at = 0.0
        self._trouble = ""

    def start(self) -> None:
        """Start the threads, if they do not run. They are daemons: an exit need not wait."""
        with self._changed:
            while len(self._threads) < self._count and not self._stopping:
                name = f"memory-worker-{len(self._threads)}"
                thread = threading.Thread(target=self._run, daemon=True, name=name)
                thread.start()
                self._threads.append(thread)

    def wake(self, head: Head) -> None:
        """Have a session tended soon."""
        self.start()
        with self._changed:
            if head.session_id in self._busy:
                self._busy[head.session_id] = True
            else:
                self._add(head)
                self._changed.notify_all()

    def drain(self) -> None:
        """Wait until all sessions that wait now have been tended. What rests is left for later."""
        with self._changed:
            key = object()
            # of one that was woken while it is tended, the next turn counts too
            left = {name: 1 + woken for name, woken in self._busy.items()}
            left.update(dict.fromkeys(self._turns, 1))
            self._drains[key] = left
            try:
                self._changed.wait_for(lambda: self._stopping or not left)
            finally:
                del self._drains[key]

    def run_once(self) -> None:
        """Instead of `start`: tend each session that is due, and wait for that.

        One that falls due again meanwhile is left for the next time.
        """
        seen: set[str] = set()
        self._prepare_now()
        self._poll_at = inf  # this thread does it
        while not self._stopping:
            due = self._store.due(_PAGE + len(seen))
            heads = [head for head in due if head.session_id not in seen]
            if not heads:
                return
            for head in heads:
                seen.add(head.session_id)
                self.wake(head)
            self.drain()

    def stop(self, seconds: float | None = None) -> None:
        """Stop after what is under way; its leases are given back.

        Args:
            seconds: How long to wait for it; None: as long as it takes.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        deadline = None if seconds is None else monotonic() + seconds
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(None if deadline is None else max(0.0, deadline - monotonic()))

    def _run(self) -> None:
        while (taken := self._next()) is not None:
            session_id, owner = taken
            again: float | None = None
            try:
                tended = self._tender.tend(session_id, turn=True)
                again = tended.again
                self._rests.succeeded(session_id)
                if self._told is not None:
                    self._told(session_id, tended)
            except BaseException:  # one session's trouble, even a sys.exit(), must not end a thread
                logger.exception("session %r not tended; it will be tried again", session_id)
                self._rest(session_id)
            self._done(session_id, owner, again)

    def _next(self) -> tuple[str, str] | None:
        """The next session to tend, as soon as there is one; None to stop."""
        while True:
            with self._changed:
                if self._stopping:
                    return None
                wait = self._poll_at - monotonic()
                if wait > 0 and (self._turns or not self._more):
                    taken = self._turns.take()
                    if taken is not None:
                        self._busy[taken[0]] = False
                        return taken
                    self._changed.wait(min(wait, POLL_SECONDS))
                    continue
                self._poll_at, self._more = monotonic() + POLL_SECONDS, False
            self._poll()

    def _poll(self) -> None:
        """Line up what is due in the store, whoever left it there."""
        self._prepare_now()
        try:
            heads = self._store.due(_PAGE)
        except Exception as error:  # noqa: BLE001 - the store is down: this thread lives on
            if self._trouble != str(error):
                logger.warning("what is due cannot be read, and is tried again: %s", error)
            self._trouble = str(error)
            return
        self._trouble = ""
        with self._changed:
            fresh = [
                head
                for head in heads
                if head.session_id not in self._busy and not self._rests.seconds(head.session_id)
            ]
            for head in fresh:
                self._add(head)
            self._more = len(heads) == _PAGE and bool(fresh)
            self._changed.notify_all()

    def _prepare_now(self) -> None:
        with self._changed:
            if monotonic() < self._prepare_at:
                return
            self._prepare_at = inf
        try:
            self._prepare()
        except Exception:  # they must not keep the sessions waiting
            logger.exception("a worker's first steps failed, and will be tried again")
        finally:
            self._prepare_at = monotonic() + _PREPARE_SECONDS

    def _add(self, head: Head) -> None:
        self._turns.add(head.session_id, Scope(head.user_id, head.session_id).owner)

    def _rest(self, session_id: str) -> None:
        """Let a session that could not be tended wait, so that it keeps nobody's place."""
        self._rests.failed(session_id)
        with suppress(Exception):  # the store is down: then at least this worker remembers
            if head := self._store.head(session_id):
                wait = max(POLL_SECONDS, self._rests.seconds(session_id))
                self._store.put_off(head, wait)

    def _done(self, session_id: str, owner: str, again: float | None) -> None:
        with self._changed:
            woken = self._busy.pop(session_id)
            if woken or again == 0:
                self._turns.add(session_id, owner)
            for left in self._drains.values():
                if session_id in left:
                    left[session_id] = 1 if again == 0 else left[session_id] - 1
                    if not left[session_id]:
                        del left[session_id]
            self._changed.notify_all()


@atexit.register
def _at_exit() -> None:
    workers = list(_workers)
    deadline = monotonic() + _EXIT_SECONDS
    for worker in workers:
        worker.stop(0)
    break_off_loading()
    for worker in workers:
        worker.stop(max(0.0, deadline - monotonic()))
    wait_for_imports()
