"""`agent-memory backup` and `restore` of whole stores, run as in a shell."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory import AgentMemory, NoteMemory
from agent_memory.errors import SchemaTooNew, StoreUnavailable
from agent_memory.stores.sql import backups
from agent_memory.stores.sql.backups import back_up, put_back
from tests.kit import clean_environment, invoke

STORE = "sqlite:///a.db"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a new folder, with a database of two namespaces, and wide lines."""
    clean_environment(monkeypatch, tmp_path)
    for namespace in ("default", "other"):
        with _opened(namespace=namespace) as memory:
            memory.update("s-1", {"role": "user", "content": f"of {namespace}"}, user_id="ada")
            memory.user("ada").notes().add("Prefers short answers.")


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    with _opened() as memory:
        yield memory


def _opened(store: str = STORE, namespace: str = "default") -> AgentMemory:
    return AgentMemory(store=store, namespace=namespace, blocks=[NoteMemory()])


def _run(*arguments: str, answer: str | None = None) -> Result:
    return invoke([*arguments, "--store", STORE], input=answer)


def _texts(store: str = STORE, namespace: str = "default") -> list[str]:
    with _opened(store, namespace) as memory:
        return [entry.message.text() for entry in memory.history("s-1")]


def _say(memory: AgentMemory, content: str) -> int:
    return memory.update("s-1", {"role": "user", "content": content}).end


def test_a_restore_reproduces_the_original_data(memory: AgentMemory) -> None:
    """Wrong: a restore loses messages, a namespace or notes, or keeps messages newer than the
    backup, or fails for a new store. Or others can read the backup, or it needs a second file."""
    _say(memory, "just now")
    done = _run("backup", "b.db")
    assert done.exit_code == 0, done.output
    assert "b.db is a backup of sqlite:///a.db." in done.stdout
    if os.name != "nt":
        assert Path("b.db").stat().st_mode & 0o777 == 0o600
    _say(memory, "after it")
    memory.close()
    done = _run("restore", "b.db", "--yes")
    assert done.exit_code == 0, done.output
    assert _texts() == ["of default", "just now"]
    assert _texts(namespace="other") == ["of other"]
    with _opened() as again:
        assert [note.text for note in again.user("ada").notes().all()] == ["Prefers short answers."]
    assert sorted(os.listdir()) == ["a.db", "b.db"]
    done = invoke(["restore", "b.db", "--store", "sqlite:///new.db"])  # asks only to replace
    assert done.exit_code == 0, done.output
    assert _texts("sqlite:///new.db") == ["of default", "just now"]


@pytest.mark.skipif(os.name == "nt", reason="open files can't be replaced there")
def test_a_process_with_the_replaced_store_open_gets_an_error(memory: AgentMemory) -> None:
    """Wrong: a process that had the store open writes to the old file or the restored one."""
    back_up(STORE, Path("b.db"))
    _say(memory, "after it")
    assert _run("restore", "b.db", "--yes").exit_code == 0
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"'a\.db' was replaced .* open it again"):
            _say(memory, "not to be found")
    with pytest.raises(StoreUnavailable, match="replaced"):
        memory.get("s-1", "What was said?")
    with _opened() as again:
        assert _say(again, "anew") == 2
    memory.close()
    assert _texts() == ["of default", "anew"]


def test_a_restore_requires_confirmation() -> None:
    """Wrong: a restore replaces a store without a confirmation."""
    assert _run("backup", "b.db").exit_code == 0
    with _opened() as memory:
        _say(memory, "after it")
    done = _run("restore", "b.db", answer="n\n")
    assert done.exit_code == 1
    assert "Replace sqlite:///a.db by b.db?" in done.output
    assert _texts() == ["of default", "after it"]
    assert _run("restore", "b.db", answer="y\n").exit_code == 0
    assert _texts() == ["of default"]


def test_a_backup_during_writes_is_consistent(memory: AgentMemory) -> None:
    """Wrong: a backup taken during writes is inconsistent, or blocks them."""
    stop, ends = threading.Event(), [1]

    def write() -> None:
        while not stop.is_set():
            ends.append(_say(memory, f"{ends[-1]}"))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            before = ends[-1]
            back_up(STORE, Path("b.db"))
            said = _texts("sqlite:///b.db")
            assert before <= len(said) <= ends[-1] + 1
            assert said == ["of default", *map(str, range(1, len(said)))]
    finally:
        stop.set()
        writer.join()


