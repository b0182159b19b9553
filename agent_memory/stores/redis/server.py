"""A Redis server as the store uses it: few connections, each for one call at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from agent_memory.core.processes import begin_anew_in_child
from agent_memory.errors import StoreUnavailable
from agent_memory.stores.redis.driver import (
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
    exceptions,
)
from agent_memory.stores.redis.failures import failure
from agent_memory.stores.redis.scripts import Script
from agent_memory.stores.redis.url import redis_options, redis_place

T = TypeVar("T")

Argument = str | bytes | int
"""Part of a command."""

CONNECT_SECONDS = 5.0
CALL_SECONDS = 10.0
_MOST = 32
_DRIVER = (exceptions.RedisError, OSError)


class Lost(Exception):
    """The connection broke after a command was sent: whether it was carried out is not known.

    Args:
        error: The driver's error.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class RedisServer:
    """A server, or what answers like one.

    Threads share its connections; a forked child makes its own. A connection that the server closed
    meanwhile, because it was restarted, is noticed before a command is sent.

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        address: "host:port" of a node, where it is not the one in the URL.
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
        self._begin_anew()
        begin_anew_in_child(self, RedisServer._begin_anew)

    def __repr__(self) -> str:
        return f"RedisServer({self.place})"

    def _begin_anew(self) -> None:
        self._idle: list[Any] = []
        self._free = threading.Semaphore(_MOST)

    def nodes(self) -> list[RedisServer]:
        """The servers that it consists of."""
        return [self]

    def ask(self, *command: Argument) -> Any:
        """Answer to a command that can be sent twice, as it is where a connection broke.

        Raises:
            StoreUnavailable: The server cannot be used now.
        """
        return self._again(lambda: self._call([command])[0])

    def ask_many(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Answers to such commands, sent at once.

        Raises:
            StoreUnavailable: The server cannot be used now.
        """
        return self._again(lambda: self._call(commands)) if commands else []

    def run(
        self, script: Script, keys: Sequence[str], *values: Argument, repeat: bool = False
    ) -> Any:
        """Return the answer of a script.

        Args:
            script: The script.
            keys: The keys it uses.
            values: Its arguments.
            repeat: Run it again where a connection broke: doing it twice does it once.

        Raises:
            StoreUnavailable: The server cannot be used now. Without `repeat` the script may have
                been carried out all the same.
        """
        if repeat:
            return self._again(lambda: self.attempt(script, keys, *values))
        with self._translated_errors():
            return self.attempt(script, keys, *values)

    def attempt(self, script: Script, keys: Sequence[str], *values: Argument) -> Any:
        """As `run`, once.

        Raises:
            Lost: The connection broke, and the script may have been carried out or not.
            StoreUnavailable: The server cannot be used now.
        """
        rest = (len(keys), *keys, *values)
        try:
            try:
                return self._call([("EVALSHA", script.digest, *rest)])[0]
            except exceptions.NoScriptError:  # the server is new, or was restarted
                return self._call([("EVAL", script.source, *rest)])[0]
        except _DRIVER as error:
            raise failure(error, self.place) from error

    def close(self) -> None:
        """Close the connections; those in use, as soon as their calls are answered. Idempotent."""
        self._closed = True
        while self._idle:
            self._idle.pop().disconnect()

    def _again(self, ask: Callable[[], T]) -> T:
        with self._translated_errors():
            try:
                return ask()
            except Lost:
                return ask()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except Lost as lost:
            raise failure(lost.error, self.place) from lost.error
        except _DRIVER as error:
            raise failure(error, self.place) from error

    def _call(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        answers = self.answers(commands)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def answers(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Answers to commands sent at once; an error that answers one of them stands in its place.

        Raises:
            Lost: The connection broke; the commands may have been carried out or not.
            RedisError: The server cannot be reached.
        """
        self._check_open()
        if not self._free.acquire(timeout=CALL_SECONDS):
            raise StoreUnavailable(
                f"All {_MOST} connections to the Redis server at {self.place} are in use."
            )
        free = self._free
        try:
            connection = self._connected()
            try:
                answers = _converse(connection, commands)
            except BaseException:
                connection.disconnect()  # an answer that comes late must not meet another question
                raise
            self._idle.append(connection)
            if self._closed:
                self.close()
        finally:
            free.release()
        return answers

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store was closed. Open it again.")

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


def _converse(connection: Any, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    answers: list[Any] = []
    try:
        connection.send_packed_command([_packed(command) for command in commands])
        for _ in commands:
            try:
                answers.append(connection.read_response())
            except exceptions.ResponseError as error:
                answers.append(error)
    except (exceptions.ConnectionError, OSError) as error:
        if isinstance(error, exceptions.BusyLoadingError):
            raise
        raise Lost(error) from error
    return answers


def _packed(command: Sequence[Argument]) -> bytes:
    """A command as it goes over the wire; the driver takes thrice as long for a dozen keys."""
    parts = [b"*%d\r\n" % len(command)]
    for part in command:
        text = part if isinstance(part, bytes) else str(part).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(parts)
