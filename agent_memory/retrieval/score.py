"""The score of a record for a question, and the probability that it is relevant. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Self

import numpy as np

from agent_memory.retrieval.dates import Period
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.vectors import Encoding

REACH = 2
"""Number of neighbours on each side of a record that may affect its score."""

SHORT = 6
"""A record of at most this number of words may need the question that it answers."""

GAP = 4  # maximum distance of neighbours in seqs, since tool messages may be between them
_WINDOW_WORDS = 130
_NEIGHBOUR_WORDS = 60


def in_order(places: np.ndarray) -> np.ndarray:
    """Return the indexes that sort `features.PLACE` rows by session, seq and passage."""
    order: np.ndarray = np.lexsort((places["part"], places["seq"], places["session"]))
    return order


class Candidates(NamedTuple):
    """The records that a search scores in detail, ordered by session, seq and passage."""

    names: np.ndarray  # (n,) the id of each record
    encodings: np.ndarray  # (n,) for each record, a function that returns its encoding
    places: np.ndarray  # (n,) rows of `features.PLACE`
    cosines: np.ndarray  # (n,) cosine of each record with the question
    filled: np.ndarray  # (n,) whether the cosine is known
    # (n, pieces) for each word piece of the question, its highest cosine with a word piece of the
    # record
    best: np.ndarray
    # (n, words) weight of each word of the question in each record; 0 if absent
    weights: np.ndarray
    meant: np.ndarray  # (n,) whether the question is about the record's speaker
    total: int  # number of all searched records, including those that are no candidates
    # (words,) for each word of the question, the number of searched records that have it
    holding: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate candidates of several indexes, ordered by session, seq and passage.

        A record that several indexes have is taken from the first.
        """
        if len(parts) == 1:
            return parts[0]
        columns = map(np.concatenate, zip(*(part[:8] for part in parts), strict=True))
        total, holding = sum(part.total for part in parts), sum(part.holding for part in parts)
        every = cls._make([*columns, total, np.array(holding)])
        order = in_order(every.places)
        return every.at(order[~_repeated(every.places[order], every.names[order])])

    def at(self, rows: np.ndarray) -> Self:
        columns = (column[rows] for column in self[:8])
        return type(self)._make([*columns, self.total, self.holding])

    def following(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows of the next two records of each record in its session."""
        return self._near(rows, range(1, REACH + 1))

    def short(self, rows: np.ndarray) -> np.ndarray:
        """Return the short records up to `REACH` around, each with the record before it."""
        near = self._near(rows, range(-REACH, REACH + 1))
        short = np.unique(near[self.places["words"][near] <= SHORT])
        return self._near(short, (0, -1))

    def _near(self, rows: np.ndarray, steps: Sequence[int]) -> np.ndarray:
        near = np.concatenate([_shifted(self.places, step, rows) for step in steps])
        return near[near >= 0]

    def neighbours(self) -> list[np.ndarray]:
        """Return for each record the rows of its previous, next and second previous neighbour.

        A row is -1 if there is no such neighbour, or if the record and its neighbours have too many
        words together. A long record needs no neighbours.
        """
        every = np.arange(len(self.places))
        before, after, second = (_shifted(self.places, step, every) for step in (-1, 1, -2))
        words = self.places["words"].astype(np.int64)
        taken = np.minimum(words, _NEIGHBOUR_WORDS)

        def fitting(near: np.ndarray, used: np.ndarray) -> np.ndarray:
            fits = used + taken[near] <= _WINDOW_WORDS
            return np.where((near >= 0) & fits, near, -1)

        return [
            fitting(before, words),
            fitting(after, words),
            fitting(second, words + words[before]),
        ]


def _repeated(places: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Return for each record whether an earlier record has the same id, and thus the same place."""
    own = places[["session", "seq", "part"]]
    same = own[1:] == own[:-1]
    rows = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
    first = {name: at for at, name in reversed([*enumerate(names[rows])])}
    repeated = np.zeros(len(places), np.bool_)
    repeated[np.delete(rows, list(first.values()))] = True
    return repeated


def _shifted(places: np.ndarray, step: int, rows: np.ndarray) -> np.ndarray:
    """Return for each of `rows` the row of the record `step` further in the session; -1 if none."""
    count, sessions, seqs = len(places), places["session"], places["seq"].astype(np.int64)
    near = rows + step
    inside = (near >= 0) & (near < count)
    near = np.where(inside, near, rows)
    own = seqs[rows]
    there = inside & (sessions[near] == sessions[rows]) & (own > 0)
    there &= np.abs(seqs[near] - own) <= abs(step) * GAP
    return np.where(there, near, -1)


PARTS = (
    *("meaning", "meaning_around", "nearest", "words", "words_around", "coverage_around"),
    *("long", "asks", "meant", "dated"),
)
"""The names of the terms of a score, which docs/recall.md explains."""

_OF_WORDS = ("words", "words_around", "coverage_around")

_LONG_WORDS, _LONG_FROM, _LONG_TO = 12, 1.6, 2.5
_MORE, _FEW, _MANY = 20, 6, 300
_DIGITS = 6


class Ranked(NamedTuple):
    """Records ranked for a question, best first."""

    names: list[str]
    encodings: list[Callable[[], Encoding]]  # functions that return the encodings
    # (n,) the scores, non-increasing. The term "nearest" is left out, although it affects the
    # order.
    scores: np.ndarray
    relevance: np.ndarray  # (n,) the probability that each record is relevant, from 0 to 1
    parts: np.ndarray  # (n, PARTS) the value of each term, not multiplied by its weight
    cosines: np.ndarray  # (n,) the cosines with the question; 0 for records without a vector
    bm25: np.ndarray  # (n,) the sum, over the matched words, of weight times rarity


@cache
def fitted() -> Mapping[str, Any]:
    text = files("agent_memory.retrieval").joinpath("score.json").read_text(encoding="utf-8")
    numbers: Mapping[str, Any] = json.loads(text)
    return numbers


def informativeness(count: int, holding: np.ndarray) -> np.ndarray:
    """Return the rarity of words that `holding` of `count` records have; never below 0.

    The formula is Lucene's, with 20 imaginary records added, one of which has the word. Without
    these records, a word in one of only two records would count as common.
    """
    holding = holding + 1.5
    worth: np.ndarray = np.log1p((count + _MORE + 1 - holding) / holding)
    return worth.astype(np.float32)


def ranked(per_index: Sequence[Candidates], query: Query, limit: int) -> Ranked:
    """Return the best `limit` candidates of one or several indexes, best first.

    The records after the best `query.with_next` candidates are returned as well, and short records
    near these; see `Candidates.following`.
    """
    candidates = Candidates.joined(per_index)
    worth = informativeness(candidates.total, candidates.holding)
    with np.errstate(invalid="ignore"):  # BLAS reads past the finite numbers; see `index`
        parts = _parts(candidates, query, worth)
    relevance = _relevance(parts, len(worth), candidates.total)
    others = fitted()["other_words"]
    if candidates.filled.any() and parts[:, PARTS.index("words")].max() < others["below"]:
        # no record has half of the question's words in any form, so matches are mostly chance
        parts[:, [PARTS.index(name) for name in _OF_WORDS]] *= others["share"]
    weights = fitted()["rank"]
    scores = np.round(parts @ np.array([weights[name] for name in PARTS], np.float32), _DIGITS)
    best = np.argsort(-scores, kind="stable")
    # "nearest" affects only the order. The reported scores leave it out, so that thresholds
    # relative to the best score keep their meaning. The scores are then made non-increasing.
    alone = scores[best] - weights["nearest"] * parts[best, PARTS.index("nearest")]
    counted = np.maximum.accumulate(alone[::-1])[::-1]
    chosen = np.arange(min(limit, len(best)))
    if query.with_next:
        near = [candidates.following(best[: query.with_next]), candidates.short(best[:limit])]
        chosen = np.union1d(chosen, np.flatnonzero(np.isin(best, np.concatenate(near))))
    best = best[chosen]
    return Ranked(
        candidates.names[best].tolist(),
        candidates.encodings[best].tolist(),
        counted[chosen],
        relevance[best],
        parts[best],
        candidates.cosines[best],
        (candidates.weights @ worth)[best],
    )


def nearest(per_index: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], limit: int) -> Ranked:
    """Rank records of one or several indexes by their cosines alone; their relevance is 0.

    Each index gives ids, functions that return the encodings, and cosines. A record that several
    indexes have is taken from the first.
    """
    names, encodings, cosines = map(np.concatenate, zip(*per_index, strict=True))
    first: dict[str, int] = {}
    for at in np.argsort(-cosines, kind="stable").tolist():
        if len(first) == limit:
            break
        first.setdefault(str(names[at]), at)
    rows = np.array([*first.values()], np.intp)
    cosines, zeros = cosines[rows], np.zeros((len(rows), len(PARTS)), np.float32)
    none = zeros[:, 0]
    return Ranked([*first], encodings[rows].tolist(), cosines, none, zeros, cosines, none)


