"""What readers make of a source, one thing after the other: sessions, messages, notes, and what
could not be read. Pure.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from agent_memory.core.ids import MAX_ID
from agent_memory.integrations.loose import Json

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNUSABLE = re.compile("[\x00-\x1f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Begun:
    """A session that messages follow of. It may be told again: the first time counts.

    Attributes:
        session_id: What it is to be called here.
        user_id: Whose the source says it is.
        about: What it is called, and what else the source tells of it, for `describe`.
        branch: The session of which it is another branch; None for a session of its own.
        first: Of a branch, the id of the first message that is its alone.
        is_tree: Whether another branch of it may be what goes on in a later export.
    """

    session_id: str
    user_id: str | None = None
    about: Json = field(default_factory=dict)
    branch: str | None = None
    first: str | None = None
    is_tree: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """One message.

    Attributes:
        session_id: Its session, which was told before.
        id: What the source knows it by, within its session.
        message: Its fields, as `update` takes them; what it is imported from is added.
        where: Where it stands in the source.
        is_again: Whether it stands in another session too.
    """

    session_id: str
    id: str
    message: Json
    where: str
    is_again: bool = False

    @property
    def is_question(self) -> bool:
        """Whether a user says it."""
        return self.message.get("role") == "user"


@dataclass(frozen=True, slots=True)
class Noted:
    """One thing that another memory keeps of a user.

    Attributes:
        id: What the source knows it by.
        text: What it says.
        user_id: Whose the source says it is.
        at: Since when.
        where: Where it stands in the source.
        about: What else the source says of it.
    """

    id: str
    text: str
    user_id: str | None
    at: datetime | None
    where: str
    about: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unread:
    """What could not be read, or not be stored.

    Attributes:
        where: Where it stands in the source.
        why: The reason.
    """

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(frozen=True, slots=True)
class Omitted:
    """What is no part of a conversation, such as a setting between its messages.

    Attributes:
        kind: What it is, for people.
    """

    kind: str


Event = Begun | Said | Noted | Unread | Omitted
Part = TypeVar("Part")


def read_each(
    parts: Iterable[Part | Unread], read: Callable[[Part], Iterable[Event]]
) -> Iterator[Event]:
    """What a source holds: what is read of each part, and which parts could not be."""
    for part in parts:
        if isinstance(part, Unread):
            yield part
        else:
            yield from read(part)


def named(source: str, *parts: object) -> str:
    """A session's id, of the source and what it has there: `chatgpt/6938...`."""
    return usable("/".join([source, *(str(part) for part in parts)]))


def usable(text: str) -> str:
    """A text as an id: as it is, or, where no store could keep it, what can be and a digest."""
    if text.strip() and len(text) <= MAX_ID and not _UNUSABLE.search(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{_UNUSABLE.sub('', text)[: MAX_ID - 17].strip()}~{digest}"


def again(said: Said) -> Said:
    """A message that stands in a second session too: the question that a branch answers."""
    return replace(said, id=f"{said.id}~again", is_again=True)


def id_by_place(place: int, fields: object) -> str:
    """An id for a message that has none: its place in the session, and a digest of what it says."""
    told = json.dumps(fields, sort_keys=True, separators=(",", ":"), default=str)
    return f"{place}-{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def titled(title: object, **more: object) -> Json:
    """What a session is called, and more of it; without what is not known."""
    told = {"title": title, **more}
    return {
        key: _SURROGATE.sub("\ufffd", value)
        for key, value in told.items()
        if isinstance(value, str) and value
    }
