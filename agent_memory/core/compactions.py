"""Windows in a provider's format, with raw items. They begin with the newest compaction. Pure.

A *hidden* entry is an item of the format without a chat form, such as reasoning. It is shown only
to the format's provider. A compaction is an item in which the provider summarised all earlier
items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent_memory.core.formats.registry import Format
from agent_memory.core.messages import STANDING, Message
from agent_memory.core.records import Entry, Head
from agent_memory.core.shapes import BEFORE, HIDDEN, role_of, shape_of, shapes_of
from agent_memory.core.token_counter import TokenCounter

_INPUT_ROLES = ("user", "system", "developer", "tool")
"""Roles of messages that the model did not write. Reasoning cannot belong to them."""


def native(
    head: Head | None, entries: Sequence[Entry], form: Format, counter: TokenCounter, *, cut: bool
) -> tuple[Head | None, list[Entry], int | None]:
    """Return a session's window for a format: the head, the entries, the newest compaction's seq.

    If `cut`, this compaction replaces the entries before it. Otherwise, the seq is None.
    """
    begin, compaction = 0, None
    messages = [entry.message for entry in entries]
    own = [place for place, message in enumerate(messages) if message.format == form.name]
    shapes = shapes_of(messages) if own else []
    special = [place for place in own if not shapes[place].views or shapes[place].compacts]
    if not special:
        return head, [*entries], None
    pairs = _pairs([entries[place] for place in special], form)
    shown: list[Entry] = []
    pending: list[Entry] = []
    for entry, shape in zip(entries, shapes, strict=True):
        message = entry.message
        raw = message.raw or {}
        is_own = message.raw is not None and message.format == form.name
        is_compaction = is_own and shape.compacts
        is_hidden = is_own and not shape.views and (cut or not is_compaction)
        if is_hidden and not is_compaction:
            if not form.items(raw):
                continue
            if entry.seq not in pairs:
                if form.leads(raw) or form.pair(raw) is None:
                    pending.append(entry)  # the entry belongs to the item after it
                else:
                    # A call without its output is dropped, with the reasoning before it.
                    del pending[_led(pending, form) :]
                continue
        is_output = entry.seq in pairs and pairs[entry.seq][1]
        is_input = is_output or role_of(message) in _INPUT_ROLES
        goes_with = is_own and not is_compaction and not is_input
        if not goes_with:
            upto = _led(pending, form)
            shown += [_standing(item, counter) for item in pending[:upto]]
            del pending[:upto]
        if is_compaction and cut:
            begin, compaction = len(shown), entry.seq
        if is_hidden or (pending and goes_with):
            before = pending if goes_with else []
            entry = _standing(entry, counter, pairs.get(entry.seq), before, is_hidden=is_hidden)
            pending = [] if goes_with else pending
        shown.append(entry)
    shown += [_standing(item, counter) for item in pending[: _led(pending, form)]]
    if compaction is not None and head is not None:
        # The compaction replaces the summary, and the window need not begin with a user message.
        head = replace(head, start=0, summary=None)
    return head, shown[begin:], compaction


def _led(pending: Sequence[Entry], form: Format) -> int:
    """Count the pending items, except those at the end that need an item after them."""
    upto = len(pending)
    while upto and form.leads(pending[upto - 1].message.raw or {}):
        upto -= 1
    return upto


def _pairs(special: Sequence[Entry], form: Format) -> dict[int, tuple[str, bool]]:
    """Map the seq of each paired hidden entry to (key of the pair, whether it is the output)."""
    seqs_by_pair: dict[str, list[int]] = {}
    for entry in special:
        if not shape_of(entry.message).views:
            pair = form.pair(entry.message.raw or {})
            if pair is not None:
                seqs_by_pair.setdefault(pair, []).append(entry.seq)
    complete = {pair: seqs for pair, seqs in seqs_by_pair.items() if len(seqs) == 2}
    return {seq: (pair, seq == seqs[1]) for pair, seqs in complete.items() for seq in seqs}


def _standing(
    entry: Entry,
    counter: TokenCounter,
    pair: tuple[str, bool] | None = None,
    before: Sequence[Entry] = (),
    *,
    is_hidden: bool = True,
) -> Entry:
    """Return the entry to show for a hidden entry, or for an entry after hidden entries."""
    original = entry.message
    key = (counter.encoding, pair, is_hidden, [entry_before.message for entry_before in before])
    cached: tuple[object, Entry, Entry] | None = vars(original).get(STANDING)
    if cached is not None and cached[0] == key and cached[1] is entry:
        return cached[2]
    raw = original.raw or {}
    items_before = [entry_before.message.raw or {} for entry_before in before]
    fields: dict[str, Any] = {
        "raw": raw,
        "format": original.format,
        "created_at": original.created_at,
    }
    metadata = {**original.metadata, **({BEFORE: items_before} if items_before else {})}
    if is_hidden:
        metadata[HIDDEN] = True
        fields["role"] = "assistant"
    if pair is not None:
        name, is_output = pair
        fields |= {"role": "tool", "tool_call_id": name} if is_output else {
            "tool_calls": [{"id": name, "type": "function"}]
        }  # fmt: skip
    own = entry.tokens if entry.encoding == counter.encoding else counter.message(original)
    tokens = sum(map(counter.item, items_before)) + (counter.item(raw) if is_hidden else own)
    message = Message(**fields, metadata=metadata)
    shown = replace(entry, message=message, tokens=tokens, encoding=counter.encoding)
    vars(original)[STANDING] = key, entry, shown
    return shown
