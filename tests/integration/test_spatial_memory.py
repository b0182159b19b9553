"""Observations at places: storing, searching, decay of confidence, ownership and deletion."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_memory import AgentMemory, AgentMemoryConfig, Message, SpatialMemory
from agent_memory.core.records import Scope
from agent_memory.errors import ConfigError, InvalidInput, SessionDeleting, StoreUnavailable
from agent_memory.ltm_blocks.spatial import Observation, SpatialHandle
from agent_memory.ltm_blocks.versions import version_of, version_owner
from agent_memory.stores import Store, open_store
from agent_memory.testing import watched
from tests.kit import mark_deleting

pytestmark = pytest.mark.usefixtures("impatient")

MARCH = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
HERE = (0.0, 0.0)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with closing(open_store(url)) as store:
        yield store


@pytest.fixture
def memory(store: Store) -> Iterator[AgentMemory]:
    with AgentMemory(store=store, blocks=[SpatialMemory()]) as memory:
        yield memory


def texts(places: SpatialHandle) -> list[str]:
    return [one.text for one in places.all()]


def nearest(places: SpatialHandle, **more: Any) -> list[str]:
    return [one.observation.text for one in places.nearest(HERE, **more)]


def test_observations_can_be_stored_searched_and_deleted(memory: AgentMemory) -> None:
    """Wrong: an observation is lost, changed, or cannot be deleted."""
    places = memory.user("ada").spatial()
    assert (places.all(), places.count(), places.get("x")) == ([], 0, None)
    assert places.near(HERE) == places.nearest(HERE) == places.within(HERE, HERE) == []
    before = datetime.now(UTC)
    given: dict[str, Any] = {"by": ["cam", 1.5]}
    door = places.observe("  A red door. ", (3, 4), confidence=0.9, metadata=given)
    given["by"].append("changed since")
    assert before <= door.at <= datetime.now(UTC)
    wanted = Observation(door.id, "A red door.", (3.0, 4.0), door.at, 0.9, "", {"by": ["cam", 1.5]})
    assert door == wanted == places.get(door.id)
    there = datetime(2026, 3, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    cup = places.observe("A cup.", np.array([0.1, -1e12]), at=there)
    assert (cup.position, cup.at) == ((0.1, -1e12), MARCH)
    assert places.all() == [cup, door]  # the oldest first
    assert places.count() == 2
    (near,) = places.near(HERE, radius=5)
    assert (near.observation, near.distance, near.relevance) == (door, 5.0, None)
    assert [places.delete(cup.id) for _ in range(2)] == [True, False]
    assert texts(memory.user("ada").spatial()) == ["A red door."]
    places.clear()
    places.clear()
    assert (places.all(), places.get(door.id), places.nearest(HERE)) == ([], None, [])
    bens = memory.user("ben").spatial()
    for owner in (places, bens, places):  # two users with the same key, and a retry
        owner.observe("A cup.", HERE, key="k")
    assert (texts(places), texts(bens)) == (["A cup."], ["A cup."])
    places.observe("A chair.", HERE)
    assert texts(places) == ["A cup.", "A chair."]


def test_observations_are_exact_after_a_restart(tmp_path: Path) -> None:
    """Wrong: a place or a time is rounded in the file."""
    exact = (0.1 + 0.2, -5e-324)
    at = datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    config = AgentMemoryConfig(store=f"sqlite:///{tmp_path}/m.db", blocks=[{"kind": "spatial"}])
    with AgentMemory(config) as memory:
        made = memory.user("ada").spatial().observe("é 🎈", exact, at=at, confidence=1 / 3)
    with AgentMemory(config) as memory:
        assert memory.user("ada").spatial().all() == [made]
        (found,) = memory.user("ada").spatial().within(exact, exact, at=at)
        assert (found.observation, found.distance, found.confidence) == (made, None, 1 / 3)


def test_searches_use_all_three_dimensions(store: Store) -> None:
    """Wrong: the third coordinate is ignored."""
    with AgentMemory(store=store, blocks=[SpatialMemory(dimensions=3)]) as memory:
        places = memory.user("ada").spatial()
        places.observe("lamp", (0, 0, 3))
        places.observe("mat", (1, 1, 0))
        assert [one.observation.text for one in places.nearest((0, 0, 0))] == ["mat", "lamp"]
        assert [one.observation.text for one in places.within((0, 0, 1), (9, 9, 9))] == ["lamp"]
        with pytest.raises(InvalidInput, match=r"has 2 coordinates\. This memory has 3 dim"):
            places.observe("cup", (1, 2))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [({"text": " \n"}, "is empty"), ({"text": 7}, "Give a text"),
     ({"text": "x" * 21}, "has 21 characters; the maximum is 20"),
     ({"text": "half \ud800"}, "half of a surrogate pair"),
     ({"position": (1, 2, 3)}, "has 3 coordinates"),
     ({"position": (1, float("nan"))}, r"position\[1\] is nan"),
     ({"position": None}, "Give 2 numbers"),
     ({"at": datetime(2026, 3, 1)}, "with a time zone"),
     ({"confidence": 1.5}, "confidence is 1.5"),
     ({"metadata": {"a": {1}}}, "metadata is not plain JSON: Object of type set"),
     ({"metadata": {"a": "x" * 20}}, "metadata has more than 20 characters"),
     ({"id": "mine"}, "has the fields")],
)  # fmt: skip
def test_a_bad_observation_is_refused(store: Store, given: dict[str, Any], wanted: str) -> None:
    """Wrong: an invalid observation is stored, begins a session, or leaves half of its batch."""
    with AgentMemory(store=store, blocks=[SpatialMemory(max_chars=20)]) as memory:
        places = memory.session("s", "ada").owner().spatial()
        good = {"text": "A door.", "position": (1, 2)}
        with pytest.raises(InvalidInput, match=wanted):
            places.observe_many([good, {**good, **given}])
        with pytest.raises(InvalidInput, match="has the fields"):
            places.observe_many([{"text": "nowhere"}])
        assert (places.all(), memory.sessions()) == ([], [])


def test_a_user_cannot_exceed_max_observations(store: Store) -> None:
    """Wrong: a user exceeds `max_observations`, or is limited by other users' observations."""
    with AgentMemory(store=store, blocks=[SpatialMemory(max_observations=2)]) as memory:
        places = memory.user("ada").spatial()
        first = places.observe("one", HERE)
        batch = [{"text": "x", "position": HERE}] * 2
        with pytest.raises(InvalidInput, match="There are 1 observations, and the maximum is 2"):
            places.observe_many(batch)
        places.observe("two", HERE)
        with pytest.raises(InvalidInput, match="There are 2"):
            places.observe("three", HERE)
        places.delete(first.id)
        places.observe("three", HERE)
        assert texts(places) == ["two", "three"]
        assert len(memory.user("ben").spatial().observe_many(batch)) == 2


