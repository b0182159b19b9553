"""Contract tests for stores that keep features in segments."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from agent_memory.core.records import Hit
from agent_memory.errors import Undecryptable
from agent_memory.retrieval.features import term_of
from agent_memory.retrieval.index import Segment
from agent_memory.retrieval.vectors import LEAST_LENGTH, Vectors
from agent_memory.stores import EncryptedStore, Keys, Store, feature_bytes
from agent_memory.stores.kernel.indexes import Indexes
from agent_memory.testing.contract import Contract, for_words, record, together, units, worded
from tests.contract.vector_changes_contract import VectorChangesContract

_QUERY = units(1, 4)[0]


def put_words(handle: Store, *names: str, owner: str = "user:a") -> None:
    """Store records of one word each, which is their id."""
    rows = np.concatenate([units(1, 4, seed=sum(name.encode())) for name in names])
    records = [record(name, owner, session_id=name) for name in names]
    handle.put_vectors("v", records, worded(list(names), rows))


def names_of(handle: Store, owner: str = "user:a") -> list[str]:
    found = handle.search_vectors("v", owner, for_words("shared", _QUERY), 999)
    assert len({hit.record.id for hit in found}) == len(found)
    return sorted(hit.record.id for hit in found)


class ManyHandlesContract(VectorChangesContract):
    """Concurrent writers and searchers all find the current records."""

    def test_concurrent_searches_find_concurrent_writes(self, store: Store, other: Store) -> None:
        """Wrong: a cached index misses a write of another thread or process."""
        handles = (store, other)
        for handle in handles:
            handle.open_vectors("v", 4, "m")
        put_words(store, "first")
        turns = 8

        def write(handle: Store, name: str) -> None:
            mine: list[str] = []
            for n in range(turns):
                put_words(handle, new := f"{name}{n}")
                mine.append(new)
                if n % 4 == 3:
                    handle.delete_vectors("v", session_id=mine.pop(0))
                found = names_of(handle)
                assert [one for one in found if one[0] == name] == mine

        def search(handle: Store) -> None:
            for _ in range(2 * turns):
                assert "first" in names_of(handle)

        writes = [partial(write, *one) for one in zip(handles * 2, "abcd", strict=True)]
        together([*writes, *(partial(search, handle) for handle in handles)])
        left = [f"{name}{n}" for name in "abcd" for n in range(2, turns)]
        for handle in handles:
            assert names_of(handle) == [*left, "first"]
            for name in left:
                found = handle.search_vectors("v", "user:a", for_words(name), 9)
                assert [hit.record.id for hit in found] == [name]


_KINDS = (
    "(collection LIKE 'vector:%' OR collection LIKE 'catalog:%' OR collection LIKE 'segment:%')"
)


def count_vector_rows_in_sql(store: Store) -> int:
    """Return the number of rows that an SQL store has of vectors."""
    where = f"WHERE namespace = '{store.kernel._namespace}' AND {_KINDS}"
    count = f"SELECT count(*) FROM agent_memory_documents {where}"
    return int(store._database.read(lambda it: it.value(count)))


def segments_in_sql(store: Store, change: str = "") -> bytes:
    """Return the segments of an SQL store, altered on request."""
    table = "agent_memory_documents"
    where = f"WHERE namespace = '{store.kernel._namespace}' AND collection LIKE 'segment:%'"
    if change:
        store._database.write(lambda it: it.define(f"UPDATE {table} SET data = {change} {where}"))
    count = store._database.read(lambda it: it.value(f"SELECT count(*) FROM {table} {where}"))
    text = f"SELECT data FROM {table} {where} ORDER BY id LIMIT 1 OFFSET "
    bodies = [store._database.read(lambda it, n=n: it.value(f"{text}{n}")) for n in range(count)]
    return b"".join(map(bytes, bodies))


class InSQL:
    """How a SQL store's tests look at segments, and change them."""

    def count_segments(self, store: Store) -> int:
        return count_vector_rows_in_sql(store)

    def held(self, store: Store) -> bytes:
        return segments_in_sql(store)

    def alter(self, store: Store) -> None:
        segments_in_sql(store, "substr(data, 1, length(data) - 1)")


