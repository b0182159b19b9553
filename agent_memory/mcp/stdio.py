"""Serves MCP over stdin and stdout, and keeps other code of the process from using them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

import anyio
from mcp.server.stdio import stdio_server

if TYPE_CHECKING:
    from mcp.server import Server


def wire() -> tuple[TextIO, TextIO]:
    """Reserve this process's stdin and stdout for the protocol, and return them.

    Afterwards, other code prints to stderr and reads an empty input. SIGINT or SIGTERM ends the
    input. A second signal ends the process.
    """
    sys.stdout.flush()
    theirs, ours = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    read_end, write_end = os.pipe()

    def end() -> None:
        # the reader then finds the end of the pipe, and the writer gets no error
        os.dup2(nothing, write_end, inheritable=False)

    def pass_on() -> None:
        try:
            while chunk := os.read(theirs, 65_536):
                while chunk:
                    chunk = chunk[os.write(write_end, chunk) :]
        finally:
            end()

    def hear(number: int, frame: object) -> None:
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_DFL)
        end()

    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, hear)
    # a daemon thread ends with the process, even while it waits for input
    threading.Thread(target=pass_on, daemon=True, name="stdin").start()
    reading = os.fdopen(read_end, encoding="utf-8", errors="replace")
    return reading, os.fdopen(ours, "w", encoding="utf-8", newline="\n")


def serve(server: Server[Any], reading: TextIO, writing: TextIO) -> None:
    """Serve until the input ends or the output is closed."""
    try:
        anyio.run(partial(_serve, server, reading, writing))
    except* BrokenPipeError:
        pass
    finally:
        reading.close()
        with suppress(BrokenPipeError):  # closing flushes to the closed pipe
            writing.close()


async def _serve(server: Server[Any], reading: TextIO, writing: TextIO) -> None:
    async with stdio_server(anyio.wrap_file(reading), anyio.wrap_file(writing)) as (read, write):
        await server.run(read, write, server.create_initialization_options())