def _relevance(parts: np.ndarray, words: int, total: int) -> np.ndarray:
    """Return the probability that each record is relevant: a logistic function of some terms.

    Words count only above the level of chance, which is higher for long texts. Coverage is squared,
    so that it counts little unless most words are present. For a question of one word, coverage
    does not count. The threshold is lower among few records, where chance matches are rarer.
    """
    by = fitted()["relevance"]
    own = dict(zip(PARTS, parts.T, strict=True))
    chance = by["chance"] + by["chance_long"] * own["long"]
    near = own["meaning"] + by["words"] * (own["words"] - chance) / (1 - chance)
    covered = (1 - 1 / max(1, words)) * own["coverage_around"] ** 2
    near += by["meant"] * own["meant"] + by["coverage"] * covered + by["dated"] * own["dated"]
    few = by["few"] * math.log(_MANY / min(_MANY, max(_FEW, total)))
    relevance: np.ndarray = 1 / (1 + np.exp(-by["slope"] * (near + few - by["middle"])))
    return relevance


def _parts(candidates: Candidates, query: Query, worth: np.ndarray) -> np.ndarray:
    numbers, count = fitted(), len(candidates.places)
    there = (candidates.weights > 0).astype(np.float32)
    strength = _by_word(candidates.best, query.owners, there.shape[1])
    compared = np.asarray(candidates.best.any(axis=1))  # records with word pieces
    unread = np.where(there > 0, 1, numbers["absent"])
    # a number has no pieces in a query: it is present or absent
    present = np.where(np.isin(np.arange(there.shape[1]), query.owners), numbers["present"], 1)
    strength = np.where(compared[:, None], np.maximum(strength, present * there), unread)
    near = candidates.neighbours()
    share = worth / worth.sum() if len(worth) else worth
    words = strength @ share
    around, covered = strength, there
    for name, place in zip(numbers["around"], near, strict=True):
        around = np.maximum(around, numbers["around"][name] * _at(strength, place))
        covered = np.maximum(covered, _at(there, place))
    words_around = around @ share
    # the cosine of unrelated texts becomes 0; the minimum of -1 matters for baselines near 1
    cosines = np.maximum(-1, (candidates.cosines - query.baseline) / (1 - query.baseline))
    meaning = np.where(candidates.filled, cosines, numbers["without_vector"] * (there @ share))
    if not len(worth):  # a question of stop words only is ranked by meaning
        words = words_around = meaning
    total, size = meaning.copy(), np.ones(count, np.float32)
    for name, place in zip(numbers["meaning_around"], near, strict=True):
        part = numbers["meaning_around"][name]
        total += part * _at(meaning, place)
        size += part * (place >= 0)
    dated = _dated(candidates.places["day"], query.period)
    nearest = _nearest(meaning, dated if dated.any() else np.ones(count))
    meant = candidates.meant * (numbers["asks_assistant"] if query.asks_assistant else 1)
    length = np.log1p(candidates.places["words"] / _LONG_WORDS) - _LONG_FROM
    return np.column_stack([
        meaning, total / size, nearest, words, words_around, covered @ share,
        length.clip(0, _LONG_TO), candidates.places["asks"] / 100,
        meant, dated,
    ]).astype(np.float32)  # fmt: skip


