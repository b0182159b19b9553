"""The kernel on a folder. All data is also in memory, in tables. A call first reads changed files.

Each session has a file. Each block has a file for its records and a file for its vectors. Segments
and catalogs are not in files: they are computed from the features of records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agent_memory.core.damage import Damage
from agent_memory.core.limits import UNREADABLE
from agent_memory.errors import Damaged, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.damage import leave_out
from agent_memory.stores.folder.files import STATE, Files, Mark
from agent_memory.stores.folder.lines import (
    Fields,
    bytes_of,
    check_place,
    file_name,
    first_in,
    head_in,
    line_of,
    line_of_head,
    line_of_key,
    line_of_message,
    line_of_record,
    lines_in,
    message_of,
    name_of,
    owners_in,
    record_of,
    state_of,
)
from agent_memory.stores.folder.tables import Tables, Vectors, in_order
from agent_memory.stores.kernel.coding import HEAD, KEY, head_document, record_document, record_from
from agent_memory.stores.kernel.contract import (
    Append,
    Batch,
    Delete,
    DeleteWhere,
    DocId,
    Document,
    Expire,
    Kernel,
    Line,
    Outcome,
    Part,
    Put,
    Scan,
    Truncate,
    Wake,
    Write,
)
from agent_memory.stores.kernel.rules import WITHIN_HANDLER

if TYPE_CHECKING:
    from agent_memory.stores.encrypted.kernel import Cipher

_SESSIONS, _RECORDS, _VECTORS = "sessions", "records", "vectors"
_FACT = "fact:"
_LOCK = "lock"

Place = tuple[str, str]
"""A file, as its folder and its session or block."""

Lines = dict[object, tuple[object, str]]
"""The values in a file, each with its line, by seq or id."""

T = TypeVar("T")


class FolderKernel(Kernel):
    """The kernel on a folder."""

    def __init__(self, folder: Path, durability: Durability | None) -> None:
        self.files = Files(folder, durability)
        self._cipher: Cipher | None = None
        self._begin()
        with self._fresh():
            pass

    def _begin(self) -> None:
        self._tables = Tables()
        self._vectors = Vectors(self._tables, self._cipher)
        self._seen: dict[str, Mark] = {}
        self._broken: dict[str, Damaged] = {}
        self._claims: dict[str, str] = {}  # the path that a broken file's content belongs to
        self._names: dict[str, str] = {}
        self._lines: dict[str, Lines] = {}
        self._state = b""  # the content of the state file

    def encrypt_features(self, cipher: Cipher) -> None:
        """From now on, encrypt features in writes, and decrypt features in reads."""
        with self._fresh():
            self._cipher = cipher
            self._begin()

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

    def commit(self, batch: Batch) -> Outcome:
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
        self, ids: Sequence[DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[Document | None]:
        with self._fresh(_place_of(at) for at in ids if bodies):
            return self._tables.documents(ids, tails=tails, bodies=bodies)

    def scan(self, scan: Scan) -> list[Document]:
        with self._fresh(_selected(scan)):
            if scan.collection == HEAD and scan.tails and scan.bodies and not scan.after:
                for error in self._broken.values():  # a broken file may contain any user's data
                    leave_out(error)
            return self._tables.scan(scan)

    def lines(self, parts: Sequence[Part]) -> list[Line]:
        with self._fresh((_SESSIONS, part.session) for part in parts):
            return self._tables.lines(parts)

    def owners(self, collection: str, beginning: str) -> list[str]:
        with self._fresh([_place_of(DocId(collection, ""))]):
            return self._tables.owners(collection, beginning)

    def collections(self, beginning: str) -> list[str]:
        with self._fresh():
            return self._tables.collections(beginning)

    def due(self, collection: str, limit: int) -> list[Document]:
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
        path = f"{kind}/{file_name(name)}"
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
        changed = [path for path, mark in marks.items() if self._seen.get(path) != mark]
        for path in changed:
            if path == STATE:
                self._state = self.files.read(STATE)
            elif not self._load(path):
                del marks[path]  # the next call tries again
        if changed:
            self._tables.restore(state_of(self._state))
        self._seen = marks

    def _load(self, path: str) -> bool:
        """Load a file, or note that it is broken. Return False if the system could not read it."""
        kind, _, _ = path.partition("/")
        data, is_read = b"", False
        try:
            data, is_read = self.files.read(path), True
            if not path.endswith(".jsonl") and not owners_in(data):
                return True  # the file is not of this store
            name = self._loaded(kind, path, data)
        except (*UNREADABLE, StoreUnavailable) as error:
            self._forget(path)
            why = f"{error} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
            text = f"{path} cannot be read: {why}. Repair, rename or remove the file."
            self._broken[path] = Damaged(text, Damage("file", path=path, owners=owners_in(data)))
            if (name_in_file := first_in(data, kind)) is not None:
                self._claims[path] = f"{kind}/{file_name(name_in_file)}"
            return is_read
        self._broken.pop(path, None)
        self._claims.pop(path, None)
        self._names[path] = name
        return True

    def _loaded(self, kind: str, path: str, data: bytes) -> str:
        """Load a file's content into the tables, and return its session or block."""
        lines = list(lines_in(data))
        if not lines:
            raise ValueError("it is empty")
        (_, first), *rest = lines
        name = name_of(kind, first)
        check_place(path, name)
        before = {text: value for value, text in self._lines.get(path, {}).values()}
        if kind == _SESSIONS:
            self._load_session(path, first, rest, before)
        elif kind == _RECORDS:
            collection = f"{_FACT}{name}"
            values: Lines = {}
            for text, fields in rest:
                document = before.get(text)
                if not isinstance(document, Document):
                    record, _ = record_of(fields)
                    document = record_document(collection, record, record.last)
                values[document.id] = document, text
            self._lines[path] = values
            puts = [Put(each) for each, _ in values.values() if isinstance(each, Document)]
            self._tables.commit(Batch([], [DeleteWhere(Scan(collection)), *puts]))
        else:
            self._vectors.load(name, first, rest)
        return name

    def _load_session(
        self,
        path: str,
        first: Fields,
        rest: Sequence[tuple[str, Fields]],
        before: Mapping[str, object],
    ) -> None:
        head = head_in(first)
        session = head.session_id
        values: Lines = {}
        lines: list[Line] = []
        keys: list[Document] = []
        for number, (text, fields) in enumerate(rest, 2):
            value = before.get(text) or message_of(session, number, fields)
            if isinstance(value, Line):
                lines.append(value)
                values[value.seq] = value, text
            elif isinstance(value, Document):
                keys.append(value)
                values[value.id] = value, text
        for seq, line in enumerate(lines, head.expired + 1):
            if line.seq != seq:
                raise ValueError(f"it has message #{line.seq} in place of #{seq}")
        if head.expired + len(lines) != head.end:
            last = head.expired + len(lines)
            raise ValueError(f"its last message is #{last}, but should be #{head.end}")
        self._lines[path] = values
        at = DocId(HEAD, session)
        writes: list[Write] = [
            Truncate(session, 0),
            DeleteWhere(Scan(KEY, session=session)),
            Put(head_document(head)),
            *([Append(lines)] if lines else []),
            *map(Put, keys),
            Wake([at], 0),  # later, `restore` sets the stored due time
        ]
        self._tables.commit(Batch([], writes))

    def _forget(self, path: str) -> None:
        for by_path in (self._broken, self._claims, self._lines):
            by_path.pop(path, None)
        name = self._names.pop(path, None)
        if name is None:
            return
        if path.startswith(_SESSIONS):
            keys = DeleteWhere(Scan(KEY, session=name))
            writes: list[Write] = [Delete([DocId(HEAD, name)]), keys, Truncate(name, 0)]
            self._tables.commit(Batch([], writes))
        elif path.startswith(_RECORDS):
            self._tables.commit(Batch([], [DeleteWhere(Scan(f"{_FACT}{name}"))]))
        else:
            self._vectors.forget(name)

    def _save(self, places: set[Place]) -> None:
        """Write the state file first, so that no session is due too late; then the other files."""
        state = json.dumps(self._tables.state()._asdict()).encode()
        if state != self._state or STATE not in self._seen:
            self._seen[STATE] = self.files.write(STATE, state)
            self._state = state
        changes: dict[str, bytes | None] = {}
        for kind, name in sorted(places):
            path = f"{kind}/{file_name(name)}"
            lines = list(self._lines_of(path, kind, name))
            if lines:
                self._names[path] = name
                changes[path] = bytes_of(lines)
            elif path in self._seen:
                changes[path] = None
        self._seen.update(self.files.write_all(changes))
        for path, data in changes.items():
            if data is None:
                del self._seen[path]
                self._forget(path)

    def _lines_of(self, path: str, kind: str, name: str) -> Iterator[str]:
        """Yield a file's lines. Lines of unchanged values are not encoded again."""
        before, values = self._lines.get(path, {}), Lines()

        def text(key: object, value: T, make: Callable[[T], str]) -> str:
            cached = before.get(key)
            values[key] = cached if cached and cached[0] == value else (value, make(value))
            return values[key][1]

        if kind == _SESSIONS:
            (head,) = self._tables.documents([DocId(HEAD, name)], tails=True)
            if head is None:
                return
            yield line_of_head(head)
            for line in self._tables.lines([Part(name)]):
                yield text(line.seq, line, line_of_message)
            for key in self._tables.scan(Scan(KEY, session=name)):
                yield text(key.id, key, line_of_key)
        elif kind == _RECORDS:
            documents = self._tables.scan(Scan(f"{_FACT}{name}"))
            if documents:
                yield line_of({"block": name})
            for fact in in_order(documents):
                yield text(fact.id, fact, lambda it: line_of_record(record_from(it, "fact", name)))
        else:
            yield from self._vectors.lines(name)
        self._lines[path] = values


def places_of(writes: Sequence[Write]) -> Iterator[Place]:
    """Yield the files that writes change; ("", "") for the state file."""
    for write in writes:
        match write:
            case Put(document):
                yield _place_of(document.key, document.session)
            case Append(lines):
                yield from ((_SESSIONS, line.session) for line in lines[:1])
            case Truncate(session, _) | Expire(session, _):
                yield _SESSIONS, session
            case Delete(ids):
                yield from map(_place_of, ids)
            case DeleteWhere(scan):
                yield from _selected(scan)


def _selected(scan: Scan) -> Iterator[Place]:
    if scan.collection == KEY:
        yield _SESSIONS, scan.session or ""
    elif scan.collection not in (HEAD, _VECTORS):
        yield _place_of(DocId(scan.collection, ""))


def _place_of(at: DocId, session: str = "") -> Place:
    kind, _, block = at.collection.partition(":")
    if kind == HEAD:
        return _SESSIONS, at.id
    if kind == KEY:
        return _SESSIONS, session or at.id.partition(":")[2]
    if kind == _LOCK:
        return "", ""
    if kind == "fact":
        return _RECORDS, block
    return _VECTORS, block or at.id
