"""PostgreSQL's driver, psycopg 3."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper

from agent_memory.errors import ConfigError, StoreError, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.sql.compiled import Words
from agent_memory.stores.sql.database import TableMissing
from agent_memory.stores.sql.driver import (
    CALL_SECONDS,
    CONNECT_SECONDS,
    LOCK_SECONDS,
    PATIENT_SECONDS,
    ConnectionLost,
    InTheWay,
    Parameters,
)
from agent_memory.stores.sql.postgresql_words import WORDS

T = TypeVar("T")

_IN_THE_WAY = {"40001", "40P01", "23505"}  # serialization, deadlock, a row that another inserted
_UNAVAILABLE = ("08", "25006", "28", "3D", "42501", "53", "55P03", "57", "58")
_LOST = {"57P01", "57P02", "57P03"}  # the server shuts down, crashed, or starts
_SETTINGS = (
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; "
    "SET statement_timeout = '{call}s'; SET lock_timeout = '{lock}s'; "
    "SET idle_in_transaction_session_timeout = '60s'"  # of a process that stands still
)
_SYNC = (
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)


class _Slow(psycopg.OperationalError):
    """No answer in time."""


class _Connection(psycopg.Connection[Any]):
    """Gives up waiting for a server that does not answer."""

    seconds: float = CONNECT_SECONDS

    def wait(self, gen: Any, *args: Any, **settings: Any) -> Any:
        return super().wait(_hurried(gen, self.seconds), *args, **settings)

    def __del__(self, *_: object) -> None:
        """No complaint about one that is open: it was its pool's, perhaps in a parent process."""


def _hurried(gen: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    deadline = monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and monotonic() > deadline:
                raise _Slow(f"no answer within {seconds:.0f} seconds")
            wanted = gen.send(ready)
    except StopIteration as done:
        result: T = done.value
        return result


class PostgresDriver:
    """See `Driver`.

    Args:
        url: As libpq takes it; the scheme may be SQLAlchemy's too.
        durability: With "power", each commit waits for the disk whatever the server's default.

    Raises:
        ConfigError: The URL cannot be read.
    """

    errors = psycopg.Error
    find_table = "SELECT 1 WHERE to_regclass(%s) IS NOT NULL"
    hold_tables = "SELECT 1 FROM pg_advisory_lock(hashtext('agent_memory_tables'))"

    def __init__(self, url: str, durability: Durability) -> None:
        self._durability = durability
        rest = url.partition("://")[2]
        place, _, database = rest.partition("?")[0].partition("/")
        try:
            given = conninfo_to_dict(f"postgresql://{rest}")
        except psycopg.Error:
            given = None
        if place.count("@") > 1 or "@" in database:  # libpq takes what stands there for a host
            given = None
        if given is None:  # not from the driver's error, which may tell the password
            raise ConfigError(
                "The setting `store` is no URL that PostgreSQL can read. Write "
                "postgresql://user:password@host:5432/database, with %-escapes for special "
                "characters in the password."
            )
        defaults = {"connect_timeout": CONNECT_SECONDS, "application_name": "agent-memory"}
        self._given: dict[str, Any] = {**defaults, **given, "client_encoding": "utf8"}

    def connect(self, *, patient: bool = False) -> _Connection:
        try:
            raw = _Connection.connect(autocommit=True, **self._given)
        except psycopg.Error as error:
            told = " ".join(str(error).split()).rstrip(".?")
        else:
            return self._set_up(raw, patient)
        raise StoreUnavailable(
            f"The PostgreSQL server could not be used: {told}. See that it runs, and that host, "
            "port, user, password and database of the setting `store` are right."
        )

    def _set_up(self, raw: _Connection, patient: bool) -> _Connection:
        call, lock = (PATIENT_SECONDS, 60) if patient else (CALL_SECONDS, LOCK_SECONDS)
        try:
            encoding = raw.info.parameter_status("server_encoding")
            if encoding != "UTF8":
                raise ConfigError(
                    f"The PostgreSQL database of the setting `store` keeps {encoding}, which has "
                    "not all characters. Create one with ENCODING 'UTF8'."
                )
            raw.adapters.register_dumper(int, Int8BinaryDumper)  # one type: one prepared statement
            raw.execute(_SETTINGS.format(call=call, lock=lock).encode())
            if self._durability == "power":
                raw.execute(_SYNC)
        except psycopg.Error as error:
            failure = self.failure(raw, error)
            raw.close()
        except BaseException:
            raw.close()
            raise
        else:
            raw.seconds = call + 2.0  # the server gives up first
            return raw
        raise failure

    def words(self, raw: _Connection) -> Words:
        return WORDS

    def most_text(self, raw: _Connection) -> int | None:
        """See `Driver.most_text`."""
        return None

    def socket(self, raw: _Connection) -> int:
        return raw.pgconn.socket

    def usable(self, raw: _Connection) -> bool:
        return raw.pgconn.transaction_status == TransactionStatus.IDLE

    def change(self, raw: _Connection, text: str, parameters: Parameters) -> int:
        return raw.execute(text.encode(), parameters).rowcount

    def change_each(self, raw: _Connection, text: str, rows: Sequence[Parameters]) -> None:
        if len(rows) == 1:  # the driver streams many, at the cost of a round trip more
            raw.execute(text.encode(), rows[0])
            return
        with raw.cursor() as cursor:
            cursor.executemany(text.encode(), rows)

    def fetch(self, raw: _Connection, text: str, parameters: Parameters) -> Sequence[Any]:
        cursor = raw.execute(text.encode(), parameters or None, binary=True)
        return cursor.fetchall() if cursor.description else ()

    def define(self, raw: _Connection, text: str) -> None:
        raw.execute(text.encode())

    def failure(self, raw: _Connection, error: Exception) -> Exception:
        state, primary = "", None
        if isinstance(error, psycopg.Error):
            state, primary = error.sqlstate or "", error.diag.message_primary
        told = f"The PostgreSQL server failed: {primary or error}".split("\n")[0].rstrip(".") + "."
        if isinstance(error, _Slow):
            raw.close()
            return ConnectionLost(told, again=False)
        if state in _LOST or raw.closed or raw.pgconn.status != ConnStatus.OK:
            raw.close()
            return ConnectionLost(told)
        if state in _IN_THE_WAY:
            return InTheWay(told)
        if state == "42501":
            return StoreUnavailable(
                f"{told} Grant it to the user of the setting `store`, or let another user open "
                "the store once, so that its tables are made."
            )
        if state == "42P01":
            return TableMissing(told)
        return StoreUnavailable(told) if state.startswith(_UNAVAILABLE) else StoreError(told)
