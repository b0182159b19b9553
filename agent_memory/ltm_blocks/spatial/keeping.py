"""Storage of observations: in the fact store, with a search index in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.core.cache import Cache
from agent_memory.core.records import Record, Scope
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.change_log import (
    Key,
    Trail,
    changed_since,
    erase_owner,
    new_version,
    trail_of,
    version_of,
    version_owner,
    went_on,
)
from agent_memory.ltm_blocks.keyed_records import Collection, put_with_session
from agent_memory.ltm_blocks.registry import register
from agent_memory.ltm_blocks.spatial.observation import Observation
from agent_memory.stores.base import RecordStore

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.spatial.block import SpatialMemory
    from agent_memory.ltm_blocks.spatial.index import PlaceIndex

_MOST_KEPT = 200_000


class Indexes(Cache[str, tuple[Key, "PlaceIndex"]]):
    """A cache of indexes by owner, each with its version of the owner's records.

    The last index stays, however large.
    """

    def __init__(self, build: Callable[[Sequence[Observation]], PlaceIndex]) -> None:
        super().__init__(_MOST_KEPT, lambda one: len(one[1]), 1, own_lock=True)
        self.build = build

    def change(
        self,
        owner: str,
        known: tuple[Key, PlaceIndex] | None,
        now: tuple[Key, PlaceIndex],
        changed: Mapping[str, Observation | None],
    ) -> bool:
        """Apply changes to an owner's index, and return whether it is current.

        It is not if another thread replaced it. If another thread applied the changes, nothing is
        left to do.

        Args:
            owner: The owner.
            known: The cached index and its version; None for none.
            now: The index and its new version.
            changed: The current state of each changed observation; None for deleted ones.
        """
        with self.lock:
            found = self.get(owner)
            if found == known:
                now[1].change(changed)
                self.put(owner, now)
                return True
            return found is not None and found[1] is now[1]


class Observations(Collection[Any]):
    """Reads and writes the observations of one user, or of a session without a user.

    One process at a time writes for an owner. Each write sets a new version, which shows other
    processes that their indexes are stale, and tells them what changed.
    """

    _limits: SpatialMemory
    _item = "observation"
    _advice = ("Describe it in a few words.", "Shorten it, or store several.")

    def clear(self) -> None:
        """Delete all observations."""
        with self._keyed.changing():
            erase_owner(self._keyed.store, self._limits.name, self._keyed.owner)
            self._limits._indexes.drop(self._keyed.owner)

    def _index(self) -> PlaceIndex:
        """Return the index of all observations."""
        return self._index_at(self._trail())

    def _existing(self, named: Iterable[str]) -> set[str]:
        """Return the sessions whose deletion has not begun; "" is always included."""
        sessions = set(named) - {""}
        return {"", *(self._keyed.store.existing(sessions) if sessions else ())}

    def _add(self, observations: Sequence[Observation], *, once: bool = False) -> Observation:
        """Store observations, all or none.

        Args:
            observations: Observations of the current session.
            once: Whether to store nothing if the first one's id exists.

        Returns:
            The first one; with `once`, the existing observation.

        Raises:
            InvalidInput: There would be too many; nothing was stored.
            SessionOfAnotherUser: The current session belongs to another user.
            SessionDeleting: It is being deleted; nothing was stored.
        """
        keyed, name, most = self._keyed, self._limits.name, self._limits.max_observations
        store, owner, session_id = keyed.store, keyed.owner, keyed.scope.session_id or ""

        def undo() -> None:
            store.delete_records(name, owner=owner, session_id=session_id)
            outdate(store, name, keyed.scope)

        with keyed.changing():
            trail = self._trail()
            index = self._index_at(trail)
            known = index.get(observations[0].id) if once else None
            if known is not None and known.session_id in self._existing([known.session_id]):
                return known
            if len(index) + len(observations) > most:
                raise InvalidInput(
                    f"There are {len(index)} observations, and the maximum is {most}. Delete some "
                    "that are no longer needed, or raise `max_observations`."
                )
            register(store, name)
            renewed, version = went_on(owner, trail, [one.id for one in observations])
            records = [*(_record_of(one, owner) for one in observations), *version]
            put_with_session(store, name, records, keyed.scope, session_id, undo)
            self._changed(trail, renewed, index, {one.id: one for one in observations})
        return observations[0]

    def _remove(self, observation_id: str) -> bool:
        """Delete an observation, and return whether it existed."""
        store, owner, name = self._keyed.store, self._keyed.owner, self._limits.name
        with self._keyed.changing():
            trail = self._trail()
            if trail is None:
                return False
            index = self._index_at(trail)
            existed = index.get(observation_id) is not None
            renewed, version = went_on(owner, trail, [observation_id])
            try:
                # also if it is not in the index: an earlier call may have been interrupted
                store.delete_records(name, record_id=observation_id, owner=owner)
                store.put_records(name, version)
            except BaseException:  # it may be deleted under the old version
                self._limits._indexes.drop(owner)
                raise
            self._changed(trail, renewed, index, {observation_id: None})
            return existed

    def _changed(
        self,
        trail: Trail | None,
        renewed: Trail,
        index: PlaceIndex,
        changed: Mapping[str, Observation | None],
    ) -> bool:
        known = None if trail is None else (trail.key, index)
        now = renewed.key, index
        return self._limits._indexes.change(self._keyed.owner, known, now, changed)

    def _trail(self) -> Trail | None:
        return trail_of(self._keyed.store, self._limits.name, self._keyed.owner)

    def _index_at(self, trail: Trail | None) -> PlaceIndex:
        """Return the index of a version, or of a later one."""
        store, owner, name = self._keyed.store, self._keyed.owner, self._limits.name
        indexes = self._limits._indexes
        if trail is None:
            indexes.drop(owner)
        elif (index := self._followed(trail)) is not None:
            return index
        # the records may be newer than the version, never older
        index = indexes.build([_observation_of(record) for record in store.records(name, owner)])
        now = self._trail() if trail is not None else None
        if now is not None and trail is not None and now.key == trail.key:
            indexes.put(owner, (trail.key, index))  # otherwise another thread's is newer
        return index

    def _followed(self, trail: Trail) -> PlaceIndex | None:
        """Return the cached index after applying what changed since; None where that is unknown."""
        store, owner, name = self._keyed.store, self._keyed.owner, self._limits.name
        known = self._limits._indexes.find(owner)
        if known is None or known[0] == trail.key:
            return None if known is None else known[1]
        ids = trail.since(known[0])
        found = None if ids is None else changed_since(store, name, owner, ids)
        if found is None:
            return None
        changed = {
            one: None if record is None else _observation_of(record)
            for one, record in found.items()
        }
        now = trail.key, known[1]
        is_current = self._limits._indexes.change(owner, known, now, changed)
        return known[1] if is_current else None


def outdate(store: RecordStore, block: str, scope: Scope) -> None:
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
