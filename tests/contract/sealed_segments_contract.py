"""Contract tests for stores that encrypt the features of records."""

import numpy as np
import pytest

from agent_memory.errors import Undecryptable
from agent_memory.retrieval.postings import term_of
from agent_memory.retrieval.vectors import LEAST_LENGTH, Vectors
from agent_memory.stores.base import Store
from agent_memory.stores.encrypted.keys import Keys
from agent_memory.stores.encrypted.store import EncryptedStore
from agent_memory.testing.contract import Contract, for_words, record, units, worded

_SECRET, _LATER = bytes(range(32)), bytes(range(1, 33))
_WIDE = 2 * LEAST_LENGTH
_ROWS = units(6, _WIDE, seed=3, signed=True)


def _sealed(store: Store, **secrets: bytes) -> EncryptedStore:
    sealed = EncryptedStore(store, Keys(secrets or {"k": _SECRET}))
    sealed.open_vectors("v", _WIDE, "m")
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


def _told(held: bytes) -> set[str]:
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


class SealedSegmentsContract(Contract):
    """Under an `EncryptedStore` the features of records cannot be read."""

    def held(self, store: Store) -> bytes:
        """Return the bytes that the database has of the features of block "v"."""
        raise NotImplementedError

    def alter(self, store: Store) -> None:
        raise NotImplementedError

    def test_no_vector_and_no_word_is_to_be_read(self, store: Store, other: Store) -> None:
        """Wrong: vectors or words can be read from an encrypted database."""
        store.open_vectors("v", _WIDE, "m")
        _put(store, "a0", "a1")
        assert _told(self.held(store)) - {"a segment"}
        store.clear_vectors("v")
        sealed, again = _sealed(store), _sealed(other)
        _put(sealed, "a0", "a1", session="t")
        for n in range(2, 5):
            _put(sealed, f"a{n}")
            assert _found(again) == [f"a{m}" for m in range(n + 1)]
        again.delete_vectors("v", session_id="t")
        assert _told(self.held(store)) == set()
        for handle in (sealed, again):
            assert _found(handle) == ["a2", "a3", "a4"]
            assert [_nearest(handle, n) for n in (2, 3, 4)] == ["a2", "a3", "a4"]

    def test_keys_are_rotated(self, store: Store, other: Store) -> None:
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

    def test_what_was_altered_is_found_by_words(self, store: Store, other: Store) -> None:
        """Wrong: an altered value hides its records, or is accepted."""
        sealed = _sealed(store)
        _put(sealed, "a0", "a1")
        assert _found(sealed) == ["a0", "a1"]
        self.alter(store)
        _put(sealed, "b2", session="t")
        for handle in (sealed, _sealed(other)):
            hits = handle.search_vectors("v", "user:a", for_words("fox", _ROWS[2]), 99)
            assert {hit.record.id for hit in hits if hit.words > 0} == {"a0", "a1", "b2"}

    def test_what_stood_there_before_is_read(self, store: Store, other: Store) -> None:
        """Wrong: records stored before encryption was switched on are not found."""
        other.open_vectors("v", _WIDE, "m")
        _put(other, "a0", "a1")
        with pytest.raises(Undecryptable, match="plaintext=True"):
            _found(_sealed(store))
        sealed = EncryptedStore(store, Keys({"k": _SECRET}), plaintext=True)
        sealed.open_vectors("v", _WIDE, "m")
        assert _found(sealed) == ["a0", "a1"]
        for n in range(2, 5):
            _put(sealed, *[f"{kind}{n}" for kind in "bcdefg"])
        assert len(_found(sealed)) == 20
        assert [_nearest(sealed, n) for n in (0, 1)] == ["a0", "a1"]

    def test_who_has_no_key_deletes(self, store: Store, other: Store) -> None:
        """Wrong: without the key nothing can be deleted, or data is reported as damaged."""
        _put(_sealed(store), "a0", "a1")
        _put(_sealed(store), "b2", session="t")
        other.open_vectors("v", _WIDE, "m")
        with pytest.raises(Undecryptable, match="Give the keys"):
            list(other.all_vectors("v"))
        other.delete_vectors("v", session_id="s")
        assert _found(_sealed(store)) == ["b2"]
        other.delete_vectors("v", owner="user:a")
        assert self.held(store) == b""
