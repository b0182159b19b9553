"""`ChatHistory`, `VectorIndex` and `WordIndex` over every store, and exact search."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory import AgentMemory, ChatHistory, VectorIndex, WordIndex
from agent_memory.errors import DimensionMismatch, InvalidInput, MemoryClosed
from agent_memory.retrieval.features import TURN_LENGTH
from agent_memory.stores import EncryptedStore, Keys, MemoryStore, open_store
from agent_memory.stores.qdrant.store import QdrantStore
from agent_memory.testing.vectors import bm25
from tests.contract.mongodb_suite import server, url
from tests.contract.standalone_contract import ChatHistoryContract, VectorIndexContract
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.qdrant import qdrant
from tests.servers.redis_suite import redis
from tests.servers.sql import serve

__all__ = ["qdrant", "redis", "server", "url"]

Place = Callable[[], Any]
"""Gives what a half takes as its `store`; each time anew where that is a handle."""


class IndexOver(VectorIndexContract):
    """`VectorIndex` keeps the contract."""

    @pytest.fixture
    def namespace(self) -> str:
        return f"halves{uuid4().hex}"

    @pytest.fixture
    def place(self) -> Place:
        pytest.fail("Subclasses give the place.")

    @pytest.fixture
    def opened(self, place: Place, namespace: str) -> Iterator[Callable[[int], VectorIndex]]:
        with ExitStack() as stack:
            yield lambda dimension: stack.enter_context(
                VectorIndex(place(), dimension=dimension, namespace=namespace)
            )


class StandaloneOver(ChatHistoryContract, IndexOver):
    """`ChatHistory` keeps the contract, too."""

    @pytest.fixture
    def history(self, place: Place, namespace: str) -> Iterator[ChatHistory]:
        with ChatHistory(place(), namespace=namespace) as history:
            yield history

    @pytest.fixture
    def other(  # type: ignore[override]
        self, request: pytest.FixtureRequest, place: Place, namespace: str
    ) -> Iterator[Any]:
        if "index" in request.fixturenames:
            yield request.getfixturevalue("opened")(3)
            return
        request.getfixturevalue("history")
        with ChatHistory(place(), namespace=namespace) as other:
            yield other


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    for served in serve(PostgresServer, "AGENT_MEMORY_TEST_POSTGRES"):
        yield served.url


@pytest.fixture(scope="module")
def mariadb() -> Iterator[str]:
    for served in serve(MariaDBServer, "AGENT_MEMORY_TEST_MYSQL"):
        yield served.url


class TestOver(StandaloneOver):
    """Over each store. Each use of a place opens a handle of its own, except in memory."""

    @pytest.fixture(
        params=["memory", "sqlite", "encrypted", "redis", "postgres", "mariadb", "url"],
        ids=["memory", "sqlite", "encrypted", "redis", "postgres", "mariadb", "mongodb"],
    )
    def place(
        self, request: pytest.FixtureRequest, tmp_path: Path, namespace: str
    ) -> Iterator[Place]:
        store, on_disk = MemoryStore(), f"sqlite:///{tmp_path}/memory.db"
        if request.param not in ("memory", "sqlite", "encrypted"):
            on_server = request.getfixturevalue(request.param)
            yield lambda: on_server
            return
        with ExitStack() as stack:

            def encrypted() -> EncryptedStore:
                inner = stack.enter_context(closing(open_store(on_disk, namespace)))
                return EncryptedStore(inner, Keys({"k": bytes(range(32))}), namespace)

            places = {"memory": lambda: store, "sqlite": lambda: on_disk, "encrypted": encrypted}
            yield places[request.param]


class TestOverQdrant(IndexOver):
    @pytest.fixture
    def place(self, qdrant: str) -> Place:
        return lambda: qdrant


class TestOverLocalQdrant(IndexOver):
    """In the client's local mode each handle has data of its own."""

    @pytest.fixture
    def place(self) -> Iterator[Place]:
        with closing(QdrantStore(":memory:")) as store:
            yield lambda: store


_NUMBERS = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0]) | st.floats(-1e3, 1e3, width=32)
_VECTORS = st.lists(_NUMBERS, min_size=3, max_size=3).filter(any)


def brute(
    kept: dict[str, list[float]], query: list[float], top_k: int, threshold: float | None
) -> list[tuple[str, float]]:
    """Return what a search must find, by definition."""
    scored = []
    for name, vector in kept.items():
        a, b = np.array(vector), np.array(query)
        scored.append((name, float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))))
    best = sorted(scored, key=lambda one: (-round(one[1], 9), one[0]))
    return [one for one in best if threshold is None or one[1] > threshold][:top_k]


