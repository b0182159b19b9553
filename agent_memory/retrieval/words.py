"""The words that a text is found by."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Generic, NamedTuple, TypeVar

from agent_memory.core.text import STOP_WORDS, WORD, unaccented
from agent_memory.retrieval.languages import COMMON_WORDS, ENGLISH, is_latin, script_of
from agent_memory.retrieval.stems import stem

# scripts that are written without blanks: Thai, Lao, Burmese, Khmer, kana, Han; and Hangul, whose
# blanks part words with their particles from others
RUN = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003134f]+"
)
"""What stands together in a script that is written without blanks."""

_HANGUL = "\uac00\ud7a3"
_COMMON_PAIRS = frozenset().union(
    *(COMMON_WORDS[name] for name in ("chinese", "japanese", "korean"))
)
_ASCII_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")  # as WORD, in less time
_JOINERS = re.compile("[\u200c\u200d]")
_MOST_KNOWN = 100_000
_LONGER_KNOWN = 4_000
_WORD = 32
_LONGEST = 200
_LEAST_ROOT = 2

T = TypeVar("T")


class Known(Generic[T]):
    """A call whose results for words are kept, and for some longer names, such as paths.

    Of scripts without blanks it is not words that stand between two blanks but sentences: they
    hardly come twice, and to keep what is made of so many would take gigabytes.

    Args:
        call: Makes something of what stands between two blanks.

    Attributes:
        call: The same.
    """

    def __init__(self, call: Callable[..., T]) -> None:
        self.call = call
        self._kept = lru_cache(_MOST_KNOWN)(call)
        self._longer = lru_cache(_LONGER_KNOWN)(call)

    def __call__(self, written: str, *rest: frozenset[str]) -> T:
        """What is made of a word."""
        if len(written) <= _WORD:
            return self._kept(written, *rest)
        is_name = len(written) <= _LONGEST and written.isascii()
        return (self._longer if is_name else self.call)(written, *rest)

    def each(self, pieces: Sequence[str], *rest: frozenset[str]) -> list[T]:
        """What is made of each."""
        short = max(map(len, pieces), default=0) <= _WORD
        return list(map(self._kept if short else self, pieces, *map(repeat, rest)))


class Forms(NamedTuple):
    """What one word is found by.

    Attributes:
        plain: The word, folded; of Latin letters without English endings, whatever language it is.
        stems: Its stems in the languages of its text; `plain` is that of English.
    """

    plain: str
    stems: tuple[str, ...]


def words(text: str, languages: frozenset[str] = ENGLISH) -> list[str]:
    """The words of a text, in order, as they are compared: folded, stemmed, no stop words.

    Case, width and accents are folded. Of a script that is written without blanks, each two
    neighbouring characters are a word. Each other script stands for one language.

    Args:
        text: The text.
        languages: What the words in Latin letters are compared in. Of several it is the shortest
            stem.
    """
    return list(chain.from_iterable(_words_of.each(text.split(), languages)))


def roots(text: str, languages: frozenset[str] = ENGLISH) -> dict[str, str]:
    """For each of these words what it begins with: what a text with it has in it, its case aside.

    For a quick first look: others have it too, and one whose accents are written otherwise may not.
    """
    found = {word.casefold() for written in text.split() for word in WORD.findall(written)}
    begun: dict[str, str] = {}
    for written in found:
        for word in _words_of(written, languages):
            roots = [begun.get(word, written), _root(written, word)]
            begun[word] = min(roots, key=_size)
    return begun


def _root(written: str, word: str) -> str:
    """What a word and what it was made of have in common; half of an ending may stand otherwise."""
    same = 0
    while same < min(len(written), len(word)) and unaccented(written[same]) == word[same]:
        same += 1
    if same > _LEAST_ROOT and written[same - 1] in "iy":
        same -= 1
    return written[:same] or word


def words_up_to(most: int, text: str) -> int:
    """How many words a text has, counted no further than `most`."""
    count = 0
    for written in text.split():
        count += len(forms_of(written))
        if count >= most:
            return most
    return count


@Known
def _words_of(written: str, languages: frozenset[str]) -> tuple[str, ...]:
    """As `words`, of what stands between two blanks."""
    forms = forms_of(written, languages)
    if languages == ENGLISH:
        return tuple(one.stems[0] for one in forms)
    return tuple(min(one.stems, key=_size) for one in forms)


def _size(word: str) -> tuple[int, str]:
    return len(word), word


@Known
def forms_of(written: str, languages: frozenset[str] = ENGLISH) -> tuple[Forms, ...]:
    """The words of what stands between two blanks.

    Args:
        written: What stands there.
        languages: What the words in Latin letters may be of.
    """
    if not written.isascii():
        folded = unicodedata.normalize("NFKC", written.casefold())
        return tuple(one for word in WORD.findall(folded) for one in _parts(word, languages))
    found = _ASCII_WORD.findall(written.lower())
    if languages == ENGLISH:
        stems = [stem(word, "english") for word in found if word not in STOP_WORDS]
        return tuple(Forms(one, (one,)) for one in stems)
    return tuple(one for word in found for one in _of_letters(word, languages))


def _parts(word: str, languages: frozenset[str]) -> Iterator[Forms]:
    start = 0
    for run in RUN.finditer(word):
        if start < run.start():
            yield from _of_letters(word[start : run.start()], languages)
        yield from (Forms(pair, (pair,)) for pair in pairs(run[0]) if pair not in _COMMON_PAIRS)
        start = run.end()
    if start < len(word):
        yield from _of_letters(word[start:], languages)


def _of_letters(word: str, languages: frozenset[str]) -> Iterator[Forms]:
    word = _JOINERS.sub("", word.replace("\u2019", "'"))
    bare = unaccented(word)
    if not bare or bare in STOP_WORDS:  # of a lone accent nothing is left
        return
    script = script_of(word)
    own_script = ENGLISH if script is None else frozenset([script])
    known = languages if is_latin(word) else own_script
    if not known & ENGLISH and any(word in COMMON_WORDS.get(name, ()) for name in known):
        return
    plain = stem(bare, "english") if bare.isascii() else bare
    own = [plain] if known & ENGLISH else []
    stems = [unaccented(stem(word, name)) for name in sorted(known - ENGLISH)]
    yield Forms(plain, tuple(dict.fromkeys([*own, *stems])))


def pairs(run: str) -> Iterator[str]:
    """The words of a `RUN`: each two neighbouring characters, and all of it in Hangul."""
    if len(run) == 1 or (len(run) > 2 and _HANGUL[0] <= run[0] <= _HANGUL[1]):
        yield run
    for place in range(len(run) - 1):
        yield run[place : place + 2]
