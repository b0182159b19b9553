"""Contract tests: pytest classes with the tests that every store must pass.

Subclass them, define the fixture `store` and run pytest:

    class TestMyStore(SessionStoreContract, RecordStoreContract, VectorStoreContract):
        @pytest.fixture
        def store(self):
            store = MyStore(...)
            yield store
            store.close()

Two fixtures are optional. `other` is a second store object on the same data; define it if several
processes may share the data. `elsewhere` is a store object on another namespace of the same
database; without it, the tests of namespaces are skipped.

The docstring of a test starts with "Wrong:", and describes a store that fails the test. In these
docstrings, "handle" means a store object; several handles may use the same data.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head, Hit, Record
from agent_memory.models.embedders.base import NoEmbedder
from agent_memory.retrieval.features import TURN_LENGTH, Features, weighted, written
from agent_memory.retrieval.languages import ENGLISH
from agent_memory.retrieval.query import Query
from agent_memory.stores.base import SessionStore, Store, VectorStore

DAY = datetime(2024, 2, 29, 12, 30, 15, 123457, tzinfo=UTC)


def draft(content: Any, tokens: int = 3, role: str = "user", **fields: Any) -> Draft:
    return Draft(Message(role=role, content=content, **fields), tokens, "test")


def record(name: str, owner: str = "user:a", session_id: str = "s", **fields: Any) -> Record:
    """Return a record, by default one that derives from entry 1 of the session."""
    values: dict[str, Any] = {"first": 1, "last": 1, "text": f"text of {name}", "sources": (1,)}
    values |= {"created_at": DAY, **fields}
    return Record(id=name, owner=owner, session_id=session_id, **values)


def entries(first: int, last: int, suffix: str = "", total: int = 0) -> list[Entry]:
    """Return entries as if read from another store: one for each day, each with 3 tokens.

    `total` is the running total of tokens before the first entry.
    """
    return [
        Entry(
            "s",
            seq,
            Message(role="user", content=f"{seq}{suffix}", created_at=DAY + timedelta(seq)),
            3,
            total + 3 * (seq - first + 1),
            "elsewhere",
            DAY + timedelta(seq),
        )
        for seq in range(first, last + 1)
    ]


def begun(**fields: Any) -> Head:
    """Return the head of a session to be imported."""
    return replace(Head("s", "u", created_at=DAY), **fields)


def together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run each call on its own thread, at the same time. Return the results, or raise an error."""
    gate = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []

    def run(place: int, call: Callable[[], Any]) -> None:
        try:
            gate.wait()
            results[place] = call()
        except BaseException as error:  # noqa: BLE001 (raised again on the test's thread)
            errors.append(error)

    threads = [threading.Thread(target=run, args=(place, call)) for place, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def stored(store: SessionStore, session_id: str = "s") -> Head:
    """Return the stored head of a session, which must exist."""
    head = store.head(session_id)
    assert head is not None
    return head


def changed(store: SessionStore, session_id: str = "s", **fields: Any) -> Head:
    """Change fields of a session's stored head. Return the new head."""
    head = store.move(replace(stored(store, session_id), **fields))
    assert head is not None
    return head


def texts_of(store: SessionStore, session_id: str = "s") -> list[str]:
    return [entry.message.text() for entry in store.read(session_id)]


def seqs_of(entries: Sequence[Entry]) -> list[int]:
    return [entry.seq for entry in entries]


class Contract:
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """The store under test. Subclasses define it."""
        pytest.fail("Define a `store` fixture in the subclass of the contract.")

    @pytest.fixture
    def other(self, store: Store) -> Store:
        """A second store object on the same data; by default `store` itself."""
        return store

    @pytest.fixture
    def elsewhere(self) -> Store:
        """A store object on another namespace; by default, tests that use it are skipped."""
        pytest.skip("this store has no second namespace")


_ALL = 100_000


def units(count: int, dimension: int = 8, seed: int = 7, *, signed: bool = False) -> np.ndarray:
    """Return `count` unit vectors. All cosines are positive, unless the vectors are `signed`."""
    rows = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    if not signed:
        rows = np.abs(rows)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def worded(texts: Sequence[str], meaning: np.ndarray | None = None) -> Features:
    """Return the features of records with these texts, whose words stemming does not change."""
    words = [weighted(written(text, ENGLISH), TURN_LENGTH) for text in texts]
    features = Features.of_words(words)
    return features if meaning is None else replace(features, meaning=meaning)


def for_words(words: str, vector: np.ndarray | None = None) -> Query:
    """Return a query for words, with a vector if one is given."""
    query = Query.of_question(words, NoEmbedder())
    return query if vector is None else replace(query, meaning=vector)


def ranked(hits: Sequence[Hit], by: str = "cosine") -> list[tuple[Record, float]]:
    """Return each hit's record and its score `by`, best score first. Equal scores go by id."""
    scored = [(hit.record, float(getattr(hit, by))) for hit in hits]
    return sorted(scored, key=lambda pair: (-pair[1], pair[0].id))


def everything(store: VectorStore, block: str, owner: str, dimension: int) -> list[Record]:
    """Return an owner's records that have vectors, sorted by id.

    A search finds only records with a positive score, so two opposite queries are needed.
    """
    across = units(1, dimension, seed=40, signed=True)[0]
    results = [store.search_vectors(block, owner, Query(side), _ALL) for side in (across, -across)]
    by_id = {hit.record.id: hit.record for hits in results for hit in hits}
    return [by_id[name] for name in sorted(by_id)]
