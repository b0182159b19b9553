"""Storage of observations: in the fact store, with a search index in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Record, Scope
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.base import Resources
from agent_memory.ltm_blocks.change_log import (
    Key,
    Trail,
    changed_since,
    new_version,
    trail_of,
    version_of,
    version_owner,
    went_on,
)
from agent_memory.ltm_blocks.keyed_records import KeyedRecords, forget, kept_with
from agent_memory.ltm_blocks.registry import register
from agent_memory.ltm_blocks.spatial.observation import Observation
from agent_memory.stores.base import RecordStore

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.spatial.index import PlaceIndex

_MOST_KEPT = 200_000


class Indexes:
    """A cache of indexes by owner, valid for a version of the owner's records. Thread-safe.

    The last index stays, however large.

    Args:
        build: Builds an index.
    """

    def __init__(self, build: Callable[[Sequence[Observation]], PlaceIndex]) -> None:
        self._lock = fork_safe_lock(own=True)
        self._kept: OrderedDict[str, tuple[tuple[Key, ...], PlaceIndex]] = OrderedDict()
        self.build = build

    def get(self, owner: str, version: Key) -> PlaceIndex | None:
        """Return an owner's index if it has this version."""
        with self._lock:
            versions, index = self._kept.get(owner, ((), None))
            if version not in versions:
                return None
            self._kept.move_to_end(owner)
            return index

    def keep(self, owner: str, trails: Sequence[Trail | None], index: PlaceIndex) -> None:
        """Store an owner's index, which is valid for any of these versions."""
        with self._lock:
            known = tuple(trail.key for trail in trails if trail is not None)
            self._kept[owner] = (known, index)
            self._kept.move_to_end(owner)
            while len(self._kept) > 1 and self._held() > _MOST_KEPT:
                self._kept.popitem(last=False)

    def behind(self, owner: str, trail: Trail) -> tuple[Key, set[str]] | None:
        """Return the version of an owner's index, and the ids that changed since.

        None where that is unknown.
        """
        with self._lock:
            versions, _ = self._kept.get(owner, ((), None))
        found = ((key, trail.since(key)) for key in versions)
        return next(((key, ids) for key, ids in found if ids is not None), None)

    def follow(
        self, owner: str, since: Key, trail: Trail, changed: Mapping[str, Observation | None]
    ) -> None:
        """Apply changes to an owner's index, if it still has the version; otherwise do nothing.

        Args:
            owner: The owner.
            since: The index's version.
            trail: The change log with the new version.
            changed: The current state of each changed observation; None for deleted ones.
        """
        with self._lock:
            versions, index = self._kept.get(owner, ((), None))
            if index is not None and since in versions:  # otherwise another thread changed it
                news = {name: one for name, one in changed.items() if index.get(name) != one}
                for name in news:
                    index.remove(name)
                index.add([one for one in news.values() if one is not None])
                self._kept[owner] = ((trail.key,), index)

    def drop(self, owner: str) -> None:
        """Remove an owner's index."""
        with self._lock:
            self._kept.pop(owner, None)

    def _held(self) -> int:
        return sum(len(index) for _, index in self._kept.values())


