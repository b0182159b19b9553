"""A conversation store and a capability for pydantic-ai that use an `AgentMemory`.

agent = Agent(model, capabilities=[AgentMemoryHistory(memory, "chat-1", user_id="ana")])
store = AgentMemoryConversationStore(memory)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from agent_memory.core.formats.registry import PYDANTIC_AI
from agent_memory.core.limits import MOST
from agent_memory.core.records import Scope
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.values.items import Put
from agent_memory.engine.values.key_values import KeyValues
from agent_memory.errors import MissingExtra, SessionOfAnotherUser
from agent_memory.integrations.adapting import LONGEST_BRANCH, locked, threaded
from agent_memory.ltm_blocks.base import record_id

try:
    from pydantic import TypeAdapter
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
except ImportError as error:
    raise MissingExtra("pydantic-ai's conversations", "pydantic-ai") from error

__all__ = ["AgentMemoryConversationStore", "AgentMemoryHistory"]

_ROOT = "pydantic_ai"
_ENTRIES = (_ROOT, "entries")
_RECORDS = (_ROOT, "records")
_RECORD: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)
Json = dict[str, Any]


class AgentMemoryConversationStore(ConversationStore):
    """Stores each conversation as a session. The session's log is the conversation's history.

    Blocks absorb the log. Abandoned branches are stored outside the log, and are deleted with the
    session.

    Args:
        user_id: The user; None uses each conversation's `scope`.
    """

    def __init__(self, memory: AgentMemory, *, user_id: str | None = None) -> None:
        self._memory = memory
        self._user_id = user_id
        self._index = memory.values()  # maps ids of entries to conversations, without texts

    def _record(self, conversation_id: str) -> ConversationRecord | None:
        item = self._values_of(conversation_id).get((), "record")
        return None if item is None else _RECORD.validate_python(item.value)

    read_record = threaded(_record)

    @threaded
    def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records of a scope, or of all scopes, the last saved record first."""
        stored = (self._record(item.key) for item in self._index.search(_RECORDS, limit=MOST))
        records = [item for item in stored if item is not None and scope in (None, item.scope)]
        return sorted(records, key=lambda record: record.updated_at, reverse=True)[:limit]

    @threaded
    def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record with its new entries.

        Raises:
            ConversationConflict: The stored record does not have `expected_revision`, an entry is
                missing, the entries do not end at `head_id`, or the session belongs to another
                user.
        """
        name = record.conversation_id
        with locked(self._memory, _ROOT, name):
            before = self._record(name)
            if (before.revision if before else None) != expected_revision:
                raise ConversationConflict(name)
            try:
                earlier = self._history(new_entries[0].parent_id if new_entries else record.head_id)
                left = [entry for tip in record.branches for entry in self._history(tip)]
            except LookupError:
                raise ConversationConflict(name) from None
            history = [*earlier, *new_entries]
            if (history[-1].id if history else None) != record.head_id:
                raise ConversationConflict(name)
            try:
                self._mirror(name, record, history, len(earlier))
            except SessionOfAnotherUser:
                raise ConversationConflict(name) from None
            own = self._values_of(name)
            by_id = {entry.id: entry for entry in (*left, *history)}
            missing = [entry for entry in by_id.values() if own.get(("entries",), entry.id) is None]
            puts = [Put(("entries",), entry.id, _dumped(entry)) for entry in missing]
            own.put_many([*puts, Put((), "record", _RECORD.dump_python(record, mode="json"))])
            places = [Put((*_ENTRIES, entry.id), name, True) for entry in missing]
            self._index.put_many([*places, Put(_RECORDS, name, True)])

    @threaded
    def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation, and everything derived from it. Its forks keep their messages.

        Raises:
            ConversationConflict: The stored record does not have `expected_revision`.
        """
        with locked(self._memory, _ROOT, conversation_id):
            stored = self._record(conversation_id)
            if stored is None or stored.revision != expected_revision:
                raise ConversationConflict(conversation_id)
            self._memory.delete(conversation_id)
            self._index.delete(_RECORDS, conversation_id)

    def _entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry by its id. Raise LookupError if there is none."""
        for item in self._index.search((*_ENTRIES, entry_id), limit=MOST):
            stored = self._values_of(item.key).get(("entries",), entry_id)
            if stored is not None:
                (message,) = ModelMessagesTypeAdapter.validate_python([stored.value["message"]])
                parent = stored.value["parent"]
                return ConversationEntry(id=entry_id, parent_id=parent, message=message)
        raise LookupError(entry_id)

    read_entry = threaded(_entry)

    def _history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the last `limit` entries on the path from the root to `head_id`, oldest first."""
        entries: list[ConversationEntry] = []
        while head_id is not None and (limit is None or len(entries) < limit):
            entries.append(self._entry(head_id))
            head_id = entries[-1].parent_id
        return entries[::-1]

    read_history = threaded(_history)

    def _mirror(
        self, name: str, record: ConversationRecord, history: list[ConversationEntry], count: int
    ) -> None:
        """Make the session's log equal to the history. If the history only grew, only append."""
        user = self._user_id or record.scope
        messages = [{**_storable(entry.message), "id": entry.id} for entry in history]
        entries = self._memory.history(name, user_id=user, last=1)
        last = (entries[0].message.model_extra or {}).get("id") if entries else None
        head = self._memory.head(name, user_id=user)
        grown = (head.end if head else 0) == count and (not count or last == history[count - 1].id)
        if grown:
            if messages[count:]:
                self._memory.update(name, messages[count:], user_id=user)
            elif head is None:
                self._memory.describe(name, {}, user_id=user)
        else:
            self._memory.edit(name, lambda log: messages, user_id=user)

    def _values_of(self, name: str) -> KeyValues:
        head = self._memory.head(name)
        owner = head.user_id if head else self._user_id
        return self._memory.components.values_of(Scope(owner, name), of_session=True)


