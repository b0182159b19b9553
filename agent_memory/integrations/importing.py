"""Imports conversations from the exports and databases of other programs, each message once."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

from agent_memory.core.formats.neutral import mapping
from agent_memory.core.idempotency import digest_of
from agent_memory.core.limits import MAX_ID, check_id
from agent_memory.core.messages import Message
from agent_memory.core.records import Head
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import AccessDenied, Conflict, InvalidInput
from agent_memory.integrations.imports import reader
from agent_memory.integrations.imports.conversations import (
    Imported,
    SessionBegin,
    Skipped,
    SourceMessage,
    SourceNote,
    Unread,
    again,
    usable,
)
from agent_memory.integrations.imports.files import SourceFiles

__all__ = ["Imported", "import_chats", "preview", "size_of"]


def import_chats(
    memory: AgentMemory,
    path: str | PathLike[str],
    source: str,
    *,
    user_id: str | None = None,
    deleted: bool = False,
    assign: bool = False,
    progress: Callable[[int], object] | None = None,
) -> Imported:
    """Import conversations with their times. Each branch of a conversation becomes a session.

    A message that was imported before is not stored again. An interrupted import can therefore be
    repeated, and a newer export adds only new messages. An import calls no model. Blocks absorb the
    messages later: at a `flush`, at the next update, or on a worker's thread.

    Args:
        path: A file, a zip as downloaded, or a folder.
        source: The format, a value of `agent-memory import --from`, such as "chatgpt".
        user_id: The user of all data. None takes the users that the source names. Most sources name
            no users.
        deleted: Whether to restore sessions that were deleted from the memory, and the sessions and
            notes of deleted users. If not, deleted sessions stay deleted, and a deleted user's data
            is only imported if it is dated after the deletion.
        assign: Whether to assign earlier imported sessions without a user to `user_id`.
        progress: Called with the number of bytes read since the last call. The numbers add up to
            `size_of(path)`.

    Returns:
        The counts of found and stored data, and the list of unreadable data with places and
        reasons. A damaged message or conversation does not stop the import.

    Raises:
        InvalidInput: The path does not exist or has no data of that source, or `assign` is set
            without `user_id`.
        StoreError: The store failed. Imported data stays. Repeat the call to continue.
    """
    if assign and user_id is None:
        raise InvalidInput("`assign` needs a user. Name the user with user_id (--user ID).")
    return _Import(memory, source, user_id, deleted, assign).run(path, progress)


def preview(
    path: str | PathLike[str],
    source: str,
    *,
    user_id: str | None = None,
    progress: Callable[[int], object] | None = None,
) -> Imported:
    """Return the data that `import_chats` would find, and the unreadable data. Store nothing.

    Raises:
        InvalidInput: The path does not exist, or has no data of that source.
    """
    return _Import(None, source, user_id).run(path, progress)


def size_of(path: str | PathLike[str]) -> int:
    """Return the size in bytes of a file, or of all files in a folder."""
    where = Path(path)
    files = where.rglob("*") if where.is_dir() else [where]
    return sum(file.lstat().st_size for file in files if not file.is_dir())


_OPEN = 1_000  # maximum number of open sessions
_MOST_STORED = 100_000  # maximum number of stored messages of open sessions
_HEAVY = 4_000_000  # maximum number of buffered characters
_LONGEST = 3_500  # maximum characters of a note's metadata as JSON


@dataclass(slots=True)
class _Path:
    """The messages of one session of the source."""

    session: str  # the id of the session to which the next message is added
    last: str | None = None  # the id of the last message
    question: SourceMessage | None = None  # a copy of the last question


@dataclass(slots=True)
class _Import:
    """The options of an import, its open sessions, and its result."""

    memory: AgentMemory | None  # None to count without storing
    source: str
    user_id: str | None
    deleted: bool = False
    assign: bool = False
    done: Imported = field(default_factory=Imported)
    _begun: dict[str, SessionBegin] = field(default_factory=dict)
    _sessions: set[str] = field(default_factory=set)
    _open: OrderedDict[str, _Session] = field(default_factory=OrderedDict)
    _waiting: int = 0  # number of buffered characters
    _stored: int = 0  # number of stored messages of open sessions
    _paths: dict[str, _Path] = field(default_factory=dict)  # by the session in the source
    # a conversation, and the sessions of its messages that were stored before, by message id
    _homes: tuple[str, dict[str, str]] = ("", {})
    _texts: dict[str, set[str]] = field(default_factory=dict)  # the texts of each user's notes

    def user_of(self, user_id: str | None) -> str | None:
        """Return the user of imported data. `user_id` is the user that the source names."""
        return self.user_id or (None if user_id is None else usable(user_id))

    def run(self, path: str | PathLike[str], progress: Callable[[int], object] | None) -> Imported:
        if self.user_id is not None:
            check_id("user_id", self.user_id)
        done = self.done
        for event in reader(self.source)(SourceFiles(Path(path), progress)):
            match event:
                case SessionBegin():
                    self._begin(event)
                case SourceMessage():
                    self._add(event)
                case SourceNote():
                    done.notes += 1
                    if self.memory is not None:
                        self._write_note(self.memory, event)
                case Unread():
                    done.fail(event.where, event.why)
                case Skipped():
                    done.left_out[event.kind] += 1
        self._flush()
        done.sessions = len(self._sessions)
        return done

    def _begin(self, event: SessionBegin) -> None:
        begun = self._begun.get(event.session_id)
        if begun is None:
            about = {**event.about, "source": self.source}
            self._begun[event.session_id] = replace(event, about=about)
        elif begun.user_id is None and event.user_id is not None:
            self._begun[event.session_id] = replace(begun, user_id=event.user_id)
            if (session := self._open.get(event.session_id)) is not None:
                session.user_id = self.user_of(event.user_id)

    def _add(self, source: SourceMessage) -> None:
        try:
            message = self._message(source)
        except InvalidInput as error:
            self.done.fail(source.where, str(error))
            return
        self._sessions.add(source.session_id)
        if not source.is_again:
            self.done.saw(message)
        if self.memory is None:
            return
        begun = self._begun[source.session_id]
        if begun.is_tree or begun.branch is not None:
            self._add_to_tree(self.memory, source, message, begun)
        else:
            self._waiting += self._opened(source.session_id).add(source, message)
        if self._waiting >= _HEAVY:
            self._flush()

    def _add_to_tree(
        self, memory: AgentMemory, source: SourceMessage, message: Message, begun: SessionBegin
    ) -> None:
        """Add a message of a conversation that can have branches.

        A message that an earlier import stored stays there. A new message continues the session
        that ends with the message before it, or begins a new session.
        """
        main = begun.branch or source.session_id
        path = self._paths.setdefault(source.session_id, _Path(source.session_id))
        if source.is_again:
            path.question = source
            return
        path.session = self._homes_of(memory, main).get(source.id, path.session)
        session = self._opened(path.session)
        if source.id not in session.stored and not session.ends_with(path.last):
            path.session = self._branch(main, source.id)
            session = self._opened(path.session)
        if session.is_empty and path.question is not None and not source.is_question:
            self._waiting += session.add(path.question, self._message(path.question))
        self._waiting += session.add(source, message)
        path.last = source.id
        path.question = again(source) if source.is_question else path.question

    def _homes_of(self, memory: AgentMemory, main: str) -> dict[str, str]:
        if self._homes[0] != main:
            is_begun = main in self._begun  # not if a file has only the lines of a subagent
            trunk = self._opened(main) if is_begun else _Session(memory, self, SessionBegin(main))
            self._homes = main, (homes := dict.fromkeys(trunk.stored, main))
            after: str | None = None
            while len(main) < MAX_ID and (heads := memory.sessions(prefix=f"{main}~", after=after)):
                after = heads[-1].session_id
                for head in heads:
                    name = self._branch(main, head.session_id.removeprefix(f"{main}~"))
                    homes |= dict.fromkeys(self._opened(name).stored, name)
        return self._homes[1]

    def _branch(self, main: str, first: str) -> str:
        """Return the id of the session of a branch, from the id of its first message."""
        name, begun = usable(f"{main}~{first}"), self._begun.get(main) or SessionBegin(main)
        about = {**begun.about, "branch_of": main}
        self._begun.setdefault(name, SessionBegin(name, begun.user_id, about, main))
        return name

    def _message(self, source: SourceMessage) -> Message:
        owner = self._begun[source.session_id].user_id
        if self.user_id is None and source.user_id not in (None, owner):
            raise InvalidInput(
                f"it names the user {source.user_id!r}, but its session belongs to {owner!r}. Give "
                "each user's sessions ids of their own, or set one --user for all (user_id)."
            )
        notes = mapping(source.message.get("metadata"))
        notes = {**notes, _MARK: {"id": source.id, "source": self.source}}
        return Message.of({**source.message, "metadata": notes})

    def _flush(self) -> None:
        for session in self._open.values():
            session.flush()
        self._waiting = 0

    def _opened(self, session_id: str) -> _Session:
        """Return the writer of a session. If too many are open, close the least recently used."""
        assert self.memory is not None
        session = self._open.get(session_id)
        if session is None:
            begun = self._begun[session_id]
            session = self._open[session_id] = _Session(self.memory, self, begun)
            self._stored += len(session.stored)
            while len(self._open) > _OPEN or (self._stored > _MOST_STORED and len(self._open) > 1):
                _, oldest = self._open.popitem(last=False)
                self._stored -= len(oldest.stored)
                oldest.flush()
        self._open.move_to_end(session_id)
        return session

    def _write_note(self, memory: AgentMemory, noted: SourceNote) -> None:
        """Write a note of a user, unless the user has a note with the same text."""
        done, user_id = self.done, self.user_of(noted.user_id)
        if user_id is None:
            done.fail(noted.where, "the source names no user. Set --user ID or user_id")
            return
        left = memory.components.deleted.at("user", user_id)
        if left and not self.deleted and (noted.at is None or noted.at <= left):
            done.deleted += 1
            return
        notes = memory.user(user_id).notes()
        texts = self._texts.get(user_id)
        if texts is None:
            texts = self._texts[user_id] = {note.text for note in notes.all()}
        text = noted.text.strip()
        if text in texts:
            return
        about: dict[str, Any] = {"id": noted.id, "source": self.source}
        if noted.about and len(json.dumps(noted.about)) <= _LONGEST:
            about |= noted.about
        elif noted.about:
            done.left_out["long metadata of notes"] += 1
        try:
            notes.add(text, about, at=noted.at, key=f"import {self.source} {noted.id}")
        except Conflict:
            done.fail(noted.where, _OTHER)
        except InvalidInput as error:
            done.fail(noted.where, str(error))
        else:
            texts.add(text)
            done.new_notes += 1


_OTHER = "it was imported before with other content. The earlier content stays"
_MARK = "imported"  # the key of a message's id and source in its metadata
_BATCH_SIZE = 200  # maximum number of messages in one transaction
_PAGE = 500
_MESSAGE = 500  # overhead of a message, in characters
_FIRST = datetime(1, 1, 2, tzinfo=UTC)


class _Session:
    """Writes the messages of a session that are not in its log."""

    def __init__(self, memory: AgentMemory, terms: _Import, begun: SessionBegin) -> None:
        self.begun = begun
        self.user_id = terms.user_of(begun.user_id)
        self.is_new = True  # whether the session has no log yet
        self._is_whole = True  # whether the log still has its first message
        self._memory, self._terms, self._done = memory, terms, terms.done
        self.stored = self._read()  # the digests of this source's messages in the log, by id
        self._is_refused = self._is_first = self._is_checked = False
        self._is_filtered = self._is_cut = False
        self._last = next(reversed(self.stored), None)  # the id of the last message
        self._since: datetime | None = None  # when the session or its user was deleted
        self._waiting: list[tuple[SourceMessage, Message]] = []

    def _read(self) -> dict[str, str]:
        stored: dict[str, str] = {}
        after = 0
        while page := self._memory.history(self.begun.session_id, after=after, limit=_PAGE):
            # if retention has removed entries, the page begins after them
            self._is_whole &= page[0].seq == after + 1
            self.is_new, after = False, page[-1].seq
            for entry in page:
                mark = mapping(entry.message.metadata.get(_MARK))
                if mark.get("source") == self._terms.source and isinstance(mark.get("id"), str):
                    stored[mark["id"]] = digest_of([entry.message])
        return stored

    @property
    def is_empty(self) -> bool:
        return self.is_new and self._last is None

    def ends_with(self, own: str | None) -> bool:
        """Return whether a message is the last of this source. True if that cannot be known."""
        return not self._is_whole or self._last in (None, own)

    def add(self, source: SourceMessage, message: Message) -> int:
        """Buffer a message. Return the approximate number of characters added to the buffer."""
        if self._is_refused:
            return 0
        if (before := self.stored.get(source.id)) is not None:
            self._check_owner()
            if before != digest_of([message]):
                self._done.fail(source.where, _OTHER)
            return 0
        self._last = source.id
        self._waiting.append((source, message))
        if len(self._waiting) >= _BATCH_SIZE:
            self.flush()
        return _MESSAGE + len(repr(source.message))

    def _check_owner(self) -> None:
        """If the session was imported before for another user, assign or count it."""
        if self.user_id is None or self._is_checked:
            return
        self._is_checked = True
        head = self._memory.head(self.begun.session_id)
        if head is None or head.user_id == self.user_id:
            return
        if head.user_id is None and self._terms.assign:
            self._memory.describe(head.session_id, head.metadata, user_id=self.user_id)
            self._done.assigned += 1
            return
        self._done.elsewhere[head.user_id] += 1

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting or self._is_refused:
            return
        try:
            if waiting := self._not_deleted(waiting):
                if self.is_new:
                    if self.begun.about:  # stored first, in case the import is interrupted
                        about = self.begun.about
                        self._memory.describe(self.begun.session_id, about, user_id=self.user_id)
                    self.is_new, self._is_first = False, True
                self._write(waiting)
        except AccessDenied as error:
            self._is_refused = True
            self._done.fail(self.begun.session_id, str(error))

    def _not_deleted(
        self, waiting: list[tuple[SourceMessage, Message]]
    ) -> list[tuple[SourceMessage, Message]]:
        """Return the messages to store: all, or only those that were not deleted earlier."""
        gone, session_id = self._memory.components.deleted, self.begun.session_id
        if not self._is_filtered:
            self._is_filtered = True
            deleted, left = gone.at("session", session_id), gone.at("user", self.user_id)
            if self._terms.deleted and deleted is not None:
                gone.lift(Head(session_id, None, created_at=_FIRST))
            elif not self._terms.deleted:
                self._since = max((at for at in (deleted, left) if at is not None), default=None)
                self._is_refused = self.is_new and deleted is not None
        remaining = [pair for pair in waiting if not self._was_deleted(pair[1])]
        if self._is_refused or len(remaining) < len(waiting):
            self._is_refused |= self.is_new
            self._done.deleted += not self._is_cut
            self._is_cut = True
        return [] if self._is_refused else remaining

    def _was_deleted(self, message: Message) -> bool:
        """Return whether a message has no time, or is not newer than the deletion."""
        is_dated = "created_at" in message.model_fields_set
        return self._since is not None and not (is_dated and message.created_at > self._since)

    def _write(self, waiting: list[tuple[SourceMessage, Message]]) -> None:
        pairs = [(source.id, message) for source, message in waiting]
        try:
            new = self._memory._bring_messages(self.begun.session_id, pairs, self.user_id)
        except InvalidInput as error:
            if len(waiting) == 1:
                self._done.fail(waiting[0][0].where, str(error))
                return
            for pair in waiting:  # nothing was stored: find the invalid message one by one
                self._write([pair])
            return
        self._done.new_messages += new
        if new and self._is_checked:  # the session now has a user
            self._done.elsewhere -= Counter([None])
        if self._is_first and new:  # without new messages, a concurrent import created the session
            self._is_first = False
            self._done.new_sessions += 1
