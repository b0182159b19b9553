"""`agent-memory backup` and `restore`, killed at every step."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from agent_memory.errors import StoreUnavailable
from agent_memory.stores.sql.backups import back_up
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing.contract import draft

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing is killed there")

STEPS = ("os.rename", "os.remove", "os.chmod", "os.chown", "sqlite3.connect", "tempfile.mkstemp")
COMMAND = f"""
import os, signal, sys
from agent_memory.cli import entry, transfer
from agent_memory.engine import leases
from agent_memory.stores import sql
from agent_memory.stores.sql import backups, store

leases.LEASE_SECONDS = 0.1
fatal, seen = int(sys.argv.pop(1)), 0


def hook(event, args):
    global seen
    if event in {STEPS!r}:
        seen += 1
        if seen == fatal:
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(hook)
entry.main()
"""


def _run(*arguments: str, fatal: int = 0) -> bool:
    """Run a command. Return whether it ended by itself instead of being killed at a step."""
    command = [sys.executable, "-c", COMMAND, str(fatal), *arguments]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done
    return done.returncode == 0


def _contents(path: Path) -> list[object]:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with closing(SQLStore(f"sqlite:///{path}")) as store:
        return [entry.message.content for entry in store.read("s")]


def _filled(path: Path) -> SQLStore:
    store = SQLStore(f"sqlite:///{path}")
    store.append("s", [draft("before it")])
    return store


def _is_acknowledged(store: SQLStore) -> bool:
    """Return whether a service that has the store open can still append."""
    try:
        store.append("s", [draft("by the service")])
    except StoreUnavailable:
        return False
    return True


def test_a_killed_restore_loses_neither_store_nor_backup(tmp_path: Path) -> None:
    """Wrong: an interrupted restore loses store and backup, mixes them, or lets a service append to
    a file that is no longer the store."""
    for fatal in range(1, 100, 3):
        folder = tmp_path / f"{fatal}"
        folder.mkdir()
        path, backup = folder / "a.db", folder / "b.db"
        store = _filled(path)
        back_up(f"sqlite:///{path}", backup)
        store.append("s", [draft("after it")])
        restore = ["restore", str(backup), "--yes", "--store", f"sqlite:///{path}"]
        ended = _run(*restore, fatal=fatal)
        before = _contents(path)
        assert len(before) in (1, 2)
        assert len(before) == 1 or not ended
        if _is_acknowledged(store):
            assert _contents(path) == [*before, "by the service"]
        else:
            assert _contents(path)[:2] == before
        store.close()
        assert len(_contents(backup)) == 1
        if ended:
            assert fatal > 5
            return
        assert _run(*restore)
        assert _contents(path) == _contents(backup)
    raise AssertionError("it never came to its end")


def test_a_killed_backup_does_not_damage_the_previous_one(tmp_path: Path) -> None:
    """Wrong: an interrupted backup replaces the last whole one, or its temporary files stay."""
    path, backup = tmp_path / "a.db", tmp_path / "b.db"
    command = ["backup", str(backup), "--store", f"sqlite:///{path}"]
    with closing(_filled(path)) as store:
        for fatal in range(1, 100):
            store.append("s", [draft("one more")])
            ended = _run(*command, fatal=fatal)
            there = len(_contents(backup)) if backup.exists() else 0
            assert there in ([fatal + 1] if ended else [0, fatal, fatal + 1])
            assert ended or _run(*command)
            assert len(_contents(backup)) == fatal + 1
            if ended:
                break
    assert fatal > 3
    hidden = [one for one in tmp_path.iterdir() if one.name.startswith(".b.db.")]
    assert hidden
    mine = tmp_path / ".b.db.mine"
    mine.touch()
    for one in (*hidden, mine):
        os.utime(one, (0, 0))
    assert _run(*command)
    assert [one for one in tmp_path.iterdir() if one.name.startswith(".")] == [mine]