_WIDE = 4 * LEAST_LENGTH


def put_wide(handle: Store, *names: str, owner: str = "user:a", session: str = "s") -> None:
    """Store records whose vectors are long enough to be rounded."""
    rows = np.concatenate([units(1, _WIDE, sum(n.encode()), signed=True) for n in names])
    records = [record(name, owner, session_id=session) for name in names]
    texts = [f"fox {name} {'red ' * (len(name) % 3)}" for name in names]
    handle.put_vectors("v", records, worded(texts, rows))


def found_wide(handle: Store, words: str = "fox red", seed: int = 3) -> dict[str, Hit]:
    query = for_words(words, units(1, _WIDE, seed, signed=True)[0])
    return {hit.record.id: hit for hit in handle.search_vectors("v", "user:a", query, 999)}


_SECRET, _LATER = bytes(range(32)), bytes(range(1, 33))
_SEALED = 2 * LEAST_LENGTH
_ROWS = units(6, _SEALED, seed=3, signed=True)


def _sealed(store: Store, **secrets: bytes) -> EncryptedStore:
    sealed = EncryptedStore(store, Keys(secrets or {"k": _SECRET}))
    sealed.open_vectors("v", _SEALED, "m")
    return sealed


def _put(store: Store, *names: str, session: str = "s") -> None:
    """Store records of one word each. The last digit gives the vector."""
    rows = np.stack([_ROWS[int(name[-1])] for name in names])
    said = [f"fox {name}" for name in names]
    pairs = zip(names, said, strict=True)
    records = [record(name, session_id=session, text=text) for name, text in pairs]
    store.put_vectors("v", records, worded(said, rows))


def _found(store: Store, words: str = "fox", row: int = 0) -> list[str]:
    hits = store.search_vectors("v", "user:a", for_words(words, _ROWS[row]), 99)
    return sorted(hit.record.id for hit in hits if hit.words > 0)


def _nearest(store: Store, row: int) -> str:
    hits = store.search_vectors("v", "user:a", for_words("", _ROWS[row]), 99)
    return max(hits, key=lambda hit: hit.cosine).record.id


def _readable_kinds(held: bytes) -> set[str]:
    """Return which kinds of the records' features can be read."""
    rounded = Vectors.of(_ROWS, True)
    signs = {
        "a segment": [b"AMSG"],
        "a vector": [row[:4].tobytes() for row in _ROWS],
        "a rounded vector": [row[:12].tobytes() for row in rounded.rows],
        "a vector as it is kept": [row[:4].tobytes() for row in rounded.floats()],
        "a word": [np.uint32(number).tobytes() for number in [term_of("fox")]],
    }
    return {what for what, some in signs.items() if any(one in held for one in some)}


