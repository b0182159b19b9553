"""An in-memory index of one owner's observations by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.timestamps import BEGINNING
from agent_memory.ltm_blocks.spatial.observation import Observation, Position, detached
from agent_memory.ltm_blocks.spatial.scoring import Found, distances, left

_SPARE = 64

_GONE = Observation("", "", (), BEGINNING, 0.0, "", {})


class Fading(NamedTuple):
    """Parameters of the decay of confidence.

    Attributes:
        half_life: In seconds; None for no decay.
        least: Minimum confidence of a result.
    """

    half_life: float | None
    least: float


class Moment(NamedTuple):
    """The time of a search.

    Attributes:
        seconds: Since 1970.
        past: Whether later observations are unknown.
    """

    seconds: float
    past: bool


class PlaceIndex:
    """Observations in arrays; a search scans all of them. Thread-safe."""

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
        """Return an observation by its id; None if there is none."""
        with self._lock:
            slot = self._slots.get(observation_id)
            return None if slot is None else detached(self._observations[slot])

    def all(self) -> list[Observation]:
        """Return all observations, oldest first."""
        with self._lock:
            found = self._living()
        return [detached(one) for one in sorted(found, key=lambda one: (one.at, one.id))]

    def add(self, observations: Sequence[Observation]) -> None:
        """Add observations that it does not contain."""
        with self._lock:
            first = self._used
            if first + len(observations) > len(self._seen):
                self._build([*self._living(), *observations])
            else:
                self._write(observations)

    def remove(self, observation_id: str) -> bool:
        """Remove an observation, and return whether it existed."""
        with self._lock:
            slot = self._slots.pop(observation_id, None)
            if slot is None:
                return False
            self._observations[slot] = _GONE
            self._given[slot] = np.nan  # comparisons with NaN are false
            if 2 * len(self._slots) < self._used:
                self._build(self._living())
            return True

    def change(self, changed: Mapping[str, Observation | None]) -> None:
        """Set the observations with these ids; None removes one."""
        news = {name: one for name, one in changed.items() if self.get(name) != one}
        for name in news:
            self.remove(name)
        self.add([one for one in news.values() if one is not None])

    def nearest(self, position: Position, count: int, moment: Moment, radius: float = inf) -> Found:
        """Return the nearest observations above the minimum confidence, unordered.

        Ties go to the newest. The radius is inclusive.
        """
        with self._lock:
            slots = self._sure(np.arange(self._used), moment)
            apart = distances(self._positions[slots], position)
            if len(slots) > count:
                radius = min(radius, _least(apart, count))
            close = apart <= radius
            found = self._found(slots[close], moment, position)
        return found.cut(count, apart[close])

    def within(self, low: Position, high: Position, moment: Moment) -> Found:
        """Return the observations in a box above the minimum confidence, unordered. Its faces
        belong to it.
        """
        with self._lock:
            places = self._positions[: self._used]
            inside = ((places >= low) & (places <= high)).all(axis=1)
            return self._found(self._sure(np.flatnonzero(inside), moment), moment)

    def newest(self, count: int, moment: Moment, position: Position | None = None) -> Found:
        """Return the newest observations above the minimum confidence, unordered."""
        with self._lock:
            slots = self._sure(np.arange(self._used), moment)
            ages = -self._seen[slots]
            if len(slots) > count:
                slots = slots[ages <= _least(ages, count)]
            found = self._found(slots, moment, position)
        return found.cut(count, found.ages)

    def _sure(self, slots: np.ndarray, moment: Moment) -> np.ndarray:
        """Return the slots above the minimum confidence and not in the future."""
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
        """Allocate arrays with room for as many more."""
        room = 2 * len(observations) + _SPARE
        self._used = 0
        self._observations: list[Observation] = []
        self._slots: dict[str, int] = {}
        self._positions = np.zeros((room, self._dimensions))
        self._seen, self._given = np.zeros(room), np.zeros(room)
        self._write(observations)

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
    """Return the upper bound of the `count` lowest values."""
    return float(np.partition(values, count - 1)[count - 1])
