"""Contract tests for damaged records."""

import logging
from typing import Any, Literal

import pytest

from agent_memory.errors import Damaged
from agent_memory.stores.base import Store
from agent_memory.stores.damage import noted, read_around
from agent_memory.testing.contract import Contract, draft, for_words, record, units, worded

What = Literal["head", "message", "fact", "vector", "features", "catalog"]

_SPOILT = {
    "head": "documents SET about = '{broken', body = '{broken' "
    "WHERE collection = 'head' AND id = 's'",
    "message": "messages SET body = '{broken' WHERE seq = 2 AND session = 's'",
    "fact": "documents SET body = '{broken' WHERE collection LIKE 'fact:%' AND id = 'a'",
    "vector": "documents SET body = '{broken' WHERE collection LIKE 'vector:%' AND id = 'a'",
    "features": "documents SET data = substr(data, 1, 9) "
    "WHERE collection LIKE 'segment:%' AND owner = 'user:u'",
    "catalog": "documents SET body = '{broken', version = 7 "
    "WHERE collection LIKE 'catalog:%' AND owner = 'user:u'",
}


def spoil_sql(store: Store, what: What) -> None:
    """Damage the rows of session "s", its second message, or the records "a"."""
    text = f"UPDATE agent_memory_{_SPOILT[what]} AND namespace = '{store.kernel._namespace}'"
    store._database.write(lambda it: it.define(text))


