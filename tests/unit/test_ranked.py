"""What bears on a question more than other things."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.records import Hit, Record
from agent_memory.retrieval.blending import blended, by_ranks, shares
from agent_memory.retrieval.features import Features, Query, Turn
from agent_memory.retrieval.index import SegmentIndex
from agent_memory.retrieval.priors import priors
from agent_memory.retrieval.relevance import bears
from agent_memory.retrieval.turns import ranked
from agent_memory.retrieval.views import VIEWS, WEIGHTS

DAY = datetime(2023, 5, 8, tzinfo=UTC)
FILLER = "and so it went on for a good while with nothing of note that anybody would care to tell"

rows = st.lists(st.tuples(*[st.floats(-1, 50, width=32)] * 4), max_size=8)


def turn(text: str, speaker: str = "Ann", at: datetime = DAY, *, is_user: bool = True) -> Turn:
    return Turn(speaker, text, at, is_user)


def no_vectors(texts: Sequence[str]) -> np.ndarray:
    return np.zeros((len(texts), 0), np.float32)


def record(name: str, of: Turn) -> Record:
    role = "user" if of.is_user else "assistant"
    about = {"role": role, "speaker": of.speaker}
    return Record(name, "user:a", "s", 1, 1, str(of), (1,), of.said_at, about)


def order(question: str, *turns: Turn) -> list[int]:
    """The places of the turns that words find, best first."""
    index = SegmentIndex(0).extended(
        [str(place) for place in range(len(turns))], Features.of_turns(turns, 0, no_vectors)
    )
    found = index.search(Query.of(question, np.zeros(0, np.float32)), 99)
    hits = [
        Hit(record(name, turns[int(name)]), tuple(row))
        for name, row in zip(found.ids, found.scores.tolist(), strict=True)
    ]
    return [int(recall.id) for recall in ranked(question, hits).recalls("b")]


@given(rows)
def test_blends_lie_between_0_and_1(given_scores: list[tuple[float, ...]]) -> None:
    """Wrong: a view whose scores are on a larger scale decides alone."""
    parts = shares(np.array(given_scores, np.float32).reshape(-1, 4))
    for fused in (blended(parts), by_ranks(parts)):
        assert len(fused) == len(given_scores)
        assert ((fused >= 0) & (fused <= 1 + 1e-5)).all()
    scaled = np.array(given_scores, np.float32).reshape(-1, 4) * np.array([1, 7, 0.5, 3])
    assert blended(shares(scaled.astype(np.float32))) == pytest.approx(blended(parts), abs=1e-4)


def test_the_blend_is_the_weighted_mean() -> None:
    """Wrong: a margin is thrown away, or a view that found nothing takes its part of the score."""
    parts = shares(np.array([[10, 4, 0, 0], [5, 8, 0, 0]], np.float32))
    assert parts.tolist() == [[1, 0.5, 0, 0], [0.5, 1, 0, 0]]
    assert blended(parts) == pytest.approx([0.3 / 0.45, 0.375 / 0.45])
    assert blended(parts, (1, 0, 0, 0)) == pytest.approx([1, 0.5])
    assert blended(np.zeros((2, 4), np.float32)).tolist() == [0, 0]
    assert sum(WEIGHTS) == pytest.approx(1)


def test_ranks_are_fused_as_published() -> None:
    """Wrong: what one view does not find gets the rank of its last."""
    parts = np.array([[1, 0, 0.2, 0], [0.5, 0, 0.9, 0], [0, 0, 0.1, 0]], np.float32)
    k = 60
    first = ((k + 1) / (k + 1) + (k + 1) / (k + 2)) / 2
    expected = [first, first, (k + 1) / (k + 3) / 2]
    assert by_ranks(parts, (1, 0, 1, 0)) == pytest.approx(expected)


def test_an_answer_is_found_by_what_was_asked_before_it() -> None:
    """Wrong: a short answer, which repeats no word of its question, is never found."""
    said = [
        turn(f"What is your favourite dish? {FILLER}", "Ann"),
        turn(f"Lasagne, {FILLER}", "Ben"),
        *[turn(f"{FILLER} number {n} {FILLER} {FILLER} {FILLER}", "Ann") for n in range(5)],
    ]
    assert order("What is Ben's favourite dish?", *said)[0] == 1


def test_what_has_nothing_of_it_is_not_found() -> None:
    """Wrong: a search always finds something."""
    said = [turn("The cat sleeps."), turn("It rains.")]
    assert order("volcano?", *said) == order("", *said) == []


def test_the_speaker_who_is_meant_comes_first() -> None:
    """Wrong: what another one said of the same thing wins."""
    said = [
        turn(f"My dog likes the lake, {FILLER} {FILLER}", name) for name in ("Ann", "Ben", "Cy")
    ]
    assert order("Where does Ben's dog like to go?", *said)[0] == 1
    own = [turn(said[0].text, role, is_user=role == "user") for role in ("bot", "user")]
    assert order("Where does my dog like to go?", *own)[0] == 1


def test_the_date_that_is_meant_comes_first() -> None:
    """Wrong: the same thing said in another month wins."""
    months = [DAY.replace(month=month) for month in (3, 7, 9)]
    said = [turn(f"We went to the lake, {FILLER}", at=month) for month in months]
    assert order("Who went to the lake in July?", *said)[0] == 1
    there = priors("Who went to the lake in July?", said)
    assert there[1] - there[0] == pytest.approx(0.15)


def test_questions_and_short_turns_come_last() -> None:
    """Wrong: the question itself is the best answer to it, or length is worth something."""
    said = [turn("Where is the lake?"), turn("Lake!"), turn(f"The lake is there, {FILLER}")]
    assert order("Where is the lake?", *said)[0] == 2
    assert priors("lake", [turn(FILLER * 2), turn(FILLER * 9)]).tolist() == [0, 0]


def test_a_score_tells_its_views() -> None:
    """Wrong: nobody can see why something was found."""
    hits = [Hit(record("1", turn("lake")), (2, 1, 0, 0)), Hit(record("2", turn("x")), (1, 1, 0, 0))]
    best, _ = ranked("lake", hits).recalls("b")
    assert list(best.views) == [*VIEWS, "priors"]
    assert best.views["words"] == 1
    assert best.score == pytest.approx(1 + best.views["priors"])
    assert next(ranked("lake", hits, prior_weight=0).recalls("b")).score == pytest.approx(1)
    assert list(ranked("lake", []).recalls("b")) == []


def test_what_bears_little_on_it_is_left_out() -> None:
    """Wrong: a search fills its limit with whatever there is, or drops a short fact for being
    short."""
    hits = [
        Hit(record("1", turn("lake")), (1, 1, 0, 0)),
        Hit(record("2", turn("I like lakes")), (0.3, 0.3, 0, 0)),
        Hit(record("3", turn(FILLER * 2)), (0.2, 0.2, 0, 0)),
    ]
    assert [one.id for one in ranked("lake", hits).recalls("b")] == ["1", "2"]
    assert [one.id for one in ranked("lake", hits, least=0).recalls("b")] == ["1", "3", "2"]


def bearing(question: str, hits: Sequence[Hit], unrelated: float) -> bool:
    scores = np.array([hit.scores for hit in hits], np.float32)
    return bears(question, [hit.record.text for hit in hits], scores, unrelated)


def test_nothing_bears_on_what_is_foreign() -> None:
    """Wrong: every question brings back something, or a number that stands there word for word is
    missed because it means nothing."""
    other = Hit(record("2", turn("It rains")), (0.5, 0.5, 0.1, 0.1))
    hits = [Hit(record("1", turn("Order AX-4471 was sent")), (1, 1, 0.2, 0.2)), *[other] * 299]
    assert not bearing("What is the capital of France?", hits, 0.3)
    assert bearing("What is the capital of France?", hits, 0.2)
    assert bearing("order AX-4471", hits, 0.3)
    assert not bearing("", hits, 0.3)
    assert not bearing("order", [], 0.3)


def test_of_few_less_is_asked() -> None:
    """Wrong: what a small memory has to say in other words is held back."""
    hits = [Hit(record(str(n), turn("We moved to Lisbon")), (0, 0, 0.1, 0.1)) for n in range(300)]
    assert [bearing("Where do I live?", hits[:n], 0.3) for n in (1, 5, 50, 300)] == [
        True,
        True,
        False,
        False,
    ]
