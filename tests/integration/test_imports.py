"""Imports of chats: each source's format becomes sessions, messages and notes."""

import json
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agent_memory import AgentMemory, ExtractiveMemory, Summarize
from agent_memory.core.records import Recall
from agent_memory.integrations.importing import import_chats
from agent_memory.integrations.transcripts import render
from agent_memory.testing import FakeLLM
from tests.histories import call
from tests.integration.import_samples import (
    claude,
    code,
    gpt,
    gpt_chat,
    ids,
    write_json,
    write_lines,
    write_table,
)
from tests.kit import model_at, texts


def twice(memory: AgentMemory, path: Path, source: str, user: str | None = "ana") -> Any:
    done = import_chats(memory, path, source, user_id=user)
    again = import_chats(memory, path, source, user_id=user)
    assert (again.new_sessions, again.new_messages, again.new_notes) == (0, 0, 0)
    assert (again.sessions, again.messages) == (done.sessions, done.messages)
    return done


def test_chatgpt_branches_become_sessions(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: a discarded answer is in the main session, or is lost."""
    export = [
        gpt_chat(
            "c",
            gpt("sys", "system", content={"content_type": "text", "parts": [""]}, create_time=None),
            gpt("q", parent="sys", create_time=None),
            gpt("old", "assistant", parent="q"),
            gpt("older-on", "user", parent="old"),
            gpt("new", "assistant", parent="q"),
            create_time=1.6e9,
        )
    ]
    done = twice(memory, write_json(tmp_path / "conversations.json", export), "chatgpt")
    assert ids(memory) == ["chatgpt/c", "chatgpt/c~old"]
    assert texts(memory, "chatgpt/c") == ["q", "new"]
    assert texts(memory, "chatgpt/c~old") == ["q", "old", "older-on"]
    head = memory.head("chatgpt/c~old")
    assert head.user_id == "ana"
    assert head.metadata == {
        "title": "Title of c", "source": "chatgpt", "branch_of": "chatgpt/c"
    }  # fmt: skip
    (first, second) = memory.history("chatgpt/c")
    assert first.created_at == datetime.fromtimestamp(1.6e9, UTC)
    assert second.created_at == datetime.fromtimestamp(1.7e9, UTC)
    assert done.left_out == {"empty messages": 1}


def test_chatgpt_tool_calls_and_filenames_are_imported(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: a tool's result is imported without its call, or a picture is lost."""
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-1"}
    voice = {"content_type": "audio_transcription", "text": "spoken"}
    seen = {"content_type": "multimodal_text", "parts": [picture, voice, "look"]}
    asked = {"content_type": "code", "language": "python", "text": "1 + 1"}
    told = {"content_type": "execution_output", "text": "2"}
    thought = {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "hm"}]}
    hidden = {"is_visually_hidden_from_conversation": True}
    chat = gpt_chat(
        "c",
        gpt("h", "user", "about me", metadata=hidden),
        gpt("q", content=seen, parent="h"),
        gpt("t", "assistant", content=thought, parent="q"),
        gpt("call", "assistant", content=asked, parent="t", recipient="python"),
        gpt("r", "tool", content=told, parent="call", author={"role": "tool", "name": "python"}),
        gpt("a", "assistant", "two", parent="r"),
    )
    twice(memory, write_json(tmp_path / "conversations.json", [chat]), "chatgpt")
    shown = memory.get("chatgpt/c").to_messages()
    assert [one["role"] for one in shown] == ["user", "assistant", "tool", "assistant"]
    assert shown[0]["content"] == "[image: file-1]\nspoken\nlook"
    assert shown[2]["tool_call_id"] == shown[1]["tool_calls"][0]["id"]
    assert "1 + 1" in shown[1]["tool_calls"][0]["function"]["arguments"]
    log = memory.history("chatgpt/c")
    assert [entry.message.format for entry in log if entry.message.raw] == ["chatgpt.export"] * 2
    assert log[2].message.raw["content"] == thought
    assert log[1].message.metadata["content"] == seen


