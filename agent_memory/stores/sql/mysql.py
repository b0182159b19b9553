"""The driver of MySQL and MariaDB, PyMySQL."""

from __future__ import annotations

import ssl
from typing import Any

import pymysql
import pymysql.connections
from pymysql.constants import CLIENT, CR, ER, SERVER_STATUS
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from agent_memory.errors import ConfigError, StoreError, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.sql import server
from agent_memory.stores.sql.database import TableMissing
from agent_memory.stores.sql.server import CALL_SECONDS, CONNECT_SECONDS, LOCK_SECONDS

_LOST = {CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, ER.SERVER_SHUTDOWN, 0, 1927, 4031}
_IN_THE_WAY = {ER.LOCK_DEADLOCK, ER.DUP_ENTRY, ER.CHECKREAD}
_THERE_ALREADY = {
    ER.TABLE_EXISTS_ERROR,
    ER.DUP_FIELDNAME,
    ER.DUP_KEYNAME,
    ER.CANT_DROP_FIELD_OR_KEY,  # dropped already
}
_FORBIDDEN = {
    ER.DBACCESS_DENIED_ERROR,
    ER.ACCESS_DENIED_ERROR,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.COLUMNACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
}
_FULL = {ER.CON_COUNT_ERROR, ER.TOO_MANY_USER_CONNECTIONS, ER.USER_LIMIT_REACHED}
_READ_ONLY = {ER.OPTION_PREVENTS_STATEMENT, 1792, 1836}  # 1792: ... in a read-only transaction
_UNAVAILABLE = {
    *_FORBIDDEN,
    ER.CON_COUNT_ERROR,
    ER.DISK_FULL,
    ER.LOCK_WAIT_TIMEOUT,
    *_READ_ONLY,
    1969,  # MariaDB's max_statement_time
}
_SETTINGS = "SET SESSION innodb_lock_wait_timeout = %s, wait_timeout = 600"
_FACTS = "SELECT VERSION(), @@max_allowed_packet, @@innodb_flush_log_at_trx_commit"
_OPTIONS = {"unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_identity"}
_BYTES_OF_A_CHARACTER = 5  # assumed maximum, with a reserve for the statement's text
_contexts: dict[str, ssl.SSLContext] = {}


class _TooLong(pymysql.DataError):
    """The statement exceeds the server's limit. The server would close the connection silently."""


_Base: Any = pymysql.connections.Connection  # PyMySQL's stubs lack some of its members


class _Connection(_Base):  # type: ignore[misc]
    """A connection that refuses statements above its server's limit."""

    dialect = "mysql"
    longest = 2**20
    broken = False

    @property
    def most_text(self) -> int:
        return self.longest // _BYTES_OF_A_CHARACTER

    @property
    def is_usable(self) -> bool:
        in_transaction = self.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS
        return self.open and not self.broken and not in_transaction

    def fileno(self) -> int:
        descriptor: int = self._sock.fileno()
        return descriptor

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        # A context reads the system's certificates, which takes longer than connecting.
        key = repr(sslp)
        if key not in _contexts:
            _contexts[key] = super()._create_ssl_ctx(sslp)
            if sslp.get("check_hostname"):  # without `ssl_ca`, PyMySQL checks no host name
                _contexts[key].check_hostname = True
        return _contexts[key]

    def query(self, sql: Any, unbuffered: bool = False) -> Any:
        if len(sql) * 4 > self.longest:
            size = len(sql.encode(errors="surrogateescape") if isinstance(sql, str) else sql)
            if size >= self.longest:
                raise _TooLong(size)
        return super().query(sql, unbuffered)


