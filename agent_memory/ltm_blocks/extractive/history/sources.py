"""What facts are looked for in: messages without what memory itself put there. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent_memory.core.records import Entry
from agent_memory.core.text import escape
from agent_memory.core.transcript import speaker, told

OWN = ("memory", "summary")
"""Elements that contexts put into messages; an application may have stored them again."""

_OPEN_OR_CLOSE = re.compile(rf"<\s*(/?)\s*({'|'.join(OWN)})\b[^>]*>", re.IGNORECASE)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MOST_CONTEXT = 600  # characters of a message that only helps to understand the others


@dataclass(frozen=True, slots=True)
class Said:
    """One message as it is shown to a model.

    Attributes:
        entry: The message.
        role: Its role.
        who: The speaker's name, or the role.
        text: What facts may be found in, white space counted once.
        number: Its number in the prompt; None for one that only helps to understand the others.
    """

    entry: Entry
    role: str
    who: str
    text: str
    number: int | None

    def line(self) -> str:
        """How it stands in the prompt, escaped, in one line."""
        at = self.entry.created_at
        day = f"{at:%Y-%m-%d}({_DAYS[at.weekday()]})"
        place = f"[{self.number}] " if self.number is not None else ""
        text = self.text
        if self.number is None and len(text) > _MOST_CONTEXT:
            text = text[:_MOST_CONTEXT] + " ..."
        return escape(f"{place}{day} {self.who}: {text}")


def sources(
    entries: Sequence[Entry], roles: Sequence[str], redact: Callable[[str], str] | None = None
) -> list[Said]:
    """The messages of a batch as a model is to see them.

    Left out are system messages, and tool results unless facts may come from them: what nobody may
    be told by is not shown. What recalled memories and summaries said is left out of all.

    Args:
        entries: The batch.
        roles: Whose messages facts may come from; those are numbered.
        redact: Runs over each text, and each speaker's name, first.
    """
    shown: list[Said] = []
    number = 0
    for entry in entries:
        role = role_of(entry)
        if role not in (*roles, "user", "assistant"):
            continue
        who, text = speaker(entry.message), plain(told(entry.message))
        if redact is not None:
            who, text = redact(who), redact(text)
        who, text = " ".join(who.split()), " ".join(text.split())
        if text:
            number += role in roles
            shown.append(Said(entry, role, who, text, number if role in roles else None))
    return shown


def role_of(entry: Entry) -> str:
    """The role of a message; "tool" for what is of none that speaks."""
    view = entry.message.to_openai() or {}
    role = str(entry.message.role or view.get("role") or "")
    if role in ("user", "assistant", "system", "developer"):
        return "system" if entry.message.is_system else role
    return "tool"


def plain(text: str) -> str:
    """A text without the elements that contexts put there; one that is not closed reaches to the
    end."""
    kept, depth, at = [], 0, 0
    for found in _OPEN_OR_CLOSE.finditer(text):
        if depth == 0:
            kept.append(text[at : found.start()])
        depth = max(0, depth - 1) if found[1] else depth + 1
        at = found.end()
    return "".join(kept) + (text[at:] if depth == 0 else "")
