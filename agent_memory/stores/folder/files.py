"""Locks a folder, detects changes of its files, and writes files atomically."""

from __future__ import annotations

import json
import os
import re
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from agent_memory.core.processes import begin_anew_in_child
from agent_memory.errors import ConfigError, StoreUnavailable
from agent_memory.stores.base import Durability

STATE = ".state.json"
"""The file of leases and due times."""

JOURNAL = ".journal.json"
"""The file with an unfinished commit that changes several files."""

_LOCK = ".lock"
_ARRIVING = ".tmp"
_IGNORED = f".lock\n{STATE}\n{JOURNAL}\n*.tmp\n"
_FOLDERS = ("sessions", "records", "vectors")
_OURS = re.compile(r"(\.state\.json|\.journal\.json|.*-[0-9a-f]{10}\.jsonl)\.tmp")

Mark = tuple[int, int, int]
"""Identifies a version of a file: its inode, modification time and size."""


class Files:
    """The files of one folder. A lock admits one thread of one process at a time.

    Writes are atomic: a file is written under another name, then renamed. If a process dies, its
    lock is released.
    """

    def __init__(self, folder: Path, durability: Durability | None) -> None:
        try:
            import fcntl
        except ImportError:
            raise ConfigError(
                "A folder:/// store needs POSIX file locks, which this system does not have. Use "
                "sqlite:///memory.db."
            ) from None
        self._fcntl = fcntl
        self._folder = folder
        self._syncs = durability != "process"
        self._begin_anew()
        begin_anew_in_child(self, Files._begin_anew)
        with _translated(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            ignored = folder / ".gitignore"
            if not ignored.exists():
                ignored.write_text(_IGNORED, encoding="utf-8")

    def _begin_anew(self) -> None:
        self._turn = threading.RLock()
        self._depth = 0

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Lock the folder for one thread of one process. Yield False in nested calls."""
        with self._turn:
            self._depth += 1
            try:
                if self._depth > 1:
                    yield False
                    return
                with self._locked():
                    yield True
            finally:
                self._depth -= 1

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with _translated(self._folder):
            # the file is opened in each call: a forked child would share the lock of an open file
            lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with _translated(self._folder):  # the folder may be on a network disk without locks
                self._fcntl.flock(lock, self._fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)  # this releases the lock

    def marks(self) -> dict[str, Mark]:
        """Return the marks of the state file and of the visible files in the subfolders, by path.

        First finish a commit that a crash interrupted, and remove partly written files.
        """
        marks: dict[str, Mark] = {}
        if (self._folder / JOURNAL).exists():
            self._finish()
        with _translated(self._folder):
            for name in ("", *_FOLDERS):
                place = self._folder / name
                if not place.is_dir():
                    continue
                with os.scandir(place) as files:
                    for entry in files:
                        if _OURS.fullmatch(entry.name):
                            os.unlink(entry.path)
                        elif entry.is_file() and (
                            not entry.name.startswith(".") if name else entry.name == STATE
                        ):
                            stat = entry.stat()
                            path = f"{name}/{entry.name}" if name else entry.name
                            marks[path] = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        return marks

    def read(self, path: str) -> bytes:
        with _translated(self._folder / path):
            return (self._folder / path).read_bytes()

    def write(self, path: str, data: bytes) -> Mark:
        """Write a file atomically, and return its mark."""
        place = self._folder / path
        arriving = place.with_name(place.name + _ARRIVING)
        with _translated(place):
            place.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(arriving, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(data)
                if self._syncs:
                    file.flush()
                    os.fsync(file.fileno())
            arriving.replace(place)
            if self._syncs:
                self._sync(place.parent)
            stat = place.stat()
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def write_all(self, changes: Mapping[str, bytes | None]) -> dict[str, Mark]:
        """Write files, or remove them if the data is None. Return the marks of the written files.

        After a crash, the next process that locks the folder finishes the changes from a journal.
        """
        if len(changes) > 1:
            journal = [
                [path, self._digest(path), None if data is None else b64encode(data).decode()]
                for path, data in changes.items()
            ]
            self.write(JOURNAL, json.dumps(journal).encode())
        marks: dict[str, Mark] = {}
        for path, data in changes.items():
            if data is None:
                self.remove(path)
            else:
                marks[path] = self.write(path, data)
        if len(changes) > 1:
            self.remove(JOURNAL)
        return marks

    def _finish(self) -> None:
        """Complete the changes in the journal. A file edited after the crash stays unchanged."""
        try:
            changes = json.loads(self.read(JOURNAL))
        except ValueError:  # with `durability="process"`, a power loss may damage the journal
            changes = []
        for path, before, data in changes:
            if self._digest(path) != before:
                continue
            if data is None:
                self.remove(path)
            else:
                self.write(path, b64decode(data))
        self.remove(JOURNAL)

    def _digest(self, path: str) -> str | None:
        place = self._folder / path
        return sha256(self.read(path)).hexdigest() if place.exists() else None

    def remove(self, path: str) -> None:
        place = self._folder / path
        with _translated(place):
            place.unlink(missing_ok=True)
            if self._syncs and place.parent.is_dir():
                self._sync(place.parent)

    def sync(self) -> None:
        if not self._syncs:
            os.sync()

    def _sync(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _translated(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = f"The folder of files failed at {str(place)!r}: {error.strerror}."
        raise StoreUnavailable(reason) from error
