"""Two releases at one database: a newer one migrates what an older one has open, as tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from threading import Event
from typing import Any

import numpy as np
import pytest

from agent_memory import AgentMemory
from agent_memory.errors import SchemaTooNew, StoreUnavailable
from agent_memory.retrieval.features import Features
from agent_memory.stores.sql.database import SQLConnection, SQLDatabase
from agent_memory.stores.sql.migrations import (
    STEPS,
    TABLES,
    Step,
    migrate,
    stored_version,
    table_name,
)
from agent_memory.stores.sql.server import open_server
from agent_memory.stores.sql.sqlite import Database
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing.contract import draft, record, stored, together
from tests.servers.sql import finished, started

NEWEST = 2 + len(STEPS)
NEXT: tuple[Step, ...] = (
    *STEPS,
    (
        "ALTER TABLE [sessions] ADD COLUMN expires_at BIGINT",
        "CREATE INDEX agent_memory_sessions_expiry ON [sessions] (namespace, expires_at)",
        "UPDATE [sessions] SET expires_at = 7",
    ),
)
ONCE: tuple[Step, ...] = (*STEPS, ("INSERT INTO agent_memory_meta (name, value) SELECT 'ran', 1",))
NEWER = """
import sys
from contextlib import closing
from agent_memory.stores.sql.migrations import migrate
from tests.contract.two_releases_contract import ONCE, database_of
with closing(database_of(sys.argv[1])) as database:
    database.patiently(lambda connection: migrate(connection, ONCE))
