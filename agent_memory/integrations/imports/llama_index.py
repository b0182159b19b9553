"""LlamaIndex: a `SimpleChatStore` as `persist` writes it, or dumps of messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats.registry import LLAMA_INDEX
from agent_memory.integrations.imports.conversations import (
    Begun,
    Event,
    Said,
    Unread,
    id_by_place,
    read_each,
    usable,
)
from agent_memory.integrations.imports.files import OpenFile, SourceFiles
from agent_memory.integrations.imports.json_parts import Element, elements, loaded
from agent_memory.integrations.loose import Json, dated, listed, mapping, moment
from agent_memory.integrations.transcripts.lines import LONGEST


def read(source: SourceFiles) -> Iterator[Event]:
    """Yield the content of a store's file: a session for each key."""
    return read_each(source.files("*.json"), lambda file: read_each(_parts(file), _store))


def _parts(file: OpenFile) -> Iterator[Element | Unread]:
    """Yield the content of a file; the first releases wrote JSON inside a JSON string."""
    is_text = file.file.read(1) == b'"'
    file.file.seek(0)
    if not is_text:
        yield from elements(file.name, file.file)
        return
    part = loaded(file.name, file.file.read(LONGEST))
    is_packed = isinstance(part, Element) and isinstance(part.value, str)
    yield loaded(file.name, part.value) if isinstance(part, Element) and is_packed else part


def _store(part: Element) -> Iterator[Event]:
    value = part.value
    told = mapping(value)
    store = told.get("store")
    if not isinstance(store, Mapping):
        yield Unread(part.where, "not a chat store of LlamaIndex: it has no `store`")
        return
    for key, messages in store.items():
        session = usable(key or "default")
        yield Begun(session)
        for place, given in enumerate(listed(messages), 1):
            yield _message(f"{part.where}, key {key!r}, message {place}", session, given, place)


def _message(where: str, session: str, given: object, place: int) -> Event:
    raw = dict(mapping(given))
    if not isinstance(raw.get("role"), str):
        return Unread(where, "not a message of LlamaIndex: it has no `role`")
    own = id_by_place(place, raw)
    more: Mapping[str, Any] = mapping(raw.get("additional_kwargs"))
    if not isinstance(raw.get("blocks"), list):  # before 0.12 a message had only a text
        raw["blocks"] = [{"block_type": "text", "text": str(raw.pop("content", None) or "")}]
    fields: Json = {"raw": raw, "format": LLAMA_INDEX}
    at = moment(more.get("timestamp"), more.get("created_at"))
    return Said(session, own, dated(fields, at), where)
