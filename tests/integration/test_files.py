"""Files that a model writes: owners, limits, concurrent edits, the tool, and settings."""

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, AgentMemoryConfig, FileMemory, Redactor, StaticMemory
from agent_memory.errors import ConfigError, InvalidSetting, StoreUnavailable, ToolRefused
from agent_memory.ltm_blocks.files.block import Files, run_command
from agent_memory.stores import MemoryStore, SQLStore
from agent_memory.testing import watched
from agent_memory.testing.contract import together

PLAN = "/memories/plan.md"


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., AgentMemory]:
    """Opens a memory on one store, any number of times."""
    store = f"sqlite:///{tmp_path}/a.db"

    def open_memory(**limits: Any) -> AgentMemory:
        return AgentMemory(store=store, blocks=[FileMemory(**limits)])

    return open_memory


def test_files_persist_after_their_memory_is_closed(opened: Callable[..., AgentMemory]) -> None:
    """Wrong: files are lost when their memory is closed, or are read back with another text."""
    texts = {
        PLAN: "one\r\ntwo\n\n",
        "/memories/work/empty": "",
        "/memories/caf\u00e9/日本": "\u00e9 e\u0301 \U0001f600 \0 \t</memory> {x} %s",
    }
    with opened() as memory:
        for path, text in texts.items():
            memory.user("ana").files().create(path, text)
    with opened() as memory:
        files = memory.user("ana").files()
        assert files.paths() == sorted(texts)
        assert {path: files.read(path) for path in files.paths()} == texts
        assert files.read("/memories/cafe\u0301/日本/") == texts["/memories/caf\u00e9/日本"]


def test_limits_of_files_are_enforced(opened: Callable[..., AgentMemory]) -> None:
    """Wrong: a limit is not enforced, is enforced too early, or a refused call changes a file."""
    with opened(max_files=3, max_chars=10, max_total_chars=15) as memory:
        files = memory.user("ana").files()
        files.create("/memories/a", "0123456789")
        files.create("/memories/b", "01\n3")
        for attempt, words in [
            (lambda: files.create("/memories/c", "0" * 11), "maximum is 10"),
            (lambda: files.insert("/memories/a", 1, "0"), "maximum is 10"),
            (lambda: files.str_replace("/memories/b", "0", "00000000"), "maximum is 10"),
            (lambda: files.create("/memories/c", "00"), "maximum is 15"),
            (lambda: files.str_replace("/memories/b", "0", "000"), "maximum is 15"),
        ]:
            with pytest.raises(ToolRefused, match=words):
                attempt()
        files.create("/memories/c", "0")
        with pytest.raises(ToolRefused, match="There are 3 files"):
            files.create("/memories/d", "")
        files.str_replace("/memories/a", "89", "98")  # the replaced text no longer counts
        files.str_replace("/memories/a", "98", "89")
        files.rename("/memories/a", "/memories/d")
        texts = {path: files.read(path) for path in files.paths()}
        assert texts == {"/memories/b": "01\n3", "/memories/c": "0", "/memories/d": "0123456789"}
        files.delete("/memories/d")
        files.create("/memories/a", "0123456789")
        memory.user("ben").files().create("/memories/a", "0123456789")


@pytest.mark.parametrize("text", ["a\ud800", "\udfff"])
def test_half_a_surrogate_pair_is_refused(opened: Callable[..., AgentMemory], text: str) -> None:
    """Wrong: a file stores half a surrogate pair."""
    with opened() as memory:
        files = memory.user("ana").files()
        files.create(PLAN, "a")
        for attempt in (
            lambda: files.create("/memories/b", text),
            lambda: files.str_replace(PLAN, "a", text),
            lambda: files.str_replace(PLAN, text, "b"),
            lambda: files.insert(PLAN, 0, text),
            lambda: files.view(f"/memories/{text}"),
        ):
            with pytest.raises(ToolRefused) as refused:
                attempt()
            assert str(refused.value).encode()
        assert [files.read(path) for path in files.paths()] == ["a"]


@pytest.mark.parametrize("stop", range(1, 7))
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_rename_loses_no_file(stop: int, when: str) -> None:
    """Wrong: a rename that is interrupted loses a file, or leaves it under both names."""
    writes = -1

    def die(step: str) -> None:
        nonlocal writes
        if writes >= 0 and step in (f"{when} put_records", f"{when} delete_records"):
            writes += 1
            if writes == stop:
                raise StoreUnavailable("gone")

    store = MemoryStore()
    with AgentMemory(store=watched(store, die), blocks=[FileMemory()]) as memory:
        files = memory.user("ana").files()
        for number in range(4):
            files.create(f"/memories/old/{number}", str(number))
        writes = 0
        if stop <= 4:
            with pytest.raises(StoreUnavailable):
                files.rename("/memories/old", "/memories/new")
        else:
            files.rename("/memories/old", "/memories/new")
    with AgentMemory(store=store, blocks=[FileMemory()]) as memory:
        files = memory.user("ana").files()
        assert sorted(files.read(path) for path in files.paths()) == ["0", "1", "2", "3"]
        for path in files.paths():
            if path.startswith("/memories/old/"):
                files.rename(path, path.replace("old", "new"))
        assert files.paths() == [f"/memories/new/{number}" for number in range(4)]


