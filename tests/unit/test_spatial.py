"""Observations at places: validation, decay, score, and the index, compared with a full scan."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_memory import InvalidInput, SpatialMemory
from agent_memory.core.records import Record
from agent_memory.errors import InvalidSetting
from agent_memory.ltm_blocks.spatial import Observation, SpatialMatch
from agent_memory.ltm_blocks.spatial.handle import (
    Fading,
    Moment,
    ago,
    number_of,
    position_of,
    record_of,
    rendered,
)
from agent_memory.ltm_blocks.spatial.search import (
    PlaceIndex,
    Rows,
    distances,
    proximity,
    scored,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
AT = Moment(NOW.timestamp(), past=False)
NEVER = Fading(None, 0.0)
DAY = 86_400.0


def observation(
    name: str,
    position: Sequence[float] = (0.0, 0.0),
    *,
    days_ago: float = 0.0,
    confidence: float = 1.0,
) -> Observation:
    at = NOW - timedelta(days=days_ago)
    return Observation(name, f"text of {name}", tuple(position), at, confidence, "", {})


def ids(found: Rows) -> set[str]:
    return {found.record(row).id for row in range(len(found.places))}


def record(one: Observation) -> Record:
    return record_of(one, "user:ada")


def nearest(
    index: PlaceIndex, here: Sequence[float], count: int, moment: Moment, radius: float = math.inf
) -> Rows:
    found = index.search(moment, tuple(here), radius)
    assert found.distances is not None
    return found.cut(count, found.distances)


def index_of(dimensions: int, fading: Fading, made: Sequence[Observation]) -> PlaceIndex:
    return PlaceIndex(dimensions, fading, [record(one) for one in made])


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((1,), "has 1 coordinates"),
        ((1, 2, 3), "has 3 coordinates. This memory has 2 dimensions"),
        (7, "position is 7"),
        ("12", "position is '12'"),
        ((1, "2"), r"position\[1\] is '2'"),
        ((1, None), r"position\[1\] is None"),
        ((math.nan, 0), r"position\[0\] is nan"),
        ((0, math.inf), r"position\[1\] is inf"),
        ((0, 1.0000001e12), r"from -1e\+12 to 1e\+12"),
        ((-(10**400), 0), r"position\[0\] is -1000"),
    ],
)
def test_a_bad_position_is_refused(given: object, wanted: str) -> None:
    """Wrong: an invalid position is stored, and every distance to it is meaningless."""
    with pytest.raises(InvalidInput, match=wanted):
        position_of(given, 2)


def test_positions_are_floats() -> None:
    """Wrong: integers or arrays are refused, or 0 and -0 are two places."""
    assert position_of([3, 4.5], 2) == (3.0, 4.5)
    assert position_of(np.array([1, -2, 3], np.float32), 3) == (1.0, -2.0, 3.0)
    assert position_of((1e12, -1e12), 2) == (1e12, -1e12)
    assert all(type(one) is float for one in position_of((np.int64(1), True), 2))
    assert math.copysign(1, position_of((-0.0, 0), 2)[0]) == 1


def test_invalid_numbers_are_refused() -> None:
    """Wrong: a confidence of 2, or a text in place of a number, is accepted."""
    assert [number_of("confidence", value, 0, 1) for value in (0, 1, True)] == [0.0, 1.0, 1.0]
    assert number_of("radius", math.inf, 0, math.inf) == math.inf
    for value in (-0.01, 1.01, math.nan, None, "1"):
        with pytest.raises(InvalidInput, match=r"confidence is .* Give a number from 0 to 1"):
            number_of("confidence", value, 0, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"dimensions": 4},
        {"half_life": timedelta()},
        {"half_life": timedelta(seconds=-1)},
        {"min_confidence": 1.1},
        {"max_observations": 0},
        {"max_chars": 0},
    ],
)
def test_settings_out_of_range_are_refused(fields: dict[str, Any]) -> None:
    """Wrong: a half-life of 0 divides by zero, or a fourth dimension is accepted."""
    with pytest.raises(InvalidSetting):
        SpatialMemory(**fields)


def test_settings_are_parsed_and_recalls_state_place_and_age() -> None:
    """Wrong: TOML cannot set a half-life, or a recall lacks place, age or confidence."""
    block = SpatialMemory.model_validate({"dimensions": 3, "half_life": "P1D"})
    assert (block.half_life, block.name) == (timedelta(days=1), "spatial")
    assert SpatialMemory().half_life == timedelta(days=30)
    assert SpatialMemory(half_life=None).half_life is None
    assert SpatialMemory.model_validate(block.model_dump(mode="json")) == block
    door = observation("door", (3.0, -4.25), days_ago=12.4)
    sighting = SpatialMatch(door, 2.0, 0.6349, None, 0.5)
    wanted = "text of door (at 3, -4.25; 12 days ago; confidence 0.63)"
    assert rendered(sighting, NOW) == wanted
    high = observation("high", (0.1 + 0.2, 1e12, -0.5))
    wanted = "text of high (at 0.3, 1e+12, -0.5; just now; confidence 1.00)"
    assert rendered(SpatialMatch(high, None, 1.0, None, 1.0), NOW) == wanted


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 minute ago"),
        (3599, "59 minutes ago"),
        (3600, "1 hour ago"),
        (DAY - 1, "23 hours ago"),
        (DAY, "1 day ago"),
        (400.9 * DAY, "400 days ago"),
    ],
)
def test_ages_are_written_in_words(seconds: float, wanted: str) -> None:
    """Wrong: ages are rounded up, or negative for a clock that is ahead."""
    assert ago(timedelta(seconds=seconds)) == wanted


lengths = st.floats(0, 1e13)


@given(st.lists(lengths, min_size=1, max_size=20))
def test_what_is_nearer_is_not_farther(apart: list[float]) -> None:
    """Wrong: a nearer observation has less proximity, or the median one is not at 0.5."""
    near = proximity(np.array(apart))
    assert all(0 <= one <= 1 for one in near)
    order = np.argsort(apart, kind="stable")
    assert all(np.diff(near[order]) <= 0)
    middle = sorted(apart)[(len(apart) - 1) // 2]
    for one, other in zip(apart, near, strict=True):
        if one == 0:
            assert other == 1
        elif one == middle:
            assert other == 0.5


def found_at(
    apart: Sequence[float], sure: Sequence[float], ages: Sequence[float] | None = None
) -> Rows:
    made = [record(observation(f"{at:03}")) for at in range(len(sure))]
    ages = [0.0] * len(sure) if ages is None else ages
    columns = (np.array(values, float) for values in (apart, sure, ages))
    return Rows(made, np.arange(len(made)), *columns)


def test_the_score_follows_the_documented_formula() -> None:
    """Wrong: the score differs from the documented formula, or an observation is recalled twice."""
    found = found_at([0, 2, 4], [1, 0.8, 0.5])
    assert scored(found).tolist() == pytest.approx([1, 0.5 * 0.8, 1 / 3 * 0.5])
    meant = np.array([0, 1, 0.5])
    assert scored(found, meant).tolist() == pytest.approx([0.5, 0.7, 1 / 3])
    nowhere = found._replace(distances=None)
    assert scored(nowhere).tolist() == [1, 0.8, 0.5]
    assert scored(nowhere, meant).tolist() == pytest.approx([0.5, 0.9, 0.5])
    apart = [0, 0, 5, 5, 5]
    found = found_at(apart, [0, 0.3, 0, 0, 0], ages=[1, 9, 7, 5, 5])
    best = found.ranked(10)
    assert [one.observation.id for one in best] == ["001", "000", "003", "004", "002"]
    assert [one.observation.id for one in found.ranked(3)] == ["001", "000", "003"]
    assert [one.distance for one in best] == [0, 0, 5, 5, 5]
    assert (best[0].confidence, best[0].score, best[0].relevance) == (0.3, 0.3, None)
    assert found.ranked(0) == []
    nowhere = found._replace(distances=None).ranked(1, np.array([0, 0, 0, 0, 1.0]))
    assert [(one.observation.id, one.distance) for one in nowhere] == [("004", None)]
    assert nowhere[0].relevance == 1


@example([(3e-200, 4e-200, 0.0)], (0.0, 0.0, 0.0))  # their squares underflow
@given(
    st.lists(st.tuples(*[st.floats(-1e12, 1e12)] * 3), min_size=1, max_size=5),
    st.tuples(*[st.floats(-1e12, 1e12)] * 3),
)
def test_distances_are_right(points: list[tuple[float, ...]], here: tuple[float, ...]) -> None:
    """Wrong: tiny coordinates underflow, so that all places coincide."""
    for dimensions in (2, 3):
        there = np.array([point[:dimensions] for point in points])
        wanted = [math.dist(point[:dimensions], here[:dimensions]) for point in points]
        found = distances(there, here[:dimensions]).tolist()
        assert found == pytest.approx(wanted, rel=1e-14, abs=0)


coordinates = st.one_of(
    st.integers(-4, 4).map(float),
    st.floats(-1e12, 1e12),
    st.sampled_from([0.1, 0.2, 0.30000000000000004, 1e-300, -1e-300, 5e-324, 1e12, -1e12]),
)


@st.composite
def crowds(draw: st.DrawFn) -> tuple[int, list[Observation]]:
    """Generate dimensions and observations that share places, ages and confidences."""
    dimensions = draw(st.sampled_from([2, 3]))
    point = st.tuples(*[coordinates] * dimensions)
    places = draw(st.lists(point, min_size=1, max_size=12))
    made = st.tuples(st.sampled_from(places), st.integers(-2, 40), st.sampled_from([0.1, 0.5, 1]))
    rows = draw(st.lists(made, min_size=1, max_size=60))
    return dimensions, [
        observation(f"{at:03}", place, days_ago=age, confidence=sure)
        for at, (place, age, sure) in enumerate(rows)
    ]


fadings = st.sampled_from([NEVER, Fading(10 * DAY, 0.05), Fading(5 * DAY, 0.4)])
moments = st.sampled_from([AT, Moment(AT.seconds, past=True), Moment(AT.seconds - 9 * DAY, True)])


def sure_of(all_of: Sequence[Observation], fading: Fading, moment: Moment) -> list[Observation]:
    """Return the observations that must be found, by a full scan."""
    found = []
    for one in all_of:
        age = moment.seconds - one.at.timestamp()
        if age < 0 and moment.past:
            continue
        lost = 1.0 if fading.half_life is None else 0.5 ** (max(age, 0) / fading.half_life)
        if one.confidence * lost >= fading.least:
            found.append(one)
    return found


def nearest_of(
    all_of: Sequence[Observation], here: tuple[float, ...], count: int, radius: float
) -> list[str]:
    apart = distances(np.array([one.position for one in all_of] or [here]), here).tolist()
    keys = [(far, -one.at.timestamp(), one.id) for far, one in zip(apart, all_of, strict=False)]
    return [name for far, _, name in sorted(keys) if far <= radius][:count]


@given(crowds(), fadings, moments, st.data())
def test_the_index_finds_the_nearest(
    crowd: tuple[int, list[Observation]], fading: Fading, moment: Moment, data: st.DataObject
) -> None:
    """Wrong: the index misses a tie, a place exactly on the radius, or one behind faded ones, or
    finds a removed one."""
    dimensions, made = crowd
    index = index_of(dimensions, fading, made[: len(made) // 2])
    for one in made[len(made) // 2 :]:
        index = index.changed({one.id: record(one)})
    gone = data.draw(st.sets(st.sampled_from([one.id for one in made])))
    for name in gone:
        before, index = index, index.changed({name: None})
        assert (len(before), before.get(name) is None) == (len(index) + 1, False)
        assert len(index.changed({name: None})) == len(index)
    there = [one for one in made if one.id not in gone]
    assert (len(index), index.all()) == (len(there), sorted(there, key=lambda o: (o.at, o.id)))
    sure = sure_of(there, fading, moment)
    places = [one.position for one in made]
    here = data.draw(st.sampled_from(places) | st.tuples(*[coordinates] * dimensions))
    count = data.draw(st.integers(1, 12))
    reach = distances(np.array(places), here).tolist()
    radius = data.draw(st.sampled_from([*reach, math.inf, 0.0]) | st.floats(0, 1e13))
    found = nearest(index, here, count, moment, radius)
    assert ids(found) == set(nearest_of(sure, here, count, radius))
    assert len(found.places) == len(ids(found))
    assert found.distances is not None
    rows = range(len(found.places))
    places_found = np.array([found.record(row).metadata["position"] for row in rows] or [here])
    assert found.distances.tolist() == distances(places_found, here)[: len(rows)].tolist()


@given(crowds(), fadings, moments, st.data())
def test_the_index_finds_what_is_in_a_box(
    crowd: tuple[int, list[Observation]], fading: Fading, moment: Moment, data: st.DataObject
) -> None:
    """Wrong: an observation on a face of the box is left out, or coordinates are rounded."""
    dimensions, made = crowd
    index = index_of(dimensions, fading, made)
    corner = st.tuples(*[coordinates] * dimensions) | st.sampled_from([o.position for o in made])
    one, other = data.draw(corner), data.draw(corner)
    low, high = tuple(map(min, one, other)), tuple(map(max, one, other))
    wanted = {
        one.id
        for one in sure_of(made, fading, moment)
        if all(a <= b <= c for a, b, c in zip(low, one.position, high, strict=True))
    }
    assert ids(index.search(moment, box=(low, high))) == wanted


@given(crowds(), fadings, moments, st.integers(1, 12))
def test_the_index_finds_the_newest(
    crowd: tuple[int, list[Observation]], fading: Fading, moment: Moment, count: int
) -> None:
    """Wrong: ties in time are ordered at random."""
    dimensions, made = crowd
    index = index_of(dimensions, fading, made)
    sure = sorted(sure_of(made, fading, moment), key=lambda one: (-one.at.timestamp(), one.id))
    found = index.search(moment)
    assert ids(found.cut(count, found.ages)) == {one.id for one in sure[:count]}


def test_the_index_is_correct_after_many_additions_and_removals() -> None:
    """Wrong: many additions and removals lose or keep a place in the index."""
    random = Random(7)
    index, there = PlaceIndex(2, Fading(10 * DAY, 0.05)), {}
    for round_ in range(60):
        batch = [
            observation(
                f"{round_}-{at}",
                (random.randint(0, 30), random.uniform(0, 30)),
                days_ago=random.uniform(0, 60),
            )
            for at in range(random.choice([1, 1, 1, 5, 200]))
        ]
        index = index.changed({one.id: record(one) for one in batch})
        there.update((one.id, one) for one in batch)
        gone = random.sample(sorted(there), len(there) // random.choice([2, 20, 20]))
        index = index.changed(dict.fromkeys(gone))
        for name in gone:
            del there[name]
        sure = sure_of(list(there.values()), Fading(10 * DAY, 0.05), AT)
        here = (random.uniform(0, 30), random.uniform(0, 30))
        for count, radius in ((1, math.inf), (10, math.inf), (50, 4.0), (1000, math.inf)):
            found = nearest(index, here, count, AT, radius)
            assert ids(found) == set(nearest_of(sure, here, count, radius))
        assert len(index) == len(there)


def test_changing_returned_metadata_does_not_change_the_index() -> None:
    """Wrong: a caller who changes returned metadata changes the index."""
    one = Observation("a", "a", (0.0, 0.0), NOW, 1.0, "", {"tags": ["x"]})
    index = index_of(2, NEVER, [one, observation("b")])

    def returned_observations() -> list[Observation | None]:
        found = index.search(AT).ranked(9)
        return [index.get("a"), index.get("b"), *index.all(), *(one.observation for one in found)]

    for read in returned_observations():
        read.metadata.setdefault("tags", []).append("y")
    for read in returned_observations():
        assert read.metadata == ({"tags": ["x"]} if read.id == "a" else {})
    assert index.get("c") is None