"""


def database_of(url: str) -> SQLDatabase:
    """The database of a URL, as a newer release opens it."""
    if url.startswith("sqlite:"):
        return Database(url.removeprefix("sqlite:///"))
    return open_server(url, "process")


class _Cut:
    """A connection that is gone at one of the statements that change tables."""

    def __init__(self, connection: SQLConnection, last: int) -> None:
        self._connection = connection
        self._left = last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def define(self, text: str) -> None:
        self._left -= 1
        if not self._left:
            raise StoreUnavailable("cut")
        self._connection.define(text)


def _held(newer: SQLDatabase) -> list[int]:
    """How much there is, and what an older release could have changed of it."""
    texts = [f"SELECT COUNT(*) FROM {table_name(table, NEWEST)}" for table in TABLES]
    texts += [
        f"SELECT SUM({column}) FROM {table_name('sessions', NEWEST)}"
        for column in ("version", "lease_until", "due_at")
    ]
    return [newer.read(lambda it, text=text: it.value(text)) for text in texts]


class TwoReleasesContract:
    """`database` is the URL of an empty one."""

    def test_an_older_release_that_is_open(self, database: str) -> None:
        """Wrong: it writes on as if nothing had happened: leaves behind what it does not know of a
        session that it deletes, or cuts; or fails with words that nobody understands.
        """
        older = SQLStore(database)
        for n in range(8):  # often enough for statements to be prepared
            older.append("s", [draft(f"{n}")], "u")
        vector = Features.of_vectors(np.eye(2, dtype=np.float32)[:1])
        older.open_vectors("v", 2, "m")
        older.put_vectors("v", [record("v1")], vector)
        older.put_records("facts", [record("f1")])
        assert older.lock("l", "w", 60)
        head = stored(older)
        with closing(database_of(database)) as newer:
            newer.patiently(lambda it: migrate(it, NEXT))
            before = _held(newer)
            memory = AgentMemory(store=older, blocks=[])
            calls: list[Callable[[], object]] = [
                lambda: older.append("s", [draft("9")]),
                lambda: older.append("t", [draft("1")]),
                lambda: older.append("s", [draft("9"), draft("10")]),
                lambda: older.head("s"),
                lambda: older.read("s"),
                lambda: older.move(head),
                lambda: older.rewrite(head, 3),
                lambda: older.delete("s"),
                lambda: older.lease("s", "w", 60),
                lambda: older.lock("m", "w", 60),
                lambda: older.unlock("l", "w"),
                lambda: older.due(),
                lambda: older.schedule(head, None),
                lambda: older.schedule_all(),
                lambda: older.sessions(),
                lambda: older.put_records("facts", [record("f2")]),
                lambda: older.delete_records("facts", owner="user:a"),
                lambda: older.records("facts", "user:a"),
                lambda: older.open_vectors("w", 2, "m"),
                lambda: older.put_vectors("v", [record("v2")], vector),
                lambda: older.delete_vectors("v", session_id="s"),
                lambda: memory.update("s", {"role": "user", "content": "9"}, key="k"),
                lambda: memory.get("s", "What?"),
                lambda: memory.flush(),
                lambda: memory.delete("s"),
                lambda: memory.delete_user("u"),
            ]
            for call in calls:
                with pytest.raises(SchemaTooNew, match=f"version {NEWEST}"):
                    call()
            assert _held(newer) == before
        older.close()
        with pytest.raises(SchemaTooNew, match=f"version {NEWEST}"):
            SQLStore(database)

    def test_an_older_release_that_is_writing(self, database: str) -> None:
        """Wrong: what it was told to be stored is not there, or more is."""
        stores = [SQLStore(database) for _ in range(4)]
        ends, begun = [0] * len(stores), [Event() for _ in stores]

        def write(place: int) -> None:
            while True:
                drafts = [draft("a")] * (1 + ends[place] % 2)
                try:
                    ends[place] = stores[place].append(f"s{place}", drafts).end
                except SchemaTooNew:
                    return
                except StoreUnavailable as error:  # changes of tables are no transaction there
                    assert "a newer release" in str(error)  # noqa: PT017
                if ends[place] > 20:
                    begun[place].set()

        def take_over() -> None:
            for one in begun:
                one.wait()
            with closing(database_of(database)) as newer:
                newer.patiently(lambda it: migrate(it, NEXT))

        together([*[partial(write, place) for place in range(len(stores))], take_over])
        entries, sessions = table_name("entries", NEWEST), table_name("sessions", NEWEST)
        with closing(database_of(database)) as newer:
            for place, end in enumerate(ends):
                assert end > 20
                for what in ("COUNT(*)", "MAX(seq)"):
                    text = (
                        f"SELECT {what} FROM {entries} WHERE session IN "
                        f"(SELECT {sessions}.key FROM {sessions} WHERE session_id = 's{place}')"
                    )
                    assert newer.read(lambda it, text=text: it.value(text)) == end
        for store in stores:
            store.close()

    def test_newer_releases_that_come_at_the_same_moment(self, database: str) -> None:
        """Wrong: both change the tables, or one of them fails."""
        SQLStore(database).close()
        for process in [started(NEWER, database) for _ in range(3)]:
            finished(process)
        with closing(database_of(database)) as newer:
            text = "SELECT COUNT(*) FROM agent_memory_meta WHERE name = 'ran'"
            assert newer.read(lambda it: it.value(text)) == 1
            assert newer.read(stored_version) == NEWEST

    def test_a_release_that_is_killed_and_a_still_newer_one(self, database: str) -> None:
        """Wrong: what the former has renamed, the latter does not find."""
        store = SQLStore(database)
        end = store.append("s", [draft("a"), draft("b")]).end
        store.close()
        more: Step = ("UPDATE [sessions] SET expires_at = expires_at + 1",)
        with closing(database_of(database)) as newer:
            with pytest.raises(StoreUnavailable, match="cut"):
                newer.patiently(lambda it: migrate(_Cut(it, 4), NEXT))  # type: ignore[arg-type]
            newer.patiently(lambda it: migrate(it, (*NEXT, more)))
            text = f"SELECT COUNT(*) FROM {table_name('entries', NEWEST + 1)}"
            assert newer.read(lambda it: it.value(text)) == end
            text = f"SELECT MIN(expires_at) FROM {table_name('sessions', NEWEST + 1)}"
            assert newer.read(lambda it: it.value(text)) == 8
            assert newer.read(stored_version) == NEWEST + 1

    def test_a_newer_release_that_is_killed_at_any_statement(self, database: str) -> None:
        """Wrong: it can't go on from there; or the older one writes on to half a schema."""
        older = SQLStore(database)
        said = older.append("s", [draft("a")], "u").end
        with closing(database_of(database)) as newer:
            for last in range(1, 100):
                try:
                    newer.patiently(lambda it, last=last: migrate(_Cut(it, last), NEXT))  # type: ignore[arg-type]
                    break
                except StoreUnavailable as error:
                    assert str(error) == "cut"  # noqa: PT017
                with suppress(StoreUnavailable):
                    said = older.append("s", [draft("b")]).end
            assert last > 2
            text = f"SELECT COUNT(*) FROM {table_name('entries', NEWEST)}"
            assert newer.read(lambda it: it.value(text)) == said
            text = f"SELECT MIN(expires_at) FROM {table_name('sessions', NEWEST)}"
            assert newer.read(lambda it: it.value(text)) == 7
        with pytest.raises(SchemaTooNew):
            older.append("s", [draft("c")])
        older.close()
