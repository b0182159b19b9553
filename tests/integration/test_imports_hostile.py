"""Imports of broken, mistyped, oversized or hostile files: only the bad part is skipped."""

import json
import os
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, InvalidInput, NoteMemory
from agent_memory.integrations.importing import Imported, import_chats, preview
from agent_memory.integrations.imports import From, files
from tests.integration.import_samples import (
    claude,
    code,
    gpt,
    gpt_chat,
    write_json,
    write_lines,
    write_table,
)
from tests.kit import every_nth


def bring(memory: AgentMemory, path: Path, source: str = "chatgpt") -> Any:
    done = import_chats(memory, path, source, user_id="ana")
    assert import_chats(memory, path, source, user_id="ana").new_messages == 0
    return done


def stored_texts(memory: AgentMemory) -> dict[str, list[str]]:
    return {
        head.session_id: [entry.message.text() for entry in memory.history(head.session_id)]
        for head in memory.sessions(limit=1_000)
    }


def test_a_bad_conversation_does_not_stop_the_others(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: an invalid conversation stops the import of the others."""
    good = [json.dumps(gpt_chat(name, gpt("q"))) for name in "abc"]
    bad = ['{"mapping": NaNa}', '{"mapping": []}', "7", '{"mapping": {"x": {"message": 5}}}']
    path = tmp_path / "c.json"
    path.write_text(f"\ufeff[{good[0]}, {', '.join(bad)}, {good[1]}, {good[2][:-9]}", "utf-8")
    done = bring(memory, path)
    assert stored_texts(memory) == {"chatgpt/a": ["q"], "chatgpt/b": ["q"]}
    where = [one.where.split(" (")[0] for one in done.unread]
    assert where == [
        "c.json, element 2", "c.json, element 3", "c.json, element 4", "c.json, element 5",
        "c.json, element 7",
    ]  # fmt: skip
    assert "ends within the element" in done.unread[-1].why


def test_a_damaged_last_element_is_reported_once(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: the end of the list is taken for a damaged element."""
    path = write_json(tmp_path / "c.json", [gpt_chat("c", gpt("a", text="?"))])
    path.write_bytes(path.read_bytes().replace(b"?", b"\xff"))
    assert [one.why for one in bring(memory, path).unread] == ["not UTF-8 text"]


def test_bad_messages_are_skipped_and_reported(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: an invalid message stops its conversation, or is not reported."""
    chat = gpt_chat(
        "c",
        gpt("a"),
        gpt("b", "narrator", parent="a"),
        gpt("n", parent="b", create_time=float("nan")),
        gpt("h", parent="n", metadata={"is_visually_hidden_from_conversation": True, "x": 1e999}),
        gpt("s", text="half \ud83d", parent="h"),
        gpt(
            "u", content={"content_type": "hologram", "parts": [{"content_type": "x"}]}, parent="s"
        ),
        {"id": "m", "parent": "u", "message": "?"},
        gpt("z", parent="m"),
    )
    done = bring(memory, write_json(tmp_path / "c.json", [chat]))
    assert stored_texts(memory) == {"chatgpt/c": ["a", "n", "half \ud83d", "[x]", "z"]}
    assert [one.where.rpartition(" ")[2] for one in done.unread] == ["b", "m", "h"]


def test_ids_that_a_store_cannot_hold_are_replaced(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: an id that a store cannot hold stops the import, or two such ids become one."""
    names = ["x" * 1000, "x" * 1001, "nul\x00", "half\ud83d", "\x1eshared"]
    chats = [gpt_chat(name, gpt("q", text=str(n)), title="\ud83d") for n, name in enumerate(names)]
    done = bring(memory, write_json(tmp_path / "c.json", chats))
    assert (done.failed, done.new_sessions) == (0, 5)
    assert sorted(text for (text,) in stored_texts(memory).values()) == list("01234")


def test_parent_cycles_and_many_branches_are_imported(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: parent links that form a circle never end."""
    circle = gpt_chat("o", gpt("a", parent="c"), gpt("b", parent="a"), gpt("c", parent="b"))
    itself = gpt_chat("i", gpt("a", parent="a"))
    deep = [gpt("n0")]
    deep += [gpt(f"n{n}", parent=f"n{n - 1}") for n in range(1, 2_000)]
    deep += [gpt(f"b{n}", "assistant", parent=f"n{n}") for n in range(0, 2_000, 10)]
    chats = [circle, itself, gpt_chat("d", *deep, current="n1999")]
    done = bring(memory, write_json(tmp_path / "c.json", chats))
    found = stored_texts(memory)
    assert found["chatgpt/o"] == ["a", "b", "c"]
    assert found["chatgpt/i"] == ["a"]
    assert (len(found["chatgpt/d"]), found["chatgpt/d~b20"]) == (2_000, ["n20", "b20"])
    assert done.new_messages == 4 + 2_000 + 2 * 200


def test_a_repeated_line_is_imported_once(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: a repeated line is stored twice, or another message under its id is not reported."""
    lines = [code("a", None, "user", "one")] * 2 + [code("a", None, "user", "other")]
    lines += [code("b", "a", "user", "two")]
    done = bring(memory, write_lines(tmp_path / "s.jsonl", lines), "claude-code")
    assert stored_texts(memory) == {"claude-code/s-1": ["one", "two"]}
    assert [one.where for one in done.unread] == ["s.jsonl, line 3"]


def test_only_the_message_above_the_limit_is_skipped(tmp_path: Path) -> None:
    """Wrong: a message above the limit loses others of its batch."""
    lines = [
        {"session_id": "s", "role": "user", "content": text}
        for text in ("before", "x" * 200_000, "after", "y" * 40_000)
    ]
    path = write_lines(tmp_path / "l.jsonl", lines)
    with AgentMemory(store="memory://", blocks=[], max_message_bytes=100_000) as memory:
        done = bring(memory, path, "jsonl")
        assert [len(text) for text in stored_texts(memory)["s"]] == [6, 5, 40_000]
        assert [one.where for one in done.unread] == ["l.jsonl, line 2"]


def test_a_zip_bomb_and_a_damaged_archive_are_reported(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: a small archive uses up the memory, or a damaged one is not reported."""
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
        with file.open("conversations.json", "w") as member:
            for _ in range(80):
                member.write(b" " * 1024 * 1024)
        file.writestr("more/conversations-001.json", json.dumps([gpt_chat("c", gpt("q"))]))
    done = bring(memory, bomb)
    assert stored_texts(memory) == {"chatgpt/c": ["q"]}
    assert "times its size" in done.unread[0].why
    chats = [gpt_chat(f"c{n}", gpt("q", text=os.urandom(50).hex())) for n in range(200)]
    damaged = tmp_path / "damaged.zip"
    with zipfile.ZipFile(damaged, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("conversations.json", json.dumps(chats))
    raw = bytearray(damaged.read_bytes())
    raw[len(raw) // 2] ^= 255
    damaged.write_bytes(raw)
    assert bring(memory, damaged).failed


def test_an_import_skips_circular_links_and_pipes(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: the import follows a link to a parent folder for ever, or waits for a pipe."""
    write_lines(tmp_path / "p" / "s.jsonl", [code("a", None, "user", "one")])
    (tmp_path / "p" / "up").symlink_to(tmp_path)
    (tmp_path / "p" / "self.jsonl").symlink_to("self.jsonl")
    (tmp_path / "p" / "gone.jsonl").symlink_to("nowhere")
    os.mkfifo(tmp_path / "p" / "pipe.jsonl")
    done = bring(memory, tmp_path, "claude-code")
    assert stored_texts(memory) == {"claude-code/s-1": ["one"]}
    assert [one.where for one in done.unread] == ["p/gone.jsonl", "p/pipe.jsonl", "p/self.jsonl"]


@pytest.mark.parametrize("source", list(From))
def test_other_files_are_refused(tmp_path: Path, memory: AgentMemory, source: str) -> None:
    """Wrong: a file of another source ends in a traceback, or is reported as imported."""
    files = [
        write_json(tmp_path / "empty.json", []),
        write_json(tmp_path / "other.json", [{"a": [1, {"b": None}]}, "x", None]),
        write_json(tmp_path / "one.json", {"store": 5, "agents": [3], "results": [4], "data": {}}),
        write_lines(tmp_path / "o.jsonl", [[1], {"type": "user"}, {"type": "human", "data": []}]),
        write_table(tmp_path / "o.db", "t", "a", [{"a": 1}]),
    ]
    (tmp_path / "cut.db").write_bytes(files[-1].read_bytes()[:3_000])
    (tmp_path / "noise.json").write_bytes(os.urandom(999))
    (tmp_path / "none.zip").write_bytes(b"PK\x05\x06" + b"\0" * 18)
    for path in (*files, *(tmp_path / name for name in ("cut.db", "noise.json", "none.zip"))):
        with suppress(InvalidInput):
            done = import_chats(memory, path, source, user_id="ana")
            assert done.failed or path.name == "empty.json" or done.left_out
    assert stored_texts(memory) == {}


def test_only_the_row_with_invalid_utf8_is_skipped(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: a row with invalid UTF-8 stops the import of its table."""
    said = {"session_id": "s", "created_at": "2025-01-01 00:00:00"}
    columns = "id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TEXT"
    rows = [{**said, "message_data": json.dumps({"role": "user", "content": "hi"})}] * 3
    path = write_table(tmp_path / "a.db", "agent_messages", columns, rows)
    with sqlite3.connect(path) as database:
        no_text = "CAST(x'ff22' AS TEXT)"
        database.execute(f"UPDATE agent_messages SET message_data = {no_text} WHERE id = 2")
    database.close()
    done = bring(memory, path, "openai-agents")
    assert stored_texts(memory) == {"s": ["hi", "hi"]}
    assert [str(one) for one in done.unread] == ["a.db, agent_messages, row 2: not UTF-8 text"]


def test_elements_read_in_chunks_equal_the_parsed_json() -> None:
    """Wrong: an element is cut wrongly when a chunk ends within a string or a character."""
    tricky = ['"', "\\", '\\"', "{", "}]", "[{", "é\ud83d", "", "\u2028", ",", '"}'[::-1]]
    values = [{one: [other, {"x": [one]}]} for one in tricky for other in tricky]
    for ascii_only in (True, False):
        raw = json.dumps(values, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        for size in (1, 2, 3, 7, 64, 10**6):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(files, "_CHUNK", size)
                parts = list(files.elements(files.OpenFile("f", BytesIO(raw))))
            assert [getattr(part, "value", part) for part in parts] == values


def test_a_preview_stores_nothing(tmp_path: Path) -> None:
    """Wrong: a preview stores data, or reports wrong counts."""
    path = write_json(tmp_path / "c.json", [gpt_chat("c", gpt("q")), {}])
    seen = preview(path, "chatgpt")
    assert (seen.sessions, seen.messages, seen.new_messages, seen.failed) == (1, 1, 0, 1)
    assert not (tmp_path / "agent_memory.db").exists()
    with pytest.raises(InvalidInput, match="Use one of: chatgpt, claude"):
        preview(path, "icq")
    with pytest.raises(InvalidInput, match="does not exist"):
        preview(tmp_path / "nowhere", "chatgpt")


@pytest.mark.parametrize("name", ["a", "b"])
def test_an_unclosed_quote_is_reported(name: str) -> None:
    """Wrong: an unclosed quote is not reported, or makes the reader loop for ever."""
    chats = [gpt_chat(name, gpt(f"{name}-1")) for name in "ab"]
    text = json.dumps(chats).replace(f'"Title of {name}"', f'"Title of {name}')
    parts = list(files.elements(files.OpenFile("f", BytesIO(text.encode()))))
    read = [part.value["id"] for part in parts if isinstance(part, files.Element)]
    assert read == ["a"][: "ab".index(name)]
    assert len(parts) > len(read)


VALUES: list[Any] = [None, True, -1, 1.5, 10**40, "text", "", [], [[1]], {}, {"a": {"b": []}}]
TOOL = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def lines_of(*lines: Any) -> Callable[[Path, Any], Path]:
    def write(folder: Path, sample: Any) -> Path:
        return write_lines(folder / "rollout-1.jsonl", [sample, *lines])

    return write


def element_of(path: str, good: Any) -> Callable[[Path, Any], Path]:
    def write(folder: Path, sample: Any) -> Path:
        return write_json(folder / path, [sample, good])

    return write


def files_of(ending: str, good: Any) -> Callable[[Path, Any], Path]:
    def write(folder: Path, sample: Any) -> Path:
        write_json(folder / f"a{ending}", sample)
        write_json(folder / f"b{ending}", good)
        return folder

    return write


def rows_of(table: str, columns: str, packed: str, good: Any) -> Callable[[Path, Any], Path]:
    """Write a database. The column `packed` holds JSON."""

    def write(folder: Path, sample: Any) -> Path:
        rows = [
            {
                key: plain(json.dumps(value) if key == packed else value)
                for key, value in row.items()
            }
            for row in (sample, good)
            if isinstance(row, dict) and row.keys() & good.keys()
        ]
        return write_table(folder / "a.db", table, columns, rows)

    return write


def plain(value: Any) -> Any:
    is_plain = value is None or isinstance(value, str | float)
    return value if is_plain or (isinstance(value, int) and value < 2**63) else json.dumps(value)


GOOD = "the other one is read"
CLAUDE = {
    "uuid": "c", "name": "A chat", "created_at": "2024-05-01T10:00:00Z",
    "current_leaf_message_uuid": "m2",
    "chat_messages": [
        claude("m1", "human", "", attachments=[{"file_name": "a.txt", "extracted_content": "text"}],
               files=[{"file_name": "b.png", "file_uuid": "u"}], files_v2=[{"file_name": "c.png"}]),
        claude("m2", "assistant", "m1", content=[
            {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "x"}},
            {"type": "tool_result", "tool_use_id": "t1",
             "content": [{"type": "text", "text": "r"}]},
        ]),
        claude("m3", "assistant", "m1", text="another"),
    ],
}  # fmt: skip
CHATGPT = gpt_chat(
    "g", gpt("a"), gpt("b", "assistant", parent="a", recipient="browser", metadata={
        "model_slug": "gpt", "is_visually_hidden_from_conversation": False}),
    gpt("t", "tool", parent="b", author={"role": "tool", "name": "browser"}),
    gpt("p", parent="t", content={"content_type": "multimodal_text", "parts": [
        {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"},
        {"content_type": "audio", "audio_asset_pointer": {"asset_pointer": "a"}}, "look"]}),
    gpt("other", "assistant", parent="a"), create_time=1.7e9,
)  # fmt: skip
LETTA = {
    "agents": [{"id": "a", "name": "Sam", "messages": [
        {"id": "1", "role": "user", "content": [{"type": "text", "text": "hi"}],
         "created_at": "2025-01-01T00:00:00Z"},
        {"id": "2", "role": "assistant", "content": "x", "tool_calls": [TOOL], "model": "m"},
        {"id": "3", "role": "tool", "content": "ok", "tool_call_id": "t1", "name": "f"}]}],
    "blocks": [{"id": "b", "label": "human", "value": "Rows.", "updated_at": "2025-01-01"}],
    "updated_at": "2025-01-01",
}  # fmt: skip
LANGCHAIN = {
    "type": "ai", "data": {
        "type": "ai", "id": "l", "content": [{"type": "text", "text": "hi"}],
        "tool_calls": [{"name": "f", "args": {"x": 1}, "id": "c1", "type": "tool_call"}],
        "additional_kwargs": {"timestamp": "2025-01-01"},
        "response_metadata": {"created_at": 1.7e9}},
}  # fmt: skip
ITEM = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
SAID = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": GOOD}]}
CODE = code(
    "l1", "l0", "assistant", [
        {"type": "text", "text": "hi"}, {"type": "thinking", "thinking": "x", "signature": "s"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}],
    cwd="/x", isSidechain=False, agentId="z", isMeta=False, isCompactSummary=False,
)  # fmt: skip
MEM0 = {
    "id": "m", "memory": "Rows.", "user_id": "ana", "agent_id": "x", "run_id": "y",
    "actor_id": "z", "metadata": {"a": 1}, "created_at": "2024-01-01", "updated_at": "2024-01-02",
}  # fmt: skip
EVENT = {
    "id": "1", "memory_id": "a", "old_memory": None, "new_memory": "Rows.", "event": "ADD",
    "created_at": "2024-01-01", "updated_at": None, "is_deleted": 0, "user_id": "ana",
}  # fmt: skip
LINE = {"session_id": "s", "user_id": "ana", "role": "assistant", "content": "x", "id": "i",
        "time": "2024-01-01", "name": "n", "tool_calls": [TOOL], "metadata": {},
        "mood": []}  # fmt: skip
LLAMA = {
    "class_name": "SimpleChatStore", "store": {"k": [
        {"role": "user", "additional_kwargs": {"timestamp": "2024-01-01"},
         "blocks": [{"block_type": "text", "text": "hi"}]},
        {"role": "assistant", "content": "old", "additional_kwargs": {}}]},
}  # fmt: skip
GOOD_NOTE = {**MEM0, "id": "good", "memory": GOOD}
SAMPLES: dict[str, tuple[str, Any, Callable[[Path, Any], Path]]] = {
    "claude": ("claude", CLAUDE, element_of(
        "c.json", {"uuid": "good", "chat_messages": [claude(GOOD, "human", "")]})),
    "chatgpt": ("chatgpt", CHATGPT, element_of("c.json", gpt_chat("good", gpt(GOOD)))),
    "letta": ("letta", LETTA, files_of(
        ".af", {"agents": [{"id": "good", "messages": [{"role": "user", "content": GOOD}]}]})),
    "langchain dump": ("langchain", LANGCHAIN, element_of(
        "c.json", {"type": "human", "data": {"content": GOOD}})),
    "langchain": ("langchain", {"id": 1, "session_id": "s", "message": LANGCHAIN}, rows_of(
        "chats", "id, session_id, message", "message", {
            "id": 9, "session_id": "good",
            "message": {"type": "human", "data": {"content": GOOD}}})),
    "agents sdk": ("openai-agents", {
        "id": 1, "session_id": "s", "message_data": ITEM, "created_at": "2025-01-01"}, rows_of(
        "agent_messages", "id, session_id, message_data, created_at", "message_data",
        {"id": 9, "session_id": "good", "message_data": SAID, "created_at": "2025-01-01"})),
    "codex": ("codex", {"type": "response_item", "timestamp": "2025-01-01", "payload": ITEM},
              lines_of({"type": "response_item", "payload": SAID})),
    "codex's first line": ("codex", {"type": "session_meta", "payload": {"id": "x", "cwd": "/x"}},
                           lines_of({"type": "response_item", "payload": SAID})),
    "codex's first releases": ("codex", ITEM, lines_of(SAID)),
    "claude code": ("claude-code", CODE, lines_of(code("good", None, "user", GOOD))),
    "claude code's titles": ("claude-code", {"type": "summary", "summary": "x", "leafUuid": "good"},
                             lines_of(code("good", None, "user", GOOD))),
    "mem0": ("mem0", {"results": [MEM0]}, lambda folder, sample: write_json(
        folder / "c.json", [sample, GOOD_NOTE])),
    "mem0's events": ("mem0", EVENT, lambda folder, sample: write_json(
        folder / "c.json", [sample, GOOD_NOTE])),
    "mem0's history": ("mem0", EVENT, rows_of("history", ", ".join(EVENT), "", {
        **EVENT, "id": "2", "memory_id": "good", "new_memory": GOOD})),
    "mem0's messages": ("mem0", {
        "id": "1", "session_scope": "user_id=ana", "role": "user", "content": "x", "name": "n",
        "created_at": "2024-01-01"}, rows_of(
        "messages", "id, session_scope, role, content, name, created_at", "", {
            "id": "2", "session_scope": "user_id=ana", "role": "user", "content": GOOD,
            "created_at": "2024-01-01"})),
    "jsonl": ("jsonl", LINE, lines_of({"session_id": "good", "role": "user", "content": GOOD})),
    "llama-index": ("llama-index", LLAMA, files_of(
        ".json", {"store": {"good": [{"role": "user", "content": GOOD}]}})),
}  # fmt: skip


def edited(sample: Any) -> Iterator[Any]:
    """Yield the sample with each of its values replaced by values of other types."""
    for path in paths(sample):
        for value in VALUES:
            copy = deepcopy(sample)
            parent = copy
            for key in path[:-1]:
                parent = parent[key]
            if not path:
                copy = value
            elif type(parent[path[-1]]) is type(value) and not isinstance(value, dict | list):
                continue
            else:
                parent[path[-1]] = value
            yield copy


def paths(sample: Any) -> Iterator[tuple[Any, ...]]:
    yield ()
    inner = (
        sample.items() if isinstance(sample, dict)
        else enumerate(sample) if isinstance(sample, list) else ()
    )  # fmt: skip
    for key, value in inner:
        yield from ((key, *more) for more in paths(value))


def all_imported_texts(memory: AgentMemory) -> str:
    """Return the texts of all imported messages and notes."""
    found: list[str] = [note.text for note in memory.user("ana").notes().all()]
    for head in memory.sessions(limit=1_000):
        found += [entry.message.text() for entry in memory.history(head.session_id)]
        memory.get(head.session_id, "What was said?").to_messages()
    return "\n".join(found)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_field_of_another_type_affects_only_its_part(tmp_path: Path, name: str) -> None:
    """Wrong: a field of another type raises an error of Python, or hides the data after it."""
    source, sample, write = SAMPLES[name]
    seen: set[str] = set()
    for number, copy in enumerate(every_nth([sample, *edited(sample)], 10)):
        text = json.dumps(copy)
        if text in seen:
            continue
        seen.add(text)
        folder = tmp_path / str(number)
        folder.mkdir()
        path = write(folder, copy)
        with AgentMemory(store="memory://", blocks=[NoteMemory()]) as memory:
            done: Imported = import_chats(memory, path, source, user_id="ana")
            assert GOOD in all_imported_texts(memory), copy
            again = import_chats(memory, path, source, user_id="ana")
            assert (again.new_messages, again.new_notes) == (0, 0), copy
        if number == 0:
            assert (done.failed, done.unread) == (0, [])
            assert done.messages + done.notes >= 1
    assert len(seen) > 3