def test_near_ranks_by_distance_and_confidence(memory: AgentMemory) -> None:
    """Wrong: an uncertain observation ranks before a certain one that is a little farther."""
    places = memory.user("ada").spatial()
    places.observe("hardly seen", (1, 0), confidence=0.2)
    places.observe("sure", (1.5, 0))
    places.observe("sure and far", (9, 0))
    places.observe("sure and farther", (20, 0))
    found = places.near(HERE)
    assert [one.observation.text for one in found][:3] == ["sure", "sure and far", "hardly seen"]
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert found[0].score == pytest.approx(0.5, abs=1e-4)  # it is the median of four
    assert nearest(places) == ["hardly seen", "sure", "sure and far", "sure and farther"]
    assert nearest(places, k=1) == ["hardly seen"]
    assert len(places.near(HERE, 9)) == 3  # the radius is inclusive
    assert places.near(HERE, 0.5) == []
    first, second = (one.observation for one in places.near(HERE, k=2))
    assert [first, second] == [one.observation for one in found[:2]]


def test_the_query_text_affects_the_ranking_of_observations(memory: AgentMemory) -> None:
    """Wrong: the query text does not affect the ranking."""
    places = memory.user("ada").spatial()
    for n in range(30):
        places.observe(f"shelf number {n} with boxes", (n / 10, 1))
    near = places.observe("charging station for robots", (2.5, 1))
    far = places.observe("charging station for robots", (90, 1))
    found = places.near(HERE, query="where is the charging station?")
    assert [one.observation for one in found[:2]] == [near, far]
    assert found[0].relevance == found[1].relevance == pytest.approx(1, abs=5e-3)
    apart = sorted(one.distance or 0 for one in places.nearest(HERE, 1000))
    close = found[0].confidence / (1 + (2.5**2 + 1) ** 0.5 / apart[(len(apart) - 1) // 2])
    assert found[0].score == pytest.approx((close + 1) / 2, abs=5e-3)
    assert (found[2].relevance or 0) < 0.1
    within = places.within((0, 0), (3, 1), query="charging station", limit=2)
    assert within[0].observation == near
    assert far not in [one.observation for one in within]
    assert [one.relevance for one in places.near(HERE, query=" ")] == [None] * 10


def test_a_query_compares_the_most_confident_part_of_a_full_box(memory: AgentMemory) -> None:
    """Wrong: a query is compared with all of a full box instead of its most certain part."""
    places = memory.user("ada").spatial()
    batch: list[dict[str, Any]] = [
        {"text": f"Box {n}.", "position": (n % 20, n // 20), "confidence": 0.5} for n in range(205)
    ]
    batch[7] |= {"text": "A charging station.", "confidence": 0.9}
    batch[8] |= {"text": "Perhaps a charging station.", "confidence": 0.4}
    places.observe_many(batch)
    found = places.within((0, 0), (20, 20), query="charging station", limit=1000)
    assert len(found) == 200
    assert found[0].observation.text == "A charging station."
    assert all(one.observation.text != "Perhaps a charging station." for one in found)
    assert len(places.within((0, 0), (20, 20), limit=1000)) == 205


def test_confidence_is_computed_for_the_requested_time(store: Store) -> None:
    """Wrong: confidence ignores the given time, or an observation is found before it was made."""
    block = SpatialMemory(half_life=10 * DAY, min_confidence=0.1)
    with AgentMemory(store=store, blocks=[block]) as memory:
        places = memory.user("ada").spatial()
        places.observe("box", (1, 0), at=MARCH, confidence=0.8)
        places.observe("cart", (2, 0), at=MARCH + 10 * DAY)

        def sure(at: datetime) -> dict[str, float]:
            ways = (places.near(HERE, at=at), places.nearest(HERE, at=at))
            found = [*ways, places.within(HERE, (5, 5), at=at)]
            seen = [{one.observation.text: one.confidence for one in way} for way in found]
            assert seen[0] == seen[1] == seen[2]
            return seen[0]

        assert sure(MARCH - DAY) == {}
        assert sure(MARCH) == {"box": 0.8}
        assert sure(MARCH + 5 * DAY) == {"box": pytest.approx(0.8 * 0.5**0.5)}
        assert sure(MARCH + 10 * DAY) == {"box": pytest.approx(0.4), "cart": 1.0}
        assert sure(MARCH + 30 * DAY) == {"box": pytest.approx(0.1), "cart": pytest.approx(0.25)}
        assert sure(MARCH + 31 * DAY) == {"cart": pytest.approx(0.5**2.1)}
        assert sure(MARCH + 365 * DAY) == {}
        assert places.count() == len(places.all()) == 2  # they are still stored


def test_confidence_may_never_decay_and_times_may_be_in_the_future(store: Store) -> None:
    """Wrong: `half_life=None` uses a default, or an observation dated ahead is not found."""
    blocks = [SpatialMemory(half_life=None), SpatialMemory(name="short", half_life=DAY)]
    with AgentMemory(store=store, blocks=blocks) as memory:
        for name in ("spatial", "short"):
            block = memory.blocks[name]
            places = block.open(Scope("ada"))
            places.observe("old", (1, 0), at=MARCH - 5000 * DAY, confidence=0.7)
            places.observe("ahead", (2, 0), at=datetime.now(UTC) + DAY, confidence=0.6)
            sure = {one.observation.text: one.confidence for one in places.near(HERE)}
            assert sure == ({"old": 0.7, "ahead": 0.6} if name == "spatial" else {"ahead": 0.6})


def stored_texts(store: Store, owner: str) -> list[str]:
    """Return what the store holds of an owner, including its version."""
    return [
        one.text for of in (owner, version_owner(owner)) for one in store.records("spatial", of)
    ]


def test_a_session_being_deleted_hides_its_observations(memory: AgentMemory, store: Store) -> None:
    """Wrong: observations of a session being deleted are found, or new ones are accepted."""
    places = memory.session("s", "ada").owner().spatial()
    made = places.observe("in s", (1, 0))
    memory.session("t", "ada").owner().spatial().observe("in t", (2, 0))
    mark_deleting(store)
    assert nearest(places) == texts(places) == ["in t"]
    assert [one.observation.text for one in places.within(HERE, (5, 5))] == ["in t"]
    assert places.get(made.id) is None
    context = memory.get("t", "in s", user_id="ada")
    assert "in s" not in str(context.to_messages()[:-1])
    with pytest.raises(SessionDeleting):
        places.observe("late", (3, 0))
    memory.delete("s")
    assert sorted(stored_texts(store, "user:ada"))[-1] == "in t"
    assert nearest(places) == ["in t"]


def test_an_observation_written_during_a_deletion_is_not_stored(store: Store) -> None:
    """Wrong: an observation that is written during a deletion survives it, or the user's others
    cannot be deleted any more, or are read anew by each call."""
    armed: list[int] = []

    def watch(step: str) -> None:
        if step == "before put_records" and armed:
            armed.clear()
            other.delete("s")

    with (
        AgentMemory(store=store, blocks=[SpatialMemory()]) as other,
        AgentMemory(store=watched(store, watch), blocks=[SpatialMemory()]) as memory,
    ):
        places = memory.session("s", "ada").owner().spatial()
        places.observe("before", (1, 0))
        kept = memory.user("ada").spatial().observe("of no session", (2, 0))
        armed.append(1)
        with pytest.raises(SessionDeleting, match="nothing was stored"):
            places.observe("late", (3, 0))
        assert nearest(places) == nearest(other.user("ada").spatial()) == ["of no session"]
        assert version_of(store, "spatial", "user:ada") is not None
        assert places.delete(kept.id)
        assert nearest(places) == nearest(other.user("ada").spatial()) == []


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[AgentMemory, AgentMemory]]:
    """Two memories over one file, as in two processes."""
    url, blocks = f"sqlite:///{tmp_path}/m.db", [SpatialMemory()]
    with AgentMemory(store=url, blocks=blocks) as one, AgentMemory(store=url, blocks=blocks) as two:
        yield one, two


def test_other_processes_see_each_change_immediately(pair: tuple[AgentMemory, AgentMemory]) -> None:
    """Wrong: a cached index hides another process's writes, or shows what it deleted."""
    one, two = (memory.user("ada").spatial() for memory in pair)
    first = one.observe("first", (1, 0))
    assert nearest(two) == ["first"]
    two.observe("second", (2, 0))
    assert nearest(one) == nearest(two) == ["first", "second"]
    one.observe("third", (3, 0))
    two.observe("fourth", (4, 0))
    assert nearest(one) == nearest(two) == ["first", "second", "third", "fourth"]
    assert two.delete(first.id)
    assert one.get(first.id) is None
    assert (one.count(), one.delete(first.id)) == (3, False)
    one.observe_many([{"text": f"{n}", "position": (5 + n, 0)} for n in range(100)])
    assert (two.count(), two.nearest((100, 0), 1)[0].observation.text) == (103, "95")
    pair[0].session("s", "ada").owner().spatial().observe("in s", (0.5, 0))
    assert nearest(two, k=1) == ["in s"]
    pair[0].delete("s")
    assert nearest(two, k=1) == ["second"]
    two.clear()
    assert (nearest(one), one.count()) == ([], 0)
    one.observe("anew", (1, 0))
    two.clear()
    assert nearest(one) == []
    two.observe("and again", (1, 0))
    assert nearest(one) == ["and again"]
    pair[1].delete_user("ada")
    assert (nearest(one), nearest(two)) == ([], [])


def test_a_process_does_not_reload_after_its_own_changes(store: Store) -> None:
    """Wrong: after each of its own changes, a process reads all observations again."""
    reads: list[str] = []
    watch = watched(store, reads.append)
    blocks = [SpatialMemory()]
    with (
        AgentMemory(store=store, blocks=blocks) as other,
        AgentMemory(store=watch, blocks=blocks) as memory,
    ):
        writer, places = (one.user("ada").spatial() for one in (other, memory))
        made = writer.observe_many([{"text": str(n), "position": (n, 0)} for n in range(20)])

        def full_reads() -> int:
            reads.clear()
            assert texts(places) == texts(writer)
            return reads.count("before records") - 1  # the other read is of the version

        assert [full_reads(), full_reads()] == [1, 0]
        places.observe("own", (-1, 0))
        places.delete(made[3].id)
        assert full_reads() == 0
        writer.observe("of another process", (-2, 0))
        assert full_reads() == 1
        writer.clear()
        assert full_reads() == 1


@pytest.mark.parametrize("step", ["before put_records", "after put_records"])
def test_a_failed_write_corrupts_no_index(pair: tuple[AgentMemory, AgentMemory], step: str) -> None:
    """Wrong: after a failed write or deletion, the cached index differs from the store."""
    block = pair[0].blocks["spatial"]
    armed: list[str] = []

    def fail(name: str) -> None:
        if name in armed:
            armed.clear()
            raise StoreUnavailable("gone")

    block = block.bind(replace(block.resources, store=watched(block.resources.store, fail)))
    places, other = block.open(Scope("ada")), pair[1].user("ada").spatial()
    first = places.observe("first", (1, 0))
    armed.append(step)
    with pytest.raises(StoreUnavailable):
        places.observe("second", (2, 0))
    wanted = ["first"] if step == "before put_records" else ["first", "second"]
    assert nearest(places) == nearest(other) == wanted
    armed.append(step)
    with pytest.raises(StoreUnavailable):  # deleted, but other processes may not know
        places.delete(first.id)
    assert nearest(places) == wanted[1:]
    places.delete(first.id)
    assert nearest(places) == nearest(other) == wanted[1:]


def test_a_change_of_dimensions_raises_an_error(store: Store) -> None:
    """Wrong: after a change of `dimensions` old positions are read with the new number."""
    with AgentMemory(store=store, blocks=[SpatialMemory()]) as memory:
        memory.user("ada").spatial().observe("door", HERE)
    with AgentMemory(store=store, blocks=[SpatialMemory(dimensions=3)]) as memory:
        places = memory.user("ada").spatial()
        with pytest.raises(ConfigError, match="in 2 dimensions, but `dimensions` is 3"):
            places.near((0, 0, 0))
        with pytest.raises(ConfigError):
            places.observe("cup", (0, 0, 0))
        places.clear()
        places.observe("cup", (0, 0, 0))
        assert places.count() == 1


def recalled(memory: AgentMemory, message: object, user_id: str = "ada") -> list[str]:
    context = memory.get("another session", message, user_id=user_id)
    assert context.warnings == []
    return [recall.text for recall in context.recalls]


def test_an_observation_is_recalled_by_its_text(memory: AgentMemory) -> None:
    """Wrong: a question recalls irrelevant, faded or another user's observations."""
    places = memory.user("ada").spatial()
    now = datetime.now(UTC)
    for n in range(30):
        places.observe(f"Box {n} stands on a shelf.", (n, 0), at=now - DAY)
    places.observe("The charging station is free.", (3, 4.5), at=now - 12.5 * DAY, confidence=0.9)
    places.observe("The charging station is broken.", (3, 4.5), at=now - 900 * DAY)
    found = recalled(memory, "Where can I find a charging station?")
    sure = 0.9 * 0.5 ** (12.5 / 30)
    wanted = f"The charging station is free. (at 3, 4.5; 12 days ago; confidence {sure:.2f})"
    assert found == [wanted]
    assert recalled(memory, "xyzzy?") == []
    assert recalled(memory, "charging station", "ben") == []
    newest = recalled(memory, None)
    assert len(newest) > 1
    assert all("on a shelf" in text for text in newest[:20])
    block = memory.blocks["spatial"]
    assert block.get(Scope("ada"), None, 0) == []
    assert block.get(Scope(), Message(role="user", content="charging station"), 5) == []
    (recall,) = block.get(Scope("ada"), Message(role="user", content="charging station"), 1)
    assert (recall.block, recall.metadata) == ("spatial", {"position": [3.0, 4.5]})
    assert recall.created_at is not None
    assert recall.created_at == now - 12.5 * DAY


def test_an_observation_is_recalled_by_its_position(memory: AgentMemory) -> None:
    """Wrong: a message's position has no effect, or hides a relevant observation elsewhere."""
    places = memory.user("ada").spatial()
    for n in range(0, 300, 3):
        places.observe(f"Box {n} stands on a shelf.", (n % 20, n // 20), at=MARCH + n * DAY)
    places.observe("The charging station is here.", (500, 500))
    places.observe("A puddle of water.", (19.5, 14.5))
    block = memory.blocks["spatial"]

    def found(content: str, position: object) -> list[str]:
        message = Message(role="user", content=content, metadata={"position": position})
        recalls = block.get(Scope("ada"), message, 5)
        return [recall.text.split(" (at")[0] for recall in recalls]

    assert found("", [19.5, 14.5])[0] == "A puddle of water."
    assert found("Watch out!", [19.5, 14.5])[0] == "A puddle of water."
    assert found("Where is the charging station?", [1, 2])[0] == "The charging station is here."
    assert len(found("Where is the charging station?", [1, 2])) == 5
    for nowhere in ([1, 2, 3], "head of sales", None, {"x": 1}, [1, 2e12]):
        assert found("Where is the charging station?", nowhere) == ["The charging station is here."]


def test_tools_reach_only_the_users_observations(memory: AgentMemory) -> None:
    """Wrong: a tool cannot store or find observations, or reaches another user's."""
    call = partial(memory.call_tool, "s", user_id="ada")
    assert "null" not in json.dumps(memory.tools("s", user_id="ada"))  # schemas have no null
    told = json.loads(call("spatial_observe", {"text": "A red door.", "position": [3, 4]}))
    seen = {"text": "Perhaps a cat.", "position": [1.0, 1], "confidence": 0.5}
    for _ in range(2):  # the second call is a retry
        call("spatial_observe", json.dumps(seen), key="k-1")
    assert "was used for another" in call("spatial_observe", {**seen, "text": "A cat."}, key="k-1")
    assert memory.user("ada").spatial().count() == 2
    made = memory.user("ada").spatial().get(told["id"])
    assert (made.text, made.position, made.session_id) == ("A red door.", (3.0, 4.0), "s")
    (near,) = json.loads(call("spatial_near", {"position": [0, 0], "k": 1, "query": "red door"}))
    at = f"{made.at:%Y-%m-%dT%H:%MZ}"
    wanted = {"id": made.id, "text": "A red door.", "position": [3.0, 4.0], "distance": 5.0}
    assert near == {**wanted, "confidence": 1.0, "at": at}
    del wanted["distance"]
    box = json.loads(call("spatial_within", {"low": [2, 2], "high": [5, 5]}))
    assert box == [{**wanted, "confidence": 1.0, "at": at}]
    (cat,) = json.loads(call("spatial_near", {"position": [0, 0], "radius": 2}))
    assert (cat["text"], cat["distance"], cat["confidence"]) == ("Perhaps a cat.", 1.41421, 0.5)
    assert call("spatial_near", {"position": [90, 90], "radius": 1}) == "[]"
    for field, bad in (("k", 0), ("radius", -1), ("user_id", "ben")):
        assert f"{field}: " in call("spatial_near", {"position": [1, 2], field: bad})
    too_sure = {"text": "x", "position": [1, 2], "confidence": 2}
    assert "confidence: " in call("spatial_observe", too_sure)
    assert memory.call_tool("t", "spatial_near", {"position": [0, 0]}, user_id="ben") == "[]"
    memory.delete("s")
    assert call("spatial_near", {"position": [0, 0]}) == "[]"
