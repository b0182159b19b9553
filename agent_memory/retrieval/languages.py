"""Detection of a text's languages, only as precise as search needs it. Pure.

A non-Latin script stands for one language. A language in Latin letters is detected by its commonest
words, each of which is a vote. The result is the language with the most votes. After a tie, the
result has several languages. If no word votes ("Lasagne?"), the result has all languages in Latin
letters. English is added unless a language has two votes. Search therefore tolerates a wrong guess.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

from agent_memory.core.text import LIST_KINDS, STOP_WORDS, WORD, unaccented, word_lists

ENGLISH = frozenset(["english"])

_VOTERS = 200  # maximum number of words that vote, so that the votes fit in 8 bits
_BOX = 8
_MOST_CACHED = 4_000
_OPENING = {"spanish": ("", "\u00bf")}
_BEHIND = ("", ",", "?")
_SCRIPTS = (
    ("\u0370", "\u03ff", "greek"),
    ("\u0400", "\u052f", "russian"),
    ("\u0530", "\u058f", "armenian"),
    ("\u0600", "\u077f", "arabic"),
    ("\u0900", "\u097f", "hindi"),
    ("\u0b80", "\u0bff", "tamil"),
)
_UNSPACED = ("chinese", "japanese")
_LATIN_ENDS, _MORE_LATIN = "\u024f", ("\u1e00", "\u1eff")


def script_of(word: str) -> str | None:
    """Return the language that a word's script stands for; None for Latin or an unknown script."""
    first = word[0]
    return next((name for low, high, name in _SCRIPTS if low <= first <= high), None)


def is_latin(word: str) -> bool:
    """Return whether a word begins with a Latin letter or a digit."""
    return word[0] <= _LATIN_ENDS or _MORE_LATIN[0] <= word[0] <= _MORE_LATIN[1]


_LISTS = word_lists()
_NAMES = [name.removesuffix(" common") for name in _LISTS if name.endswith(" common")]

COMMON_WORDS = {
    name: frozenset(word for kind in LIST_KINDS for word in _LISTS[name + kind]) for name in _NAMES
}
"""For each language except English, its commonest words, which carry no information."""

LATIN = ("english", *(name for name in _NAMES if is_latin(_LISTS[f"{name} common"][0])))
"""The languages in Latin letters."""

ALL_LATIN = frozenset(LATIN)


def languages_of(text: str) -> frozenset[str]:
    """Return the languages in Latin letters that a text may be in."""
    return elected(map(vote_of, text.split()))


def vote_of(written: str) -> int:
    """Return the votes of a chunk (text between blanks), in an integer of 8 bits per language."""
    return _votes().get(written.casefold(), 0)


def elected(votes: Iterable[int]) -> frozenset[str]:
    """Return the languages with the most votes, among the first 200 words that vote."""
    return _chosen(sum(islice(filter(None, votes), _VOTERS)))


@lru_cache(_MOST_CACHED)
def persons(text: str) -> tuple[bool, bool]:
    """Return whether a text says "I" or "you" in any of its languages except English."""
    folded = text.casefold().replace("\u2019", "'")
    words = {part for word in WORD.findall(folded) for part in word.split("'")}
    here = languages_of(text)
    names = [name for name in _NAMES if name in here or name not in ALL_LATIN]
    first = any(_says(folded, words, name, "first") for name in names)
    return first, any(_says(folded, words, name, "second") for name in names)


def _says(text: str, words: set[str], name: str, kind: str) -> bool:
    forms = _LISTS[f"{name} {kind}"]
    return any(word in text for word in forms) if name in _UNSPACED else not words.isdisjoint(forms)


@lru_cache(1)
def _votes() -> dict[str, int]:
    """Return the votes of each common word. The sum of several integers counts their votes."""
    lists = {**COMMON_WORDS, "english": STOP_WORDS | frozenset(_LISTS["english voters"])}
    votes: dict[str, int] = {}
    for place, name in enumerate(LATIN):
        written = {form for word in lists[name] for form in (word, unaccented(word))}
        before = _OPENING.get(name, ("",))
        for word in (f"{a}{w}{b}" for w in written for a in before for b in _BEHIND):
            votes[word] = votes.get(word, 0) | 1 << _BOX * place
    return votes


@lru_cache(_MOST_CACHED)
def _chosen(votes: int) -> frozenset[str]:
    counts = votes.to_bytes(len(LATIN), "little")
    most = frozenset(name for name, n in zip(LATIN, counts, strict=True) if n == max(counts))
    return most | ENGLISH if max(counts) == 1 else most  # one vote proves little: "fox, owl, den"
