"""Whatever is put and deleted by whom, a vector store finds what is there, as tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agent_memory.core.records import Hit, Record
from agent_memory.retrieval.views import VIEWS
from agent_memory.stores.base import Store
from agent_memory.testing.contract import record
from agent_memory.testing.features import for_words, halved, units, worded
from agent_memory.testing.views import ViewsContract, bm25
from tests.at_length import at_length

_WIDTH = 5
_CLOSE = 1e-5  # cosines in single precision; words are in half precision
_HANDLES = st.sampled_from([0, 1])
_OWNERS = st.sampled_from(["user:a", "user:a", "user:b"])
_SESSIONS = st.sampled_from(["s", "t"])
_SEEDS = st.integers(0, 99)
_TEXTS = st.lists(st.sampled_from(["fox", "owl", "den", "red", "tree"]), max_size=6).map(" ".join)


@dataclass(frozen=True)
class _Put:
    """Records of one owner and session, by name: a seed for the vectors, and what is said."""

    handle: int
    owner: str
    session_id: str
    last: int
    said: Mapping[str, tuple[int, str, str]]


@dataclass(frozen=True)
class _Delete:
    """What `delete_vectors` is called with."""

    handle: int
    owner: str | None
    session_id: str | None
    after: int


@dataclass(frozen=True)
class _Question:
    """What is looked for after a change."""

    handle: int
    owner: str
    words: str
    seed: int | None
    depth: int


_NAMES = st.sampled_from([f"r{n}" for n in range(9)])
_PUTS = st.builds(
    _Put,
    _HANDLES,
    _OWNERS,
    _SESSIONS,
    st.integers(1, 4),
    st.dictionaries(_NAMES, st.tuples(_SEEDS, _TEXTS, _TEXTS), min_size=1, max_size=4),
)
_DELETES = st.one_of(
    st.builds(_Delete, _HANDLES, _OWNERS, st.none(), st.just(0)),
    st.builds(_Delete, _HANDLES, st.none() | _OWNERS, _SESSIONS, st.integers(0, 3)),
)
_QUESTIONS = st.builds(
    _Question,
    _HANDLES,
    _OWNERS,
    st.lists(st.sampled_from(["fox", "owl", "red", "sea"]), unique=True).map(" ".join),
    st.none() | _SEEDS,
    st.integers(1, 5),
)
_CHANGES = st.one_of(_PUTS, _PUTS, _PUTS, _DELETES)


class _Kept(NamedTuple):
    """A record as it should be there."""

    record: Record
    row: np.ndarray
    around: np.ndarray
    said: str
    near: str


class _Model:
    """What should be in the store: a dict, and every score worked out anew."""

    def __init__(self) -> None:
        self.kept: dict[str, _Kept] = {}

    def put(self, store: Store, change: _Put) -> None:
        seeds = [seed for seed, _, _ in change.said.values()]
        rows = np.concatenate([units(1, _WIDTH, seed, signed=True) for seed in seeds])
        around = halved(np.roll(rows, 1, axis=1))
        said, near = ([one[at] for one in change.said.values()] for at in (1, 2))
        records = [
            record(name, change.owner, change.session_id, last=change.last, text=f"{one}")
            for name, one in change.said.items()
        ]
        store.put_vectors("v", records, worded(said, near, rows, around))
        for at, one in enumerate(records):
            self.kept[one.id] = _Kept(one, rows[at], around[at], said[at], near[at])

    def delete(self, store: Store, change: _Delete) -> None:
        store.delete_vectors(
            "v", owner=change.owner, session_id=change.session_id, after=change.after
        )
        for name, (one, *_) in list(self.kept.items()):
            if (
                change.owner in (None, one.owner)
                and change.session_id in (None, one.session_id)
                and (not change.after or one.last > change.after)
            ):
                del self.kept[name]

    def scores(self, question: _Question, within_owner: bool) -> dict[str, tuple[float, ...]]:
        """What each view gives each of the owner's records."""
        mine = {k: v for k, v in self.kept.items() if v.record.owner == question.owner}
        counted = mine if within_owner else self.kept
        own = bm25({k: v.said for k, v in counted.items()}, question.words, 20)
        near = bm25({k: v.near for k, v in counted.items()}, question.words, 50)
        vector = _vector(question)
        if vector is None:
            return {name: (own[name], near[name], 0.0, 0.0) for name in mine}
        return {
            name: (own[name], near[name], float(one.row @ vector), float(one.around @ vector))
            for name, one in mine.items()
        }


def _vector(question: _Question) -> np.ndarray | None:
    return None if question.seed is None else units(1, _WIDTH, question.seed, signed=True)[0]


class VectorChangesContract(ViewsContract):
    """What a `VectorStore` must find after any changes by two handles."""

    @settings(
        max_examples=at_length(40),
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],  # what fails on a server takes minutes to make smaller
        report_multiple_bugs=False,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,  # each example clears the block
            HealthCheck.differing_executors,  # each store has a class of its own
            HealthCheck.too_slow,
        ],
    )
    @given(st.lists(st.tuples(_CHANGES, _QUESTIONS), min_size=3, max_size=14))
    def test_vectors_whatever_changes(
        self, store: Store, other: Store, steps: list[tuple[_Put | _Delete, _Question]]
    ) -> None:
        """Else: after some order of writes an index holds what is gone, or lacks what is there."""
        handles, model = (store, other), _Model()
        store.clear_vectors("v")
        for handle in handles:
            handle.open_vectors("v", _WIDTH, "m")
        for change, question in steps:
            if isinstance(change, _Put):
                model.put(handles[change.handle], change)
            else:
                model.delete(handles[change.handle], change)
            self._check(model, handles[question.handle], question)

    def _check(self, model: _Model, handle: Store, question: _Question) -> None:
        query = for_words(question.words, _vector(question))
        found = handle.search_vectors("v", question.owner, query, question.depth)
        by_name: dict[str, Hit] = {hit.record.id: hit for hit in found}
        wanted = model.scores(question, self.counts_within_owner)
        assert len(by_name) == len(found)
        assert by_name.keys() <= wanted.keys()
        for name, hit in by_name.items():
            assert hit.record == model.kept[name].record
            for view, score, exact in zip(VIEWS, hit.scores, wanted[name], strict=True):
                error = self.half_precision if view == "meaning_around" else _CLOSE
                assert score == pytest.approx(exact, rel=1e-3, abs=error), view
        justified: set[str] = set()
        for at in range(len(VIEWS)):
            reached = _reached(lambda name, at=at: wanted[name][at], wanted, question.depth)
            assert reached.surely <= by_name.keys(), VIEWS[at]
            assert len(reached.perhaps & by_name.keys()) >= reached.count, VIEWS[at]
            justified |= reached.perhaps
        assert by_name.keys() <= justified


class _Reached(NamedTuple):
    """What a view has to find: these, of equals at the end any, and so many altogether."""

    surely: set[str]
    perhaps: set[str]
    count: int


def _reached(
    score: Callable[[str], float], names: Mapping[str, object], depth: int, near: float = 5e-3
) -> _Reached:
    positive = sorted((name for name in names if score(name) > 0), key=score, reverse=True)
    if not positive:
        return _Reached(set(), set(), 0)
    bar = score(positive[:depth][-1])
    surely = {name for name in positive[:depth] if score(name) > bar + near}
    perhaps = {name for name in positive if score(name) > bar - near}
    return _Reached(surely, perhaps, min(depth, len(positive)))
