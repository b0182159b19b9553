"""A folder of plain files that people and sync tools edit."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

from agent_memory import AgentMemory, NoteMemory, VectorMemory, operations
from agent_memory.core.receipts import Receipt
from agent_memory.errors import AgentMemoryError, DimensionMismatch, StoreError, StoreUnavailable
from agent_memory.stores import Store, open_store
from agent_memory.stores.folder.files import Files
from agent_memory.stores.folder.layout import file_name
from agent_memory.testing.contract import draft
from tests.kit import texts

JSON_VALUES: list[Any] = [None, True, 5, -1, 1.5, 10**30, "text", "", [], [1], {}, {"a": 1}]


def opened(folder: Path, **settings: Any) -> AgentMemory:
    return AgentMemory(f"folder:///{folder}", blocks=[NoteMemory()], **settings)


def add(memory: AgentMemory, session: str, text: str, user: str = "ana") -> None:
    memory.update(session, {"role": "user", "content": text}, user_id=user)


def file_of(folder: Path, session: str) -> Path:
    return folder / "sessions" / file_name(session)


def states(receipt: Receipt) -> dict[str, str]:
    return {part.place: part.state for part in receipt.parts}


@pytest.mark.parametrize(
    "name", ["{stem}.bak.jsonl", "{stem}.sync-conflict-20261101-1.jsonl", "{stem}.jsonl.bak", "x"]
)
def test_a_copy_of_a_session_file_is_not_read_as_the_session(tmp_path: Path, name: str) -> None:
    """Wrong: a copy is read instead of the session's file, or that file is overwritten."""
    with opened(tmp_path) as memory:
        add(memory, "s", "one")
        file = file_of(tmp_path, "s")
        copy = file.with_name(name.format(stem=file.stem))
        copyfile(file, copy)
        add(memory, "s", "two")
        assert texts(memory, "s") == ["one", "two"]
        before = copy.read_bytes()
        damaged = [error.damage and error.damage.path for error in operations.damaged(memory)]
        assert damaged == [f"sessions/{copy.name}"]
        assert operations.repair(memory, operations.damaged(memory)[0], dry_run=True) is None
        receipt = memory.delete("s")
        assert states(receipt)["damaged data"] == "failed"
        assert copy.name in str(receipt)
        assert states(operations.verify(memory, receipt))["damaged data"] == "failed"
        assert copy.read_bytes() == before
        copy.unlink()
        assert states(operations.verify(memory, receipt)).get("damaged data", "done") == "done"
        add(memory, "s", "three")
        assert texts(memory, "s") == ["three"]


def test_removing_a_copy_of_a_session_file_loses_no_message(tmp_path: Path) -> None:
    """Wrong: after a copy is removed the session counts as empty, and an update overwrites it."""
    with opened(tmp_path) as memory:
        add(memory, "s", "one")
        copy = tmp_path / "sessions" / "zzz.jsonl"
        copyfile(file_of(tmp_path, "s"), copy)
        assert texts(memory, "s") == ["one"]
        copy.unlink()
        add(memory, "s", "two")
    with opened(tmp_path) as memory:
        assert texts(memory, "s") == ["one", "two"]


