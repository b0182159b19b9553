"""Long texts in passages that are found each by itself."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.passages import LONG, MOST_PASSAGES, PASSAGE, passages

SENTENCES = " ".join(f"Sentence {number} tells of item {number * 7}." for number in range(400))
CHINESE = "".join(f"第{number}句话说的是第{number * 7}件东西。" for number in range(400))


def sizes(text: str) -> list[int]:
    return [len(text[start:end].encode("utf-8", "surrogatepass")) for start, end in passages(text)]


@pytest.mark.parametrize("text", ["", "Hello.", "word " * (LONG // 5), "é" * (LONG // 2)])
def test_a_text_that_is_not_long_is_one_passage(text: str) -> None:
    """Wrong: ordinary messages, long answers of assistants among them, are torn apart."""
    assert passages(text) == [(0, len(text))]


@pytest.mark.parametrize("text", [SENTENCES, CHINESE, SENTENCES.replace(" ", "\n")])
def test_a_long_text_is_cut_between_sentences(text: str) -> None:
    """Wrong: a passage begins within a sentence, is far longer or shorter than others, or what
    stands where two meet is in neither as a whole."""
    found = passages(text)
    assert len(found) > 5
    assert all(PASSAGE / 2 < size < PASSAGE * 2 for size in sizes(text))
    for (start, end), (later, _) in pairwise(found):
        assert start < later < end + 2
        assert text[end - 1] in ".。\n" or text[end : end + 1] == "\n"
    overlaps = [end - start for (_, end), (start, _) in pairwise(found)]
    assert all(0 < overlap < 60 for overlap in overlaps)


@pytest.mark.parametrize(
    "text", ["x" * 30_000, "word " * 6_000, '{"a":1},' * 4_000, "ab\n" * 9_000]
)
def test_what_has_no_sentences_is_cut_too(text: str) -> None:
    """Wrong: a long line is one passage whose vector says nothing, or is cut within words."""
    found = passages(text)
    assert max(sizes(text)) < PASSAGE * 2
    assert found[0][0] == 0
    if text.startswith("word"):
        assert all(set(text[start:end].split()) == {"word"} for start, end in found)


def test_a_huge_text_has_only_so_many() -> None:
    """Wrong: one pasted file of megabytes makes a hundred thousand records."""
    assert len(passages("word " * 2_000_000)) <= MOST_PASSAGES


@given(
    st.lists(
        st.text(st.characters(codec="utf-8"), max_size=40)
        | st.sampled_from(["x" * 700, "One. ", "\n\n", "\ud800", "の。", " " * 90]),
        max_size=60,
    )
)
def test_nothing_is_in_no_passage(parts: list[str]) -> None:
    """Wrong: something is found in no passage, or passages are out of order or empty."""
    text = "".join(parts) * 8
    found = passages(text)
    at = 0
    for start, end in found:
        assert not text[at:start].strip()
        assert at == 0 or end > at
        assert start < end or not text
        at = end
    assert not text[at:].strip()
    assert found == sorted(found)
