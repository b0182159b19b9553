"""The socket that accepts a server's connections, and rate-limited warnings."""

from __future__ import annotations

import errno
import logging
import os
import socket
import time
from contextlib import suppress
from typing import Any

logger = logging.getLogger(__name__)

_TOLD_SECONDS = 60.0
_PAUSE_SECONDS = 0.05
_QUEUE = 1024


class Told:
    """Logs a repeated warning at most once a minute, with a count."""

    def __init__(self) -> None:
        self._count = 0
        self._next = 0.0

    def warn(self, what: str) -> None:
        """Count a warning, and log it if the last one was logged more than a minute ago."""
        self._count += 1
        if time.monotonic() >= self._next:
            with suppress(OSError):  # the handler may lack files too; the next call tries again
                logger.warning("%s (count since the last warning: %d)", what, self._count)
                self._count, self._next = 0, time.monotonic() + _TOLD_SECONDS


class Listener(socket.socket):
    """A socket that accepts connections, and refuses them when no file can be opened.

    The event loop alone would then log thousands of tracebacks per second.
    """

    _spare: int | None
    _told: Told

    @classmethod
    def of(cls, listener: socket.socket) -> Listener:
        """Replace a socket that is already listening."""
        made = cls(fileno=listener.detach())
        made._keep_spare()
        made._told = Told()
        return made

    def listen(self, backlog: int = 0) -> None:
        """Listen with a queue of at least 1,024 connections.

        An event loop passes the number of connections it accepts at once. A longer queue costs
        nothing, and a client that finds it full retries only after a second.
        """
        super().listen(max(backlog, _QUEUE))

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Without free files, close it and raise BlockingIOError."""
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        if self._spare is None:
            time.sleep(_PAUSE_SECONDS)
        else:  # use the spare descriptor to accept and close it; pending, it would wake the loop
            os.close(self._spare)
            with suppress(OSError):
                super().accept()[0].close()
        self._told.warn("No more files can be opened: a connection was refused. Raise `ulimit -n`")
        self._keep_spare()
        raise BlockingIOError(errno.EAGAIN, "no connection is pending")

    def close(self) -> None:
        """Close the socket and the spare file descriptor."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        super().close()

    def _keep_spare(self) -> None:
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            self._spare = None
