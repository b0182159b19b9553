"""A SQLite file that is moved, deleted or replaced while it is open, and its permissions."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from agent_memory import AgentMemory
from agent_memory.errors import StoreUnavailable
from agent_memory.server.monitoring import JsonLines
from agent_memory.stores.sql.backups import back_up, copied
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing.contract import draft

POSIX = pytest.mark.skipif(os.name == "nt", reason="open files can't be moved there")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLStore]:
    with closing(SQLStore(f"sqlite:///{path}")) as store:
        yield store


def _contents(path: Path) -> list[object]:
    with closing(SQLStore(f"sqlite:///{path}")) as store:
        return [entry.message.content for entry in store.read("s")]


def _earlier(path: Path) -> None:
    """Replace the file by a backup from before its first message."""
    other = path.with_name("backup.db")
    with closing(SQLStore(f"sqlite:///{other}")) as store:
        store.append("s", [draft("of the backup")])
    other.replace(path)


def _drop_log(path: Path) -> None:
    for tail in ("-wal", "-shm"):
        Path(f"{path}{tail}").unlink()
    time.sleep(0.01)  # it is not checked at each of several calls in a millisecond


def _move(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


GONE = [
    (_move, "moved or deleted"),
    (Path.unlink, "moved or deleted"),
    (_earlier, "replaced by another file"),
    (_drop_log, "the write-ahead log"),
]


@POSIX
@pytest.mark.parametrize(("act", "says"), GONE)
@pytest.mark.parametrize("first", ["append", "read"])
def test_a_moved_or_deleted_file_raises_an_error(
    path: Path,
    act: Callable[[Path], None],
    says: str,
    first: str,
    store: SQLStore,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Wrong: updates to a file that was moved or deleted are acknowledged, and lost. Or the
    service's log does not name the cause."""
    store.append("s", [draft("a")])
    calls: list[Callable[[], object]] = [
        lambda: store.append("s", [draft("b")]),
        lambda: store.read("s"),
        lambda: store.lease("s", "w", 10),
    ]
    act(path)
    for call in calls if first == "append" else calls[::-1]:
        with pytest.raises(StoreUnavailable, match=says) as caught:
            call()
        assert str(path.parent) not in str(caught.value)
    (line,) = [json.loads(JsonLines().format(record)) for record in caplog.records]
    assert (line["level"], line["event"]) == ("error", str(caught.value))


@POSIX
@pytest.mark.parametrize("act", [act for act, _ in GONE])
def test_a_missing_file_is_detected_before_a_write(path: Path, act: Callable[[Path], None]) -> None:
    """Wrong: a process that has not written yet does not notice that its file is gone."""
    SQLStore(f"sqlite:///{path}").close()
    with AgentMemory(store=f"sqlite:///{path}") as memory:
        memory.history("s")
        act(path)
        with pytest.raises(StoreUnavailable, match="while it was open"):
            memory.update("s", {"role": "user", "content": "b"})


@POSIX
@pytest.mark.parametrize("notices", [True, False])
def test_a_restored_backup_ignores_the_old_write_ahead_log(path: Path, notices: bool) -> None:
    """Wrong: a restored backup shows messages written after it was taken."""
    store = SQLStore(f"sqlite:///{path}")
    for n in range(20):
        store.append("s", [draft(f"{n}")])
    _earlier(path)
    if notices:
        with pytest.raises(StoreUnavailable, match=r"are in 'memory\.db-wal\.old'"):
            store.append("s", [draft("b")])
    store.close()
    assert _contents(path) == ["of the backup"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def _another(path: Path) -> Path:
    other = path.with_name("other.db")
    with closing(SQLStore(f"sqlite:///{other}")) as store:
        for n in range(300):
            store.append("s", [draft(f"of the other {n}")])
    return other


def _harm(path: Path, how: str, kept: Path) -> None:
    if how == "empty":
        os.truncate(path, 0)
    elif how == "half":
        os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)
    elif how == "another":
        path.write_bytes(_another(path).read_bytes())
    else:
        path.write_bytes(kept.read_bytes())


