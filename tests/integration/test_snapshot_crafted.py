"""A crafted file with valid checksums is refused, or gives a session that works."""

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from agent_memory import AgentMemory, operations
from agent_memory.errors import InvalidId, InvalidSnapshot
from agent_memory.testing import FakeLLM
from tests.integration.snapshot_world import (
    bodies_of,
    left_in,
    lines,
    model,
    own_values,
    remembering,
    resummed,
    seen,
)
from tests.kit import at_length

__all__ = ["lines"]

_ODD: list[Any] = [
    None, True, 0, 1, -1, 2, 3, 57, 58, 2**53, 2**70, 0.5, -0.0, 1e300, "", "x", "\x00", "\ud800",
    "extractive", "user:ben", "2025-01-01T00:00:00", "2025-01-01T00:00:00+00:00", "AAAA", "[", [],
    [0], [1, 2], ["update", "x"], {}, {"a": 1}, [[["deep"]]], {"batch": {}}, {"key": 5},
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(one, (*path, key))


def changed(bodies: list[dict[str, Any]], rng: Random) -> list[dict[str, Any]]:
    """Return the lines with one removed, moved, repeated or edited."""
    found = copy.deepcopy(bodies)
    # each kind is equally likely, and so is each line of a kind
    kind = rng.choice(sorted({str(one.get("kind")) for one in found}))
    among = [at for at, one in enumerate(found) if str(one.get("kind")) == kind]
    at = rng.choice(among)
    how = rng.choice(["set", "set", "set", "set", "drop", "copy", "take", "twice"])
    if how == "take":
        found.insert(rng.randrange(len(found)), found.pop(at))
    elif how == "twice":
        found.insert(at, found[at])
    else:
        *outer, last = rng.choice(list(places(found[at])))
        inner: Any = found[at]
        for key in outer:
            inner = inner[key]
        if how == "drop":
            del inner[last]
        else:  # an odd value, or that of another line
            other = copy.deepcopy(bodies[rng.choice(among)]) if how == "copy" else {}
            inner[last] = other.get(last, copy.deepcopy(rng.choice(_ODD)))
    return found


def works(memory: AgentMemory, session_id: str, user_id: str | None) -> None:
    mine = memory.session(session_id, user_id)
    assert mine.get("tree").tokens <= 700
    mine.update({"role": "user", "content": "I live in Porto, and what about the tree?"})
    assert [one.error for one in mine.flush() if one.error] == []
    assert mine.get("Where does Ada live?").warnings == []
    mine.search("xylophone")
    mine.history()
    mine.owner().audit()
    mine.owner().stale()
    mine.pop(3)
    mine.working().set("plan", 2)
    mine.owner().notes().add("More.")
    mine.owner().spatial().observe("A lamp.", (3, 4))
    mine.owner().spatial().near((0, 0))
    mine.export(_Sink())  # type: ignore[arg-type]
    mine.flush()


class _Sink:
    def write(self, text: str) -> None:
        json.loads(text)


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with FakeLLM(model()) as fake:
        yield fake.api_base


@settings(max_examples=at_length(20), phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_it_is_refused_or_it_works(base: str, lines: list[str], seed: int) -> None:
    """Wrong: a crafted file makes a later call fail, or a refused one leaves data."""
    bodies = changed(bodies_of(lines), Random(seed))
    opening = bodies[0]
    session_id, user_id = opening.get("session"), opening.get("user")
    with remembering("memory://", base=base) as memory:
        try:
            operations.import_session(memory, resummed(bodies))
        except (InvalidSnapshot, InvalidId):
            assert memory.sessions() == []
            assert not left_in(memory._store, session_id if isinstance(session_id, str) else "s")
            return
        works(memory, session_id, user_id)
        memory.delete(session_id)
        assert not left_in(memory._store, session_id)


@settings(max_examples=at_length(6), phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_nobody_else_is_touched(base: str, lines: list[str], seed: int) -> None:
    """Wrong: a crafted file changes another user's data or recalls."""
    rng = Random(seed)
    mine = [{**one, "session": "b", "user": "ben"} if "format" in one else one
            for one in bodies_of(lines)]  # fmt: skip
    ids = [one["id"] for one in mine if "id" in one]
    bodies = changed(bodies_of(lines), rng)
    target = rng.choice([at for at, one in enumerate(bodies) if "id" in one])
    bodies[target] = {**bodies[target], "id": rng.choice(ids)}
    with remembering("memory://", base=base) as memory:
        assert operations.import_session(memory, resummed(mine)).user_id == "ben"
        before = seen(memory, "b", "ben")
        with suppress(InvalidSnapshot, InvalidId):
            operations.import_session(memory, resummed(bodies))
        assert seen(memory, "b", "ben") == before


_VALUES: dict[str, dict[str, Any]] = {
    "an empty label": {"ns": ["a", ""]}, "a label too long": {"ns": ["x" * 400]},
    "no key": {"text": ""}, "a value that is no JSON": {"value": "{"},
    "a field that no value has": {"key": "tea"},
    "a value that JSON cannot give back": {"value": "NaN"},
    "a value nested without end": {"value": "[" * 100_000},
    "a time to live without an end": {"until": None},
    "an end without a time to live": {"ttl": None},
    "vectors that are not base64": {"vectors": ["e", "!", 1]},
    "vectors that are no numbers": {"vectors": ["e", "AADAfw==", 1]},
    "other vectors than it says": {"vectors": ["e", "AAAAAA==", 2]},
    "a time without a zone": {"until": "2125-01-01T00:00:00"},
}  # fmt: skip


@pytest.mark.parametrize("what", _VALUES)
def test_a_snapshot_with_an_invalid_value_is_rejected(lines: list[str], what: str) -> None:
    """Wrong: a crafted value is accepted, and makes every search of values fail."""
    bodies = bodies_of(lines)
    tea = next(one for one in bodies if one.get("text") == "tea")
    (tea if what == "no key" else tea["metadata"]).update(_VALUES[what])
    with remembering("memory://") as memory, pytest.raises(InvalidSnapshot):
        operations.import_session(memory, resummed(bodies))


def test_a_time_outside_the_calendar_is_refused(lines: list[str]) -> None:
    """Wrong: a crafted time of a fact causes another error than that of a damaged snapshot."""
    bodies = bodies_of(lines)
    fact = next(one for one in bodies if "valid_from" in one.get("metadata", {}))
    fact["metadata"]["valid_from"] = "0001-01-01T00:00:00+05:00"
    with remembering("memory://") as memory, pytest.raises(InvalidSnapshot, match="valid_from"):
        operations.import_session(memory, resummed(bodies))


def test_a_snapshot_with_a_duplicate_value_is_rejected(lines: list[str]) -> None:
    """Wrong: a snapshot with two values under one key is accepted."""
    bodies = bodies_of(lines)
    at = next(n for n, one in enumerate(bodies) if one.get("text") == "tea")
    bodies.insert(at, bodies[at])
    with remembering("memory://") as memory, pytest.raises(InvalidSnapshot, match="same key"):
        operations.import_session(memory, resummed(bodies))


def test_malformed_values_do_not_break_searches_or_lists(lines: list[str]) -> None:
    """Wrong: a crafted value makes every search by meaning, or every list of sessions, fail."""
    bodies = bodies_of(lines)
    for one in bodies:
        if one.get("text") == "tea":
            one["metadata"]["vectors"][1:] = ["AACAPw==", 1]
        elif one.get("kind") == "value":
            one["metadata"]["value"] = "5"
    with remembering("memory://") as memory:
        operations.import_session(memory, resummed(bodies))
        found = own_values(memory).search(query="tea")
        assert [one.score for one in found] == [None, None]
        assert [head.metadata for head in memory.sessions()] == [{}]
