"""Reads transcripts of Claude Code (`~/.claude/projects/*/*.jsonl`) and Codex
(`~/.codex/sessions/**/rollout-*.jsonl`).

Each line of Claude Code contains the id of its predecessor (`parentUuid`). A file is read twice:
first for the questions that the user edited and sent again, then for the messages. Codex's lines
are items of the Responses API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from agent_memory.core.formats.neutral import mapping
from agent_memory.core.formats.registry import RESPONSES
from agent_memory.integrations.imports.conversations import (
    Element,
    Event,
    SessionBegin,
    Skipped,
    SourceMessage,
    Unread,
    guard,
    id_by_place,
    named,
    read_each,
    titled,
    usable,
)
from agent_memory.integrations.imports.files import OpenFile, SourceFiles, lines
from agent_memory.integrations.transcripts import (
    ITEM,
    SPOKEN,
    Json,
    dated,
    is_conversation,
    item_of,
    moment,
    spoken,
    text_in,
)

_CLAUDE_CODE, _CODEX = "claude-code.message", "codex.item"
"""The formats of messages that neither the user nor the model wrote, such as the summary of a
compaction. They are stored unchanged."""


def read_claude_code(source: SourceFiles) -> Iterator[Event]:
    return read_each(source.files("*.jsonl"), _transcript)


def _transcript(file: OpenFile) -> Iterator[Event]:
    tree = _Tree()
    for part in lines(file):
        if isinstance(part, Element) and isinstance(part.value, dict):
            tree.look(part.value)
    file.file.seek(0)
    for place, part in enumerate(lines(file), 1):
        if isinstance(part, Unread):
            yield part
        elif not isinstance(part.value, dict):
            yield Unread(part.where, "not an object")
        elif part.value.get("type") in SPOKEN:
            yield from guard(part.where, _line(part.where, place, part.value, file.stem, tree))
        elif part.value.get("type") != "summary":
            yield Skipped(f"lines of the type {str(part.value.get('type'))[:40]!r}")


def _line(where: str, place: int, line: Json, stem: str, tree: _Tree) -> Iterator[Event]:
    speech, message = spoken(line), mapping(line.get("message"))
    if speech is None:
        yield Unread(where, "the role or content of its `message` is not valid for Claude's API")
        return
    if not speech.full["content"]:
        yield Skipped("empty messages")
        return
    main = named("claude-code", text_in(line.get("sessionId")) or stem)
    own = text_in(line.get("uuid")) or id_by_place(place, message)
    branch = tree.branch(line)
    session_id = main if branch is None else usable(f"{main}~{branch}")
    about = titled(tree.title, folder=line.get("cwd"))
    if branch is None:
        yield SessionBegin(main, about=about, is_tree=True)
    else:
        yield SessionBegin(session_id, None, {**about, "branch_of": main}, main)
    notes = {name: True for name in ("isMeta", "isCompactSummary") if line.get(name) is True}
    notes |= titled(None, model=message.get("model"))
    fields: Json = {"raw": speech.cleaned, "format": "anthropic.messages"}
    if speech.cleaned is None:
        fields = {"raw": {"message": speech.full}, "format": _CLAUDE_CODE}
    elif isinstance(speech.cleaned["content"], str):
        fields = speech.cleaned
    fields = {**fields, "metadata": notes}
    yield SourceMessage(session_id, own, dated(fields, moment(line.get("timestamp"))), where)


class _Tree:
    """Assigns lines to branches.

    If the user edited a question and sent it again, the newest version continues the main line, and
    each older version begins a branch. The lines of a subagent are also a branch. Parallel tool
    results begin no branches, although several of them follow the same line.
    """

    def __init__(self) -> None:
        self._newest: dict[str, str] = {}  # line id -> id of the newest question after the line
        self._branches: dict[str, str | None] = {}
        self._titles: dict[str, str] = {}
        self._lines: set[str] = set()

    @cached_property
    def title(self) -> str | None:
        """The session's title. A file also contains the titles of other sessions."""
        titles = [title for line, title in self._titles.items() if line in self._lines]
        return titles[-1] if titles else None

    def look(self, line: Mapping[str, Any]) -> None:
        """Record a line. Call this for each line, in the order of the file."""
        own, parent = line.get("uuid"), line.get("parentUuid")
        if isinstance(own, str):
            self._lines.add(own)
        if line.get("type") == "summary" and (title := text_in(line.get("summary"))):
            self._titles[str(line.get("leafUuid"))] = title
        elif isinstance(own, str) and isinstance(parent, str) and _is_question(line):
            self._newest[parent] = own

    def branch(self, line: Mapping[str, Any]) -> str | None:
        """Return the name of a line's branch; None for the main line. Call this in file order."""
        own, parent = line.get("uuid"), line.get("parentUuid")
        if line.get("isSidechain") is True:
            agent = text_in(line.get("agentId"))
            name = f"agent-{agent}" if agent else self._branches.get(str(parent))
            name = name or f"agent-{own}"
        else:
            name = self._branches.get(parent) if isinstance(parent, str) else None
            if isinstance(parent, str) and _is_question(line) and self._newest.get(parent) != own:
                name = str(own)
        if isinstance(own, str):
            self._branches[own] = name
        return name


def _is_question(line: Mapping[str, Any]) -> bool:
    """Return whether a person wrote the message of a line."""
    if line.get("type") != "user" or line.get("isMeta") is True or line.get("isSidechain") is True:
        return False
    content = mapping(line.get("message")).get("content")
    if not isinstance(content, list):
        return isinstance(content, str)
    return not any(mapping(block).get("type") == "tool_result" for block in content)


_OWN = ("ghost_snapshot", "other")


def read_codex(source: SourceFiles) -> Iterator[Event]:
    return read_each(source.files("rollout-*.jsonl"), _codex_session)


def _codex_session(file: OpenFile) -> Iterator[Event]:
    session_id = named("codex", file.stem)
    place, is_named = 0, False
    for part in lines(file):
        if isinstance(part, Unread):
            yield part
            continue
        if not isinstance(part.value, dict):
            yield Unread(part.where, "not an object")
            continue
        kind, payload = item_of(part.value)
        if kind == "session_meta":
            if not place and not is_named and (own := text_in(payload.get("id"))):
                session_id, is_named = named("codex", own), True
                yield SessionBegin(session_id, about=titled(None, folder=payload.get("cwd")))
        elif kind != ITEM:
            yield Skipped(f"lines of the type {kind[:40]!r}")
        elif not text_in(payload.get("type")):
            yield Unread(part.where, "the item has no type")
        else:
            yield SessionBegin(session_id)
            place += 1
            at = moment(part.value.get("timestamp"))
            own, fields = id_by_place(place, payload), dated(_codex_message(payload), at)
            yield SourceMessage(session_id, own, fields, part.where)


def _codex_message(item: Json) -> Json:
    """Return an item as a message. Codex's own instructions do not become a system message."""
    if is_conversation(item) and item["type"] not in _OWN:
        return {"raw": item, "format": RESPONSES}
    return {"raw": {"item": item}, "format": _CODEX}
