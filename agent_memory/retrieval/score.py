"""The score of a record for a question, and the probability that it is relevant. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from agent_memory.retrieval.dates import Period
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.vectors import Encoding

if TYPE_CHECKING:
    from agent_memory.retrieval.index import SegmentIndex

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

    indexes: tuple[SegmentIndex, ...]  # the indexes that were searched
    total: int  # number of all searched records, including those that are no candidates
    # (words,) for each word of the question, the number of searched records that have it
    holding: np.ndarray
    sources: np.ndarray  # (n,) the place in `indexes` of each record's index
    numbers: np.ndarray  # (n,) the number of each record in its index
    places: np.ndarray  # (n,) rows of `features.PLACE`
    cosines: np.ndarray  # (n,) cosine of each record with the question
    filled: np.ndarray  # (n,) whether the cosine is known
    # (n, pieces) for each word piece of the question, its highest cosine with a word piece of the
    # record
    best: np.ndarray
    # (n, words) weight of each word of the question in each record; 0 if absent
    weights: np.ndarray
    meant: np.ndarray  # (n,) whether the question is about the record's speaker

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate candidates of several indexes, ordered by session, seq and passage.

        A record that several indexes have is taken from the first.
        """
        if len(parts) == 1:
            return parts[0]
        indexes = tuple(index for part in parts for index in part.indexes)
        total, holding = sum(part.total for part in parts), sum(part.holding for part in parts)
        columns = map(np.concatenate, zip(*(part[3:] for part in parts), strict=True))
        every = cls(indexes, total, np.array(holding), *columns)
        every.sources[:] = np.repeat(np.arange(len(parts)), [len(part.places) for part in parts])
        every = every.at(in_order(every.places))
        return every.at(~every._repeated())

    def at(self, rows: np.ndarray) -> Self:
        return type(self)(*self[:3], *(column[rows] for column in self[3:]))

    def records(self, rows: np.ndarray) -> tuple[list[str], list[Callable[[], Encoding]]]:
        """Return the ids of records, and functions that return their encodings."""
        places = zip(self.sources[rows].tolist(), self.numbers[rows].tolist(), strict=True)
        pairs = [(self.indexes[source], number) for source, number in places]
        names = [index.name(number) for index, number in pairs]
        return names, [partial(index.encoding, number) for index, number in pairs]

    def steps(self) -> np.ndarray:
        """Return for each record the rows of the records up to `REACH` before and behind it.

        The result is (steps, n), for the steps -2, -1, 1 and 2. A row is -1 if the session has no
        such record nearby.
        """
        count, sessions, seqs = len(self.places), self.places["session"], self.places["seq"]
        steps = np.array([-2, -1, 1, 2])[:, None]
        near = np.arange(count) + steps
        inside = (near >= 0) & (near < count) & (seqs > 0)
        near[~inside] = 0
        gaps = np.abs(seqs.astype(np.int64)[near] - seqs)
        inside &= (sessions[near] == sessions) & (gaps <= np.abs(steps) * GAP)
        return np.where(inside, near, -1)

    def _repeated(self) -> np.ndarray:
        """Return for each record whether an earlier one has the same id, and thus place."""
        own = self.places[["session", "seq", "part"]]
        same = own[1:] == own[:-1]
        rows = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
        first = dict(zip(reversed(self.records(rows)[0]), reversed(rows.tolist()), strict=True))
        return np.isin(np.arange(len(own)), [*set(rows.tolist()).difference(first.values())])

    def neighbours(self, steps: np.ndarray) -> np.ndarray:
        """Return the rows of each record's previous, next and second previous neighbour, (3, n).

        A row is -1 if there is no such neighbour, or if the record and its neighbours have too many
        words together. A long record needs no neighbours. `steps` is the result of `steps()`.
        """
        near = steps[[1, 2, 0]]
        words = self.places["words"].astype(np.int64)
        used = words + _at(np.minimum(words, _NEIGHBOUR_WORDS), near)
        used[2] += _at(words, near[0])
        return np.where(used <= _WINDOW_WORDS, near, -1)


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

    The next two records after each of the best `query.with_next` candidates are returned as well,
    and short records near the best, each with the record before it.
    """
    candidates = Candidates.joined(per_index)
    worth = informativeness(candidates.total, candidates.holding)
    with np.errstate(invalid="ignore"):  # BLAS reads past the finite numbers; see `index`
        steps = candidates.steps()
        parts = _parts(candidates, query, worth, candidates.neighbours(steps))
    relevance = _relevance(parts, query, candidates.total)
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
    first = best[:limit]
    wanted = np.zeros(len(best) + 1, np.bool_)  # the last one is for the row -1
    wanted[first] = True
    if query.with_next:
        wanted[steps[2:, best[: query.with_next]]] = True
        near = np.concatenate([first, *steps[:, first]])
        short = near[(near >= 0) & (candidates.places["words"][near] <= SHORT)]
        wanted[short] = wanted[steps[1, short]] = True
    chosen = np.flatnonzero(wanted[best])
    best = best[chosen]
    return Ranked(
        *candidates.records(best),
        counted[chosen],
        relevance[best],
        parts[best],
        candidates.cosines[best],
        (candidates.weights @ worth)[best],
    )


def nearest(per_index: Sequence[tuple[SegmentIndex, np.ndarray, np.ndarray]], limit: int) -> Ranked:
    """Rank records of one or several indexes by their cosines alone; their relevance is 0.

    Each index comes with the numbers and cosines of records. A record that several indexes have is
    taken from the first.
    """
    every = [
        (cosine, index, number)
        for index, numbers, cosines in per_index
        for cosine, number in zip(cosines.tolist(), numbers.tolist(), strict=True)
    ]
    first: dict[str, tuple[float, Callable[[], Encoding]]] = {}
    for cosine, index, number in sorted(every, key=lambda each: -each[0]):
        if len(first) == limit:
            break
        first.setdefault(index.name(number), (cosine, partial(index.encoding, number)))
    cosines = np.array([cosine for cosine, _ in first.values()], np.float32)
    zeros = np.zeros((len(first), len(PARTS)), np.float32)
    encodings = [encoding for _, encoding in first.values()]
    return Ranked([*first], encodings, cosines, zeros[:, 0], zeros, cosines, zeros[:, 0])


def _relevance(parts: np.ndarray, query: Query, total: int) -> np.ndarray:
    """Return the probability that each record is relevant: a logistic function of some terms.

    Words count only above the level of chance, which is higher for long texts. Coverage is squared,
    so that it counts little unless most words are present. For a question of one word, coverage
    does not count. The threshold is lower among few records, where chance matches are rarer. It is
    higher for a question about the world. Small talk asks for nothing.
    """
    by = fitted()["relevance"]
    own = dict(zip(PARTS, parts.T, strict=True))
    chance = by["chance"] + by["chance_long"] * own["long"]
    near = own["meaning"] + by["words"] * (own["words"] - chance) / (1 - chance)
    covered = (1 - 1 / max(1, len(query.words))) * own["coverage_around"] ** 2
    near += by["meant"] * own["meant"] + by["coverage"] * covered + by["dated"] * own["dated"]
    few = by["few"] * math.log(_MANY / min(_MANY, max(_FEW, total)))
    general = max(by["personal"], query.general)
    odds = by["slope"] * (near + few - by["middle"]) - by["general"] * general
    relevance: np.ndarray = (1 - query.small_talk) / (1 + np.exp(-odds))
    return relevance


def _parts(candidates: Candidates, query: Query, worth: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Return the value of each term for each record. `near` are the neighbours of the records."""
    numbers, count = fitted(), len(candidates.places)
    has_word = (candidates.weights > 0).astype(np.float32)
    # for each record and word, the mean over the word's pieces
    belongs = (query.owners[:, None] == np.arange(has_word.shape[1])).astype(np.float32)
    strength = candidates.best @ (belongs / np.maximum(1, belongs.sum(axis=0)))
    compared = np.asarray(candidates.best.any(axis=1))  # records with word pieces
    unread = np.where(has_word > 0, 1, numbers["absent"])
    # a number has no pieces in a query: it is present or absent
    present = np.ones(has_word.shape[1])
    present[query.owners] = numbers["present"]
    strength = np.where(compared[:, None], np.maximum(strength, present * has_word), unread)
    share = worth / worth.sum() if len(worth) else worth
    words = strength @ share
    parts = np.array([*numbers["around"].values()], np.float32)[:, None, None]
    around = np.maximum(strength, (parts * _at(strength, near)).max(axis=0))
    covered = np.maximum(has_word, _at(has_word, near).max(axis=0))
    words_around = around @ share
    # the cosine of unrelated texts becomes 0; the minimum of -1 matters for baselines near 1
    cosines = np.maximum(-1, (candidates.cosines - query.baseline) / (1 - query.baseline))
    meaning = np.where(candidates.filled, cosines, numbers["without_vector"] * (has_word @ share))
    if not len(worth):  # a question of stop words only is ranked by meaning
        words = words_around = meaning
    total, size = meaning.copy(), np.ones(count, np.float32)
    neighbours = zip(numbers["meaning_around"].values(), _at(meaning, near), near, strict=True)
    for part, their_meaning, place in neighbours:
        total += part * their_meaning
        size += part * (place >= 0)
    dated = _dated(candidates.places["day"], query.period)
    nearest = _nearest(meaning, dated if dated.any() else np.ones(count))
    meant = candidates.meant * (numbers["asks_assistant"] if query.asks_assistant else 1)
    length = np.log1p(candidates.places["words"] / _LONG_WORDS) - _LONG_FROM
    columns = [
        meaning, total / size, nearest, words, words_around, covered @ share,
        length.clip(0, _LONG_TO), candidates.places["asks"] / 100, meant, dated,
    ]  # fmt: skip
    return np.ascontiguousarray(np.array(columns, np.float32).T)


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


def _at(values: np.ndarray, rows: np.ndarray) -> Any:
    """Return these rows of `values`; 0 for the row -1."""
    return np.concatenate([values, np.zeros_like(values[:1])])[rows]
