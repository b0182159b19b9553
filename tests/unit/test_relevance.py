"""Whether anything bears on a question."""

from collections.abc import Sequence

import numpy as np

from agent_memory.retrieval.blending import by_ranks
from agent_memory.retrieval.relevance import bears

FILLED = [f"Something else number {at}, of another day" for at in range(200)]


def scores(meaning: Sequence[float]) -> np.ndarray:
    """Of texts that the view of meaning gives these scores, and others none."""
    return np.array([[0.0, 0.0, one, 0.0] for one in meaning], np.float32)


def with_meaning(question: str, text: str, cosine: float) -> bool:
    texts = [text, *FILLED]
    return bears(question, texts, scores([cosine, *[0.01] * len(FILLED)]), 0.28)


def by_words(question: str, text: str) -> bool:
    return bears(question, [text, *FILLED], scores([0.0] * (len(FILLED) + 1)), 0.0)


def test_what_is_near_in_meaning_or_has_its_words_bears_on_it() -> None:
    """Wrong: any shared word lets anything be recalled, or a long question nothing."""
    assert with_meaning("Which pet?", "My cat is grey.", 0.3)
    assert not with_meaning("Which pet?", "My cat is grey.", 0.2)
    assert with_meaning("Which telescope on that day?", "The telescope broke.", 0.2)
    assert not with_meaning("Which telescope did Ana buy?", "Ana called.", 0.2)
    long = "The party keeps the records of what it delivers. What is the dog called Ada adopted?"
    assert with_meaning(long, "Ada adopted a dog, a party called Biscuit.", 0.2)


def test_by_words_alone_half_or_two_of_them_bear_on_it() -> None:
    """Wrong: without an embedder everything that shares a common word is recalled."""
    assert by_words("Which telescope on that day?", "The telescope broke.")
    assert not by_words("How many moons does Neptune have on a day?", "It was a nice day.")
    assert by_words("How many moons has a day on Neptune?", "The moons of that day")


def test_of_few_less_is_asked() -> None:
    """Wrong: the only fact that there is has to pass the bar of hundreds."""
    assert bears("Where do I live?", ["I moved to Lisbon."], scores([0.02]), 0.28)
    assert not bears("Where do I live?", [], scores([]), 0.28)


def test_of_an_embedder_of_which_nothing_is_known_everything_bears() -> None:
    """Wrong: vectors of another model are held to a bar that was measured for the local one."""
    assert bears("Which pet?", ["My cat."] * 200, scores([0.01] * 200), 0.0)


def test_rank_fusion_has_the_constant_that_is_asked_for() -> None:
    """Wrong: the constant is fixed, or a first rank in all views is not worth 1."""
    parts = np.array([[1.0, 0.2], [0.5, 1.0], [0.1, 0.0]], np.float32)
    for k in (1.0, 20.0, 60.0):
        expected = [
            ((k + 1) / (k + 1) + (k + 1) / (k + 2)) / 2,
            ((k + 1) / (k + 2) + (k + 1) / (k + 1)) / 2,
            (k + 1) / (k + 3) / 2,
        ]
        assert np.allclose(by_ranks(parts, (1, 1), k), expected)