@POSIX
@pytest.mark.parametrize(
    ("how", "opened"),
    [
        *((how, False) for how in ("empty", "half", "another", "earlier")),
        *((how, True) for how in ("empty", "half", "another")),
    ],
)
def test_an_overwritten_file_raises_an_error(path: Path, how: str, opened: bool) -> None:
    """Wrong: updates to a file that was overwritten are acknowledged, and lost."""
    kept = path.with_name("kept.db")
    with closing(SQLStore(f"sqlite:///{path}")) as store:
        store.append("s", [draft("of the backup")])
    kept.write_bytes(path.read_bytes())
    store = SQLStore(f"sqlite:///{path}")
    for n in range(400):
        store.append(f"s{n}", [draft("x" * 200)])
    if opened:  # nothing was written since
        store.close()
        store = SQLStore(f"sqlite:///{path}")
        store.read("s")
    _harm(path, how, kept)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="overwrote"):
            store.append("s", [draft("b")])
    with pytest.raises(StoreUnavailable, match="overwrote"):
        store.read("s")
    now = path.read_bytes()
    store.close()
    assert path.read_bytes() == now
    if how in ("another", "earlier"):
        assert len(_contents(path)) == (300 if how == "another" else 1)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_vacuum_by_another_program_raises_no_error(path: Path, store: SQLStore) -> None:
    """Wrong: a file that another program shrank by VACUUM is taken for a truncated one."""
    for turn in range(2):
        for n in range(300):
            store.append(f"s{n}", [draft("x" * 300)])
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            full = path.stat().st_size
            for n in range(300):
                store.delete(f"s{n}")
            other.execute("VACUUM")
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            assert path.stat().st_size < full / 2
        assert store.append("s", [draft("b")]).end == turn + 1


@POSIX
@pytest.mark.parametrize("act", [_move, _drop_log])
def test_a_file_moved_back_has_all_messages(path: Path, act: Callable[[Path], None]) -> None:
    """Wrong: a store whose file is moved, or whose `-wal` is deleted, loses data at its close."""
    store = SQLStore(f"sqlite:///{path}")
    store.append("s", [draft("a")])
    act(path)
    with pytest.raises(StoreUnavailable):
        store.read("s")
    store.close()
    if act is _move:
        path.with_name("moved.db").rename(path)
    assert _contents(path) == ["a"]


@POSIX
@pytest.mark.parametrize("empty", [False, True])
def test_a_log_without_its_file_is_not_discarded(path: Path, empty: bool) -> None:
    """Wrong: a new file is created beside the log of a moved one, and its last writes are lost. Or
    `doctor` or `backup` opens an empty file beside the log, which discards the log."""
    store = SQLStore(f"sqlite:///{path}")
    store.append("s", [draft("a")])
    _move(path)
    with pytest.raises(StoreUnavailable):
        store.read("s")
    store.close()
    if empty:
        path.touch()
    url = f"sqlite:///{path}"
    for use in (copied(url).__enter__, lambda: back_up(url, path.with_name("b.db"))):
        with pytest.raises(StoreUnavailable, match=r"'memory\.db-wal' has the last writes"):
            use()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"'memory\.db-wal' has the last writes"):
            SQLStore(url)
    assert path.exists() == empty
    path.with_name("moved.db").replace(path)
    assert _contents(path) == ["a"]


@POSIX
def test_a_new_database_is_created_after_the_old_log_was_moved(path: Path) -> None:
    """Wrong: a database whose file is lost cannot be replaced by a new one."""
    store = SQLStore(f"sqlite:///{path}")
    store.append("s", [draft("a")])
    path.unlink()
    store.close()
    Path(f"{path}-wal").rename(path.with_name("lost-wal"))
    assert _contents(path) == []


@POSIX
def test_erases_see_new_file(path: Path, caplog: pytest.LogCaptureFixture, store: SQLStore) -> None:
    """Wrong: after a file was replaced, an erase works on the old file, or fails on the new."""
    store.append("s", [draft("a")])
    store.secure_erase()
    path.with_name("new.db").write_bytes(path.read_bytes())
    path.with_name("new.db").replace(path)
    with pytest.raises(StoreUnavailable):
        store.secure_erase()
    caplog.clear()
    another = SQLStore(f"sqlite:///{path}")
    another.secure_erase()
    assert caplog.messages == []
    another.close()


