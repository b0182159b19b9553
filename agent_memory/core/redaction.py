"""Redaction of personal data and secrets in messages, before storage or later. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Self

from pydantic import model_validator

from agent_memory.core.formats.exact import is_written
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.settings_model import SettingsModel
from agent_memory.errors import ConfigError, MissingExtra

_PASSES = 25
"""More passes than any ordinary text needs. Each may reveal a match beside a replaced one."""


class Redactor(SettingsModel):
    """Replaces personal data and secrets in a text: `Redactor()(text)`.

    Only known forms are found. Names, postal addresses, keys of other providers, and passwords
    without an introduction are not found. Any text in a known form is replaced.

    Attributes:
        emails: Replace e-mail addresses by "[email]".
        phones: Replace phone numbers by "[phone]" (extra `redaction`).
        cards: Replace payment card numbers by "[card]". They have 13 to 19 digits with a valid
            check digit, and begin with 22 to 69.
        keys: Replace by "[key]" the keys of OpenAI, Anthropic, AWS (their ids), GitHub, GitLab,
            Slack, Google, Stripe, npm, Hugging Face and SendGrid, JSON Web Tokens, private keys in
            PEM form, and the token after "Authorization: Bearer".
        ibans: Replace by "[iban]" the numbers of bank accounts with a valid check number.
        passwords: Replace by "[password]" the text after "password is", "PIN:", "pwd=" and
            similar, in some languages, except words such as "wrong" and "required".
        region: The country of phone numbers without "+" or "00", such as "DE". Any digits that are
            a number there count as one. None accepts only North American punctuation: "(415)
            555-2671" or "415-555-2671".

    Raises:
        MissingExtra: Phone numbers are to be replaced, and `phonenumbers` is not installed.
        ConfigError: The region is unknown.
    """

    emails: bool = True
    phones: bool = True
    cards: bool = True
    keys: bool = True
    ibans: bool = True
    passwords: bool = True
    region: str | None = None

    @model_validator(mode="after")
    def _check_phones(self) -> Self:
        if not self.phones:
            return self
        try:
            from phonenumbers import SUPPORTED_REGIONS
        except ImportError:
            raise MissingExtra("Redacting phone numbers", "redaction") from None
        if self.region is not None and self.region not in SUPPORTED_REGIONS:
            raise ConfigError(
                f"{self.region!r} is not a region of phone numbers. Give the two capital "
                'letters of a country, such as "DE".'
            )
        return self

    def __call__(self, text: str) -> str:
        """Return the text with replacements. A text without matches, or redacted before, is
        unchanged.
        """
        for _ in range(_PASSES):  # a replacement may reveal a match beside it
            if (redacted_text := self._once(text)) == text:
                break
            text = redacted_text
        return text

    def _once(self, text: str) -> str:
        from agent_memory.core.personal import replaced  # its patterns take long to compile

        return replaced(text, self)


DELETED = "[deleted]"
"""Replaces a deleted text."""

EMPTY_SYSTEM = Message(role="system", content=DELETED)
"""Replaces a system message that is stored elsewhere, until nothing refers to it."""

_FORMAT = "deleted"


def redacted_message(message: Message) -> Message:
    """Return a message without its texts. Its role and call ids stay, so that turns stay complete.

    A system message is no longer shown at all.
    """
    view = None if message.is_system else message.to_openai()
    if view is None:
        return Message(raw={}, format=_FORMAT, created_at=message.created_at)
    fields: dict[str, Any] = {"role": view["role"], "content": DELETED}
    calls = view.get("tool_calls")
    if calls:
        fields["tool_calls"] = [_redacted_call(call) for call in calls]
    if view.get("function_call"):
        fields["function_call"] = _redacted_function(view["function_call"])
    if view["role"] in ("tool", "function"):  # these fields identify the answered call
        fields |= {key: view[key] for key in ("tool_call_id", "name") if view.get(key)}
    return Message(**fields, created_at=message.created_at)


def _redacted_call(call: dict[str, Any]) -> dict[str, Any]:
    function = _redacted_function(call.get("function") or {})
    return {"id": call.get("id"), "type": "function", "function": function}


def _redacted_function(function: dict[str, Any]) -> dict[str, Any]:
    return {"name": function.get("name"), "arguments": "{}"}


def stands_nowhere(message: Message) -> bool:
    """Return whether only the message's place in the log remains."""
    return message.format == _FORMAT


REDACTED = "redacted"
"""The metadata key of a message that lists its redacted fields."""

_KEPT = frozenset(
    {
        *("role", "id", "type", "name", "tool_call_id", "call_id", "status", "format", "model"),
        *("created_at", "url", "data", "file_data", "file_id", "media_type", "mime_type"),
        *("encrypted_content", "signature", "thoughtSignature", "thought_signature", "bytes"),
        *("tool_use_id", "toolUseId", "mimeType", "fileUri", "file_uri"),
    }
)
"""Fields that hold no user text, or whose bytes a provider verifies."""


def redacted(message: Message, redact: Callable[[str], str]) -> Message:
    """Return the message to store: the message itself if there is nothing to redact."""
    original = message.to_dict()
    fields = {
        key: value if key in _KEPT else within(value, redact) for key, value in original.items()
    }
    changed = sorted(key for key, value in fields.items() if value != original[key])
    if not changed:
        return message
    metadata = {**fields.get("metadata", {}), REDACTED: changed}
    return Message(**{**fields, "metadata": metadata, "created_at": message.created_at})


def within(value: Any, redact: Callable[[str], str]) -> Any:
    """Redact all texts of a value. JSON in a text stays valid JSON."""
    if isinstance(value, str):
        return _text(value, redact)
    if is_written(value):  # encoded bytes
        return value
    if isinstance(value, list):
        return [within(item, redact) for item in value]
    if isinstance(value, dict):
        return {
            key: item if key in _KEPT and isinstance(item, str) else within(item, redact)
            for key, item in value.items()
        }
    return value


def _text(text: str, redact: Callable[[str], str]) -> str:
    if not text.startswith(("{", "[")):
        return redact(text)
    try:
        parsed = json.loads(text)
    except ValueError:
        return redact(text)
    redacted_value = within(parsed, redact)
    return text if redacted_value == parsed else compact_json(redacted_value)