class EncryptedSegmentsContract(Contract):
    """Under an `EncryptedStore` the features of records cannot be read."""

    def held(self, store: Store) -> bytes:
        """Return the bytes that the database has of the features of block "v"."""
        raise NotImplementedError

    def alter(self, store: Store) -> None:
        raise NotImplementedError

    def test_encrypted_vectors_and_words_cannot_be_read(self, store: Store, other: Store) -> None:
        """Wrong: vectors or words can be read from an encrypted database."""
        store.open_vectors("v", _SEALED, "m")
        _put(store, "a0", "a1")
        assert _readable_kinds(self.held(store)) - {"a segment"}
        store.clear_vectors("v")
        sealed, again = _sealed(store), _sealed(other)
        _put(sealed, "a0", "a1", session="t")
        for n in range(2, 5):
            _put(sealed, f"a{n}")
            assert _found(again) == [f"a{m}" for m in range(n + 1)]
        again.delete_vectors("v", session_id="t")
        assert _readable_kinds(self.held(store)) == set()
        for handle in (sealed, again):
            assert _found(handle) == ["a2", "a3", "a4"]
            assert [_nearest(handle, n) for n in (2, 3, 4)] == ["a2", "a3", "a4"]

    def test_a_key_rotation_hides_no_encrypted_record(self, store: Store, other: Store) -> None:
        """Wrong: after a rotation of keys, older records are not found."""
        _put(_sealed(store, k=_SECRET), "a0", "a1")
        later = _sealed(other, n=_LATER, k=_SECRET)
        _put(later, "a2", session="t")
        assert _found(later) == ["a0", "a1", "a2"]
        for keys in ({"n": _LATER}, {"k": _LATER, "n": _LATER}):
            lacking = _sealed(store, **keys)
            with pytest.raises(Undecryptable, match="of block 'v' "):
                _found(lacking)
            _put(lacking, "b3", session="t")
            lacking.delete_vectors("v", session_id="t")
        assert _found(_sealed(store, n=_LATER, k=_SECRET)) == ["a0", "a1"]

    def test_words_find_records_with_altered_features(self, store: Store, other: Store) -> None:
        """Wrong: an altered value hides its records, or is accepted."""
        sealed = _sealed(store)
        _put(sealed, "a0", "a1")
        assert _found(sealed) == ["a0", "a1"]
        self.alter(store)
        _put(sealed, "b2", session="t")
        for handle in (sealed, _sealed(other)):
            hits = handle.search_vectors("v", "user:a", for_words("fox", _ROWS[2]), 99)
            assert {hit.record.id for hit in hits if hit.words > 0} == {"a0", "a1", "b2"}

    def test_records_stored_before_encryption_are_found(self, store: Store, other: Store) -> None:
        """Wrong: records stored before encryption was switched on are not found."""
        other.open_vectors("v", _SEALED, "m")
        _put(other, "a0", "a1")
        with pytest.raises(Undecryptable, match="plaintext=True"):
            _found(_sealed(store))
        sealed = EncryptedStore(store, Keys({"k": _SECRET}), plaintext=True)
        sealed.open_vectors("v", _SEALED, "m")
        assert _found(sealed) == ["a0", "a1"]
        for n in range(2, 5):
            _put(sealed, *[f"{kind}{n}" for kind in "bcdefg"])
        assert len(_found(sealed)) == 20
        assert [_nearest(sealed, n) for n in (0, 1)] == ["a0", "a1"]

    def test_a_deletion_needs_no_key(self, store: Store, other: Store) -> None:
        """Wrong: without the key nothing can be deleted, or data is reported as damaged."""
        _put(_sealed(store), "a0", "a1")
        _put(_sealed(store), "b2", session="t")
        other.open_vectors("v", _SEALED, "m")
        with pytest.raises(Undecryptable, match="Give the keys"):
            list(other.all_vectors("v"))
        other.delete_vectors("v", session_id="s")
        assert _found(_sealed(store)) == ["b2"]
        other.delete_vectors("v", owner="user:a")
        assert self.held(store) == b""


