"""What turns are found by: their words and meaning, alone and within what was said before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pytest
from agent_memory.retrieval.surroundings import BUDGET, claims
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.retrieval.features import Features, Query, Turn
from agent_memory.retrieval.terms import Written, asked, rarity, term_of, weighted
from agent_memory.stores.blobs import undamaged_places

DAY = datetime(2023, 5, 8, tzinfo=UTC)


def turn(text: str, speaker: str = "Ann") -> Turn:
    return Turn(speaker, text, DAY, is_user=True)


def axes(texts: Sequence[str]) -> np.ndarray:
    """A vector of its own for each text, at right angles to those of the others."""
    return np.eye(len(texts), 8, dtype=np.float32)


def test_surroundings_stay_within_their_budget() -> None:
    """Wrong: a turn drowns in what was said before it, or what came after changes it."""
    assert claims([2, 1, 1, 2], 2) == [(0, 2), (1, 1), (2, 1)]
    assert claims([200, 1, 200], 1) == [(0, 60), (1, 1)]
    assert claims([50, 200, 90], 2) == [(1, 10), (2, 90)]
    assert claims([5, 200], 1) == [(1, 200)]
    assert claims([0, 3], 1) == [(0, 0), (1, 3)]


@given(st.lists(st.integers(0, 150), min_size=1, max_size=20), st.data())
def test_surroundings_hold_the_turn(lengths: list[int], data: st.DataObject) -> None:
    """Wrong: something of the turn is missing, too much of the others is there, or turns are
    skipped or out of order."""
    place = data.draw(st.integers(0, len(lengths) - 1))
    claimed = claims(lengths, place)
    assert claimed[-1] == (place, lengths[place])
    assert [at for at, _ in claimed] == list(range(place - len(claimed) + 1, place + 1))
    assert all(0 <= size <= lengths[at] for at, size in claimed)
    assert sum(size for _, size in claimed) <= max(BUDGET, lengths[place])
    assert claims(lengths[: place + 1], place) == claimed


def test_weights_are_bm25() -> None:
    """Wrong: a word said twice weighs twice as much, or long texts win by their length."""
    a, b = term_of("a"), term_of("b")
    found = weighted([Written((a, b), (), 2), Written((a,), (), 1)], 6.0)
    damping = 0.9 * (0.25 + 0.75 * 3 / 6)
    assert found.ids.tolist() == [a, b]
    assert found.weights == pytest.approx([1.9 * 2 / (2 + damping), 1.9 / (1 + damping)], rel=1e-3)
    assert len(weighted([], 6.0).ids) == 0
    expected = [math.log(1 + 9.5 / 1.5), math.log(1 + 0.5 / 10.5)]
    assert rarity(10, np.array([1, 10])) == pytest.approx(expected)


def test_numbers_of_words_stay_the_same() -> None:
    """Wrong: what one process stored another does not find."""
    assert term_of("lake") == 2725253387
    assert asked("The lakes, and a LAKE!") == (term_of("lake"),)


def test_words_around_are_those_before() -> None:
    """Wrong: an answer that repeats no word of its question is never found by it, or the turn
    itself, its speaker or its day are not."""
    features = Features.of_turns([turn("Your favourite dish?", "Ben"), turn("Lasagne.")], 0, axes)
    own, around = ({int(i) for i in ts[1].ids} for ts in (features.words, features.words_around))
    dish, lasagne, ann, may = (asked(word)[0] for word in ("dish", "lasagne", "ann", "may"))
    assert {lasagne, ann, may} <= own
    assert dish not in own
    assert {dish, lasagne, may} <= around
    assert dish in features.words[0].ids
    assert lasagne not in features.words_around[0].ids


def test_meaning_around_is_the_mean_by_words() -> None:
    """Wrong: two words before a long turn count as much as the turn."""
    turns = [turn("one"), turn("one two three")]  # with the speaker, 2 words and 4
    features = Features.of_turns(turns, 0, axes)
    mean = np.array([2, 4]) / math.sqrt(20)
    assert features.meaning[1][:2].tolist() == [0, 1]
    assert features.meaning_around[1][:2] == pytest.approx(mean, abs=1e-3)
    assert features.meaning_around[0][:2].tolist() == [1, 0]


def test_a_batch_gives_what_the_whole_gives() -> None:
    """Wrong: where a log is cut into batches changes what is found."""
    turns = [turn(f"this is number {n} of all that was said " * (n % 4 + 1)) for n in range(12)]

    def embed(texts: Sequence[str]) -> np.ndarray:
        rows = [np.random.default_rng(len(text)).normal(size=8) for text in texts]
        return np.array([row / np.linalg.norm(row) for row in rows], np.float32)

    whole, later = Features.of_turns(turns, 0, embed), Features.of_turns(turns, 7, embed)
    assert np.array_equal(whole.meaning[7:], later.meaning)
    assert np.array_equal(whole.meaning_around[7:], later.meaning_around)
    for one, other in zip(whole.words_around[7:], later.words_around, strict=True):
        assert np.array_equal(one.ids, other.ids)
        assert np.array_equal(one.weights, other.weights)


def test_without_an_embedder_there_are_words() -> None:
    """Wrong: a base install finds nothing."""
    features = Features.of_turns([turn("The lake")], 0, lambda texts: np.zeros((len(texts), 0)))
    assert (len(features), features.dimension) == (1, 0)
    assert Query.of("lake", np.zeros(0)).words[0] in features.words[0].ids


def test_vectors_of_which_nothing_is_left() -> None:
    """Else: where all of a user's are empty they count as whole, and recall fails of them."""
    assert undamaged_places([b"", b"", b""]) == []
