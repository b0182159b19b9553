"""Observations, and `SpatialHandle`, which writes and searches one user's observations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf, nan
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from agent_memory.core.limits import check_id, how_many, quoted, text_of
from agent_memory.core.messages import Message
from agent_memory.core.records import Record
from agent_memory.core.timestamps import check_moment, now_utc
from agent_memory.errors import InvalidInput, SessionDeleting
from agent_memory.ltm_blocks.keyed_records import Collection, put_with_session
from agent_memory.ltm_blocks.registry import register
from agent_memory.ltm_blocks.versions import new_epoch, new_version, version_of

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.spatial.block import SpatialMemory
    from agent_memory.ltm_blocks.spatial.search import PlaceIndex, Rows

Position = tuple[float, ...]

MOST = 1e12
"""Maximum absolute value of a coordinate, up to which distances stay precise."""

_UNITS = {"day": timedelta(days=1), "hour": timedelta(hours=1), "minute": timedelta(minutes=1)}


class Fading(NamedTuple):
    """The settings by which confidence decays."""

    half_life: float | None  # in seconds; None for no decay
    least: float  # the minimum confidence of search results


class Moment(NamedTuple):
    """The time of a search."""

    seconds: float  # the time as a Unix timestamp
    past: bool  # whether observations after this time are left out


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation at a place.

    Attributes:
        position: x and y, or x, y and z, in a unit of your choice.
        at: The time of the observation (UTC).
        confidence: The original confidence, 0 to 1.
        session_id: The session in which the observation was made; empty outside a session.
        metadata: The writer's own metadata.
    """

    id: str
    text: str
    position: Position
    at: datetime
    confidence: float
    session_id: str
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SpatialMatch:
    """An observation found by a search.

    Attributes:
        distance: Distance from the position of the search; None if the search has no position.
        confidence: The observation's confidence at the time of the search.
        relevance: The probability that the text is about the query; None without a query.
        score: The ranking score; see `SpatialHandle`.
    """

    observation: Observation
    distance: float | None
    confidence: float
    relevance: float | None
    score: float


def record_of(item: Observation, owner: str) -> Record:
    fields = {"position": list(item.position), "confidence": item.confidence}
    fields |= {"metadata": item.metadata} if item.metadata else {}
    return Record(item.id, owner, item.session_id, 0, 0, item.text, (), item.at, fields)


def observation_of(record: Record) -> Observation:
    """Return the observation of a record, with a copy of the metadata that callers may change."""
    fields = record.metadata
    return Observation(
        id=record.id,
        text=record.text,
        position=tuple(fields["position"]),
        at=record.created_at,
        confidence=fields["confidence"],
        session_id=record.session_id,
        metadata=deepcopy(fields.get("metadata", {})),
    )


def position_of(value: object, dimensions: int, name: str = "position") -> Position:
    """Validate a position or the corner of a box."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise InvalidInput(f"{name} is {quoted(value)}. Give {dimensions} numbers.")
    numbers = list(value)
    if len(numbers) != dimensions:
        raise InvalidInput(
            f"{name} has {len(numbers)} coordinates. This memory has {dimensions} dimensions. Give "
            "one number for each dimension."
        )
    coordinates = (number_of(f"{name}[{at}]", x, -MOST, MOST) for at, x in enumerate(numbers))
    return tuple(number + 0.0 for number in coordinates)  # -0.0 becomes 0.0


def number_of(name: str, value: object, least: float, most: float) -> float:
    """Validate a number of any type, such as numpy's, and return it as a float."""
    try:
        number = float(value) if isinstance(value, Real) else nan
    except OverflowError:
        number = nan
    if not least <= number <= most:
        raise InvalidInput(f"{name} is {quoted(value)}. Give a number from {least:g} to {most:g}.")
    return number


def rendered(match: SpatialMatch, now: datetime) -> str:
    """Return a match in words: "red door (at 3, 4.5; 12 days ago; confidence 0.63)"."""
    observation = match.observation
    where = ", ".join(f"{number:.10g}" for number in observation.position)
    sure = f"confidence {match.confidence:.2f}"
    return f"{observation.text} (at {where}; {ago(now - observation.at)}; {sure})"


def ago(age: timedelta) -> str:
    """Return an age in words: "12 days ago"."""
    for name, unit in _UNITS.items():
        if age >= unit:
            return f"{age // unit} {name}{'s' if age // unit > 1 else ''} ago"
    return "just now"


_COMPARED = 200
"""Number of nearest observations that are compared with each other, or with a query."""

_NEWEST = 1_000
"""Number of newest observations that are compared with a message."""

_FIELDS = frozenset({"text", "position", "at", "confidence", "metadata"})


