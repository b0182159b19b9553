"""The observations of one owner, found by where they are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf, nextafter
from typing import NamedTuple

import numpy as np
from rtree.index import Index, Property

from agent_memory.core.processes import fork_safe_lock
from agent_memory.ltm_blocks.spatial.observation import Observation, Position, detached
from agent_memory.ltm_blocks.spatial.scoring import Found, distances, left

_SPARE = 64
_BULK = 32  # to build a tree of so many takes as long as to insert one
_SLACK = 1e-9  # by more than that no distance of the tree's differs from ours

_GONE = Observation("", "", (), datetime.min.replace(tzinfo=UTC), 0.0, "", {})


class Fading(NamedTuple):
    """How confidence decays.

    Attributes:
        half_life: In seconds; None for never.
        least: What is less sure than this is not found.
    """

    half_life: float | None
    least: float


class Moment(NamedTuple):
    """When something is asked.

    Attributes:
        seconds: Since 1970.
        past: Whether what was observed later is not known yet.
    """

    seconds: float
    past: bool


class PlaceIndex:
    """Observations in an R-tree. Safe to share between threads.

    The tree gives candidates; what is found follows from the positions themselves. So it is just
    what looking at all of them would find.

    Args:
        dimensions: 2 or 3.
        fading: How confidence decays.
        observations: What it begins with.
    """

    def __init__(
        self, dimensions: int, fading: Fading, observations: Sequence[Observation] = ()
    ) -> None:
        self._dimensions = dimensions
        self._fading = fading
        self._lock = fork_safe_lock()
        self._build(observations)

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, observation_id: str) -> Observation | None:
        """An observation by its id."""
        with self._lock:
            slot = self._slots.get(observation_id)
            return None if slot is None else detached(self._observations[slot])

    def all(self) -> list[Observation]:
        """All, oldest first."""
        with self._lock:
            found = self._living()
        return [detached(one) for one in sorted(found, key=lambda one: (one.at, one.id))]

    def add(self, observations: Sequence[Observation]) -> None:
        """Take in observations that it does not hold."""
        with self._lock:
            first = self._used
            room = len(self._seen) - first
            if len(observations) > room or len(observations) * _BULK > first:
                self._build([*self._living(), *observations])
                return
            self._write(observations)
            for slot, one in enumerate(observations, first):
                self._tree.insert(slot, one.position)

    def remove(self, observation_id: str) -> bool:
        """Let go of an observation; whether there was one."""
        with self._lock:
            slot = self._slots.pop(observation_id, None)
            if slot is None:
                return False
            self._observations[slot] = _GONE
            self._given[slot] = np.nan  # no comparison finds it; to delete it from the tree is slow
            if 2 * len(self._slots) < self._used:
                self._build(self._living())
            return True

    def nearest(self, position: Position, count: int, moment: Moment, radius: float = inf) -> Found:
        """The nearest of those that are sure enough, in no order.

        Args:
            position: From where.
            count: At most so many; of equally near ones the newest.
            moment: When it is asked.
            radius: Only those within it; what lies just on it is within.
        """
        with self._lock:
            slots = self._sure(self._around(position, count, moment, radius), moment)
            apart = distances(self._positions[slots], position)
            if len(slots) > count:
                radius = min(radius, _least(apart, count))
            close = apart <= radius
            found = self._found(slots[close], moment, position)
        return found.cut(count, apart[close])

    def within(self, low: Position, high: Position, moment: Moment) -> Found:
        """Those in a box that are sure enough, in no order. What lies on its faces is in it.

        Args:
            low: Its least coordinates.
            high: Its greatest.
            moment: When it is asked.
        """
        with self._lock:
            return self._found(self._sure(self._boxed(low, high), moment), moment)

    def newest(self, count: int, moment: Moment, position: Position | None = None) -> Found:
        """The newest of those that are sure enough, in no order.

        Args:
            count: At most so many.
            moment: When it is asked.
            position: From where distances are wanted.
        """
        with self._lock:
            slots = self._sure(np.arange(self._used), moment)
            ages = -self._seen[slots]
            if len(slots) > count:
                slots = slots[ages <= _least(ages, count)]
            found = self._found(slots, moment, position)
        return found.cut(count, found.ages)

    def _around(self, position: Position, count: int, moment: Moment, radius: float) -> np.ndarray:
        """Slots, among which are the nearest that are sure enough."""
        for wanted in (count, 8 * count):
            if wanted >= len(self._slots):
                break
            slots = np.fromiter(self._tree.nearest(position, wanted), np.int64)
            sure = distances(self._positions[self._sure(slots, moment)], position)
            if len(sure) >= count:
                bound = min(radius, _least(sure, count))
            elif distances(self._positions[slots], position).max() > radius:
                bound = radius
            else:
                continue  # too many have faded
            beyond = bound * (1 + _SLACK)
            low = [nextafter(number - beyond, -inf) for number in position]
            high = [nextafter(number + beyond, inf) for number in position]
            return self._boxed(low, high)
        return np.arange(self._used)

    def _boxed(self, low: Sequence[float], high: Sequence[float]) -> np.ndarray:
        return np.fromiter(self._tree.intersection((*low, *high)), np.int64)

    def _sure(self, slots: np.ndarray, moment: Moment) -> np.ndarray:
        """Those of the slots that are to be found."""
        sure = self._confidences(slots, moment) >= self._fading.least
        if moment.past:
            sure &= self._seen[slots] <= moment.seconds
        return slots[sure]

    def _confidences(self, slots: np.ndarray, moment: Moment) -> np.ndarray:
        ages = moment.seconds - self._seen[slots]
        return left(self._given[slots], ages, self._fading.half_life)

    def _found(self, slots: np.ndarray, moment: Moment, position: Position | None = None) -> Found:
        return Found(
            observations=[self._observations[slot] for slot in slots.tolist()],
            distances=None if position is None else distances(self._positions[slots], position),
            confidences=self._confidences(slots, moment),
            ages=moment.seconds - self._seen[slots],
        )

    def _living(self) -> list[Observation]:
        return [self._observations[slot] for slot in self._slots.values()]

    def _build(self, observations: Sequence[Observation]) -> None:
        """Begin anew, with room for as many more."""
        room = 2 * len(observations) + _SPARE
        self._used = 0
        self._observations: list[Observation] = []
        self._slots: dict[str, int] = {}
        self._positions = np.zeros((room, self._dimensions))
        self._seen, self._given = np.zeros(room), np.zeros(room)
        self._write(observations)
        settings = Property(dimension=self._dimensions)
        if not observations:
            self._tree = Index(properties=settings)
            return
        points = self._positions[: self._used]
        self._tree = Index((np.arange(self._used), points, points), properties=settings)

    def _write(self, observations: Sequence[Observation]) -> None:
        """Fill the next slots."""
        if not observations:
            return
        first, end = self._used, self._used + len(observations)
        self._positions[first:end] = [one.position for one in observations]
        self._seen[first:end] = [one.at.timestamp() for one in observations]
        self._given[first:end] = [one.confidence for one in observations]
        self._observations += observations
        self._slots.update((one.id, slot) for slot, one in enumerate(observations, first))
        self._used = end


def _least(values: np.ndarray, count: int) -> float:
    """What the `count` least do not pass."""
    return float(np.partition(values, count - 1)[count - 1])
