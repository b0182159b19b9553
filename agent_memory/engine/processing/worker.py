"""Worker threads that process sessions, in the background or in `agent-memory worker`.

Here are also heartbeats, and the backlog of sessions with many pending messages.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from time import monotonic, time
from typing import TYPE_CHECKING

from agent_memory.core.processes import (
    begin_anew_in_child,
    checked_lock,
    fork_safe_lock,
    wait_for_imports,
)
from agent_memory.core.records import Head, Lag, Scope
from agent_memory.core.threads import off_main_thread
from agent_memory.engine.processing.session_work import Processed, SessionWork
from agent_memory.engine.recall.runner import Backoff
from agent_memory.engine.system_records import Kind, SystemRecords
from agent_memory.errors import Damaged, ProcessEnds, StoreUnavailable
from agent_memory.models.loading import break_off_loading
from agent_memory.stores.base import SessionStore
from agent_memory.stores.damage import leave_out

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components

logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
_PAGE = 256
_EXIT_SECONDS = 2.0
_HOUSEKEEPING_SECONDS = 60.0
_REPLACED_SECONDS = 600.0
"""The seconds within which processes with the previous settings are expected to end."""

OnDone = Callable[[str, Processed], None]
"""Called on a worker thread with a session and the work done for it."""

_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


_WORKER = "worker"
_BLOCK = "block "


class Heartbeats:
    """The times at which workers last looked for work, and blocks last absorbed a batch."""

    def __init__(self, records: SystemRecords) -> None:
        self._records = records
        self._absorbed: dict[str, float] = {}  # times that are not stored yet, by block

    def absorbed(self, block: str) -> None:
        """Record that a block absorbed a batch. The next `beat` stores it."""
        self._absorbed[block] = time()

    def beat(self) -> None:
        """Store the heartbeats of this process's worker and blocks."""
        self._records.write(Kind.HEARTBEATS, _WORKER, at=time())
        for block in list(self._absorbed):
            at = self._absorbed.pop(block)
            self._records.write(Kind.HEARTBEATS, f"{_BLOCK}{block}", at=at)

    def read(self) -> tuple[float, dict[str, float]]:
        """Return the time of the newest heartbeat of workers, and of each block. 0 means never."""
        notes = self._records.read(Kind.HEARTBEATS)
        times = {name: float(note["at"]) for name, note in notes.items()}
        blocks = {
            name.removeprefix(_BLOCK): at for name, at in times.items() if name.startswith(_BLOCK)
        }
        return times.get(_WORKER, 0.0), blocks


_MOST = 1_000
_INLINE = 64  # the most messages that an update itself absorbs


class Backlog:
    """Sessions with many pending messages, which a worker absorbs after the next updates.

    Only blocks that recall pending messages use the backlog.
    """

    def __init__(self, blocks: Collection[str]) -> None:
        self._blocks = frozenset(blocks)
        self._lock = fork_safe_lock()
        self._sessions: OrderedDict[str, None] = OrderedDict()

    def note(self, block: str, lags: Sequence[Lag]) -> None:
        """Add the sessions of `lags`, the oldest first. `lags` begins with the newest session."""
        if block not in self._blocks:
            return
        with self._lock:
            for lag in reversed(lags):
                if len(self._sessions) < _MOST:
                    self._sessions.setdefault(lag.session_id)

    def takes(self, head: Head, block: str, upto: int) -> bool:
        """Add a session that has too many messages for an update. Return whether it was added."""
        if block not in self._blocks or upto - head.cursors.get(block, 0) <= _INLINE:
            return False
        with self._lock:
            self._sessions.setdefault(head.session_id)
        return True

    def holds(self, session_id: str, block: str) -> bool:
        """Return whether a block must absorb all pending messages of a session."""
        return bool(self._sessions) and block in self._blocks and session_id in self._sessions

    def next(self) -> str | None:
        """Return the next session and move it to the end. `done` removes it."""
        if not self._sessions:
            return None
        with self._lock:
            name = next(iter(self._sessions), None)
            if name is not None:
                self._sessions.move_to_end(name)
            return name

    def done(self, session_id: str, head: Head | None) -> None:
        """Remove a session if its blocks are up to date, or if its head is None."""
        if session_id in self._sessions and (
            head is None or not any(head.lag(block) for block in self._blocks)
        ):
            with self._lock:
                self._sessions.pop(session_id, None)


