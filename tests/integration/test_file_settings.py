"""Settings of file memory: its root, expiry and redaction, and the form of `create`."""

from datetime import UTC, datetime, timedelta

import pytest

from agent_memory import AgentMemory, FileMemory, Redactor
from agent_memory.errors import InvalidSetting, ToolRefused
from agent_memory.ltm_blocks.files.block import Files, run_command


def files(memory: AgentMemory) -> Files:
    return memory.user("ana").files()


def test_a_root_of_ones_own() -> None:
    """Wrong: with another root, paths are wrong, or a text for the model mentions /memories."""
    store = AgentMemory("memory://", blocks=[FileMemory(root="/home/notes/")])
    with store as memory:
        own = files(memory)
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
            assert "/memories" not in str(caught.value).replace(repr(wrong), "")
        with pytest.raises(ToolRefused, match="/home/notes directory"):
            own.delete("/home/notes")
        with pytest.raises(ToolRefused, match="rename /home/notes/b to"):
            own.rename("/home/notes/b", "/home/notes/b/c")
        with pytest.raises(ToolRefused, match=r"^/home/notes/long\.md would"):
            own.create("/home/notes/long.md", "x" * 10**6)
        (tool,) = [
            one for one in memory.tools("s", user_id="ana") if one["function"]["name"] == "files"
        ]
        assert "/memories" not in str(tool)
        assert "/home/notes" in str(tool)
    with pytest.raises(InvalidSetting, match="such as /notes"):
        FileMemory(root="notes/")


def test_create_takes_content_too() -> None:
    """Wrong: `create` refuses `content` in place of `file_text`."""
    with AgentMemory("memory://", blocks=[FileMemory()]) as memory:
        for name, text in (("a", "file_text"), ("b", "content")):
            command = {"command": "create", "path": f"/memories/{name}", text: "Hello."}
            run_command(files(memory), command)
            assert files(memory).read(f"/memories/{name}") == "Hello."
            command["path"] += "2"
            memory.call_tool("s", "files", command, user_id="ana")
        assert len(files(memory).paths()) == 4


def test_files_expire() -> None:
    """Wrong: an expired file can be read, or its text stays in the store after it was replaced."""
    with AgentMemory("memory://", blocks=[FileMemory(ttl=timedelta(days=7))]) as memory:
        own, store = files(memory), memory.components.store
        own.create("/memories/old.md", "old words")
        own.create("/memories/new.md", "new words")
        (record,) = [one for _, one in store.all_records() if one.text == "old words"]
        old = datetime.now(UTC) - timedelta(days=7, seconds=1)
        store.put_records("files", [type(record)(**{
            name: old if name == "created_at" else getattr(record, name)
            for name in record.__slots__
        })])  # fmt: skip
        assert own.paths() == ["/memories/new.md"]
        with pytest.raises(ToolRefused):
            own.read("/memories/old.md")
        own.create("/memories/old.md", "other words")  # the path is free again
        assert "old words" not in str(list(store.all_records()))
        assert own.read("/memories/old.md") == "other words"


def test_what_is_written_is_redacted() -> None:
    """Wrong: a command writes a secret into a file, or its reply does not mention the redaction."""
    block = FileMemory(redact=Redactor(phones=False))
    with AgentMemory("memory://", blocks=[block]) as memory:
        own = files(memory)
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
