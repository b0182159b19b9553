"""Writing and reading snapshots: paths, pipes and the command line."""

import io
import os
import threading
from pathlib import Path

import pytest

from agent_memory import (
    AgentMemory,
    InvalidInput,
    NoteMemory,
    SpatialMemory,
    WorkingMemory,
    operations,
)
from agent_memory.errors import InvalidSnapshot, StoreUnavailable
from tests.integration.snapshot_world import (
    Opener,
    bodies_of,
    contents,
    exported,
    head_of,
    left_in,
    lines,
    log_of,
    opener,
    remembering,
)
from tests.kit import mark_deleting

__all__ = ["lines", "opener"]


def test_paths_files_and_pipes(lines: list[str], tmp_path: Path) -> None:
    """Wrong: writing or reading a snapshot by path, file or pipe gives different content."""
    with remembering("memory://") as memory:
        operations.import_session(memory, lines)
        path = tmp_path / "s.jsonl"
        done = memory.session("s").export(path)
        assert (done.session_id, done.entries, done.left_out) == ("s", 57, ())
        keys = sum(one.get("kind") == "key" for one in bodies_of(lines))
        values = sum(one.get("kind") == "value" for one in bodies_of(lines))
        assert (keys, values) == (56, 2)
        assert done.records == len(lines) - 57 - 4 - keys - values
        assert path.stat().st_mode & 0o077 == 0
        assert [file.name for file in tmp_path.iterdir()] == ["s.jsonl"]
        file = io.StringIO()
        memory.session("s").export(file)
        assert contents(file.getvalue().split("\n")[:-1]) == contents(lines)
        wanted = log_of(memory)
    reader, writer = os.pipe()

    def feed() -> None:
        with open(writer, "wb") as pipe:
            pipe.write(path.read_bytes())

    thread = threading.Thread(target=feed)
    thread.start()
    with (
        open(reader, encoding="utf-8", newline="\n") as pipe,
        path.open(encoding="utf-8", newline="\n") as opened,
    ):
        bare = [line.rstrip("\n") for line in lines]
        for source in (path, str(path), opened, pipe, iter(lines), bare):
            with AgentMemory(store="memory://") as memory:
                operations.import_session(memory, source)
                assert log_of(memory) == wanted
    thread.join()


def test_a_file_that_is_there_is_replaced_only_by_a_whole_one(tmp_path: Path) -> None:
    """Wrong: a failed export destroys the previous file."""
    path = tmp_path / "s.jsonl"
    path.write_text("the one before")
    with AgentMemory(store="memory://") as memory:
        with pytest.raises(InvalidInput, match="no session 's'"):
            memory.session("s").export(path)
        assert path.read_text() == "the one before"
        assert list(tmp_path.iterdir()) == [path]
        memory.update("s", {"role": "user", "content": "x"})
        memory.session("s").export(path)
        with AgentMemory(store="memory://") as other:
            assert operations.import_session(other, path).end == 1


def test_a_session_that_is_deleted_meanwhile_gives_no_whole_file() -> None:
    """Wrong: an export of a session that is deleted meanwhile can be imported."""

    class Deleting(io.StringIO):
        def write(self, text: str) -> int:
            if '"kind":"entry"' in text:
                mark_deleting(memory._store)
            return super().write(text)

    file = Deleting()
    with AgentMemory(store="memory://", blocks=[]) as memory:
        memory.update("s", {"role": "user", "content": "x"})
        with pytest.raises(StoreUnavailable, match="is incomplete"):
            memory.session("s").export(file)
        memory.delete("s")
        with pytest.raises(InvalidSnapshot, match="line 4: the file ends here"):
            operations.import_session(memory, io.StringIO(file.getvalue()), deleted=True)


def test_heads_and_logs_without_messages(opener: Opener) -> None:
    """Wrong: a session that has only values cannot be imported."""
    with AgentMemory(store=opener("memory"), blocks=[WorkingMemory(), NoteMemory()]) as memory:
        memory.session("s", "ada").working().set("plan", 1)
        wanted, lines = head_of(memory), exported(memory)
    with AgentMemory(store=opener("sqlite"), blocks=[WorkingMemory()]) as memory:
        operations.import_session(memory, lines)
        assert head_of(memory) == wanted
        assert memory.session("s").working().all() == {"plan": 1}


def test_other_settings_of_a_block_are_told(lines: list[str]) -> None:
    """Wrong: imported observations of other dimensions make all of a user's unreadable."""
    with remembering("memory://", using=[SpatialMemory(dimensions=3)]) as memory:
        with pytest.raises(InvalidSnapshot, match="'spatial' has 3 dimensions, and this 2"):
            operations.import_session(memory, lines)
        assert not left_in(memory._store)
