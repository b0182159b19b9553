"""Databases of every schema version there was open, and become what a fresh one is."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_memory.core.records import Record
from agent_memory.errors import SchemaTooNew, StoreError, StoreUnavailable
from agent_memory.retrieval.features import Features
from agent_memory.stores.base import Counts
from agent_memory.stores.blobs import blobs_of
from agent_memory.stores.coding import now_micros, record_body, to_micros
from agent_memory.stores.damage import noted
from agent_memory.stores.sql import vectors
from agent_memory.stores.sql.migrations import STEPS, migrate, stored_version
from agent_memory.stores.sql.sqlite import Database
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing.contract import draft, record, stored, together
from agent_memory.testing.features import for_words, ranked, units, worded
from tests.contract.two_releases_contract import TwoReleasesContract
from tests.servers.sql import today

FOLDER = Path(__file__).parent
VERSIONS = (1, 2, 3, 4, 5, 6, 7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def _fill(path: Path, version: int) -> None:
    """A database as that schema version wrote it."""
    _run(path, (FOLDER / f"schema_v{version}.sql").read_text(encoding="utf-8"))


def _run(path: Path, script: str) -> None:
    connection = sqlite3.connect(path)
    try:
        connection.executescript(script)
    finally:
        connection.close()


def _shape(path: Path) -> dict[str, Any]:
    """Columns, keys and indexes, however the statements were worded that made them."""
    connection = sqlite3.connect(path)

    def rows(statement: str) -> list[tuple[Any, ...]]:
        return connection.execute(statement).fetchall()

    try:
        assert rows("PRAGMA integrity_check") == [("ok",)]
        return {
            table: (
                "AUTOINCREMENT" in sql,
                rows(f"PRAGMA table_xinfo({table})"),
                {
                    name: (unique, origin, partial, rows(f"PRAGMA index_xinfo({name})"))
                    for _, name, unique, origin, partial in rows(f"PRAGMA index_list({table})")
                },
            )
            for table, sql in rows(
                "SELECT name, sql FROM sqlite_master "
                "WHERE type = 'table' AND name LIKE 'agent_memory_%'"
            )
        }
    finally:
        connection.close()


def _fresh(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "fresh.db"
    SQLStore(f"sqlite:///{path}").close()
    return _shape(path)


def test_every_version_has_its_frozen_database() -> None:
    """Else: a step was added, and nobody tries whether what it made can still be opened."""
    assert len(STEPS) + 1 == VERSIONS[-1]
    names = sorted(file.name for file in FOLDER.glob("schema_v*.sql"))
    assert names == [f"schema_v{version}.sql" for version in VERSIONS]


def test_the_newest_frozen_schema_is_the_fresh_one(path: Path, tmp_path: Path) -> None:
    """Else: a table was changed without a migration step."""
    _fill(path, VERSIONS[-1])
    shape = _shape(path)
    assert shape == _fresh(tmp_path)
    assert len(shape) == 11
    assert sum(len(indexes) for _, _, indexes in shape.values()) >= 16


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_becomes_the_fresh_schema(path: Path, tmp_path: Path, version: int) -> None:
    """Else: an upgraded database lacks a column, a default or an index."""
    _fill(path, version)
    SQLStore(f"sqlite:///{path}").close()
    assert _shape(path) == _fresh(tmp_path)
    database = Database(str(path))
    assert database.read(stored_version) == VERSIONS[-1]
    database.close()


def test_a_database_of_version_1_opens(path: Path) -> None:
    """Else: an upgrade loses what an older release wrote, or leaves its sessions lying."""
    _fill(path, 1)
    store = SQLStore(f"sqlite:///{path}", "prod")
    head = stored(store, "s-1")
    assert (head.user_id, head.end, head.total, head.start) == ("sarah", 2, 9, 1)
    assert head.summary is not None
    assert head.summary.text == "She said hello."
    assert [e.message.content for e in store.read("s-1")] == ["héllo", "hi"]
    assert store.due() == [head]
    assert store.schedule(head, None) is True
    assert store.due() == []
    assert store.append("s-1", [draft("more", 4)]).total == 13
    assert store.due() == [stored(store, "s-1")]
    assert [r.text for r in store.records("facts", "user:sarah")] == ["Sarah says hello."]
    _find_hello(store)
    store.close()


def test_a_database_of_version_2_opens(path: Path) -> None:
    """Else: an upgrade loses what an older release wrote, or wakes what it had put off."""
    _fill(path, 2)
    store = SQLStore(f"sqlite:///{path}", "prod")
    head = stored(store, "s-1")
    assert (head.user_id, head.end, head.total, head.start) == ("sarah", 3, 9, 2)
    assert (head.pinned, head.cursors) == ((2,), {"facts": 3, "vector": 2})
    assert head.system is not None
    assert head.summary is not None
    assert (head.system.content, head.summary.text) == ("Be kind.", "She said hello.")
    assert [e.message.content for e in store.read("s-1", after=1)] == ["héllo", "hi"]
    assert [h.session_id for h in store.due()] == ["s-3", "s-2"]
    assert stored(store, "s-3").deleting is True
    assert store.lease("s-2", "w2", 60) is True
    store.append("s-4", [draft("more")])
    assert [h.session_id for h in store.due()] == ["s-3", "s-4"]
    assert [r.text for r in store.records("facts", "user:sarah")] == ["Sarah says hello."]
    _find_hello(store)
    store.close()


def test_a_database_of_version_3_opens(path: Path) -> None:
    """Else: an upgrade takes a log that begins later for one that lost messages."""
    _fill(path, 3)
    store = SQLStore(f"sqlite:///{path}", "prod")
    head = stored(store, "s-1")
    assert (head.user_id, head.expired, head.end, head.total) == ("sarah", 1, 3, 9)
    assert [(e.seq, e.message.content) for e in store.read("s-1")] == [(2, "héllo"), (3, "hi")]
    assert stored(store, "s-2").expired == 0
    assert store.lock("l-1", "w2", 60) is True
    _find_hello(store)
    store.close()


def test_a_database_of_version_4_opens(path: Path) -> None:
    """Else: an upgrade lets two workers have one lock, or nobody have one that ran out."""
    _fill(path, 4)
    soon = now_micros() + 60_000_000  # what ends later than a lock can last is not true
    _run(path, f"UPDATE agent_memory_locks SET until = {soon} WHERE name = 'l-1'")
    store = SQLStore(f"sqlite:///{path}", "prod")
    assert stored(store, "s-1").expired == 1
    assert store.lock("l-1", "w2", 60) is False
    assert store.lock("l-1", "w1", 60, renew=True) is True
    assert store.lock("l-2", "w2", 60) is True
    assert store.keys("s-1") == []
    _find_hello(store)
    store.close()


def test_a_database_of_version_5_opens(path: Path) -> None:
    """Else: an upgrade forgets under which keys was written, and retries are stored twice."""
    _fill(path, 5)
    store = SQLStore(f"sqlite:///{path}", "prod")
    first, second = store.keys("s-1")
    assert (first.name, first.digest, first.seq, first.end, first.total) == (
        "name-2", "digest-2", 1, 1, 4,
    )  # fmt: skip
    assert (second.name, second.seq, second.end, second.total) == ("name-1", 2, 3, 9)
    assert store.keys("s-2") == []
    _find_hello(store)
    store.close()


@pytest.mark.parametrize("version", [6, 7])
def test_a_database_of_the_last_versions_opens(path: Path, version: int) -> None:
    """Else: an upgrade loses what records are found by, which stood beside each of them."""
    _fill(path, version)
    store = SQLStore(f"sqlite:///{path}", "prod")
    assert [e.message.content for e in store.read("s-1")] == ["héllo", "hi"]
    assert [key.name for key in store.keys("s-1")] == ["name-2", "name-1"]
    ((records, features),) = store.all_vectors("vector")
    assert [one.text for one in records] == ["hello"]
    assert features.meaning.tolist() == [[1.0, 0.0]]
    _find_hello(store)
    store.close()


def _wide(count: int, seed: int) -> tuple[list[Record], Features]:
    records = [record(f"{seed}-{n}", session_id=f"s{n % 9}") for n in range(count)]
    said = [f"fox {'red ' * (n % 3)}word{n % 50}" for n in range(count)]
    rows = units(count, 128, seed, signed=True)
    return records, worded(said, said[::-1], rows, np.roll(rows, 1, axis=1))


def _earlier(path: Path, records: list[Record], features: Features) -> None:
    """Records as version 6 wrote them, one of them damaged."""
    rows = [
        ("default", "v", one.id, one.owner, one.session_id, one.first, one.last,
         to_micros(one.created_at), record_body(one), blob)
        for one, blob in zip(records, blobs_of(records, features), strict=True)
    ]  # fmt: skip
    connection = sqlite3.connect(path)
    try:
        marks = ", ".join("?" * len(rows[0]))
        insert = f"INSERT INTO agent_memory_vectors VALUES ({marks})"
        connection.executemany(insert, rows)
        connection.execute("UPDATE agent_memory_vectors SET vector = 'x' WHERE id = '1-7'")
        for owner in {one.owner for one in records}:
            scope = ("default", "v", owner, 2**60)
            connection.execute("INSERT INTO agent_memory_vector_scopes VALUES (?, ?, ?, ?)", scope)
        connection.execute("INSERT INTO agent_memory_collections VALUES ('default', 'v', 128, 'm')")
        connection.commit()
    finally:
        connection.close()


@pytest.mark.parametrize("first", ["search", "put", "delete", "read"])
def test_what_earlier_releases_wrote_is_packed(
    path: Path, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else: who had many records before an upgrade finds none of them, or some twice, or others
    than before; or what is deleted meanwhile comes back."""
    monkeypatch.setattr(vectors, "_PACKED", 70)
    (records, features), (more, theirs) = _wide(400, 1), _wide(30, 2)
    _fill(path, 6)
    _earlier(path, records, features)
    there = {one.id: place for place, one in enumerate(records) if one.id != "1-7"}
    store, other = (SQLStore(f"sqlite:///{path}") for _ in range(2))
    for handle in (store, other):
        handle.open_vectors("v", 128, "m")
    if first == "put":
        store.put_vectors("v", [*more, records[5]], Features.joined([theirs, features.part(5, 6)]))
    elif first == "delete":
        store.delete_vectors("v", session_id="s3")
        there = {name: n for name, n in there.items() if n % 9 != 3}
    elif first == "read":
        assert sum(len(some) for some, _ in store.all_vectors("v")) == len(there)
    query = for_words("fox red", units(1, 128, 9, signed=True)[0])
    for handle in (store, other):
        found = {hit.record.id: hit for hit in handle.search_vectors("v", "user:a", query, 999)}
        assert found.keys() == {*there, *(one.id for one in more if first == "put")}
        for name, place in there.items():
            assert found[name].record == records[place]
            exact = float(features.meaning[place] @ query.meaning)
            assert found[name].scores[2] == pytest.approx(exact, abs=3e-3)
    with noted() as damaged:
        kept = sum(len(some) for some, _ in other.all_vectors("v"))
    assert kept == len(found)
    assert [error.damage and error.damage.record_id for error in damaged] == ["1-7"]
    left = "SELECT sum(length(vector)) FROM agent_memory_vectors WHERE namespace = 'default'"
    assert store._database.read(lambda it: it.value(today(left))) == 0
    for handle in (store, other):
        handle.delete_vectors("v", owner="user:a")
        assert handle.search_vectors("v", "user:a", query, 9) == []
        handle.close()


