"""Leases on sessions, and named locks. A lease or lock has one holder at a time.

Leases and locks are stored with the sessions, and hold for all processes. If a holder dies, its
lease or lock expires after 10 seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
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
    """The reason why a session's lease was not available."""

    GONE = "there is no such session"
    BUSY = "another worker did not release it"


class Leases:
    def __init__(self, store: SessionStore) -> None:
        self._store = store

    @contextmanager
    def hold(self, session_id: str, *, waiting: bool = False) -> Iterator[Lease | None]:
        """Hold a lease like `take`, but yield None if the lease is not available."""
        with self.take(session_id, waiting=waiting) as taken:
            yield None if isinstance(taken, Unheld) else taken

    @contextmanager
    def take(self, session_id: str, *, waiting: bool = False) -> Iterator[Lease | Unheld]:
        """Hold a session's lease, and renew it until the `with` block ends.

        With `waiting`, wait up to a minute until another worker releases the lease. Yield the
        lease, which must be passed to every write, or the reason why the lease is not available.
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
        release = partial(self._store.release, session_id, lease.owner)
        with _renewed(partial(self.renew, lease), release):
            yield lease

    def renew(self, lease: Lease) -> bool:
        """Renew a lease and return whether it is still held.

        If another worker has held the lease meanwhile, the lease is not renewed, even if it is free
        now. The other worker may have changed the session after the caller read it.
        """
        return self._store.lease(lease.session_id, lease.owner, LEASE_SECONDS, renew=True)


def busy(session_id: str, consequence: str) -> StoreUnavailable:
    """Return the error for a lease that another worker did not release."""
    return StoreUnavailable(
        f"Another worker did not release session {session_id!r} within {_WAIT_SECONDS:g} s. "
        f"{consequence}"
    )


class Locks:
    def __init__(self, store: SessionStore) -> None:
        self._store = store

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Wait for a named lock for up to a minute, and renew it until the `with` block ends."""
        owner = uuid4().hex
        deadline, pause = monotonic() + _WAIT_SECONDS, _POLL_SECONDS
        while not self._store.lock(name, owner, LEASE_SECONDS):
            if monotonic() >= deadline:
                raise StoreUnavailable(
                    f"Another worker has held a lock for more than {_WAIT_SECONDS:g} s. The work "
                    "will be tried again later."
                )
            sleep(pause)  # the holder may call a model, which takes seconds
            pause = min(2 * pause, _MOST_PAUSE_SECONDS)
        renew = partial(self._store.lock, name, owner, LEASE_SECONDS, renew=True)
        with _renewed(renew, partial(self._store.unlock, name, owner)):
            yield


@contextmanager
def _renewed(renew: Callable[[], bool], release: Callable[[], object]) -> Iterator[None]:
    """Renew a lease or lock until the `with` block ends or the lease is lost. Then release it."""

    def keep() -> bool:
        try:
            return renew()
        except StoreError:  # if the failure lasts, the holder's next write fails too
            return True

    try:
        with repeated("lease", _BEAT_SECONDS, keep):
            yield
    finally:
        with suppress(StoreError):  # a lease or lock that is not released expires
            release()
