"""`FolderStore`: all data in a folder of JSON Lines files.

All data is also in memory, in tables. A call first reads changed files. Each session has a file.
Each block has a file for its records, and a file for its vectors with their catalogs and segments.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from agent_memory.core.damage import Damage
from agent_memory.core.limits import UNREADABLE
from agent_memory.errors import Damaged, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.damage import leave_out
from agent_memory.stores.folder import layout
from agent_memory.stores.folder.files import STATE, Files, Mark
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.coding import head_document
from agent_memory.stores.kernel.rules import WITHIN_HANDLER
from agent_memory.stores.kernel.vectors import KernelStore, cleared, embedding_document
from agent_memory.stores.sql.database import DOCUMENTS
from agent_memory.stores.sql.store import MemoryDatabase, SQLKernel

_SESSIONS, _RECORDS, _VECTORS = "sessions", "records", "vectors"

Place = tuple[str, str]
"""A file, as its folder and its session or block."""

Lines = dict[tuple[str, str | int], tuple[layout.Value, str]]
"""The values in a file, each with its line."""


class _Tables(SQLKernel):
    """A kernel in memory whose due times and holders are saved and restored."""

    def __init__(self) -> None:
        super().__init__(MemoryDatabase(), "default")

    def state(self) -> layout.State:
        select = f"SELECT id, first, due, holder, held_until FROM {DOCUMENTS} WHERE collection = ?"
        heads = self._database.read(lambda it: it.rows(select, [k.HEAD]))
        locks = self._database.read(lambda it: it.rows(select, [k.LOCK]))
        return layout.State(
            {name: (begun, due, holder, until) for name, begun, due, holder, until in heads},
            {name: (holder, until) for name, _, _, holder, until in locks},
        )

    def restore(self, state: layout.State) -> None:
        """Set the stored due times, leases and locks. Sessions created later stay unchanged."""
        update = (
            f"UPDATE {DOCUMENTS} SET due = ?, holder = ?, held_until = ? "
            "WHERE collection = ? AND id = ? AND first = ?"
        )
        locks = [k.Put(k.Document(k.LOCK, name)) for name in state.locks]
        self.commit(k.Batch([], [k.DeleteWhere(k.Scan(k.LOCK)), *locks]))
        held = [(None, *lease, k.LOCK, name, 0) for name, lease in state.locks.items()]
        heads = [(*times, k.HEAD, name, begun) for name, (begun, *times) in state.sessions.items()]
        self._database.write(lambda it: it.run_each(update, [*held, *heads]))


class FolderKernel(k.Kernel):
    """The kernel on a folder."""

    def __init__(self, folder: Path, durability: Durability | None) -> None:
        self.files = Files(folder, durability)
        self._begin()
        with self._fresh():
            pass

    def _begin(self) -> None:
        self._tables = _Tables()
        self._marks: dict[str, Mark] = {}
        self._broken: dict[str, Damaged] = {}
        self._claims: dict[str, str] = {}  # the path that a broken file's content belongs to
        self._names: dict[str, str] = {}
        self._lines: dict[str, Lines] = {}
        self._state = b""  # the content of the state file

    @contextmanager
    def _fresh(self, places: Iterable[Place] = ()) -> Iterator[bool]:
        """Lock the folder, read changed files, and raise an error for broken files at `places`.

        Yield False in a nested call of the same thread.
        """
        with self.files.held() as is_taken:
            if is_taken:
                self._refresh()
            for place in places:
                self._refuse(*place)
            yield is_taken

    def commit(self, batch: k.Batch) -> k.Outcome:
        with self._fresh() as is_taken:
            if not is_taken:
                raise StoreUnavailable(WITHIN_HANDLER)
            places = [*places_of(batch.writes)]
            for place in places:
                self._refuse(*place)
            try:
                outcome = self._tables.commit(batch)
                if outcome.done:
                    self._save({place for place in places if place[0]})
            except BaseException:
                self._begin()  # the tables may have changes that the files lack
                raise
            return outcome

    def documents(
        self, ids: Sequence[k.DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[k.Document | None]:
        with self._fresh(_place_of(at) for at in ids if bodies):
            return self._tables.documents(ids, tails=tails, bodies=bodies)

    def scan(self, scan: k.Scan) -> list[k.Document]:
        with self._fresh(_selected(scan)):
            if scan.collection == k.HEAD and scan.tails and scan.bodies and not scan.after:
                for error in self._broken.values():  # a broken file may contain any user's data
                    leave_out(error)
            return self._tables.scan(scan)

    def lines(self, parts: Sequence[k.Part]) -> list[k.Line]:
        with self._fresh((_SESSIONS, part.session) for part in parts):
            return self._tables.lines(parts)

    def owners(self, collection: str, beginning: str) -> list[str]:
        with self._fresh([_place_of(k.DocId(collection, ""))]):
            return self._tables.owners(collection, beginning)

    def collections(self, beginning: str) -> list[str]:
        with self._fresh():
            return self._tables.collections(beginning)

    def due(self, collection: str, limit: int) -> list[k.Document]:
        with self._fresh():
            return self._tables.due(collection, limit)

    def counts(self, collection: str) -> tuple[int, int]:
        with self._fresh():
            return self._tables.counts(collection)

    def erase(self) -> None:
        """Sync the files, so that deleted data does not return after a power loss."""
        self.sync()

    def sync(self) -> None:
        self.files.sync()

    def _refuse(self, kind: str, name: str) -> None:
        """Raise the error of a broken file, so that it is not overwritten."""
        if not self._broken or not kind:
            return
        path = f"{kind}/{layout.file_name(name)}"
        if path in self._broken:
            raise self._broken[path]
        if path not in self._names:  # the session or block may be in a misnamed broken file
            for other in (file for file, claimed in self._claims.items() if claimed == path):
                if kind == _SESSIONS:
                    raise self._broken[other]
                # the error is not raised, because a block without records has no file
                leave_out(self._broken[other])

    def _refresh(self) -> None:
        marks = self.files.marks()
        for path in {*self._names, *self._broken} - marks.keys():
            self._forget(path)
        changed = [path for path, mark in marks.items() if self._marks.get(path) != mark]
        for path in changed:
            if path == STATE:
                self._state = self.files.read(STATE)
            elif not self._load(path):
                del marks[path]  # the next call tries again
        if changed:
            self._tables.restore(layout.state_of(self._state))
        self._marks = marks

    def _load(self, path: str) -> bool:
        """Load a file, or note that it is broken. Return False if the system could not read it."""
        kind, _, _ = path.partition("/")
        data, is_read = b"", False
        try:
            data, is_read = self.files.read(path), True
            if not path.endswith(".jsonl") and not layout.owners_in(data):
                return True  # the file is not of this store
            name = self._loaded(kind, path, data)
        except (*UNREADABLE, StoreUnavailable) as error:
            self._forget(path)
            why = f"{error} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
            text = f"{path} cannot be read: {why}. Repair, rename or remove the file."
            damage = Damage("file", path=path, owners=layout.owners_in(data))
            self._broken[path] = Damaged(text, damage)
            if (name_in_file := layout.first_in(data, kind)) is not None:
                self._claims[path] = f"{kind}/{layout.file_name(name_in_file)}"
            return is_read
        self._broken.pop(path, None)
        self._claims.pop(path, None)
        self._names[path] = name
        return True

    def _loaded(self, kind: str, path: str, data: bytes) -> str:
        """Load a file's content into the tables, and return its session or block."""
        lines = list(layout.lines_in(data))
        if not lines:
            raise ValueError("it is empty")
        (_, first), *rest = lines
        name = layout.name_of(kind, first)
        if path.rpartition("/")[2] != layout.file_name(name):
            raise ValueError("its name does not match its first line")
        before = {text: value for value, text in self._lines.get(path, {}).values()}
        values: Lines = {}
        for number, (text, fields) in enumerate(rest, 2):
            value = before.get(text) or layout.value_of(kind, name, number, fields)
            if isinstance(value, k.Document) and value.collection.startswith(k.CATALOG):
                # after an edit by hand, stores must not use the records that they have cached
                value = value._replace(first=crc32(data) if before else 0)
            values[value[:2]] = value, text
        messages = [value for value, _ in values.values() if isinstance(value, k.Line)]
        documents = [value for value, _ in values.values() if isinstance(value, k.Document)]
        writes = _removal(kind, name)
        if kind == _SESSIONS:
            writes.append(k.Put(head_document(layout.head_in(first, messages))))
            writes.append(k.Wake([k.DocId(k.HEAD, name)], 0))  # `restore` sets the stored due time
        elif kind == _VECTORS:
            writes.append(k.Put(embedding_document(name, layout.opened_of(first))))
        writes += [k.Append(messages)] if messages else []
        self._tables.commit(k.Batch([], [*writes, *map(k.Put, documents)]))
        self._lines[path] = values
        return name

    def _forget(self, path: str) -> None:
        for by_path in (self._broken, self._claims, self._lines):
            by_path.pop(path, None)
        name = self._names.pop(path, None)
        if name is None:
            return
        kind, _, _ = path.partition("/")
        self._tables.commit(k.Batch([], _removal(kind, name)))

    def _save(self, places: set[Place]) -> None:
        """Write the state file first, so that no session is due too late; then the other files."""
        state = json.dumps(self._tables.state()._asdict()).encode()
        if state != self._state or STATE not in self._marks:
            self._marks[STATE] = self.files.write(STATE, state)
            self._state = state
        changes: dict[str, bytes | None] = {}
        for kind, name in sorted(places):
            path = f"{kind}/{layout.file_name(name)}"
            lines = self._lines_of(path, kind, name)
            if lines:
                self._names[path] = name
                changes[path] = layout.bytes_of(lines)
            elif path in self._marks:
                changes[path] = None
        self._marks.update(self.files.write_all(changes))
        for path, data in changes.items():
            if data is None:
                del self._marks[path]
                self._forget(path)

    def _lines_of(self, path: str, kind: str, name: str) -> list[str]:
        """Return a file's lines. Lines of unchanged values are not encoded again."""
        first, values = self._content(kind, name)
        before, lines = self._lines.get(path, {}), Lines()
        for value in values:
            cached = before.get(value[:2])
            is_same = cached is not None and cached[0] == value
            line = cached if cached and is_same else (value, layout.line_of_value(value))
            lines[value[:2]] = line
        self._lines[path] = lines
        return [first, *(text for _, text in lines.values())] if first else []

    def _content(self, kind: str, name: str) -> tuple[str, Sequence[layout.Value]]:
        """Return a file's first line, empty for no file, and the values of all other lines."""

        def scanned(collection: str) -> list[k.Document]:
            return self._tables.scan(k.Scan(f"{collection}{name}"))

        if kind == _SESSIONS:
            (head,) = self._tables.documents([k.DocId(k.HEAD, name)], tails=True)
            keys = self._tables.scan(k.Scan(k.KEY, session=name))
            messages = self._tables.lines([k.Part(name)])
            return layout.line_of_head(head) if head else "", [*messages, *keys]
        if kind == _RECORDS:
            records = _in_order(scanned(k.FACT))
            return layout.line_of({"block": name}) if records else "", records
        (opened,) = self._tables.documents([k.DocId(k.BLOCKS, name)])
        values = [*_in_order(scanned(k.VECTOR)), *scanned(k.CATALOG), *scanned(k.SEGMENT)]
        return layout.line_of_embedding(opened) if opened else "", values


