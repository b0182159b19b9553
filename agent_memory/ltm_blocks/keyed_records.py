"""Collections: items that users and tools write to a block directly. Each item is one record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any, ClassVar, Generic, Literal, TypeVar

from agent_memory.core.forms import Form, check_depth
from agent_memory.core.limits import MAX_DEPTH, is_encodable, quoted, text_of
from agent_memory.core.records import Record, Scope
from agent_memory.errors import Conflict, InvalidInput, SessionDeleting
from agent_memory.ltm_blocks.base import Block, ManualBlock, Resources, by_owner, record_id
from agent_memory.ltm_blocks.registry import register
from agent_memory.ltm_blocks.versions import erase, erase_owner
from agent_memory.stores.base import Store
from agent_memory.stores.kernel.log import check_owner

Owner = Literal["session", "user"]
B = TypeVar("B", bound=Block)


class KeyedRecords:
    """The records of one block for one scope.

    The deletion of a session removes its records. `put` therefore creates the session if needed.
    The records are hidden as soon as the deletion has begun.

    Args:
        whose: "user" selects the user's records, across sessions, or the session's records if there
            is no user. "session" always selects the session's records.
    """

    def __init__(self, resources: Resources, block: str, scope: Scope, kind: Owner) -> None:
        self.resources = resources
        self.store = resources.store
        self._block = block
        self.scope = scope
        of_session = kind == "session" or scope.user_id is None
        if of_session and scope.session_id is None:
            raise InvalidInput("The owner is missing. Give a session_id or a user_id.")
        self.owner = Scope(None, scope.session_id).owner if of_session else scope.owner
        self._of_session = of_session

    def all(self) -> list[Record]:
        """Return all records, oldest first.

        Raises:
            SessionOfAnotherUser: The session of the records now belongs to another user.
        """
        records = self.store.records(self._block, self.owner)
        self._check_user()  # after reading: another user may have claimed the session meanwhile
        gone = self.gone(record.session_id for record in records)
        return [record for record in records if record.session_id not in gone]

    def gone(self, sessions: Iterable[str]) -> set[str]:
        """Return the sessions that are deleted or being deleted. The id "" is ignored."""
        named = set(sessions) - {""}
        return named - self.store.existing(named) if named else named

    def get(self, key: str) -> Record | None:
        """Return the record of a key; None if there is none."""
        name = self.id_of(key)
        return next((record for record in self.all() if record.id == name), None)

    def id_of(self, key: str) -> str:
        return keyed_id(self._block, self.owner, key)

    def put(
        self,
        key: str,
        text: str,
        metadata: dict[str, Any] | None = None,
        *,
        at: datetime | None = None,
        with_session: bool = True,
    ) -> Record:
        """Store a record under a key. It replaces the key's former record.

        Args:
            with_session: Whether a user's record is deleted with the current session. A record
                without a user is always deleted with its session.

        Raises:
            SessionOfAnotherUser: The session belongs to another user.
            SessionDeleting: The session is being deleted; nothing was stored.
        """
        plain_json(text, "The text")
        plain_json(metadata or {}, "The metadata")
        session_id, at = self.scope.session_id, at or datetime.now(UTC)
        if session_id is None or not (with_session or self._of_session):
            session_id = ""
        name = self.id_of(key)
        record = Record(name, self.owner, session_id, 0, 0, text, (), at, metadata or {})
        register(self.store, self._block)
        put_with_session(self.store, self._block, [record], self.scope, session_id)
        return record

    def drop(self, key: str) -> None:
        """Delete the record of a key. Idempotent."""
        self._check_user()
        self.store.delete_records(self._block, record_id=self.id_of(key))

    def clear(self) -> None:
        """Delete all records."""
        self._check_user()
        erase_owner(self.store, self._block, self.owner)

    def changing(self) -> AbstractContextManager[None]:
        """Return the owner's lock. Hold it while you read, change and write records."""
        return self.resources.locked(lock_of(self._block, self.owner))

    def _check_user(self) -> None:
        """Raise an error if another user has begun a session with the same id."""
        session_id, user_id = self.scope.session_id, self.scope.user_id
        if self._of_session and session_id is not None and user_id is not None:
            head = self.store.head(session_id)
            if head is not None:
                check_owner(head, user_id)


