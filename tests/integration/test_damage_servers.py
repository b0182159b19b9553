"""One damaged record on a server concerns itself alone, and is put right; see `test_damage`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from agent_memory import AgentMemory, Summarize, VectorMemory, operations
from agent_memory.cli.doctor import _rank
from agent_memory.errors import Damaged
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.sql import Served, empty_database, opened, serve

pytest.importorskip("pymysql")

SESSIONS = [f"s{n}" for n in range(5)]
SERVERS: dict[str, tuple[Callable[[], Any], str]] = {
    "postgres": (PostgresServer, "AGENT_MEMORY_TEST_POSTGRES"),
    "mariadb": (MariaDBServer, "AGENT_MEMORY_TEST_MYSQL"),
}
_HEAD = "WHERE collection = 'head' AND id = 's1'"
CHANGES = {
    "body": f"documents SET body = '{{broken' {_HEAD}",
    "about": f"documents SET about = '{{broken' {_HEAD}",
    **{
        f"{name} {value}": f"documents SET {column} = '{{\"{name}\":{value}}}' {_HEAD}"
        for column, name, value in [
            ("body", "summary", '{"text":5}'),
            ("body", "system", "7"),
            ("about", "cursors", '["a"]'),
            ("about", "pinned", "7"),
        ]
    },
    "message": "messages SET body = 'x' WHERE seq = 2 AND session = 's1'",
    "vector": "documents SET body = 'x' WHERE collection LIKE 'vector:%' AND session = 's1'",
    "catalog": "documents SET body = '{x' WHERE collection LIKE 'catalog:%'",
    "segment": "documents SET data = 'x' WHERE collection LIKE 'segment:%'",
}


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Served]:
    make, variable = SERVERS[request.param]
    yield from serve(make, variable)


def remembering(url: str) -> AgentMemory:
    blocks = [VectorMemory()]
    return AgentMemory(store=url, blocks=blocks, overflow=Summarize(), max_tokens=2_000)


def said(number: int | str) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": f"the parrot number {number} likes mangos"},
        {"role": "assistant", "content": f"noted about parrot {number}"},
        {"role": "user", "content": f"thanks for parrot {number}"},
    ]


def found(memory: AgentMemory) -> set[str]:
    """The sessions of which something is recalled."""
    recalls = memory.search("which parrot likes mangos", user_id="ana", limit=50)
    return {session_id for one in recalls for session_id, _ in one.sources}


@pytest.mark.parametrize("change", CHANGES)
def test_one_record_stops_nobody_and_is_put_right(server: Served, change: str) -> None:
    """Wrong: on a server what is damaged hides what is whole, or `doctor --repair` leaves it."""
    url = empty_database(server)
    others = {*SESSIONS} - {"s1"}
    with remembering(url) as memory:
        for name in SESSIONS:
            memory.update(name, said(name), user_id="ana")
        memory.flush()
    with opened(url) as database:
        spoilt = f"UPDATE agent_memory_{CHANGES[change]}"
        database.read(lambda connection: connection.define(spoilt))
    with remembering(url) as memory:
        for name in others:
            memory.update(name, said("new"))
        with suppress(Damaged):
            memory.update("s1", said("new"))
        assert {one.session_id for one in memory.flush() if one.error is None} >= others
        assert memory.stats().sessions == len(SESSIONS)
        assert found(memory) >= others
        for error in sorted(operations.damaged(memory), key=_rank):
            operations.repair(memory, error)
        memory.flush()
        assert operations.damaged(memory) == []
        assert found(memory) == {*SESSIONS}
        assert memory.get("s1", "parrot").messages
