"""Connections to a Redis server or cluster, their errors, and the server's durability."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from agent_memory.core.processes import begin_anew_in_child
from agent_memory.errors import ConfigError, MissingExtra, StoreError, StoreUnavailable
from agent_memory.stores.base import UNSURE
from agent_memory.stores.redis import redis_options, redis_place
from agent_memory.stores.redis.scripts import Script

try:
    from redis import exceptions
    from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
except ImportError as error:
    raise MissingExtra("A Redis store", "redis") from error

T = TypeVar("T")

Argument = str | bytes | int
"""One word of a Redis command."""

CONNECT_SECONDS = 5.0
CALL_SECONDS = 10.0
_MOST = 32
_HOPS = 5
_REWRITE_SECONDS = 5.0
_FULL, _FULL_SECONDS = "max number of clients", 0.05
_REFUSALS = (exceptions.BusyLoadingError, exceptions.ReadOnlyError, exceptions.OutOfMemoryError)
_NOT_NOW = ("MISCONF", "NOREPLICAS", "BUSY", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "OOM")
_WITHIN = re.compile(r": -([A-Z]+) ")
"""The code of an error inside a script, as servers before version 7 report it."""
_DRIVER = (exceptions.RedisError, OSError)
_SURVIVES = {
    "always": "a power loss",
    "everysec": (
        "the end of the server. A power loss destroys the updates of the last second or two"
    ),
    "no": (
        "the end of the server. A power loss destroys the updates that the system has not written "
        "yet, often half a minute"
    ),
}
"""The failures that an acknowledged update survives, by the setting `appendfsync`."""

_QUICKER = "already in progress"
"""Part of the error if another client has just begun a rewrite. No second rewrite is needed."""

logger = logging.getLogger(__name__)


class Lost(StoreUnavailable):
    """The connection broke after a command was sent. The command may have run or not."""


class RedisServer:
    """The connections to the server in a URL, or to another node of its cluster at `address`.

    Threads share the connections. A forked child opens new connections. If the server has closed a
    connection, for example by a restart, the connection is replaced before a command is sent.

    A node of a cluster redirects commands to the node that has the keys. All keys of a namespace
    are on one node. After a redirect, commands are sent to that node directly.
    """

    def __init__(self, url: str, address: str | None = None) -> None:
        options = redis_options(url)
        self.place = redis_place(url)
        if address is not None:
            options["host"], _, port = address.rpartition(":")
            options["port"] = int(port)
            self.place = address
        self._kind: type[Any] = Connection
        if "path" in options:
            self._kind = UnixDomainSocketConnection
        elif url.startswith("rediss:"):
            self._kind = SSLConnection
        if "path" not in options:
            options["socket_keepalive"] = True
        self._options = {
            **options, "protocol": 2, "socket_connect_timeout": CONNECT_SECONDS,
            "socket_timeout": CALL_SECONDS,
        }  # fmt: skip
        self._closed = False
        self._url = url
        self._nodes: dict[str, RedisServer] = {}
        self._address: str | None = None  # the node that has the keys; None for this node
        self._begin_anew()
        begin_anew_in_child(self, RedisServer._begin_anew)

    def _begin_anew(self) -> None:
        self._idle: list[Any] = []
        self._free = threading.Semaphore(_MOST)

    def nodes(self) -> list[RedisServer]:
        """Return the primaries of a cluster, or only this server if it is not in a cluster."""
        try:
            slots = self.ask("CLUSTER", "SLOTS")
        except StoreError as error:
            forbidden = isinstance(error.__cause__, exceptions.NoPermissionError)
            if isinstance(error, StoreUnavailable) and not forbidden:
                raise
            return [self]  # no cluster, or the user has no right to run CLUSTER
        # an empty host means the host of the node that replied
        names = {f"{slot[2][0].decode() or self._host}:{slot[2][1]}" for slot in slots}
        return [self._node(name) for name in sorted(names)]

    def _node(self, address: str) -> RedisServer:
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes.setdefault(address, RedisServer(self._url, address))
        return node

    @property
    def _host(self) -> str:
        return str(self._options.get("host", ""))

    def ask(self, *command: Argument) -> Any:
        """Return the answer to a command. If the connection breaks, send it a second time."""
        try:
            return self._again(lambda: self.answer(command))
        except _DRIVER as error:
            raise failure(error, self.place) from error

    def run(
        self, script: Script, keys: Sequence[str], *values: Argument, repeat: bool = False
    ) -> Any:
        """Return the result of a script. With `repeat`, send it again if the connection breaks.

        Raises:
            StoreUnavailable: The server cannot be used now. The script may have run or not.
        """
        if repeat:
            return self._again(lambda: self.attempt(script, keys, *values))
        return self.attempt(script, keys, *values)

    def attempt(self, script: Script, keys: Sequence[str], *values: Argument) -> Any:
        """Run a script once. Raise `Lost` if the connection breaks before the answer."""
        rest = (len(keys), *keys, *values)
        try:
            try:
                return self.answer(("EVALSHA", script.digest, *rest))
            except exceptions.NoScriptError:  # the server is new, or was restarted
                return self.answer(("EVAL", script.source, *rest))
        except _DRIVER as error:
            raise failure(error, self.place) from error

    def close(self) -> None:
        """Close the connections. A connection in use is closed after its call. Idempotent."""
        self._closed = True
        self._disconnect()
        for node in [*self._nodes.values()]:
            node.close()

    def _disconnect(self) -> None:
        """Close the idle connections."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.disconnect()

    def _again(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except Lost:
            return ask()

    def answer(self, command: Sequence[Argument]) -> Any:
        """Send a command to the node that has the keys, and return the answer.

        Raises:
            Lost: The connection broke; the command may have run or not.
            RedisError: The server refuses the command, or cannot be reached.
        """
        address, hops = self._address, 0
        while True:
            try:
                node = self if address is None else self._node(address)
                return node._answer(command, asking=hops > 0)
            except exceptions.AskError as to:  # or MovedError, its subclass
                hops += 1
                if hops > _HOPS:
                    raise
                address = f"{to.host or self._host}:{to.port}"
                if isinstance(to, exceptions.MovedError):
                    self._address = address
            except (exceptions.ConnectionError, OSError, Lost):
                # the next call begins at another known node, as this node may be gone
                addresses = [None, *self._nodes]
                self._address = addresses[(addresses.index(address) + 1) % len(addresses)]
                raise

    def _answer(self, command: Sequence[Argument], *, asking: bool) -> Any:
        """Return this node's answer. With `asking`, also for keys that are moving to this node."""
        if self._closed:
            raise StoreUnavailable("The store was closed. Open it again.")
        if not self._free.acquire(timeout=CALL_SECONDS):
            raise StoreUnavailable(
                f"All {_MOST} connections to the Redis server at {self.place} are in use."
            )
        free, deadline = self._free, time.monotonic() + CALL_SECONDS
        try:
            while True:
                try:
                    answer = self._exchanged(command, asking)
                    break
                except exceptions.ConnectionError as error:
                    if _FULL not in str(error) or time.monotonic() > deadline:
                        raise
                    time.sleep(_FULL_SECONDS)  # meanwhile another thread may end its call
            if self._closed:
                self.close()
        finally:
            free.release()
        if isinstance(answer, Exception):
            # after a failover, the address leads to another server
            if isinstance(answer, exceptions.ReadOnlyError) or "READONLY" in str(answer):
                self._disconnect()
            raise answer
        return answer

    def _exchanged(self, command: Sequence[Argument], asking: bool) -> Any:
        connection = self._connected()
        try:
            if asking:
                _answer(connection, ("ASKING",), self.place)
            answer = _answer(connection, command, self.place)
        except BaseException:
            connection.disconnect()  # a late answer must not be read as the next call's
            raise
        self._idle.append(connection)
        return answer

    def _connected(self) -> Any:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._kind(**self._options)
        else:
            try:
                if not connection.can_read(timeout=0):
                    return connection
            except _DRIVER:
                pass
            connection.disconnect()
        connection.connect()
        return connection

    def durability_note(self) -> str:
        """Describe, by the server's settings, which failures an acknowledged write survives."""
        settings = self._settings("appendonly", "appendfsync", "save", "maxmemory-policy")
        appendonly, policy = (
            settings.get("appendonly"),
            settings.get("maxmemory-policy", "noeviction"),
        )
        if appendonly is None:
            note = (
                "The server does not show its settings. Make sure that it has `appendonly yes`, "
                "and `appendfsync everysec` or `always`. Without these settings, a restart loses "
                "updates."
            )
        elif appendonly != "yes":
            snapshots = "the last snapshot" if settings.get("save") else "nothing"
            note = (
                f"appendonly is off: when the server stops, {snapshots} remains. Updates survive "
                "the end of your process, but not of the server. Set `appendonly yes`."
            )
        else:
            value = settings.get("appendfsync", "")
            value = value if value in _SURVIVES else "no"
            note = f"appendfsync is {value}: an acknowledged update survives {_SURVIVES[value]}."
        if policy != "noeviction":
            note += (
                f" maxmemory-policy is {policy}: a full server evicts data. Set "
                "`maxmemory-policy noeviction`."
            )
        return note

    def require_power(self) -> None:
        """Raise `ConfigError` unless the server syncs each write to the disk."""
        settings = self._settings("appendonly", "appendfsync")
        if settings != {"appendonly": "yes", "appendfsync": "always"}:
            raise ConfigError(
                f"durability='power' needs `appendonly yes` and `appendfsync always` on the Redis "
                f"server at {self.place}. {self.durability_note()}"
            )

    def rewrite_files(self) -> None:
        """Make the server rewrite its append-only file and snapshot, if enabled. Log a failure."""
        try:
            if self._persistence().get("aof_enabled") == "1":
                self._when_idle("BGREWRITEAOF")
            if self._settings("save").get("save", "on"):
                self._when_idle("BGSAVE")
        except StoreError as error:
            logger.warning(
                "%s Deleted data may stay in the server's files until the server rewrites them.",
                error,
            )

    def _when_idle(self, command: str) -> None:
        """Begin a rewrite, after the end of a running one, which may write deleted data."""
        deadline = time.monotonic() + _REWRITE_SECONDS
        while True:
            state = self._persistence()
            if "1" not in (
                state.get("rdb_bgsave_in_progress"),
                state.get("aof_rewrite_in_progress"),
            ):
                try:
                    self.ask(command)
                except StoreError as error:
                    if _QUICKER not in str(error):
                        raise
                return
            if time.monotonic() > deadline:
                raise StoreError(f"The Redis server at {self.place} is busy writing its files.")
            time.sleep(0.05)

    def _persistence(self) -> dict[str, str]:
        lines = self.ask("INFO", "persistence").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def _settings(self, *names: str) -> dict[str, str]:
        """Return the values of settings by name, without those that the server does not reveal."""
        values: dict[str, str] = {}
        for name in names:
            try:
                answer = self.ask("CONFIG", "GET", name)
            except StoreError:  # some servers have no CONFIG, others forbid it
                return values
            if answer:
                values[name] = answer[1].decode()
        return values


def _answer(connection: Any, command: Sequence[Argument], place: str) -> Any:
    """Return the answer to a command. If the answer is an error, return the exception."""
    try:
        connection.send_packed_command([_packed(command)])
        return connection.read_response()
    except exceptions.ResponseError as error:
        return error
    except exceptions.BusyLoadingError:
        raise
    except (exceptions.ConnectionError, OSError) as error:
        if _FULL in str(error):  # the server has not run the command
            raise
        raise Lost(str(failure(error, place))) from error


def _packed(command: Sequence[Argument]) -> bytes:
    """Encode a command, 3 times faster than the driver."""
    parts = [b"*%d\r\n" % len(command)]
    for part in command:
        text = part if isinstance(part, bytes) else str(part).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(parts)


def failure(error: Exception, place: str) -> StoreError:
    """Translate an error of the driver or the system. These errors do not contain the password."""
    server, text = f"The Redis server at {place}", str(error)
    within = _WITHIN.search(text)
    code = within[1] if within else ""
    refused = isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError)
    if refused or text.startswith(("NOAUTH", "WRONGPASS")):
        return StoreUnavailable(
            f"{server} refuses the user or password in the setting `store`. Correct them, or add "
            "them if they are missing."
        )
    if isinstance(error, exceptions.NoPermissionError) or code == "NOPERM":
        return StoreUnavailable(
            f"{server} does not give the user in the setting `store` the rights that are needed "
            f"({text}). Grant: ~agent_memory:* +@all -@dangerous +info"
        )
    if isinstance(error, _REFUSALS) or text.startswith(_NOT_NOW) or code in _NOT_NOW:
        return StoreUnavailable(f"{server} accepts no writes now: {text}")
    if "DB index is out of range" in text or "SELECT is not allowed" in text:
        return StoreUnavailable(
            f"{server} has no database of that number. Correct the end of the setting `store`."
        )
    if isinstance(error, exceptions.TimeoutError | TimeoutError):
        return StoreUnavailable(
            UNSURE.format(f"{server} (setting `store`) does not answer in time.")
        )
    if isinstance(error, exceptions.ConnectionError | OSError):
        text = f"{server} (setting `store`) cannot be reached: {text.rstrip('.')}."
        return StoreUnavailable(UNSURE.format(text))
    return StoreError(f"{server} failed: {text}")
