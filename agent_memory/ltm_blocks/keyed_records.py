"""Where a block keeps what it is given outright, rather than what it absorbs: one scope's records,
by key, in the fact store."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Any, Literal

from agent_memory.core.messages import compact_json
from agent_memory.core.records import Record, Scope
from agent_memory.errors import InvalidInput, SessionDeleting
from agent_memory.ltm_blocks.base import Resources, record_id
from agent_memory.ltm_blocks.registry import register
from agent_memory.stores.base import Store
from agent_memory.stores.log import check_owner

Whose = Literal["session", "user"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_DEPTH = 100  # what reads and writes JSON gives up a little above twice that
_MAX_BITS = 4096  # Python refuses to write integers of more than 4,300 digits


class KeyedRecords:
    """What one block keeps for one scope.

    A session begins with the first thing that is kept for it, so that it has an owner, and that its
    deletion takes the thing along. From the moment its deletion begins nothing of it is read.

    Args:
        resources: What the block was bound to.
        block: Its name.
        scope: Whose it is, and the session at hand.
        whose: "user": the user's, in all sessions; the session's own where it has no user.
            "session": the session's, whoever its user is.
    """

    def __init__(self, resources: Resources, block: str, scope: Scope, whose: Whose) -> None:
        self._resources = resources
        self._store = resources.store
        self._block = block
        self._scope = scope
        of_session = whose == "session" or scope.user_id is None
        if of_session and scope.session_id is None:
            raise InvalidInput("Say whose it is: give a session_id, or a user_id.")
        self.owner = Scope(None, scope.session_id).owner if of_session else scope.owner
        self._of_session = of_session

    def all(self) -> list[Record]:
        """All records, oldest first.

        Raises:
            SessionOfAnotherUser: They are the session's, and that is another user's by now.
        """
        records = self._store.records(self._block, self.owner)
        self._check_user()  # afterwards: the session may have become another's meanwhile
        named = {record.session_id for record in records if record.session_id}
        gone = named - self._store.existing(named) if named else named
        return [record for record in records if record.session_id not in gone]

    def get(self, key: str) -> Record | None:
        """The record of a key."""
        name = self.id_of(key)
        return next((record for record in self.all() if record.id == name), None)

    def id_of(self, key: str) -> str:
        """The id of the record that a key has."""
        return keyed_id(self._block, self.owner, key)

    def redacted(self, text: str) -> str:
        """A text as it is to be kept."""
        return self._resources.redact(text)

    def put(
        self,
        key: str,
        text: str,
        metadata: dict[str, Any] | None = None,
        *,
        at: datetime | None = None,
        with_session: bool = True,
    ) -> Record:
        """Keep a record under a key, in place of the one that it had.

        Args:
            key: The key.
            text: The record's text.
            metadata: Plain JSON.
            at: Its time; now by default.
            with_session: Whether it goes when the session at hand is deleted, though it is the
                user's.

        Raises:
            InvalidInput: Text or metadata are not what stores give back exactly; nothing was kept.
            SessionOfAnotherUser: The session belongs to another user.
            SessionDeleting: The session is being deleted; nothing was kept.
        """
        require_plain(text, "The text")
        require_plain(metadata or {}, "The metadata")
        session_id = self._scope.session_id
        if session_id is None or not (with_session or self._of_session):
            session_id = ""
        record = Record(
            id=self.id_of(key),
            owner=self.owner,
            session_id=session_id,
            first=0,
            last=0,
            text=text,
            sources=(),
            created_at=at or datetime.now(UTC),
            metadata=metadata or {},
        )
        register(self._store, self._block)

        def undo() -> None:
            self._store.delete_records(self._block, record_id=record.id)

        with kept_with(self._store, self._scope, session_id, undo):
            self._store.put_records(self._block, [record])
        return record

    def drop(self, key: str) -> None:
        """Take the record of a key away. Idempotent."""
        self._check_user()
        self._store.delete_records(self._block, record_id=self.id_of(key))

    def clear(self) -> None:
        """Take all records away."""
        self._check_user()
        self._store.delete_records(self._block, owner=self.owner)

    def changing(self) -> AbstractContextManager[None]:
        """While something is read and then written: nobody else changes it meanwhile."""
        return _locked(self._resources, self._block, self.owner)

    def _check_user(self) -> None:
        """Where records are the session's: another user's may have begun under its id since."""
        session_id, user_id = self._scope.session_id, self._scope.user_id
        if self._of_session and session_id is not None and user_id is not None:
            head = self._store.head(session_id)
            if head is not None:
                check_owner(head, user_id)


@contextmanager
def kept_with(
    store: Store, scope: Scope, session_id: str, undo: Callable[[], None]
) -> Iterator[None]:
    """Write something that goes with a session, which begins if need be.

    Args:
        store: Where.
        scope: Whose session it is, or is to be.
        session_id: The session; empty for what goes with none.
        undo: Takes what was written back.

    Raises:
        SessionOfAnotherUser: The session belongs to another user.
        SessionDeleting: The session is being deleted; nothing was kept.
    """
    if not session_id:
        yield
        return
    begun = store.head(session_id)
    if begun is None or begun.deleting or begun.user_id != scope.user_id:
        begun = store.append(session_id, [], scope.user_id)
    yield
    now = store.head(session_id)
    if now is None or now.deleting or now.created_at != begun.created_at:
        undo()  # its deletion may have looked for records before these were there
        raise SessionDeleting(
            f"Session {session_id!r} was deleted meanwhile, and nothing was kept. Try again, in a "
            "session with another id if this one's deletion is not finished."
        )


def forget(resources: Resources, block: str, scope: Scope) -> None:
    """Forget what a block keeps for a session, or for a user: its `delete`.

    For a user it waits until nobody is `changing` the records.
    """
    if scope.session_id is None:
        with _locked(resources, block, scope.owner):  # what is being changed would come back
            resources.store.delete_records(block, owner=scope.owner)
    elif not scope.after:  # what is kept outright derives from no message that is taken back
        resources.store.delete_records(block, session_id=scope.session_id, lease=scope.lease)


def keyed_id(block: str, owner: str, key: str) -> str:
    """The id of the record that an owner's key has."""
    # keys of one length, so that no user's id with the beginning of a key is another's id
    return record_id(block, owner, record_id(key))