@pytest.mark.parametrize("name", ["renamed.jsonl", "renamed", "aaaaaaaaaa-0123456789.jsonl"])
def test_a_renamed_session_file_is_reported_and_not_deleted(tmp_path: Path, name: str) -> None:
    """Wrong: a session with a renamed file silently begins again, or counts as deleted."""
    with opened(tmp_path) as memory:
        add(memory, "s", "secret of ana")
        add(memory, "other", "of bob", "bob")
        renamed = tmp_path / "sessions" / name
        file_of(tmp_path, "s").rename(renamed)
        calls: list[Callable[[], object]] = [
            lambda: memory.history("s"), lambda: add(memory, "s", "more"),
            lambda: memory.get("s", "what?"), lambda: memory.delete("s"),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(StoreError, match=name):
                call()
        receipt = memory.delete_user("ana")
        assert states(receipt)["damaged data"] == "failed"
        assert name in str(receipt)
        assert states(operations.verify(memory, receipt))["damaged data"] == "failed"
        told = memory.delete_user("bob")
        assert states(told)["damaged data"] == "not supported"
        assert name not in str(told)
    with opened(tmp_path) as memory:
        assert [head.session_id for head in memory.sessions()] == []
        renamed.rename(file_of(tmp_path, "s"))
        assert texts(memory, "s") == ["secret of ana"]
        assert states(memory.delete_user("ana")).get("damaged data") is None


def test_a_receipt_lists_a_damaged_session_file(tmp_path: Path) -> None:
    """Wrong: a receipt says "done" although a damaged file still has the user's messages."""
    with opened(tmp_path) as memory:
        add(memory, "s", "secret of ana")
        file = file_of(tmp_path, "s")
        file.write_text(file.read_text("utf-8") + "<<<<<<< ours\n", "utf-8")
        receipt = memory.delete_user("ana")
        assert states(receipt)["damaged data"] == "failed"
        assert file.name in str(receipt)
        file.write_bytes(b"\x00\xff")
        receipt = memory.delete_user("ana")
        assert states(receipt)["damaged data"] == "not supported"
        assert file.name in str(receipt)


def test_a_block_is_read_only_from_the_file_with_its_name(tmp_path: Path) -> None:
    """Wrong: a copy of a block's file is read instead of it, or a renamed one is ignored."""
    with opened(tmp_path) as memory:
        memory.remember("Ana is allergic to peanuts.", user_id="ana")
        file = tmp_path / "records" / file_name("notes")
        copyfile(file, file.with_name("notes.bak.jsonl"))
        memory.remember("Ana rows.", user_id="ana")
        notes = [note.text for note in memory.user("ana").notes().all()]
        assert notes == ["Ana is allergic to peanuts.", "Ana rows."]
        receipt = memory.delete_user("ana")
        assert states(receipt)["damaged data"] == "failed"
        assert "notes.bak.jsonl" in str(receipt)
        memory.remember("Ana sails.", user_id="ana")
        renamed = file.with_name("notes.jsonl")
        file.rename(renamed)
        memory.remember("Ana swims.", user_id="ana")
        assert "Ana sails." in renamed.read_text("utf-8")
        assert "notes.jsonl" in str([str(error) for error in operations.damaged(memory)])
        assert "notes.jsonl" in str(memory.delete_user("ana"))


def test_a_damaged_block_file_does_not_prevent_opening(tmp_path: Path) -> None:
    """Wrong: a damaged file keeps the memory from opening, or a call raises a foreign error."""
    blocks: list[Any] = [NoteMemory(), VectorMemory()]
    url = f"folder:///{tmp_path}"
    with AgentMemory(url, blocks=blocks) as memory:
        add(memory, "s", "I keep bees.")
        memory.update("s", {"role": "user", "content": "And I row."}, user_id="ana", key="k")
        memory.remember("Ana rows.", user_id="ana")
        memory.flush()
        memory.session("s", "ana").describe({"title": "Bees"})
        memory.delete("other")
        memory.delete_user("bob")
    files = [*(tmp_path / "records").iterdir(), *(tmp_path / "vectors").iterdir()]
    assert len(files) > 3
    for file in files:
        whole = file.read_bytes()
        file.write_bytes(b"<<<<<<< ours\n" + whole)
        with AgentMemory(url, blocks=blocks) as memory:
            call_all(memory, "s")
            assert file.name in str([str(error) for error in operations.damaged(memory)])
        assert file.read_bytes() == b"<<<<<<< ours\n" + whole
        file.write_bytes(whole)


@pytest.mark.parametrize(
    "field",
    ["session", "user", "created_at", "version", "deleting", "end", "total", "expired", "start",
     "start_total", "pinned", "pinned_tokens", "system", "system_at", "system_tokens", "summary",
     "cursors"],
)  # fmt: skip
def test_a_head_field_of_a_wrong_type_affects_only_its_session(tmp_path: Path, field: str) -> None:
    """Wrong: a head of the wrong type breaks others or the opening, or overwrites a file."""
    for session in ("s", "text", "other"):
        with opened(tmp_path) as memory:
            add(memory, session, f"in {session}")
    for file in edits(file_of(tmp_path, "s"), 0, field):
        edited, said = file.read_bytes(), ["in text"]
        with opened(tmp_path) as memory:
            assert texts(memory, "other") == ["in other"]
            said = texts(memory, "text")
            add(memory, "text", "more")
            assert texts(memory, "text") == [*said, "more"]
            refused = field == "session" or memory_refuses(memory, "s")
            call_all(memory, "s")
            assert not refused or file.read_bytes() == edited


@pytest.mark.parametrize(
    "field",
    ["text", "at", "metadata", "session", "first", "last", "sources", "owner", "id", "features",
     "block", "dimension", "model"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["records", "vectors"])
def test_a_folder_with_an_invalid_record_field_opens(tmp_path: Path, kind: str, field: str) -> None:
    """Wrong: a record of the wrong type breaks other sessions, or the opening."""
    blocks: list[Any] = [NoteMemory(), VectorMemory()]
    url = f"folder:///{tmp_path}"
    with AgentMemory(url, blocks=blocks) as memory:
        add(memory, "s", "I keep bees.")
        memory.remember("Ana rows.", user_id="ana")
        memory.flush()
    block = "notes" if kind == "records" else "vector"
    line = 0 if field in ("block", "dimension", "model") else 1
    for _ in edits(tmp_path / kind / file_name(block), line, field):
        try:
            memory = AgentMemory(url, blocks=blocks)
        except DimensionMismatch:  # "text" is the name of a model, and 5 a dimension
            assert field in ("dimension", "model")
            continue
        with memory:
            call_all(memory, "s")
            assert texts(memory, "s")[0] == "I keep bees."


@pytest.mark.parametrize("value", [*JSON_VALUES, {"s": 5}, {"s": [1, 2]}, {"s": ["", [], 5, {}]}])
@pytest.mark.parametrize("field", ["sessions", "locks", None])
def test_a_folder_with_invalid_state_opens(tmp_path: Path, field: str | None, value: Any) -> None:
    """Wrong: a state file of the wrong type keeps the memory from opening."""
    with opened(tmp_path) as memory:
        add(memory, "s", "one")
    state = tmp_path / ".state.json"
    said = json.loads(state.read_text("utf-8"))
    state.write_text(json.dumps(value if field is None else {**said, field: value}), "utf-8")
    with opened(tmp_path) as memory:
        add(memory, "s", "two")
        assert texts(memory, "s") == ["one", "two"]


def edits(file: Path, line: int, field: str) -> Iterator[Path]:
    """Set a field of a line to one value after the other."""
    lines = file.read_text("utf-8").splitlines()
    for value in JSON_VALUES:
        edited = json.dumps({**json.loads(lines[line]), field: value})
        text = "\n".join([*lines[:line], edited, *lines[line + 1 :]])
        file.write_text(f"{text}\n", "utf-8")
        yield file


def memory_refuses(memory: AgentMemory, session: str) -> bool:
    try:
        memory.history(session)
    except StoreError:
        return True
    return False


def call_all(memory: AgentMemory, session: str) -> None:
    """Make calls that a damaged file may refuse, but only with our own errors."""
    calls: list[Callable[[], object]] = [
        lambda: memory.history(session), lambda: memory.get(session, "bees?"),
        lambda: memory.search("bees", user_id="ana"), lambda: list(memory.sessions()),
        lambda: add(memory, session, "more"), lambda: operations.damaged(memory),
        lambda: memory.stats(),
    ]  # fmt: skip
    for call in calls:
        with contextlib.suppress(AgentMemoryError):
            call()


def disk_full(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Make each write of a file fail whose path begins like this."""
    written = Files.write

    def failing(files: Files, at: str, data: bytes) -> Any:
        if at.startswith(path):
            raise StoreUnavailable("The disk is full.")
        return written(files, at, data)

    monkeypatch.setattr(Files, "write", failing)


@pytest.mark.parametrize(
    ("path", "is_new"), [("sessions/", True), (".state", True), ("sessions/", False)]
)
def test_a_failed_update_is_not_shown_or_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, is_new: bool
) -> None:
    """Wrong: a message whose update raised is shown, and stored twice by the retry."""
    with opened(tmp_path) as memory:
        before = [] if is_new else ["before"]
        for text in before:
            add(memory, "s", text)
        disk_full(monkeypatch, path)
        with pytest.raises(StoreUnavailable, match="disk is full"):
            add(memory, "s", "once")
        assert texts(memory, "s") == before
        assert [head.session_id for head in memory.sessions()] == ["s"] * len(before)
        monkeypatch.undo()
        add(memory, "s", "once")
        assert texts(memory, "s") == [*before, "once"]
    with opened(tmp_path) as memory:
        assert texts(memory, "s") == [*before, "once"]


@pytest.mark.parametrize("path", ["records/", ".state"])
def test_unsaved_note_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Wrong: a note whose write raised is listed."""
    with opened(tmp_path) as memory:
        disk_full(monkeypatch, path)
        with pytest.raises(StoreUnavailable, match="disk is full"):
            memory.remember("Ana rows.", user_id="ana")
        monkeypatch.undo()
        assert [note.text for note in memory.user("ana").notes().all()] == []


def test_files_that_the_store_did_not_create_are_ignored(tmp_path: Path) -> None:
    """Wrong: a file that the store did not create is deleted, read, or reported as damaged."""
    own = ["thesis.tmp", "sessions/thesis.tmp", "sessions/.draft.tmp", "records/list.json",
           "sessions/notes.txt", "vectors/.DS_Store", "thesis.jsonl", ".thesis.json"]  # fmt: skip
    for name in own:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine", "utf-8")
    left = tmp_path / "sessions" / f"{file_name('s')}.tmp"
    left.write_text("half a fi", "utf-8")
    with opened(tmp_path) as memory:
        add(memory, "s", "one")
        assert operations.damaged(memory) == []
        assert "damaged data" not in states(memory.delete_user("ana"))
    assert all((tmp_path / name).read_text("utf-8") == "mine" for name in own)
    assert not left.exists()


def test_an_unreadable_file_is_isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: one unreadable file stops all sessions, or is still refused once it is readable."""
    store: Store = open_store(f"folder:///{tmp_path}")
    store.append("s", [draft("one")])
    store.append("other", [draft("fine")])
    file = file_of(tmp_path, "s")
    read = Path.read_bytes

    def refusing(path: Path) -> bytes:
        if path == file:
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refusing)
    again = open_store(f"folder:///{tmp_path}")
    assert [entry.message.text() for entry in again.read("other")] == ["fine"]
    with pytest.raises(StoreError, match="Permission denied"):
        again.append("s", [draft("two")])
    monkeypatch.undo()
    again.append("s", [draft("two")])
    assert [entry.message.text() for entry in again.read("s")] == ["one", "two"]