def test_concurrent_edits_of_a_file_lose_no_line(tmp_path: Path) -> None:
    """Wrong: concurrent inserts into one file lose a line."""

    def linger(step: str) -> None:
        if step == "after records":
            time.sleep(0.001)  # let others write between our read and our write

    stores = [SQLStore(f"sqlite:///{tmp_path}/a.db") for _ in range(2)]
    one, other = (
        AgentMemory(store=watched(store, linger), blocks=[FileMemory()]) for store in stores
    )
    with closing(stores[0]), closing(stores[1]), one, other:
        one.user("ana").files().create(PLAN, "")

        def edit(worker: int) -> None:
            for number in range(5):
                (one, other)[worker % 2].user("ana").files().insert(PLAN, 0, f"{worker}-{number}")

        together([partial(edit, worker) for worker in range(6)])
        lines = one.user("ana").files().read(PLAN).splitlines()
        assert sorted(lines) == [f"{worker}-{number}" for worker in range(6) for number in range(5)]


def test_the_tool_runs_every_command_for_its_user_only(opened: Callable[..., AgentMemory]) -> None:
    """Wrong: a command fails, does not name the mistake, or reaches another user's files."""
    with opened() as memory:

        def call(**arguments: Any) -> str:
            return memory.call_tool("s-ana", "files", json.dumps(arguments), user_id="ana")

        assert call(command="create", path=PLAN, file_text="a\nb\n").endswith(f"at: {PLAN}")
        assert call(command="insert", path=PLAN, insert_line=1, insert_text="x").endswith("edited.")
        assert "     2\tX" in call(command="str_replace", path=PLAN, old_str="x", new_str="X")
        assert call(command="view", path=PLAN, view_range=[2, 3]).endswith("     2\tX\n     3\tb")
        assert call(command="rename", old_path=PLAN, new_path="/memories/p", path=None)
        assert memory.user("ana").files().read("/memories/p") == "a\nX\nb\n"
        seen = memory.user("ana").files().view("/memories")
        assert call(command="view", path="/memories") == seen
        assert memory.user("ben").files().paths() == []
        for wrong, words in [
            ({}, "command"),
            ({"command": "format"}, "command"),
            ({"command": "view"}, "view also needs path"),
            ({"command": "insert", "path": PLAN}, "needs insert_line and insert_text"),
            ({"command": "rename", "path": PLAN, "old_path": PLAN}, "needs new_path"),
            ({"command": "create", "path": ["/memories/a"], "file_text": "a"}, "path"),
            ({"command": "create", "path": "/memories/a", "file_text": {"a": 1}}, "file_text"),
            ({"command": "insert", "path": PLAN, "insert_line": "x", "insert_text": ""}, "line"),
            ({"command": "view", "path": PLAN, "view_range": "1-2"}, "view_range"),
            ({"command": "view", "path": "/memories", "user_id": "ben"}, "user_id"),
            ({"command": "view", "path": "/memories/../ben"}, "would escape"),
        ]:
            assert words in call(**wrong), wrong
        assert call(command="delete", path="/memories/p") == "Successfully deleted /memories/p"
        assert memory.user("ana").files().paths() == []


def test_files_are_not_recalled() -> None:
    """Wrong: a context or a search shows files although the model did not open them."""
    blocks = [FileMemory(), StaticMemory(facts=["The plan is in your files."])]
    with AgentMemory(store="memory://", blocks=blocks) as memory:
        memory.user("ana").files().create(PLAN, "Plan the trip.")
        memory.update("s", {"role": "user", "content": "The trip is planned."}, user_id="ana")
        context = memory.get("s", "plan the trip")
        assert [recall.block for recall in context.recalls] == ["static"]
        assert context.warnings == []
        found = memory.search("plan the trip", user_id="ana")
        assert {recall.block for recall in found} == {"static", "log"}  # "log": the message above


