"""`Message`: a message of a conversation, stored without changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticSerializationError, from_json

from agent_memory.core.formats.exact import require_json
from agent_memory.core.formats.neutral import ROLES, role_in, with_transcript
from agent_memory.core.formats.registry import LANGCHAIN, form_of
from agent_memory.core.limits import UNREADABLE, is_encodable, is_storable, quoted
from agent_memory.core.recognition import check_count, dated, fields_in
from agent_memory.core.settings_model import requirement
from agent_memory.core.timestamps import TIMES, now_utc, parse_time
from agent_memory.errors import InvalidMessage

SYSTEM_ROLES = ("system", "developer")
_LANGCHAIN_SYSTEM = ("system", "SystemMessageChunk")

SHAPE = "_shape"
"""The attribute that caches the shape of a message; see `agent_memory.core.shapes`."""

STANDING = "_standing"
"""The attribute that caches the entry to show for a message; see `core.compactions`."""

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Message(BaseModel):
    """A chat message in OpenAI's form. Fields that are not listed here are stored unchanged.

    Attributes:
        role: One of system, developer, user, assistant, tool and function. None only with `raw`.
        content: Text, a list of content parts, or None.
        name: The speaker.
        tool_calls: The tool calls of an assistant message.
        tool_call_id: The id of the call that a tool message answers.
        created_at: The time of the message, with its original offset. A time without an offset is
            in the timezone of the setting `timezone`, or else in UTC. The default is the field
            `create_time` or `timestamp` (epoch seconds or ISO 8601), or else the current time.
        metadata: The caller's own data. It is never sent to a model.
        raw: An item of another format as JSON, stored unchanged.
        format: Name of that format, for example "openai.responses".

    Raises:
        InvalidMessage: Both `role` and `raw` are missing, the role is unknown, or a value is not
            plain JSON.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    role: str | None = None
    content: str | list[Any] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    created_at: datetime = Field(default_factory=now_utc)
    metadata: dict[str, Any] = Field(default_factory=dict)
    raw: dict[str, Any] | None = None
    format: str | None = None

    if not TYPE_CHECKING:  # type checkers derive the arguments from the fields

        def __init__(self, /, **values):
            try:
                super().__init__(**values)
            except ValidationError as error:  # pydantic wraps the errors of validators
                raise _refusal(error) from None

    @field_validator("content", mode="before")
    @classmethod
    def _check_content(cls, value: object) -> object:
        if value is None or isinstance(value, str | list):
            return value
        raise InvalidMessage(
            f"The message's `content` is of type {type(value).__name__}. Pass text, a list of "
            "content parts, or None."
        )

    @field_validator("role", mode="before")
    @classmethod
    def _normalize_role(cls, value: object) -> object:
        return role_in(value) if isinstance(value, str) else value

    @field_validator("created_at", mode="after")
    @classmethod
    def _require_zone(cls, value: datetime) -> datetime:
        if value.tzinfo is None:
            return value.replace(tzinfo=UTC)
        try:
            utc = value.astimezone(UTC)
            return value if value.utcoffset() else utc
        except OverflowError:
            raise InvalidMessage(
                f"The message's `created_at` {value.isoformat()} lies outside the years 1 to 9999 "
                "in UTC. Give a time within these years, or leave `created_at` out."
            ) from None

    @model_validator(mode="after")
    def _validate(self) -> Self:
        if self.role is None and self.raw is None:
            raise InvalidMessage(
                "A message needs a role (or `raw` with its `format`). "
                'Write {"role": "user", "content": "..."}.'
            )
        if self.role is not None and self.role not in ROLES:
            raise InvalidMessage(
                f"Unknown role {quoted(self.role)}. Use one of: {', '.join(ROLES)}."
            )
        if self.raw is not None and not self.format:
            raise InvalidMessage('A raw message needs its `format`, such as "openai.responses".')
        if self.role is None:
            self._require_views()
        extra = self.model_extra or {}
        if extra and "created_at" not in self.model_fields_set:
            times = (parse_time(extra[key]) for key in TIMES if key in extra)
            if (at := next((time for time in times if time is not None), None)) is not None:
                # `_set` leaves `model_fields_set` unchanged, which lists the caller's fields.
                _set(self, "created_at", at)
        for key, value in (self.__dict__ | extra).items():
            if key != "created_at":
                require_json(value, key)
        return self

    def _require_views(self) -> None:
        """Refuse a raw item that its format cannot convert, because no context could contain it."""
        try:
            for view in self.views():
                Message(**view)
        except (*UNREADABLE, InvalidMessage) as error:  # raised by a format for invalid items
            raise InvalidMessage(
                f"The raw item does not have the format {quoted(self.format)}: a field has "
                f"the wrong type ({error}). Correct the item, or name another format."
            ) from error

    @classmethod
    def of(cls, value: object) -> Message:
        """Convert a value in any form that `AgentMemory.update` accepts to a message.

        Args:
            value: One of: a `Message`; the text of a user; a dict in the form of OpenAI's Chat or
                Responses API, of Anthropic's, Gemini's or Bedrock's API, or of a framework such as
                LangChain; an object of their SDKs with `model_dump()`, such as a message or a whole
                completion.

        Raises:
            InvalidMessage: The value is none of these, is not valid, or does not hold exactly one
                message.
        """
        messages = cls.all_of(value)
        check_count(messages)
        return messages[0]

    @classmethod
    def all_of(cls, value: object, zone: tzinfo | None = None) -> list[Message]:
        """Return the messages of a value; see `of`.

        A response of OpenAI's Responses API becomes one raw message for each output item.

        Args:
            value: A value that `of` accepts, or a response with several messages.
            zone: The timezone of times without an offset, and of the current time. None for UTC.

        Raises:
            InvalidMessage: The value cannot be converted.
        """
        if isinstance(value, Message):
            return [value]
        if zone is not None:
            return [cls._build(dated(fields, zone)) for fields in fields_in(value)]
        if (message := _simple_message(value)) is not None:
            return [message]
        return [cls._build(fields) for fields in fields_in(value)]

    @classmethod
    def _build(cls, fields: Mapping[str, Any]) -> Message:
        try:
            return cls(**fields)
        except TypeError as error:
            raise InvalidMessage(f"The message's keys must be strings: {error}.") from None

    @property
    def is_system(self) -> bool:
        """Return whether the message sets the session's system message."""
        if self.role is not None or self.raw is None:
            return self.role in SYSTEM_ROLES
        # Stored totals depend on this value, so the value must not depend on registered formats.
        has_content = isinstance(self.raw.get("content"), str | list)
        is_langchain = self.format == LANGCHAIN and self.raw.get("type") in _LANGCHAIN_SYSTEM
        return has_content and (is_langchain or self.raw.get("role") in SYSTEM_ROLES)

    @property
    def plain(self) -> str | None:
        """Return the text if the message has only a role and a storable text, else None."""
        text = self.__dict__["content"]
        if self.__pydantic_fields_set__ != _PLAIN or type(text) is not str:
            return None
        return text if self.__dict__["role"] is not None and is_storable(text) else None

    @classmethod
    def of_plain(cls, role: str, text: str, created_at: datetime) -> Message:
        """Build a message from its role and a result of `plain`.

        Raises:
            TypeError: The values are not a role and a text.
        """
        if role not in ROLES or type(text) is not str:
            raise TypeError
        values = {**_UNSET, "role": role, "content": text}
        values["created_at"], values["metadata"] = created_at, {}
        return _validated(values, _PLAIN, {})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that were passed, with `created_at` in ISO form."""
        fields = self.model_dump(exclude_unset=True)
        if "created_at" in fields:
            fields["created_at"] = self.created_at.isoformat()
        return fields

    def to_openai(self) -> dict[str, Any] | None:
        """Return the message as an OpenAI chat dict: the first of `views()`, or None."""
        views = self.views()
        return views[0] if views else None

    def views(self) -> list[dict[str, Any]]:
        """Return the message as a list of OpenAI chat dicts. A raw item may have several or none.

        The format of a raw item converts the item; see `agent_memory.core.formats.registry`.
        """
        values = self.__dict__
        role = values["role"]
        if role is None:
            return [*form_of(self.format).to_chat(self.raw or {})]
        fields = self.__pydantic_fields_set__
        view: dict[str, Any] = {"role": role}
        for name in ("content", "name", "tool_calls", "tool_call_id"):
            if values[name] is not None or name in fields:
                view[name] = copied(values[name])
        for name, value in (self.__pydantic_extra__ or {}).items():
            if name not in TIMES:
                view[name] = copied(value)
        return [with_transcript(view)] if "audio" in view else [view]

    def text(self) -> str:
        """Return the text of the content, without pictures and calls."""
        texts = (content_text(view.get("content")) for view in self.views())
        return "\n".join(text for text in texts if text)

    @property
    def is_flat(self) -> bool:
        """Return whether the message holds no mutable lists or dicts."""
        nested = isinstance(self.content, list) or self.tool_calls or self.raw
        return not (nested or self.metadata or self.__pydantic_extra__)

    def detached(self) -> Message:
        """Return the message itself, or a copy if it holds mutable lists or dicts."""
        if self.is_flat:
            return self
        values = {key: copied(self.__dict__[key]) for key in _UNSET}
        extra = {key: copied(value) for key, value in (self.model_extra or {}).items()}
        return _validated(values, self.model_fields_set, extra)

    def __copy__(self) -> Self:
        copy = super().__copy__()
        for cached in (SHAPE, STANDING):
            vars(copy).pop(cached, None)
        return copy

    def to_json(self) -> str:
        """Return `to_dict()` as compact JSON, for stores."""
        try:
            return self.model_dump_json(exclude_unset=True)
        except PydanticSerializationError:  # for lone surrogates, which JSON can hold only escaped
            return compact_json(self.to_dict())

    @classmethod
    def from_json(cls, text: str | bytes, created_at: datetime) -> Message:
        """Build a message from the JSON of `to_json`. `created_at` replaces a missing time."""
        try:
            fields = from_json(text)
        except ValueError:  # escaped lone surrogates
            fields = json.loads(text)
        values = {**_UNSET, "metadata": {}, **fields}
        time = fields.get("created_at")
        if time is None:
            timestamp = next((fields[key] for key in TIMES if type(fields.get(key)) is str), None)
            values["created_at"] = parse_time(timestamp) or created_at
        else:
            values["created_at"] = datetime.fromisoformat(time)
        extra = {key: values.pop(key) for key in fields if key not in _FIELDS}
        return _validated(values, fields, extra)


def _simple_message(value: object) -> Message | None:
    """Build a message of a role and an ASCII text 5 times faster than pydantic, or return None."""
    if type(value) is not dict or len(value) != 2:
        return None
    role, text = value.get("role"), value.get("content")
    if type(role) is not str or role not in ROLES or type(text) is not str or not text.isascii():
        return None
    return Message.of_plain(role, text, now_utc())


def _refusal(error: ValidationError) -> InvalidMessage:
    first = error.errors()[0]
    raised = first.get("ctx", {}).get("error")
    if isinstance(raised, InvalidMessage):
        return raised
    where = ".".join(str(part) for part in first["loc"])
    return InvalidMessage(f"The message's `{where}` {requirement([first])}.")


_set = object.__setattr__
_FIELDS = frozenset(Message.model_fields)
_UNSET = dict.fromkeys(Message.model_fields)
_PLAIN = frozenset({"role", "content"})


def _validated(values: dict[str, Any], fields: Iterable[str], extra: dict[str, Any]) -> Message:
    """Build a message from valid values, without pydantic's validation."""
    message = Message.__new__(Message)
    _set(message, "__dict__", values)
    _set(message, "__pydantic_fields_set__", set(fields))
    _set(message, "__pydantic_extra__", extra)
    _set(message, "__pydantic_private__", None)
    return message


_FLAT = frozenset({str, int, float, bool, type(None)})


def copied(value: Any) -> Any:
    """Return a deep copy of dicts and lists. Other values are not copied."""
    if type(value) is dict:
        return {key: item if type(item) in _FLAT else copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if type(value) is list else value


def compact_json(value: object) -> str:
    """Return compact JSON that every database can hold, even with lone surrogates and NULs."""
    text = _compact(value)
    return text if is_encodable(text) else json.dumps(value, separators=(",", ":"))


def content_text(content: object) -> str:
    """Return the text parts of a message's content, joined by newlines."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") if isinstance(part, dict) else part for part in content)
    return "\n".join(text for text in texts if isinstance(text, str) and text)


# The first dump prepares pydantic's serializer. The dump runs at import, because a child that is
# forked during the dump would inherit a serializer in a half-prepared state.
Message(role="user", content="").to_openai()
