"""Scores of records, and the merging of what several blocks recall."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.fusion import doubles, merge, select
from agent_memory.core.records import Recall
from agent_memory.errors import InvalidSetting
from agent_memory.ltm_blocks.extractive import ImportanceScorer
from agent_memory.ltm_blocks.extractive.history.fact import Fact, rendered
from agent_memory.ltm_blocks.extractive.recalling import Remembered
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.vectors import encoding_of
from tests.unit.claiming import claim, day, facts, linked

NOW = day(30)


def score(
    scorer: ImportanceScorer,
    relevance: float,
    age_days: float = 0.0,
    mentions: int = 1,
    confidence: float = 1.0,
) -> float:
    return sum(scorer.factors(relevance, age_days, mentions, confidence).values())


def test_a_score_is_a_weighted_mean_of_its_factors() -> None:
    """Wrong: the sum of the weights changes the score, or a factor uses another's weight."""
    scorer = ImportanceScorer(relevance=2, recency=1, use=1, confidence=4, half_life_days=10)
    factors = scorer.factors(relevance=0.5, age_days=20, mentions=3, confidence=0.25)
    assert factors == pytest.approx(
        {"relevance": 1 / 8, "recency": 0.25 / 8, "use": 0.5 / 8, "confidence": 1 / 8}
    )
    doubled = ImportanceScorer(relevance=4, recency=2, use=2, confidence=8, half_life_days=10)
    assert score(doubled, 0.5, 20, 3, 0.25) == pytest.approx(score(scorer, 0.5, 20, 3, 0.25))


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
    assert 0 <= score(scorer, relevance, age, mentions, sure) <= 1 + 1e-9


def test_each_weight_affects_only_its_factor() -> None:
    """Wrong: weights of 0 divide by zero, or a factor works in reverse."""
    off = ImportanceScorer(relevance=0, recency=0, use=0, confidence=0)
    assert score(off, 1) == 0
    scorer = ImportanceScorer()
    best = score(scorer, 1.0, 0, 15, 1.0)
    assert best == pytest.approx(1)
    assert score(scorer, 0.9, 0, 15, 1.0) < best
    assert score(scorer, 1.0, 1, 15, 1.0) < best
    assert score(scorer, 1.0, 0, 14, 1.0) < best
    assert score(scorer, 1.0, 0, 15, 0.9) < best
    assert score(scorer, 0.5, -30, 1, 1.0) == score(scorer, 0.5, 0, 1, 1.0)
    only = ImportanceScorer(recency=0, use=0, confidence=0)
    for age, mentions, sure in product((0, 99), (1, 9), (0.1, 1.0)):
        assert score(only, 0.5, age, mentions, sure) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "wrong", [{"relevance": -1}, {"half_life_days": 0}, {"importance": 1}, {"use": "much"}]
)
def test_an_invalid_weight_is_refused(wrong: dict[str, object]) -> None:
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
    return known.recalls(chosen, query, ImportanceScorer(), NOW, 50)


def recalled(found: list[Fact], question: str = "") -> list[str]:
    return [one.id for one in ranked(found, question)]


def test_relevance_outweighs_age_and_use_by_default() -> None:
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


def test_a_fact_is_shown_with_its_source_and_state() -> None:
    """Wrong: a denied fact, or one by a tool or the assistant, reads like the user's statement."""
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


BLOCKS = ["static", "extractive", "vector"]
sources = st.lists(st.tuples(st.sampled_from(["s", "t"]), st.integers(1, 4)), max_size=2)


def recalls_of(block: str) -> st.SearchStrategy[list[Recall]]:
    one = st.builds(
        Recall,
        block=st.just(block),
        id=st.uuids().map(str),
        text=st.sampled_from(["a", "A ", "b", "b  c", "b c", "d", "e", "f", "g"]),
        score=st.floats(-1, 3) | st.sampled_from([math.nan, math.inf, -math.inf]),
        tokens=st.integers(1, 60),
        sources=sources.map(tuple),
    )
    return st.lists(one, max_size=6)


found_by_blocks = st.fixed_dictionaries({block: recalls_of(block) for block in BLOCKS})


def key(text: str) -> str:
    return " ".join(text.casefold().split())


@given(found_by_blocks, st.sets(st.tuples(st.just("s"), st.integers(1, 4))))
def test_merge_repeats_nothing(found: dict[str, list[Recall]], shown: set[tuple[str, int]]) -> None:
    """Wrong: a merge has duplicates or shown texts, loses one, or has a random order."""
    merged = merge(found, shown)
    texts = [key(recall.text) for recall in merged]
    assert len(texts) == len(set(texts))
    kept = [
        recall
        for recalls in found.values()
        for recall in recalls
        if not recall.sources or set(recall.sources) - shown
    ]
    assert {key(recall.text) for recall in kept} == set(texts)
    assert all(recall in kept for recall in merged)
    assert merged == merge(found, shown)


