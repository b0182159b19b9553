"""The `migrate` command, and the report of `doctor` on an unfinished migration."""

from base64 import b64encode
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_memory.engine import leases
from agent_memory.engine.transfer import migrate as migrating
from agent_memory.stores import Store, open_store
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.testing import watched
from agent_memory.testing.contract import draft
from tests.integration.migrating import everything, fill_plainly
from tests.kit import clean_environment, run

FROM, TO = "sqlite:///from.db", "sqlite:///to.db"


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean_environment(monkeypatch, tmp_path)
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.02)
    with closing(open_store(FROM)) as store:
        fill_plainly(store, 3)


def interrupted(monkeypatch: pytest.MonkeyPatch, url: str = TO, *options: str) -> str:
    """Return the output of the command when Ctrl-C comes at its sixth commit."""
    calls: list[str] = []

    def watch(step: str) -> None:
        calls.append(step)
        if step == "before commit" and calls.count(step) == 6:
            raise KeyboardInterrupt

    def opened(given: str, *more: Any) -> Store:
        store = open_store(given, *more)
        return KernelStore(watched(store.kernel, watch)) if given == url else store

    with monkeypatch.context() as patch:
        patch.setattr(migrating, "open_store", opened)
        return run("migrate", FROM, url, *options, code=130)


def same(namespace: str = "default") -> None:
    with closing(open_store(FROM, namespace)) as here, closing(open_store(TO, namespace)) as there:
        assert everything(there) == everything(here)


def test_the_command_migrates_and_prints_counts() -> None:
    """Wrong: the command does not print how much it moved, or whether the stores are equal."""
    told = run("migrate", FROM, TO)
    rows = [line.split() for line in told.splitlines()]
    for row in (["sessions", "4"], ["messages", "72"], ["vectors", "3"]):
        assert [*row, "equal"] in rows
    moved = "to.db now has all data of the namespace in sqlite:///from.db."
    assert moved in told
    same()
    assert moved in run("migrate", FROM, TO)
    with closing(open_store(TO)) as store:
        store.append("new", [draft("of the target")])
    assert "The target already has data" in run("migrate", FROM, TO, code=1)
    assert "no file 'typo.db'" in run("migrate", "sqlite:///typo.db", TO, code=1)
    assert not Path("typo.db").exists()


def test_an_interrupted_migration_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: Ctrl-C ends in a traceback, or the migration cannot be continued."""
    told = interrupted(monkeypatch)
    assert told.strip().endswith("Run the same command to continue.")
    with closing(open_store("sqlite:///other.db")) as other:
        other.append("s", [draft("x")])
    assert "from another source" in run("migrate", "sqlite:///other.db", TO, code=1)
    run("migrate", FROM, TO)
    same()


@pytest.mark.parametrize("sealed", [False, True])
def test_doctor_reports_an_incomplete_target(monkeypatch: pytest.MonkeyPatch, sealed: bool) -> None:
    """Wrong: `doctor` does not report that a target is incomplete."""
    interrupted(monkeypatch)
    if sealed:
        monkeypatch.setenv("KEYS", "k:" + b64encode(bytes(32)).decode())
        monkeypatch.setenv("AGENT_MEMORY_ENCRYPTION", "KEYS")
    told = run("doctor", "--store", TO, code=1)
    assert "was interrupted. Use the source of the migration" in " ".join(told.split())
    monkeypatch.delenv("AGENT_MEMORY_ENCRYPTION", raising=False)
    assert "migration" not in run("doctor", "--store", FROM)
    monkeypatch.setenv("AGENT_MEMORY_SYSTEM_STORE", TO)
    assert "system migration" in run("doctor", "--store", FROM, code=1)
    monkeypatch.delenv("AGENT_MEMORY_SYSTEM_STORE")
    run("migrate", FROM, TO)
    assert "migration" not in run("doctor", "--store", TO)


@pytest.mark.parametrize(
    "urls", [("postgresql://u:hunter2@127.0.0.1:1/db", TO), (FROM, "redis://:hunter2@127.0.0.1:1")]
)
def test_passwords_are_not_shown(urls: tuple[str, str]) -> None:
    """Wrong: the command prints a password of an address."""
    told = run("migrate", *urls, code=1)
    assert "error:" in told
    assert "hunter2" not in told
