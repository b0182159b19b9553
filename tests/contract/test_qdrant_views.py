"""How the four views are asked of a Qdrant server, in one request, and what becomes of its answers.

On the wire against a stand-in: see `tests/servers/qdrant.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from agent_memory.retrieval.views import VIEWS
from qdrant_client import models

from agent_memory.errors import DimensionMismatch
from agent_memory.retrieval.features import Features, Query
from agent_memory.retrieval.terms import asked
from agent_memory.stores.coding import record_body, to_micros
from agent_memory.stores.encrypted.keys import Keys
from agent_memory.stores.encrypted.vectors import EncryptedVectors, RecordSeals
from agent_memory.stores.qdrant.names import embedding
from agent_memory.stores.qdrant.store import QdrantStore
from agent_memory.stores.qdrant.views import hits
from agent_memory.testing.contract import record
from agent_memory.testing.features import for_words, halved, ranked, units, worded
from tests.servers.qdrant import StandIn

WORDS, MEANINGS = VIEWS[:2], VIEWS[2:]


@pytest.fixture
def server() -> Iterator[StandIn]:
    with pytest.MonkeyPatch.context() as patch, StandIn() as server:
        patch.delenv("QDRANT_API_KEY", raising=False)
        yield server


@pytest.fixture
def store(server: StandIn) -> Iterator[QdrantStore]:
    store = QdrantStore(server.url)
    yield store
    store.close()


def fill(store: QdrantStore, count: int = 1) -> Features:
    """Records of the user a and as many of b, each with all four vectors."""
    store.open_vectors("v", 4, "m")
    said, near = ["fox den den"] * count, ["owl"] * count
    rows, around = units(count, 4), halved(units(count, 4, seed=8))
    features = worded(said, near, rows, around)
    for owner in "ab":
        records = [record(f"{owner}{n:03}", f"user:{owner}") for n in range(count)]
        store.put_vectors("v", records, features)
    return features


def test_a_point_has_four_vectors(server: StandIn, store: QdrantStore) -> None:
    """Wrong: a view has nothing to search, or weights that differ from those of other stores."""
    features = fill(store)
    sent = next(r for r in server.requests if str(r).startswith("PUT") and "points" in r.path)
    vectors = sent.body["points"][0]["vector"]
    assert set(vectors) == set(VIEWS)
    for view, rows in zip(MEANINGS, (features.meaning, features.meaning_around), strict=True):
        assert vectors[view] == rows[0].tolist()
    for view, texts in zip(WORDS, (features.words, features.words_around), strict=True):
        terms = dict(zip(vectors[view]["indices"], vectors[view]["values"], strict=True))
        assert terms == dict(zip(texts[0].ids.tolist(), texts[0].weights.tolist(), strict=True))


def test_one_request_carries_all_views(server: StandIn, store: QdrantStore) -> None:
    """Wrong: a search waits for the server several times, walks other users' points, counts their
    words, or is sent every record four times."""
    fill(store, 3)
    server.requests.clear()
    found = store.search_vectors("v", "user:a", for_words("fox owl", units(1, 4)[0]), 2)
    assert {hit.record.owner for hit in found} == {"user:a"}
    (request,) = server.requests
    assert str(request).endswith("/points/query/batch")
    owned = {"must": [{"key": "owner", "match": {"value": "user:a"}}]}
    searches = request.body["searches"]
    assert [one["using"] for one in searches] == list(VIEWS)
    for search in searches:
        assert [one["using"] for one in search["prefetch"]] == list(VIEWS)
        assert {one["limit"] for one in search["prefetch"]} == {2}
        assert search["limit"] >= 4 * 2
        for one in (search, *search["prefetch"]):
            assert one["filter"] == owned
            wanted = {"idf": {"corpus": owned}} if one["using"] in WORDS else None
            assert one.get("params") == wanted
    assert sum(one["with_payload"] for one in searches) == 1


@pytest.mark.parametrize("left", [WORDS, MEANINGS])
def test_views_that_nothing_is_sought_in(
    server: StandIn, store: QdrantStore, left: tuple[str, ...]
) -> None:
    """Wrong: an empty vector is sent, which a server refuses; or a record comes without text."""
    fill(store, 3)
    server.requests.clear()
    vector = units(1, 4)[0]
    query = for_words("fox owl") if left == WORDS else Query(vector)
    found = store.search_vectors("v", "user:a", query, 2)
    (request,) = server.requests
    assert [one["using"] for one in request.body["searches"]] == list(left)
    assert len(found) >= 2
    for hit in found:
        given = dict(zip(VIEWS, hit.scores, strict=True))
        assert all((given[view] > 0) == (view in left) for view in VIEWS)
    server.requests.clear()
    assert store.search_vectors("v", "user:a", for_words(""), 2) == []
    assert store.search_vectors("v", "user:a", query, 0) == []
    assert server.requests == []


def test_words_only(server: StandIn, store: QdrantStore) -> None:
    """Wrong: without an embedder the block cannot be kept in Qdrant, or not given one later."""
    store.open_vectors("v", 0, "words-only")
    (name,) = server.collections
    assert embedding(name) == (0, "words-only")
    made = next(r for r in server.requests if str(r) == f"PUT /collections/{name}")
    assert made.body["vectors"] == {}
    assert set(made.body["sparse_vectors"]) == set(WORDS)
    # neither has the words of the other: each answer lacks a record
    store.put_vectors("v", [record("a"), record("b")], worded(["fox", ""], ["", "fox"]))
    assert set(server.points(name)[0].vector) == set(WORDS)
    unopened = QdrantStore(server.url)
    for handle in (store, unopened):
        found = handle.search_vectors("v", "user:a", for_words("fox"), 9)
        assert [one.id for one, _ in ranked(found)] == ["a", "b"]
        with pytest.raises(DimensionMismatch):
            handle.search_vectors("v", "user:a", Query(units(1, 4)[0]), 9)
    unopened.begin_vectors("v", 4, "m")
    unopened.open_vectors("v", 4, "m")
    assert unopened.fill_vectors("v")
    assert len(store.search_vectors("v", "user:a", for_words("fox"), 9)) == 2
    unopened.swap_vectors("v")
    with pytest.raises(DimensionMismatch, match="is rebuilt for 'm' with 4"):
        store.search_vectors("v", "user:a", for_words("fox"), 9)
    unopened.close()


def test_encrypted_records_are_found_by_words(server: StandIn, store: QdrantStore) -> None:
    """Wrong: the server is told the words, or encryption costs half of what is found."""
    keys = Keys({"k": bytes(range(32))})
    encrypted = EncryptedVectors(store, RecordSeals(keys, "default", plaintext=False))
    encrypted.open_vectors("v", 0, "words-only")
    plain = [record("a", text="the fox"), record("b", text="an owl")]
    encrypted.put_vectors("v", plain, worded(["fox", "owl"], ["fox den", "owl den"]))
    encrypted.put_vectors("v", [record("c", "user:b")], worded(["fox"], ["fox"]))
    (found,) = encrypted.search_vectors("v", "user:a", for_words("fox"), 9)
    assert found.record == plain[0]
    assert found.scores[0] > 0
    assert found.scores[1] > 0
    (name,) = server.collections
    told = {i for one in server.points(name) for view in WORDS for i in one.vector[view].indices}
    assert len(told) == 3
    assert not told & set(asked("fox owl den"))


# Pure


def point(name: str, score: float, owner: str | None = "user:a") -> models.ScoredPoint:
    payload = None
    if owner is not None:
        one = record(name, owner)
        payload = {
            **{key: getattr(one, key) for key in ("id", "owner", "session_id", "first", "last")},
            "created_at": to_micros(one.created_at),
            "body": record_body(one),
        }
    return models.ScoredPoint(id=name, version=0, score=score, payload=payload)


def test_what_is_made_of_answers() -> None:
    """Wrong: a record is found that is none of any view's best, as where a collection has several
    shards, each of which has its own; or what means the opposite is found for that; or a record
    that was deleted between two of the answers breaks the search."""
    answers = {
        "words": [point("a", 3.0, None), point("b", 2.0, None), point("c", 1.0, None)],
        "meaning": [point("d", 0.5), point("a", 0.4), point("b", 0.0), point("c", -0.2)],
        "meaning_around": [point("e", 0.3, None), point("b", 0.2, None), point("a", 0.1, None)],
    }
    found = {hit.record.id: hit.scores for hit in hits(answers, 1, "v")}
    assert found == {"a": (3.0, 0.0, 0.4, 0.1), "d": (0.0, 0.0, 0.5, 0.0)}
    found = {hit.record.id: hit.scores for hit in hits(answers, 4, "v")}
    assert found["c"] == (1.0, 0.0, -0.2, 0.0)
    del answers["words"], answers["meaning_around"]
    assert [hit.record.id for hit in hits(answers, 4, "v")] == ["d", "a"]
    assert hits({}, 4, "v") == []


def test_a_question_of_no_meaning(store: QdrantStore) -> None:
    """Wrong: the zeros that an embedder gives for words it does not know find just anything."""
    fill(store, 3)
    assert store.search_vectors("v", "user:a", Query(np.zeros(4, np.float32)), 9) == []