def _find_hello(store: SQLStore) -> None:
    store.open_vectors("vector", 2, "m")
    query = np.array([0.6, 0.8], dtype=np.float32)
    (found,) = store.search_vectors("vector", "user:sarah", for_words("hello", query), 3)
    assert found.record.text == "hello"
    assert found.scores == pytest.approx((0, 0, 0.6, 0))  # its words were not kept
    new = record("new", "user:sarah", text="hello again")
    store.put_vectors("vector", [new], worded(["hello again"], ["hello"], query[None], query[None]))
    two = store.search_vectors("vector", "user:sarah", for_words("hello", query), 3)
    assert [one.text for one, _ in ranked(two)] == ["hello again", "hello"]
    assert [score > 0 for _, score in ranked(two, "words")] == [True, False]
    ((same, score), _) = ranked(two, "meaning_around")
    assert (same, score) == (new, pytest.approx(1, abs=1e-3))


def test_many_open_an_old_database_at_once(path: Path) -> None:
    """Else: of workers that start together after an upgrade, all but one fail."""
    _fill(path, 1)
    stores = together([partial(SQLStore, f"sqlite:///{path}", "prod") for _ in range(6)])
    for store in stores:
        assert store.counts() == Counts(sessions=1, entries=2)
        store.close()


def test_steps_run_once_and_in_order(path: Path) -> None:
    """Else: a migration is skipped, repeated, or leaves the version behind."""
    second = ("CREATE TABLE more (x INTEGER)", "INSERT INTO more VALUES (2)")
    third = ("INSERT INTO more VALUES (3)",)
    _fill(path, 1)
    database = Database(str(path))
    database.write(lambda connection: migrate(connection, [second]))
    database.write(lambda connection: migrate(connection, [second, third]))
    database.write(lambda connection: migrate(connection, [second, third]))
    assert database.read(stored_version) == 3
    assert database.read(lambda c: c.value("SELECT group_concat(x) FROM more")) == "2,3"
    database.close()


