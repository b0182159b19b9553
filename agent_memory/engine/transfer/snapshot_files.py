"""Where snapshots are written to and read from: files, pipes, whatever gives lines."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from agent_memory.engine.transfer.snapshots.lines import refused


@contextmanager
def written(to: str | Path | TextIO) -> Iterator[TextIO]:
    """A file to write to. At a path it appears once all is written, in place of what was there.

    What is no regular file, such as a pipe or a device, is written to as it is.
    """
    if not isinstance(to, str | Path):
        yield to
        return
    path = Path(os.path.realpath(to))
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        return
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def lines_of(source: str | Path | TextIO | Iterable[str]) -> Iterator[bytes]:
    """The lines of a source, one after the other; it is never gone back in.

    Raises:
        InvalidSnapshot: A line is no text in UTF-8.
    """
    if isinstance(source, str | Path):
        with open(source, "rb") as file:
            yield from file
        return
    is_file = hasattr(source, "read")
    number, lines = 0, iter(source)
    while True:
        number += 1
        try:
            line = next(lines, None)
            if line is None:
                return
            # lines that are not read from a file may have lost their ends
            given = line if is_file or line.endswith("\n") else f"{line}\n"
            raw = given.encode()
        except UnicodeError:
            raise refused(number, "it is not text in UTF-8") from None
        yield raw