def _dated(days: np.ndarray, period: Period | None) -> np.ndarray:
    """Return 1 for records of the days that the question is about, 0.4 for the two days after.

    Other records get 0. People often report an event a day or two later.
    """
    if period is None:
        return np.zeros(len(days), np.float32)
    first, last = period.first.toordinal(), period.last.toordinal()
    scores: np.ndarray = np.where(days <= last, 1.0, 0.4) * ((days >= first) & (days <= last + 2))
    return scores


def _nearest(meaning: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return for each record the probability that it is the wanted record, by meaning alone.

    This term lifts a record that is much nearer than all others, but shares no word with the
    question. `prior` has the weight of each record, from 0 to 1, at least one of them above 0.
    """
    if not len(meaning):
        return meaning
    nearest = float(meaning[prior > 0].max())
    near = prior * np.exp((meaning - nearest).clip(max=0) / fitted()["nearest"])
    probabilities: np.ndarray = near / near.sum() * min(1.0, max(0.0, nearest / fitted()["near"]))
    return probabilities


def _by_word(best: np.ndarray, owners: np.ndarray, words: int) -> np.ndarray:
    """Return for each record and word the mean of `best` over the word's pieces."""
    belongs = np.zeros((len(owners), words), np.float32)
    belongs[np.arange(len(owners)), owners] = 1
    means: np.ndarray = best @ (belongs / np.maximum(1, belongs.sum(axis=0)))
    return means


def _at(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return the rows `place` of `values`; 0 for the row -1."""
    mask = (place >= 0).reshape(-1, *[1] * (values.ndim - 1))
    return np.where(mask, values[place], 0)
