"""The index in memory finds exactly what a full scan finds."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory.retrieval.features import Features
from agent_memory.retrieval.index import SegmentIndex
from agent_memory.retrieval.postings import Terms
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.score import informativeness

DIMENSION = 4
texts = st.lists(st.dictionaries(st.integers(0, 9), st.integers(1, 8), max_size=5), max_size=8)
questions = st.lists(st.sets(st.integers(0, 12), min_size=1, max_size=3), max_size=4)


def terms(text: dict[int, int]) -> Terms:
    return Terms(np.array(list(text), np.uint32), np.array(list(text.values()), np.float32))


def features(some: Sequence[dict[int, int]], seed: int) -> Features:
    rows = np.random.default_rng(seed).normal(size=(len(some), DIMENSION)).astype(np.float32)
    return replace(Features.of_words([terms(text) for text in some]), meaning=rows)


def asking(words: Sequence[set[int]]) -> Query:
    vector = np.random.default_rng(99).normal(size=DIMENSION).astype(np.float32)
    return Query(vector, tuple(tuple(sorted(word)) for word in words))


@settings(deadline=None)
@given(st.lists(texts, max_size=5), questions)
def test_words_and_cosines_are_those_of_the_formula(
    batches: list[list[dict[int, int]]], words: list[set[int]]
) -> None:
    """Wrong: a record that is added later gets a wrong score, or changes another's."""
    index, every, rows = (
        SegmentIndex(DIMENSION),
        dict[str, dict[int, int]](),
        dict[str, np.ndarray](),
    )
    for number, batch in enumerate(batches):
        names, made = [f"{number}-{n}" for n in range(len(batch))], features(batch, number)
        index = index.extended(names, made)
        every |= dict(zip(names, batch, strict=True))
        rows |= dict(zip(names, made.meaning, strict=True))
    query = asking(words)
    found = index.search(query, 99)
    assert set(found.names) == set(every)
    assert found.scores.tolist() == sorted(found.scores.tolist(), reverse=True)
    best = {
        name: [max((text.get(number, 0) for number in word), default=0) for word in query.words]
        for name, text in every.items()
    }
    holding = np.array([sum(row[at] > 0 for row in best.values()) for at in range(len(words))])
    worth = informativeness(len(every), holding) if words else np.zeros(0)
    for name, cosine, bm25 in zip(found.names, found.cosines, found.bm25, strict=True):
        assert cosine == pytest.approx(float(rows[name] @ query.meaning), abs=1e-4)
        assert bm25 == pytest.approx(float(np.dot(best[name], worth)), rel=1e-3, abs=1e-5)


def test_a_state_stays_and_nothing_gives_nothing() -> None:
    """Wrong: a running search sees records that are added meanwhile."""
    text = {1: 1}
    first = SegmentIndex(DIMENSION).extended(["a"], features([text], 1))
    second = first.extended(["b", "c"], features([text, text], 2))
    other = first.extended(["d"], features([text], 3))
    question = Query(words=((1,),))
    assert [sorted(i.search(question, 9).names) for i in (first, second, other)] == [
        ["a"],
        ["a", "b", "c"],
        ["a", "d"],
    ]
    assert [len(first), len(second), len(other)] == [1, 3, 2]
    assert second.nbytes > first.nbytes > 0
    assert SegmentIndex(0).search(asking([{1}]), 9).names == []
    index = SegmentIndex(DIMENSION).extended(["a"], features([{1: 1}], 1))
    assert index.search(Query(), 9).names == []
    assert index.search(Query(words=((1,),)), 0).names == []


@given(texts, texts, questions, st.integers(0, 20), st.integers(0, 3))
def test_what_is_pending_ranks_as_if_it_were_stored(
    stored: list[dict[int, int]],
    waiting: list[dict[int, int]],
    words: list[set[int]],
    limit: int,
    twice: int,
) -> None:
    """Wrong: a pending record scores otherwise than after it is absorbed, or is found twice."""
    names = [f"s{n}" for n in range(len(stored))]
    more = [f"w{n}" for n in range(len(waiting))]
    query = asking(words)
    index = SegmentIndex(DIMENSION).extended(names, features(stored, 1))
    others = SegmentIndex(DIMENSION).extended(more, features(waiting, 2))
    found = index.search(query.with_pending(others, {}), limit)
    expected = index.extended(more, features(waiting, 2)).search(query, limit)
    assert found.names == expected.names
    assert np.allclose(found.scores, expected.scores, rtol=1e-4)
    again = others.extended(names[:twice], features(stored[:twice], 1))
    every = index.search(query.with_pending(again, {}), 99).names
    assert len(every) == len(set(every))
