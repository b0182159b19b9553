"""Writing the messages of one session that is imported."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agent_memory.core.messages import Message
from agent_memory.core.once import digest_of
from agent_memory.core.records import empty_head
from agent_memory.errors import AccessDenied, InvalidInput
from agent_memory.integrations.imports.chats import Begun, Said

if TYPE_CHECKING:
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.integrations.imports.imported import Imported

_AT_ONCE = 200  # messages in one transaction
_PAGE = 500
_MESSAGE = 500  # what a message takes beside its text, in characters
_FIRST = datetime(1, 1, 2, tzinfo=UTC)


class SessionWriting:
    """Writes the messages of a session that its log does not have.

    Args:
        memory: Where to.
        source: The name of the source.
        done: What became of the import so far.
        begun: What the source says of the session.
        user_id: Whose it is.
        deleted: Whether it is brought back if it was deleted here.

    Attributes:
        begun: As given.
        is_new: Whether it has no log yet.
        known: What its log has of the source: for each id a digest.
        parted: Where its log has what is another branch by now: the session in which it goes on.
        asked: The question that was told last.
    """

    def __init__(
        self,
        memory: AgentMemory,
        source: str,
        done: Imported,
        begun: Begun,
        user_id: str | None,
        *,
        deleted: bool,
    ) -> None:
        self.begun = begun
        self.parted: str | None = None
        self.asked: Said | None = None
        self._memory = memory
        self._source = source
        self._done = done
        self._user_id = user_id
        self._deleted = deleted
        self.is_new = True
        self._newest: str | None = None
        self.known = self._read()
        self._is_refused = self._is_first = False
        self._waiting: list[tuple[Said, Message]] = []

    def _read(self) -> dict[str, str]:
        known: dict[str, str] = {}
        after, is_whole = 0, True
        while page := self._memory.history(self.begun.session_id, after=after, limit=_PAGE):
            is_whole &= page[0].seq == after + 1  # else a retention has removed what was before
            self.is_new, after = False, page[-1].seq
            for entry in page:
                notes = entry.message.metadata
                if notes.get("source") == self._source and isinstance(notes.get("id"), str):
                    known[notes["id"]] = digest_of([entry.message])
        if is_whole:
            self._newest = next(reversed(known), None)
        return known

    def parts_at(self, own: str) -> bool:
        """Whether a message is new, and the log has ended otherwise than what was told so far."""
        if own == self._newest:
            self._newest = None
        has_ended = self._newest is None or self.parted is not None
        return self.begun.is_tree and not has_ended and own not in self.known

    @property
    def state(self) -> tuple[str | None, str | None]:
        """What is to be known of it where it is opened again: what its log ended with before the
        import, if that was not told yet, and where it goes on.
        """
        return self._newest, self.parted

    @state.setter
    def state(self, state: tuple[str | None, str | None]) -> None:
        self._newest, self.parted = state

    def add(self, said: Said, message: Message) -> int:
        """Take a message, to be written with others; about how many characters wait for that now
        that did not before.
        """
        if said.is_question:
            self.asked = said
        if self._is_refused:
            return 0
        if (before := self.known.get(said.id)) is not None:
            if before != digest_of([message]):
                told = "it was imported before, and says something else now; what was is kept"
                self._done.fail(said.where, told)
            return 0
        self._waiting.append((said, message))
        if len(self._waiting) >= _AT_ONCE:
            self.flush()
        return _MESSAGE + _weight(said.message)

    def flush(self) -> None:
        """Write what waits."""
        waiting, self._waiting = self._waiting, []
        if not waiting or self._is_refused:
            return
        try:
            if self.is_new and not self._begin():
                return
            self._write(waiting)
        except AccessDenied as error:
            self._is_refused = True
            self._done.fail(self.begun.session_id, str(error))

    def _begin(self) -> bool:
        """Begin it; whether it may."""
        session_id = self.begun.session_id
        gone, head = self._memory.components.deleted, empty_head(session_id, None, _FIRST)
        if gone.since(head) is not None:
            if not self._deleted:
                self._is_refused = True
                self._done.deleted += 1
                return False
            gone.lift(head)
        if self.begun.about:  # first, so that an import that is cut short has said it
            self._memory.describe(session_id, self.begun.about, user_id=self._user_id)
        self.is_new, self._is_first = False, True
        return True

    def _write(self, waiting: list[tuple[Said, Message]]) -> None:
        given = [(said.id, message) for said, message in waiting]
        try:
            bring = self._memory._bring_messages
            new = bring(self.begun.session_id, given, self._user_id)
        except InvalidInput as error:
            if len(waiting) == 1:
                self._done.fail(waiting[0][0].where, str(error))
                return
            for one in waiting:  # all or none are stored: which is it?
                self._write([one])
            return
        self._done.new_messages += new
        if self._is_first and new:  # else another import was first
            self._is_first = False
            self._done.new_sessions += 1


def _weight(value: Any) -> int:
    """How many characters a value holds, about."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_weight, value.values())) + 8 * len(value)
    return sum(map(_weight, value)) if isinstance(value, list) else 8
