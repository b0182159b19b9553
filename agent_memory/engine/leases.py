"""One worker a session, and one at a time at what has a name: in the store, for short times, so
that a dead worker's soon run out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from enum import Enum
from time import monotonic, sleep
from uuid import uuid4

from agent_memory.core.records import Lease
from agent_memory.core.threads import repeated
from agent_memory.errors import StoreError, StoreUnavailable
from agent_memory.stores.base import SessionStore
from agent_memory.stores.damage import head_or_rest

LEASE_SECONDS = 10.0
_BEAT_SECONDS = LEASE_SECONDS / 4
_POLL_SECONDS = 0.02
_WAIT_SECONDS = 60.0
_MOST_PAUSE_SECONDS = 0.2


class Unheld(Enum):
    """Why a session's lease could not be had."""

    GONE = "there is no such session"
    BUSY = "another worker did not give it back"


class Leases:
    """Takes leases on sessions and renews them while the work goes on.

    Args:
        store: Where they are kept.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    @contextmanager
    def hold(self, session_id: str, *, waiting: bool = False) -> Iterator[Lease | None]:
        """As `take`, for callers who go on alike whyever the lease could not be had: None then."""
        with self.take(session_id, waiting=waiting) as taken:
            yield None if isinstance(taken, Unheld) else taken

    @contextmanager
    def take(self, session_id: str, *, waiting: bool = False) -> Iterator[Lease | Unheld]:
        """Hold a session's lease, however long the work takes; it is renewed meanwhile.

        Args:
            session_id: The session; one that does not exist (any more) has no lease to be had.
            waiting: Wait a minute for another worker to give it back.

        Yields:
            The lease, to be handed on with every write; or why it could not be had. Of a session
            that is gone nothing else is known: it may have begun anew by now.
        """
        lease = Lease(session_id, uuid4().hex)
        deadline = monotonic() + waiting * _WAIT_SECONDS
        while not self._store.lease(session_id, lease.owner, LEASE_SECONDS):
            if head_or_rest(self._store, session_id) is None:
                yield Unheld.GONE
                return
            if monotonic() >= deadline:
                yield Unheld.BUSY
                return
            sleep(_POLL_SECONDS)
        try:
            with _renewed(lambda: self.renew(lease)):
                yield lease
        finally:
            with suppress(StoreError):  # the work is done; the lease runs out by itself
                self._store.release(session_id, lease.owner)

    def renew(self, lease: Lease) -> bool:
        """Whether the lease is still held; asking renews it.

        One that another worker has had meanwhile, even if he gave it back, is not taken again: what
        this worker knows of the session is of before.
        """
        return self._store.lease(lease.session_id, lease.owner, LEASE_SECONDS, renew=True)


def busy(session_id: str, told: str) -> StoreUnavailable:
    """What to raise where another worker did not give a session's lease back.

    Args:
        session_id: The session.
        told: What that means for the caller, and what to do.
    """
    return StoreUnavailable(
        f"Session {session_id!r} is being absorbed and did not let go within {_WAIT_SECONDS:g} s. "
        f"{told}"
    )


class Locks:
    """Takes named locks.

    Args:
        store: Where they are kept.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Hold a lock, however long the work takes; it is renewed meanwhile.

        Raises:
            StoreUnavailable: Another worker did not give it back for a minute.
        """
        owner = uuid4().hex
        deadline, pause = monotonic() + _WAIT_SECONDS, _POLL_SECONDS
        while not self._store.lock(name, owner, LEASE_SECONDS):
            if monotonic() >= deadline:
                raise StoreUnavailable(
                    f"Another worker holds what this one waits for, since {_WAIT_SECONDS:g} "
                    "seconds. It is tried again later."
                )
            sleep(pause)  # a model may be asked meanwhile, which takes seconds
            pause = min(2 * pause, _MOST_PAUSE_SECONDS)
        try:
            with _renewed(lambda: self._store.lock(name, owner, LEASE_SECONDS, renew=True)):
                yield
        finally:
            with suppress(StoreError):  # the work is done; the lock runs out by itself
                self._store.unlock(name, owner)


def _renewed(renew: Callable[[], bool]) -> AbstractContextManager[None]:
    """Renew what is held, until the work is done or it is another's."""

    def keep() -> bool:
        try:
            return renew()
        except StoreError:  # if that lasts, the worker notices when it writes
            return True

    return repeated("lease", _BEAT_SECONDS, keep)