def _damage(path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(4096 * 2)
        file.write(b"\xff" * 4096 * 3)


def test_a_failed_command_prints_one_error_line() -> None:
    """Wrong: an impossible restore prints a traceback, exits with 0, or changes a file."""
    assert _run("backup", "b.db").exit_code == 0
    sqlite3.connect("c.db").execute("CREATE TABLE other (x)").connection.close()
    Path("damaged.db").write_bytes(Path("b.db").read_bytes())
    _damage("damaged.db")
    Path("cut.db").write_bytes(Path("b.db").read_bytes()[:5000])
    Path("folder").mkdir()
    before = sorted(os.listdir())
    for arguments, told in (
        (["restore", "nowhere.db"], "nowhere.db: No such file or directory."),
        (["restore", "a.db", "--yes"], "a.db' is the store itself. Choose another file."),
        (["backup", "a.db"], "is the store itself. Choose another file."),
        (["backup", "folder"], "'folder' is not a file, or is in use. Choose another file."),
        (["backup", "nowhere/b.db"], "No such file or directory."),
        (["restore", "c.db", "--yes"], "There is no memory in"),
        (["restore", "damaged.db", "--yes"], "damaged.db"),
        (["restore", "cut.db", "--yes"], "cut.db"),
    ):
        done = _run(*arguments)
        assert done.exit_code == 1, done.output
        assert "error: " in done.stderr
        assert told in done.stderr
        assert _texts() == ["of default"]
        assert sorted(os.listdir()) == before


def test_a_backup_requires_a_store_in_an_sqlite_file() -> None:
    """Wrong: the command accepts a store that is not an SQLite file, or creates a file for it."""
    for url in ("memory://", "redis://localhost:1/0", "postgresql://ada:secret@localhost/x"):
        for arguments in (["backup", "b.db"], ["restore", "a.db", "--yes"]):
            done = invoke([*arguments, "--store", url])
            assert done.exit_code == 1
            assert "only stores in SQLite files" in done.stderr
    assert os.listdir() == ["a.db"]


def test_a_backup_of_a_newer_release_is_refused() -> None:
    """Wrong: a restore replaces the store by one that this release cannot open."""
    back_up(STORE, Path("b.db"))
    with closing(sqlite3.connect("b.db", isolation_level=None)) as connection:
        connection.execute("UPDATE agent_memory_meta SET value = 999")
    with pytest.raises(SchemaTooNew, match="999"):
        put_back(Path("b.db"), STORE)
    assert _texts() == ["of default"]


def test_a_damaged_store_is_not_backed_up() -> None:
    """Wrong: a backup of a damaged store overwrites the last good backup."""
    assert _run("backup", "b.db").exit_code == 0
    good = Path("b.db").read_bytes()
    _damage("a.db")
    done = _run("backup", "b.db")
    assert done.exit_code == 1
    assert "a.db" in done.stderr
    assert Path("b.db").read_bytes() == good


@pytest.mark.parametrize("how", ["within", "whole", "empty"])
def test_a_damaged_store_is_replaced(how: str) -> None:
    """Wrong: a restore fails because the current store is damaged."""
    back_up(STORE, Path("b.db"))
    if how == "within":
        _damage("a.db")
    else:
        Path("a.db").write_bytes(b"no database " * 1000 * (how == "whole"))
    assert _run("restore", "b.db", "--yes").exit_code == 0
    assert _texts() == ["of default"]
    assert sorted(os.listdir()) == ["a.db", "b.db"]


def test_a_store_that_is_being_read_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a restore replaces a file that another process is reading or writing."""
    back_up(STORE, Path("b.db"))
    monkeypatch.setattr(backups, "BUSY_SECONDS", 0.05)
    for begin in ("BEGIN", "BEGIN IMMEDIATE"):
        with closing(sqlite3.connect("a.db", isolation_level=None)) as holder:
            holder.execute(begin)
            holder.execute("SELECT count(*) FROM agent_memory_messages").fetchall()
            with _opened() as memory:
                if begin == "BEGIN":
                    _say(memory, "of another")
                done = _run("restore", "b.db", "--yes")
            assert done.exit_code == 1
            assert "is in use" in done.stderr
    assert _texts() == ["of default", "of another"]


@pytest.mark.skipif(os.name == "nt", reason="there are no such modes there")
def test_a_restore_preserves_the_file_mode_and_links() -> None:
    """Wrong: a restore changes the mode of the file, or replaces a link to it."""
    back_up(STORE, Path("b.db"))
    os.chmod("a.db", 0o660)
    os.symlink("a.db", "link.db")
    put_back(Path("b.db"), "sqlite:///link.db")
    assert Path("link.db").is_symlink()
    assert Path("a.db").stat().st_mode & 0o777 == 0o660
