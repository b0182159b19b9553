"""`SQLStore` on every server in normal operation, as tests."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from agent_memory.errors import StoreUnavailable
from agent_memory.stores.base import Store
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing import StoreContract
from agent_memory.testing.contract import draft, stored, together
from tests.contract.clock_contract import ClockContract
from tests.contract.damage_contract import DamageContract
from tests.contract.grouping_contract import GroupingContract
from tests.contract.import_contract import ImportContract
from tests.contract.long_log_contract import LongLogContract, Steps
from tests.contract.segments_contract import InSQL, SegmentsContract
from tests.contract.whole_deletion_contract import WholeDeletionContract
from tests.processes import check_fork, check_writers
from tests.servers.postgres import PASSWORD
from tests.servers.sql import (
    Served,
    ServerFixtures,
    execute,
    finished,
    line_to,
    opened,
    scheme_of,
    started,
)

CONNECTIONS = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'agent-memory'",
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE user = 'owner'",
}

# users who may have one connection
LIMITED = {
    "postgresql": ("CREATE ROLE {} LOGIN PASSWORD '{}' CONNECTION LIMIT 1 IN ROLE owner",),
    "mysql": (
        "CREATE USER {0}@'127.0.0.1' IDENTIFIED BY '{1}' WITH MAX_USER_CONNECTIONS 1",
        "GRANT ALL ON *.* TO {0}@'127.0.0.1'",
    ),
}
# makes new connections read-only, and undoes this
DEMOTED = {
    "postgresql": tuple(
        f"ALTER ROLE owner {change}"
        for change in ("SET default_transaction_read_only = on", "RESET ALL")
    ),
    "mysql": ("SET GLOBAL tx_read_only = 1", "SET GLOBAL tx_read_only = 0"),
}
DEADLOCKS = {
    "postgresql": "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
    "mysql": "SELECT variable_value FROM information_schema.global_status "
    "WHERE variable_name = 'Innodb_deadlocks'",
}


class SQLContract(
    InSQL,
    StoreContract,
    SegmentsContract,
    LongLogContract,
    ClockContract,
    ImportContract,
    DamageContract,
    GroupingContract,
    WholeDeletionContract,
):
    """`SQLStore` keeps the contract."""

    def test_a_closed_sql_store_refuses_calls(self, store: Store) -> None:
        """Wrong: a closed store connects or opens its file again."""
        store.close()
        for call in (lambda: store.head("s"), lambda: store.append("s", [draft("a")])):
            with pytest.raises(StoreUnavailable, match="closed"):
                call()


class ServerContract(ServerFixtures, SQLContract):
    """`SQLStore` on a server keeps the contract with concurrent writers."""

    schemes: tuple[str, ...]

    @pytest.fixture
    def steps(self, server: Served, store: Store, namespace: str) -> Iterator[Steps]:
        """Counts the round trips."""
        with line_to(server.private()) as line:
            far = SQLStore(line.url, namespace)

            def steps(call: Callable[[Store], Any]) -> int:
                before = line.requests
                call(far)
                return int(line.requests - before)

            yield steps
            far.close()

    def test_appends_to_one_session_do_not_deadlock(self, server: Served) -> None:
        """Wrong: concurrent appends to one session deadlock."""
        own = server.private()
        counted = DEADLOCKS[scheme_of(own.url)]
        with opened(own.url) as database:
            before = database.read(lambda c: int(c.value(counted)))
        stores = [SQLStore(own.url), SQLStore(own.url)]

        def run(store: SQLStore) -> None:
            for n in range(20):
                store.append("s", [draft(f"{n}")] * (1 + n % 2))

        together([partial(run, store) for store in stores * 8])
        assert stored(stores[0]).end == 16 * 30
        for store in stores:
            store.close()  # the server updates its counters when a connection ends, at the latest
        with opened(own.url) as database:
            assert database.read(lambda c: int(c.value(counted))) == before

    def test_append_is_one_round_trip(self, server: Served, store: Store, namespace: str) -> None:
        """Wrong: an update takes several round trips, or a context more than two."""
        with line_to(server.private()) as line:
            far = SQLStore(line.url, namespace)
            for _ in range(8):  # statements are prepared once for each connection
                far.append("s", [draft("a")], "u")
                far.head("s"), far.read("s", after=3)

            def trips(call: Callable[[], Any]) -> int:
                before = line.requests
                call()
                return line.requests - before

            for _ in range(12):
                assert trips(lambda: far.append("s", [draft("b")], "u")) == 1
            assert trips(lambda: far.append("s", [draft("c"), draft("d")])) <= 8
            assert trips(lambda: (far.head("s"), far.read("s", after=3))) == 2
            assert store.append("s", [draft("e")]).end == 23
            assert trips(lambda: far.append("s", [draft("f")])) > 1
            assert trips(lambda: far.append("s", [draft("g")])) == 1
            assert far.move(replace(stored(far), start=1)) is not None
            assert trips(lambda: far.append("s", [draft("h")])) == 1
            far.close()

    def test_no_deletion_splits_an_append(self, server: Served, store: Store, other: Store) -> None:
        """Wrong: an entry is written to a deleted session, or to the next one under its id."""

        def append(handle: Store, name: str) -> None:
            for n in range(40):
                head = handle.append("s", [draft(f"{name}{n}"), draft("x")])
                assert head.end % 2 == 0

        def delete(handle: Store) -> None:
            for _ in range(40):
                handle.delete("s")

        appends = [partial(append, handle, name) for handle, name in ((store, "a"), (other, "b"))]
        together([*appends, *appends, partial(delete, store), partial(delete, other)])
        store.append("s", [draft("last")])
        entries = store.read("s")
        assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
        assert [e.total for e in entries] == list(range(3, 3 * len(entries) + 1, 3))
        orphans = (
            "SELECT count(*) FROM agent_memory_messages e WHERE NOT EXISTS (SELECT 1 "
            "FROM agent_memory_documents s WHERE s.namespace = e.namespace "
            "AND s.collection = 'head' AND s.id = e.session)"
        )
        with opened(server.url) as database:
            assert database.read(lambda c: c.value(orphans)) == 0

    def test_schedule_all_wakes_more_than_one_page_of_sessions(
        self, store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Wrong: only the first page of sessions is woken."""
        monkeypatch.setattr("agent_memory.stores.kernel.sessions.PAGE", 2)
        for n in range(5):
            assert store.schedule(store.append(f"s{n}", [draft("a")]), None if n % 2 else 60)
        together([store.schedule_all, other.schedule_all])
        assert len(store.due()) == 5

    def test_many_threads_share_limited_connections(self, server: Served, store: Store) -> None:
        """Wrong: a burst of threads uses all connections of the server."""
        own = server.private()
        together([partial(store.append, f"s{n}", [draft("a")]) for n in range(100)])
        assert store.counts().sessions == 100
        with opened(own.url) as database:
            assert database.read(lambda c: int(c.value(CONNECTIONS[scheme_of(own.url)]))) < 16

    def test_concurrent_processes_can_append(self, server: Served, namespace: str) -> None:
        """Wrong: processes that start together create a table twice, or lose a message."""
        check_writers(server.url, namespace, 2, 40)

    def test_calls_wait_for_a_connection(self, server: Served, store: Store) -> None:
        """Wrong: calls fail because the server permits fewer connections than they could use."""
        own, guest = server.private(), f"few_{uuid4().hex[:8]}"
        execute(own.url, *(text.format(guest, PASSWORD) for text in LIMITED[scheme_of(own.url)]))
        few = SQLStore(own.url_of(own.url.rpartition("/")[2], user=guest), guest)
        together([partial(few.append, "s", [draft(f"{n}"), draft("x")]) for n in range(24)])
        assert stored(few).end == 48
        few.close()

    def test_a_failover_ends_the_connections_to_the_old_primary(self, server: Served) -> None:
        """Wrong: after a failover, all writes go to the demoted server until the process ends."""
        demote, promote = DEMOTED[scheme_of(server.private().url)]
        with opened(server.url) as database:
            database.read(lambda c: c.value(demote))
            store = SQLStore(server.url, uuid4().hex)
            together([partial(store.head, "s")] * 8)
            with pytest.raises(StoreUnavailable, match=r"(?i)read.only"):
                store.append("s", [draft("a")])
            database.read(lambda c: c.value(promote))
        together([partial(store.append, "s", [draft("b")])] * 8)
        assert stored(store).end == 8
        store.close()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
    def test_a_forked_child_shares_no_connection(self, server: Served, namespace: str) -> None:
        """Wrong: parent and child share a connection, or the child's exit closes the parent's."""
        check_fork(server.url, namespace)

    def test_sqlalchemy_and_hosting_urls_are_accepted(self, server: Served, namespace: str) -> None:
        """Wrong: a URL in the form of SQLAlchemy or a hosting service is refused."""
        for scheme in self.schemes:
            SQLStore(f"{scheme}://{server.url.partition('://')[2]}", namespace).close()

    def test_a_missing_driver_is_reported_with_its_extra(self, server: Served) -> None:
        """Wrong: a missing driver raises an ImportError that does not name the extra."""
        code = (
            "import sys\n"
            "sys.modules['psycopg'] = sys.modules['pymysql'] = None\n"
            "from agent_memory.errors import MissingExtra\n"
            "from agent_memory.stores.sql.store import SQLStore\n"
            "try:\n"
            "    SQLStore(sys.argv[1])\n"
            "except MissingExtra as error:\n"
            "    assert 'agent-memory-log[' in str(error), error\n"
            "    assert 'tiger' not in str(error), error\n"
            "else:\n"
            "    sys.exit(1)\n"
        )
        finished(started(code, server.url))