def test_merge_ranks_by_score_relative_to_the_best_of_the_block() -> None:
    """Wrong: a block with larger scores crowds out the others."""
    big = [Recall("b", "1", "one", score=900.0), Recall("b", "2", "two", score=300.0)]
    small = [Recall("a", "3", "three", score=0.4), Recall("a", "4", "four", score=0.3)]
    assert [r.id for r in merge({"a": small, "b": big})] == ["3", "1", "4", "2"]
    assert [r.id for r in merge({"b": big, "a": small})] == ["1", "3", "4", "2"]


@given(
    found_by_blocks,
    st.integers(-5, 300),
    st.dictionaries(st.sampled_from(BLOCKS), st.none() | st.integers(0, 80)),
)
def test_select_stays_within_room_and_shares_it(
    found: dict[str, list[Recall]], room: int, limits: dict[str, int | None]
) -> None:
    """Wrong: the choice exceeds the room or a block's limit, or takes another block's share."""
    recalls = merge(found)
    chosen = select(recalls, room, limits)
    assert sum(recall.tokens for recall in chosen) <= max(room, 0)
    assert chosen == [recall for recall in recalls if recall in chosen]
    assert chosen == select(recalls, room, limits)
    blocks = {recall.block for recall in recalls}
    for block in blocks:
        limit = limits.get(block)
        own = [recall for recall in recalls if recall.block == block]
        assert limit is None or sum(r.tokens for r in chosen if r.block == block) <= limit
        sure = min(room // len(blocks), room if limit is None else limit)
        if own[0].tokens <= sure:
            assert own[0] in chosen


def test_the_unused_share_of_a_block_goes_to_the_best_recalls() -> None:
    """Wrong: the share of a block without recalls is wasted."""
    recalls = [Recall("a", str(n), str(n), tokens=10) for n in range(9)]
    recalls.append(Recall("b", "x", "x", tokens=10))
    assert [r.id for r in select(recalls, 60)] == ["0", "1", "2", "3", "4", "x"]
    assert select(recalls, 60, {"a": 20}) == [*recalls[:2], recalls[-1]]
    assert select([], 60) == []
    long = Recall("a", "long", "l", 1.0, tokens=900)
    short = [Recall("a", str(n), str(n), 0.9 - n / 100, tokens=90) for n in range(10)]
    assert select([long, *short], 900) == short
    better = Recall("a", "long", "l", 9.0, tokens=900)
    assert select([better, *short], 900) == [better]
    better, worse = Recall("a", "1", "HR-101", score=0.9), Recall("a", "2", "hr-101 ", score=0.3)
    later = Recall("b", "3", "HR-101", score=5.0)
    assert merge({"a": [better, worse], "b": [later]}) == [better]


def test_near_duplicates_are_merged() -> None:
    """Wrong: near-duplicates fill the context, or different facts are merged."""
    said = "We went down to the old harbour to see the ships that had come in with the tide {}"
    one, other = said.format("early today"), said.format("early, today")
    recalls = [Recall("a", str(n), text, 1 - n / 10) for n, text in enumerate((one, other))]
    assert merge({"a": recalls}) == recalls[:1]
    for this, that in (
        ("Ann owes Bob fifty", "Bob owes Ann fifty"),
        (said.format("at 7"), said.format("at 8")),
        (said.format("with Ann"), said.format("with Bob")),
        (said.format("called lulu"), said.format("called mimi")),
        (said.format("مشمش"), said.format("لولو")),  # Arabic has no capitals
        (said.format(""), said.format("").replace("come", "not come")),
        ("yes", "no"),
    ):
        both = [Recall("a", "1", this, 0.9), Recall("a", "2", that, 0.8)]
        assert merge({"a": both}) == both


def test_a_record_found_by_two_blocks_ranks_higher() -> None:
    """Wrong: a record that two blocks found ranks below one that a single block scored a little
    higher, or unrelated records support each other."""

    def recall(block: str, text: str, score: float, *sources: tuple[str, int]) -> Recall:
        return Recall(block, text, text, score, sources=sources)

    facts = [recall("facts", "Likes tea.", 1.0), recall("facts", "Owns a boat.", 0.9, ("s", 4))]
    said = [
        recall("vector", "So much rain today.", 1.0, ("s", 9)),
        recall("vector", "We took my boat out, the blue one.", 0.9, ("s", 4)),
    ]
    merged = [one.text for one in merge({"facts": facts, "vector": said})]
    assert merged[:2] == ["Owns a boat.", "We took my boat out, the blue one."]
    apart = [replace(said[1], sources=(("other", 4),)), said[0]]
    merged = [one.text for one in merge({"facts": facts, "vector": apart})]
    assert merged[:2] == ["Likes tea.", "So much rain today."]
    alone = [one.text for one in merge({"vector": [said[0], said[1], replace(said[1], id="x")]})]
    assert alone[0] == "So much rain today."


def test_a_text_with_one_more_word_is_a_near_duplicate() -> None:
    said = "we went to the lake with Ann and her old dog on a sunny day"
    assert doubles([said, f"{said} again", "something else", said]) == {1: 0, 3: 0}
