"""MySQL's and MariaDB's driver, PyMySQL."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pymysql
import pymysql.connections
from pymysql.constants import CLIENT, CR, ER, SERVER_STATUS
from pymysql.cursors import Cursor
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

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

_LOST = {CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, ER.SERVER_SHUTDOWN, 0, 1927, 4031}
_IN_THE_WAY = {ER.LOCK_DEADLOCK, ER.DUP_ENTRY, ER.CHECKREAD}
_THERE_ALREADY = {
    ER.TABLE_EXISTS_ERROR,
    ER.DUP_FIELDNAME,
    ER.DUP_KEYNAME,
    ER.CANT_DROP_FIELD_OR_KEY,  # gone already
}
_FORBIDDEN = {
    ER.DBACCESS_DENIED_ERROR,
    ER.ACCESS_DENIED_ERROR,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.COLUMNACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
}
_UNAVAILABLE = {
    *_FORBIDDEN,
    ER.CON_COUNT_ERROR,
    ER.DISK_FULL,
    ER.LOCK_WAIT_TIMEOUT,
    ER.OPTION_PREVENTS_STATEMENT,  # read-only, as a replica is
    1969,  # MariaDB's max_statement_time
}
_READ_COMMITTED = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
_SETTINGS = "SET SESSION innodb_lock_wait_timeout = %s, wait_timeout = 600"
_FACTS = "SELECT VERSION(), @@max_allowed_packet, @@innodb_flush_log_at_trx_commit"
_OPTIONS = {"unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_identity"}


_BYTES_OF_A_CHARACTER = 5  # at most, and something for the rest of the statement
_contexts: dict[str, ssl.SSLContext] = {}


class _TooLong(pymysql.DataError):
    """The server would close the connection without a word."""


if TYPE_CHECKING:

    class _Base(pymysql.connections.Connection[Cursor]):  # with what its stubs leave out
        server_status: int
        _sock: socket.socket
        _read_timeout: float | None
        _write_timeout: float | None

        def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext: ...

else:
    _Base = pymysql.connections.Connection


class _Connection(_Base):
    """Sends no statement that its server does not take.

    Attributes:
        version: The server's.
        longest: Bytes that a statement may have.
        broken: The server has ended it.
    """

    version = ""
    longest = 2**20
    broken = False

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        # it reads the system's certificates, which takes longer than all else of connecting
        key = repr(sslp)
        if key not in _contexts:
            _contexts[key] = super()._create_ssl_ctx(sslp)
        return _contexts[key]

    def query(self, sql: Any, unbuffered: bool = False) -> Any:
        if len(sql) * 4 > self.longest:
            size = len(sql.encode(errors="surrogateescape") if isinstance(sql, str) else sql)
            if size >= self.longest:
                raise _TooLong(size)
        return super().query(sql, unbuffered)


class MySQLDriver:
    """See `Driver`.

    Args:
        url: With host, user, password and database, percent-encoded, and options.
        durability: With "power", a server that does not sync each commit is refused.

    Raises:
        ConfigError: The URL cannot be read.
    """

    errors = pymysql.Error
    find_table = (
        "SELECT 1 FROM information_schema.tables "
        "WHERE table_schema = DATABASE() AND table_name = %s"
    )
    hold_tables = "SELECT GET_LOCK(CONCAT('agent_memory_', LEFT(MD5(DATABASE()), 16)), 60)"

    def __init__(self, url: str, durability: Durability) -> None:
        self._durability = durability
        try:
            given = make_url("mysql+pymysql://" + url.partition("://")[2])
        except (ArgumentError, ValueError):
            given = None
        if given is not None and "@" in (given.host or ""):  # the end of the password
            given = None
        if given is None or not given.database:  # the driver's words may tell the password
            raise ConfigError(
                "The setting `store` is no URL of a MySQL or MariaDB database. Write "
                "mysql://user:password@host:3306/database, with %-escapes for special characters "
                "in the password."
            )
        options: dict[str, Any] = dict(given.query)
        if unknown := sorted(set(options) - _OPTIONS):
            raise ConfigError(
                f"The setting `store` has the option {unknown[0]!r}, which no MySQL store knows. "
                f"Known are {', '.join(sorted(_OPTIONS))}."
            )
        if verify := options.pop("ssl_verify_identity", None):
            options["ssl_verify_identity"] = verify == "true"
        if "ssl_ca" in options:  # PyMySQL would take it and look at no certificate
            options["ssl_verify_cert"] = True
        self._given: dict[str, Any] = {
            "host": given.host or "localhost",
            "port": given.port or 3306,
            "user": given.username,
            "password": given.password or "",
            "database": given.database,
            **options,
        }
        self._place = options.get("unix_socket") or "{host}:{port}".format(**self._given)

    def connect(self, *, patient: bool = False) -> _Connection:
        try:
            raw = _Connection(
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                read_timeout=CONNECT_SECONDS,
                write_timeout=CONNECT_SECONDS,
                client_flag=CLIENT.FOUND_ROWS,  # a row counts though its values stay the same
                sql_mode="STRICT_ALL_TABLES",
                init_command=_READ_COMMITTED,
                **self._given,
            )
        except (pymysql.Error, OSError) as error:
            told = _error_text(error)
        except RuntimeError as error:  # PyMySQL's way to ask for `cryptography`
            told = str(error)
        else:
            return self._set_up(raw, patient)
        raise StoreUnavailable(
            f"The MySQL server could not be used, at {self._place}: {told} See that it runs, and "
            "that host, port, user, password and database of the setting `store` are right."
        )

    def _set_up(self, raw: _Connection, patient: bool) -> _Connection:
        try:
            self.change(raw, _SETTINGS, [LOCK_SECONDS])
            ((raw.version, longest, flush),) = self.fetch(raw, _FACTS, ())
            if self._durability == "power" and flush != 1:
                raise ConfigError(
                    'durability="power" needs a MySQL server that syncs each commit to its disk. '
                    "Set innodb_flush_log_at_trx_commit = 1 there."
                )
        except pymysql.Error as error:
            failure = self.failure(raw, error)
            raw.close()
        except BaseException:
            raw.close()
            raise
        else:
            raw.longest = longest
            raw._read_timeout = PATIENT_SECONDS if patient else CALL_SECONDS
            raw._write_timeout = CALL_SECONDS
            return raw
        raise failure

    def words(self, raw: _Connection) -> Words:
        if "mariadb" in raw.version.lower():
            from agent_memory.stores.sql.mariadb_words import WORDS
        else:
            from agent_memory.stores.sql.mysql_words import WORDS
        return WORDS

    def most_text(self, raw: _Connection) -> int | None:
        """See `Driver.most_text`."""
        return raw.longest // _BYTES_OF_A_CHARACTER

    def socket(self, raw: _Connection) -> int:
        return raw._sock.fileno()

    def usable(self, raw: _Connection) -> bool:
        if raw.broken or not raw.open:
            return False
        return not raw.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS

    def change(self, raw: _Connection, text: str, parameters: Parameters) -> int:
        with raw.cursor() as cursor:
            changed: int = cursor.execute(text, parameters or None)
            return changed

    def change_each(self, raw: _Connection, text: str, rows: Sequence[Parameters]) -> None:
        with raw.cursor() as cursor:
            cursor.executemany(text, rows)

    def fetch(self, raw: _Connection, text: str, parameters: Parameters) -> Sequence[Any]:
        with raw.cursor() as cursor:
            cursor.execute(text, parameters or None)
            return tuple(cursor.fetchall())

    def define(self, raw: _Connection, text: str) -> None:
        try:
            self.change(raw, text, ())
        except pymysql.Error as error:
            if _code(error) not in _THERE_ALREADY:
                raise

    def failure(self, raw: _Connection, error: Exception) -> Exception:
        if isinstance(error, _TooLong):
            return StoreError(
                f"The MySQL server takes statements of up to {raw.longest:,} bytes, and this one "
                f"has {error.args[0]:,}. Raise max_allowed_packet there; nothing was written."
            )
        code, told = _code(error), f"The MySQL server failed: {_error_text(error)}"
        if "timed out" in told:  # PyMySQL closed the connection
            return ConnectionLost(told, again=False)
        if code in _LOST or not raw.open:
            raw.broken = True
            return ConnectionLost(told)
        if code in _IN_THE_WAY:
            return InTheWay(told)
        if code in _FORBIDDEN:
            return StoreUnavailable(
                f"{told} Grant it to the user of the setting `store`, or let another user open "
                "the store once, so that its tables are made."
            )
        if code == ER.NO_SUCH_TABLE:
            return TableMissing(told)
        return StoreUnavailable(told) if code in _UNAVAILABLE else StoreError(told)


def _code(error: Exception) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else -1


def _error_text(error: Exception) -> str:
    """What happened, without the entry that a duplicate names."""
    if _code(error) == ER.DUP_ENTRY:
        return "a row is there already."
    return str(error.args[-1] if error.args else error).rstrip(".") + "."