@given(
    st.dictionaries(st.sampled_from("abcdefghijklmnop"), _VECTORS, max_size=16),
    st.dictionaries(st.sampled_from("abcdefghijklmnop"), _VECTORS, max_size=4),
    st.sets(st.sampled_from("abcdefghijklmnop"), max_size=4),
    _VECTORS,
    st.integers(0, 20),
    st.none() | st.floats(-1, 1),
)
def test_searches_are_exact(
    kept: dict[str, list[float]],
    changed: dict[str, list[float]],
    gone: set[str],
    query: list[float],
    top_k: int,
    threshold: float | None,
) -> None:
    """Wrong: after some changes a search returns other items than a full scan."""
    with VectorIndex(MemoryStore(), dimension=3) as index:
        for some in (kept, changed):
            index.store([{"id": name, "vector": vector} for name, vector in some.items()])
        index.delete(gone)
        there = {name: v for name, v in {**kept, **changed}.items() if name not in gone}
        near = [score for _, score in brute(there, query, 99, None)]
        if threshold is not None and any(abs(score - threshold) < 1e-9 for score in near):
            threshold = None  # a rounding error may fall on either side of the threshold
        found = index.search(query, top_k=top_k, threshold=threshold)
        expected = brute(there, query, top_k, threshold)
        assert [match.score for match in found] == pytest.approx([s for _, s in expected], abs=1e-9)
        assert [match.score for match in found] == sorted((m.score for m in found), reverse=True)
        apart = min((abs(a - b) for a, b in pairwise(near) if a != b), default=1)
        if apart > 1e-6 and len(set(near)) == len(near):
            assert [match.id for match in found] == [name for name, _ in expected]


def test_a_search_distinguishes_nearly_equal_vectors() -> None:
    """Wrong: a search confuses vectors that are equal in the store's precision."""
    turns = {f"{n:04}": [1.0, n * 1e-5] for n in range(2_000, 0, -1)}
    with VectorIndex(MemoryStore(), dimension=2) as index:
        index.store([{"id": name, "vector": vector} for name, vector in turns.items()])
        found = index.search([1.0, 0.0], top_k=5)
    assert [match.id for match in found] == ["0001", "0002", "0003", "0004", "0005"]
    assert len({match.score for match in found}) > 1


WORDS = ["סירה", "נהר", "מנורה", "כינור", "מנוע", "פלפל"]
"""Words of a script without stems: each stays one word, whatever words stand beside it."""

Opened = Callable[[], WordIndex]


@pytest.fixture(params=["memory", "sqlite", "qdrant"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    place = {
        "memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/words.db", "qdrant": ":memory:"
    }[request.param]  # fmt: skip
    index = WordIndex(place)
    yield lambda: index
    index.close()


@settings(max_examples=int(os.environ.get("EXAMPLES", "40")), deadline=None)
@given(
    texts=st.dictionaries(
        st.sampled_from("abcdefgh"), st.lists(st.sampled_from(WORDS), min_size=1, max_size=30),
        min_size=1,
    ),
    query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4),
    gone=st.sampled_from("abcdefgh"),
)  # fmt: skip
def test_scores_are_bm25(texts: dict[str, list[str]], query: list[str], gone: str) -> None:
    """Wrong: scores or their order differ from BM25, also after an item was replaced or deleted."""
    with WordIndex("memory://") as index:
        index.store([{"id": name, "text": "נהר " * 50} for name in texts])
        index.store([{"id": name, "text": " ".join(words)} for name, words in texts.items()])
        index.delete(gone)
        left = {name: " ".join(words) for name, words in texts.items() if name != gone}
        found = index.search(" ".join(query), top_k=20)
        scored = bm25(left, " ".join(dict.fromkeys(query)), TURN_LENGTH)
        expected = {name: score for name, score in scored.items() if score}
        assert {one.id: one.score for one in found} == pytest.approx(expected, rel=2e-2)
        scores = [one.score for one in found]
        assert scores == sorted(scores, reverse=True)


def test_a_word_index_gives_the_same_results_in_every_store(opened: Opened) -> None:
    """Wrong: endings or stop words change the results, or metadata is lost."""
    index = opened()
    index.store(
        [
            {"id": "fig", "text": "Fig trees stand frost.", "metadata": {"page": 3}},
            {"id": "rose", "text": "Prune roses in March."},
            {"id": "empty", "text": ""},
        ]
    )
    (found,) = index.search("Which tree is the hardiest?")
    assert (found.id, found.text, found.metadata) == ("fig", "Fig trees stand frost.", {"page": 3})
    assert index.search("the of and") == []
    assert index.search("pruning", threshold=found.score + 100) == []
    assert index.search("rose", top_k=0) == []


def test_a_word_index_isolates_users_and_deletes_their_texts(tmp_path: Path) -> None:
    """Wrong: another user finds a user's texts, or they survive the user."""
    url = f"sqlite:///{tmp_path}/words.db"
    with WordIndex(url) as index:
        index.store({"id": "a", "text": "Ana's peanut allergy"}, user_id="ana")
        assert [one.id for one in index.search("peanuts", user_id="ana")] == ["a"]
        assert index.search("peanuts", user_id="ben") == index.search("peanuts") == []
        assert [one.text for one in index.get("a", user_id="ana")] == ["Ana's peanut allergy"]
        with AgentMemory(url) as memory:
            memory.delete_user("ana")
        assert index.search("peanuts", user_id="ana") == []
    with pytest.raises(MemoryClosed):
        index.search("peanuts")


def test_a_word_index_refuses_items_without_text() -> None:
    """Wrong: a vector is accepted and never found, or two kinds of index share a name."""
    with WordIndex("memory://") as index:
        with pytest.raises(InvalidInput):
            index.store({"id": "v", "vector": [1.0, 2.0]})
        with pytest.raises(InvalidInput):
            index.search(3)  # type: ignore[arg-type]
        store = index._vectors
        with pytest.raises(DimensionMismatch, match="words"):
            VectorIndex(store, name="words", dimension=3)
