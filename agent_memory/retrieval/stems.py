"""Words without their endings."""

from __future__ import annotations

import threading
from typing import Any

_AFTER_APOSTROPHE = frozenset(["french", "italian"])  # l'école, dell'anno
_BEFORE_APOSTROPHE = frozenset(["english", "turkish", "danish", "swedish", "norwegian"])
_LEAST = 2
_TURKISH = 5
"""Letters that a Turkish word is found by. That finds about as much as stemmers that know the
language (Can et al., "Information retrieval on Turkish texts", 2008); Snowball's knows no verbs."""


def stem(word: str, language: str) -> str:
    """A folded word without its endings (Snowball's stemmers), which keeps its accents.

    Args:
        word: The word.
        language: Its language.
    """
    if "'" in word:
        word = _bare(word, language)
    if language == "turkish":
        return word[:_TURKISH].replace("\u011f", "k")  # a k before a vowel: çocuk, çocuğum
    made = _stemmers.made.get(language) or _stemmers.make(language)
    stemmed: str = made.stemWord(word)
    return stemmed if len(stemmed) >= _LEAST else word


def _bare(word: str, language: str) -> str:
    """A word without what an apostrophe parts from it."""
    if language == "english":
        return word.removesuffix("'s")
    if language in _AFTER_APOSTROPHE:
        return word.rpartition("'")[2]
    if language in _BEFORE_APOSTROPHE:
        return word.partition("'")[0]
    return word


class _Stemmers(threading.local):
    """One for each thread: a stemmer keeps the word that it is at."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}

    def make(self, language: str) -> Any:
        import Stemmer

        self.made[language] = Stemmer.Stemmer(language, 0)  # words are kept by `words`
        return self.made[language]


_stemmers = _Stemmers()
