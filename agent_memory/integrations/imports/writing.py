"""ImportWriting what a reader gives: once, however often it is imported, and without a model.

What a session holds already is looked up in its log, where each imported message has its source and
its id in the metadata. The keys of the store keep two imports at the same time apart, and know what
a `retention` has removed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_memory.core.messages import Message
from agent_memory.errors import InvalidInput
from agent_memory.integrations.imports.chats import (
    Begun,
    Event,
    Noted,
    Omitted,
    Said,
    Unread,
    again,
    usable,
)
from agent_memory.integrations.imports.imported import Imported
from agent_memory.integrations.imports.notes import NoteWriting
from agent_memory.integrations.imports.session import SessionWriting
from agent_memory.integrations.loose import mapping

if TYPE_CHECKING:
    from agent_memory.engine.memory import AgentMemory

_OPEN = 1_000  # sessions that are looked after at a time
_KNOWN = 100_000  # messages of theirs that were there before
_HEAVY = 4_000_000  # characters that wait to be written


class ImportWriting:
    """Writes what a reader gives.

    Args:
        memory: Where to; None only counts.
        source: The name of the source.
        user_id: Whose all of it is; None leaves that to the source.
        deleted: Whether sessions are brought back that were deleted here.

    Attributes:
        done: What was found, and what became of it.
    """

    def __init__(
        self, memory: AgentMemory | None, source: str, user_id: str | None, deleted: bool
    ) -> None:
        self.done = Imported()
        self._memory = memory
        self._source = source
        self._user_id = user_id
        self._deleted = deleted
        self._begun: dict[str, Begun] = {}
        self._said: set[str] = set()
        self._open: OrderedDict[str, SessionWriting] = OrderedDict()
        self._waiting = self._known = 0
        self._states: dict[str, tuple[str | None, str | None]] = {}
        self._notes = None if memory is None else NoteWriting(memory, source, self.done)

    def run(self, events: Iterable[Event]) -> Imported:
        """Take all of it; what was found, and what became of it."""
        for event in events:
            match event:
                case Begun():
                    if event.session_id not in self._begun:
                        about = {**event.about, "source": self._source}
                        self._begun[event.session_id] = replace(event, about=about)
                case Said():
                    self._say(event)
                case Noted():
                    self.done.notes += 1
                    if self._notes is not None:
                        self._notes.write(event, self._user_id)
                case Unread():
                    self.done.fail(event.where, event.why)
                case Omitted():
                    self.done.left_out[event.kind] += 1
        self._flush()
        self.done.sessions = len(self._said)
        return self.done

    def _say(self, said: Said) -> None:
        try:
            message = self._message(said)
        except InvalidInput as error:
            self.done.fail(said.where, str(error))
            return
        self._said.add(said.session_id)
        if not said.is_again:
            self.done.saw(message)
        if self._memory is None:
            return
        session = self._opened(said.session_id)
        if session.begun.session_id == said.session_id:
            if session.parts_at(said.id):
                self._part(session, said)
            if session.parted is not None:
                session = self._opened(session.parted)
        elif said.is_again:
            return  # of what a branch was when it was imported first, it is in there
        self._waiting += session.add(said, message)
        if self._waiting >= _HEAVY:
            self._flush()

    def _message(self, said: Said) -> Message:
        notes = mapping(said.message.get("metadata"))
        notes = {**notes, "id": said.id, "source": self._source}
        return Message.of({**said.message, "metadata": notes})

    def _flush(self) -> None:
        for session in self._open.values():
            session.flush()
        self._waiting = 0

    def _opened(self, session_id: str) -> SessionWriting:
        """The session that a message goes to; the one that was not used for longest is closed."""
        found = self._open.get(session_id)
        if found is None:
            found = self._open[session_id] = self._placed(self._begun[session_id])
            self._known += len(found.known)
            while len(self._open) > _OPEN or (self._known > _KNOWN and len(self._open) > 1):
                _, oldest = self._open.popitem(last=False)
                self._known -= len(oldest.known)
                oldest.flush()
                if oldest.begun.is_tree:
                    self._states[oldest.begun.session_id] = oldest.state
        self._open.move_to_end(session_id)
        return found

    def _placed(self, begun: Begun) -> SessionWriting:
        assert self._memory is not None
        user_id = self._user_id or (None if begun.user_id is None else usable(begun.user_id))
        place = (self._memory, self._source, self.done)
        found = SessionWriting(*place, begun, user_id, deleted=self._deleted)
        if begun.session_id in self._states:
            found.state = self._states[begun.session_id]
        if begun.branch is not None and found.is_new:
            # what is a branch by now was what went on when it was imported first
            main = self._opened(begun.branch)
            return main if begun.first in main.known else found
        return found

    def _part(self, main: SessionWriting, said: Said) -> None:
        """Have a conversation go on elsewhere whose log has what is another branch by now."""
        branch = usable(f"{said.session_id}~{said.id}")
        about = {**main.begun.about, "branch_of": said.session_id}
        self._begun[branch] = Begun(branch, main.begun.user_id, about)
        main.parted = branch
        if main.asked is not None and not said.is_question:
            once_more = again(main.asked)
            self._opened(branch).add(once_more, self._message(once_more))
