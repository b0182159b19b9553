"""Splits a text into index words: folded and stemmed words, without stop words."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from agent_memory.core.text import RUN, STOP_WORDS, WORD, pairs, unaccented
from agent_memory.retrieval.languages import COMMON_WORDS, ENGLISH, is_latin, script_of

_AFTER_APOSTROPHE = frozenset(["french", "italian"])  # as "école" in "l'école"
_BEFORE_APOSTROPHE = frozenset(["english", "turkish", "danish", "swedish", "norwegian"])
_LEAST = 2
_TURKISH = 5
"""Number of leading letters that replace the stem of a Turkish word. Searches with these letters
find about as much as with a stemmer (Can et al., "Information retrieval on Turkish texts", 2008).
Snowball's stemmer does not stem Turkish verbs."""


def stem(word: str, language: str) -> str:
    """Return the stem of a folded word, mostly from Snowball's stemmers. Accents stay."""
    if "'" in word:
        word = _bare(word, language)
    if language == "turkish":
        if any(map(str.isdigit, word)):  # a code, such as inv2033
            return word
        # k becomes ğ before a vowel: çocuk, çocuğum
        return word[:_TURKISH].replace("\u011f", "k")
    stemmed: str = _stemmer(language).stemWord(word)
    return stemmed if len(stemmed) >= _LEAST else word


def _bare(word: str, language: str) -> str:
    """Return a word without the part before or after its apostrophe."""
    if language == "english":
        return word.removesuffix("'s")
    if language in _AFTER_APOSTROPHE:
        return word.rpartition("'")[2]
    if language in _BEFORE_APOSTROPHE:
        return word.partition("'")[0]
    return word


_own = threading.local()  # a stemmer has state, so each thread has its own stemmers


def _stemmer(language: str) -> Any:
    stemmers = _own.__dict__
    if language not in stemmers:
        import Stemmer

        stemmers[language] = Stemmer.Stemmer(language, 0)  # 0: no cache, since `Cached` has one
    return stemmers[language]


ASCII_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")  # a faster WORD
_JOINERS = re.compile("[\u200c\u200d]")
_DIGIT = re.compile(r"(?![0-9])\d")  # a digit of another script
_MOST_CACHED = 50_000
_MOST_LANGUAGES = 4  # number of sets of languages for which results are cached
_WORD = 32
_LONGEST = 200
_LEAST_ROOT = 2

T = TypeVar("T")


class _Results(dict[str, T]):
    """Results of a function by chunk. Missing results are computed, and stored for short chunks.

    In scripts without blanks, a chunk is a whole sentence. Sentences rarely repeat, and storing
    their results would take gigabytes. Results are therefore stored for chunks of up to 32
    characters, and for ASCII chunks, such as paths, of up to 200.
    """

    def __init__(self, call: Callable[[str], T]) -> None:
        self._call = call
        self.size = 0

    def __missing__(self, written: str) -> T:
        result = self._call(written)
        if len(written) <= _WORD or (len(written) <= _LONGEST and written.isascii()):
            self[written] = result
            self.size += 1 + len(written) // _WORD
        return result


class Cached(Generic[T]):
    """A function of a chunk, which is the text between two blanks, with cached results."""

    def __init__(self, call: Callable[..., T]) -> None:
        self._call = call
        self._results: dict[tuple[frozenset[str], ...], _Results[T]] = {}

    def __call__(self, written: str, *rest: frozenset[str]) -> T:
        return self._of(rest)[written]

    def each(self, pieces: Sequence[str], *rest: frozenset[str]) -> list[T]:
        return list(map(self._of(rest).__getitem__, pieces))

    def _of(self, rest: tuple[frozenset[str], ...]) -> _Results[T]:
        results = self._results.get(rest)
        if results is None or results.size > _MOST_CACHED:
            if len(self._results) >= _MOST_LANGUAGES:
                self._results.clear()
            results = self._results[rest] = _Results(lambda written: self._call(written, *rest))
        return results


