"""Correction of misspelled English words, with the dictionary of `pyspellchecker`.

The method is Peter Norvig's (https://norvig.com/spell-correct.html): the most frequent word that
differs by one letter, or by two neighbouring letters in the other order. A word with the same first
letter is preferred, because people seldom mistype the first letter.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING

from agent_memory.retrieval.languages import languages_of

if TYPE_CHECKING:
    from spellchecker import SpellChecker

# capitalised words are mostly names; parts of paths and identifiers are not words
_WORD = re.compile(r"(?<![\w./@:-])[a-z]{3,20}+(?![\w/@'\u2019]|[.:-]\w)")
_MOST = 10  # a text with more unknown words is code or jargon, and would take long


def corrections(text: str) -> dict[str, str]:
    """Return the misspelled words of an English text, each with its correction.

    Without the extra "local", the result is empty.
    """
    unknown = set(_WORD.findall(text)) - _common()
    if not unknown or "english" not in languages_of(text) or find_spec("spellchecker") is None:
        return {}
    nearest = {word: _nearest(word) for word in unknown} if len(unknown) <= _MOST else {}
    return {word: near for word, near in nearest.items() if near != word}


def corrected(text: str, words: dict[str, str], exempt: Collection[str]) -> str:
    """Replace the misspelled `words` of a text by their corrections, except those in `exempt`."""
    chosen = {word: near for word, near in words.items() if word not in exempt}
    return _WORD.sub(lambda match: chosen.get(match[0], match[0]), text)


def _nearest(word: str) -> str:
    dictionary = _dictionary()
    if word in dictionary:
        return word
    near = dictionary.known(dictionary.edit_distance_1(word))
    return max(near, key=lambda other: (other[0] == word[0], dictionary[other]), default=word)


@cache
def _common() -> frozenset[str]:
    """Return the words of the encoder's vocabulary, which is faster to load than the dictionary."""
    vocabulary = files("agent_memory.models.embedders").joinpath("minilm_vocab.txt")
    return frozenset(vocabulary.read_text(encoding="utf-8").splitlines())


@cache
def _dictionary() -> SpellChecker:
    from spellchecker import SpellChecker

    return SpellChecker(distance=1)