def plain_json(value: object, what: str) -> str:
    """A value as compact JSON, which gives it back exactly.

    Args:
        value: The value.
        what: Names it in errors, at the beginning of a sentence.

    Raises:
        InvalidInput: JSON would not give it back exactly.
    """
    require_plain(value, what)
    return compact_json(value)


def require_plain(value: object, what: str, depth: int = 0) -> None:
    """Refuse what JSON would not give back exactly; see `plain_json`."""
    if isinstance(value, str):
        if not value.isascii() and _SURROGATE.search(value):
            raise InvalidInput(
                f"{what} holds half of a surrogate pair, which no model can read. Give whole "
                "characters."
            )
        return
    if value is None or (isinstance(value, int) and value.bit_length() <= _MAX_BITS):
        return
    if isinstance(value, float) and math.isfinite(value):
        return
    if depth > _MAX_DEPTH:
        raise InvalidInput(
            f"{what} is nested more than {_MAX_DEPTH} deep. Flatten it, or give it as JSON text."
        )
    if type(value) is list:
        for item in value:
            require_plain(item, what, depth + 1)
        return
    if type(value) is dict and all(isinstance(key, str) for key in value):
        for key, item in value.items():
            require_plain(key, what)
            require_plain(item, what, depth + 1)
        return
    raise InvalidInput(
        f"{what} holds a {type(value).__name__} that JSON cannot give back exactly. Use strings, "
        "finite numbers, booleans, None, lists, and dicts with string keys."
    )


def _locked(resources: Resources, block: str, owner: str) -> AbstractContextManager[None]:
    return resources.locked(record_id("keyed_records", block, owner))
