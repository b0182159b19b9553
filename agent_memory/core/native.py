"""Contexts in the format of a provider: its own items as they are, all else converted. Pure.

A compaction item of the provider's own stands for what came before it. The log has that still: for
any other provider the same window is shown without the item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_memory.core.formats.registry import Format
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head
from agent_memory.core.tokens.counter import TokenCounter

Chat = list[dict[str, Any]]

_HIDDEN = "hidden_item"
"""Marks in a message's metadata that it stands for an item which no chat shows."""


@dataclass(frozen=True, slots=True)
class Native:
    """A window as a provider is to see it.

    Attributes:
        head: The head that goes with these entries.
        entries: From the newest compaction on, where there is one; what no chat shows of the
            provider's own is among them.
        compaction: Seq of that compaction.
    """

    head: Head | None
    entries: list[Entry]
    compaction: int | None = None


def native(
    head: Head | None,
    entries: Sequence[Entry],
    form: Format,
    counter: TokenCounter,
    *,
    cut: bool = True,
) -> Native:
    """A session's window for the provider of a format.

    Args:
        head: The session's head.
        entries: Its window.
        form: The format.
        counter: The configured token counter.
        cut: Whether a compaction may stand for what came before it.
    """
    begin, compaction = 0, None
    shown: list[Entry] = []
    for place, entry in enumerate(entries):
        raw = entry.message.raw
        if raw is None or entry.message.format != form.name:
            shown.append(entry)
            continue
        is_compaction = form.compacts(raw)
        if is_compaction and cut:
            begin, compaction = place, entry.seq
        is_hidden = not entry.message.views() and (cut or not is_compaction)
        shown.append(_standing(entry, counter) if is_hidden else entry)
    if compaction is None or head is None:
        return Native(head, shown)
    # all of it is shown: neither a summary nor a user's message has to come first
    return Native(replace(head, start=0, summary=None), shown[begin:], compaction)


def rendered(
    messages: Sequence[Message], form: Format, place: Callable[[Chat], Chat]
) -> list[dict[str, Any]]:
    """Messages in a format.

    Args:
        messages: The messages of a context.
        form: The format.
        place: Puts what is recalled into a chat, in a message of its own or into one that is there.
    """
    assert form.from_chat is not None, "`format_of` gives formats that can be written"
    chat: Chat = []
    items: dict[int, tuple[Mapping[str, Any] | None, Chat]] = {}  # by the identity of a view
    for message in messages:
        is_own = message.raw is not None and message.format == form.name
        if is_own or _HIDDEN not in message.metadata:
            views = message.views()
            items |= {id(view): (message.raw, views) for view in views if is_own}
            chat += views
    placed = place(chat)
    there = {id(view) for view in placed}
    found: list[dict[str, Any]] = []
    for view in placed:
        raw, views = items.get(id(view), (None, []))
        if raw is None or not all(id(one) in there for one in views):  # it holds recalls
            found += form.from_chat(view)
        elif view is views[0]:
            found += form.items(raw)
    return found


def _standing(entry: Entry, counter: TokenCounter) -> Entry:
    """An entry that shows, in the place of one that no chat shows."""
    given = entry.message
    metadata = {**given.metadata, _HIDDEN: True}
    message = Message(
        role="assistant", raw=given.raw, format=given.format, metadata=metadata,
        created_at=given.created_at,
    )  # fmt: skip
    tokens = counter.item(given.raw or {})
    return replace(entry, message=message, tokens=tokens, encoding=counter.encoding)