class DamageContract(Contract):
    """A damaged record affects only itself, and damaged features the meaning of their segment."""

    def spoil(self, store: Store, what: What) -> None:
        spoil_sql(store, what)

    @pytest.fixture
    def filled(self, store: Store, other: Store) -> Store:
        """Three sessions of a user, and two records of each kind."""
        for name in ("r", "s", "t"):
            store.append(name, [draft(f"{name}{n}") for n in range(1, 4)], "u")
        store.put_records("facts", _TWO)
        for handle in (store, other):
            handle.open_vectors("v", 8, "model")
        store.put_vectors("v", _TWO, _FEATURES)
        return store

    def test_a_damaged_head_does_not_break_other_sessions(
        self, filled: Store, other: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Wrong: one damaged head stops listing, counting or work of all sessions."""
        self.spoil(filled, "head")
        with pytest.raises(Damaged, match=r"Session 's' is damaged.*doctor --repair") as raised:
            other.head("s")
        assert raised.value.damage.head.user_id == "u"
        with caplog.at_level(logging.WARNING, logger="agent_memory"):
            for _ in range(2):
                for user in (None, "u"):
                    assert _ids(other.sessions(user_id=user)) == ["r", "t"]
        assert sum("Session 's'" in line for line in caplog.messages) <= 1
        page = other.sessions(limit=2)
        assert _ids(page) == ["r", "t"], "a page is as long as it was asked for"
        assert sorted(_ids(other.due(3))) == ["r", "t"]
        assert {"r", "t"} <= {lag.session_id for lag in other.lagging("v", user_id="u")}
        said = other.tails("v", ["r", "s", "t"], before=0, limit=9)
        assert {"r", "t"} <= {entry.session_id for entry in said}
        assert other.counts().sessions == 3
        assert [entry.seq for entry in other.read("s")] == [1, 2, 3]

    def test_a_damaged_session_can_be_deleted(self, filled: Store, other: Store) -> None:
        """Wrong: a session with a damaged row cannot be deleted."""
        self.spoil(filled, "head")
        other.delete("s")
        assert other.head("s") is None
        assert _ids(other.sessions()) == ["r", "t"]
        assert other.append("s", [draft("anew")]).end == 1

    def test_damaged_sessions_do_not_take_places_in_due(self, filled: Store, other: Store) -> None:
        """Wrong: damaged sessions fill a worker's page, so that it does no other work."""
        self.spoil(filled, "head")
        seen: list[str] = []
        for _ in range(3):
            for head in other.due(1):
                seen.append(head.session_id)
                other.schedule(head, 60)
        assert sorted(seen) == ["r", "t"]

    def test_a_damaged_message_hides_no_other_message(self, filled: Store, other: Store) -> None:
        """Wrong: a damaged message hides all other messages of its user."""
        self.spoil(filled, "message")
        with pytest.raises(Damaged, match="Message 2 of session 's'"):
            other.read("s")
        assert [entry.seq for entry in other.read("s", after=2)] == [3]
        entries, reached = read_around(other, "s", 0, 3)
        assert ([entry.seq for entry in entries], reached) == ([1, 3], 3)
        said = other.tails("v", ["r", "s", "t"], before=0, limit=9)
        assert sorted(f"{one.session_id}{one.seq}" for one in said) == [
            *("r1", "r2", "r3", "s1", "s3", "t1", "t2", "t3")
        ]
        assert len(other.sessions()) == 3

    def test_a_damaged_fact_hides_no_other_fact(self, filled: Store, other: Store) -> None:
        """Wrong: a damaged fact hides all other facts of its user."""
        self.spoil(filled, "fact")
        assert [one.id for one in other.records("facts", "user:u")] == ["b"]
        with noted() as damaged:
            assert [one.id for _, one in other.all_records()] == ["b"]
        assert [error.damage and error.damage.record_id for error in damaged] == ["a"]
        other.delete_records("facts", record_id="a")
        with noted() as damaged:
            assert [one.id for _, one in other.all_records()] == ["b"]
        assert damaged == []

    def test_a_damaged_record_does_not_break_searches(self, filled: Store, other: Store) -> None:
        """Wrong: a damaged record makes every search fail."""
        self.spoil(filled, "vector")
        assert _found(other) == ["b"]
        assert _named(other) == (["b"], ["a"])
        other.delete_vectors("v", session_id="s")
        assert _named(other) == (["b"], [])
        filled.put_vectors("v", _TWO, _FEATURES)
        assert _found(other) == ["a", "b"]

    def test_records_of_a_damaged_segment_are_found(self, filled: Store, other: Store) -> None:
        """Wrong: a damaged segment hides its records until it is repaired."""
        filled.put_vectors("v", [record("c", "user:u", text="a fox")], worded(["fox"], _ROW))
        self.spoil(filled, "features")
        _, broken = _named(other)
        assert set(broken) <= {"a", "b", "c"}
        assert broken
        for handle in (filled, other):
            assert _found(handle) == ["a", "b"]
            assert "a" in _found(handle, "fox")
            assert _found(handle, "nothing") == []
        other.delete_vectors("v", session_id="t")
        for handle in (filled, other):
            assert _found(handle) == ["a"]
        other.put_vectors("v", _TWO, _FEATURES)
        for handle in (filled, other):
            assert _found(handle) == ["a", "b"]
        other.put_vectors("v", [record("c", "user:u")], worded(["fox"], _ROW))
        assert _named(other) == (["a", "b", "c"], [])
        other.delete_vectors("v", owner="user:u")
        assert _found(filled) == []

    @pytest.mark.parametrize("by", ["a search", "a write", "a deletion"])
    def test_a_damaged_catalog_hides_no_record(self, filled: Store, other: Store, by: str) -> None:
        """Wrong: a damaged catalog hides records that are intact, or is not reported."""
        for n in range(12):
            some = [record(f"{n}", "user:u", f"s{n}")]
            filled.put_vectors("v", some, worded([f"owl {n}"], meaning=units(1, seed=n)))
        before = _scores(other)
        self.spoil(filled, "catalog")
        with noted() as damaged:
            assert sum(len(some) for some, _ in other.all_vectors("v")) == 14
        told = {(one.damage.kind, one.damage.owner) for one in damaged if one.damage}
        assert told == {("vector", "user:u")}
        assert not any("user:u" in str(error) for error in damaged)
        if by == "a search":
            assert _scores(other) == before
        elif by == "a write":
            other.put_vectors("v", [record("new", "user:u", "new")], worded(["x"], _ROW))
            filled.delete_vectors("v", session_id="new")
        else:
            other.delete_vectors("v", session_id="s3")
            assert before.pop("3")
        with noted() as damaged:
            for handle in (filled, other):
                assert _scores(handle).keys() == before.keys()
                assert len(_named(handle)[0]) == len(before)
        assert damaged == []
        other.delete_vectors("v", owner="user:u")
        assert _scores(filled) == {}

    def test_a_damaged_catalog_and_segment_hide_nothing(self, filled: Store, other: Store) -> None:
        """Wrong: a damaged catalog and a damaged segment together hide more than each alone."""
        self.spoil(filled, "features")
        filled.put_vectors("v", [record("c", "user:u", "c")], worded(["red"], _ROW))
        self.spoil(filled, "catalog")
        for handle in (other, filled):
            assert _found(handle) == ["a", "b", "c"]
        assert _named(other) == (["c"], ["a", "b"])
        other.put_vectors("v", _TWO, _FEATURES)
        assert _named(filled) == (["a", "b", "c"], [])


_ROW = units(1, seed=5)
_TWO = [
    record("a", "user:u", text="The red fox."), record("b", "user:u", "t", text="The red owl."),
]  # fmt: skip
_FEATURES = worded(["red fox", "red owl"], meaning=units(2))


def _found(store: Store, word: str = "red") -> list[str]:
    query = for_words(word)
    return sorted(hit.record.id for hit in store.search_vectors("v", "user:u", query, 9))


def _scores(store: Store) -> dict[str, tuple[float, ...]]:
    hits = store.search_vectors("v", "user:u", for_words("red owl 3", _ROW[0]), 99)
    return {hit.record.id: (hit.words, hit.cosine) for hit in hits}


def _named(store: Store) -> tuple[list[str], list[str]]:
    """Return the ids of records with features, and of those reported as damaged."""
    with noted() as damaged:
        pages = list(store.all_vectors("v"))
    there = [one.id for records, _ in pages for one in records]
    return sorted(there), sorted(error.damage.record_id for error in damaged if error.damage)


def _ids(heads: Any) -> list[str]:
    return [head.session_id for head in heads]
