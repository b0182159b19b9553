"""Contexts in the format of a provider: its own items as they are, all else converted. Pure.

A compaction item of the provider's own stands for what came before it. The log has that still: for
any other provider the same window is shown without the item.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_memory.core.formats.registry import Format
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.core.window import role_of

Chat = list[dict[str, Any]]
Raw = Mapping[str, Any]

_SAID = ("user", "system", "developer")

# In a message's metadata, under names that no caller's notes have:
_HIDDEN = "agent_memory:hidden"
"""It stands for an item which no chat shows."""
_BEFORE = "agent_memory:before"
"""The items before it that no chat shows, and that go with it, such as its reasoning."""
_PAIR = "agent_memory:pair"
"""What a call that no chat shows and its output are known by."""


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
    pairs = _pairs(entries, form)
    shown: list[Entry] = []
    waiting: list[Entry] = []
    for entry in entries:
        message = entry.message
        is_own = message.raw is not None and message.format == form.name
        is_compaction = is_own and form.compacts(message.raw or {})
        is_hidden = is_own and not message.views() and (cut or not is_compaction)
        if is_hidden and not is_compaction and entry.seq not in pairs:
            waiting.append(entry)  # it goes with the item after it
            continue
        goes_with = is_own and not is_compaction and role_of(message) not in _SAID
        if not goes_with:
            shown += [_standing(one, counter) for one in waiting]
            waiting.clear()
        if is_compaction and cut:
            begin, compaction = len(shown), entry.seq
        if is_hidden or waiting:
            entry = _standing(entry, counter, pairs.get(entry.seq), waiting, is_hidden=is_hidden)
            waiting.clear()
        shown.append(entry)
    shown += [_standing(one, counter) for one in waiting]
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
    items: dict[int, tuple[Sequence[Raw], Chat]] = {}  # by the identity of a view
    paired = Counter(_pair_in(message) for message in messages)
    for message in messages:
        is_own = message.raw is not None and message.format == form.name
        if (pair := _pair_in(message)) is not None and paired[pair] < 2:
            continue  # half of it had no room
        if is_own or _HIDDEN not in message.metadata:
            views = message.views()
            own = [*message.metadata.get(_BEFORE, ()), message.raw] if is_own else []
            items |= {id(view): (own, views) for view in views if is_own}
            chat += views
    placed = place(chat)
    there = {id(view) for view in placed}
    found: list[dict[str, Any]] = []
    for view in placed:
        raws, views = items.get(id(view), ((), []))
        if not raws or not all(id(one) in there for one in views):  # it holds recalls
            found += form.from_chat(view)
        elif view is views[0]:
            found += [item for raw in raws for item in form.items(raw)]
    return found


def _pairs(entries: Sequence[Entry], form: Format) -> dict[int, tuple[str, bool]]:
    """For each entry that is a call which no chat shows, or its output: what both are known by, and
    whether it is the output."""
    found: dict[str, list[int]] = {}
    for entry in entries:
        message = entry.message
        if message.raw is not None and message.format == form.name and not message.views():
            pair = form.pair(message.raw)
            if pair is not None:
                found.setdefault(pair, []).append(entry.seq)
    both = {pair: seqs for pair, seqs in found.items() if len(seqs) == 2}
    return {seq: (pair, seq == seqs[1]) for pair, seqs in both.items() for seq in seqs}


def _pair_in(message: Message) -> str | None:
    """What a message that is half of a pair, and whole itself, is known by."""
    pair = message.metadata.get(_PAIR)
    return pair if message.raw is not None and isinstance(pair, str) else None


def _standing(
    entry: Entry,
    counter: TokenCounter,
    pair: tuple[str, bool] | None = None,
    before: Sequence[Entry] = (),
    *,
    is_hidden: bool = True,
) -> Entry:
    """An entry that shows, in the place of one that no chat shows, or that others go with."""
    given = entry.message
    raw = given.raw or {}
    led = [one.message.raw or {} for one in before]
    fields: dict[str, Any] = {"raw": raw, "format": given.format, "created_at": given.created_at}
    metadata = {**given.metadata, **({_BEFORE: led} if led else {})}
    if is_hidden:
        metadata[_HIDDEN] = True
        fields["role"] = "assistant"
    if pair is not None:
        name, is_output = pair
        metadata[_PAIR] = name
        fields |= {"role": "tool", "tool_call_id": name} if is_output else {
            "tool_calls": [{"id": name, "type": "function"}]
        }  # fmt: skip
    own = counter.item(raw) if is_hidden else counter.message(given)
    tokens = own + sum(map(counter.item, led))
    message = Message(**fields, metadata=metadata)
    return replace(entry, message=message, tokens=tokens, encoding=counter.encoding)