class FairQueue:
    """Pending sessions without duplicates. Users take turns. A user's sessions stay in order."""

    def __init__(self) -> None:
        self._pending: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        self._owners: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def __iter__(self) -> Iterator[str]:
        return iter(self._owners)

    def add(self, session_id: str, owner: str) -> None:
        """Add a session, unless it is queued already."""
        if session_id not in self._owners:
            self._owners[session_id] = owner
            self._pending.setdefault(owner, OrderedDict())[session_id] = None

    def take(self) -> tuple[str, str] | None:
        """Return the next session and its owner, who then comes last. None if none is left."""
        if not self._pending:
            return None
        owner, sessions = self._pending.popitem(last=False)
        session_id, _ = sessions.popitem(last=False)
        del self._owners[session_id]
        if sessions:
            self._pending[owner] = sessions
        return session_id, owner


class Housekeeping:
    """The work that a worker does before its first session, and every minute afterwards.

    A job is an absorbing block, the retention, or the spending limits. The store has the names of
    the known jobs. A new job makes all sessions due.
    """

    def __init__(self, parts: Components) -> None:
        self._parts, self._store, self._records = parts, parts.store, parts.records
        jobs = [*parts.absorber.blocks, parts.retention.job, parts.services.spending.job]
        self._jobs = {job for job in jobs if job}
        self._introduced = False

    def run(self) -> None:
        """Run the housekeeping. Safe to repeat and to interrupt."""
        if not self._introduced:
            self._introduce()
            self._introduced = True
        self._parts.heartbeats.beat()
        self._wake_again()
        self._parts.deletion.resume()

    def _introduce(self) -> None:
        recorded = self._records.read(Kind.JOBS).keys()
        new = self._jobs - recorded
        if new:
            self._store.schedule_all()  # sessions that a new block must absorb become due
        for name in sorted(recorded - self._jobs):
            self._records.drop(Kind.JOBS, name)
        for name in sorted(new):
            self._records.write(Kind.JOBS, name, again_at=time() + _REPLACED_SECONDS)

    def _wake_again(self) -> None:
        """Make all sessions due once more: a worker with old settings may have put them off."""
        times = {name: note["again_at"] for name, note in self._records.read(Kind.JOBS).items()}
        late = [name for name, at in times.items() if at is not None and at <= time()]
        if late:
            self._store.schedule_all()
        for name in late:
            self._records.write(Kind.JOBS, name, again_at=None)


