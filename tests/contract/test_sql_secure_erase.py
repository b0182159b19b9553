"""After a secure erase, deleted data is gone from a SQLite file's bytes."""

import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_memory.core.records import Head, Summary
from agent_memory.errors import Damaged, StoreUnavailable
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.index import Segment
from agent_memory.stores.sql import sqlite
from agent_memory.stores.sql.migrations import table_name
from agent_memory.stores.sql.sqlite_file import Connection
from agent_memory.stores.sql.sqlite_pages import RawFile, gap, of_trees, page_size
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing.contract import draft, entries, record, together, worded

MARK = "c4n4ry"
ENGINE = "agent_memory.stores.sql.sqlite"

_SCAN = """
import json, pathlib, sys
folder, marks = json.load(sys.stdin)
for file in pathlib.Path(folder).iterdir():
    data = file.read_bytes()
    for mark in marks:
        if bytes.fromhex(mark) in data:
            print(file.name)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLStore]:
    """A store with idle connections in its pool, while a second one is open."""
    store, other = (SQLStore(f"sqlite:///{tmp_path}/memory.db") for _ in range(2))
    for handle in (store, other):
        together([handle.counts] * 4)
    yield store
    store.close()
    other.close()


def _traces(folder: Path, *marks: bytes) -> set[str]:
    """Another process looks: closing a file here would drop SQLite's locks on it."""
    given = json.dumps([str(folder), [mark.hex() for mark in marks or (MARK.encode(),)]])
    command = [sys.executable, "-I", "-S", "-c", _SCAN]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def _fill(size: int, word: str = MARK) -> str:
    return (word * (size // len(word) + 1))[:size]


def _check(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "memory.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("size", [40, 600, 3_900, 4_050, 4_100, 9_000, 300_000, 4 * 2**20])
def test_a_secure_erase_leaves_no_deleted_text(store: SQLStore, tmp_path: Path, size: int) -> None:
    """Wrong: deleted text can be read from the disk."""
    for turn in range(3):
        for name in ("s-1", f"{MARK}-session", "s-2"):
            word = MARK if MARK in name else "others"
            user = f"{word}-user" if word == MARK else None
            drafts = [draft(_fill(size, word)), draft(_fill(size // 2, word), role="system")]
            head = store.append(name, drafts, user)
            summary = Summary(_fill(size, word), 1, 1, "local", redo_after=turn)
            store.move(replace(head, summary=summary, cursors={word: turn}))
    store.secure_erase()
    assert _traces(tmp_path)
    store.delete(f"{MARK}-session")
    store.secure_erase()
    assert _traces(tmp_path) == set()
    assert _traces(tmp_path, b"othersothers") == {"memory.db"}
    assert [len(store.read(name)) for name in ("s-1", "s-2")] == [6, 6]


def _overwrite_head(store: SQLStore) -> None:
    said = _fill(5_000)
    head = store.append("s", [draft(said, role="system")], f"{MARK}-user")
    summary = Summary(said, 1, 1, "local", redo_after=0, redo_text=said)
    moved = store.move(replace(head, summary=summary, cursors={MARK: 1}))
    assert moved is not None
    assert store.rewrite(replace(moved, summary=None, cursors={}, user_id=None), 0)
    store.append("s", [draft("other rules", role="system")])


def _log(store: SQLStore) -> Head:
    return store.append("s", [draft(_fill(n * 300)) for n in range(1, 30)])


def _delete_facts(store: SQLStore) -> None:
    _put_facts(store, MARK)
    store.delete_records("facts", owner=f"user:{MARK}")


def _overwrite_facts(store: SQLStore) -> None:
    store.put_records("facts", [record(f"r{n}", text=_fill(n * 100)) for n in range(60)])
    store.put_records("facts", [record(f"r{n}", text="new") for n in range(30)])
    store.put_records("facts", [], replacing=("s", 1, 1))


def _delete_vectors(store: SQLStore) -> None:
    _put_vectors(store, MARK)
    store.delete_vectors("v", session_id=f"{MARK}-session")


def _overwrite_vectors(store: SQLStore) -> None:
    _put_vectors(store, MARK)
    names = [f"{MARK}{n}" for n in range(60)]
    store.put_vectors("v", [record(name) for name in names], _features("others"))
    store.delete_vectors("v", owner="user:a")


def _clear_vectors(store: SQLStore) -> None:
    _put_vectors(store, MARK)
    store.clear_vectors("v")


def _put_facts(store: SQLStore, word: str) -> None:
    fields: dict[str, Any] = {"owner": f"user:{word}", "session_id": f"{word}-session"}
    texts = {f"{word}{n}": _fill(n * 100, word) for n in range(60)}
    store.put_records("facts", [record(name, text=texts[name], **fields) for name in texts])


def _put_vectors(store: SQLStore, word: str) -> None:
    store.open_vectors("v", 64, "m")
    fields = {"owner": f"user:{word}", "session_id": f"{word}-session"}
    store.put_vectors("v", [record(f"{word}{n}", **fields) for n in range(60)], _features(word))


def _rows(word: str) -> np.ndarray:
    """Return vectors whose bytes identify their owner."""
    pair = {MARK: (0.6, 0.8), "others": (0.8, -0.6)}[word]
    return np.tile((np.array(pair) / np.sqrt(32)).astype("<f4"), (60, 32))


def _features(word: str, count: int = 60) -> Features:
    """Return features whose word numbers, in a row, are unique to their owner."""
    rows = _rows(word)[:count]
    return worded([f"{word} {word}words"] * count, rows)


def _marks() -> list[bytes]:
    """Return the bytes of the numbers in a marked record's features, as in segments."""
    marked = Segment.of([MARK], _features(MARK, 1), compact=True)
    return [numbers.tobytes() for numbers in (marked.meaning.rows[0][:16], marked.words.terms)]


_WAYS: list[Callable[[SQLStore], object]] = [
    lambda store: store.rewrite(_log(store), 0),
    lambda store: store.rewrite(_log(store), 0, entries(1, 20, _fill(900, "others"))),
    _overwrite_head, _delete_facts, _overwrite_facts, _delete_vectors, _overwrite_vectors,
    _clear_vectors,
]  # fmt: skip


@pytest.mark.parametrize("way", _WAYS)
def test_no_trace_is_left(store: SQLStore, tmp_path: Path, way: Callable[[SQLStore], Any]) -> None:
    """Wrong: some way of deleting leaves texts, ids or vectors in the file."""
    _put_facts(store, "others")
    if way is not _clear_vectors:
        _put_vectors(store, "others")
    way(store)
    store.secure_erase()
    assert _traces(tmp_path, MARK.encode(), *_marks()) == set()
    _check(tmp_path)


@pytest.mark.parametrize("size", [60, 400, 1_500])
def test_moved_rows_leave_no_traces(store: SQLStore, tmp_path: Path, size: int) -> None:
    """Wrong: split or merged pages keep copies of deleted rows."""
    dice = random.Random(size)
    store.open_vectors("v", 64, "m")
    victims = [f"{MARK}{n}" for n in range(10)]
    others = [f"s{dice.randrange(10**9)}" for _ in range(60)]
    features = {True: _features(MARK, 1), False: _features("others", 1)}
    for _ in range(6):
        for name in dice.sample(victims + others, len(victims + others)):
            mine = name in victims
            word, owner = (MARK, f"{name}-user") if mine else ("others", f"u{dice.randrange(9)}")
            text = _fill(dice.randrange(20, size), word)
            head = store.append(name, [draft(text)])
            store.move(replace(head, summary=Summary(text, 1, 1, "local")))
            fields: dict[str, Any] = {"owner": f"user:{owner}", "session_id": name}
            one = record(f"{word}{dice.randrange(10**9)}", text=text, **fields)
            store.put_records("facts", [one])
            store.put_vectors("v", [one], features[mine])
    assert all(_traces(tmp_path, mark) for mark in _marks())
    for name in dice.sample(others, 40) + victims:
        store.delete_records("facts", session_id=name)
        store.delete_vectors("v", session_id=name)
        store.delete(name)
    store.secure_erase()
    assert _traces(tmp_path, MARK.encode(), *_marks()) == set()
    assert store.counts().entries == 20 * 6
    _check(tmp_path)


def test_concurrent_secure_erases_and_writes_succeed(store: SQLStore, tmp_path: Path) -> None:
    """Wrong: a secure erase fails, or makes concurrent calls fail."""

    def forget(name: str) -> None:
        store.append(name, [draft(_fill(2_000))])
        store.delete(name)
        store.secure_erase()

    def live() -> None:
        for _ in range(40):
            store.append("s", [draft("others")])
            store.read("s")

    together([*(partial(forget, f"{MARK}{n}") for n in range(5)), live, live])
    assert _traces(tmp_path) == set()
    assert [entry.seq for entry in store.read("s")] == list(range(1, 81))


class _Reader:
    """Another connection that reads an old state for long, like a backup."""

    def __init__(self, folder: Path, begin: str = "BEGIN") -> None:
        self._connection = sqlite3.connect(folder / "memory.db", isolation_level=None)
        self._connection.execute(begin)
        self._connection.execute("SELECT count(*) FROM agent_memory_messages").fetchone()

    def end(self) -> None:
        self._connection.close()


def test_a_long_reader_causes_a_warning_about_traces(
    store: SQLStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Wrong: a long reader makes a deletion fail or wait, or no warning says that traces remain."""
    store.append("s", [draft(_fill(2_000))])
    reader = _Reader(tmp_path)
    monkeypatch.setattr(f"{ENGINE}._SCRUB_SECONDS", 0.05)
    store.delete("s")
    store.secure_erase()
    assert ["held open by a reader" in line for line in caplog.messages] == [True]
    assert _traces(tmp_path)
    reader.end()
    caplog.clear()
    store.secure_erase()
    assert caplog.messages == []
    assert _traces(tmp_path) == set()


def test_a_secure_erase_that_waits_for_a_reader_blocks_no_writer(
    store: SQLStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Wrong: a secure erase that waits for a reader blocks all writers."""
    store.append("s", [draft(_fill(2_000))])
    reader = _Reader(tmp_path)
    monkeypatch.setattr(f"{ENGINE}._SCRUB_SECONDS", 100)
    store.delete("s")
    scrub = threading.Thread(target=store.secure_erase)
    scrub.start()
    writer = sqlite3.connect(tmp_path / "memory.db", timeout=20, isolation_level=None)
    try:
        for _ in range(5):
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("ROLLBACK")
            store.append("t", [draft("others")])
            assert scrub.is_alive()
            time.sleep(0.03)  # lets the secure erase try in between
    finally:
        writer.close()
        reader.end()
        scrub.join()
    assert caplog.messages == []
    assert _traces(tmp_path) == set()


def test_a_deletion_succeeds_if_a_lock_prevents_the_erase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong: a completed deletion is reported as failed."""
    monkeypatch.setattr(f"{ENGINE}_file.BUSY_SECONDS", 0.05)
    monkeypatch.setattr(f"{ENGINE}._SCRUB_SECONDS", 0.05)
    store = SQLStore(f"sqlite:///{tmp_path}/memory.db")
    store.append("s", [draft(_fill(2_000))])
    store.delete("s")
    writer = _Reader(tmp_path, "BEGIN IMMEDIATE")
    store.secure_erase()
    writer.end()
    assert "could not be overwritten" in caplog.messages[0]
    assert MARK not in caplog.text
    store.secure_erase()
    assert _traces(tmp_path) == set()
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.secure_erase()


_FACTS = table_name("documents")
_SOME = f"UPDATE {_FACTS} SET id = id || 'x' WHERE rowid % 20 = 0"
"""Changes many pages of an index a little: much would have SQLite put them in order."""


@pytest.fixture
def full_of_traces(tmp_path: Path) -> Path:
    """A closed file of 1,500 pages with copies of deleted data in the gaps of each."""
    path = tmp_path / "memory.db"
    store = SQLStore(f"sqlite:///{path}")
    some = [record(f"{n * 7919 % 997:03}{_fill(90, 'id')}", text=_fill(400)) for n in range(400)]
    for one in some:
        store.put_records("facts", [replace(one, text=_fill(300, "others"))])
    many = [record(f"z{n}", owner="user:b", text=_fill(3_000, "others")) for n in range(1_300)]
    store.put_records("facts", many)
    store.append("s", [draft("x")])
    store.close()
    connection = sqlite3.connect(path)
    roots = [root for (root,) in connection.execute(sqlite._ROOTS)]
    connection.close()
    data = path.read_bytes()
    size = page_size(data)
    pages = {n: data[(n - 1) * size : n * size] for n in range(1, len(data) // size + 1)}
    for number in of_trees(pages.__getitem__, roots, pages):
        found = gap(pages[number])
        assert found
        room = _fill(found.stop - found.start).encode()
        pages[number] = pages[number][: found.start] + room + pages[number][found.stop :]
    path.write_bytes(b"".join(pages.values()))
    assert _traces(tmp_path) == {"memory.db"}
    _check(tmp_path)
    return path


def test_no_cached_page_is_restored(full_of_traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: another connection writes back a cached page that was emptied."""
    store = SQLStore(f"sqlite:///{full_of_traces}")
    other = sqlite3.connect(full_of_traces, isolation_level=None)
    index = f"{_FACTS} INDEXED BY sqlite_autoindex_{_FACTS}_1"
    assert other.execute(f"SELECT count(id) FROM {index} WHERE namespace > ''").fetchone()

    def touched(connection: Connection) -> bool:
        other.execute(_SOME)
        return empty_log(connection)

    empty_log = sqlite._empty_log
    monkeypatch.setattr(sqlite, "_empty_log", touched)
    store.secure_erase()
    assert _traces(full_of_traces.parent) == set()
    other.close()
    store.close()


def test_pages_cached_by_the_erasing_connection_are_discarded(full_of_traces: Path) -> None:
    """Wrong: the erasing connection continues with cached pages."""
    store = SQLStore(f"sqlite:///{full_of_traces}")
    database = store._database
    index = f"{_FACTS} INDEXED BY sqlite_autoindex_{_FACTS}_1"
    read = f"SELECT count(id) FROM {index} WHERE namespace > ''"
    assert database.alone(lambda connection: connection.value(read)) == 1_701
    store.secure_erase()
    database.alone(lambda connection: connection.value(_SOME))
    assert _traces(full_of_traces.parent) == set()
    store.close()


def test_an_erase_works_without_wal(full_of_traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: on a file system without WAL deleted texts stay."""
    connection = sqlite3.connect(full_of_traces)
    assert connection.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    connection.close()
    monkeypatch.setattr(f"{ENGINE}_file._switch_to_wal", lambda connection: "delete")
    store = SQLStore(f"sqlite:///{full_of_traces}")
    store.secure_erase()
    assert _traces(full_of_traces.parent) == set()
    assert store.append("s", [draft("y")]).end == 2
    store.close()
    _check(full_of_traces.parent)


def test_closing_a_store_does_not_drop_locks_of_another(store: SQLStore, tmp_path: Path) -> None:
    """Wrong: closing one store drops another's locks, so that a third deletes its log."""
    other = SQLStore(f"sqlite:///{tmp_path}/memory.db")
    other.append("s", [draft("x")])
    other.secure_erase()
    other.close()
    store.append("s", [draft("y")])
    come_and_go = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA user_version')"
    path = str(tmp_path / "memory.db")
    subprocess.run([sys.executable, "-c", come_and_go, path], check=True, timeout=60)
    assert store.append("s", [draft("z")]).end == 3


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="it counts open files in /proc")
def test_a_closed_store_holds_no_open_file(tmp_path: Path) -> None:
    """Wrong: a closed store keeps a file open."""
    store = SQLStore(f"sqlite:///{tmp_path}/memory.db")
    store.append("s", [draft("x")])
    store.secure_erase()
    store.close()
    there = [one.resolve() for one in Path("/proc/self/fd").iterdir()]
    assert not [one for one in there if tmp_path in one.parents]


def test_a_secure_erase_reports_a_damaged_tree(store: SQLStore, tmp_path: Path) -> None:
    """Wrong: a secure erase of a damaged file writes to unknown pages, or never ends."""
    store.append("s", [draft("x")])
    store.secure_erase()
    roots = sqlite3.connect(tmp_path / "memory.db")
    query = f"SELECT rootpage FROM sqlite_master WHERE name = '{_FACTS}'"
    ((page,),) = roots.execute(query).fetchall()
    ((size,),) = roots.execute("PRAGMA page_size").fetchall()
    roots.close()
    path = tmp_path / "memory.db"
    data = bytearray(path.read_bytes())
    data[(page - 1) * size] = 0
    path.write_bytes(data)
    with pytest.raises(Damaged, match="doctor"):
        store.secure_erase()


_KILLED = """
import os, sys
from agent_memory.stores.sql import sqlite_pages
from agent_memory.stores.sql.store import SQLStore
left = int(sys.argv[2])
write = sqlite_pages.RawFile._write
def killed(self, data, at):
    global left
    left -= 1
    if not left:
        write(self, data[: len(data) // 2], at)
        os._exit(9)
    write(self, data, at)
sqlite_pages.RawFile._write = killed
SQLStore(sys.argv[1]).secure_erase()
"""


@pytest.mark.parametrize("write", [1, 5, 20])
def test_a_killed_secure_erase_can_be_repeated(full_of_traces: Path, write: int) -> None:
    """Wrong: a process killed while it empties a page leaves a damaged file, or traces."""
    url, folder = f"sqlite:///{full_of_traces}", full_of_traces.parent
    store = SQLStore(url)
    assert store.append("s", [draft("y")]).end == 2
    done = subprocess.run([sys.executable, "-c", _KILLED, url, str(write)], check=False, timeout=60)
    assert done.returncode == 9
    _check(folder)
    assert _traces(folder)
    store.secure_erase()
    assert store.append("s", [draft("z")]).end == 3
    assert _traces(folder) == set()
    assert len(store.records("facts", "user:a")) == 400
    store.close()


_FORKED = """
import os, sys, threading
from agent_memory.stores.sql import sqlite_pages
from agent_memory.stores.sql.store import SQLStore
store = SQLStore(sys.argv[1])
begun, may_end = threading.Event(), threading.Event()
untidy = sqlite_pages.RawFile.untidy
def slow(self):
    begun.set()
    may_end.wait(60)
    return untidy(self)
sqlite_pages.RawFile.untidy = slow
thread = threading.Thread(target=store.secure_erase)
thread.start()
begun.wait(60)
child = os.fork()
if not child:
    may_end.set()
    store.secure_erase()
    store.close()
    os._exit(7)
_, status = os.waitpid(child, 0)
may_end.set()
thread.join()
store.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_fork_during_a_secure_erase_does_not_hang(full_of_traces: Path) -> None:
    """Wrong: a forked child waits for a thread that it does not have."""
    url = f"sqlite:///{full_of_traces}"
    done = subprocess.run([sys.executable, "-c", _FORKED, url], check=False, timeout=120)
    assert done.returncode == 7
    assert _traces(full_of_traces.parent) == set()
    _check(full_of_traces.parent)


def test_a_file_with_space_reserved_by_an_extension_is_not_erased(full_of_traces: Path) -> None:
    """Wrong: an erase invalidates page checksums of a SQLite extension."""
    data = bytearray(full_of_traces.read_bytes())
    data[20] = 8
    full_of_traces.write_bytes(data)
    with pytest.raises(OSError, match="extension of SQLite"):
        list(RawFile(str(full_of_traces)).untidy())
