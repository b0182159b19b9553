"""`Message`: one entry of a conversation, kept exactly as it was given."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticSerializationError, from_json

from agent_memory.core.formats.registry import RESPONSES, views_of
from agent_memory.core.formats.responses import COMPACTED
from agent_memory.core.limits import quoted
from agent_memory.core.moments import moment_said
from agent_memory.errors import InvalidMessage

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
SYSTEM_ROLES = ("system", "developer")

_NESTED = ("content", "tool_calls", "function_call")
TIMES = ("create_time", "timestamp")
"""Fields of others that date a message which has no `created_at`; never sent to a model."""

_OURS = {"created_at", "metadata", "raw", "format", *TIMES}
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
        created_at: When it was said (UTC; a time without a zone is taken as UTC). By default what
            a field `create_time` or `timestamp` says, in epoch seconds or ISO 8601, or else now.
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

    if not TYPE_CHECKING:  # checkers know the fields

        def __init__(self, /, **given):
            try:
                super().__init__(**given)
            except ValidationError as error:  # pydantic folds what validators raise into it
                raise _refusal(error) from None

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
            raise InvalidMessage(f"Unknown role {quoted(self.role)}. Known: {', '.join(ROLES)}.")
        if self.raw is not None and not self.format:
            raise InvalidMessage('A raw message needs its `format`, such as "openai.responses".')
        extra = self.model_extra or {}
        if extra and "created_at" not in self.model_fields_set:
            told = (moment_said(extra[key]) for key in TIMES if key in extra)
            if (at := next((one for one in told if one is not None), None)) is not None:
                _set(self, "created_at", at)  # among the unset ones: what was given stays so
        for key, value in (self.__dict__ | extra).items():
            kind = type(value)  # nearly all values are plain
            plain = (
                value is None or (kind is str and value.isascii()) or (kind is dict and not value)
            )
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
        if type(value) is dict and len(value) == 2 and cls is Message:
            said = _said(value)
            if said is not None:
                return said
        value = _mapping(value)
        if _is_response(value):
            found = cls._items(value)
            if len(found) == 1:
                return found[0]
            raise InvalidMessage(
                f"This response of the Responses API stands for {len(found)} messages, and one is "
                'wanted. Give `update` the whole response, or here {"raw": item, "format": '
                f'"{RESPONSES}"}} with one of its output items.'
            )
        choices = value.get("choices")
        if "role" not in value and "raw" not in value and isinstance(choices, list) and choices:
            chosen = choices[0].get("message") if isinstance(choices[0], Mapping) else None
            value = chosen if isinstance(chosen, Mapping) else {}
        return cls._build(value)

    @classmethod
    def all_of(cls, value: object) -> list[Message]:
        """The messages that a value stands for: see `of`.

        A response of OpenAI's Responses API stands for its output items, each kept raw.

        Raises:
            InvalidMessage: It is nothing that can be taken.
        """
        plain = isinstance(value, Message) or (type(value) is dict and "role" in value)
        if not plain and _is_response(given := _mapping(value)):
            return cls._items(given)
        return [cls.of(value)]

    @classmethod
    def _items(cls, response: Mapping[str, Any]) -> list[Message]:
        output = response["output"]
        if not output or not all(isinstance(one, dict) for one in output):
            raise InvalidMessage(
                "This response of the Responses API has no output items that could be kept. Give "
                "one that is completed."
            )
        at = moment_said(response.get("created_at"))
        dated: dict[str, Any] = {} if at is None else {"created_at": at}
        if response.get("object") == COMPACTED:  # its items stand together, or not at all
            output = [dict(response)]
        return [cls(raw=one, format=RESPONSES, **dated) for one in output]

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
        except TypeError as error:
            raise InvalidMessage(f"The message's keys must be strings: {error}.") from None

    @property
    def is_system(self) -> bool:
        """Whether it sets the session's system message."""
        if self.role is not None or self.raw is None:
            return self.role in SYSTEM_ROLES
        # whatever formats are registered: totals of logs rest on it
        is_said = isinstance(self.raw.get("content"), str | list)
        return is_said and self.raw.get("role") in SYSTEM_ROLES

    def to_dict(self) -> dict[str, Any]:
        """What was given, key for key (`created_at` in ISO form)."""
        given = self.model_dump(exclude_unset=True)
        if "created_at" in given:
            given["created_at"] = self.created_at.isoformat()
        return given

    def to_openai(self) -> dict[str, Any] | None:
        """The message as an OpenAI chat dict; None for a raw item that has no such form.

        Of a raw item that shows as several messages it is the first.
        """
        views = self.views()
        return views[0] if views else None

    def views(self) -> list[dict[str, Any]]:
        """The message as OpenAI chat dicts: one, but for raw items, which may be several or none.

        The format of a raw item says how it is shown; see `agent_memory.core.formats.registry`.
        """
        values = self.__dict__
        role, content = values["role"], values["content"]
        if role is None:
            return [*views_of(self.raw or {}, self.format)]
        if type(content) is str and values["tool_calls"] is None and not self.__pydantic_extra__:
            # nearly all messages: their fields are texts, which no serializer need look at
            view: dict[str, Any] = {"role": role, "content": content}
            if values["name"] is not None:
                view["name"] = values["name"]
            if values["tool_call_id"] is not None:
                view["tool_call_id"] = values["tool_call_id"]
            return [view]
        given = self.model_dump(exclude_unset=True, exclude=_OURS)
        return [
            {key: value for key, value in given.items() if value is not None or key == "content"}
        ]

    def text(self) -> str:
        """The text of the content: what people would read, without pictures and calls."""
        texts = (content_text(view.get("content")) for view in self.views())
        return "\n".join(text for text in texts if text)

    @property
    def is_flat(self) -> bool:
        """Whether it holds no lists or dicts that somebody could change."""
        nested = isinstance(self.content, list) or self.tool_calls or self.raw
        return not (nested or self.metadata or self.__pydantic_extra__)

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