class Forms(NamedTuple):
    """The forms under which one word is indexed."""

    plain: str  # the folded word; for an ASCII word, its English stem in every language
    # The stems in the languages of the word's text. The English stem is `plain`.
    stems: tuple[str, ...]


def words(text: str, languages: frozenset[str] = ENGLISH) -> list[str]:
    """Return the index words of a text, in order: folded, stemmed, without stop words.

    Case, width and accents are folded. In Hangul and in scripts without blanks, each pair of
    neighbouring characters is a word. Every non-Latin script stands for one language.

    Args:
        languages: Languages of the words in Latin letters. If there are several, the shortest stem
            of a word counts.
    """
    return list(chain.from_iterable(_words_of.each(text.split(), languages)))


def roots(text: str, languages: frozenset[str] = ENGLISH) -> dict[str, str]:
    """Map each index word to its root: the first letters, which most texts with the word contain.

    Use a root as a quick filter that ignores case. Texts without the word may contain its root.
    Texts with other accents, or with an irregular form such as "dying", may lack it.
    """
    spellings = {word.casefold() for written in text.split() for word in WORD.findall(written)}
    begun: dict[str, str] = {}
    for written in spellings:
        for word in _words_of(written, languages):
            roots = [begun.get(word, written), _root(written, word)]
            begun[word] = min(roots, key=_size)
    return begun


def _root(written: str, word: str) -> str:
    """Return the common prefix of a written word and its stem, without a final i or y.

    Other forms of the word may have another last letter ("happy", "happier").
    """
    same = 0
    while same < min(len(written), len(word)) and unaccented(written[same]) == word[same]:
        same += 1
    if same > _LEAST_ROOT and written[same - 1] in "iy":
        same -= 1
    return written[:same] or word


@Cached
def _words_of(written: str, languages: frozenset[str]) -> tuple[str, ...]:
    """Return the words of one chunk; see `words`."""
    forms = forms_of(written, languages)
    if languages == ENGLISH:
        return tuple(form.stems[0] for form in forms)
    return tuple(min(form.stems, key=_size) for form in forms)


def _size(word: str) -> tuple[int, str]:
    return len(word), word


@Cached
def forms_of(written: str, languages: frozenset[str] = ENGLISH) -> tuple[Forms, ...]:
    """Return the forms of each word in a chunk. Latin words may be in any of `languages`."""
    if not written.isascii():
        folded = unicodedata.normalize("NFKC", written.casefold())
        folded = _DIGIT.sub(lambda digit: str(unicodedata.digit(digit[0])), folded)
        return tuple(form for word in WORD.findall(folded) for form in _parts(word, languages))
    spellings = ASCII_WORD.findall(written.lower())
    if languages == ENGLISH:
        stems = [stem(word, "english") for word in spellings if word not in STOP_WORDS]
        return tuple(Forms(plain, (plain,)) for plain in stems)
    return tuple(form for word in spellings for form in _of_letters(word, languages))


def _parts(word: str, languages: frozenset[str]) -> Iterator[Forms]:
    start = 0
    for run in RUN.finditer(word):
        if start < run.start():
            yield from _of_letters(word[start : run.start()], languages)
        yield from (Forms(pair, (pair,)) for pair in pairs(run[0]))
        start = run.end()
    if start < len(word):
        yield from _of_letters(word[start:], languages)


def _of_letters(word: str, languages: frozenset[str]) -> Iterator[Forms]:
    word = _JOINERS.sub("", word.replace("\u2019", "'"))
    bare = unaccented(word)
    if not bare or bare in STOP_WORDS:  # a lone accent folds to nothing
        return
    script = script_of(word)
    own_script = ENGLISH if script is None else frozenset([script])
    possible = languages if is_latin(word) else own_script
    if not possible & ENGLISH and any(word in COMMON_WORDS.get(name, ()) for name in possible):
        return
    plain = stem(bare, "english") if bare.isascii() else bare
    own = [plain] if possible & ENGLISH else []
    stems = [unaccented(stem(word, name)) for name in sorted(possible - ENGLISH)]
    yield Forms(plain, tuple(dict.fromkeys([*own, *stems])))