def test_a_newer_export_adds_only_new_messages(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: a newer export stores known messages again, or mixes two branches in a session."""
    path = tmp_path / "conversations.json"
    talk = [gpt("q1"), gpt("a1", "assistant", parent="q1"), gpt("q2", parent="a1")]
    old = [*talk, gpt("a2", "assistant", parent="q2")]
    twice(memory, write_json(path, [gpt_chat("c", *old)]), "chatgpt")
    went_on = [*old, gpt("q3", parent="a2")]
    twice(memory, write_json(path, [gpt_chat("c", *went_on)]), "chatgpt")
    assert texts(memory, "chatgpt/c") == ["q1", "a1", "q2", "a2", "q3"]
    anew = [*went_on, gpt("a2b", "assistant", parent="q2")]
    done = twice(memory, write_json(path, [gpt_chat("c", *anew)]), "chatgpt")
    assert done.new_messages == 2
    assert texts(memory, "chatgpt/c") == ["q1", "a1", "q2", "a2", "q3"]
    assert texts(memory, "chatgpt/c~a2b") == ["q2", "a2b"]
    anew.append(gpt("q4", parent="a2b"))
    twice(memory, write_json(path, [gpt_chat("c", *anew)]), "chatgpt")
    assert texts(memory, "chatgpt/c~a2b") == ["q2", "a2b", "q4"]
    anew += [gpt("q5", parent="a1"), gpt("a5", "assistant", parent="q5")]
    for more in ([], [gpt("a5b", "assistant", parent="q5")], [gpt("q6", parent="a1")]):
        anew += more
        twice(memory, write_json(path, [gpt_chat("c", *anew)]), "chatgpt")
    assert [texts(memory, name) for name in ids(memory)] == [
        ["q1", "a1", "q2", "a2", "q3"], ["q2", "a2b", "q4"], ["q5", "a5b"], ["q5", "a5"], ["q6"]
    ]  # fmt: skip


def test_claude_blocks_files_and_branches_are_imported(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: an attachment is lost, or a tool's result is imported without its call."""
    blocks = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "t1", "name": "web_search", "input": {"query": "x"}},
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "y"}]},
        {"type": "text", "text": "It is y."},
    ]
    attached = [{"file_name": "a.txt", "extracted_content": "inside"}]
    chat = {
        "uuid": "c", "name": "Looking", "created_at": "2024-05-01T09:00:00Z",
        "chat_messages": [
            claude("q", "human", "0000", attachments=attached, files=[{"file_name": "b.png"}]),
            claude("a-old", "assistant", "q"),
            claude("a", "assistant", "q", content=blocks),
        ],
    }  # fmt: skip
    packed = tmp_path / "data.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.write(write_json(tmp_path / "x.json", [chat]), "export/conversations.json")
        file.writestr("export/users.json", "[]")
    twice(memory, packed, "claude")
    shown = memory.get("claude/c").to_messages()
    assert [one["role"] for one in shown] == ["user", "assistant", "tool", "assistant"]
    assert shown[0]["content"] == "q\n\n[attachment: a.txt]\ninside\n\n[file: b.png]"
    assert (shown[1]["content"], shown[2]["content"]) == ("Let me look.", "y")
    assert memory.history("claude/c")[1].message.metadata["thinking"] == ["hm"]
    assert texts(memory, "claude/c~a-old") == [str(shown[0]["content"]), "a-old"]