class FolderStore(KernelStore):
    """Stores all data in plain files that people can read, search, version and copy.

        notes/
            sessions/monday-0a1b2c3d4e.jsonl    the session, then its messages, one per line
            records/extractive-....jsonl        records of a block, one per line
            vectors/vector-....jsonl            records, then their search features in segments
            .state.json                         leases and due times, of this machine only

    Writes are atomic, under a lock that all processes of a machine share. Each call reads files
    that have changed, so other processes may write, and people may edit files between calls.

    Limitations: each write rewrites its whole file, which is slow. Use this store for one person's
    memories, and not on a network file system.

    Args:
        url: "folder:///relative" or "folder:////absolute".
        namespace: A subfolder; "default" is the folder itself.
        durability: Whether an acknowledged write survives a power loss.

    Raises:
        ConfigError: The system has no POSIX locks.
        StoreUnavailable: The folder cannot be created or read.
    """

    def __init__(
        self, url: str, namespace: str = "default", durability: Durability | None = None
    ) -> None:
        folder = Path(url.removeprefix("folder:///")).absolute()
        if namespace != "default":
            folder /= f"namespace-{layout.file_name(namespace)[:-6]}"
        self._folder = FolderKernel(folder, durability)
        super().__init__(self._folder)


def _removal(kind: str, name: str) -> list[k.Write]:
    """Return the writes that remove a file's content from the tables."""
    if kind == _SESSIONS:
        keys = k.DeleteWhere(k.Scan(k.KEY, session=name))
        return [k.Delete([k.DocId(k.HEAD, name)]), keys, k.Truncate(name, 0)]
    return [k.DeleteWhere(k.Scan(f"{k.FACT}{name}"))] if kind == _RECORDS else cleared(name)


