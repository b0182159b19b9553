"""Redaction of personal data and secrets in messages. Pure."""

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
"""The most passes over a text. Ordinary texts need fewer."""


class Redactor(SettingsModel):
    """Replaces personal data and secrets in a text: `Redactor()(text)`.

    Data is found by its form, and everything in such a form is replaced. Names, postal addresses,
    keys of other providers, and passwords without an introduction such as "PIN:" are not found.

    Attributes:
        emails: Replace e-mail addresses by "[email]".
        phones: Replace phone numbers by "[phone]" (extra `redaction`).
        cards: Replace payment card numbers by "[card]": 13 to 19 digits that begin with 22 to 69
            and have a valid check digit.
        keys: Replace by "[key]" the keys of OpenAI, Anthropic, AWS (the ids of keys), GitHub,
            GitLab, Slack, Google, Stripe, npm, Hugging Face and SendGrid, JSON Web Tokens, private
            keys in PEM form, and the token after "Authorization: Bearer".
        ibans: Replace IBANs (bank accounts) with valid check digits by "[iban]".
        passwords: Replace by "[password]" the text after "password is", "PIN:", "pwd=" and similar
            words in some languages, unless it is a word such as "wrong" or "required".
        region: The country of phone numbers without "+" or "00", such as "DE". All digits that are
            a valid number in this country are replaced. With None, such numbers are replaced only
            in North American form: "(415) 555-2671" or "415-555-2671".

    Raises:
        MissingExtra: `phones` is set, and `phonenumbers` is not installed.
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
        """Return the text with replacements. A redacted text is not changed again."""
        from agent_memory.core.personal import replaced  # its patterns take long to compile

        for _ in range(_PASSES):  # after a replacement, the text next to it may match
            if (redacted_text := replaced(text, self)) == text:
                break
            text = redacted_text
        return text


DELETED = "[deleted]"
"""Replaces a deleted text."""

EMPTY_SYSTEM = Message(role="system", content=DELETED)
"""Replaces a deleted system message in the separate store of system messages."""

_FORMAT = "deleted"


def redacted_message(message: Message) -> Message:
    """Return a message without its texts, but with its role and call ids, so that turns stay whole.

    A system message or an item without a chat form becomes an item that is never shown.
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
    """Return whether only the message's place in the log remains, so that it is never shown."""
    return message.format == _FORMAT


REDACTED = "redacted"
"""The key of a message's metadata under which its redacted fields are listed."""

_SKIP = frozenset(
    {
        *("role", "id", "type", "name", "tool_call_id", "call_id", "status", "format", "model"),
        *("created_at", "url", "data", "file_data", "file_id", "media_type", "mime_type"),
        *("encrypted_content", "signature", "thoughtSignature", "thought_signature", "bytes"),
        *("tool_use_id", "toolUseId", "mimeType", "fileUri", "file_uri"),
    }
)
"""Fields that hold no user text, or whose bytes a provider verifies."""


def redacted(message: Message, redact: Callable[[str], str]) -> Message:
    """Return the redacted message, or the message itself if there is nothing to redact."""
    item = message.to_dict()
    fields = {key: value if key in _SKIP else within(value, redact) for key, value in item.items()}
    changed = sorted(key for key, value in fields.items() if value != item[key])
    if not changed:
        return message
    metadata = {**fields.get("metadata", {}), REDACTED: changed}
    return Message(**{**fields, "metadata": metadata, "created_at": message.created_at})


def within(value: Any, redact: Callable[[str], str]) -> Any:
    """Return a value with its texts redacted, except `_SKIP` fields. JSON in a text stays valid."""
    if isinstance(value, str):
        return _text(value, redact)
    if is_written(value):  # encoded bytes
        return value
    if isinstance(value, list):
        return [within(item, redact) for item in value]
    if isinstance(value, dict):
        return {
            key: item if key in _SKIP and isinstance(item, str) else within(item, redact)
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
