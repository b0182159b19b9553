"""Encodings: tiktoken's tokenizer, and the Python counter for first texts, which agrees."""

import string
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest
import tiktoken
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from agent_memory.core.token_encodings import (
    CLAUDE,
    VOCABULARIES,
    Encoding,
    MergeCounter,
    NotForMerging,
    OpenAI,
    Vocabulary,
    encoding,
    joined,
)
from agent_memory.errors import ConfigError
from agent_memory.testing.contract import together
from tests.histories import texts
from tests.kit import at_length

pytestmark = pytest.mark.long

TIKTOKENS = [name for name in VOCABULARIES if name != CLAUDE]
PROSE = "The quick brown fox jumps over the lazy dog, and nobody in the village remembers why."

anything = st.lists(texts() | st.text(max_size=60), max_size=4).map("".join)


@pytest.fixture(scope="module")
def folder() -> Path:
    spec = find_spec("litellm")
    assert spec.origin is not None
    return Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"


@pytest.fixture(scope="module")
def theirs(folder: Path) -> dict[str, Callable[[str], int]]:
    """Counters of tiktoken and tokenizers for the same files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
        own = {name: tiktoken.get_encoding(name).encode_ordinary for name in TIKTOKENS}
    claude = Tokenizer.from_file(str(folder / "anthropic_tokenizer.json"))
    return {
        **{name: (lambda text, of=of: len(of(text))) for name, of in own.items()},
        CLAUDE: lambda text: len(claude.encode(joined(text), add_special_tokens=False).ids),
    }


@pytest.mark.parametrize("name", [*VOCABULARIES])
@settings(max_examples=at_length(20))
@given(text=anything)
@example(text="ﬁﬃ ﷺ ㈱ Å ① ½ ｱｲｳ e\u0301")
@example(text="  \n\n\t  x \u00a0\u2003 \r\n y  ")
@example(text="\ud800 a \ud83d\ude00")
def test_a_built_tokenizer_counts_as_its_makers_do(
    theirs: dict[str, Callable[[str], int]], name: str, text: str
) -> None:
    """Wrong: our vocabulary or pattern differs from the encoding's."""
    assert encoding(name).build()(text) == theirs[name](text)


def test_claude_counts_match_original_tokenizer(theirs: dict[str, Callable[[str], int]]) -> None:
    """Wrong: merging by ranks gives other tokens than the file's merges."""
    ours, tokens = encoding(CLAUDE).build(), VOCABULARIES[CLAUDE].ranks()
    for token in tokens:
        text = token.decode("utf-8", "ignore")
        assert ours(text) == theirs[CLAUDE](text), text


@pytest.mark.parametrize("name", [*VOCABULARIES])
def test_counts_do_not_change_when_the_tokenizer_is_loaded(name: str) -> None:
    """Wrong: counts change when the tokenizer is loaded, or it is never loaded."""
    fresh = Encoding(name, VOCABULARIES[name])
    first = fresh.count(PROSE)
    passages = [f"{PROSE} {number} {'y' * number}" for number in range(400)]
    before = [fresh.count(passage) for passage in passages]
    built = fresh.build()
    assert fresh.count is built
    assert [fresh.count(passage) for passage in passages] == before
    assert fresh.count(PROSE) == first


def test_much_text_or_rare_characters_load_the_tokenizer() -> None:
    """Wrong: much text, or a rare character, is still counted in Python."""
    fresh = Encoding("cl100k_base", VOCABULARIES["cl100k_base"])
    done = threading.Event()
    build = fresh.build

    def observed() -> Callable[[str], int]:
        built = build()
        done.set()
        return built

    fresh.build = observed  # type: ignore[method-assign]
    while not done.wait(0.001):
        fresh.count(PROSE * 20)
    assert fresh.count is build()
    for text in ("\U0001e900" * 3, "ab" * 1000):
        fresh = Encoding("o200k_base", VOCABULARIES["o200k_base"])
        assert fresh.count(text) == encoding("o200k_base").build()(text)
        assert fresh.count is fresh.build()


