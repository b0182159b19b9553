"""`WorkingMemory`: a session's scratchpad of JSON values by key."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from agent_memory.core.forms import Form
from agent_memory.core.limits import quoted, text_of
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Recall, Record, Scope
from agent_memory.core.redaction import within
from agent_memory.core.settings_model import Positive
from agent_memory.core.tools import tool
from agent_memory.errors import InvalidInput, ToolRefused
from agent_memory.ltm_blocks.keyed_records import Collection, CollectionBlock, plain_json

_MAX_KEY = 128


def check_key(key: str) -> str:
    if not (isinstance(key, str) and 0 < len(key) <= _MAX_KEY and key.isprintable()):
        raise InvalidInput(f"The key is {quoted(key)}. Give 1 to {_MAX_KEY} printable characters.")
    return key


class _StoredForm(Form):
    """The metadata of a value's record."""

    key: Annotated[str, AfterValidator(check_key)]


class WorkingMemory(CollectionBlock):
    """A session's values by key. A model writes them with a tool, a program with `Session.working`.

    Every context of the session recalls all values that fit, last changed first. Other sessions do
    not see the values.

    Attributes:
        max_keys: Maximum number of values of a session.
        max_bytes: Maximum total size of a session's values, as compact JSON in UTF-8.
        persist: Whether the values outlive `AgentMemory.end`. They are always deleted with their
            session.
    """

    searched = False
    of_session = True
    _stored_form = _StoredForm

    kind: Literal["working"] = "working"
    max_keys: Positive = 100
    max_bytes: Positive = 65_536
    persist: bool = False

    def open(self, scope: Scope) -> Scratchpad:
        """Return the scratchpad of a session."""
        return Scratchpad(self._keyed(scope), self)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        """Return all values, last changed first. The message has no effect."""
        if scope.session_id is None:
            return []
        newest = self._keyed(scope).all()[::-1]
        return [
            Recall(self.name, value.id, f"{_key(value)}: {value.text}", 1.0)
            for value in newest[:limit]
        ]

    def end(self, scope: Scope) -> None:
        if not self.persist:
            self.open(scope).clear()

    def validate_import(self, record: Record) -> Record:
        super().validate_import(record)
        try:
            json.loads(record.text)
        except (ValueError, RecursionError):
            raise InvalidInput("its text is not JSON") from None
        return record

    @tool(
        "{name}_set",
        "Keep a value in the scratchpad of this conversation, such as a plan, what is still to do, "
        "or a result that you will need again. You are shown the scratchpad with each message.",
    )
    def _run_set(
        self,
        scope: Scope,
        key: str = Field(
            min_length=1,
            max_length=_MAX_KEY,
            description="A short name, such as plan or open_tasks.",
        ),
        value: Any = Field(description="Any JSON. It replaces the key's former value."),
    ) -> str:
        self.open(scope).set(key, value)
        return f"Kept under {key!r}."

    @tool("{name}_get", "Read the scratchpad of this conversation, or one value of it, in full.")
    def _run_get(
        self,
        scope: Scope,
        key: str | None = Field(default=None, description="The key. By default, all values."),
    ) -> str:
        values = self.open(scope).all()
        if key is None:
            return compact_json(values)
        if key not in values:
            raise _no_such(key, values)
        return compact_json(values[key])

    @tool("{name}_delete", "Remove a value that is no longer needed from the scratchpad.")
    def _run_delete(self, scope: Scope, key: str = Field(description="The key.")) -> str:
        pad = self.open(scope)
        if not pad.delete(key):
            raise _no_such(key, pad.all())
        return f"Deleted: {key!r}."


class Scratchpad(Collection[WorkingMemory]):
    """A handle on the values of one session, from `Session.working`."""

    _item = "value"

    def all(self) -> dict[str, Any]:
        """Return all values by key, last changed last."""
        return {_key(record): json.loads(record.text) for record in self._keyed.all()}

    def keys(self) -> list[str]:
        """Return all keys, last changed last."""
        return list(self.all())

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        record = self._keyed.get(text_of("key", key))
        return default if record is None else json.loads(record.text)

    def set(self, key: str, value: Any) -> None:
        """Set the value of a key.

        Args:
            key: 1 to 128 printable characters.
            value: Plain JSON: strings, finite numbers, booleans, None, lists and dicts of these.

        Raises:
            InvalidInput: The key or the value is invalid, or a limit is exceeded; nothing changed.
            SessionOfAnotherUser: The session now belongs to another user.
            SessionDeleting: The session is being deleted; nothing was stored.
        """
        check_key(key)
        plain_json(value, "The value")
        text = plain_json(within(value, self._keyed.resources.redact), "The value")
        with self._keyed.changing():
            others = [record.text for record in self._keyed.all() if _key(record) != key]
            self._check_count(len(others), self._limits.max_keys)
            size = sum(len(part.encode()) for part in (*others, text))
            if size > self._limits.max_bytes:
                raise InvalidInput(
                    f"With this value there would be {size} bytes; the maximum is "
                    f"{self._limits.max_bytes}. Shorten this value, or delete other values."
                )
            self._keyed.put(key, text, {"key": key})

    def delete(self, key: str) -> bool:
        """Delete a value, and return whether it existed. Idempotent."""
        with self._keyed.changing():
            exists = self._keyed.get(text_of("key", key)) is not None
            if exists:
                self._keyed.drop(key)
            return exists


def _key(record: Record) -> str:
    return str(record.metadata["key"])


def _no_such(key: str, keys: Iterable[str]) -> ToolRefused:
    existing = ", ".join(map(repr, keys)) or "none"
    return ToolRefused(f"There is no value with the key {quoted(key)}. Keys: {existing}.")
