"""Small made-up exports and databases, in the forms in which other programs write them."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from agent_memory import AgentMemory

Json = dict[str, Any]


def ids(memory: AgentMemory) -> list[str]:
    return [head.session_id for head in memory.sessions()]


def gpt(
    own: str, role: str = "user", text: str | None = None, parent: str | None = "root", **more: Any
) -> Json:
    content = more.pop("content", {"content_type": "text", "parts": [text or own]})
    message = {"id": own, "author": {"role": role}, "create_time": 1.7e9, "content": content}
    return {"id": own, "parent": parent, "children": [], "message": {**message, **more}}


def gpt_chat(own: str, *nodes: Json, current: str | None = None, **more: Any) -> Json:
    """Return a conversation of ChatGPT. The last node is the current one."""
    root = {"id": "root", "parent": None, "message": None, "children": []}
    mapping = {node["id"]: node for node in (root, *nodes)}
    at = current or nodes[-1]["id"]
    return {"id": own, "title": f"Title of {own}", "mapping": mapping, "current_node": at, **more}


def claude(own: str, sender: str, parent: str, **more: Any) -> Json:
    said = {"content": [{"type": "text", "text": own}], "created_at": "2024-05-01T10:00:00Z"}
    return {"uuid": own, "sender": sender, "parent_message_uuid": parent, **said, **more}


def code(own: str, parent: str | None, role: str, content: Any, **more: Any) -> Json:
    line = {"uuid": own, "parentUuid": parent, "type": role, "sessionId": "s-1"}
    said = {"message": {"role": role, "content": content}, "timestamp": "2025-06-01T10:00:00Z"}
    return {**line, **said, **more}


def write_json(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def write_lines(path: Path, lines: Sequence[Any]) -> Path:
    """Write a file of JSON lines. Strings are written unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    told = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{line}\n" for line in told), encoding="utf-8")
    return path


def write_table(path: Path, table: str, columns: str, rows: Sequence[Mapping[str, Any]]) -> Path:
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE {table} ({columns})")
        for row in rows:
            marks = ", ".join("?" * len(row))
            names = ", ".join(row)
            database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))
        database.commit()
    return path
