"""Messages as input for extraction, without the parts that contexts added to them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent_memory.core.records import Entry
from agent_memory.core.text import escape
from agent_memory.core.transcript import full_text, speaker

OWN = ("memory", "summary")
"""Elements that contexts add to messages. An application may store them with its messages."""

_OPEN_OR_CLOSE = re.compile(rf"<\s*(/?)\s*({'|'.join(OWN)})\b[^>]*>", re.IGNORECASE)
_SENTENCE, _WORD = re.compile(r"[.!?。\uff01\uff1f]\s*(?=\S)"), re.compile(r"\s")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_BRIEF = 80  # characters; a reply up to this length ("Yes, the second one") needs more context
_HELP, _HELP_BRIEF = 60, 300  # characters of a line that is shown as context only


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """One message as it is shown to a model."""

    entry: Entry
    role: str
    who: str  # the name of the speaker, or the role
    text: str  # the text, with white space collapsed
    # the number in the prompt; None for a message that only helps to understand others
    number: int | None

    @property
    def day(self) -> str:
        """The day of the message, as YYYY-MM-DD."""
        return f"{self.entry.local_time:%Y-%m-%d}"

    def line(self) -> str:
        """Return the message's line in the prompt, escaped. The day is on an earlier line."""
        day = _DAYS[self.entry.local_time.weekday()]
        place = f"[{self.number}] {day} " if self.number is not None else ""
        return escape(f"{place}{self.who}: {self.text}")


def sources(
    entries: Sequence[Entry], roles: Sequence[str], redact: Callable[[str], str] | None = None
) -> list[SourceMessage]:
    """Return the messages of a batch to show to a model.

    System messages are left out, and so are tool results if "tool" is not in `roles`. Only messages
    of `roles` have numbers. Recalled memories and summaries are removed from all texts.
    """
    shown: list[SourceMessage] = []
    number = 0
    for entry in entries:
        role = role_of(entry)
        if role not in (*roles, "user", "assistant"):
            continue
        who, text = speaker(entry.message), plain(full_text(entry.message))
        if redact is not None:
            who, text = redact(who), redact(text)
        who, text = " ".join(who.split()), " ".join(text.split())
        if text:
            number += role in roles
            shown.append(SourceMessage(entry, role, who, text, number if role in roles else None))
    return shown


def helpful(messages: Sequence[SourceMessage]) -> list[SourceMessage]:
    """Return the numbered messages, each preceded by the end of the unnumbered message before it.

    That end explains words such as "it" or "yes" in the numbered message.
    """
    chosen: list[SourceMessage] = []
    before: SourceMessage | None = None
    for after in messages:
        if after.number is None:
            before = after
            continue
        if before is not None:
            most = _HELP if len(after.text) > _BRIEF else _HELP_BRIEF
            chosen.append(replace(before, text=_end(before.text, most)))
        chosen.append(after)
        before = None
    return chosen


def _end(text: str, most: int) -> str:
    """Return the last sentences of a text within `most` characters, or its last words."""
    if len(text) <= most:
        return text
    end = text[-most:]
    cut = _SENTENCE.search(end, 0, max(_HELP, most - _HELP)) or _WORD.search(end)
    return "... " + (end[cut.end() :] if cut else end)


def role_of(entry: Entry) -> str:
    """Return the role of a message: "user", "assistant", "system", or "tool" for all others."""
    view = entry.message.to_openai() or {}
    role = str(entry.message.role or view.get("role") or "")
    if role in ("user", "assistant", "system", "developer"):
        return "system" if entry.message.is_system else role
    return "tool"


def plain(text: str) -> str:
    """Return a text without the elements that contexts add.

    An element without an end tag extends to the end of the text.
    """
    parts, depth, at = [], 0, 0
    for match in _OPEN_OR_CLOSE.finditer(text):
        if depth == 0:
            parts.append(text[at : match.start()])
        depth = max(0, depth - 1) if match[1] else depth + 1
        at = match.end()
    return "".join(parts) + (text[at:] if depth == 0 else "")
