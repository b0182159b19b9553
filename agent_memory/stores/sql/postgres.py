"""The driver of PostgreSQL, psycopg 3."""

from __future__ import annotations

import re
from collections.abc import Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper

from agent_memory.errors import ConfigError, StoreError, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.sql import server
from agent_memory.stores.sql.database import TableMissing
from agent_memory.stores.sql.server import CALL_SECONDS, CONNECT_SECONDS, LOCK_SECONDS

T = TypeVar("T")

# serialization failure, deadlock, and a row, table or type that another transaction created
_IN_THE_WAY = {"40001", "40P01", "23505", "42P07", "42710"}
_UNAVAILABLE = ("08", "25006", "28", "3D", "42501", "53", "55P03", "57", "58")
_POOLED = "pgbouncer=true"  # the option of a URL for a pooler in transaction mode
# texts of servers and poolers: an error of connecting has no code
_FULL = re.compile("too many|connection slots|no more connections|max client", re.IGNORECASE)
_LOST = {"57P01", "57P02", "57P03"}  # the server shuts down, crashed, or starts
# A pooler lends a server's session to other clients after each transaction, so that settings and
# prepared statements do not stay. Its clients see another process id than the server's.
_SETTINGS = """
SELECT set_config(name, value, false)
FROM (VALUES ('default_transaction_isolation', 'read committed'), ('statement_timeout', '{}s'),
  ('lock_timeout', '{}s'), ('idle_in_transaction_session_timeout', '60s'),
  ('synchronous_commit', 'on')) AS settings (name, value)
WHERE pg_backend_pid() = {} AND (name <> 'synchronous_commit' OR current_setting(name) = {})
"""


class _Slow(psycopg.OperationalError):
    """The server did not answer in time."""


class _Connection(psycopg.Connection[Any]):
    """A connection that stops waiting for a server after a time limit."""

    dialect = "postgresql"
    most_text = None
    seconds: float = CONNECT_SECONDS

    @property
    def is_usable(self) -> bool:
        return self.pgconn.transaction_status == TransactionStatus.IDLE

    def wait(self, gen: Any, *args: Any, **settings: Any) -> Any:
        return super().wait(_with_time_limit(gen, self.seconds), *args, **settings)

    def __del__(self, *_: object) -> None:
        """Suppress the warning about an open connection, which may belong to a parent process."""


def _with_time_limit(gen: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    deadline = monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and monotonic() > deadline:
                raise _Slow(f"no answer within {seconds:.0f} seconds")
            wanted = gen.send(ready)
    except StopIteration as stopped:
        result: T = stopped.value
        return result


class PostgresDriver(server.Driver):
    errors = psycopg.Error
    find_table = "SELECT 1 WHERE to_regclass(%s) IS NOT NULL"

    def __init__(self, url: str, durability: Durability | None) -> None:
        self._durability = durability
        rest, _, query = url.partition("://")[2].partition("?")
        place, _, database = rest.partition("/")
        self._is_pooled = _POOLED in query.split("&")
        options = "&".join(option for option in query.split("&") if option != _POOLED)
        try:
            address = conninfo_to_dict(f"postgresql://{rest}?{options}")
        except psycopg.Error:
            address = None
        # an unescaped "@", perhaps in the password, would make libpq misread the host
        if place.count("@") > 1 or "@" in database:
            address = None
        if address is None:  # raised here, because the driver's error may repeat the password
            raise ConfigError(
                "The setting `store` is not a URL that PostgreSQL can read. Write "
                "postgresql://user:password@host:5432/database, with %-escapes for special "
                "characters in the password. After a question mark it may have options of libpq, "
                f"such as sslmode=require, and {_POOLED}. Remove other options."
            )
        defaults = {"connect_timeout": CONNECT_SECONDS, "application_name": "agent-memory"}
        self._arguments: dict[str, Any] = {**defaults, **address, "client_encoding": "utf8"}

    def open(self) -> _Connection:
        try:
            return _Connection.connect(autocommit=True, **self._arguments)
        except psycopg.Error as error:
            reason = " ".join(str(error).split()).rstrip(".?")
        if _FULL.search(reason):
            raise server.ServerFull(f"The PostgreSQL server accepts no connection: {reason}.")
        raise StoreUnavailable(
            f"The PostgreSQL server could not be used: {reason}. Check that it runs, and that "
            "host, port, user, password and database in the setting `store` are correct."
        )

    def set_up(self, raw: _Connection) -> None:
        encoding = raw.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise ConfigError(
                f"The PostgreSQL database of the setting `store` uses {encoding}, which lacks "
                "some characters. Create a database with ENCODING 'UTF8'."
            )
        # with one type for all integers, each statement is prepared only once
        raw.adapters.register_dumper(int, Int8BinaryDumper)
        pid = 0 if self._is_pooled else raw.info.backend_pid
        weak = "''" if self._durability == "process" else "'off'"
        text = _SETTINGS.format(CALL_SECONDS, LOCK_SECONDS, pid, weak)
        if not raw.execute(text.encode()).fetchall():
            raw.prepare_threshold = None
            commits = raw.execute(b"SHOW synchronous_commit").fetchone()
            if commits == ("off",) and self._durability != "process":
                raise ConfigError(
                    "Behind a pooler, the PostgreSQL database itself must sync commits. Run ALTER "
                    "DATABASE name SET synchronous_commit = on, or set durability to process."
                )
        raw.seconds = CALL_SECONDS + 2.0  # the server's own limit ends a call first

    def cursor(self, raw: _Connection, *, has_values: bool) -> Any:
        return raw.cursor(binary=has_values)

    def failure(self, raw: _Connection, error: Exception) -> Exception:
        state, primary = "", None
        if isinstance(error, psycopg.Error):
            state, primary = error.sqlstate or "", error.diag.message_primary
        text = str(primary or error).split("\n")[0].rstrip(".")
        reason = f"The PostgreSQL server failed: {text}."
        if isinstance(error, _Slow):
            raw.close()
            return server.ConnectionLost(reason, again=False)
        if state in _LOST or raw.closed or raw.pgconn.status != ConnStatus.OK:
            raw.close()
            return server.ConnectionLost(reason)
        if state in _IN_THE_WAY:
            return server.InTheWay(reason)
        if state == "25006":  # read-only: after a failover, the address leads to another server
            raw.close()
        if state == "42501":
            return StoreUnavailable(f"{reason} {server.GRANT}")
        if state == "42P01":
            return TableMissing(reason)
        return StoreUnavailable(reason) if state.startswith(_UNAVAILABLE) else StoreError(reason)
