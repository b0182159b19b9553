"""The counter of the first texts says what tiktoken says, to the token."""

from __future__ import annotations

import string
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent_memory.core.tokens.encodings import (
    VOCABULARIES,
    MergeCounter,
    NotForMerging,
    Vocabulary,
    encoding,
)
from agent_memory.testing.histories import texts
from tests.kit import at_length

pytestmark = pytest.mark.long

NAMES = [*VOCABULARIES]
RANKS = {name: vocabulary.ranks() for name, vocabulary in VOCABULARIES.items()}
EVERYDAY = (
    "àéîõüßçñÀÉøåŁżğ\u2019\u201c\u201d\u2013—…€£°½²αβγΩабвгдЖЯאבגدبتसिकेกข"
    "ค今日は天気がいい한국어カタカナ😀👍🎉❤️\u200d🏽"
)

pieces = st.one_of(
    st.text(st.sampled_from(EVERYDAY + string.ascii_letters + " "), max_size=40),
    st.text(st.sampled_from(" \t\n\r\v\f\x1c\x1f\u0085\u00a0\u2003\u2028\u3000a1.'"), max_size=20),
    st.text(st.sampled_from("'sStTrReEvVmMlLdD x"), max_size=20),
    st.text(st.sampled_from(string.ascii_lowercase), max_size=60),
    st.text(st.sampled_from(string.punctuation + "/\n aA1"), max_size=30),
    st.text(st.sampled_from(string.digits + " ,.½²٣"), max_size=30),
    st.text(st.sampled_from(string.ascii_letters), max_size=30),
    st.sampled_from(["def __init__(self) -> None:\n        ", "https://a.b/c?d=e#f", "HTTPServer"]),
    st.text(max_size=30),
    texts(),
)
anything = st.lists(pieces, max_size=6).map("".join)


def searching(name: str) -> MergeCounter:
    """A counter that looks its tokens up in the file."""
    return MergeCounter(VOCABULARIES[name], lambda: RANKS[name])


def looking_up(name: str) -> MergeCounter:
    """A counter that has read the table."""
    counter = searching(name)
    counter("an" * 40)
    return counter


LOOKING_UP = {name: looking_up(name) for name in NAMES}


def count(name: str, text: str) -> int:
    """Tokens by the table, however much was counted before."""
    LOOKING_UP[name].work = 0
    return LOOKING_UP[name](text)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=at_length(60))
@given(anything)
@example("'\u017f 'S 'S")
@example("x" * 600)
@example("\ud800 \udfff \ud83d\ude00")
@example("<|endoftext|><EOT>")
def test_it_counts_as_the_built_tokenizer(name: str, text: str) -> None:
    """Wrong: a process's first messages have other counts than its later ones."""
    try:
        counted = count(name, text)
    except NotForMerging:
        return
    assert counted == encoding(name).build()(text)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=at_length(15))
@given(st.lists(pieces, max_size=2).map("".join).filter(lambda text: len(text) < 40))
def test_places_in_the_file_are_as_good_as_ranks(name: str, text: str) -> None:
    """Wrong: a token is found where the file means something else, or not at all."""
    try:
        counted = searching(name)(text)
    except NotForMerging:
        return
    assert counted == encoding(name).build()(text)


@pytest.mark.parametrize("name", NAMES)
def test_every_character_is_in_the_class_it_has_there(name: str) -> None:
    """Wrong: a character is a letter here and none there, and texts are cut elsewhere."""
    built = encoding(name).build()
    taken = 0
    for code in [*range(0x3400), *range(0x3400, 0x20000, 7), *range(0x20000, 0x110000, 997)]:
        c = chr(code)
        text = f"a{c}b 1{c}2  {c} {c}{c}A{c}b x'{c} {c}'s {c}\n{c} \n 'r{c}' {c}"
        try:
            counted = count(name, text)
        except NotForMerging:
            continue
        taken += 1
        assert counted == built(text), hex(code)
    assert taken > 10_000


@pytest.mark.parametrize("text", ["\u017f", "\u0378", "\ud800", "𞤀", "a" * 600, "汉" * 200])
def test_what_is_not_sure_is_left_to_the_tokenizer(text: str) -> None:
    """Wrong: a character of a newer Unicode is guessed at, or an endless word takes for ever."""
    with pytest.raises(NotForMerging):
        count("o200k_base", text)


def test_a_lot_of_text_is_left_to_the_tokenizer() -> None:
    """Wrong: a book, or the noise of a file, is counted for seconds in Python."""
    random = Random(1)
    noise = " ".join("".join(random.choices(string.ascii_letters, k=24)) for _ in range(30_000))
    for text in ("a word or two " * 100_000, noise):
        with pytest.raises(NotForMerging):
            count("o200k_base", text)


@pytest.mark.parametrize(
    "text", ["今天天气很好 我们去公园散步。", "Überraschung — naïve 👍🏽", "😀"]
)
def test_everyday_texts_need_no_tokenizer(text: str) -> None:
    """Wrong: a smile or an accent in the first message has the tokenizer built at once."""
    assert count("o200k_base", text) > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_file_names_every_token_in_order(name: str) -> None:
    """Wrong: litellm's file has changed its form, and places in it are no ranks any more."""
    vocabulary: Vocabulary = VOCABULARIES[name]
    listing, place = vocabulary.listing(), -1
    for number, token in enumerate(RANKS[name]):
        entry = vocabulary.entry(token)
        place = listing.find(entry, place + 1)
        assert place >= 0, token
        if number % 97 == 0 or (b'"' in token or b"\\" in token):
            assert listing.find(entry) == place, token
    assert list(RANKS[name].values()) == sorted(RANKS[name].values())
