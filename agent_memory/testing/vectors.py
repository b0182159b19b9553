"""Contract tests for vector stores; see `agent_memory.testing.contract`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from agent_memory.core.records import Hit
from agent_memory.errors import DimensionMismatch
from agent_memory.retrieval.features import Features, Terms, Turn
from agent_memory.retrieval.index import SegmentIndex
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.score import PARTS, fitted
from agent_memory.retrieval.vectors import TOKEN, Encoding
from agent_memory.stores.base import Store
from agent_memory.testing.contract import Contract, for_words, ranked, record, units, worded
from agent_memory.testing.records import AllVectorsContract

_TEXTS = {
    "a": "red fox red den",
    "b": "fox",
    "c": "blue den tree " + "grass " * 30,
    "d": "owl tree",
    "e": "red red red red owl fox den",
}


def bm25(texts: Mapping[str, str], question: str, usual: float = 20) -> dict[str, float]:
    """Return each text's Okapi BM25 score, with k1 = 0.9, b = 0.75 and the average length `usual`.

    Counts are smoothed as if there were 20 more texts, one of which contains all words.
    """
    scores = {}
    for name, text in texts.items():
        words, score = text.split(), 0.0
        for word in question.split():
            times = words.count(word)
            holding = sum(word in other.split() for other in texts.values())
            rarity = math.log(1 + (len(texts) + 19 - holding + 0.5) / (holding + 1.5))
            damping = 0.9 * (1 - 0.75 + 0.75 * len(words) / usual)
            score += rarity * 1.9 * times / (times + damping)
        scores[name] = score
    return scores


def words_of(hits: Sequence[Hit]) -> dict[str, float]:
    """Return the word scores of hits by record id, without zeros."""
    return {hit.record.id: hit.words for hit in hits if hit.words}


def encoded(texts: Sequence[str]) -> list[Encoding]:
    def row(word: str, length: int) -> np.ndarray:
        seed = sum(ord(char) * 31**at for at, char in enumerate(word))
        return np.random.default_rng(seed).normal(size=length).astype(np.float32)

    encodings = []
    for text in texts:
        words = text.replace(":", "").split()
        vector = np.sum([row(word, 64) for word in words], axis=0)
        pieces = np.stack([row(word, TOKEN) for word in words])
        pieces = np.rint(127 * pieces / np.linalg.norm(pieces, axis=1, keepdims=True))
        starts = np.array([text.index(word) for word in words], np.int32)
        encodings.append(Encoding(vector / np.linalg.norm(vector), pieces.astype(np.int8), starts))
    return encodings


class ViewsContract(Contract):
    """Contract of a `VectorStore` for search by words, meaning, word pieces and neighbours.

    Attributes:
        counts_within_owner: Whether a word's rarity is computed from the owner's records alone,
            rather than from all records of the block.
    """

    counts_within_owner = True

    def _fill(self, store: Store, owner: str = "user:a") -> None:
        records = [record(name, owner) for name in _TEXTS]
        store.put_vectors("v", records, worded(list(_TEXTS.values())))

    @pytest.mark.parametrize("question", ["fox", "red", "den red", "owl nowhere tree", "grass"])
    def test_words_are_scored_by_bm25(self, store: Store, other: Store, question: str) -> None:
        """Wrong: a text with a word of the query is missed, or its BM25 score is wrong."""
        store.open_vectors("v", 0, "none")
        if self.counts_within_owner:
            about = [record(f"{n}", "user:b") for n in range(4)]
            store.put_vectors("v", about, worded(["fox red", "fox", "den", "owl"]))
        self._fill(store)
        hits = other.search_vectors("v", "user:a", for_words(question), 9)
        wanted = {name: score for name, score in bm25(_TEXTS, question).items() if score}
        assert words_of(hits) == pytest.approx(wanted, rel=2e-3)
        assert all(hit.cosine == 0 for hit in hits)

    def test_hits_and_scores_match_an_index_in_memory(self, store: Store, other: Store) -> None:
        """Wrong: the store's hits or scores differ from those of an index in memory."""
        words = ["fox", "owl", "den", "tree", "red", "blue", "grass", "stone", "river", "cloud"]
        begun = datetime(2026, 1, 1, tzinfo=UTC)
        draws = np.random.default_rng(11)
        turns = [
            Turn(
                "user" if n % 2 else "assistant",
                " ".join(draws.choice(words, size=int(draws.integers(1, 30)))),
                begun, bool(n % 2), session_id=f"s{n // 20}", seq=1 + n % 20,
            )
            for n in range(120)
        ]  # fmt: skip
        features = Features.of_turns(turns, encoded)
        names = [f"{n:032x}" for n in range(120)]
        records = [
            replace(record(name, session_id=turn.session_id), first=turn.seq, last=turn.seq)
            for name, turn in zip(names, turns, strict=True)
        ]
        store.open_vectors("v", 64, "m")
        for at in range(0, 120, 30):
            store.put_vectors("v", records[at : at + 30], features.part(at, at + 30))
        index = SegmentIndex(64).extended(names, features, compact=True)
        weights = np.array([fitted()["rank"][name] for name in PARTS], np.float32)
        for question in ("red fox", "my river cloud", "stone owl grass", "nowhere blue"):
            query = Query.of(question, encoded([question])[0], 0.1)
            wanted = index.search(query, 20)
            hits = other.search_vectors("v", "user:a", query, 20)
            parts = dict(zip(wanted.names, wanted.parts, strict=True))
            assert {hit.record.id for hit in hits} == parts.keys()
            sums = [float(parts[hit.record.id] @ weights) for hit in hits]
            # the order of nearly equal scores may differ, because stores round vectors
            assert sums == pytest.approx(sorted(sums, reverse=True), abs=0.01)
            for hit, score in zip(hits, wanted.scores, strict=True):
                assert hit.score == pytest.approx(float(score), abs=0.02)
                assert hit.parts == pytest.approx(parts[hit.record.id].tolist(), abs=0.01)
                assert 0 <= hit.relevance <= 1

    def test_an_empty_query_or_a_limit_of_0_returns_nothing(self, store: Store) -> None:
        """Wrong: an empty question or a limit of 0 fails or returns something."""
        store.open_vectors("v", 8, "m")
        nothing, vector = for_words(""), units(1)[0]
        for _ in range(2):
            assert store.search_vectors("v", "user:a", nothing, 9) == []
            assert store.search_vectors("v", "user:a", for_words("fox", vector), 0) == []
            assert store.search_vectors("v", "user:a", for_words("nowhere"), 9) == []
            store.put_vectors("v", [record("a")], worded(["fox"], units(1)))
        assert store.search_vectors("v", "user:b", for_words("fox", vector), 9) == []

    def test_blocks_without_an_embedder_search_by_words(self, store: Store, other: Store) -> None:
        """Wrong: a block without an embedder stores or finds nothing."""
        store.open_vectors("v", 0, "none")
        other.open_vectors("v", 0, "none")
        store.put_vectors("v", [record("a"), record("b")], worded(["fox", "owl"]))
        other.put_vectors("v", [record("c")], worded(["fox tree"]))
        for handle in (store, other):
            hits = handle.search_vectors("v", "user:a", for_words("fox"), 9)
            assert words_of(hits).keys() == {"a", "c"}
        with pytest.raises(DimensionMismatch):
            store.search_vectors("v", "user:a", for_words("fox", units(1)[0]), 9)

    def test_records_without_vectors_are_found_by_words(self, store: Store, other: Store) -> None:
        """Wrong: records without vectors are lost, or not found by their words."""
        rows = np.stack([np.zeros(8, np.float32), units(1)[0]])
        store.open_vectors("v", 8, "m")
        store.put_vectors("v", [record("a"), record("b")], worded(["fox", "owl"], rows))
        for handle in (store, other):
            hits = handle.search_vectors("v", "user:a", for_words("fox", units(1)[0]), 9)
            assert {hit.record.id: hit.cosine > 0 for hit in hits} == {"a": False, "b": True}
            assert words_of(hits).keys() == {"a"}

    def test_old_words_do_not_find_an_overwritten_record(self, store: Store, other: Store) -> None:
        """Wrong: a record is found by its former text, or counted twice."""
        store.open_vectors("v", 0, "none")
        other.open_vectors("v", 0, "none")
        self._fill(store)
        assert words_of(other.search_vectors("v", "user:a", for_words("grass"), 9))
        other.put_vectors("v", [record("c")], worded(["fox den"]))
        wanted = bm25({**_TEXTS, "c": "fox den"}, "fox red")
        for handle in (store, other):
            assert handle.search_vectors("v", "user:a", for_words("grass"), 9) == []
            scores = words_of(handle.search_vectors("v", "user:a", for_words("fox red"), 9))
            assert scores == pytest.approx({n: s for n, s in wanted.items() if s}, rel=2e-3)

    def test_a_record_passed_twice_in_one_put_is_stored_once(self, store: Store) -> None:
        """Wrong: the record is counted twice, or its earlier version is found."""
        store.open_vectors("v", 0, "none")
        records = [record("a", text="old"), record("b"), record("a", text="new")]
        store.put_vectors("v", records, worded(["fox", "owl", "fox den"]))
        (hit,) = store.search_vectors("v", "user:a", for_words("fox"), 9)
        assert hit.record.text == "new"
        wanted = bm25({"a": "fox den", "b": "owl"}, "fox")["a"]
        assert hit.words == pytest.approx(wanted, rel=2e-3)

    def test_any_32_bit_number_can_be_a_word_id(self, store: Store, other: Store) -> None:
        """Wrong: a word with the id 0 or a large id is lost, or confused with another word."""
        numbers = [0, 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1]
        weights = [2.0**n for n in range(-3, 3)]
        terms = [
            Terms(np.array([number], np.uint32), np.array([weight], np.float32))
            for number, weight in zip(numbers, weights, strict=True)
        ]
        store.open_vectors("v", 3, "m")
        features = replace(worded(["fox"] * 6, units(6, 3)), words=terms)
        store.put_vectors("v", [record(f"{n}") for n in range(6)], features)
        rarity = math.log(1 + (6 + 19 - 1 + 0.5) / (1 + 1.5))
        for place, number in enumerate(numbers):
            query = Query(words=((number,),))
            (hit,) = other.search_vectors("v", "user:a", query, 9)
            assert hit.record.id == f"{place}"
            assert hit.words == pytest.approx(rarity * weights[place], rel=1e-3)


