"""The score that ranks recalled facts."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.records import Recall
from agent_memory.errors import InvalidSetting
from agent_memory.ltm_blocks.extractive import ImportanceScorer
from agent_memory.ltm_blocks.extractive.history.fact import Fact, rendered
from agent_memory.ltm_blocks.extractive.recalling import Remembered, recalls
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.vectors import encoding_of
from tests.unit.claiming import claim, day, facts, linked

NOW = day(30)


def test_a_weighted_mean() -> None:
    """Wrong: the sum of the weights changes the score, or a factor uses another's weight."""
    scorer = ImportanceScorer(relevance=2, recency=1, use=1, confidence=4, half_life_days=10)
    factors = scorer.factors(relevance=0.5, age_days=20, mentions=3, confidence=0.25)
    assert factors == pytest.approx(
        {"relevance": 1 / 8, "recency": 0.25 / 8, "use": 0.5 / 8, "confidence": 1 / 8}
    )
    assert scorer.score(0.5, 20, 3, 0.25) == pytest.approx(sum(factors.values()))
    doubled = ImportanceScorer(relevance=4, recency=2, use=2, confidence=8, half_life_days=10)
    assert doubled.score(0.5, 20, 3, 0.25) == pytest.approx(scorer.score(0.5, 20, 3, 0.25))


@given(
    st.floats(0, 1),
    st.floats(-1e6, 1e9),
    st.integers(1, 10**6),
    st.floats(0, 1),
    st.tuples(*[st.floats(0, 100) for _ in range(4)]),
)
def test_scores_are_between_0_and_1(
    relevance: float, age: float, mentions: int, sure: float, weights: tuple[float, ...]
) -> None:
    """Wrong: a fact dated ahead, or mentioned very often, scores above 1."""
    names = ("relevance", "recency", "use", "confidence")
    scorer = ImportanceScorer(**dict(zip(names, weights, strict=True)))
    score = scorer.score(relevance, age, mentions, sure)
    assert 0 <= score <= 1 + 1e-9


def test_weights_count_where_they_are_set() -> None:
    """Wrong: weights of 0 divide by zero, or a factor works in reverse."""
    off = ImportanceScorer(relevance=0, recency=0, use=0, confidence=0)
    assert off.score(1) == 0
    scorer = ImportanceScorer()
    best = scorer.score(1.0, 0, 15, 1.0)
    assert best == pytest.approx(1)
    assert scorer.score(0.9, 0, 15, 1.0) < best
    assert scorer.score(1.0, 1, 15, 1.0) < best
    assert scorer.score(1.0, 0, 14, 1.0) < best
    assert scorer.score(1.0, 0, 15, 0.9) < best
    assert scorer.score(0.5, -30, 1, 1.0) == scorer.score(0.5, 0, 1, 1.0)
    only = ImportanceScorer(recency=0, use=0, confidence=0)
    for age, mentions, sure in product((0, 99), (1, 9), (0.1, 1.0)):
        assert only.score(0.5, age, mentions, sure) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "wrong", [{"relevance": -1}, {"half_life_days": 0}, {"importance": 1}, {"use": "much"}]
)
def test_weights_that_are_none(wrong: dict[str, object]) -> None:
    """Wrong: a misspelt or negative weight is accepted."""
    with pytest.raises(InvalidSetting):
        ImportanceScorer(**wrong)


def ranked(
    found: list[Fact],
    question: str = "",
    meaning: Any = (),
    vectors: Any = None,
    places: Sequence[int] | None = None,
) -> list[Recall]:
    """Return the recalled facts for a question, at default weights."""
    rows = np.zeros((len(found), 0), np.float32) if vectors is None else vectors
    encoding = encoding_of(np.array(meaning, np.float32))
    query = Query.of(question, encoding) if question else None
    known = Remembered(found, rows)
    chosen = range(len(found)) if places is None else places
    return recalls(known, chosen, query, ImportanceScorer(), NOW, 50)


def recalled(found: list[Fact], question: str = "") -> list[str]:
    return [one.id for one in ranked(found, question)]


def test_the_question_decides_by_words_and_meaning() -> None:
    """Wrong: at default weights age or use outweighs relevance."""
    found = facts(
        claim("a", "Plays the violin."),
        claim("b", "Lives in Rome.", 20),
        *(claim(f"c{n}", "Has a dog.", 20 + n, "c0") for n in range(8)),
    )
    assert recalled(found, "Which instrument, the violin?")[0] == "a"
    assert recalled(found, "Where is Rome?")[0] == "b"
    found = facts(claim("old"), claim("new", said=20), claim("unsure", said=20, confidence=0.4))
    assert recalled(found) == ["new", "old", "unsure"]
    assert recalled([]) == []
    assert len(ranked(found, "?")) == 3
    found = facts(claim("a", "Lives in Rome."), claim("b", "Has a dog.", 3, confidence=0.5))
    for one in ranked(found, "dog?"):
        assert set(one.views) == {"relevance", "recency", "use", "confidence"}
        assert sum(one.views.values()) == pytest.approx(one.score)
    found = facts(claim("a", "Owns a puppy."), claim("b", "Has a car."))
    vectors = np.eye(2, dtype=np.float32)
    for place, name in enumerate("ab"):
        assert ranked(found, "vehicles", vectors[place], vectors)[0].id == name
    assert ranked(found, "car", np.ones(3), vectors)[0].id == "b"
    assert ranked(found, "car", vectors[0])[0].id == "b"
    assert ranked(found, "car", (), vectors)[0].id == "b"
    found = facts(
        claim("a", "Plays the violin and the viola."), claim("b", "Has a violin."), claim("c")
    )
    (b, c) = ranked(found, "violin viola", places=[1, 2])
    assert (b.id, c.id) == ("b", "c")
    assert b.views["relevance"] > c.views["relevance"]


def test_how_a_fact_reads() -> None:
    """Wrong: a denied fact, or one by a tool or the assistant, reads like the user's own
    statement."""
    until = datetime(2024, 3, 1, tzinfo=UTC)
    texts = {
        one.id: rendered(one)
        for one in facts(
            claim("plain"),
            claim("over", valid_to=until),
            claim("tool", role="tool"),
            claim("both", role="assistant", valid_to=until),
            claim("old"),
            claim("new", said=5, links=linked("update", "old")),
            claim("denied"),
            claim("right", said=5, links=linked("contradict", "denied")),
            claim("guess", role="assistant", said=9),
            claim("word", links=linked("update", "guess"), valid_from=None),
        )
    }
    assert texts["plain"] == "Fact plain."
    assert texts["over"] == "Fact over."
    assert texts["tool"] == "Fact tool. (according to the tool)"
    assert texts["both"] == "Fact both. (according to the assistant)"
    assert texts["old"] == "Fact old."
    assert texts["new"] == "Fact new."
    assert texts["denied"] == "Fact denied. (said since never to have been so)"
    assert texts["right"] == "Fact right."
    assert texts["guess"] == "Fact guess. (not what the user says; according to the assistant)"
    assert texts["word"] == "Fact word."
