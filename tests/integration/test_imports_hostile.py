"""Imports of broken, oversized or hostile files: only the bad part is skipped."""

import json
import os
import sqlite3
import zipfile
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, InvalidInput
from agent_memory.integrations.importing import import_chats, preview
from agent_memory.integrations.imports import From, json_parts
from tests.integration.import_samples import (
    code,
    gpt,
    gpt_chat,
    write_json,
    write_lines,
    write_table,
)


def bring(memory: AgentMemory, path: Path, source: str = "chatgpt") -> Any:
    done = import_chats(memory, path, source, user_id="ana")
    assert import_chats(memory, path, source, user_id="ana").new_messages == 0
    return done


def told(memory: AgentMemory) -> dict[str, list[str]]:
    return {
        head.session_id: [entry.message.text() for entry in memory.history(head.session_id)]
        for head in memory.sessions(limit=1_000)
    }


def test_one_bad_conversation_stops_no_other(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: an invalid conversation stops the import of the others."""
    good = [json.dumps(gpt_chat(name, gpt("q"))) for name in "abc"]
    bad = ['{"mapping": NaNa}', '{"mapping": []}', "7", '{"mapping": {"x": {"message": 5}}}']
    path = tmp_path / "c.json"
    path.write_text(f"\ufeff[{good[0]}, {', '.join(bad)}, {good[1]}, {good[2][:-9]}", "utf-8")
    done = bring(memory, path)
    assert told(memory) == {"chatgpt/a": ["q"], "chatgpt/b": ["q"]}
    where = [one.where.split(" (")[0] for one in done.unread]
    assert where == [
        "c.json, element 2", "c.json, element 3", "c.json, element 4", "c.json, element 5",
        "c.json, element 7",
    ]  # fmt: skip
    assert "ends within the element" in done.unread[-1].why


def test_the_last_of_a_list_is_damaged(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: the end of the list is taken for a damaged element."""
    path = write_json(tmp_path / "c.json", [gpt_chat("c", gpt("a", text="?"))])
    path.write_bytes(path.read_bytes().replace(b"?", b"\xff"))
    assert [one.why for one in bring(memory, path).unread] == ["not UTF-8 text"]


def test_bad_messages_are_named(tmp_path: Path, memory: AgentMemory) -> None:
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
    assert told(memory) == {"chatgpt/c": ["a", "n", "half \ud83d", "[x]", "z"]}
    assert [one.where.rpartition(" ")[2] for one in done.unread] == ["b", "m", "h"]


def test_ids_that_no_store_keeps_are_replaced(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: an id that a store cannot hold stops the import, or two such ids become one."""
    names = ["x" * 1000, "x" * 1001, "nul\x00", "half\ud83d", "\x1eshared"]
    chats = [gpt_chat(name, gpt("q", text=str(n)), title="\ud83d") for n, name in enumerate(names)]
    done = bring(memory, write_json(tmp_path / "c.json", chats))
    assert (done.failed, done.new_sessions) == (0, 5)
    assert sorted(text for (text,) in told(memory).values()) == list("01234")


def test_circles_and_many_branches_end(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: parent links that form a circle never end."""
    circle = gpt_chat("o", gpt("a", parent="c"), gpt("b", parent="a"), gpt("c", parent="b"))
    itself = gpt_chat("i", gpt("a", parent="a"))
    deep = [gpt("n0")]
    deep += [gpt(f"n{n}", parent=f"n{n - 1}") for n in range(1, 2_000)]
    deep += [gpt(f"b{n}", "assistant", parent=f"n{n}") for n in range(0, 2_000, 10)]
    chats = [circle, itself, gpt_chat("d", *deep, current="n1999")]
    done = bring(memory, write_json(tmp_path / "c.json", chats))
    found = told(memory)
    assert found["chatgpt/o"] == ["a", "b", "c"]
    assert found["chatgpt/i"] == ["a"]
    assert (len(found["chatgpt/d"]), found["chatgpt/d~b20"]) == (2_000, ["n20", "b20"])
    assert done.new_messages == 4 + 2_000 + 2 * 200


def test_an_id_that_stands_twice_is_told_once(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: a repeated line is stored twice, or another message under its id is not reported."""
    lines = [code("a", None, "user", "one")] * 2 + [code("a", None, "user", "other")]
    lines += [code("b", "a", "user", "two")]
    done = bring(memory, write_lines(tmp_path / "s.jsonl", lines), "claude-code")
    assert told(memory) == {"claude-code/s-1": ["one", "two"]}
    assert [one.where for one in done.unread] == ["s.jsonl, line 3"]


def test_a_message_too_large_costs_itself(tmp_path: Path) -> None:
    """Wrong: a message above the limit loses others of its batch."""
    lines = [
        {"session_id": "s", "role": "user", "content": text}
        for text in ("before", "x" * 200_000, "after", "y" * 40_000)
    ]
    path = write_lines(tmp_path / "l.jsonl", lines)
    with AgentMemory(store="memory://", blocks=[], max_message_bytes=100_000) as memory:
        done = bring(memory, path, "jsonl")
        assert [len(text) for text in told(memory)["s"]] == [6, 5, 40_000]
        assert [one.where for one in done.unread] == ["l.jsonl, line 2"]


def test_a_bomb_or_a_broken_zip_is_not_unpacked(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: a small archive uses up the memory, or a damaged one is not reported."""
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
        with file.open("conversations.json", "w") as member:
            for _ in range(80):
                member.write(b" " * 1024 * 1024)
        file.writestr("more/conversations-001.json", json.dumps([gpt_chat("c", gpt("q"))]))
    done = bring(memory, bomb)
    assert told(memory) == {"chatgpt/c": ["q"]}
    assert "times its size" in done.unread[0].why
    chats = [gpt_chat(f"c{n}", gpt("q", text=os.urandom(50).hex())) for n in range(200)]
    damaged = tmp_path / "damaged.zip"
    with zipfile.ZipFile(damaged, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("conversations.json", json.dumps(chats))
    raw = bytearray(damaged.read_bytes())
    raw[len(raw) // 2] ^= 255
    damaged.write_bytes(raw)
    assert bring(memory, damaged).failed


def test_folders_that_lead_into_themselves_end(tmp_path: Path, memory: AgentMemory) -> None:
    """Wrong: the import follows a link to a parent folder for ever, or waits for a pipe."""
    write_lines(tmp_path / "p" / "s.jsonl", [code("a", None, "user", "one")])
    (tmp_path / "p" / "up").symlink_to(tmp_path)
    (tmp_path / "p" / "self.jsonl").symlink_to("self.jsonl")
    (tmp_path / "p" / "gone.jsonl").symlink_to("nowhere")
    os.mkfifo(tmp_path / "p" / "pipe.jsonl")
    done = bring(memory, tmp_path, "claude-code")
    assert told(memory) == {"claude-code/s-1": ["one"]}
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
    assert told(memory) == {}


def test_a_text_that_is_none_costs_its_row(tmp_path: Path, memory: AgentMemory) -> None:
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
    assert told(memory) == {"s": ["hi", "hi"]}
    assert [str(one) for one in done.unread] == ["a.db, agent_messages, row 2: not UTF-8 text"]


def test_elements_are_those_that_json_reads() -> None:
    """Wrong: an element is cut at a wrong place when a chunk ends within a string or a
    character."""
    tricky = ['"', "\\", '\\"', "{", "}]", "[{", "é\ud83d", "", "\u2028", ",", '"}'[::-1]]
    values = [{one: [other, {"x": [one]}]} for one in tricky for other in tricky]
    for ascii_only in (True, False):
        raw = json.dumps(values, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        for size in (1, 2, 3, 7, 64, 10**6):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(json_parts, "_CHUNK", size)
                parts = list(json_parts.elements("f", BytesIO(raw)))
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
    parts = list(json_parts.elements("f", BytesIO(text.encode())))
    read = [part.value["id"] for part in parts if isinstance(part, json_parts.Element)]
    assert read == ["a"][: "ab".index(name)]
    assert len(parts) > len(read)
