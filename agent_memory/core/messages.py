"""`Message`: one entry of a conversation, kept exactly as it was given."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticSerializationError, from_json

from agent_memory.core.formats import chat_view
from agent_memory.errors import InvalidMessage

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
SYSTEM_ROLES = ("system", "developer")

_NESTED = ("content", "tool_calls", "function_call")
_OURS = {"created_at", "metadata", "raw", "format"}
_MAX_DEPTH = 100  # pydantic and the JSON encoder give up a little above twice that
_MAX_BITS = 4096  # Python refuses to write integers of more than 4,300 digits
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_SPLIT_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def _now() -> datetime:
    return datetime.now(UTC)


class Message(BaseModel):
    """A chat message in OpenAI's form; fields that are not listed here are kept as they are.

    Attributes:
        role: One of system, developer, user, assistant, tool, function; None only beside `raw`.
        content: Text, a list of content parts, or None.
        name: The speaker.
        tool_calls: The calls an assistant message asks for.
        tool_call_id: The call a tool message answers.
        created_at: When it was said (UTC; a time without a zone is taken as UTC). Now by default.
        metadata: The caller's own notes; never sent to a model.
        raw: Provider-native JSON of another format, kept verbatim.
        format: Name of that format, for example "openai.responses".

    Raises:
        InvalidMessage: No role and no raw, an unknown role, or a value that is not plain JSON.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    role: str | None = None
    content: str | list[Any] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    created_at: datetime = Field(default_factory=_now)
    metadata: dict[str, Any] = Field(default_factory=dict)
    raw: dict[str, Any] | None = None
    format: str | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _exact(cls, value: object) -> object:
        if value is None or isinstance(value, str | list):
            return value
        raise InvalidMessage(
            f"The message's `content` is a {type(value).__name__}. Give text, a list of content "
            "parts, or None."
        )

    @field_validator("created_at", mode="after")
    @classmethod
    def _utc(cls, value: datetime) -> datetime:
        if value.tzinfo is None:
            return value.replace(tzinfo=UTC)
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise InvalidMessage(
                f"The message's `created_at` {value.isoformat()} lies outside the years 1 to 9999 "
                "in UTC. Give a time within them, or leave it out."
            ) from None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.role is None and self.raw is None:
            raise InvalidMessage(
                "A message needs a role (or `raw` with its `format`). "
                'Write {"role": "user", "content": "..."}.'
            )
        if self.role is not None and self.role not in ROLES:
            raise InvalidMessage(f"Unknown role {self.role!r}. Use one of {', '.join(ROLES)}.")
        if self.raw is not None and not self.format:
            raise InvalidMessage('A raw message needs its `format`, such as "openai.responses".')
        for key, value in (self.__dict__ | (self.model_extra or {})).items():
            plain = value is None or (type(value) is str and value.isascii())
            if not plain and key != "created_at":
                _require_json(value, key)
        return self

    @classmethod
    def of(cls, value: object) -> Message:
        """Take a message in any form that `AgentMemory.update` accepts.

        Args:
            value: A `Message`, an OpenAI chat dict, or an object with `model_dump()`, such as the
                message (or the whole completion) that litellm and openai return. In a dict, tool
                calls and content parts may be such objects too.

        Raises:
            InvalidMessage: It is none of these, or not a valid message.
        """
        if isinstance(value, Message):
            return value
        if type(value) is not dict and not isinstance(value, Mapping):
            dump = getattr(value, "model_dump", None)
            if not callable(dump):
                raise InvalidMessage(
                    f"Cannot take a {type(value).__name__} as a message. Give a dict with `role` "
                    "and `content`, a Message, or an object with model_dump()."
                )
            value = dump()
        if not isinstance(value, Mapping):
            raise InvalidMessage("model_dump() of the message did not give a dict.")
        choices = value.get("choices")
        if "role" not in value and "raw" not in value and isinstance(choices, list) and choices:
            chosen = choices[0].get("message") if isinstance(choices[0], Mapping) else None
            value = chosen if isinstance(chosen, Mapping) else {}
        return cls._build(value)

    @classmethod
    def _build(cls, fields: Mapping[str, Any]) -> Message:
        if fields.get("created_at", ...) is None:
            fields = {key: value for key, value in fields.items() if key != "created_at"}
        given = dict(fields)
        for key in _NESTED:
            if type(given.get(key, "")) is not str:
                given[key] = _dumped(given[key])
        try:
            return cls(**given)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InvalidMessage(f"The message's `{where}` is not valid: {first['msg']}.") from None
        except TypeError as error:
            raise InvalidMessage(f"The message's keys must be strings: {error}.") from None

    @property
    def is_system(self) -> bool:
        """Whether it sets the session's system message."""
        role = self.role
        if role is None and (self.raw or {}).get("role") in SYSTEM_ROLES:
            role = (self.to_openai() or {}).get("role")
        return role in SYSTEM_ROLES

    def to_dict(self) -> dict[str, Any]:
        """What was given, key for key (`created_at` in ISO form)."""
        given = self.model_dump(exclude_unset=True)
        if "created_at" in given:
            given["created_at"] = self.created_at.isoformat()
        return given

    def to_openai(self) -> dict[str, Any] | None:
        """The message as an OpenAI chat dict; None for a raw item that has no such form."""
        if self.role is None:
            return chat_view(self.raw or {})
        given = self.model_dump(exclude_unset=True, exclude=_OURS)
        return {key: value for key, value in given.items() if value is not None or key == "content"}

    def text(self) -> str:
        """The text of the content: what people would read, without pictures and calls."""
        view = self.to_openai() or {}
        return content_text(view.get("content"))

    @property
    def is_flat(self) -> bool:
        """Whether it holds no lists or dicts that somebody could change."""
        nested = isinstance(self.content, list) or self.tool_calls or self.raw
        return not (nested or self.metadata or self.model_extra)

    def detached(self) -> Message:
        """Itself, or a copy where it holds lists or dicts that somebody could change."""
        if self.is_flat:
            return self
        values = {key: _copied(value) for key, value in self.__dict__.items()}
        extra = {key: _copied(value) for key, value in (self.model_extra or {}).items()}
        return _validated(values, self.model_fields_set, extra)

    def to_json(self) -> str:
        """`to_dict()` as compact JSON, for stores."""
        try:
            return self.model_dump_json(exclude_unset=True)
        except PydanticSerializationError:  # lone surrogates, which JSON can only keep escaped
            return compact_json(self.to_dict())

    @classmethod
    def from_json(cls, text: str | bytes, created_at: datetime) -> Message:
        """The inverse of `to_json`; `created_at` applies where the message had none of its own."""
        try:
            given = from_json(text)
        except ValueError:  # escaped lone surrogates
            given = json.loads(text)
        values = {**_UNSET, "metadata": {}, **given}
        own = given.get("created_at")
        values["created_at"] = created_at if own is None else datetime.fromisoformat(own)
        extra = {key: values.pop(key) for key in given if key not in _FIELDS}
        return _validated(values, given, extra)


