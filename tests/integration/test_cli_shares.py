"""`agent-memory shares`, and the output of other commands about shared namespaces."""

from pathlib import Path

import pytest

from agent_memory import AgentMemory, FlushToLTM, VectorMemory, operations
from agent_memory.errors import AccessDenied
from tests.kit import clean_environment, invoke

CONFIG = """
store = "sqlite:///m.db"
absorb_attempts = 1
[overflow]
kind = "flush_to_ltm"
absorb = "every_update"
blocks = [{kind = "vector"}]
[shares.team]
planner = "write"
auditor = "read"
"""
USER = {"role": "user", "content": "The login page comes first."}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean_environment(monkeypatch, tmp_path)
    Path("m.toml").write_text(CONFIG, encoding="utf-8")


def run(*arguments: str, code: int = 0) -> str:
    result = invoke(list(arguments))
    assert result.exit_code == code, result.output
    assert "\x1e" not in result.output
    return result.output


def opened() -> AgentMemory:
    return AgentMemory(store="sqlite:///m.db", overflow=FlushToLTM(blocks=[VectorMemory()]))


def test_shares_prints_the_current_grants() -> None:
    """Wrong: `shares` prints other rights than agents have."""
    store = ("--store", "sqlite:///m.db")
    told = run("shares", "grant", "team", "planner", "write", *store)
    assert told == "planner may write in team.\n"
    run("shares", "grant", "team", "auditor", "read", *store)
    run("shares", "grant", "empty", "auditor", "read", *store)
    with opened() as memory:
        planner = memory.share("team").agent("planner")
        for n in range(3):
            planner.update(f"s-{n}", USER)
        told = run("shares", "revoke", "empty", "auditor", *store)
        assert told == "auditor has no access to empty.\n"
        assert [line.split() for line in run("shares", "list", *store).splitlines()[1:]] == [
            ["empty", "0", "\u2013", "\u2013"],
            ["team", "3", "auditor", "read"],
            ["planner", "write"],
        ]
        run("shares", "revoke", "team", "planner", *store)
        with pytest.raises(AccessDenied):
            planner.history("s-1")
    assert "'all'" in run("shares", "grant", "team", "planner", "all", *store, code=2)
    assert "namespace is empty" in run("shares", "grant", " ", "planner", "read", *store, code=1)
    assert "agent_id is empty" in run("shares", "revoke", "team", "", *store, code=1)


def test_a_store_without_shared_namespaces_is_reported() -> None:
    """Wrong: `list` or `revoke` creates a database, or `list` prints an empty table."""
    assert "no memory" in run("shares", "list", "--store", "sqlite:///none.db", code=1)
    assert "no memory" in run("shares", "revoke", "a", "b", "--store", "sqlite:///none.db", code=1)
    assert not Path("none.db").exists()
    with opened() as memory:
        memory.update("s", USER)
    told = run("shares", "list", "--store", "sqlite:///m.db")
    assert told == "There are no shared namespaces.\n"
    assert "There are no shared namespaces." in run("doctor", "--store", "sqlite:///m.db")


def test_doctor_reports_configured_grants_that_are_not_in_force() -> None:
    """Wrong: `doctor` does not report a configured grant that is not in force, or stores it."""
    with opened() as memory:
        memory.share("other").grant("planner")
    assert "Shared namespaces: 1; agents with access: 1." in run("doctor", "--config", "m.toml")
    with opened() as memory:
        assert operations.shares(memory) == ["other"]
        memory.share("team").revoke("planner")
        memory.share("team").grant("auditor", "write")
    told = run("doctor", "--config", "m.toml")
    assert "Shared namespaces: 2; agents with access: 2." in told
    assert "planner has no access to team, and not write as" in told
    assert "`agent-memory shares grant team planner write`" in told
    assert "auditor has write access to team, and not read as" in told
    run("shares", "grant", "team", "planner", "write", "--config", "m.toml")
    run("shares", "grant", "team", "auditor", "read", "--config", "m.toml")
    told = run("doctor", "--config", "m.toml")
    assert "✓  shares" in told


def test_commands_print_readable_names_of_shared_sessions() -> None:
    """Wrong: a command prints an id's control character, or lists shared sessions as own."""
    with opened() as memory:
        memory.share("team").grant("planner", "write")
        memory.share("team").agent("planner").update("s-1", USER)
        memory.update("mine", USER)
    config = ("--config", "m.toml")
    assert "s-1 of the shared team" in run("flush", *config)
    told = run("sessions", *config)
    assert "mine" in told
    assert "s-1" not in told
    assert "2" in run("stats", *config)
    assert "2 of 2 sessions rebuilt" in run("replay", "vector", *config)
    with AgentMemory(store="sqlite:///m.db") as memory:  # without blocks
        memory.share("team").agent("planner").update("s-1", USER)
    assert "s-1 of the shared team: vector absorbed" in run("worker", "--once", *config)
    assert "begins with U+001E" in run("show", "\x1eteam\x1es-1", *config, code=1)
