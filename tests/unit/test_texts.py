"""Short texts found by words and meaning: `TextIndex`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.retrieval.features import Query
from agent_memory.retrieval.texts import TextIndex

TEXTS = ["Likes green tea", "Has a dog named Rex", "Works at Acme in Oslo", "Is from Norway"]
MEANING = np.eye(5, dtype=np.float32)[:4]  # each means something of its own
NOTHING = np.zeros((4, 0), np.float32)
NO_VECTOR = np.zeros(0, np.float32)
UNRELATED = 0.25


def asking(question: str, *meaning: float) -> Query:
    return Query.of(question, np.array(meaning, np.float32))


def best(relevance: np.ndarray) -> list[int]:
    """Places of those that bear on it, the best first."""
    return [int(place) for place in np.argsort(-relevance, kind="stable") if relevance[place] > 0]


def test_words_and_meaning_count_alike() -> None:
    """Wrong: one of both finds nothing, or counts for all; or what has nothing in common with the
    question has a share."""
    index = TextIndex(TEXTS, MEANING)
    assert len(index) == 4
    by_words = index.relevance(asking("green tea", 0, 0, 0, 0, 0))
    assert best(by_words) == [0]
    assert by_words[0] == pytest.approx(1)
    by_meaning = index.relevance(asking("xyzzy", 0, 0.6, 0, 0.8, 0))
    assert best(by_meaning) == [3, 1]
    assert by_meaning[1] == pytest.approx(0.75)
    both = index.relevance(asking("green tea", 0, 1, 0, 0, 0))
    assert both[0] == both[1] == pytest.approx(0.5)


def test_a_rare_word_counts_more() -> None:
    """Wrong: words that are in every text tell as much as those of one."""
    index = TextIndex(["Oslo is cold", "Oslo is dear", "Oslo has trams"], np.zeros((3, 0)))
    relevance = index.relevance(Query.of("trams in Oslo", NO_VECTOR))
    assert best(relevance)[0] == 2
    assert relevance[0] == relevance[1] < relevance[2]


def test_only_some_of_them() -> None:
    """Wrong: what was left out is found; or takes part in the shares of the others."""
    index = TextIndex(["tea tea tea", "tea", "coffee"], np.zeros((3, 0), np.float32))
    query = Query.of("tea", NO_VECTOR)
    assert best(index.relevance(query)) == [0, 1]
    some = index.relevance(query, [1, 2])
    assert best(some) == [1]
    assert some[1] == pytest.approx(1)
    assert not index.relevance(query, []).any()
    assert not index.bearing("tea", query, UNRELATED, []).any()


def test_what_is_foreign_to_all_finds_nothing() -> None:
    """Wrong: to each question something is remembered, the least far from it."""
    index = TextIndex(TEXTS * 60, np.concatenate([MEANING] * 60))
    far = asking("What is the capital of France?", 0.1, 0.05, 0, 0, 0.99)
    assert index.relevance(far).any()
    assert not index.bearing("What is the capital of France?", far, UNRELATED).any()
    near = asking("What do I drink?", 0.5, 0, 0, 0, 0.8)
    assert index.bearing("What do I drink?", near, UNRELATED)[0] == pytest.approx(1)
    said = asking("the dog named Rex", 0, 0.1, 0, 0, 0.99)  # far, but in its words
    assert best(index.bearing("the dog named Rex", said, UNRELATED))[0] == 1


@pytest.mark.parametrize(
    ("vectors", "meaning"),
    [(NOTHING, ()), (NOTHING, (1, 0, 0, 0, 0)), (MEANING, ()), (MEANING, (1, 0, 0))],
    ids=["neither has", "texts have none", "the question has none", "of another length"],
)
def test_without_vectors_words_decide(vectors: np.ndarray, meaning: tuple[float, ...]) -> None:
    """Wrong: while the embedder is down, or after it was exchanged, nothing is found, or it is an
    error; or all but what repeats half of the question is held back, for want of a meaning."""
    index = TextIndex(TEXTS, vectors)
    question = "Which country did my dog come from, who sold it, and was its basket green?"
    query = asking(question, *meaning)
    assert best(index.relevance(query)) == [0, 1]
    assert best(index.bearing(question, query, UNRELATED)) == [0, 1]
    assert not index.bearing("tomorrow", asking("tomorrow", *meaning), UNRELATED).any()


def test_of_no_texts_none_is_found() -> None:
    """Wrong: an empty memory is an error."""
    index = TextIndex([], np.zeros((0, 5), np.float32))
    assert len(index) == 0
    for query in (asking("tea", 1, 0, 0, 0, 0), Query.of("tea", NO_VECTOR)):
        assert index.relevance(query).shape == (0,)
        assert index.bearing("tea", query, UNRELATED).shape == (0,)


def test_blank_texts_and_questions_find_nothing() -> None:
    """Wrong: what says nothing is found, or makes an error."""
    index = TextIndex(["", "  ", "tea"], np.zeros((3, 0), np.float32))
    assert best(index.relevance(Query.of("tea", NO_VECTOR))) == [2]
    assert not index.relevance(Query.of("", NO_VECTOR)).any()
    assert not index.bearing("", Query.of("", NO_VECTOR), UNRELATED).any()


words = st.sampled_from(["tea", "dog", "Oslo", "Acme", "green", "named"])
phrases = st.lists(words, max_size=4).map(" ".join)


@given(st.lists(phrases, max_size=8), phrases, st.lists(st.integers(0, 7), max_size=8))
def test_relevance_is_a_share_and_stays_in_its_places(
    texts: Sequence[str], question: str, places: list[int]
) -> None:
    """Wrong: a relevance above 1 or below 0, another best than 1, or one outside the places; or
    `bearing` gives others than `relevance`."""
    index = TextIndex(texts, np.zeros((len(texts), 0), np.float32))
    query = Query.of(question, NO_VECTOR)
    for wanted in (None, [place for place in places if place < len(texts)]):
        relevance = index.relevance(query, wanted)
        assert relevance.shape == (len(texts),)
        assert ((relevance >= 0) & (relevance <= 1 + 1e-6)).all()
        allowed = set(range(len(texts))) if wanted is None else set(wanted)
        assert set(best(relevance)) <= allowed
        asked, said = set(question.split()), [set(text.split()) for text in texts]
        assert set(best(relevance)) == {place for place in allowed if asked & said[place]}
        if relevance.any():
            assert relevance.max() == pytest.approx(1)
        assert (index.bearing(question, query, 0.0, wanted) == relevance).all()