@pytest.mark.parametrize("name", [*VOCABULARIES])
@pytest.mark.parametrize("blanks", [" ", "\n", " \n\t"])
def test_a_text_with_a_million_blanks_can_be_counted(name: str, blanks: str) -> None:
    """Wrong: a text with a huge gap makes tiktoken panic."""
    gap = blanks * (1_500_000 // len(blanks))
    assert 0 < encoding(name).build()(f"before{gap}after") <= len(gap) + 12


def test_concurrent_threads_get_the_same_counts() -> None:
    """Wrong: while the tokenizer is built, other threads get wrong counts."""
    fresh = Encoding("o200k_base", VOCABULARIES["o200k_base"])
    built, wrong = encoding("o200k_base").build(), []
    start = threading.Barrier(6)

    def work(number: int) -> None:
        start.wait()
        for turn in range(150):
            text = f"{PROSE} {number}-{turn} 天气 " + "zq" * (turn % 12)
            if fresh.count(text) != built(text):
                wrong.append(text)

    together([partial(work, number) for number in range(6)])
    assert wrong == []


def test_a_missing_vocabulary_raises_a_clear_error() -> None:
    """Wrong: a missing vocabulary raises a bare error about a path, or is downloaded."""
    broken = Encoding("o200k_base", OpenAI("0" * 40, ""))
    with pytest.raises(ConfigError, match="litellm has no tokenizer file"):
        broken.count("hi")


FIRST = """
import sys
from agent_memory.core.token_counter import TokenCounter
assert TokenCounter().text("Hello there, 3 apples") == 6
loaded = {"litellm", "tiktoken", "tokenizers", "regex", "requests"} & set(sys.modules)
assert not loaded, loaded
"""
EXIT = """
from agent_memory.core.token_encodings import encoding
first = encoding("o200k_base")
while first._builder is None:
    first.count("some words that are known, again and again " * 50)
"""
FORK = (
    EXIT
    + """
import os
child = os.fork()
if not child:
    assert first.count("two words") == 2
    assert first.build()("two words") == 2
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert first.build()("two words") == 2
"""
)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(FIRST, id="a first count loads nothing heavy"),
        pytest.param(EXIT, id="the end of the process amid building"),
        pytest.param(
            FORK,
            id="a fork amid building",
            marks=pytest.mark.skipif(sys.platform == "win32", reason="no fork"),
        ),
    ],
)
def test_a_first_count_imports_no_slow_library_and_exits_cleanly(script: str) -> None:
    """Wrong: the first count imports a slow library, or an exit or a fork hangs."""
    command = [sys.executable, "-W", "ignore", "-c", script]
    run = subprocess.run(command, capture_output=True, timeout=60, text=True)
    assert (run.returncode, run.stderr) == (0, "")


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
whole = st.lists(pieces, max_size=6).map("".join)


class LookingUp(MergeCounter):
    """A counter that finds ranks in a table, because searches take long in many texts."""

    def __init__(self, name: str) -> None:
        super().__init__(VOCABULARIES[name])
        self.table = RANKS[name]

    def _rank(self, token: bytes) -> int:
        return self.table.get(token, sys.maxsize)


LOOKING_UP = {name: LookingUp(name) for name in NAMES}


def count(name: str, text: str) -> int:
    """Count tokens by the table, without a limit."""
    LOOKING_UP[name].work = 0
    return LOOKING_UP[name](text)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=at_length(30))
@given(whole)
@example("'\u017f 'S 'S")
@example("x" * 600)
@example("\ud800 \udfff \ud83d\ude00")
@example("<|endoftext|><EOT>")
def test_it_counts_as_the_built_tokenizer(name: str, text: str) -> None:
    """Wrong: the first messages of a process have other counts than later ones."""
    try:
        counted = count(name, text)
    except NotForMerging:
        return
    assert counted == encoding(name).build()(text)


@pytest.mark.parametrize("name", NAMES)
def test_every_character_has_the_same_class_as_in_the_tokenizer(name: str) -> None:
    """Wrong: a character has another class than in the tokenizer, so texts split elsewhere."""
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
def test_uncertain_text_is_left_to_the_tokenizer(text: str) -> None:
    """Wrong: a newer Unicode character is guessed, or an endless word counted in Python."""
    with pytest.raises(NotForMerging):
        count("o200k_base", text)


def test_long_text_is_left_to_the_tokenizer() -> None:
    """Wrong: a book, or random bytes, is counted in Python for seconds."""
    random = Random(1)
    noise = " ".join("".join(random.choices(string.ascii_letters, k=24)) for _ in range(30_000))
    for text in ("a word or two " * 100_000, noise):
        with pytest.raises(NotForMerging):
            count("o200k_base", text)


@pytest.mark.parametrize(
    "text", ["今天天气很好 我们去公园散步。", "Überraschung — naïve 👍🏽", "😀"]
)
def test_everyday_texts_need_no_tokenizer(text: str) -> None:
    """Wrong: an emoji or an accent makes the tokenizer load."""
    assert count("o200k_base", text) > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_file_names_every_token_in_order(name: str) -> None:
    """Wrong: the form of litellm's file has changed, so positions are no ranks."""
    vocabulary: Vocabulary = VOCABULARIES[name]
    listing, place = vocabulary.listing(), -1
    for number, token in enumerate(RANKS[name]):
        entry = vocabulary.entry(token)
        place = listing.find(entry, place + 1)
        assert place >= 0, token
        if number % 97 == 0 or (b'"' in token or b"\\" in token):
            assert listing.find(entry) == place, token
    assert list(RANKS[name].values()) == sorted(RANKS[name].values())
