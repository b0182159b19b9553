"""Which facts may be equal, or change one another."""

from collections.abc import Sequence

import numpy as np
import pytest

from agent_memory.ltm_blocks.extractive.history.likeness import (
    ALIKE,
    candidates,
    gist,
    jaccard,
    key_of,
    most_alike,
    shingles,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Lives in Rome.", "lives  in ROME"),
        ("Has a cat, named Tom!", 'Has a cat named "Tom"'),
        ("Owns a bike (red).", "Owns a bike red"),
        ("Don't call.", "Don\u2019t call"),
        ("\uff32ome", "rome"),
        ("Caf\u00e9", "Cafe\u0301"),
        ("\u00bfD\u00f3nde vive?", "d\u00f3nde vive"),
        ("\u4f4f\u5728\u4e1c\u4eac\u3002", "\u4f4f\u5728\u4e1c\u4eac"),
    ],
)
def test_case_blanks_and_marks_do_not_count(one: str, other: str) -> None:
    """Wrong: the same fact with other case, blanks or punctuation is stored twice."""
    assert key_of(one) == key_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Programs in C++.", "Programs in C#."),
        ("Programs in C.", "Programs in C++."),
        ("Weighs 5 kilos.", "Weighs -5 kilos."),
        ("Paid 1,500.", "Paid 1.500."),
        ("Owns 50.", "Owns 50%."),
        ("Owes $50.", "Owes \u20ac50."),
        ("Likes \U0001f34e", "Likes \U0001f34c"),
        ("Can eat nuts.", "Can't eat nuts."),
    ],
)
def test_marks_that_are_part_of_a_word_count(one: str, other: str) -> None:
    """Wrong: two different facts get one key, and are merged without a check."""
    assert key_of(one) != key_of(other)


def test_shingles_and_their_share() -> None:
    """Wrong: punctuation counts as a word, or word order does not count."""
    assert key_of(" ... \u2014 !? ") == ""
    assert shingles("...") == {("", "")}
    assert shingles("Rex barks.") == {("", "rex"), ("rex", "barks"), ("barks", "")}
    assert shingles("Rex") == {("", "rex"), ("rex", "")}
    assert jaccard(shingles("Rex barks"), shingles("barks Rex")) == 0
    short, long = shingles("likes tea"), shingles("likes tea with milk and sugar")
    assert jaccard(short, long) == pytest.approx(2 / 8)
    assert jaccard(long, short) == jaccard(short, long)
    assert jaccard(short, short) == 1
    assert jaccard(frozenset(), frozenset()) == 1
    assert jaccard(short, frozenset()) == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Works as an engineer at Acme.", "Works at Acme as an engineer."),
        ("The user plays the piano.", "Plays piano"),
        ("Flew from Rome to Paris.", "Flew to Paris from Rome."),
        ("Is very tall.", "tall"),
    ],
)
def test_the_gist_is_free_of_order_and_small_words(one: str, other: str) -> None:
    """Wrong: the same fact with another word order or other small words counts as new."""
    assert gist(one) == gist(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Flew from Rome to Paris.", "Flew from Paris to Rome."),
        ("Likes tea and hates coffee with milk.", "Likes tea with milk and hates coffee."),
        ("Smokes.", "Smoked."),
        ("Is ill.", "Was ill."),
        ("Eats no meat.", "Eats meat."),
        ("Anna likes Ben.", "Ben likes Anna."),
    ],
)
def test_the_gist_keeps_what_matters(one: str, other: str) -> None:
    """Wrong: facts that differ in actor, time or negation are taken for one."""
    assert gist(one) != gist(other)


def near(
    new: str,
    others: Sequence[str],
    cosine: Sequence[float] | None = None,
    kinds: Sequence[tuple[str, str]] | None = None,
    kind: tuple[str, str] = ("user", "new"),
) -> list[int]:
    """Return the candidates for a new text. Kinds differ unless they are given."""
    kinds_of_others = kinds or [("user", f"kind {n}") for n in range(len(others))]
    row = np.array(cosine if cosine is not None else [0.0] * len(others))
    return [at for at, _ in candidates(new, kind, others, kinds_of_others, row)]


def test_the_nearest_candidates_come_first() -> None:
    """Wrong: a change in other words is not among the candidates."""
    others = ["Lives in Paris.", "Has a dog.", "Plays chess."]
    assert near("Moved to Paris.", others) == [0]
    assert near("Owns a puppy.", others, [0.1, 0.6, 0.1]) == [1]
    assert near("Nothing alike.", others, [0.0, ALIKE, ALIKE - 0.01]) == [1]
    kinds = [("user", "home"), ("user", "pets"), ("tom", "hobby")]
    assert near("Nothing alike.", others, kinds=kinds, kind=("tom", "hobby")) == [2]
    assert near("Nothing alike.", others) == []
    others = [f"Fact number {n}" for n in range(50)]
    found = near("Wholly else", others, [n / 50 for n in range(50)])
    assert found == list(range(49, 17, -1))
    facts = ["Ana has a cat.", "Ana lives in Porto.", "Ana has a dog.", "Ana plays chess."]
    assert most_alike(facts, ["anything"], 4) == [0, 1, 2, 3]
    assert most_alike(facts, ["We left Porto", "with the cat"], 2) == [0, 1]
    assert most_alike(facts, ["Hello"], 2) == [2, 3]
    assert most_alike([], ["Hello"], 2) == []
    assert near("No dog any more.", ["Has a big brown dog that barks at the neighbours."]) == [0]
