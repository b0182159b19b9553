"""`agent-memory import --from`, run as in a shell."""

import subprocess
import sys
from pathlib import Path

import pytest

from agent_memory import AgentMemory
from tests.integration.import_samples import gpt, gpt_chat, write_json, write_lines
from tests.kit import clean_environment, invoke

STORE = ["--store", "sqlite:///a.db"]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a new folder with an export in it, and wide lines."""
    clean_environment(monkeypatch, tmp_path)
    chats = [gpt_chat("a", gpt("hello")), gpt_chat("b", gpt("q")), {"mapping": 5}]
    write_json(Path("c.json"), chats)


def test_import_shows_counts_and_requires_confirmation() -> None:
    """Wrong: a declined import creates a database, or the question shows no counts."""
    command = ["import", "c.json", "--from", "chatgpt", *STORE]
    done = invoke(command, input="n\n")
    assert done.exit_code == 1
    assert "2 sessions, 2 messages, from 2023-11-14 to 2023-11-14." in done.stdout
    assert "Import this? [y/N]" in done.stdout
    assert "1 could not be read or stored:" in done.stderr
    assert "No --user" in done.stderr
    assert not Path("a.db").exists()
    done = invoke([*command, "--dry-run"])
    assert done.exit_code == 0
    assert "c.json, element 3" in done.stderr
    assert not Path("a.db").exists()
    done = invoke([*command, "--user", "ana"], input="y\n")
    assert "2 messages imported, in 2 new sessions." in done.stdout
    with AgentMemory("a.db") as memory:
        assert [head.session_id for head in memory.sessions(user_id="ana")] == [
            "chatgpt/a", "chatgpt/b"
        ]  # fmt: skip


def test_an_unreadable_chat_is_listed_and_the_exit_code_is_1() -> None:
    """Wrong: an import that skipped a chat exits with 0, or does not list it."""
    command = ["import", "c.json", "--from", "chatgpt", "--user", "ana", "--yes", *STORE]
    done = invoke(command)
    assert done.exit_code == 1
    assert "2 messages imported, in 2 new sessions.\n" in done.stdout
    assert "c.json, element 3" in done.stderr
    assert "it has no `mapping`" in done.stderr
    again = invoke(command)
    assert "0 messages imported, in 0 new sessions." in again.stdout


def test_a_second_import_of_a_folder_stores_nothing() -> None:
    """Wrong: a second import stores the chats again, or does not say why it stored nothing."""
    for name in ("a", "b"):
        lines = [{"session_id": name, "role": "user", "content": name}]
        write_lines(Path("logs", f"{name}.jsonl"), lines)
    command = ["import", "logs", "--from", "jsonl", "--yes", *STORE]
    assert "2 messages imported, in 2 new sessions." in invoke(command).stdout
    again = invoke(command)
    assert again.exit_code == 0
    assert "Everything was imported before." in again.stdout
    with AgentMemory("a.db") as memory:
        memory.delete("a")
    assert "1 sessions were deleted here" in invoke(command).stderr
    back = invoke([*command, "--deleted"])
    assert "1 messages imported, in 1 new sessions." in back.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["c.json"], "Pass either --from with the source of FILE"),
        (["c.json", "s", "--from", "chatgpt"], "Pass either --from"),
        ([".", "s"], ". is a folder"),
        (["c.json", "--from", "claude", "--yes"], "no `chat_messages`"),
        (["c.json", "--from", "claude"], "c.json has no readable chats of claude"),
        (["c.json", "--from", "codex", "--user", " "], "user_id is empty"),
        ([".", "--from", "claude-code"], "contains no *.jsonl"),
    ],
)
def test_wrong_arguments_are_reported(arguments: list[str], told: str) -> None:
    """Wrong: wrong arguments end in a traceback, or exit with 0."""
    done = invoke(["import", *arguments, *STORE])
    assert done.exit_code == 1
    assert told in done.stderr
    assert done.exception is None or isinstance(done.exception, SystemExit)


def test_a_dry_run_stores_nothing() -> None:
    """Wrong: a dry run stores messages, or asks for a confirmation."""
    write_lines(Path("l.jsonl"), [{"role": "user", "content": "hi"}])
    done = invoke(["import", "l.jsonl", "s", "--dry-run", *STORE])
    assert (done.exit_code, done.stdout) == (0, "1 messages for s.\n")
    assert not Path("a.db").exists()


@pytest.mark.long
def test_the_import_benchmark_runs() -> None:
    """Wrong: the command that measured the numbers of docs/importing.md fails."""
    command = [sys.executable, "-m", "benchmarks", "speed", "importing"]
    command += ["--megabytes", "1", "--most", "4000"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" MiB ") == 3