def _features(count: int, dimension: int = 8, seed: int = 7) -> Features:
    return Features.of_vectors(units(count, dimension, seed))


def _sought(dimension: int = 8) -> Query:
    return Query(units(1, dimension)[0])


def _names(store: Store, block: str = "v", owner: str = "user:a", dimension: int = 8) -> list[str]:
    hits = store.search_vectors(block, owner, _sought(dimension), 99)
    return sorted(hit.record.id for hit in hits)


class VectorStoreContract(ViewsContract, AllVectorsContract):
    """Contract of a `VectorStore`."""

    def test_a_vector_search_ranks_records_exactly(self, store: Store, other: Store) -> None:
        """Wrong: the nearest records are missed or ranked wrong."""
        vectors, queries = units(300, signed=True), units(5, seed=8, signed=True)
        store.open_vectors("v", 8, "m")
        records = [record(f"{n:03}") for n in range(300)]
        store.put_vectors("v", records, Features.of_vectors(vectors))
        for query in queries:
            scores = vectors @ query
            wanted = np.argsort(-scores).tolist()
            for limit in (1, 10, 300, 1000):
                ranking = ranked(other.search_vectors("v", "user:a", Query(query), limit))
                assert [int(r.id) for r, _ in ranking] == wanted[:limit]
                near = pytest.approx(scores[wanted[:limit]].tolist(), abs=1e-5)
                assert [score for _, score in ranking] == near

    def test_a_search_includes_pending_records_once(self, store: Store, other: Store) -> None:
        """Wrong: a search misses stored records, or the pending records that the query contains.

        Also wrong: a record that is both pending and stored is found twice.
        """
        store.open_vectors("v", 8, "m")
        texts, records = ["red fox", "red hen", "a dog"], [record(name) for name in "abc"]

        def features(since: int, upto: int = 3) -> Features:
            return worded(texts[since:upto], units(3)[since:upto])

        def search(since: int) -> dict[str, Hit]:
            pending = {record.id: record for record in records[since:]}
            index = SegmentIndex(8).extended(list(pending), features(since))
            query = for_words("red fox", units(1)[0]).with_pending(index, pending)
            hits = other.search_vectors("v", "user:a", query, 99)
            assert sorted((hit.record for hit in hits), key=lambda record: record.id) == records
            return {hit.record.id: hit for hit in hits}

        alone = search(0)
        for number, added in enumerate(records):
            store.put_vectors("v", [added], features(number, number + 1))
            assert search(0).keys() == alone.keys()
            for name, hit in search(number + 1).items():
                assert hit.cosine == pytest.approx(alone[name].cosine, abs=1e-5)
                assert hit.score == pytest.approx(alone[name].score, abs=0.02)

    def test_a_search_returns_all_fields_of_a_record(self, store: Store, other: Store) -> None:
        """Wrong: a field of a record is lost."""
        full = record("r", text="é 😀 \x00 \ud800", sources=(3, 1), last=3, metadata={"n": [None]})
        store.open_vectors("v", 8, "m")
        store.put_vectors("v", [full], _features(1))
        (hit,) = other.search_vectors("v", "user:a", _sought(), 3)
        assert hit.record == full
        assert hit.cosine == pytest.approx(1, abs=1e-5)
        assert {type(value) for value in (hit.score, hit.relevance, *hit.parts)} == {float}

    def test_a_search_finds_only_records_of_its_owner_and_block(self, store: Store) -> None:
        """Wrong: one user's search finds another user's memory."""
        for block in ("v", "w"):
            store.open_vectors(block, 8, "m")
        store.put_vectors("v", [record("a"), record("b", owner="user:b")], _features(2))
        store.put_vectors("w", [record("c")], _features(1))
        for owner, names in (("user:a", ["a"]), ("user:b", ["b"]), ("user:A", []), ("user:", [])):
            assert _names(store, owner=owner) == names

    def test_a_vector_with_the_same_id_is_overwritten(self, store: Store, other: Store) -> None:
        """Wrong: a retry stores a duplicate, or the old vector or owner stays."""
        old, new = np.eye(8, dtype=np.float32)[:2], units(3)[2:]
        store.open_vectors("v", 8, "m")
        store.put_vectors("v", [record("a"), record("b")], Features.of_vectors(old))
        assert other.search_vectors("v", "user:a", Query(old[0]), 1)[0].record.id == "a"
        store.put_vectors("v", [record("a", text="new")], Features.of_vectors(new))
        (best, score), (second, _) = ranked(other.search_vectors("v", "user:a", Query(new[0]), 9))
        assert (best.id, best.text, second.id) == ("a", "new", "b")
        assert score == pytest.approx(1.0, abs=1e-5)
        store.put_vectors("v", [record("a", owner="user:b")], Features.of_vectors(new))
        assert _names(other) == ["b"]
        assert _names(other, owner="user:b") == ["a"]

    def test_a_deletion_removes_only_the_selected_vectors(self, store: Store, other: Store) -> None:
        """Wrong: searches find deleted records, or a deletion removes other records."""
        store.open_vectors("v", 8, "m")
        store.open_vectors("w", 8, "m")

        def fill() -> None:
            records = [record(f"a{n}", last=n) for n in range(4)]
            records += [record("t", session_id="t", last=9), record("b", owner="user:b", last=9)]
            store.put_vectors("v", records, _features(6))
            store.put_vectors("w", [record("n", last=9)], _features(1))

        def left() -> list[str]:
            return sorted(_names(other) + _names(other, owner="user:b"))

        fill()
        assert left() == ["a0", "a1", "a2", "a3", "b", "t"]
        store.delete_vectors("v", session_id="s", after=1)
        assert left() == ["a0", "a1", "t"]
        fill()
        assert len(left()) == 6
        store.delete_vectors("v", owner="user:a")
        assert left() == ["b"]
        fill()
        store.delete_vectors("v", owner="user:a", session_id="s")
        assert left() == ["b", "t"]
        fill()
        store.delete_vectors("v", session_id="s")
        store.delete_vectors("v", session_id="s")
        assert left() == ["t"]
        assert _names(store, "w") == ["n"]
        with pytest.raises(ValueError, match="Name an owner"):
            store.delete_vectors("v")

    def test_handles_that_write_in_turn_find_all_records(self, store: Store, other: Store) -> None:
        """Wrong: a handle with a cache misses writes of another handle, or repeats a record."""
        handles = (store, other)
        for handle in handles:
            handle.open_vectors("v", 8, "m")
        there: list[str] = []
        for n in range(24):
            writer, reader = handles[n // 3 % 2], handles[n // 2 % 2]
            if n % 8 == 7:
                writer.delete_vectors("v", session_id=f"s{n - 2}")
                there.remove(f"{n - 2:02}")
            writer.put_vectors("v", [record(f"{n:02}", session_id=f"s{n}")], _features(1, seed=n))
            there.append(f"{n:02}")
            assert _names(reader) == there
        vectors = np.concatenate([units(1, seed=int(name)) for name in there])
        for handle in handles:
            ranking = ranked(handle.search_vectors("v", "user:a", Query(vectors[3]), 99))
            scores = [score for _, score in sorted(ranking, key=lambda pair: pair[0].id)]
            assert scores == pytest.approx((vectors @ vectors[3]).tolist(), abs=1e-5)

    def test_another_dimension_or_model_is_refused(self, store: Store, other: Store) -> None:
        """Wrong: vectors of two embedders are compared with each other."""
        store.open_vectors("v", 8, "m")
        other.open_vectors("v", 8, "m")
        store.put_vectors("v", [record("a")], _features(1))
        for dimension, model in ((9, "m"), (8, "M"), (0, "m")):
            with pytest.raises(DimensionMismatch, match="replay"):
                other.open_vectors("v", dimension, model)
        for dimension in (0, 9):
            with pytest.raises(DimensionMismatch):
                store.put_vectors("v", [record("b")], _features(1, dimension))
        with pytest.raises(DimensionMismatch):
            store.search_vectors("v", "user:a", _sought(9), 1)
        store.open_vectors("w", 9, "n")
        assert _names(store) == ["a"]

    def test_a_cleared_block_accepts_another_embedder(self, store: Store, other: Store) -> None:
        """Wrong: an embedder cannot be changed, or old vectors appear after the change."""
        for block in ("v", "w"):
            store.open_vectors(block, 8, "m")
            store.put_vectors(block, [record("a")], _features(1))
        assert _names(other) == ["a"]
        store.clear_vectors("v")
        store.clear_vectors("v")
        assert _names(other) == []
        other.open_vectors("v", 5, "n")
        other.put_vectors("v", [record("b")], _features(1, 5))
        assert _names(store, dimension=5) == ["b"]
        assert _names(store, "w") == ["a"]

    def test_a_rebuilt_block_refuses_the_old_embedder(self, store: Store, other: Store) -> None:
        """Wrong: a worker with the old embedder adds to a block that was rebuilt with a new one."""
        if store is other:
            pytest.skip("one handle has one embedder")
        store.open_vectors("v", 8, "old")
        other.clear_vectors("v")
        other.open_vectors("v", 8, "new")
        with pytest.raises(DimensionMismatch):
            store.put_vectors("v", [record("a")], _features(1))

    def test_namespaces_have_independent_vectors(self, store: Store, elsewhere: Store) -> None:
        """Wrong: one namespace finds or clears the vectors of another."""
        store.open_vectors("v", 8, "m")
        store.put_vectors("v", [record("a")], _features(1))
        elsewhere.open_vectors("v", 5, "n")
        assert elsewhere.vector_blocks() == {"v": (5, "n")}
        assert list(elsewhere.all_vectors("v")) == []
        assert _names(elsewhere, dimension=5) == []
        elsewhere.delete_vectors("v", owner="user:a")
        elsewhere.clear_vectors("v")
        assert _names(store) == ["a"]