def _said(fields: Mapping[str, Any]) -> Message | None:
    """The message of a role and a text alone, as nearly all are; None where there is more to check.

    What validation would make of it, in a fifth of the time.
    """
    role, text = fields.get("role"), fields.get("content")
    if type(role) is not str or role not in ROLES or type(text) is not str or not text.isascii():
        return None
    values: dict[str, Any] = {
        **_UNSET,
        "role": role,
        "content": text,
        "created_at": _now(),
        "metadata": {},
    }
    return _validated(values, _SAID, {})


def _refusal(error: ValidationError) -> InvalidMessage:
    """What is wrong with a message's fields."""
    first = error.errors()[0]
    raised = first.get("ctx", {}).get("error")
    if isinstance(raised, InvalidMessage):
        return raised
    where = ".".join(str(part) for part in first["loc"])
    return InvalidMessage(f"The message's `{where}` is not valid: {first['msg']}.")


def _mapping(value: object) -> Mapping[str, Any]:
    """What was given as a mapping, or as an object that can be dumped to one."""
    if type(value) is dict or isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        raise InvalidMessage(
            f"Cannot take a {type(value).__name__} as a message. Give a dict with `role` and "
            "`content`, a Message, or an object with model_dump()."
        )
    dumped = dump()
    if isinstance(dumped, dict) and _is_response(dumped) and isinstance(value, BaseModel):
        dumped = value.model_dump(mode="json", exclude_unset=True)  # items as the API gave them
    if not isinstance(dumped, Mapping):
        raise InvalidMessage("model_dump() of the message did not give a dict.")
    return dumped


def _is_response(value: Mapping[str, Any]) -> bool:
    """Whether it is what OpenAI's Responses API answers with."""
    return isinstance(value.get("output"), list) and not {"role", "raw", "choices"} & value.keys()


_set = object.__setattr__
_FIELDS = frozenset(Message.model_fields)
_UNSET = dict.fromkeys(Message.model_fields)
_SAID = ("role", "content")


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
