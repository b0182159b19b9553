"""One score for how much a record has to do with a question, and how likely that is. Pure.

The score is a sum of terms with round weights, each on a scale of its own that needs no comparison
with other records. *Late interaction* (Khattab and Zaharia, "ColBERT", 2020) finds for each word
piece of the question the nearest one of the record; each word of the question counts by how rare it
is in the user's memory. A record that is not encoded yet is compared by the same words alone.

`score.json` has the numbers; `python -m benchmarks.paraphrases --fit` prints the calibration.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from agent_memory.retrieval.bm25 import odds
from agent_memory.retrieval.candidates import Candidates
from agent_memory.retrieval.query import Query

PARTS = (
    *("meaning", "meaning_around", "nearest", "words", "words_around", "coverage_around"),
    *("long", "asks", "meant"),
)
"""The terms of the sum, by name."""

_LONG_WORDS, _LONG_FROM, _LONG_TO = 12, 1.6, 2.5
_MORE, _FEW, _MANY = 20, 6, 300
_DIGITS = 6


class Ranked(NamedTuple):
    """Records with how much they have to do with a question, best first.

    Attributes:
        names: Their ids.
        scores: (n,) what they are ordered by.
        relevance: (n,) the probability that each has to do with the question, from 0 to 1.
        parts: (n, PARTS) what each term gives, before its weight.
        cosines: (n,) as the encoder gives them; 0 for what is not encoded.
        bm25: (n,) the sum of the words' weights, by rarity.
    """

    names: list[str]
    scores: np.ndarray
    relevance: np.ndarray
    parts: np.ndarray
    cosines: np.ndarray
    bm25: np.ndarray


@cache
def fitted() -> Mapping[str, Any]:
    """The numbers of `score.json`."""
    text = files("agent_memory.retrieval").joinpath("score.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def informativeness(count: int, holding: np.ndarray) -> np.ndarray:
    """The worth of words that `holding` of `count` records have; never below 0, as in Lucene.

    Each is counted as if one of some more records had it: in a memory of two records a word is not
    common because one of them has it.
    """
    worth: np.ndarray = np.log1p(odds(count + _MORE, holding + 1))
    return worth.astype(np.float32)


def ranked(found: Sequence[Candidates], query: Query, limit: int) -> Ranked:
    """The best of some candidates, best first.

    Args:
        found: Of one index or of several.
        query: What they are compared with.
        limit: So many at most.
    """
    one = Candidates.joined(found)
    worth = informativeness(one.total, one.holding)
    parts = _parts(one, query, worth)
    weights = fitted()["rank"]
    scores = np.round(parts @ np.array([weights[name] for name in PARTS], np.float32), _DIGITS)
    best = np.argsort(-scores, kind="stable")
    # who stands out comes first, and counts as the best after it: shares of the best stay what
    # they are
    alone = scores[best] - weights["nearest"] * parts[best, PARTS.index("nearest")]
    counted = np.maximum.accumulate(alone[::-1])[::-1]
    best = best[:limit]
    return Ranked(
        one.names.at(best).all(),
        counted[:limit],
        _relevance(parts[best], len(worth), one.total),
        parts[best],
        one.cosines[best],
        (one.weights @ worth)[best],
    )


def _relevance(parts: np.ndarray, words: int, total: int) -> np.ndarray:
    """(n,) a logistic function of four of the terms: of words, what is beyond chance, since the
    more a text says the nearer its nearest words are to any others; of coverage, its square, which
    says that all of the question's words are there: of one word alone that says nothing. Of few
    records none comes near by chance, so that there less is asked."""
    by = fitted()["relevance"]
    own = dict(zip(PARTS, parts.T, strict=True))
    chance = by["chance"] + by["chance_long"] * own["long"]
    near = own["meaning"] + by["words"] * (own["words"] - chance) / (1 - chance)
    covered = (1 - 1 / max(1, words)) * own["coverage_around"] ** 2
    near += by["meant"] * own["meant"] + by["coverage"] * covered
    few = by["few"] * math.log(_MANY / min(_MANY, max(_FEW, total)))
    found: np.ndarray = 1 / (1 + np.exp(-by["slope"] * (near + few - by["middle"])))
    return found


def _parts(one: Candidates, query: Query, worth: np.ndarray) -> np.ndarray:
    numbers, count = fitted(), len(one.places)
    there = (one.weights > 0).astype(np.float32)
    strength = _by_word(one.best, query.owners, there.shape[1])
    compared = np.asarray(one.best.any(axis=1))  # others have no word pieces, or not yet
    unread = np.where(there > 0, 1, numbers["absent"])
    strength = np.where(compared[:, None], np.maximum(strength, numbers["present"] * there), unread)
    near = one.neighbours()
    share = worth / worth.sum() if len(worth) else worth
    words = strength @ share
    around, covered = strength, there
    for name, place in zip(numbers["around"], near, strict=True):
        around = np.maximum(around, numbers["around"][name] * _at(strength, place))
        covered = np.maximum(covered, _at(there, place))
    words_around = around @ share
    # below what unrelated texts have there is nothing to tell; near 1 the scale would run away
    cosines = np.maximum(-1, (one.cosines - query.baseline) / (1 - query.baseline))
    meaning = np.where(one.filled, cosines, numbers["without_vector"] * (there @ share))
    if not len(worth):  # a question of stop words alone goes by its meaning
        words = words_around = meaning
    total, size = meaning.copy(), np.ones(count, np.float32)
    for name, place in zip(numbers["meaning_around"], near, strict=True):
        part = numbers["meaning_around"][name]
        total += part * _at(meaning, place)
        size += part * (place >= 0)
    length = np.log1p(one.places["words"] / _LONG_WORDS) - _LONG_FROM
    return np.column_stack([
        meaning, total / size, _nearest(meaning), words, words_around, covered @ share,
        length.clip(0, _LONG_TO), one.places["asks"] / 100,
        one.meant,
    ]).astype(np.float32)  # fmt: skip


def _nearest(meaning: np.ndarray) -> np.ndarray:
    """(n,) the probability that each is what is meant, if one is and its meaning alone tells: what
    the question has no word of stands out by that."""
    if not len(meaning):
        return meaning
    nearest = float(meaning.max())
    near = np.exp((meaning - nearest) / fitted()["nearest"])
    found: np.ndarray = near / near.sum() * min(1.0, max(0.0, nearest / fitted()["near"]))
    return found


def _by_word(best: np.ndarray, owners: np.ndarray, words: int) -> np.ndarray:
    """(n, words) the mean over the pieces of each word."""
    belongs = np.zeros((len(owners), words), np.float32)
    belongs[np.arange(len(owners)), owners] = 1
    found: np.ndarray = best @ (belongs / np.maximum(1, belongs.sum(axis=0)))
    return found


def _at(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The values at some places; 0 for -1."""
    mask = (place >= 0).reshape(-1, *[1] * (values.ndim - 1))
    return np.where(mask, values[place], 0)
