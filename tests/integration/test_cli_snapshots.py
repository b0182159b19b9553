"""`agent-memory snapshot` and `restore`, run as in a shell."""

from pathlib import Path

import pytest

from agent_memory import AgentMemory
from tests.kit import clean_environment, invoke


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a new folder, with a session in a database, and wide lines."""
    clean_environment(monkeypatch, tmp_path)
    with AgentMemory(store="sqlite:///a.db") as memory:
        for n in range(3):
            memory.update("s-1", {"role": "user", "content": f"Grüße {n} \u2028"}, user_id="ada")


def test_a_restore_reproduces_the_original_data() -> None:
    """Wrong: a restored log differs, or `restore` does not say which blocks must absorb it."""
    done = invoke(["snapshot", "s-1", "--to", "s.jsonl", "--store", "sqlite:///a.db"])
    assert (done.exit_code, done.stdout) == (0, "")
    assert "3 messages and 0 records of s-1 written to s.jsonl." in done.stderr
    done = invoke(["restore", "s.jsonl", "--store", "sqlite:///b.db"])
    assert done.exit_code == 0, done.output
    assert "s-1 is restored: 3 messages, user ada." in done.stdout
    assert "Not absorbed yet by vector. Run: agent-memory flush s-1" in done.stdout
    with AgentMemory(store="sqlite:///a.db") as a, AgentMemory(store="sqlite:///b.db") as b:
        assert a.history("s-1") == b.history("s-1")


def test_a_snapshot_can_be_restored_through_a_pipe() -> None:
    """Wrong: `snapshot --to -` prints more than the file, or `restore -` cannot read it."""
    done = invoke(["snapshot", "s-1", "--to", "-", "--store", "sqlite:///a.db"])
    assert done.exit_code == 0
    assert done.stdout_bytes.count(b"\n") == 7  # three of them are messages
    assert "3 messages and 0 records of s-1 written." in done.stderr
    back = invoke(["restore", "-", "--store", "sqlite:///b.db"], input=done.stdout_bytes)
    assert back.exit_code == 0, back.output
    with AgentMemory(store="sqlite:///b.db") as memory:
        assert [one.message.text() for one in memory.history("s-1")][2] == "Grüße 2 \u2028"


def test_a_failed_command_prints_one_error_line() -> None:
    """Wrong: an error ends in a traceback, exits with 0, or leaves an empty file."""
    for arguments, told in (
        (["snapshot", "s-2", "--to", "s.jsonl"], "There is no session 's-2'"),
        (["restore", "nowhere.jsonl"], "nowhere.jsonl: No such file or directory."),
        (["restore", "cut.jsonl"], "line 3: the file is cut off in the middle of this line"),
        (["restore", "s-1.jsonl"], "Session 's-1' exists already"),
    ):
        if arguments[-1] == "cut.jsonl":
            run = ["snapshot", "s-1", "--to", "s-1.jsonl", "--store", "sqlite:///a.db"]
            assert invoke(run).exit_code == 0
            lines = Path("s-1.jsonl").read_bytes().splitlines(keepends=True)
            Path("cut.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:20])
        store = "b.db" if arguments[-1] == "cut.jsonl" else "a.db"
        done = invoke([*arguments, "--store", f"sqlite:///{store}"])
        assert done.exit_code == 1
        assert f"error: {told}" in done.stderr
    assert not Path("s.jsonl").exists()


def test_help_distinguishes_chat_logs_from_snapshots() -> None:
    """Wrong: the help of `export` does not mention `snapshot`, or that of `import` `restore`."""
    for name, other in (("export", "snapshot"), ("import", "restore")):
        assert other in invoke([name, "--help"]).stdout
