"""A private server: on a free port of 127.0.0.1, in its own folder."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

START_SECONDS = 60.0
STOP_SECONDS = 20.0


class CannotStart(Exception):
    """The server is not installed, or did not start. The message says why."""


class PrivateServer:
    """A server process, started, stopped, restarted and killed by its process id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        raise NotImplementedError

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def ready(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Start it and wait until it answers, or raise `CannotStart`."""
        log = self.folder / "server.log"
        try:
            with log.open("ab") as out:
                self._process = subprocess.Popen(
                    self.command(), stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                    cwd=self.folder, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise CannotStart(str(error)) from error
        deadline = time.monotonic() + START_SECONDS
        while not self.ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                told = log.read_text(errors="replace")[-2000:]
                raise CannotStart(f"{self.command()[0]} did not come up:\n{told}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Shut it down, and wait for its end."""
        self._end(signal.SIGTERM)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop it, and start it again on the same port and data."""
        self.stop()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        os.kill(process.pid, how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def untested(what: str, reason: CannotStart) -> NoReturn:
    """Report that a server could not be started: a failure in CI, a skip elsewhere."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} cannot be tested: {reason}")
    pytest.skip(f"NOT TESTED: {what}: {reason}")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def accepts(port: int) -> bool:
    """Return whether a process listens on a port of 127.0.0.1."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
