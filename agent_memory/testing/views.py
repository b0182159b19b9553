"""Contract tests for the search of vector stores; see `agent_memory.testing.contract`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from agent_memory.core.records import Hit
from agent_memory.errors import DimensionMismatch
from agent_memory.retrieval.features import Features, Turn
from agent_memory.retrieval.index import SegmentIndex
from agent_memory.retrieval.postings import Terms
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.score import PARTS, fitted
from agent_memory.retrieval.vectors import TOKEN, Encoding
from agent_memory.stores.base import Store
from agent_memory.testing.contract import Contract, for_words, record, units, worded

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

    def test_every_store_ranks_as_an_index_in_memory(self, store: Store, other: Store) -> None:
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

    def test_where_nothing_is_sought(self, store: Store) -> None:
        """Wrong: an empty question or a limit of 0 fails or returns something."""
        store.open_vectors("v", 8, "m")
        nothing, vector = for_words(""), units(1)[0]
        for _ in range(2):
            assert store.search_vectors("v", "user:a", nothing, 9) == []
            assert store.search_vectors("v", "user:a", for_words("fox", vector), 0) == []
            assert store.search_vectors("v", "user:a", for_words("nowhere"), 9) == []
            store.put_vectors("v", [record("a")], worded(["fox"], units(1)))
        assert store.search_vectors("v", "user:b", for_words("fox", vector), 9) == []

    def test_words_alone(self, store: Store, other: Store) -> None:
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

    def test_records_that_are_not_encoded_yet(self, store: Store, other: Store) -> None:
        """Wrong: records without vectors are lost, or not found by their words."""
        rows = np.stack([np.zeros(8, np.float32), units(1)[0]])
        store.open_vectors("v", 8, "m")
        store.put_vectors("v", [record("a"), record("b")], worded(["fox", "owl"], rows))
        for handle in (store, other):
            hits = handle.search_vectors("v", "user:a", for_words("fox", units(1)[0]), 9)
            assert {hit.record.id: hit.cosine > 0 for hit in hits} == {"a": False, "b": True}
            assert words_of(hits).keys() == {"a"}

    def test_overwriting_replaces_words(self, store: Store, other: Store) -> None:
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

    def test_the_same_record_twice_in_one_put(self, store: Store) -> None:
        """Wrong: the record is counted twice, or its earlier version is found."""
        store.open_vectors("v", 0, "none")
        records = [record("a", text="old"), record("b"), record("a", text="new")]
        store.put_vectors("v", records, worded(["fox", "owl", "fox den"]))
        (hit,) = store.search_vectors("v", "user:a", for_words("fox"), 9)
        assert hit.record.text == "new"
        wanted = bm25({"a": "fox den", "b": "owl"}, "fox")["a"]
        assert hit.words == pytest.approx(wanted, rel=2e-3)

    def test_any_number_is_a_word(self, store: Store, other: Store) -> None:
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
