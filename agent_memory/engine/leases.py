"""Leases on sessions, and named locks. A lease or lock has one holder at a time.

Leases and locks are stored with the sessions, and hold for all processes. If a holder dies, its
lease or lock expires after 10 seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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


class Leases:
    def __init__(self, store: SessionStore) -> None:
        self._store = store

    @contextmanager
    def hold(
        self, session_id: str, *, waiting: bool = False, consequence: str | None = None
    ) -> Iterator[Lease | None]:
        """Hold a session's lease, and renew it until the `with` block ends.

        Yield the lease, which must be passed to every write. Yield None if there is no such
        session, or if another worker holds it. With `waiting`, wait up to a minute until the other
        worker releases it. With `consequence`, wait too, and then raise `StoreUnavailable`.
        `consequence` is the end of the error's text: what was not done.
        """
        lease = Lease(session_id, uuid4().hex)
        deadline = monotonic() + (waiting or consequence is not None) * _WAIT_SECONDS
        while not self._store.lease(session_id, lease.owner, LEASE_SECONDS):
            is_gone = head_or_rest(self._store, session_id) is None
            if is_gone or monotonic() >= deadline:
                if consequence is not None and not is_gone:
                    raise StoreUnavailable(
                        f"Another worker did not release session {session_id!r} within "
                        f"{_WAIT_SECONDS:g} s. {consequence}"
                    )
                yield None
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
