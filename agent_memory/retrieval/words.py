"""The words that a text is found by."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from agent_memory.core.lazy import made_once
from agent_memory.core.text import STOP_WORDS

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
# scripts that are written without blanks: Thai, Lao, Burmese, Khmer, kana, Han
_RUN = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003134f]+"
)
_MOST_KNOWN = 100_000
_LEAST_ROOT = 2


def words(text: str) -> list[str]:
    """The words of a text, in order, as they are compared: folded, stemmed, no stop words.

    Case, width and accents are folded. English endings are cut (Porter's second stemmer). Of a
    script that is written without blanks, each two neighbouring characters are a word.
    """
    return [word for written in text.split() for word in words_of(written)]


def roots(text: str) -> set[str]:
    """What a text that has one of these words has in it, its case aside: what they begin with.

    For a quick first look: others have it too, and one whose accents are written otherwise may not.
    """
    found = {word.casefold() for written in text.split() for word in _WORD.findall(written)}
    told = {written for written in found if words_of(written)}
    return {_root(written, word) for written in told for word in words_of(written)}


def _root(written: str, word: str) -> str:
    """What a word and what it was made of have in common; half of an ending may stand otherwise."""
    same = 0
    while same < min(len(written), len(word)) and written[same] == word[same]:
        same += 1
    if same > _LEAST_ROOT and written[same - 1] in "iy":
        same -= 1
    return written[:same] or word


def words_up_to(most: int, text: str) -> int:
    """How many words a text has, counted no further than `most`."""
    count = 0
    for written in text.split():
        count += len(words_of(written))
        if count >= most:
            return most
    return count


@lru_cache(_MOST_KNOWN)
def words_of(written: str) -> tuple[str, ...]:
    """The words of what stands between two blanks."""
    return tuple(word for found in _WORD.findall(_folded(written)) for word in _parts(found))


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    spread = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", "".join(c for c in spread if not _is_accent(c)))


def _is_accent(character: str) -> bool:
    """Whether it is a mark on a Latin, Greek or Cyrillic letter; other marks tell words apart."""
    return "\u0300" <= character <= "\u036f"


def _parts(word: str) -> Iterator[str]:
    start = 0
    for run in _RUN.finditer(word):
        if start < run.start():
            yield from _parts_of_letters(word[start : run.start()])
        yield from _pairs(run[0])
        start = run.end()
    if start < len(word):
        yield from _parts_of_letters(word[start:])


def _parts_of_letters(word: str) -> Iterator[str]:
    word = word.replace("\u2019", "'")
    if word not in STOP_WORDS:
        yield _stem(word) if word.isascii() else word


def _pairs(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
    for place in range(len(run) - 1):
        yield run[place : place + 2]


def _stem(word: str) -> str:
    stemmed: str = _stemmers.english.stemWord(word.removesuffix("'s"))
    return stemmed


class _Stemmers(threading.local):
    """One for each thread: a stemmer keeps the word that it is at."""

    @made_once
    def english(self) -> Any:
        import Stemmer

        return Stemmer.Stemmer("english", 0)  # words are kept by `words_of`


_stemmers = _Stemmers()
