"""What was deleted from a SQLite file is gone from its bytes too, after a secure erase."""

from __future__ import annotations

import json
import logging
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_memory.core.records import Summary
from agent_memory.errors import StoreUnavailable
from agent_memory.retrieval.features import Features
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing.contract import draft, record, stored, together
from agent_memory.testing.features import worded
from agent_memory.testing.rewriting import entries

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
    """Files with any of the marks in them.

    Another process looks: when one closes a file, SQLite's locks on it are gone for all of it.
    """
    given = json.dumps([str(folder), [mark.hex() for mark in marks or (MARK.encode(),)]])
    command = [sys.executable, "-I", "-S", "-c", _SCAN]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def _said(size: int, word: str = MARK) -> str:
    return (word * (size // len(word) + 1))[:size]


def _check(folder: Path) -> None:
    connection = sqlite3.connect(folder / "memory.db")
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finally:
        connection.close()


@pytest.mark.parametrize("size", [40, 600, 3_900, 4_050, 4_100, 9_000, 300_000, 4 * 2**20])
def test_a_deleted_session_is_gone(store: SQLStore, tmp_path: Path, size: int) -> None:
    """Wrong: what a user asked to forget can be read from the disk."""
    for turn in range(3):
        for name in ("s-1", f"{MARK}-session", "s-2"):
            word = MARK if MARK in name else "others"
            user = f"{word}-user" if word == MARK else None
            drafts = [draft(_said(size, word)), draft(_said(size // 2, word), role="system")]
            head = store.append(name, drafts, user)
            summary = Summary(_said(size, word), 1, 1, "local", redo_after=turn)
            store.move(replace(head, summary=summary, cursors={word: turn}))
    store.secure_erase()
    assert _traces(tmp_path)
    store.delete(f"{MARK}-session")
    store.secure_erase()
    assert _traces(tmp_path) == set()
    assert _traces(tmp_path, b"othersothers") == {"memory.db"}
    assert [len(store.read(name)) for name in ("s-1", "s-2")] == [6, 6]


def _overwrite_head(store: SQLStore) -> None:
    said = _said(5_000)
    head = store.append("s", [draft(said, role="system")], f"{MARK}-user")
    summary = Summary(said, 1, 1, "local", redo_after=0, redo_text=said)
    moved = store.move(replace(head, summary=summary, cursors={MARK: 1}))
    assert moved is not None
    assert store.rewrite(replace(moved, summary=None, cursors={}, user_id=None), 0)
    store.append("s", [draft("other rules", role="system")])


def _cut(store: SQLStore) -> None:
    head = store.append("s", [draft(_said(n * 300)) for n in range(1, 30)])
    assert store.rewrite(head, 0)


def _rewrite(store: SQLStore) -> None:
    head = store.append("s", [draft(_said(n * 300)) for n in range(1, 30)])
    assert store.rewrite(head, 0, entries(1, 20, _said(900, "others")))


def _delete_facts(store: SQLStore) -> None:
    _put_facts(store, MARK)
    store.delete_records("facts", owner=f"user:{MARK}")


def _overwrite_facts(store: SQLStore) -> None:
    store.put_records("facts", [record(f"r{n}", text=_said(n * 100)) for n in range(60)])
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
    store.put_records(
        "facts",
        [record(f"{word}{n}", text=_said(n * 100, word), **fields) for n in range(60)],
    )


def _put_vectors(store: SQLStore, word: str) -> None:
    store.open_vectors("v", 64, "m")
    fields = {"owner": f"user:{word}", "session_id": f"{word}-session"}
    store.put_vectors("v", [record(f"{word}{n}", **fields) for n in range(60)], _features(word))


def _rows(word: str) -> np.ndarray:
    """Vectors whose bytes tell whose they are: no other's numbers follow each other so."""
    pair = {MARK: (0.6, 0.8), "others": (0.8, -0.6)}[word]
    return np.tile((np.array(pair) / np.sqrt(32)).astype("<f4"), (60, 32))


def _features(word: str, count: int = 60) -> Features:
    """With words whose numbers, side by side, nobody else has."""
    rows = _rows(word)[:count]
    words = [f"{word} {word}words"] * count
    return worded(words, [f"{word}near {word}around"] * count, rows, np.roll(rows, 1, axis=1))


def _marks() -> list[bytes]:
    """The bytes of the numbers in a marked record's features."""
    marked = _features(MARK, 1)
    vectors = (marked.meaning[0][:4], marked.meaning_around[0][:4].astype("<f2"))
    words = (marked.words[0].ids, marked.words_around[0].ids)
    return [numbers.tobytes() for numbers in (*vectors, *words)]


_WAYS: dict[str, Callable[[SQLStore], None]] = {
    "overwritten heads": _overwrite_head,
    "cut logs": _cut,
    "rewritten logs": _rewrite,
    "deleted facts": _delete_facts,
    "overwritten facts": _overwrite_facts,
    "deleted vectors": _delete_vectors,
    "overwritten vectors": _overwrite_vectors,
    "cleared vectors": _clear_vectors,
}


@pytest.mark.parametrize("way", _WAYS)
def test_every_way_of_deleting(store: SQLStore, tmp_path: Path, way: str) -> None:
    """Wrong: one of them leaves texts, ids or the numbers of vectors in the file."""
    _put_facts(store, "others")
    if "cleared" not in way:
        _put_vectors(store, "others")
    _WAYS[way](store)
    store.secure_erase()
    assert _traces(tmp_path, MARK.encode(), *_marks()) == set()
    _check(tmp_path)


@pytest.mark.parametrize("size", [60, 400, 1_500])
def test_rows_that_moved_leave_nothing(store: SQLStore, tmp_path: Path, size: int) -> None:
    """Wrong: copies of rows stay in pages that were split or merged, and outlive the rows."""
    dice = random.Random(size)
    store.open_vectors("v", 64, "m")
    victims = [f"{MARK}{n}" for n in range(10)]
    others = [f"s{dice.randrange(10**9)}" for _ in range(60)]
    features = {True: _features(MARK, 1), False: _features("others", 1)}
    for _ in range(6):
        for name in dice.sample(victims + others, len(victims + others)):
            mine = name in victims
            word, owner = (MARK, f"{name}-user") if mine else ("others", f"u{dice.randrange(9)}")
            text = _said(dice.randrange(20, size), word)
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


def test_thousands_of_rows(store: SQLStore, tmp_path: Path) -> None:
    """Wrong: freed pages of a large log keep what stood on them."""
    for n in range(30):
        store.append(f"{MARK}-s", [draft(_said(50 + n * 7 + k)) for k in range(100)])
        store.append("s", [draft(_said(50 + n * 7 + k, "others")) for k in range(100)])
    store.delete(f"{MARK}-s")
    store.secure_erase()
    assert _traces(tmp_path) == set()
    assert stored(store).end == 3_000
    _check(tmp_path)


def test_many_scrub_while_others_write(store: SQLStore, tmp_path: Path) -> None:
    """Wrong: rewriting the file fails, or makes those fail who use it meanwhile."""

    def forget(name: str) -> None:
        store.append(name, [draft(_said(2_000))])
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
    """Another connection that reads one old state for long, as a backup does."""

    def __init__(self, folder: Path, begin: str = "BEGIN") -> None:
        self._connection = sqlite3.connect(folder / "memory.db", isolation_level=None)
        self._connection.execute(begin)
        self._connection.execute("SELECT count(*) FROM agent_memory_entries").fetchone()

    def end(self) -> None:
        self._connection.close()


def test_a_long_reader_is_warned_of(
    store: SQLStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Wrong: a backup makes a deletion fail or wait, or what it keeps alive stays for ever."""
    store.append("s", [draft(_said(2_000))])
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


def test_writers_need_not_wait_for_a_long_reader(
    store: SQLStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Wrong: while a secure erase waits for a reader, it keeps all writers out."""
    store.append("s", [draft(_said(2_000))])
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
            time.sleep(0.03)  # so that the secure erase's next try comes in between
    finally:
        writer.close()
        reader.end()
        scrub.join()
    assert caplog.messages == []
    assert _traces(tmp_path) == set()


def test_a_file_that_cannot_be_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong: a deletion that was done is reported as failed."""
    monkeypatch.setattr(f"{ENGINE}._BUSY_SECONDS", 0.05)
    monkeypatch.setattr(f"{ENGINE}._SCRUB_SECONDS", 0.05)
    store = SQLStore(f"sqlite:///{tmp_path}/memory.db")
    store.append("s", [draft(_said(2_000))])
    store.delete("s")
    writer = _Reader(tmp_path, "BEGIN IMMEDIATE")
    store.secure_erase()
    writer.end()
    assert "could not be rewritten" in caplog.messages[0]
    assert MARK not in caplog.text
    store.secure_erase()
    assert _traces(tmp_path) == set()
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.secure_erase()


def test_a_large_file_is_not_rewritten_in_use(
    store: SQLStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Wrong: deleting one session stops all writers for minutes, or the user is not told."""
    monkeypatch.setattr(f"{ENGINE}._REWRITE_BYTES", 0)
    store.append("s", [draft("x")])
    with caplog.at_level(logging.WARNING):
        store.secure_erase()
    assert ["Run VACUUM" in line for line in caplog.messages] == [True]
