"""Contract tests for vector stores under arbitrary writes and deletions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agent_memory.core.records import Hit, Record
from agent_memory.stores.base import Store
from agent_memory.testing.contract import for_words, record, units, worded
from agent_memory.testing.vectors import ViewsContract, bm25
from tests.kit import at_length

_WIDTH = 5
_CLOSE = 1e-5  # cosines in single precision; words are in half precision
_HANDLES = st.sampled_from([0, 1])
_OWNERS = st.sampled_from(["user:a", "user:a", "user:b"])
_SESSIONS = st.sampled_from(["s", "t"])
_SEEDS = st.integers(0, 99)
_TEXTS = st.lists(st.sampled_from(["fox", "owl", "den", "red", "tree"]), max_size=6).map(" ".join)


@dataclass(frozen=True)
class _Put:
    """Records of one owner and session by id: a seed for the vectors, and texts."""

    handle: int
    owner: str
    session_id: str
    last: int
    said: Mapping[str, tuple[int, str]]


@dataclass(frozen=True)
class _Delete:
    """The arguments of `delete_vectors`."""

    handle: int
    owner: str | None
    session_id: str | None
    after: int


@dataclass(frozen=True)
class _Question:
    """The query after a change."""

    handle: int
    owner: str
    words: str
    seed: int | None
    depth: int


_NAMES = st.sampled_from([f"r{n}" for n in range(9)])
_SAID = st.dictionaries(_NAMES, st.tuples(_SEEDS, _TEXTS), min_size=1, max_size=4)
_PUTS = st.builds(_Put, _HANDLES, _OWNERS, _SESSIONS, st.integers(1, 4), _SAID)
_DELETES = st.one_of(
    st.builds(_Delete, _HANDLES, _OWNERS, st.none(), st.just(0)),
    st.builds(_Delete, _HANDLES, st.none() | _OWNERS, _SESSIONS, st.integers(0, 3)),
)
_WORDS = st.lists(st.sampled_from(["fox", "owl", "red", "sea"]), unique=True).map(" ".join)
_QUESTIONS = st.builds(_Question, _HANDLES, _OWNERS, _WORDS, st.none() | _SEEDS, st.integers(1, 5))
_CHANGES = st.one_of(_PUTS, _PUTS, _PUTS, _DELETES)


class _ExpectedRecord(NamedTuple):
    """The expected record."""

    record: Record
    row: np.ndarray
    said: str


class _Model:
    """The expected content of the store: a dict, with every score computed again."""

    def __init__(self) -> None:
        self.kept: dict[str, _ExpectedRecord] = {}

    def put(self, store: Store, change: _Put) -> None:
        seeds = [seed for seed, _ in change.said.values()]
        rows = np.concatenate([units(1, _WIDTH, seed, signed=True) for seed in seeds])
        said = [text for _, text in change.said.values()]
        records = [
            record(name, change.owner, change.session_id, last=change.last, text=f"{one}")
            for name, one in change.said.items()
        ]
        store.put_vectors("v", records, worded(said, rows))
        for at, one in enumerate(records):
            self.kept[one.id] = _ExpectedRecord(one, rows[at], said[at])

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

    def scores(self, question: _Question, within_owner: bool) -> dict[str, tuple[float, float]]:
        """Return the word scores and the cosine of each record that must be found."""
        mine = {k: v for k, v in self.kept.items() if v.record.owner == question.owner}
        counted = mine if within_owner else self.kept
        words = bm25({k: v.said for k, v in counted.items()}, question.words)
        vector = _vector(question)
        return {
            name: (words[name], 0.0 if vector is None else float(one.row @ vector))
            for name, one in mine.items()
            if words[name] or vector is not None
        }


def _vector(question: _Question) -> np.ndarray | None:
    return None if question.seed is None else units(1, _WIDTH, question.seed, signed=True)[0]


class VectorChangesContract(ViewsContract):
    """Contract of a `VectorStore` for changes by two handles."""

    @settings(
        max_examples=at_length(10),
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],  # shrinking a failure on a server takes minutes
        report_multiple_bugs=False,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,  # each example clears the block
            HealthCheck.differing_executors,  # each store has its own class
            HealthCheck.too_slow,
        ],
    )
    @given(st.lists(st.tuples(_CHANGES, _QUESTIONS), min_size=3, max_size=14))
    def test_searches_are_exact_after_any_writes(
        self, store: Store, other: Store, steps: list[tuple[_Put | _Delete, _Question]]
    ) -> None:
        """Wrong: after some order of writes an index finds deleted records, or misses others."""
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
        assert len(by_name) == len(found) == min(question.depth, len(wanted))
        assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
        for name, hit in by_name.items():
            words, cosine = wanted[name]
            assert hit.record == model.kept[name].record
            assert hit.words == pytest.approx(words, rel=2e-3)
            assert hit.cosine == pytest.approx(cosine, abs=_CLOSE)