def test_claude_messages_without_parents_are_in_order(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: messages of an older export each become a branch."""
    messages = [
        {"uuid": f"m{n}", "sender": sender, "text": f"t{n}", "content": [], "files": []}
        for n, sender in enumerate(("human", "assistant", "human"))
    ]
    chat = {"uuid": "c", "name": "", "created_at": "2023-07-01", "chat_messages": messages}
    twice(memory, write_json(tmp_path / "c.json", [chat]), "claude")
    assert texts(memory, "claude/c") == ["t0", "t1", "t2"]


def test_claude_code_side_chains_are_separate_sessions(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: a subagent's messages, or a rewound branch, are in the main session."""
    use = [{"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {}} for n in (1, 2)]
    got = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": f"r{n}"} for n in (1, 2)]
    lines = [
        {"type": "summary", "summary": "Fixing", "leafUuid": "done"},
        {"type": "summary", "summary": "Another session", "leafUuid": "elsewhere"},
        code("q", None, "user", "q", cwd="/work"),
        code("a1", "q", "assistant", [use[0]]),
        code("a2", "a1", "assistant", [use[1]]),
        code("r1", "a1", "user", [got[0]]),
        code("r2", "a2", "user", [got[1]]),
        code("side", None, "user", "look there", isSidechain=True, agentId="ab"),
        code("side2", "side", "assistant", [{"type": "text", "text": "seen"}],
             isSidechain=True, agentId="ab"),
        code("done", "r2", "assistant", [{"type": "text", "text": "done"}]),
        code("no", "done", "user", "not so"),
        code("no2", "no", "assistant", [{"type": "text", "text": "well"}]),
        code("yes", "done", "user", "but so"),
        {"type": "file-history-snapshot", "messageId": "x"},
    ]  # fmt: skip
    write_lines(tmp_path / "projects" / "p" / "s-1.jsonl", lines)
    done = twice(memory, tmp_path / "projects", "claude-code")
    main = "claude-code/s-1"
    assert ids(memory) == [main, f"{main}~agent-ab", f"{main}~no"]
    assert texts(memory, main) == ["q", "", "", "r1", "r2", "done", "but so"]
    assert texts(memory, f"{main}~agent-ab") == ["look there", "seen"]
    assert texts(memory, f"{main}~no") == ["not so", "well"]
    assert memory.history(main)[1].message.raw == {"role": "assistant", "content": [use[0]]}
    head = memory.head(main)
    assert head.metadata == {"title": "Fixing", "source": "claude-code", "folder": "/work"}
    assert done.left_out == {"lines of the type 'file-history-snapshot'": 1}


def test_a_rewind_after_import_becomes_another_session(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: a rewound question is appended after the old answers."""
    path = tmp_path / "s-1.jsonl"
    lines = [code("q", None, "user", "q"), code("no", "q", "user", "not so")]
    twice(memory, write_lines(path, lines), "claude-code")
    lines += [code("yes", "q", "user", "but so"), code("on", "yes", "user", "and on")]
    twice(memory, write_lines(path, lines), "claude-code")
    assert texts(memory, "claude-code/s-1") == ["q", "not so"]
    assert texts(memory, "claude-code/s-1~yes") == ["but so", "and on"]
    assert ids(memory) == ["claude-code/s-1", "claude-code/s-1~yes"]


def test_codex_items_are_imported_unchanged(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: items are changed, or the context that Codex adds is shown as a user's message."""
    at = "2025-09-01T10:00:00Z"
    items = [
        {"type": "message", "role": "developer",
         "content": [{"type": "input_text", "text": "Be."}]},
        {"type": "message", "role": "user",
         "content": [{"type": "input_text", "text": "<environment_context>..."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix it"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
        {"type": "message", "role": "assistant",
         "content": [{"type": "output_text", "text": "Fixed"}]},
    ]  # fmt: skip
    lines = [
        {"timestamp": at, "type": "session_meta", "payload": {"id": "u-1", "cwd": "/w"}},
        *({"timestamp": at, "type": "response_item", "payload": item} for item in items),
        {"timestamp": at, "type": "event_msg", "payload": {"type": "token_count"}},
        '{"timestamp": "2025-09-01T10:00:00Z", "type": "resp',
    ]
    write_lines(tmp_path / "2025" / "09" / "rollout-2025-09-01-u-1.jsonl", lines)
    old = [{"id": "u-0", "timestamp": at, "instructions": None}, items[2], {"record_type": "state"}]
    write_lines(tmp_path / "2025" / "07" / "rollout-2025-07-01-u-0.jsonl", old)
    done = twice(memory, tmp_path, "codex")
    assert ids(memory) == ["codex/u-0", "codex/u-1"]
    shown = memory.get("codex/u-1").to_messages()
    assert [one["role"] for one in shown] == ["user", "assistant", "tool", "assistant"]
    raw = [entry.message.raw for entry in memory.history("codex/u-1")]
    assert raw[3:] == items[3:]
    assert [one.where for one in done.unread] == ["2025/09/rollout-2025-09-01-u-1.jsonl, line 10"]


def shown(memory: AgentMemory, session_id: str) -> list[Any]:
    return [one["content"] for one in memory.get(session_id).to_messages()]


def test_text_added_by_a_program_is_stored_and_hidden(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: text that a program added is shown as the user's words, or is lost."""
    lines = [
        code("q", None, "user", "Fix it<system-reminder>Todo is empty.</system-reminder>"),
        code("c", "q", "user", "<command-name>/clear</command-name>"),
        code("m", "c", "user", "Caveat: ...", isMeta=True),
        code("s", "m", "user", "This session is continued ...", isCompactSummary=True),
        code("e", "s", "assistant", [{"type": "text", "text": "API Error"}],
             isApiErrorMessage=True),
        code("a", "e", "assistant", [{"type": "text", "text": "Fixed"}]),
    ]  # fmt: skip
    twice(memory, write_lines(tmp_path / "s-1.jsonl", lines), "claude-code")
    main = "claude-code/s-1"
    assert shown(memory, main) == ["Fix it", "Fixed"]
    log = [entry.message for entry in memory.history(main)]
    assert [one.format for one in log[1:5]] == ["claude-code.message"] * 4
    assert log[3].raw == {"message": lines[3]["message"]}
    assert (log[2].metadata["isMeta"], log[3].metadata["isCompactSummary"]) == (True, True)
    begins = [
        "<turn_aborted>",
        "# AGENTS.md instructions for /w\n\nBe kind.",
        "Fix it",
        "<skillful>",
    ]
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": one}]}
             for one in begins]  # fmt: skip
    write_lines(tmp_path / "rollout-x.jsonl", items)
    twice(memory, tmp_path / "rollout-x.jsonl", "codex")
    assert [one.message.format for one in memory.history("codex/rollout-x")] == [
        "codex.item", "codex.item", "openai.responses", "openai.responses"
    ]  # fmt: skip


def test_recalls_that_a_hook_added_are_not_imported(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: recalls that a hook added to a transcript are imported as messages."""
    ours = render([Recall("log", "", "[2026-11-20] user: Kestrel listens on 6543.")])
    result = {"type": "tool_result", "tool_use_id": "t", "content": f"x\n{ours}"}
    lines = [
        code("q", None, "user", f"<system-reminder>\n{ours}\n</system-reminder>\nWhich port?"),
        code("r", "q", "user", [result, {"type": "text", "text": ours}]),
        code("m", "r", "user", ours, isMeta=True),
    ]
    done = twice(memory, write_lines(tmp_path / "s-1.jsonl", lines), "claude-code")
    assert texts(memory, "claude-code/s-1") == ["Which port?", "x\n"]
    assert done.left_out == {"empty messages": 1}
    items = [
        {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}
        for role, text in (("developer", f"{ours}\nBe."), ("user", "Hi"))
    ]
    write_lines(tmp_path / "rollout-x.jsonl", items)
    twice(memory, tmp_path / "rollout-x.jsonl", "codex")
    kept = [entry.message.to_json() for name in ids(memory) for entry in memory.history(name)]
    assert len(kept) == 4
    assert not [one for one in kept if "Kestrel" in one]


def test_mem0_memories_become_notes(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: a note has a wrong time or user, or a deleted memory is imported."""
    kept = {"id": "m1", "memory": "Likes tea", "user_id": "ben", "created_at": "2024-01-02"}
    path = write_json(tmp_path / "m.json", [{"results": [kept, {"id": "m2"}]}, {"results": []}])
    done = twice(memory, path, "mem0", user=None)
    (note,) = memory.user("ben").notes().all()
    assert (note.text, note.created_at) == ("Likes tea", datetime(2024, 1, 2, tzinfo=UTC))
    assert note.metadata == {"id": "m1", "source": "mem0"}
    assert (done.notes, done.new_notes, done.failed) == (1, 1, 1)
    said = [
        {"memory_id": "a", "event": "ADD", "new_memory": "Has a cat", "created_at": "2024-01-01"},
        {"memory_id": "b", "event": "ADD", "new_memory": "Smokes", "created_at": "2024-01-01"},
        {"memory_id": "a", "event": "UPDATE", "old_memory": "Has a cat",
         "new_memory": "Has two cats", "updated_at": "2024-02-01"},
        {"memory_id": "b", "event": "DELETE", "old_memory": "Smokes", "is_deleted": 1},
    ]  # fmt: skip
    columns = "id, memory_id, old_memory, new_memory, event, created_at, updated_at, is_deleted"
    rows = [{"id": str(n), **one} for n, one in enumerate(said)]
    database = write_table(tmp_path / "history.db", "history", columns, rows)
    scope = {"session_scope": "user_id=b%26n", "role": "user", "content": "hello"}
    write_table(
        database, "messages", "id, session_scope, role, content, name, created_at",
        [{"id": "x", **scope, "created_at": "2024-03-01T00:00:00Z"}],
    )  # fmt: skip
    done = twice(memory, database, "mem0")
    assert [note.text for note in memory.user("ana").notes().all()] == ["Has two cats"]
    assert done.left_out == {"memories that were deleted": 1}
    assert texts(memory, "mem0/user_id=b%26n") == ["hello"]
    nobodys = import_chats(memory, database, "mem0")
    assert "names no user" in nobodys.unread[0].why


def test_letta_messages_and_blocks_are_imported(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: a long block is lost; words are JSON in a call or an envelope; events are shown."""
    long = "\n".join(f"line {n} " + "x" * 100 for n in range(60))
    messages = [
        {"id": "message-0", "role": "system", "content": [{"type": "text", "text": "Be kind."}]},
        {"id": "message-1", "role": "user", "content": "hi", "created_at": "2025-01-01T00:00:00Z"},
        {**call(["t1"]), "id": "message-2", "content": []},
        {"id": "message-3", "role": "tool", "content": "ok", "tool_call_id": "t1"},
        {"id": "message-4", "role": "approval"},
        {"role": "user", "content": '{"type": "heartbeat", "time": "10:00 AM"}'},
        {"role": "user", "content": '{"type": "user_message", "message": "I row."}'},
        {**call(["t2"], "send_message", '{"message": "Where?"}'), "id": "message-6"},
        {"id": "message-7", "role": "tool", "content": "ok", "tool_call_id": "t2"},
    ]
    file = {
        "agents": [{"id": "agent-0", "name": "Sam", "messages": messages}],
        "blocks": [{"id": "b0", "label": "human", "value": "Is called Chad."},
                   {"id": "b1", "label": "facts", "value": long}, {"label": "x", "value": ""},
                   {"label": "l" * 4_000, "value": "x"}],
    }  # fmt: skip
    twice(memory, write_json(tmp_path / "sam.af", file), "letta")
    shown = memory.get("letta/sam/agent-0").to_messages()
    assert [one["role"] for one in shown[:4]] == ["system", "user", "assistant", "tool"]
    assert [one["content"] for one in shown[4:]] == ["I row.", "Where?"]
    assert len(memory.history("letta/sam/agent-0")) == 6
    notes = [note.text for note in memory.user("ana").notes().all()]
    assert notes[0] == "human: Is called Chad."
    assert "\n".join(note.removeprefix("facts: ") for note in notes[1:]) == long
    done = twice(memory, write_json(tmp_path / "sam.af", json.dumps(file)), "letta")
    assert (done.messages, done.new_messages, len(done.unread)) == (6, 0, 1)


def test_langchain_messages_are_imported_unchanged(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: a table or dump is not found, dumps are mixed, or an invalid row stops the import."""
    call = {"name": "f", "args": {"x": 1}, "id": "c1", "type": "tool_call"}
    said = [
        {"type": "human", "data": {"type": "human", "content": "hi"}},
        {"type": "ai", "data": {"type": "ai", "content": "", "tool_calls": [call]}},
        {"type": "tool", "data": {"type": "tool", "content": "1", "tool_call_id": "c1"}},
    ]
    rows = [{"session_id": "s", "message": json.dumps(one)} for one in said]
    rows.insert(1, {"session_id": "s", "message": "{"})
    columns = "id INTEGER PRIMARY KEY, session_id TEXT, message TEXT"
    done = twice(memory, write_table(tmp_path / "c.db", "my_chats", columns, rows), "langchain")
    assert [entry.message.raw for entry in memory.history("s")] == [one["data"] for one in said]
    assert [one.where for one in done.unread] == ["c.db, my_chats, row 2"]
    for user in ("ana", "ben"):
        (tmp_path / "dumps" / user).mkdir(parents=True)
        write_json(tmp_path / "dumps" / user / "chat.json", said)
    twice(memory, tmp_path / "dumps", "langchain")
    for name in ("ana/chat", "ben/chat"):
        assert memory.get(name).to_messages()[1]["tool_calls"][0]["id"] == "c1"


def test_each_llama_index_store_key_becomes_a_session(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: keys are mixed into one session, or messages of older releases are refused."""
    block = {"block_type": "text", "text": "hi"}
    store = {
        "store": {
            "a": [{"role": "user", "additional_kwargs": {}, "blocks": [block]}] * 2,
            "b": [{"role": "assistant", "content": "old", "additional_kwargs": {}}],
        },
        "class_name": "SimpleChatStore",
    }
    twice(memory, write_json(tmp_path / "chat_store.json", store), "llama-index")
    assert (texts(memory, "a"), texts(memory, "b")) == (["hi", "hi"], ["old"])


def test_agents_sdk_items_are_imported_unchanged(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: a row's time is lost, an item is changed, or an encrypted item is sent to a model."""
    item = {"type": "reasoning", "id": "r", "summary": []}
    rows = [
        {"session_id": "s", "message_data": json.dumps(one), "created_at": "2025-03-01 10:00:00"}
        for one in ({"role": "user", "content": "hi"}, item, {"__enc__": 1, "payload": "gAAA"})
    ]
    columns = "id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TIMESTAMP"
    path = write_table(tmp_path / "a.db", "agent_messages", columns, rows)
    done = twice(memory, path, "openai-agents")
    assert [one.where for one in done.unread] == ["a.db, agent_messages, row 3"]
    first, second = memory.history("s")
    assert (first.message.text(), second.message.raw) == ("hi", item)
    assert first.created_at == datetime(2025, 3, 1, 10, tzinfo=UTC)


def test_json_lines_import_sessions_users_and_times(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: lines of several sessions are mixed, or a longer file is imported twice."""
    lines: list[Any] = [
        {"session_id": "a", "user_id": "ben", "role": "user", "content": "1", "time": "2024-01-01"},
        {"session": "b", "role": "user", "content": "2", "id": "x", "time": "2024-01-01 02:00+02"},
        {"session_id": "a", "role": "assistant", "content": "3", "metadata": {"source": "web"}},
        {"role": "user", "content": "nobody's"},
        {"session_id": "a", "role": "narrator", "content": "?"},
        {"session_id": "a", "role": "user", "content": "?", "time": "soon"},
        "no JSON",
        {"session_id": 7, "role": "user", "content": "4"},
    ]
    path = write_lines(tmp_path / "log.jsonl", lines)
    done = twice(memory, path, "jsonl", user=None)
    assert [texts(memory, name) for name in "ab7"] == [["1", "3"], ["2"], ["4"]]
    assert [one.where for one in done.unread] == [f"log.jsonl, line {n}" for n in (4, 5, 6, 7)]
    assert [head.user_id for head in memory.sessions()] == [None, "ben", None]
    for name in "ab":
        assert memory.history(name)[0].created_at == datetime(2024, 1, 1, tzinfo=UTC)
    assert memory.history("a")[1].message.metadata["source"] == "web"
    write_lines(path, [*lines, {"session_id": "a", "role": "user", "content": "5"}])
    assert twice(memory, path, "jsonl", user=None).new_messages == 1


def test_several_users_and_days_are_imported_once(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: one user gets another's message, or a daily greeting is lost or imported twice."""
    users, days = [None, "ana", "ben", None], ["2024-05-06", "2024-05-07"]
    for day in days:
        lines = [
            {
                "session_id": "1",
                "role": "user",
                "content": "Hello",
                "user_id": user,
                "time": f"{day}T10:0{minute}:00",
            }
            for minute, user in enumerate(users)
        ]
        write_lines(tmp_path / f"{day}.jsonl", [*lines, {**lines[1], "time": None}])  # fmt: skip
    done = twice(memory, tmp_path, "jsonl", user=None)
    assert [one.where for one in done.unread] == [f"{day}.jsonl, line 3" for day in days]
    assert [head.user_id for head in memory.sessions()] == ["ana"]
    assert twice(memory, write_lines(tmp_path / "t.jsonl", lines[1:2]), "jsonl").new_messages == 0
    assert texts(memory, "1") == ["Hello"] * 8
    assert twice(AgentMemory("memory://"), tmp_path, "jsonl", user="zoe").new_messages == 10


def test_a_deleted_chat_is_not_imported_again(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: the next import restores a deleted chat without `deleted=True`."""
    path = write_json(tmp_path / "c.json", [gpt_chat("c", gpt("q")), gpt_chat("d", gpt("r"))])
    twice(memory, path, "chatgpt")
    memory.delete("chatgpt/c")
    done = import_chats(memory, path, "chatgpt", user_id="ana")
    assert (done.deleted, done.new_messages, ids(memory)) == (1, 0, ["chatgpt/d"])
    done = import_chats(memory, path, "chatgpt", user_id="ana", deleted=True)
    assert (done.deleted, done.new_messages) == (0, 1)
    twice(memory, path, "chatgpt")


def test_imports_do_not_change_another_users_session(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: an import for one user writes into another user's session, or stops there."""
    path = write_json(tmp_path / "c.json", [gpt_chat("c", gpt("q")), gpt_chat("d", gpt("r"))])
    memory.update("chatgpt/c", {"role": "user", "content": "mine"}, user_id="ben")
    done = import_chats(memory, path, "chatgpt", user_id="ana")
    assert (texts(memory, "chatgpt/c"), texts(memory, "chatgpt/d")) == (["mine"], ["r"])
    assert [one.where for one in done.unread] == ["chatgpt/c"]


def test_messages_are_not_imported_again_after_their_keys_expire(tmp_path: Path) -> None:
    """Wrong: messages are imported again after their idempotency keys have expired."""
    path = write_json(tmp_path / "c.json", [gpt_chat("c", gpt("q"))])
    with AgentMemory(store="memory://", keep_keys=timedelta(microseconds=1)) as memory:
        twice(memory, path, "chatgpt")
        said = {"role": "user", "content": "here", "id": "k"}
        memory.update("chatgpt/c", said, user_id="ana")  # removes expired keys
        twice(memory, path, "chatgpt")
        assert texts(memory, "chatgpt/c") == ["q", "here"]


def test_messages_that_retention_removed_are_not_imported_again(tmp_path: Path) -> None:
    """Wrong: messages that retention removed are imported again."""
    talk = [gpt(f"m{n}", text="word " * 50, parent=f"m{n - 1}") for n in range(1, 20)]
    path = write_json(tmp_path / "c.json", [gpt_chat("c", gpt("m0"), *talk)])
    with AgentMemory(store="memory://", max_tokens=300, retention="window") as memory:
        twice(memory, path, "chatgpt")
        memory.flush()
        assert memory.history("chatgpt/c")[0].seq > 1
        twice(memory, path, "chatgpt")
        assert ids(memory) == ["chatgpt/c"]


def test_an_import_does_not_call_the_model(tmp_path: Path) -> None:
    """Wrong: an import calls the model."""
    talk = [gpt(f"m{n}", text="word " * 50, parent=f"m{n - 1}") for n in range(1, 60)]
    path = write_json(tmp_path / "c.json", [gpt_chat("c", gpt("m0"), *talk)])
    blocks, overflow = [ExtractiveMemory()], Summarize(max_summary_tokens=50)
    with FakeLLM("Never.") as server:
        settings = {"max_tokens": 300, "overflow": overflow, **model_at(server)}
        with AgentMemory(store="memory://", blocks=blocks, **settings) as memory:
            assert twice(memory, path, "chatgpt").new_messages == 60
        assert not server.requests