class SegmentsContract(ManyHandlesContract, EncryptedSegmentsContract):
    """Contract of such a store: a handle with a cached index reads only new records."""

    @pytest.fixture
    def reads(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
        """Return the number of records read in segments since the last call."""
        seen: list[int] = []
        decoded = feature_bytes.segment_of

        def counted(data: bytes) -> Segment:
            segment = decoded(data)
            seen.append(segment.records)
            return segment

        def count() -> int:
            since = sum(seen)
            seen.clear()
            return since

        monkeypatch.setattr(feature_bytes, "segment_of", counted)
        return count

    def count_segments(self, store: Store) -> int:
        """Return the number of catalogs and segments in the database, of all owners."""
        raise NotImplementedError

    def forgotten(self, handle: Store) -> None:
        """Clear the handle's caches, as in a fresh process."""
        handle_of_all: Any = handle
        handle_of_all._indexes = Indexes()

    def test_a_cached_index_reads_only_new_records(
        self, store: Store, other: Store, reads: Callable[[], int]
    ) -> None:
        """Wrong: each absorbed message makes a handle read all of its user's vectors again."""
        for handle in (store, other):
            handle.open_vectors("v", _WIDE, "m")
        put_wide(store, *[f"n{n:04}" for n in range(1_500)])
        assert len(found_wide(other)) >= 999
        assert reads() >= 1_500
        for n in range(30):
            put_wide(store, f"more{n}")
            reads()  # the writer joins these
            assert f"more{n}" in found_wide(other, f"more{n}", n)
            assert reads() <= 64
        found_wide(other)
        assert reads() == 0

    def test_a_cached_and_a_new_index_give_equal_scores(self, store: Store, other: Store) -> None:
        """Wrong: a handle with a cached index gets other scores than a new one."""
        for handle in (store, other):
            handle.open_vectors("v", _WIDE, "m")
        random = np.random.default_rng(5)
        there: set[str] = set()
        for step in range(30):
            session = f"s{step}"
            new = [f"{step}-{n}" for n in range(int(random.integers(1, 40)))]
            put_wide(store, *new, session=session)
            there |= set(new)
            if step % 3 == 2:
                gone = int(random.integers(0, step))
                store.delete_vectors("v", session_id=f"s{gone}")
                there = {name for name in there if not name.startswith(f"{gone}-")}
            if step % 4 == 3:
                followed = found_wide(other, seed=step)
                self.forgotten(other)
                fresh = found_wide(other, seed=step)
                assert followed == fresh
                assert fresh.keys() <= there

    def test_rounded_vectors_have_the_recall_of_exact_vectors(self, store: Store) -> None:
        """Wrong: 8-bit vectors lower recall, or are changed by packing them again."""
        count, width = 400, 256
        store.open_vectors("v", width, "m")
        rows = units(count, width, signed=True)
        names = [f"{n:03}" for n in range(count)]
        features = worded(names, rows)
        for at in range(0, count, 40):
            some = [record(name) for name in names[at : at + 40]]
            store.put_vectors("v", some, features.part(at, at + 40))
        same = 0
        for query in units(20, width, seed=9, signed=True):
            hits = store.search_vectors("v", "user:a", for_words("", query), 10)
            best = sorted(hits, key=lambda hit: -hit.cosine)[:10]
            exact = rows @ query
            for hit in best:
                assert hit.cosine == pytest.approx(exact[int(hit.record.id)], abs=3e-3)
            same += len({int(hit.record.id) for hit in best} & {*np.argsort(-exact)[:10].tolist()})
        assert same >= 195
        kept = Segment.of(names, features, compact=True).features()
        for records, found in store.all_vectors("v"):
            for place, one in enumerate(records):
                assert (found.meaning[place] == kept.meaning[int(one.id)]).all()

    def test_a_deletion_leaves_no_catalogs_and_segments(self, store: Store, other: Store) -> None:
        """Wrong: the database keeps a deleted owner's name or vectors."""
        for handle in (store, other):
            handle.open_vectors("v", _WIDE, "m")
        before = self.count_segments(store)
        for n in range(20):
            put_wide(store, f"a{n}", f"b{n}", session=f"s{n % 3}")
        put_wide(other, "c", owner="user:b", session="t")
        assert self.count_segments(store) > before
        for n in range(3):
            other.delete_vectors("v", session_id=f"s{n}")
        store.delete_vectors("v", owner="user:b")
        assert self.count_segments(store) == before
        assert found_wide(store) == found_wide(other) == {}
        put_wide(store, "d")
        assert found_wide(other).keys() == {"d"}
        store.clear_vectors("v")
        assert self.count_segments(store) == before

    def test_one_put_can_fill_more_than_one_segment(self, store: Store, other: Store) -> None:
        """Wrong: more records than a segment holds are lost, or refused."""
        for handle in (store, other):
            handle.open_vectors("v", 0, "m")
        names = [f"{n:05}" for n in range(5_000)]
        store.put_vectors("v", [record(name) for name in names], worded(["fox"] * 5_000))
        hits = other.search_vectors("v", "user:a", for_words("fox"), 9_999)
        assert sorted(hit.record.id for hit in hits) == names
        assert sum(len(records) for records, _ in other.all_vectors("v")) == 5_000