def test_a_configuration_file_can_set_up_the_file_block(tmp_path: Path) -> None:
    """Wrong: a configuration file cannot set the block up, or its root has no effect."""
    file = tmp_path / "memory.toml"
    file.write_text('store = "memory://"\n[[blocks]]\nkind = "files"\nroot = "/notes"\n')
    with AgentMemory(AgentMemoryConfig.from_file(file)) as memory:
        files = memory.user("ana").files()
        files.create("/notes/plan.md", "a")
        with pytest.raises(ToolRefused, match=r"^File /notes/plan\.md already exists$"):
            files.create("/notes/plan.md", "b")
    with AgentMemory("memory://") as memory, pytest.raises(ConfigError, match=r"\[FileMemory"):
        memory.user("ana").files()


def files_of(memory: AgentMemory) -> Files:
    return memory.user("ana").files()


def test_a_custom_root_is_used_in_paths_and_texts() -> None:
    """Wrong: with another root, paths are wrong, or a text for the model mentions /memories."""
    store = AgentMemory("memory://", blocks=[FileMemory(root="/home/notes/")])
    with store as memory:
        own = files_of(memory)
        told = own.create("/home/notes/a/plan.md", "one\ntwo")
        assert "/home/notes/a/plan.md" in told
        assert own.paths() == ["/home/notes/a/plan.md"]
        for text in (own.view("/home/notes"), own.view("/home/notes/a/plan.md"),
                     own.str_replace("/home/notes/a/plan.md", "two", "three"),
                     own.rename("/home/notes/a", "/home/notes/b")):  # fmt: skip
            assert "/memories" not in text
        assert own.read("/home/notes/b/plan.md") == "one\nthree"
        for wrong in ("/memories/a.md", "/home/notes/../x", "/home/notesx", "/home/notes/gone", 3):
            with pytest.raises(ToolRefused) as caught:
                own.read(wrong)  # type: ignore[arg-type]
            assert "/memories" not in str(caught.value).replace(str(wrong), "")
        with pytest.raises(ToolRefused, match="/home/notes directory"):
            own.delete("/home/notes")
        with pytest.raises(ToolRefused, match="rename /home/notes/b to"):
            own.rename("/home/notes/b", "/home/notes/b/c")
        with pytest.raises(ToolRefused, match=r"^/home/notes/long\.md would"):
            own.create("/home/notes/long.md", "x" * 10**6)
        tools = str(memory.tools("s", user_id="ana"))
        assert "/memories" not in tools
        assert "/home/notes" in tools
    with pytest.raises(InvalidSetting, match="such as /notes"):
        FileMemory(root="notes/")


def test_create_accepts_content_in_place_of_file_text() -> None:
    """Wrong: `create` refuses `content` in place of `file_text`."""
    with AgentMemory("memory://", blocks=[FileMemory()]) as memory:
        for name, text in (("a", "file_text"), ("b", "content")):
            command = {"command": "create", "path": f"/memories/{name}", text: "Hello."}
            run_command(files_of(memory), command)
            assert files_of(memory).read(f"/memories/{name}") == "Hello."
            command["path"] += "2"
            memory.call_tool("s", "files", command, user_id="ana")
        assert len(files_of(memory).paths()) == 4


def test_files_expire() -> None:
    """Wrong: an expired file can be read, or its text stays in the store after it was replaced."""
    with AgentMemory("memory://", blocks=[FileMemory(ttl=timedelta(days=7))]) as memory:
        own, store = files_of(memory), memory.components.store
        own.create("/memories/old.md", "old words")
        own.create("/memories/new.md", "new words")
        (record,) = [one for _, one in store.all_records() if one.text == "old words"]
        old = datetime.now(UTC) - timedelta(days=7, seconds=1)
        store.put_records("files", [replace(record, created_at=old)])
        assert own.paths() == ["/memories/new.md"]
        with pytest.raises(ToolRefused):
            own.read("/memories/old.md")
        own.create("/memories/old.md", "other words")  # the path is free again
        assert "old words" not in str(list(store.all_records()))
        assert own.read("/memories/old.md") == "other words"


def test_text_written_to_files_is_redacted() -> None:
    """Wrong: a command writes a secret into a file, or its reply does not mention the redaction."""
    block = FileMemory(redact=Redactor(phones=False))
    with AgentMemory("memory://", blocks=[block]) as memory:
        own = files_of(memory)
        assert "replaced" in own.create("/memories/a.md", "The password is hunter2.")
        assert "replaced" not in own.create("/memories/b.md", "plain")
        assert "replaced" in own.str_replace("/memories/b.md", "plain", "ana@example.org")
        assert "replaced" in own.insert("/memories/b.md", 1, "The PIN is 4711.\n")
        own.write("/memories/c.md", "The password is hunter2.")
        told = [own.read(path) for path in own.paths()]
        assert "hunter2" not in str(told)
        assert "4711" not in str(told)
        assert "ana@" not in str(told)
        memory.update("s", {"role": "user", "content": "The password is hunter2."})
        assert "hunter2" in str(memory.history("s"))  # the block's setting affects only files