class AgentMemoryHistory(AbstractCapability[Any]):
    """Sends the session's context, with recalls, in each model request of an agent's runs.

    The context replaces the run's messages in the request. New messages are stored before each
    request, and the answer after the run. The run's own list of messages is unchanged.

    The session's log is the history: a `message_history` is stored only if the session is empty. If
    it ends with a stored question, the log's messages after this question are removed.
    """

    def __init__(self, memory: AgentMemory, session_id: str, *, user_id: str | None = None) -> None:
        self._session = memory.session(session_id, user_id)

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None: a capability with an open database cannot be serialized."""
        return None

    @threaded
    def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        messages = request_context.messages
        self._store(messages, ctx.run_id)
        if messages[-1].run_id != ctx.run_id:
            self._cut_after(_named(messages[-1]))
        items = self._session.get(format=PYDANTIC_AI).to_messages()
        request_context.messages = ModelMessagesTypeAdapter.validate_python(items)
        return request_context

    @threaded
    def after_run(self, ctx: Any, *, result: Any) -> Any:
        self._store(result.all_messages(), ctx.run_id)
        return result

    def _store(self, messages: Sequence[ModelMessage], run_id: str | None) -> None:
        is_new = not self._session.history(last=1)
        rows = [
            _named(message)
            for message in messages
            if is_new or message.run_id == run_id or message is messages[-1]
        ]
        if rows:
            self._session.update(rows)

    def _cut_after(self, question: Json) -> None:
        """Remove the log's messages after a question that a run asks again."""
        log = reversed(self._session.history(last=LONGEST_BRANCH))
        names = [(entry.message.model_extra or {}).get("id") for entry in log]
        if question["id"] in names[1:]:
            self._session.pop(names.index(question["id"]))


def _named(message: ModelMessage) -> Json:
    """Convert a message of a run, without the fields that another run may change."""
    row = _storable(message)
    changing = ["run_id", "conversation_id"] + ["timestamp"] * (message.kind == "request")
    row["raw"] |= dict.fromkeys(changing)
    return {**row, "id": record_id(_ROOT, str(sorted(row["raw"].items())))}


def _storable(message: ModelMessage) -> Json:
    (raw,) = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    return {"raw": cast("Json", raw), "format": PYDANTIC_AI}


def _dumped(entry: ConversationEntry) -> Json:
    return {"parent": entry.parent_id, "message": _storable(entry.message)["raw"]}