def _in_order(records: Sequence[k.Document]) -> list[k.Document]:
    return sorted(records, key=lambda document: (int(document.about), document.id))


def places_of(writes: Sequence[k.Write]) -> Iterator[Place]:
    """Yield the files that writes change; ("", "") for the state file."""
    for write in writes:
        match write:
            case k.Put(document):
                yield _place_of(document.key, document.session)
            case k.Append(lines):
                yield from ((_SESSIONS, line.session) for line in lines[:1])
            case k.Truncate(session, _) | k.Expire(session, _):
                yield _SESSIONS, session
            case k.Delete(ids):
                yield from map(_place_of, ids)
            case k.DeleteWhere(scan):
                yield from _selected(scan)


def _selected(scan: k.Scan) -> Iterator[Place]:
    if scan.collection == k.KEY:
        yield _SESSIONS, scan.session or ""
    elif scan.collection not in (k.HEAD, _VECTORS):
        yield _place_of(k.DocId(scan.collection, ""))


def _place_of(at: k.DocId, session: str = "") -> Place:
    kind, _, block = at.collection.partition(":")
    if kind == k.HEAD:
        return _SESSIONS, at.id
    if kind == k.KEY:
        return _SESSIONS, session or at.id.partition(":")[2]
    if kind == k.LOCK:
        return "", ""
    if kind == "fact":
        return _RECORDS, block
    return _VECTORS, block or at.id
