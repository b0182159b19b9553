"""Taking out of shared namespaces what an agent wrote there, and leaving what others did."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from agent_memory.core.emptying import emptied
from agent_memory.core.ids import share_of, shared_user
from agent_memory.core.records import Entry, Head, Lease
from agent_memory.core.window import begun_anew, ruled
from agent_memory.engine.edit.rewinding import Rewinding
from agent_memory.engine.leases import Leases, busy
from agent_memory.engine.paging import all_heads
from agent_memory.engine.processing.dead_letters import DeadLetters
from agent_memory.engine.sharing.authorship import Authors, is_by
from agent_memory.engine.sharing.grants import Grants
from agent_memory.engine.windows import Windows
from agent_memory.errors import LeaseLost
from agent_memory.stores.base import Store

_WAIT = 30.0
_PAGE = 500


class Redaction:
    """What the deletion of a user, or of a namespace, takes from shared namespaces.

    Args:
        store: The store.
        leases: Which keep other workers off meanwhile.
        rewinding: Has blocks forget.
        failures: What blocks could not absorb.
        grants: Say where an agent took part.
        authors: Say where in a session it began.
        windows: What is kept of logs in memory.
    """

    def __init__(
        self,
        store: Store,
        leases: Leases,
        rewinding: Rewinding,
        failures: DeadLetters,
        grants: Grants,
        authors: Authors,
        windows: Windows,
    ) -> None:
        self._store = store
        self._leases = leases
        self._rewinding = rewinding
        self._failures = failures
        self._grants = grants
        self._authors = authors
        self._windows = windows

    def close(self, user_id: str) -> None:
        """Shut a user, or all agents of a namespace, out, before anything is erased."""
        share = share_of(user_id)
        if share is None:
            self._grants.close(user_id)
        else:
            self._grants.drop_share(share)

    def erase(self, user_id: str) -> None:
        """Empty what a user wrote as an agent, and forget its grants. Idempotent."""
        if share_of(user_id) is not None:
            return
        for share in self._grants.shares_of(user_id):
            for head in all_heads(self._store, shared_user(share)):
                self._session(head, user_id)
        self._grants.drop_agent(user_id)

    def late(self, agent: str, session_id: str) -> None:
        """An agent that may be deleted by now has just written to a session."""
        head = self._store.head(session_id)
        if head is not None and share_of(session_id) not in self._grants.shares_of(agent):
            self._session(head, agent)

    def _session(self, head: Head, agent: str) -> None:
        done = head.deleting or not self._took_part(head, agent)
        while not done:
            with suppress(LeaseLost):  # taken over half-way: what was forgotten is absorbed again
                self._redact(head.session_id, agent)
                done = True

    def _took_part(self, head: Head, agent: str) -> bool:
        noted = self._authors.first(agent, head.session_id) is not None
        if noted or is_by(head.system, agent):
            return True
        after = head.expired
        while page := self._store.read(head.session_id, after=after, limit=_PAGE):
            if any(is_by(entry.message, agent) for entry in page):
                return True
            after = page[-1].seq
        return False

    def _redact(self, session_id: str, agent: str) -> None:
        with self._leases.hold(session_id, _WAIT) as lease:
            while True:
                head = self._store.head(session_id)
                if head is None or head.deleting:
                    return
                if lease is None:
                    raise busy(
                        session_id, _WAIT, "The deletion is finished later; call delete_user again."
                    )
                if self._rewrite(head, agent, lease):
                    self._windows.forget(session_id)
                    self._authors.drop(agent, session_id)
                    return

    def _rewrite(self, head: Head, agent: str, lease: Lease) -> bool:
        """Empty an agent's messages; False where another writer came first."""
        log = self._store.read(head.session_id, after=head.expired)
        said = [entry.seq for entry in log if is_by(entry.message, agent)]
        noted = self._authors.first(agent, head.session_id)
        if noted is not None and noted <= head.expired:  # it wrote what the log has no more, too
            said = [noted, *said]
        if not said and is_by(head.system, agent):  # nobody knows since when
            said = [1]
        if not said:
            return True
        first = said[0]
        reaches = self._rewinding.reaches(head, max(first - 1, head.expired))
        rewound = self._rewinding.rewound(head, reaches, lease)
        if rewound is None or rewound.end != head.end or (log and log[-1].seq != head.end):
            return False
        # where it wrote what the log has no more, what was made of that goes too, for good
        since = {name: min(after, first - 1) for name, after in reaches.items()}
        self._rewinding.forget(rewound, since, lease)
        self._failures.forget(head.session_id, after=first - 1, lease=lease)
        kept = max(first - 1, head.expired)
        entries = [_without(entry, agent) for entry in log if entry.seq > kept]
        stored = self._store.rewrite(
            _revised(rewound, log, agent, first), kept, entries, lease=lease
        )
        if stored is None:
            return False
        self._store.put_off(stored, 0)
        return True


def _without(entry: Entry, agent: str) -> Entry:
    """An entry, emptied if it is the agent's. Its tokens stay, so that no running total changes;
    without the name of their encoding, a context counts them anew."""
    if not is_by(entry.message, agent):
        return entry
    return replace(entry, message=emptied(entry.message), encoding="")


def _revised(head: Head, log: list[Entry], agent: str, first: int) -> Head:
    """The head without what an agent said from a seq on; without a summary, the window begins with
    the log."""
    if is_by(head.system, agent):
        head = ruled(head, [entry for entry in log if not is_by(entry.message, agent)])
    if head.summary is not None and head.summary.upto >= first and log:
        head = begun_anew(head, log[0])
    return head