class MySQLDriver(server.Driver):
    errors = pymysql.Error
    find_table = (
        "SELECT 1 FROM information_schema.tables "
        "WHERE table_schema = DATABASE() AND table_name = %s"
    )

    def __init__(self, url: str, durability: Durability | None) -> None:
        self._durability = durability
        try:
            address = make_url("mysql+pymysql://" + url.partition("://")[2])
        except (ArgumentError, ValueError):
            address = None
        if address is not None and "@" in (address.host or ""):  # an unescaped @ in the password
            address = None
        if address is None or not address.database:  # the driver's error may repeat the password
            raise ConfigError(
                "The setting `store` is not a URL of a MySQL or MariaDB database. Write "
                "mysql://user:password@host:3306/database, with %-escapes for special characters "
                "in the password."
            )
        options: dict[str, Any] = dict(address.query)
        if unknown := sorted(set(options) - _OPTIONS):
            raise ConfigError(
                f"The setting `store` has the option {unknown[0]!r}, which MySQL does not support. "
                f"Supported: {', '.join(sorted(_OPTIONS))}."
            )
        if verify := options.pop("ssl_verify_identity", None):
            options["ssl_verify_identity"] = verify == "true"
        if "ssl_ca" in options:  # otherwise PyMySQL would not verify certificates
            options["ssl_verify_cert"] = True
        self._arguments: dict[str, Any] = {
            "host": address.host or "localhost",
            "port": address.port or 3306,
            "user": address.username,
            "password": address.password or "",
            "database": address.database,
            **options,
        }
        self._place = options.get("unix_socket") or "{host}:{port}".format(**self._arguments)

    def open(self) -> _Connection:
        try:
            return _Connection(
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                read_timeout=CONNECT_SECONDS,
                write_timeout=CONNECT_SECONDS,
                client_flag=CLIENT.FOUND_ROWS,  # counts matched rows, not only changed ones
                sql_mode="STRICT_ALL_TABLES",
                init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
                **self._arguments,
            )
        except (pymysql.Error, OSError) as error:
            reason = _error_text(error)
            if _code(error) in _FULL:
                raise server.ServerFull(
                    f"The MySQL server at {self._place} accepts no connection: {reason}"
                ) from None
        except RuntimeError as error:  # PyMySQL raises it without the package `cryptography`
            reason = str(error)
        raise StoreUnavailable(
            f"The MySQL server at {self._place} could not be used: {reason} Check that it runs, "
            "and that host, port, user, password and database in the setting `store` are correct."
        )

    def set_up(self, raw: _Connection) -> None:
        with raw.cursor() as cursor:
            cursor.execute(_SETTINGS, [LOCK_SECONDS])
            cursor.execute(_FACTS)
            ((version, raw.longest, flush),) = cursor.fetchall()
        if self._durability == "power" and flush != 1:
            raise ConfigError(
                'durability="power" requires a MySQL server that syncs each commit to disk. '
                "Set innodb_flush_log_at_trx_commit = 1 there."
            )
        if "mariadb" in version.lower():
            raw.dialect = "mariadb"
        raw._read_timeout = CALL_SECONDS
        raw._write_timeout = CALL_SECONDS

    def ignores(self, error: Exception) -> bool:
        return _code(error) in _THERE_ALREADY

    def failure(self, raw: _Connection, error: Exception) -> Exception:
        if isinstance(error, _TooLong):
            return StoreError(
                f"A statement has {error.args[0]:,} bytes, but the MySQL server accepts at most "
                f"{raw.longest:,}. Nothing was written. Raise the server's max_allowed_packet."
            )
        code, reason = _code(error), f"The MySQL server failed: {_error_text(error)}"
        if "timed out" in reason:  # PyMySQL closed the connection
            return server.ConnectionLost(reason, again=False)
        if code in _LOST or not raw.open:
            raw.broken = True
            return server.ConnectionLost(reason)
        if code in _IN_THE_WAY:
            return server.InTheWay(reason)
        if code in _READ_ONLY:  # after a failover, the address leads to another server
            raw.broken = True
        if code in _FORBIDDEN:
            return StoreUnavailable(f"{reason} {server.GRANT}")
        if code == ER.NO_SUCH_TABLE:
            return TableMissing(reason)
        return StoreUnavailable(reason) if code in _UNAVAILABLE else StoreError(reason)


def _code(error: Exception) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else -1


def _error_text(error: Exception) -> str:
    """Return the text of an error, without the value that a duplicate-key error repeats."""
    if _code(error) == ER.DUP_ENTRY:
        return "a row already exists."
    return str(error.args[-1] if error.args else error).rstrip(".") + "."
