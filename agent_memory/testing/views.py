"""What every vector store must do with each of the four views, as tests.

See `agent_memory.testing.contract`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from agent_memory.core.records import Hit
from agent_memory.errors import DimensionMismatch
from agent_memory.retrieval.features import Features, Query
from agent_memory.retrieval.terms import Terms
from agent_memory.retrieval.views import VIEWS
from agent_memory.stores.base import Store
from agent_memory.testing.contract import Contract, record
from agent_memory.testing.features import for_words, halved, ranked, units, worded

_SAID = {
    "a": "red fox red den",
    "b": "fox",
    "c": "blue den tree " + "grass " * 30,
    "d": "owl tree",
    "e": "red red red red owl fox den",
}
_AROUND = {
    "a": "fox fox tree " + "stone " * 60,
    "b": "den red",
    "c": "owl",
    "d": "",
    "e": "fox " * 9,
}


def bm25(texts: Mapping[str, str], question: str, usual: float) -> dict[str, float]:
    """What each text gets by Okapi BM25, with 0.9 for k1 and 0.75 for b, written out."""
    scores = {}
    for name, text in texts.items():
        words, score = text.split(), 0.0
        for word in question.split():
            times = words.count(word)
            holding = sum(word in other.split() for other in texts.values())
            rarity = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
            damping = 0.9 * (1 - 0.75 + 0.75 * len(words) / usual)
            score += rarity * 1.9 * times / (times + damping)
        scores[name] = score
    return scores


def by_name(hits: Sequence[Hit], view: str) -> dict[str, float]:
    """What a view gives, by the id of the record."""
    return {one.id: score for one, score in ranked(hits, view)}


class ViewsContract(Contract):
    """What a `VectorStore` must find by words, by meaning, and by either within surroundings.

    Attributes:
        breaks_ties_by_id: Whether of equals those with the lowest ids are found; a server that
            ranks by itself may choose as it likes.
        counts_within_owner: Whether how rare a word is is counted over the owner's records, rather
            than over all of the block.
        counts_beside: Whether it is counted over what is beside the stored records too; a server
            that does not tell it estimates.
        half_precision: How far a cosine with surroundings may be from the exact one.
    """

    breaks_ties_by_id = True
    counts_within_owner = True
    counts_beside = True
    half_precision = 1e-5

    def _fill(self, store: Store, owner: str = "user:a") -> None:
        records = [record(name, owner) for name in _SAID]
        store.put_vectors("v", records, worded(list(_SAID.values()), list(_AROUND.values())))

    @pytest.mark.parametrize("question", ["fox", "red", "den red", "owl nowhere tree", "grass"])
    def test_words_are_scored_by_bm25(self, store: Store, other: Store, question: str) -> None:
        """Else: what was said in these words is missed, or its length or the rarity misjudged."""
        store.open_vectors("v", 0, "none")
        if self.counts_within_owner:
            about = [record(f"{n}", "user:b") for n in range(4)]
            store.put_vectors("v", about, worded(["fox red", "fox", "den", "owl"]))
        self._fill(store)
        found = other.search_vectors("v", "user:a", for_words(question), 9)
        own, around = bm25(_SAID, question, 20), bm25(_AROUND, question, 50)
        assert {hit.record.id for hit in found} == {
            name for name in _SAID if own[name] or around[name]
        }
        for view, scores in (("words", own), ("words_around", around)):
            for name, score in by_name(found, view).items():  # weights are kept in half precision
                assert score == pytest.approx(scores[name], rel=1e-3, abs=1e-6)
        assert all(hit.scores[2:] == (0, 0) for hit in found)

    def test_each_view_finds_its_best(self, store: Store, other: Store) -> None:
        """Else: a view's best are cut off by another's, or a candidate lacks what a view gives."""
        names = [f"{n:02}" for n in range(60)]
        rows, around = units(60, seed=3, signed=True), halved(units(60, seed=4, signed=True))
        said = {name: "fox " + "grass " * (n * 7 % 60) for n, name in enumerate(names)}
        near = {name: "fox " + "stone " * (n * 11 % 60) for n, name in enumerate(names)}
        store.open_vectors("v", 8, "m")
        features = worded(list(said.values()), list(near.values()), rows, around)
        store.put_vectors("v", [record(name) for name in names], features)
        query = units(1, seed=5, signed=True)[0]
        wanted = {
            "words": bm25(said, "fox", 20),
            "words_around": bm25(near, "fox", 50),
            "meaning": dict(zip(names, (rows @ query).tolist(), strict=True)),
            "meaning_around": dict(zip(names, (around @ query).tolist(), strict=True)),
        }
        for depth in (1, 4):
            found = other.search_vectors("v", "user:a", for_words("fox", query), depth)
            best: set[str] = set()
            for view in VIEWS:
                scores, error = wanted[view], self._error(view)
                best.update(sorted(names, key=lambda name: -scores[name])[:depth])
                for name, score in by_name(found, view).items():
                    assert score == pytest.approx(scores[name], rel=1e-3, abs=error)
            assert {hit.record.id for hit in found} == best
            assert len(found) == len(best)
        assert len(other.search_vectors("v", "user:a", for_words("fox", query), 999)) == 60

    def _error(self, view: str) -> float:
        return self.half_precision if view == "meaning_around" else 1e-5

    def test_where_nothing_is_sought(self, store: Store) -> None:
        """Else: an empty question, or none wanted, is an error or brings something back."""
        store.open_vectors("v", 8, "m")
        nothing, vector = for_words(""), units(1)[0]
        for _ in range(2):
            assert store.search_vectors("v", "user:a", nothing, 9) == []
            assert store.search_vectors("v", "user:a", for_words("fox", vector), 0) == []
            assert store.search_vectors("v", "user:a", for_words("nowhere"), 9) == []
            store.put_vectors("v", [record("a")], worded(["fox"], None, units(1)))
        assert store.search_vectors("v", "user:b", for_words("fox", vector), 9) == []

    def test_words_alone(self, store: Store, other: Store) -> None:
        """Else: a block without an embedder keeps or finds nothing."""
        store.open_vectors("v", 0, "none")
        other.open_vectors("v", 0, "none")
        store.put_vectors("v", [record("a"), record("b")], worded(["fox", "owl"]))
        other.put_vectors("v", [record("c")], worded(["fox tree"]))
        for handle in (store, other):
            found = handle.search_vectors("v", "user:a", for_words("fox"), 9)
            assert [one.id for one, _ in ranked(found, "words")] == ["a", "c"]
        with pytest.raises(DimensionMismatch):
            store.search_vectors("v", "user:a", for_words("fox", units(1)[0]), 9)

    def test_a_question_without_a_vector(self, store: Store) -> None:
        """Else: while an embedder is down nothing is found, though words would do."""
        store.open_vectors("v", 8, "m")
        store.put_vectors("v", [record("a"), record("b")], worded(["fox", "owl"], None, units(2)))
        (found,) = store.search_vectors("v", "user:a", for_words("fox"), 9)
        assert found.record.id == "a"
        assert found.scores[2:] == (0, 0)

    def test_what_a_view_gives_nothing_it_does_not_find(self, store: Store) -> None:
        """Else: what means the opposite is found for it, or is said to mean nothing."""
        row = np.eye(8, dtype=np.float32)
        rows, around = np.stack([row[0], -row[0], row[1]]), np.stack([row[1], -row[0], -row[0]])
        store.open_vectors("v", 8, "m")
        records = [record(name) for name in "abc"]
        store.put_vectors("v", records, worded(["fox", "owl", "owl"], None, rows, around))
        (found,) = store.search_vectors("v", "user:a", Query(row[0]), 9)
        assert found.record.id == "a"
        two = store.search_vectors("v", "user:a", for_words("owl", row[0]), 1)
        assert sorted(hit.record.id for hit in two)[0] == "a"
        assert len(two) == 2
        two = store.search_vectors("v", "user:a", for_words("owl", row[0]), 2)
        assert by_name(two, "meaning") == pytest.approx({"a": 1, "b": -1, "c": 0}, abs=1e-5)
        assert by_name(two, "meaning_around") == pytest.approx(
            {"a": 0, "b": -1, "c": -1}, abs=self.half_precision
        )

    def test_equal_words_go_by_id(self, store: Store) -> None:
        """Else: which of several that say the same is found changes from call to call."""
        names = [f"{n * 37 % 101:03}" for n in range(101)]
        store.open_vectors("v", 0, "none")
        store.put_vectors("v", [record(n) for n in names], worded(["fox"] * 101))
        found = ranked(store.search_vectors("v", "user:a", for_words("fox"), 5), "words")
        assert len(found) == 5
        if self.breaks_ties_by_id:
            assert [one.id for one, _ in found] == ["000", "001", "002", "003", "004"]

    def test_overwriting_replaces_words(self, store: Store, other: Store) -> None:
        """Else: a record is found by what it said before, or counted twice."""
        store.open_vectors("v", 0, "none")
        other.open_vectors("v", 0, "none")
        self._fill(store)
        assert other.search_vectors("v", "user:a", for_words("grass"), 9)
        other.put_vectors("v", [record("c")], worded(["fox den"], ["red"]))
        said, around = {**_SAID, "c": "fox den"}, {**_AROUND, "c": "red"}
        for handle in (store, other):
            assert handle.search_vectors("v", "user:a", for_words("grass"), 9) == []
            found = handle.search_vectors("v", "user:a", for_words("fox red"), 9)
            for view, texts, usual in (("words", said, 20), ("words_around", around, 50)):
                scores = bm25(texts, "fox red", usual)
                wanted = {hit.record.id: scores[hit.record.id] for hit in found}
                assert by_name(found, view) == pytest.approx(wanted, rel=1e-3)
            assert by_name(found, "words")["c"] > 0

    def test_words_of_many_puts_are_counted_together(self, store: Store, other: Store) -> None:
        """Else: how rare a word is is told from what was put first, or last."""
        store.open_vectors("v", 0, "none")
        there: dict[str, str] = {}
        for size in (16, 5, 2, 1, 1):
            new = {
                f"{len(there) + n:02}": "fox red" if n % 3 else "fox den owl" for n in range(size)
            }
            store.put_vectors("v", [record(name) for name in new], worded(list(new.values())))
            there |= new
            wanted = bm25(there, "fox owl", 20)
            for handle in (store, other):
                found = handle.search_vectors("v", "user:a", for_words("fox owl"), 99)
                assert by_name(found, "words") == pytest.approx(wanted, rel=1e-3)

    def test_the_same_record_twice_in_one_put(self, store: Store) -> None:
        """Else: it is counted twice, or the former of the two is found."""
        store.open_vectors("v", 0, "none")
        records = [record("a", text="old"), record("b"), record("a", text="new")]
        store.put_vectors("v", records, worded(["fox", "owl", "fox den"]))
        (found,) = store.search_vectors("v", "user:a", for_words("fox"), 9)
        assert found.record.text == "new"
        wanted = bm25({"a": "fox den", "b": "owl"}, "fox", 20)["a"]
        assert found.scores[0] == pytest.approx(wanted, rel=1e-3)

    def test_what_is_deleted_is_not_counted(self, store: Store, other: Store) -> None:
        """Else: a word is taken for common that only deleted records have."""
        store.open_vectors("v", 0, "none")
        records = [record(name, session_id=name) for name in _SAID]
        store.put_vectors("v", records, worded(list(_SAID.values())))
        assert len(other.search_vectors("v", "user:a", for_words("fox"), 9)) == 3
        for name in ("a", "d", "e"):
            other.delete_vectors("v", session_id=name)
        left = bm25({name: _SAID[name] for name in "bc"}, "fox", 20)
        for handle in (store, other):
            (found,) = handle.search_vectors("v", "user:a", for_words("fox"), 9)
            assert found.scores[0] == pytest.approx(left["b"], rel=1e-3)

    def test_any_number_is_a_word(self, store: Store, other: Store) -> None:
        """Else: words whose numbers are large or 0 are lost, or taken for others."""
        numbers = [0, 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1]
        weights = [2.0**n for n in range(-3, 3)]
        terms = [
            Terms(np.array([number], np.uint32), np.array([weight], np.float32))
            for number, weight in zip(numbers, weights, strict=True)
        ]
        store.open_vectors("v", 3, "m")
        records = [record(f"{n}") for n in range(6)]
        rows, around = units(6, 3), halved(units(6, 3, seed=8))
        store.put_vectors("v", records, Features(rows, around, terms, terms[::-1]))
        rarity = math.log(1 + (6 - 1 + 0.5) / (1 + 0.5))
        for place, number in enumerate(numbers):
            query = Query(np.empty(0, np.float32), (number,))
            found = {hit.record.id: hit for hit in other.search_vectors("v", "user:a", query, 9)}
            assert set(found) == {f"{place}", f"{5 - place}"}
            assert found[f"{place}"].scores[0] == pytest.approx(rarity * weights[place], rel=1e-5)
            assert found[f"{5 - place}"].scores[1] == pytest.approx(
                rarity * weights[place], rel=1e-5
            )
