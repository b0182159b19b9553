"""The socket that takes a server's connections, and warnings that flood no log."""

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
    """Warns of what happens over and over: once a minute, with a count."""

    def __init__(self) -> None:
        self._count = 0
        self._next = 0.0

    def warn(self, what: str) -> None:
        """Count it, and warn if the last time is long ago."""
        self._count += 1
        if time.monotonic() >= self._next:
            with suppress(OSError):  # of a handler that can open no file either: it is told later
                logger.warning("%s (times since this was last said: %d)", what, self._count)
                self._count, self._next = 0, time.monotonic() + _TOLD_SECONDS


class Listener(socket.socket):
    """A socket that takes connections. Where no file can be opened any more it refuses them: the
    event loop would write a traceback for each try, thousands a second.
    """

    _spare: int | None
    _told: Told

    @classmethod
    def of(cls, listener: socket.socket) -> Listener:
        """In the place of a socket that listens already."""
        made = cls(fileno=listener.detach())
        made._keep_spare()
        made._told = Told()
        return made

    def listen(self, backlog: int = 0) -> None:
        """See `socket.socket`. An event loop means by it how many it takes at once; that many more
        may wait costs nothing, and a client that finds no place comes back after a second.
        """
        super().listen(max(backlog, _QUEUE))

    def accept(self) -> tuple[socket.socket, Any]:
        """See `socket.socket`."""
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        if self._spare is None:
            time.sleep(_PAUSE_SECONDS)
        else:  # in its place the connection is taken, and closed: else it would wait, and wake us
            os.close(self._spare)
            with suppress(OSError):
                super().accept()[0].close()
        self._told.warn("No more files can be opened: a connection was refused. Raise `ulimit -n`")
        self._keep_spare()
        raise BlockingIOError(errno.EAGAIN, "nobody waits")

    def close(self) -> None:
        """See `socket.socket`."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        super().close()

    def _keep_spare(self) -> None:
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            self._spare = None
