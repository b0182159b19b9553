"""`WordIndex` over stores: its results and scores, compared with the formula of BM25."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory import AgentMemory, VectorIndex, WordIndex
from agent_memory.errors import DimensionMismatch, InvalidInput, MemoryClosed
from agent_memory.retrieval.bm25 import TURN_LENGTH
from agent_memory.testing.views import bm25

WORDS = ["סירה", "נהר", "מנורה", "כינור", "מנוע", "פלפל"]
"""Of a script that has no stems, so that each word is one word whatever stands beside it."""

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


def test_what_is_found_in_each_store(opened: Opened) -> None:
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


def test_a_users_texts_are_theirs(tmp_path: Path) -> None:
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


def test_what_is_no_text_is_refused() -> None:
    """Wrong: a vector is accepted and never found, or two kinds of index share a name."""
    with WordIndex("memory://") as index:
        with pytest.raises(InvalidInput):
            index.store({"id": "v", "vector": [1.0, 2.0]})
        with pytest.raises(InvalidInput):
            index.search(3)  # type: ignore[arg-type]
        store = index._vectors
        with pytest.raises(DimensionMismatch, match="words"):
            VectorIndex(store, name="words", dimension=3)