class Keeper:
    """Reads and writes the observations of one user, or of a session without a user.

    One process at a time writes for an owner. Each write sets a new version, which shows other
    processes that their indexes are stale, and the writer that its own is not.

    Args:
        resources: The block's resources.
        block: The block's name.
        scope: The owner, and the current session.
        indexes: The cache of indexes.
    """

    def __init__(self, resources: Resources, block: str, scope: Scope, indexes: Indexes) -> None:
        self._store = resources.store
        self._block = block
        self._scope = scope
        self._indexes = indexes
        self._keyed = KeyedRecords(resources, block, scope, "user")
        self._owner = self._keyed.owner

    def index(self) -> PlaceIndex:
        """Return the index of all observations."""
        return self._index(self._trail())

    def existing(self, named: Iterable[str]) -> set[str]:
        """Return the sessions whose deletion has not begun; "" is always included."""
        sessions = set(named) - {""}
        return {"", *(self._store.existing(sessions) if sessions else ())}

    def add(
        self, observations: Sequence[Observation], most: int, *, once: bool = False
    ) -> Observation | None:
        """Store observations, all or none.

        Args:
            observations: Observations of the current session.
            most: Maximum number of the owner's observations.
            once: Whether to store nothing if the first one's id exists.

        Returns:
            With `once`, the existing observation.

        Raises:
            InvalidInput: There would be more than `most`; nothing was stored.
            SessionOfAnotherUser: The current session belongs to another user.
            SessionDeleting: It is being deleted; nothing was stored.
        """
        session_id = self._scope.session_id
        records = [_record_of(one, self._owner) for one in observations]
        with self._keyed.changing():
            trail = self._trail()
            index = self._index(trail)
            known = index.get(observations[0].id) if once else None
            if known is not None and known.session_id in self.existing([known.session_id]):
                return known
            if len(index) + len(observations) > most:
                raise InvalidInput(
                    f"There are {len(index)} observations, and the maximum is {most}. Delete some "
                    "that are no longer needed, or raise `max_observations`."
                )
            register(self._store, self._block)

            def undo() -> None:
                self._store.delete_records(self._block, owner=self._owner, session_id=session_id)
                _outdate(self._store, self._block, self._scope)

            with (
                self._renewing(trail, index, [one.id for one in observations]) as renewed,
                kept_with(self._store, self._scope, session_id or "", undo),
            ):
                self._store.put_records(self._block, [*records, *renewed])
                index.add(observations)
        return None

    def remove(self, observation_id: str) -> bool:
        """Delete an observation, and return whether it existed."""
        with self._keyed.changing():
            trail = self._trail()
            if trail is None:
                return False
            index = self._index(trail)
            with self._renewing(trail, index, [observation_id]) as renewed:
                # also if it is not in the index: an earlier call may have been interrupted
                self._store.delete_records(self._block, record_id=observation_id, owner=self._owner)
                self._store.put_records(self._block, renewed)
                return index.remove(observation_id)

    def clear(self) -> None:
        """Delete all observations."""
        with self._keyed.changing():
            _clear(self._store, self._block, self._owner)
            self._indexes.drop(self._owner)

    @contextmanager
    def _renewing(
        self, trail: Trail | None, index: PlaceIndex, changed: Sequence[str]
    ) -> Iterator[list[Record]]:
        """Provide the records of a new version for a write, and update the cached index after it.

        During the write the index is valid for both versions: a concurrent reader may see the state
        before.
        """
        renewed, records = went_on(self._owner, trail, changed)
        both = [trail, renewed]
        self._indexes.keep(self._owner, both, index)
        try:
            yield records
        except BaseException:  # the write's outcome is unknown
            self._indexes.drop(self._owner)
            raise
        self._indexes.keep(self._owner, both, index)  # its size may have changed

    def _trail(self) -> Trail | None:
        return trail_of(self._store, self._block, self._owner)

    def _index(self, trail: Trail | None) -> PlaceIndex:
        if trail is None:
            self._indexes.drop(self._owner)
        else:
            index = self._indexes.get(self._owner, trail.key)
            if index is None:
                index = self._followed(trail)
            if index is not None:
                return index
        # the records may be newer than the version, never older
        records = self._store.records(self._block, self._owner)
        index = self._indexes.build([_observation_of(record) for record in records])
        now = self._trail() if trail is not None else None
        if (
            trail is not None and now is not None and now.key == trail.key
        ):  # otherwise another thread's is newer
            self._indexes.keep(self._owner, [trail], index)
        return index

    def _followed(self, trail: Trail) -> PlaceIndex | None:
        """Return the cached index after applying what changed since; None where that is unknown."""
        behind = self._indexes.behind(self._owner, trail)
        if behind is None:
            return None
        since, ids = behind
        found = changed_since(self._store, self._block, self._owner, ids)
        if found is None:
            return None
        changed = {
            one: None if record is None else _observation_of(record)
            for one, record in found.items()
        }
        self._indexes.follow(self._owner, since, trail, changed)
        return self._indexes.get(self._owner, trail.key)


def erase(resources: Resources, block: str, scope: Scope) -> None:
    """Delete the observations of a session or a user; implements the block's `delete`."""
    if scope.after:  # observations derive from no message, so taking messages back keeps them
        return
    with KeyedRecords(resources, block, scope, "user").changing():
        if scope.session_id is None:
            _clear(resources.store, block, scope.owner)
        else:
            forget(resources, block, scope)
            _outdate(resources.store, block, scope)


def _clear(store: RecordStore, block: str, owner: str) -> None:
    store.delete_records(block, owner=owner)
    store.delete_records(block, owner=version_owner(owner))


def _outdate(store: RecordStore, block: str, scope: Scope) -> None:
    """Invalidate indexes from before a session was erased."""
    own = Scope(None, scope.session_id).owner  # the session may have had no user before
    store.delete_records(block, owner=version_owner(own), lease=scope.lease)
    if scope.user_id is not None and version_of(store, block, scope.owner) is not None:
        store.put_records(block, [new_version(scope.owner)], lease=scope.lease)


def _record_of(observation: Observation, owner: str) -> Record:
    kept = {"position": list(observation.position), "confidence": observation.confidence}
    return Record(
        id=observation.id,
        owner=owner,
        session_id=observation.session_id,
        first=0,
        last=0,
        text=observation.text,
        sources=(),
        created_at=observation.at,
        metadata={**kept, **({"metadata": observation.metadata} if observation.metadata else {})},
    )


def _observation_of(record: Record) -> Observation:
    kept = record.metadata
    return Observation(
        id=record.id,
        text=record.text,
        position=tuple(kept["position"]),
        at=record.created_at,
        confidence=kept["confidence"],
        session_id=record.session_id,
        metadata=kept.get("metadata", {}),
    )