@dataclass(eq=False, repr=False)
class Worker:
    """Processes due sessions on several threads. Users take turns.

    Sessions come from `wake` and from the store, which has the time at which each session is due.
    If a process ends before its work is done, another worker on the same store completes the work.
    A worker that does not poll processes only the sessions passed to `wake`.
    """

    _store: SessionStore
    _work: SessionWork
    _housekeeping: Callable[[], None]
    _count: int
    _on_done: OnDone | None = None
    _polls: bool = True

    def __post_init__(self) -> None:
        self._begin()
        _workers.add(self)
        begin_anew_in_child(self, Worker._begin)  # the next wake starts new threads

    def _begin(self) -> None:
        self._lock = checked_lock()  # acquired in one C step: see `core.threads.off_main_thread`
        self._changed = threading.Condition(self._lock)
        self._queue = FairQueue()
        self._busy: dict[str, bool] = {}  # sessions in work; True: work again
        self._drains: dict[object, dict[str, int]] = {}
        self._threads: list[threading.Thread] = []
        self._stopping = False
        self._backoff = Backoff()
        self._poll_at = 0.0 if self._polls else inf
        self._more = False
        self._housekeeping_at = 0.0
        self._trouble = ""

    def start(self) -> None:
        """Start the missing threads, as daemons, so that the process can exit without them."""
        with self._lock:
            while len(self._threads) < self._count and not self._stopping:
                name = f"memory-worker-{len(self._threads)}"
                thread = threading.Thread(target=self._run, daemon=True, name=name)
                thread.start()
                self._threads.append(thread)

    def wake(self, head: Head) -> None:
        self.start()
        with self._lock:
            if head.session_id in self._busy:
                self._busy[head.session_id] = True
            else:
                self._add(head)
                self._changed.notify_all()

    def work_off_many(self, block: str, lags: Sequence[Lag]) -> None:
        """Add sessions with many pending messages to the backlog, and start on it."""
        self._work.backlog.note(block, lags)
        self.work_off()

    def work_off(self) -> None:
        """Queue the next session of the backlog, if any. Each processed session queues the next."""
        backlog = self._work.backlog
        session_id = backlog.next()
        if session_id is None:
            return
        head = self._store.head(session_id)
        if head is not None:
            self.wake(head)
        else:
            backlog.done(session_id, None)

    @off_main_thread
    def drain(self, seconds: float | None = None) -> None:
        """Wait, at most `seconds`, until all queued sessions are processed or have failed once."""
        with self._lock:
            key = object()
            # a session that was woken while in work is processed once more
            left = {name: 1 + woken for name, woken in self._busy.items()}
            left.update(dict.fromkeys(self._queue, 1))
            self._drains[key] = left
            try:
                self._changed.wait_for(lambda: self._stopping or not left, seconds)
            finally:
                del self._drains[key]

    def run_once(self) -> bool:
        """Process each due session once, and wait for the end. Call it instead of `start`.

        A session that becomes due again meanwhile is left for the next run. Return whether all
        sessions could be processed.
        """
        visited: set[str] = set()
        self._keep_house()
        self._poll_at = inf  # the caller's thread polls, not the worker threads
        while not self._stopping:
            due = self._store.due(_PAGE + len(visited))
            heads = [head for head in due if head.session_id not in visited]
            if not heads:
                break
            for head in heads:
                visited.add(head.session_id)
                self.wake(head)
            self.drain()
        return all(map(self._backoff.idle, visited))

    def stop(self, seconds: float | None = None) -> bool:
        """Stop after the current sessions. Wait at most `seconds`. None means no limit.

        Return whether all threads have ended.
        """
        with self._lock:
            self._stopping = True
            self._changed.notify_all()
        deadline = None if seconds is None else monotonic() + seconds
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(None if deadline is None else max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (taken := self._next()) is not None:
            session_id, owner = taken
            again: float | None = None
            try:
                processed = self._work.process(session_id, scheduled=True)
                again = processed.again
                self._backoff.succeeded(session_id)
                if self._on_done is not None:
                    self._on_done(session_id, processed)
                if processed.absorbed and not any(result.error for result in processed.absorbed):
                    self.work_off()
            except ProcessEnds:
                return
            except Damaged as error:
                leave_out(error)
                self._postpone(session_id)
            except StoreUnavailable as error:
                text = "session %r not processed; it will be tried again: %s"
                logger.warning(text, session_id, error)
                self._postpone(session_id)
            except BaseException:  # even a sys.exit() in one session must not end the thread
                logger.exception("session %r not processed; it will be tried again", session_id)
                self._postpone(session_id)
            self._done(session_id, owner, again)

    def _next(self) -> tuple[str, str] | None:
        """Wait for the next session and return it. Return None if the thread must stop."""
        while True:
            with self._lock:
                if self._stopping:
                    return None
                wait = self._poll_at - monotonic()
                if wait > 0 and (self._queue or not self._more):
                    taken = self._queue.take()
                    if taken is not None:
                        self._busy[taken[0]] = False
                        return taken
                    self._changed.wait(min(wait, POLL_SECONDS))
                    continue
                self._poll_at, self._more = monotonic() + POLL_SECONDS, False
            self._poll()

    def _poll(self) -> None:
        self._keep_house()
        try:
            heads = self._store.due(_PAGE)
        except Exception as error:  # noqa: BLE001 - the store is down: this thread continues
            if self._trouble != str(error):
                logger.warning("due sessions cannot be read; it will be tried again: %s", error)
            self._trouble = str(error)
            return
        self._trouble = ""
        with self._lock:
            for head in heads:
                if head.session_id not in self._busy and self._backoff.ready(head.session_id):
                    self._add(head)
            self._more = len(heads) == _PAGE and bool(self._queue)
            self._changed.notify_all()

    def _keep_house(self) -> None:
        with self._lock:
            if monotonic() < self._housekeeping_at:
                return
            self._housekeeping_at = inf
        try:
            self._housekeeping()
        except Exception:  # housekeeping must not block sessions
            logger.exception("a worker's housekeeping failed, and will be tried again")
        finally:
            self._housekeeping_at = monotonic() + _HOUSEKEEPING_SECONDS

    def _add(self, head: Head) -> None:
        self._queue.add(head.session_id, Scope(head.user_id, head.session_id).owner)

    def _postpone(self, session_id: str) -> None:
        """Delay a session whose processing failed, so that it does not block other sessions."""
        self._backoff.failed(session_id)
        with suppress(Exception):  # the store is down: at least this worker waits
            if head := self._store.head(session_id):
                wait = max(POLL_SECONDS, self._backoff.seconds(session_id))
                self._store.schedule(head, wait)

    def _done(self, session_id: str, owner: str, again: float | None) -> None:
        with self._lock:
            woken = self._busy.pop(session_id)
            if woken or again == 0:
                self._queue.add(session_id, owner)
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