class SpatialHandle(Collection[Any]):
    """A handle on the observations of one user, from `User.spatial`.

    Searches return observations of at least `min_confidence`, with a score from 0 to 1. The score
    is proximity x confidence. With a query, the score is the mean of this product and the
    relevance.

    - The proximity is 1 at distance 0, 1/2 at the median distance of the compared observations, and
      1/3 at twice the median distance. For `within`, the proximity is always 1.
    - The confidence is the original confidence, reduced by fading.
    - The relevance is the probability, by words and meaning, that the text is about the query.
    """

    _limits: SpatialMemory
    _item = "observation"
    _advice = ("Describe it in a few words.", "Shorten it, or store several.")

    def observe(
        self,
        text: str,
        position: Iterable[float],
        *,
        at: datetime | None = None,
        confidence: float = 1.0,
        metadata: dict[str, Any] | None = None,
        key: str | None = None,
    ) -> Observation:
        """Store an observation.

        Args:
            position: One number for each dimension, from -1e12 to 1e12.
            at: The time of the observation. None means now.
            confidence: 0 to 1.
            metadata: Your own metadata, as plain JSON.
            key: Idempotency key for retries.

        Raises:
            InvalidInput: An argument is invalid, or the user has too many observations; nothing was
                stored.
            Conflict: The key belongs to another observation; nothing was stored.
        """
        new = self._observation(text, position, at, confidence, metadata)
        if key is not None:
            new = replace(new, id=self._keyed.id_of(text_of("key", key)))
        (stored,) = self._add([new], reuse=key is not None)
        # a retry may come from another session, and without `at`
        same = replace(new, at=new.at if at else stored.at, session_id=stored.session_id)
        if stored != same:
            raise self._reused(key)
        return stored

    def observe_many(self, observations: Sequence[Mapping[str, Any]]) -> list[Observation]:
        """Store many observations, or none of them after an error.

        Args:
            observations: Mappings of `observe`'s arguments by name, without `key`.

        Raises:
            InvalidInput: An observation is invalid, or the user has too many; nothing was stored.
        """
        if not isinstance(observations, Iterable):
            raise InvalidInput(f"observations is {quoted(observations)}. Give a list of dicts.")
        new = [self._observation_of(item) for item in observations]
        return self._add(new) if new else []

    def near(
        self,
        position: Iterable[float],
        radius: float | None = None,
        k: int = 10,
        *,
        query: str | None = None,
        at: datetime | None = None,
    ) -> list[SpatialMatch]:
        """Return the `k` best of the `max(k, 200)` nearest observations, best first.

        Args:
            radius: Maximum distance, inclusive; None for any distance.
            k: Maximum number of results.
            query: The topic that the texts should be about.
            at: The time of the search; later observations are left out. None means now.
        """
        count = max(how_many("k", k, 1), _COMPARED)
        return self._ranked(self._nearest(position, count, radius, at), k, query)

    def nearest(
        self, position: Iterable[float], k: int = 10, *, at: datetime | None = None
    ) -> list[SpatialMatch]:
        """Return the `k` nearest observations, nearest first, whatever their scores. See `near`."""
        results = self._nearest(position, how_many("k", k, 1), None, at)
        return sorted(self._ranked(results, k), key=_nearest_first)

    def within(
        self,
        low: Iterable[float],
        high: Iterable[float],
        *,
        query: str | None = None,
        limit: int = 100,
        at: datetime | None = None,
    ) -> list[SpatialMatch]:
        """Return the best observations inside a box or on its faces, best first.

        Args:
            low: The lowest coordinates.
            high: The highest coordinates.
            query: The topic that the texts should be about. Only the 200 observations with the
                highest confidence are compared with the query.
            limit: Maximum number of results.
            at: See `near`.
        """
        least = self._position(low, "low")
        greatest = self._position(high, "high")
        if any(lower > upper for lower, upper in zip(least, greatest, strict=True)):
            raise InvalidInput(f"low {least} is not below high {greatest}. Swap the coordinates.")
        results = self._index().search(_moment(at), box=(least, greatest))
        if query:
            results = results.cut(_COMPARED, -results.confidences)
        return self._ranked(results, how_many("limit", limit, 1), query)

    def get(self, observation_id: str) -> Observation | None:
        """Return an observation by its id; None if there is none."""
        check_id("observation_id", observation_id)
        return self._standing(self._index().get(observation_id))

    def all(self) -> list[Observation]:
        """Return all observations of any confidence, oldest first."""
        observations = self._index().all()
        gone = self._keyed.gone(item.session_id for item in observations)
        return [item for item in observations if item.session_id not in gone]

    def count(self) -> int:
        """Return the number of observations."""
        return len(self._index())

    def delete(self, observation_id: str) -> bool:
        """Delete an observation, and return whether it existed. Idempotent."""
        check_id("observation_id", observation_id)
        store, owner, name = self._keyed.store, self._keyed.owner, self._limits.name
        indexes = self._limits._indexes
        with self._keyed.changing():
            before = version_of(store, name, owner)
            index = indexes.at(store, name, owner, before)
            if before is None and index.get(observation_id) is None:
                return False

            def put(version: Sequence[Record]) -> None:
                # an interrupted call may have stored a record that the index lacks
                store.delete_records(name, record_id=observation_id, owner=owner)
                store.put_records(name, version)

            indexes.write(owner, before, index.changed({observation_id: None}), put)
            return index.get(observation_id) is not None

    def bearing(self, message: Message | None, limit: int) -> list[SpatialMatch]:
        """Return the observations that `SpatialMemory.get` recalls for a message."""
        matches = self._index().search(_moment(None), self._place_of(message))
        question = message.text().strip() if message is not None else ""
        near, distances = list[int](), matches.distances
        if distances is not None:
            near = matches.first(max(limit, _COMPARED), distances)
        if not question:
            rows = near if distances is not None else matches.first(limit, matches.ages)
            return self._ranked(matches.rows(rows), limit)
        compared = dict.fromkeys([*near, *matches.first(_NEWEST, matches.ages)])
        results = matches.rows(list(compared))
        relevance = self._limits.relevance(question, results.texts())
        meant = relevance >= self._limits.resources.min_relevance
        meant[: len(near)] = True  # near observations are always relevant
        results, relevance = results.rows(meant.nonzero()[0]), relevance[meant]
        return self._shown(results.ranked(limit, relevance))

    def _index(self) -> PlaceIndex:
        keyed, name = self._keyed, self._limits.name
        return self._limits._indexes.read(keyed.store, name, keyed.owner)

    def _standing(self, item: Observation | None) -> Observation | None:
        """Return an observation, unless the deletion of its session has begun."""
        return None if item is None or self._keyed.gone([item.session_id]) else item

    def _add(self, new: Sequence[Observation], *, reuse: bool = False) -> list[Observation]:
        """Store observations of the current session atomically, and return them.

        With `reuse`, if an observation already has this id, return it and store nothing.
        """
        keyed, name, most = self._keyed, self._limits.name, self._limits.max_observations
        store, owner, session_id = keyed.store, keyed.owner, keyed.scope.session_id or ""
        indexes = self._limits._indexes
        records = {item.id: record_of(item, owner) for item in new}

        def put(version: Sequence[Record]) -> None:
            both = [*records.values(), *version]
            try:
                put_with_session(store, name, both, keyed.scope, session_id)
            except SessionDeleting:
                if before is not None and keyed.scope.user_id is not None:
                    # the deletion may remove the version, although the user has other observations
                    store.put_records(name, [new_version(owner), new_epoch(owner)])
                raise

        with keyed.changing():
            before = version_of(store, name, owner)
            index = indexes.at(store, name, owner, before)
            if reuse and (existing := self._standing(index.get(new[0].id))) is not None:
                return [existing]
            self._check_count(len(index), most, len(new))
            register(store, name)
            indexes.write(owner, before, index.changed(records), put)
        return [observation_of(record) for record in records.values()]

    def _nearest(
        self, position: Iterable[float], count: int, radius: float | None, at: datetime | None
    ) -> Rows:
        where = self._position(position)
        reach = inf if radius is None else number_of("radius", radius, 0, inf)
        matches = self._index().search(_moment(at), where, reach)
        assert matches.distances is not None
        return matches.cut(count, matches.distances)

    def _ranked(self, results: Rows, count: int, query: str | None = None) -> list[SpatialMatch]:
        question = "" if query is None else text_of("query", query).strip()
        relevance = self._limits.relevance(question, results.texts()) if question else None
        return self._shown(results.ranked(count, relevance))

    def _shown(self, matches: list[SpatialMatch]) -> list[SpatialMatch]:
        gone = self._keyed.gone(match.observation.session_id for match in matches)
        return [match for match in matches if match.observation.session_id not in gone]

    def _observation(
        self,
        text: str,
        position: Iterable[float],
        at: datetime | None = None,
        confidence: float = 1.0,
        metadata: dict[str, Any] | None = None,
    ) -> Observation:
        most = self._limits.max_chars
        text = self._text(text, most)
        return Observation(
            id=uuid4().hex,
            text=text,
            position=position_of(position, self._limits.dimensions),
            at=check_moment("at", at) or now_utc(),
            confidence=number_of("confidence", confidence, 0, 1),
            session_id=self._keyed.scope.session_id or "",
            metadata=self._metadata(metadata, most),
        )

    def _observation_of(self, value: Mapping[str, Any]) -> Observation:
        if not isinstance(value, Mapping):
            raise InvalidInput(f"An observation is {quoted(value)}. Give a dict.")
        unknown, missing = value.keys() - _FIELDS, {"text", "position"} - value.keys()
        if unknown or missing:
            fields = quoted(sorted(map(str, value)))
            raise InvalidInput(
                f"An observation has the fields {fields}. Give text and position, and optionally "
                "at, confidence and metadata."
            )
        return self._observation(**value)

    def _position(self, value: object, name: str = "position") -> Position:
        return position_of(value, self._limits.dimensions, name)

    def _place_of(self, message: Message | None) -> Position | None:
        """Return the position in a message's metadata; None without a valid one."""
        try:
            return self._position(message.metadata["position"]) if message is not None else None
        except (KeyError, InvalidInput):
            return None


def _moment(at: datetime | None) -> Moment:
    return Moment((check_moment("at", at) or now_utc()).timestamp(), past=at is not None)


def _nearest_first(match: SpatialMatch) -> tuple[float, float, str]:
    observation = match.observation
    return match.distance or 0.0, -observation.at.timestamp(), observation.id
