"""Which texts say what another says: found quickly, and by comparing each with each."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.fusion import doubles
from agent_memory.core.text import identifiers, names

WORDS = st.sampled_from(["the", "boat", "The", "Ann", "went", "to", "Rome", "7", "again", "now"])
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), max_size=12)


def pairs(text: str) -> set[tuple[str, str]]:
    words = ["", *text.casefold().split()]
    return set(pairwise(words))


def same(one: str, other: str) -> bool:
    left, right = pairs(one), pairs(other)
    named = [{word.casefold() for word in (*identifiers(t), *names(t))} for t in (one, other)]
    return len(left & right) >= 0.8 * len(left | right) and named[0] == named[1]


@given(TEXTS)
def test_it_finds_what_comparing_each_with_each_finds(texts: list[str]) -> None:
    stay: list[int] = []
    found: dict[int, int] = {}
    for place, text in enumerate(texts):
        first = next((one for one in stay if same(texts[one], text)), None)
        if first is None:
            stay.append(place)
        else:
            found[place] = first
    assert doubles(texts) == found


def test_a_text_with_a_word_more_says_the_same() -> None:
    said = "we went to the lake with Ann and her old dog on a sunny day"
    assert doubles([said, f"{said} again", "something else", said]) == {1: 0, 3: 0}
