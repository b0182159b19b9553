"""What readers make of a source, one thing after the other: sessions, messages, notes, and what
could not be read. Pure.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from agent_memory.core.ids import MAX_ID
from agent_memory.core.moments import moment_said

Json = dict[str, Any]

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNUSABLE = re.compile("[\x00-\x1f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Begun:
    """A session that messages follow of; it may be told again.

    Attributes:
        session_id: What it is to be called here.
        user_id: Whose the source says it is.
        about: What it is called and where it comes from, for `describe`.
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
        message: Its fields, as `update` takes them.
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
    own = f"{said.id}~again"
    message = {**said.message, "metadata": {**mapping(said.message.get("metadata")), "id": own}}
    return replace(said, id=own, message=message, is_again=True)


def id_by_place(place: int, fields: object) -> str:
    """An id for a message that has none: its place in the session, and a digest of what it says."""
    told = json.dumps(fields, sort_keys=True, separators=(",", ":"), default=str)
    return f"{place}-{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def text_in(value: object) -> str | None:
    """A text that says something; None for all else."""
    return value if isinstance(value, str) and value.strip() else None


def moment(*said: object) -> datetime | None:
    """The first of these that tells a time: epoch seconds, or a text in ISO 8601."""
    for value in said:
        if isinstance(value, float) and not math.isfinite(value):
            continue
        if isinstance(value, datetime):
            return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        if (found := moment_said(value)) is not None:
            return found
    return None


def dated(message: Json, at: datetime | None) -> Json:
    """A message with its time, where that is known."""
    return message if at is None else {**message, "created_at": at}


def titled(title: object, **more: object) -> Json:
    """What a session is called, and more of it; without what is not known."""
    told = {"title": title, **more}
    return {
        key: _SURROGATE.sub("\ufffd", value)
        for key, value in told.items()
        if isinstance(value, str) and value
    }


def mapping(value: object) -> Mapping[str, Any]:
    """A mapping; an empty one for all else."""
    return value if isinstance(value, Mapping) else {}


def listed(value: object) -> list[Any]:
    """A list; an empty one for all else."""
    return value if isinstance(value, list) else []
