"""The index in memory finds exactly what looking at everything finds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory.core.records import Record
from agent_memory.retrieval.features import Features, Query
from agent_memory.retrieval.index import SegmentIndex
from agent_memory.retrieval.terms import Terms, rarity

DIMENSION = 4
texts = st.lists(st.dictionaries(st.integers(0, 9), st.integers(1, 8), max_size=5), max_size=8)


def terms(text: dict[int, int]) -> Terms:
    return Terms(np.array(list(text), np.uint32), np.array(list(text.values()), np.float32))


def features(some: Sequence[dict[int, int]], seed: int) -> Features:
    rows = np.random.default_rng(seed).normal(size=(2, len(some), DIMENSION)).astype(np.float32)
    around = [terms({**text, 9: 1}) for text in some]
    return Features(rows[0], rows[1], [terms(text) for text in some], around)


@given(st.lists(texts, max_size=6), st.sets(st.integers(0, 12)))
def test_words_are_scored_by_the_formula(
    batches: list[list[dict[int, int]]], question: set[int]
) -> None:
    """Wrong: a word that was added later counts wrongly, or in the wrong record."""
    index, every = SegmentIndex(DIMENSION), []
    for number, batch in enumerate(batches):
        names = [f"{number}-{n}" for n in range(len(batch))]
        index = index.extended(names, features(batch, number))
        every += batch
    holding = {word: sum(word in text for text in every) for word in question}
    rare = {word: float(rarity(len(every), np.array([holding[word]]))[0]) for word in question}
    expected = [sum(rare[w] * text[w] for w in question if w in text) for text in every]
    found = index.scores(np.empty(0, np.float32), sorted(question))
    assert np.allclose(found[:, 0], expected, rtol=1e-5)


@settings(deadline=None)
@given(st.lists(texts, max_size=4), st.sets(st.integers(0, 12)), st.integers(0, 20))
def test_each_view_gives_its_best(
    batches: list[list[dict[int, int]]], question: set[int], depth: int
) -> None:
    """Wrong: a view's best is missing, a candidate's score is another's, or grows with the order in
    which records came."""
    index, whole, ids = SegmentIndex(DIMENSION), [], []
    for number, batch in enumerate(batches):
        names = [f"{number}-{n}" for n in range(len(batch))]
        index = index.extended(names, features(batch, number))
        whole.append(features(batch, number))
        ids += names
    vector = np.random.default_rng(99).normal(size=DIMENSION).astype(np.float32)
    found = index.search(Query(vector, tuple(sorted(question))), depth)
    every = SegmentIndex(DIMENSION)
    if ids:
        every = every.extended(
            ids,
            Features(
                np.concatenate([part.meaning for part in whole]),
                np.concatenate([part.meaning_around for part in whole]),
                [text for part in whole for text in part.words],
                [text for part in whole for text in part.words_around],
            ),
        )
    table = every.search(Query(vector, tuple(sorted(question))), len(ids))
    scores = dict(zip(table.ids, table.scores, strict=True))
    wanted: set[str] = set()
    for view in range(4):
        ranked = sorted((-float(row[view]), name) for name, row in scores.items() if row[view] > 0)
        wanted |= {name for _, name in ranked[:depth]}
    assert set(found.ids) == wanted
    for name, row in zip(found.ids, found.scores, strict=True):
        assert np.allclose(row, scores[name], rtol=1e-5, atol=1e-6)


def test_a_state_stays_as_it_was() -> None:
    """Wrong: a search under way sees half of what is added meanwhile."""
    text = {1: 1}
    first = SegmentIndex(DIMENSION).extended(["a"], features([text], 1))
    second = first.extended(["b", "c"], features([text, text], 2))
    other = first.extended(["d"], features([text], 3))
    question = Query(np.zeros(0, np.float32), (1,))
    assert [sorted(i.search(question, 9).ids) for i in (first, second, other)] == [
        ["a"],
        ["a", "b", "c"],
        ["a", "d"],
    ]
    assert [len(first), len(second), len(other)] == [1, 3, 2]
    assert [one.held(["a", "b"]) for one in (first, second, other)] == [{"a"}, {"a", "b"}, {"a"}]
    assert second.nbytes > first.nbytes > 0


def test_nothing_asked_or_nothing_there_gives_nothing() -> None:
    """Wrong: an empty memory or question fails."""
    nothing = np.zeros(0, np.float32)
    assert SegmentIndex(0).search(Query(np.ones(DIMENSION, np.float32), (1,)), 9).ids == []
    index = SegmentIndex(DIMENSION).extended(["a"], features([{1: 1}], 1))
    assert index.search(Query(nothing), 9).ids == []
    assert index.search(Query(nothing, (1,)), 0).ids == []


@given(texts, texts, st.sets(st.integers(0, 12)), st.integers(0, 20), st.integers(0, 3))
def test_what_is_beside_ranks_as_if_it_were_stored(
    stored: list[dict[int, int]],
    waiting: list[dict[int, int]],
    question: set[int],
    depth: int,
    twice: int,
) -> None:
    """Wrong: what was said a moment ago scores otherwise than it will once it is absorbed, or is
    found twice while it is being absorbed."""
    names = [f"s{n}" for n in range(len(stored))]
    more = [f"w{n}" for n in range(len(waiting))]
    vector = np.random.default_rng(99).normal(size=DIMENSION).astype(np.float32)
    query = Query(vector, tuple(sorted(question)))
    index = SegmentIndex(DIMENSION).extended(names, features(stored, 1))
    others = SegmentIndex(DIMENSION).extended(more, features(waiting, 2))
    records: dict[str, Record] = {}
    found = index.search(query.with_beside(others, records), depth)
    expected = index.extended(more, features(waiting, 2)).search(query, depth)
    assert found.ids == expected.ids
    assert np.allclose(found.scores, expected.scores, rtol=1e-5)
    both = names[:twice]
    again = others.extended(both, features(stored[:twice], 1))
    ids = index.search(query.with_beside(again, records), 0 if not depth else 99).ids
    assert len(ids) == len(set(ids))