class Collection(Generic[B]):
    """The items of one owner in a block. A subclass adds the form and the rules of its items."""

    _item: ClassVar[str]  # the name of an item in errors, such as "note"
    _advice: ClassVar[tuple[str, str]] = ("", "")  # remedies for empty and long texts
    _error: ClassVar[type[InvalidInput]] = InvalidInput

    def __init__(self, keyed: KeyedRecords, limits: B) -> None:
        self._keyed = keyed
        self._limits = limits  # the block, which has the limits

    def clear(self) -> None:
        """Delete all items."""
        with self._keyed.changing():
            self._keyed.clear()

    def _text(self, value: object, most: int) -> str:
        name, (if_empty, if_long) = f"The {self._item}", self._advice
        text = self._keyed.resources.redact(text_of(name, value)).strip()
        if not text:
            raise InvalidInput(f"{name} is empty. {if_empty}")
        if len(text) > most:
            raise InvalidInput(
                f"{name} has {len(text)} characters; the maximum is {most}. {if_long}"
            )
        plain_json(text, name)
        return text

    def _metadata(self, value: dict[str, Any] | None, most: int) -> dict[str, Any]:
        name = f"The {self._item}'s metadata"
        text = plain_json(value or {}, name)
        if len(text) > most:
            raise InvalidInput(
                f"{name} has more than {most} characters as JSON. Store the data elsewhere, and "
                "only its location here."
            )
        copy: dict[str, Any] = json.loads(text)
        return copy

    def _check_count(self, count: int, most: int, new: int = 1) -> None:
        if count + new > most:
            raise self._error(
                f"There are {count} {self._item}s, and the maximum is {most}. Delete some that are "
                "no longer needed."
            )

    def _reused(self, key: str | None) -> Conflict:
        return Conflict(
            f"The key {quoted(key)} was used for another {self._item}. Nothing was stored. Use a "
            f"new key for a new {self._item}."
        )


class CollectionBlock(ManualBlock):
    """A block with one `Collection` of items for each owner."""

    _stored_form: ClassVar[type[Form]]

    @by_owner
    def delete(self, scope: Scope) -> None:
        if not scope.after:  # otherwise only messages were removed, and no item comes from them
            # without the lock, a concurrent change could write a user's record again. A session
            # needs no lock: `put_with_session` removes a record that it wrote during a deletion
            lock = self.resources.locked(lock_of(self.name, scope.owner))
            with lock if scope.session_id is None else nullcontext():
                erase(self.resources.store, self.name, scope)
            self.drop_caches(scope)

    def validate_import(self, record: Record) -> Record:
        self._stored_form.model_validate(record.metadata)
        return record

    def _keyed(self, scope: Scope) -> KeyedRecords:
        kind: Owner = "session" if self.of_session else "user"
        return KeyedRecords(self.resources, self.name, scope, kind)


def put_with_session(
    store: Store, block: str, records: Sequence[Record], scope: Scope, session_id: str
) -> None:
    """Store records that the deletion of a session removes. Create the session if needed.

    Args:
        session_id: The session; empty for records that outlive all sessions.

    Raises:
        SessionOfAnotherUser: The session belongs to another user.
        SessionDeleting: The session is being deleted; nothing was stored.
    """
    if not session_id:
        store.put_records(block, records)
        return
    before = store.head(session_id)
    if before is None or before.deleting or before.user_id != scope.user_id:
        before = store.append(session_id, [], scope.user_id)
    store.put_records(block, records)
    now = store.head(session_id)
    if now is None or now.deleting or now.created_at != before.created_at:
        # the deletion may have listed the session's records before the new records were written
        for record in records:
            store.delete_records(block, record_id=record.id)
        raise SessionDeleting(
            f"Session {session_id!r} was deleted meanwhile, and nothing was stored. Try again; use "
            "another session id if the deletion is not finished."
        )


def keyed_id(block: str, owner: str, key: str) -> str:
    """Return the record id of an owner's key."""
    # the key is hashed, because otherwise two pairs of owner and key could share an id
    return record_id(block, owner, record_id(key))


def plain_json(value: object, what: str) -> str:
    """Return a value as compact JSON that restores it exactly. `what` names the value in errors."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        check_depth(value, MAX_DEPTH)
        if not is_encodable(text):
            raise ValueError("it contains half of a surrogate pair")
        if json.loads(text) != value:
            raise ValueError("JSON would change it")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{what} is not plain JSON: {error}. Use strings, finite numbers, booleans, None, "
            "lists, and dicts with string keys."
        ) from None
    return text


def lock_of(block: str, owner: str) -> str:
    """Return the name of the lock that `KeyedRecords.changing` takes."""
    return record_id("keyed_records", block, owner)
