"""Repeated imports: deleted data is not restored, and other users' sessions are reported."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent_memory import AgentMemory, operations
from agent_memory.integrations.importing import Imported, import_chats
from tests.integration.import_samples import gpt, gpt_chat, ids, write_json
from tests.kit import clean_environment, invoke

LATER = (datetime.now(UTC) + timedelta(days=1)).timestamp()


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    with AgentMemory(store="memory://") as memory:
        yield memory


def counts(done: Imported) -> tuple[int, int, int]:
    return done.deleted, done.new_messages, done.new_notes


@pytest.mark.parametrize("again", ["ana", None], ids=["for her", "for nobody"])
def test_a_user_stays_deleted(tmp_path: Path, memory: AgentMemory, again: str | None) -> None:
    """Wrong: an import restores the sessions of a deleted user."""
    path = write_json(tmp_path / "c.json", [gpt_chat("c", gpt("q")), gpt_chat("d", gpt("r"))])
    import_chats(memory, path, "chatgpt", user_id="ana")
    receipt = memory.delete_user("ana")
    done = import_chats(memory, path, "chatgpt", user_id=again)
    assert (counts(done), ids(memory)) == ((2, 0, 0), [])
    assert {part.state for part in operations.verify(memory, receipt).parts} <= {
        "done", "not supported"
    }  # fmt: skip
    done = import_chats(memory, path, "chatgpt", user_id=again, deleted=True)
    assert (counts(done), ids(memory)) == ((0, 2, 0), ["chatgpt/c", "chatgpt/d"])
    done = import_chats(memory, path, "chatgpt", user_id=again)
    assert counts(done) == (0, 0, 0)


def test_chats_older_than_a_deletion_are_not_imported(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: chats older than the user's deletion are imported after it."""
    memory.update("s", {"role": "user", "content": "hi"}, user_id="ana")
    memory.delete_user("ana")
    chats = [gpt_chat("old", gpt("q"), gpt("more", parent="q", create_time=LATER)),
             gpt_chat("new", gpt("new", create_time=LATER))]  # fmt: skip
    path = write_json(tmp_path / "c.json", chats)
    done = import_chats(memory, path, "chatgpt", user_id="ana")
    assert (counts(done), ids(memory)) == ((1, 1, 0), ["chatgpt/new"])
    assert counts(import_chats(memory, path, "chatgpt", user_id="ben")) == (0, 2, 0)


def test_notes_of_a_deleted_user_stay_deleted(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: an import restores notes older than the user's deletion."""
    said = [("Ana rows.", "ana", "2024-01-01"), ("Ana sails.", "ana", "2999-01-01"),
            ("Ben swims.", "ben", "2024-01-01")]  # fmt: skip
    kept = [{"id": t, "memory": t, "user_id": who, "created_at": at} for t, who, at in said]
    path = write_json(tmp_path / "m.json", {"results": kept})
    assert counts(import_chats(memory, path, "mem0")) == (0, 0, 3)
    memory.delete_user("ana")
    done = import_chats(memory, path, "mem0")
    assert counts(done) == (1, 0, 1)
    assert [note.text for note in memory.user("ana").notes().all()] == ["Ana sails."]
    assert counts(import_chats(memory, path, "mem0", deleted=True)) == (0, 0, 1)


def test_an_import_reports_and_assigns_session_users(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: an import does not say whose the sessions are, or refuses the role "developer"."""
    chats = [gpt_chat("c", gpt("q", text="I keep bees.")), gpt_chat("d", gpt("r", "developer"))]
    path = write_json(tmp_path / "c.json", chats)
    import_chats(memory, path, "chatgpt")
    memory.flush()
    done = import_chats(memory, path, "chatgpt", user_id="ana")
    assert (counts(done), dict(done.elsewhere)) == ((0, 0, 0), {None: 2})
    assert memory.search("bees", user_id="ana") == []
    done = import_chats(memory, path, "chatgpt", user_id="ana", assign=True)
    assert (done.assigned, dict(done.elsewhere)) == (2, {})
    memory.flush()
    assert "I keep bees." in memory.search("bees", user_id="ana")[0].text
    assert memory.head("chatgpt/c").metadata["title"] == "Title of c"
    done = import_chats(memory, path, "chatgpt", user_id="ben", assign=True)
    assert (done.assigned, dict(done.elsewhere)) == (0, {"ana": 2})
    done = import_chats(memory, path, "chatgpt", user_id="ana")
    assert dict(done.elsewhere) == {}


def test_the_command_prints_session_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the command does not say to whom sessions imported before belong."""
    clean_environment(monkeypatch, tmp_path)
    path = write_json(tmp_path / "c.json", [gpt_chat("c", gpt("q"))])
    command = ["import", str(path), "--from", "chatgpt", "--yes", "--store", "sqlite:///a.db"]
    invoke(command)
    told = invoke([*command, "--user", "ana"]).output
    assert "Everything was imported before." in told
    assert "1 sessions were imported without a user. --assign assigns them to ana." in told
    assert "1 sessions belong to ana now." in invoke([*command, "--user", "ana", "--assign"]).output
    told = invoke([*command, "--user", "ben"]).output
    assert "1 sessions belong to ana. To move them, delete them and import again" in told
    assert invoke([*command, "--assign"]).exit_code == 1


def test_a_prompt_shows_no_escapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a control character in an id reaches the terminal."""
    monkeypatch.chdir(tmp_path)
    session = "s\u202e\x7f"
    with AgentMemory("a.db", blocks=[]) as memory:
        memory.update(session, {"role": "user", "content": "hi"})
    told = invoke(["delete", session, "--store", "sqlite:///a.db"], input="y\n").output
    assert "Delete s" in told
    assert not {"\u202e", "\x7f"} & {*told}
