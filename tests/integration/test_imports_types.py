"""Imports of exports in which any field has a value of another type."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, NoteMemory
from agent_memory.integrations.importing import Imported, import_chats
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


def all_said(memory: AgentMemory) -> str:
    """Return the texts of all imported messages and notes."""
    found: list[str] = [note.text for note in memory.user("ana").notes().all()]
    for head in memory.sessions(limit=1_000):
        found += [entry.message.text() for entry in memory.history(head.session_id)]
        memory.get(head.session_id, "What was said?").to_messages()
    return "\n".join(found)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_field_of_another_type_costs_its_part_alone(tmp_path: Path, name: str) -> None:
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
            assert GOOD in all_said(memory), copy
            again = import_chats(memory, path, source, user_id="ana")
            assert (again.new_messages, again.new_notes) == (0, 0), copy
        if number == 0:
            assert (done.failed, done.unread) == (0, [])
            assert done.messages + done.notes >= 1
    assert len(seen) > 3