_set = object.__setattr__
_FIELDS = frozenset(Message.model_fields)
_UNSET = dict.fromkeys(Message.model_fields)


def _validated(values: dict[str, Any], given: Iterable[str], extra: dict[str, Any]) -> Message:
    """A message of values that were validated before, made as unpickling makes it."""
    message = Message.__new__(Message)
    _set(message, "__dict__", values)
    _set(message, "__pydantic_fields_set__", set(given))
    _set(message, "__pydantic_extra__", extra)
    _set(message, "__pydantic_private__", None)
    return message


def _copied(value: Any) -> Any:
    """A copy of what JSON can say; other values stay."""
    if type(value) is dict:
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if type(value) is list else value


def compact_json(value: object) -> str:
    """Compact JSON that every database can keep, lone surrogates and NULs included."""
    text = _compact(value)
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates are legal JSON only when escaped
        return json.dumps(value, separators=(",", ":"))
    return text


def content_text(content: object) -> str:
    """The text parts of a message's content, joined by newlines."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part if isinstance(part, str) else _part_text(part) for part in content)
    return "\n".join(text for text in texts if text)


def _part_text(part: object) -> str:
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""


def _dumped(value: Any) -> Any:
    """A value, or a list's items, as the dicts that objects with `model_dump()` stand for."""
    if isinstance(value, list):
        return [_dump(item) for item in value]
    return _dump(value)


def _dump(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else value


def _require_json(value: object, where: str, depth: int = 0) -> None:
    if value is None or (isinstance(value, int) and value.bit_length() <= _MAX_BITS):
        return
    if isinstance(value, str):
        _require_unicode(value, where)
        return
    if isinstance(value, float) and math.isfinite(value):
        return
    if depth > _MAX_DEPTH:
        raise InvalidMessage(
            f"The message's `{where}` is nested more than {_MAX_DEPTH} deep. Flatten it, or give "
            "it as JSON text."
        )
    if type(value) is list:
        for item in value:
            _require_json(item, where, depth + 1)
        return
    if type(value) is dict and all(isinstance(key, str) for key in value):
        for key, item in value.items():
            _require_unicode(key, where)
            _require_json(item, where, depth + 1)
        return
    raise InvalidMessage(
        f"The message's `{where}` holds a {type(value).__name__} that JSON cannot give back "
        "exactly. Use strings, finite numbers, booleans, None, lists and dicts with string keys."
    )


def _require_unicode(text: str, where: str) -> None:
    if not text.isascii() and _SPLIT_PAIR.search(text):
        raise InvalidMessage(
            f"The message's `{where}` holds a character split into two surrogates, which JSON "
            'would join. Join them first: text.encode("utf-16", "surrogatepass").decode("utf-16").'
        )


# What pydantic prepares with its first dump is not left half-prepared to a child forked meanwhile.
Message(role="user", content="").to_openai()