def test_other_processes_can_open_and_close_the_file(path: Path, store: SQLStore) -> None:
    """Wrong: a log that SQLite creates again is taken for a deleted one."""
    code = (
        "import sys\n"
        "from agent_memory.stores.sql.store import SQLStore\n"
        "from agent_memory.testing.contract import draft\n"
        "store = SQLStore(sys.argv[1])\n"
        "store.append('s', [draft('b')])\n"
        "store.secure_erase()\n"
        "store.close()\n"
    )
    database = store._database
    for n in range(3):
        assert store.append("s", [draft("a")]).end == 2 * n + 1
        if n:
            database.prepare_fork()  # closes all connections, which removes the log
        subprocess.run([sys.executable, "-c", code, f"sqlite:///{path}"], check=True, timeout=60)
    assert len(store.read("s")) == 6


def test_opening_resolves_a_relative_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: after `os.chdir` a store with a relative path continues in another file."""
    monkeypatch.chdir(path.parent)
    store = SQLStore("sqlite:///memory.db")
    store.append("s", [draft("a")])
    (path.parent / "elsewhere").mkdir()
    monkeypatch.chdir(path.parent / "elsewhere")
    database = store._database
    database.prepare_fork()
    assert store.append("s", [draft("b")]).end == 2
    store.close()
    assert os.listdir() == []


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _modes(path: Path) -> dict[str, int]:
    return {one.name.removeprefix(path.name): one.stat().st_mode & 0o777 for one in _files(path)}


def _files(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}*"))


@POSIX
def test_a_new_file_is_readable_only_by_its_owner(path: Path) -> None:
    """Wrong: other accounts of the machine can read the database, its log or its index."""
    with _umask(0o022), closing(SQLStore(f"sqlite:///{path}")) as store:
        store.append("s", [draft("a")])
        assert _modes(path) == dict.fromkeys(["", "-shm", "-wal"], 0o600)


@POSIX
def test_the_permissions_of_an_existing_file_do_not_change(path: Path) -> None:
    """Wrong: the store narrows the permissions of an existing file, or of its log."""
    path.touch()
    path.chmod(0o660)
    link = path.with_name("link.db")
    link.symlink_to(path)
    with _umask(0o077), closing(SQLStore(f"sqlite:///{link}")) as store:
        store.append("s", [draft("a")])
        assert _modes(path) == dict.fromkeys(["", "-shm", "-wal"], 0o660)


@POSIX
def test_a_file_created_through_a_link_is_readable_only_by_its_owner(path: Path) -> None:
    """Wrong: a file created through a link is readable by all."""
    link = path.with_name("link.db")
    link.symlink_to(path)
    with _umask(0o022), closing(SQLStore(f"sqlite:///{link}")) as store:
        store.append("s", [draft("a")])
    assert _modes(path) == {"": 0o600}


def test_a_read_only_file_raises_an_error_with_a_remedy(
    path: Path, store: SQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: a read-only file raises SQLite's own words without what to do."""
    store.append("s", [draft("a")])

    def read_only(path: str, durability: object) -> tuple[sqlite3.Connection, int]:
        # root may write to any file: SQLite itself must refuse
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None), 0

    monkeypatch.setattr("agent_memory.stores.sql.sqlite.connect", read_only)
    with closing(SQLStore(f"sqlite:///{path}")) as other:
        assert len(other.read("s")) == 1
        with pytest.raises(StoreUnavailable, match=r"Allow this process .* folder\."):
            other.append("s", [draft("b")])


@POSIX
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may")
def test_a_read_only_folder_raises_an_error_with_the_cause(path: Path) -> None:
    """Wrong: a read-only folder raises 'unable to open database file' without the cause."""
    path.parent.chmod(0o500)
    try:
        with pytest.raises(StoreUnavailable, match="cannot be created: Permission denied"):
            SQLStore(f"sqlite:///{path}")
    finally:
        path.parent.chmod(0o700)
