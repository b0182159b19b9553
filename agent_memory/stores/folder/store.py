"""`FolderStore`: a folder of plain files, one of JSON Lines for each session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_memory.core.records import Entry, Head, Hit, Record
from agent_memory.errors import Damaged, StoreError
from agent_memory.stores.base import Durability
from agent_memory.stores.catalogs import grouped
from agent_memory.stores.coding import UNREADABLE
from agent_memory.stores.damage import noted
from agent_memory.stores.folder.calls import looking, writing
from agent_memory.stores.folder.files import Files, Mark
from agent_memory.stores.folder.lines import (
    blob_of,
    bytes_of,
    entry_of,
    file_name,
    head_of,
    in_order,
    key_of,
    line_of,
    line_of_entry,
    line_of_head,
    line_of_key,
    line_of_record,
    lines_in,
    record_of,
    refuse_sealed,
    text_of,
)
from agent_memory.stores.memory import MemoryStore, _Session
from agent_memory.stores.memory_records import RecordsById
from agent_memory.stores.seals import UNSEALED, SegmentSeals

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.query import Query

_STATE = ".state.json"
_URL = "folder:///"


class FolderStore(MemoryStore):
    """Keeps all in plain files that people read, search, version and carry about.

        notes/
            sessions/monday-0a1b2c3d4e.jsonl    the session, then its messages, one a line
            records/extractive-....jsonl        what blocks keep, one a line
            vectors/vector-....jsonl            the same with what it is found by
            .state.json                         leases and what is due: of this machine

    A file is put in its place whole, under a lock that all processes of a machine share, so that a
    crash leaves the one before or the one after. Each call looks at what has changed: another
    process may write, and so may people while no call is under way. Each write writes its file
    anew: it is slow, and meant for one person's memories. Not on a network file system.

    Args:
        url: "folder:///relative" or "folder:////absolute".
        namespace: A folder of its own below, but for "default".
        durability: What an acknowledged write survives.

    Raises:
        ConfigError: The system has no POSIX locks.
        StoreUnavailable: The folder cannot be made or read.
    """

    def __init__(
        self, url: str, namespace: str = "default", durability: Durability = "process"
    ) -> None:
        super().__init__(namespace)
        folder = Path(url.removeprefix(_URL)).absolute()
        own = (
            folder if namespace == "default" else folder / f"namespace-{file_name(namespace)[:-6]}"
        )
        self._files = Files(own, durability)
        self._seen: dict[str, Mark] = {}
        self._broken: dict[str, str] = {}
        self._written: dict[str, bytes] = {}
        self._lines: dict[str, dict[int, tuple[Entry, str]]] = {}
        self._names: dict[str, str] = {}
        self._features: dict[str, dict[str, Any]] = {}  # of each block's records, as in its file
        with self._fresh():
            pass

    def seal_segments(self, seals: SegmentSeals) -> None:
        self._seals = seals
        for path in [path for path in self._names if path.startswith("vectors/")]:
            self._forget(path)  # which could not be read
            self._seen.pop(path, None)

    append = writing("session")(MemoryStore.append)
    append_once = writing("session")(MemoryStore.append_once)
    put_keys = writing("session")(MemoryStore.put_keys)
    move = writing("session")(MemoryStore.move)
    rewrite = writing("session")(MemoryStore.rewrite)
    delete = writing("session")(MemoryStore.delete)
    lease = writing("state")(MemoryStore.lease)
    release = writing("state")(MemoryStore.release)
    lock = writing("state")(MemoryStore.lock)
    unlock = writing("state")(MemoryStore.unlock)
    schedule = writing("state")(MemoryStore.schedule)
    schedule_all = writing("state")(MemoryStore.schedule_all)
    put_records = writing("records")(MemoryStore.put_records)
    swap_record = writing("records")(MemoryStore.swap_record)
    delete_records = writing("records")(MemoryStore.delete_records)
    open_vectors = writing("vectors")(MemoryStore.open_vectors)
    put_vectors = writing("vectors")(MemoryStore.put_vectors)
    delete_vectors = writing("vectors")(MemoryStore.delete_vectors)
    clear_vectors = writing("vectors")(MemoryStore.clear_vectors)
    keys = looking(MemoryStore.keys)
    head = looking(MemoryStore.head)
    existing = looking(MemoryStore.existing)
    read = looking(MemoryStore.read)
    pick = looking(MemoryStore.pick)
    lagging = looking(MemoryStore.lagging)
    due = looking(MemoryStore.due)
    sessions = looking(MemoryStore.sessions)
    counts = looking(MemoryStore.counts)
    records = looking(MemoryStore.records)
    record = looking(MemoryStore.record)
    owners = looking(MemoryStore.owners)
    vector_blocks = looking(MemoryStore.vector_blocks)
    all_records = looking(MemoryStore.all_records)

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        with self._fresh():
            self._refuse(block)
        return super().search_vectors(block, owner, query, limit)

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        with self._fresh():
            self._refuse(block)
            if self._seals is UNSEALED:
                refuse_sealed(block, self._features.get(block, {}).values())
            return iter(list(super().all_vectors(block, session_id=session_id)))

    def _fresh(self) -> _Fresh:
        return _Fresh(self)

    def _refuse(self, given: object) -> None:
        """Refuse what a file that cannot be read holds, so that nothing is written over it.

        Raises:
            StoreError: It is told what is wrong, and where.
        """
        name = given.session_id if isinstance(given, Head) else given
        if not self._broken or not isinstance(name, str):
            return
        for kind in ("sessions", "records", "vectors"):
            path = f"{kind}/{file_name(name)}"
            if path in self._broken:
                raise StoreError(f"{path} cannot be read: {self._broken[path]}. Mend or remove it.")

    def _refresh(self) -> None:
        """Read what has changed since it was looked at last."""
        marks = self._files.marks()
        for path in [path for path in self._names if path not in marks]:
            self._forget(path)
        for path, mark in marks.items():
            if path != _STATE and self._seen.get(path) != mark:
                self._load(path)
        if _STATE in marks and self._seen.get(_STATE) != marks[_STATE]:
            self._load_state()
        self._seen = marks

    def _load(self, path: str) -> None:
        data = self._files.read(path)
        kind, _, _ = path.partition("/")
        if kind != "vectors":
            self._forget(path)
        try:
            if kind == "sessions":
                self._load_session(path, data)
            elif kind == "records":
                self._load_records(path, data)
            elif kind == "vectors":
                self._load_vectors(path, data)
        except (*UNREADABLE, Damaged) as error:
            self._forget(path)
            self._broken[path] = str(error)
            return
        self._written[path] = data

    def _load_session(self, path: str, data: bytes) -> None:
        first, *rest = lines_in(data)
        session = _Session(head_of(first))
        name = session.head.session_id
        session.log = [entry_of(name, one) for one in rest if "seq" in one]
        session.keys = {key.name: key for one in rest if "key" in one for key in [key_of(one)]}
        last = session.log[-1].seq if session.log else session.head.expired
        if last != session.head.end:
            raise ValueError(f"it ends at #{last}, and should at #{session.head.end}")
        session.fall_due()  # until the state says more
        self._names[path], self._sessions[name] = name, session
        self._state_of(name, session)

    def _load_records(self, path: str, data: bytes) -> None:
        first, *rest = lines_in(data)
        self._names[path] = name = first["block"]
        self._facts[name] = collection = RecordsById()
        for record, _ in map(record_of, rest):
            collection.put(record)

    def _load_vectors(self, path: str, data: bytes) -> None:
        """Read a file of vectors: what was known of it before stays as it is."""
        from agent_memory.stores.blobs import features_of, undamaged_places

        first, *rest = lines_in(data)
        name, opened = first["block"], (first["dimension"], first["model"])
        found = {record.id: (record, text) for record, text in map(record_of, rest)}
        if self._names.get(path) != name or self._collections.get(name) != opened:
            self._forget(path)
        known = self._vectors.get(name, RecordsById()).records
        texts = self._features.get(name, {})
        there = {one: (record, texts.get(one)) for one, record in known.items()}
        new = [one for name_of, one in found.items() if there.get(name_of) != one]
        gone = [one for one in known if found.get(one) != there[one]]
        self._broken.pop(path, None)
        self._names[path], self._collections[name] = name, opened
        self._features[name] = {record.id: text for record, text in found.values()}
        for owner, numbers in self._taken_out(name, gone).items():
            self._change(name, owner, numbers)
        blobs = [blob_of(text, name, record, self._seals) for record, text in new]
        places = undamaged_places(blobs)
        if places:
            sound = [new[place][0] for place in places]
            self._keep(name, grouped(sound, features_of([blobs[place] for place in places])))
        lacking = {*range(len(new))} - {*places}
        self._keep_lacking(name, [new[place][0] for place in sorted(lacking)])

    def _forget(self, path: str) -> None:
        """Drop what was read of a file."""
        self._broken.pop(path, None)
        self._written.pop(path, None)
        name = self._names.pop(path, None)
        if name is None:
            return
        if path.startswith("sessions/"):
            self._sessions.pop(name, None)
            self._lines.pop(name, None)
        elif path.startswith("records/"):
            self._facts.pop(name, None)
        else:
            self._features.pop(name, None)
            super().clear_vectors(name)

    def _save(self, kind: str, given: object) -> None:
        """Write what a call has changed. The state comes first: what is due is better due twice."""
        name = given.session_id if isinstance(given, Head) else given
        self._put(_STATE, json.dumps(self._state()).encode())
        if kind == "state" or not isinstance(name, str):
            return
        path = f"{'sessions' if kind == 'session' else kind}/{file_name(name)}"
        lines = list(self._lines_of(kind, name))
        if lines:
            self._names[path] = name
            self._put(path, bytes_of(lines))
        elif path in self._seen:
            self._files.remove(path)
            del self._seen[path]
            self._forget(path)

    def _put(self, path: str, data: bytes) -> None:
        if self._written.get(path) != data or path not in self._seen:
            self._seen[path] = self._files.write(path, data)
            self._written[path] = data

    def _lines_of(self, kind: str, name: str) -> Iterator[str]:
        if kind == "session":
            return self._session_lines(name)
        return self._records_lines(name) if kind == "records" else self._vectors_lines(name)

    def _session_lines(self, name: str) -> Iterator[str]:
        session = self._sessions.get(name)
        if session is None:
            return
        yield line_of_head(session.head)
        known, kept = self._lines.get(name, {}), dict[int, tuple[Entry, str]]()
        for entry in session.log[: session.length]:
            one = known.get(entry.seq)
            kept[entry.seq] = (entry, line_of_entry(entry)) if one is None or (
                one[0] is not entry
            ) else one  # fmt: skip
            yield kept[entry.seq][1]
        self._lines[name] = kept
        yield from map(line_of_key, session.keys.values())

    def _records_lines(self, name: str) -> Iterator[str]:
        collection = self._facts.get(name)
        if collection is not None and collection.records:
            yield line_of({"block": name})
            yield from map(line_of_record, in_order(collection.records.values()))

    def _vectors_lines(self, name: str) -> Iterator[str]:
        stored = self._collections.get(name)
        if stored is None:
            return
        yield line_of({"block": name, "dimension": stored[0], "model": stored[1]})
        from agent_memory.stores.blobs import blobs_of

        texts = self._features.get(name, {})
        with noted():  # of what cannot be read the file keeps what it has
            for records, features in super().all_vectors(name):
                for one, blob in zip(records, blobs_of(records, features), strict=True):
                    texts[one.id] = text_of(blob, name, one, self._seals)
        there = self._vectors.get(name, RecordsById()).records
        self._features[name] = {one: text for one, text in texts.items() if one in there}
        for record in in_order(there.values()):
            yield line_of_record(record, texts.get(record.id))

    def _state(self) -> dict[str, Any]:
        """Leases, locks, and what is due when."""
        return {
            "sessions": {
                name: [
                    one.head.created_at.isoformat(), one.due_at if isfinite(one.due_at) else None,
                    one.lease_owner, one.lease_until,
                ]
                for name, one in self._sessions.items()
            },
            "locks": self._held,
        }  # fmt: skip

    def _load_state(self) -> None:
        try:
            state = json.loads(self._files.read(_STATE))
            self._known_state = dict(state["sessions"])
            self._held = {name: (owner, until) for name, (owner, until) in state["locks"].items()}
        except UNREADABLE:  # it says only what is due: all is, then
            self._known_state, self._held = {}, {}
        for name, session in self._sessions.items():
            self._state_of(name, session)

    _known_state: dict[str, Any] = {}

    def _state_of(self, name: str, session: _Session) -> None:
        """What the state tells of a session, if it is of that very one."""
        begun, due_at, owner, until = self._known_state.get(name) or (None, None, None, 0.0)
        if begun == session.head.created_at.isoformat():
            session.due_at = inf if due_at is None else due_at
            session.lease_owner, session.lease_until = owner, until


class _Fresh:
    """While a call has the folder, with what others have changed read."""

    def __init__(self, store: FolderStore) -> None:
        self._store = store
        self._held = store._files.held()

    def __enter__(self) -> None:
        if self._held.__enter__():
            try:
                self._store._refresh()
            except BaseException as error:
                self._held.__exit__(type(error), error, error.__traceback__)
                raise

    def __exit__(self, *exc: Any) -> None:
        self._held.__exit__(*exc)