class TestTwoReleases(TwoReleasesContract):
    """On SQLite."""

    @pytest.fixture
    def database(self, path: Path) -> str:
        return f"sqlite:///{path}"


def test_a_failed_step_changes_nothing(path: Path) -> None:
    """Else: a crash amid a migration leaves half a schema."""
    broken = ("DROP TABLE [facts]", "DROP TABLE agent_memory_nothing")
    _fill(path, 1)
    before = _shape(path)
    database = Database(str(path))
    with pytest.raises(StoreUnavailable, match="nothing"):
        database.write(lambda connection: migrate(connection, [*STEPS, broken]))
    assert database.read(stored_version) == 1
    database.close()
    assert _shape(path) == before


def test_a_newer_schema_is_refused(path: Path) -> None:
    """Else: an old release writes into tables it does not know."""
    SQLStore(f"sqlite:///{path}").close()
    _run(path, "UPDATE agent_memory_meta SET value = 999 WHERE name = 'schema_version'")
    with pytest.raises(SchemaTooNew, match="999"):
        SQLStore(f"sqlite:///{path}")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("UPDATE agent_memory_meta SET value = -5", "schema version is -5"),
        ("UPDATE agent_memory_meta SET value = 0", "schema version is 0"),
        ("UPDATE agent_memory_meta SET value = 'six'", "schema version is 'six'"),
        ("DELETE FROM agent_memory_meta", "no schema version"),
        ("DROP TABLE agent_memory_meta", "no schema version"),
    ],
)
def test_a_version_that_never_was_is_named(path: Path, change: str, says: str) -> None:
    """Wrong: a damaged database reads as an outage ("duplicate column name"), which nobody mends by
    waiting; or it is migrated as if it were an old one.
    """
    SQLStore(f"sqlite:///{path}").close()
    _run(path, change)
    before = _shape(path)
    with pytest.raises(StoreError, match=says) as caught:
        SQLStore(f"sqlite:///{path}")
    assert not isinstance(caught.value, StoreUnavailable)
    assert "Put a backup back." in str(caught.value)
    assert _shape(path) == before
