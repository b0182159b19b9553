"""`AgentMemory`: the engine. Synchronous, safe to share between threads."""

from __future__ import annotations

import logging
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Self

from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.context import MemoryContext, Shown
from agent_memory.core.fusion import merge
from agent_memory.core.messages import Message
from agent_memory.core.records import (
    Absorbed,
    DeadLetter,
    Draft,
    Entry,
    Head,
    Recall,
    empty_head,
)
from agent_memory.core.window import role_of
from agent_memory.engine.admission import check_block, check_id, check_size, fit_anyhow
from agent_memory.engine.assembly import assemble
from agent_memory.engine.calls import scope_of
from agent_memory.engine.fact_calls import FactCalls
from agent_memory.engine.handle_calls import HandleCalls
from agent_memory.engine.paging import all_heads, page_of
from agent_memory.engine.processing.worker import Worker
from agent_memory.engine.regenerate_calls import RegenerateCalls
from agent_memory.engine.search_calls import SearchCalls
from agent_memory.engine.session import Session
from agent_memory.engine.share_calls import ShareCalls
from agent_memory.engine.snapshot_calls import SnapshotCalls
from agent_memory.engine.stats import BlockStats, Progress, Stats
from agent_memory.engine.tool_calls import ToolCalls
from agent_memory.errors import (
    MemoryClosed,
    SessionDeleting,
    SessionOfAnotherUser,
)
from agent_memory.ltm_blocks.base import NoteBlock
from agent_memory.models.loading import load_in_background

logger = logging.getLogger(__name__)

_WAIT = 60.0


class AgentMemory(
    SearchCalls, FactCalls, HandleCalls, ToolCalls, RegenerateCalls, ShareCalls, SnapshotCalls
):
    """Memory of an agent: sessions within a token budget, long-term blocks per user.

    Give a configuration, or its fields: `AgentMemory(max_tokens=8000, model="openai/gpt-4o-mini")`.
    Share one between threads; use it as a context manager, or call `close`.

    Args:
        config: All settings; None takes the defaults (one SQLite file, no model).
        **fields: Fields of `AgentMemoryConfig`, over those of `config`.

    Raises:
        ConfigError: The configuration cannot work: an unknown store, a missing extra, vectors of
            another dimension.
        pydantic.ValidationError: A field is unknown or its value bad.
        StoreError: The store cannot be opened.
    """

    def __init__(self, config: AgentMemoryConfig | None = None, **fields: Any) -> None:
        if config is not None and fields:
            fields = {**{name: getattr(config, name) for name in config.model_fields_set}, **fields}
        self.config = AgentMemoryConfig(**fields) if config is None or fields else config
        ShareCalls.__init__(self)
        self._parts = assemble(self.config)
        self._store, self._counter = self._parts.store, self._parts.services.resources.counter
        self.blocks = self._parts.blocks
        self._closed = False
        self._will_ask_models = bool(self.config.language_models)
        self._background: Worker | None = None
        if self.config.overflow_mode == "background":
            self._background = self._parts.worker(self.config.background_threads)
            self._background.start()
            # the threads of a memory that was dropped without `close` end too
            weakref.finalize(self, self._background.stop, 0).atexit = False

    def __repr__(self) -> str:
        return f"AgentMemory(namespace={self.config.namespace!r}, blocks={list(self.blocks)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def update(self, session_id: str, message: Any, *, user_id: str | None = None) -> Head:
        """Append a message, or a list of them atomically; make room where the window overflows.

        With `overflow_mode="background"` the room is made after this returns.

        Args:
            session_id: The conversation.
            message: An OpenAI chat dict, a `Message`, an object with `model_dump()`, or a list of
                these. A system message replaces the session's system message.
            user_id: The user it belongs to. A session belongs to the first user named for it.

        Returns:
            The session's head afterwards. The messages are durable, whatever became of making room.

        Raises:
            InvalidInput: An id or a message is not usable, or a message could never fit the budget;
                nothing was stored.
            SessionOfAnotherUser: The session belongs to another user.
            StoreError: The store failed; nothing was stored.
        """
        self._check(session_id, user_id)
        given = message if isinstance(message, list | tuple) else [message]
        if not given:
            return self._owned(session_id, user_id) or empty_head(
                session_id, user_id, datetime.now(UTC)
            )
        try:
            head = self._append(session_id, given, user_id)
        except SessionDeleting:
            self._parts.deletion.finish(session_id)
            head = self._append(session_id, given, user_id)
        head = self._settle(head)
        if self._will_ask_models:  # begun after the first update, the import delays it least
            self._will_ask_models = False
            load_in_background()
        return head

    def get(
        self, session_id: str, message: Any = None, *, user_id: str | None = None
    ) -> MemoryContext:
        """The window, plus what the blocks recall for `message`; never above the budget.

        Args:
            session_id: The conversation; one that does not exist yet gives recalls only.
            message: Text or a message to recall for; it is not appended. None recalls for the
                newest user message of the window.
            user_id: The user, needed where the session does not exist yet.

        Raises:
            InvalidInput: An id or the message is not usable.
            SessionOfAnotherUser: The session belongs to another user.
            StoreError: The session store failed. Blocks that fail are named in `warnings`.
        """
        head, window, query = self._asked(session_id, message, user_id)
        scope, most = scope_of(head, user_id, session_id), self._parts.packer.candidates
        found, warnings = self._recall(self._parts.recaller, scope, query, most)
        recalls: list[Recall] = []
        if any(found.values()):
            recalls = merge(found, {(entry.session_id, entry.seq) for entry in window.turns})
        warnings += self._troubles(head)
        question = query.text() if query is not None else ""
        return self._parts.packer.pack(head, window, recalls, warnings, question)

    def delete(self, session_id: str) -> None:
        """Remove the session's log and head, and every record that blocks derived from it.

        Idempotent; a deletion that was interrupted is resumed by the next call for the session.
        Blocks that are no longer configured are deleted from too, in this memory's own store.
        """
        self._check(session_id, None)
        self._parts.deletion.session(session_id)

    def delete_user(self, user_id: str) -> None:
        """The same for all of a user's sessions and records."""
        self._check(None, user_id)
        self._parts.deletion.user(user_id)

    def flush(self, session_id: str | None = None) -> list[Absorbed]:
        """Absorb whatever is pending, now, for one session or for all. Idempotent.

        A stand-in summary is redone too, where the model is back.
        """
        self._check(session_id, None)
        if session_id is not None:
            return self._parts.tender.finish(session_id, _WAIT)
        self._parts.deletion.resume()
        heads = all_heads(self._store)
        return [one for head in heads for one in self._parts.tender.finish(head.session_id, _WAIT)]

    def end(self, session_id: str, *, user_id: str | None = None) -> list[Absorbed]:
        """Say that a conversation is over for now: what is pending is absorbed, what was kept for
        its time only (`WorkingMemory`) is cleared. The log stays, and it may go on.

        Raises:
            SessionOfAnotherUser: The session belongs to another user.
        """
        scope = self._scope(user_id, session_id)
        absorbed = self.flush(session_id)
        for block in self.blocks.values():
            block.end(scope)
        return absorbed

    def history(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """The log, past the window too: entries with seq above `after`, at most `limit`."""
        self._check(session_id, None)
        head = self._store.head(session_id)
        if head is None or head.deleting:
            return []
        return self._store.read(session_id, after=after, limit=limit)

    def pop(self, session_id: str, count: int = 1) -> list[Message]:
        """Take the newest messages back (regenerate, undo), with the records derived from them.

        Returns:
            The messages taken, oldest first; fewer than `count` where there are no more.
        """
        self._check(session_id, None)
        return self._parts.undo.pop(session_id, count)

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        """A page of sessions in order of their ids: those after `after`, of one user if named.

        Those of shared namespaces are not among them: see `Share.sessions`.
        """
        self._check(None, user_id)
        return page_of(self._store, user_id, limit=limit, after=after)

    def replay(self, block: str) -> Iterator[Progress]:
        """Rebuild one block from the log, session by session, while other calls go on.

        A replay that was interrupted goes on where it stopped, when it is called again.

        Args:
            block: Its name.

        Yields:
            Progress after each session.

        Raises:
            ConfigError: No absorbing block has that name.
        """
        self._check(None, None)
        check_block(block, self._parts.absorber.blocks)
        return self._parts.replay.run(block)

    def dead_letters(self, block: str | None = None) -> list[DeadLetter]:
        """The messages that blocks gave up absorbing: those of one block, or of all.

        Raises:
            ConfigError: No absorbing block has that name.
        """
        self._check(None, None)
        if block is not None:
            check_block(block, self._parts.absorber.blocks)
        names = [block] if block is not None else list(self._parts.absorber.blocks)
        return [letter for name in names for letter in self._parts.failures.dead(name)]

    def retry(self, block: str | None = None) -> list[Absorbed]:
        """Have blocks absorb their dead letters, now: those of one block, or of all.

        Returns:
            What became of each; one that failed again stays a dead letter.

        Raises:
            ConfigError: No absorbing block has that name.
        """
        return [self._parts.tender.retry(letter, _WAIT) for letter in self.dead_letters(block)]

    def session(self, session_id: str, user_id: str | None = None) -> Session:
        """The same calls with the ids bound."""
        self._check(session_id, user_id)
        return Session(self, session_id, user_id)

    def stats(self) -> Stats:
        """Counts, what each block still has to absorb, model calls, tokens and cost."""
        self._check(None, None)
        counts = self._store.counts()
        lags: Counter[str] = Counter()
        for head in all_heads(self._store):
            lags.update({name: head.lag(name) for name in self._parts.absorber.blocks})
        errors, failures = self._parts.absorber.errors, self._parts.failures
        blocks = {
            name: BlockStats(lags[name], errors.get(name), len(failures.dead(name)))
            for name in self._parts.absorber.blocks
        }
        usage = self._parts.services.ledger.snapshot()
        return Stats(counts.sessions, counts.entries, blocks, usage)

    def close(self) -> None:
        """Finish background work, release connections. Idempotent.

        Other calls raise `MemoryClosed` afterwards.
        """
        if not self._closed:
            self._closed = True
            if self._background is not None:
                self._background.drain()
                self._background.stop()
            self._parts.close()

    def _check(self, session_id: str | None, user_id: str | None) -> None:
        if self._closed:
            raise MemoryClosed("This memory was closed. Open a new AgentMemory.")
        if session_id is not None:
            check_id("session_id", session_id)
        if user_id is not None:
            check_id("user_id", user_id)

    @property
    def _notes(self) -> NoteBlock:
        return self._parts.notebook

    def _draft(self, message: Message) -> Draft:
        return Draft(message, self._counter.message(message), self._counter.encoding)

    def _append(self, session_id: str, given: Sequence[Any], user_id: str | None) -> Head:
        with self._parts.gate.turn(given):
            drafts = self._drafts(session_id, given)
            head = self._store.append(session_id, drafts, user_id)
            self._parts.windows.appended(head, drafts)
            return head

    def _drafts(self, session_id: str, given: Sequence[Any]) -> list[Draft]:
        """What is to be appended, if it can fit."""
        drafts = [self._draft(Message.of(one)) for one in given]
        room = self.config.max_tokens - self._counter.overhead
        if not fit_anyhow(drafts, room):
            head = self._store.head(session_id)
            check_size(drafts, head.system_tokens if head else 0, room)
        return drafts

    def _settle(self, head: Head) -> Head:
        """See to what an update leaves to do; its messages are stored, whatever becomes of it."""
        try:
            if not self._parts.tender.needed(head):
                return head
            if self._background is not None:
                self._background.wake(head)
                return head
            return self._parts.tender.attend(head)
        except Exception:  # the messages are stored: the next call tends the session
            logger.exception("session %r not tended; it will be tried again", head.session_id)
            return head

    def _owned(self, session_id: str, user_id: str | None) -> Head | None:
        head = self._store.head(session_id)
        if head is None or head.deleting:
            return None
        if user_id is not None and head.user_id not in (None, user_id):
            raise SessionOfAnotherUser(
                f"Session {session_id!r} belongs to another user. Use that user's id, or start "
                "a session with an id of its own."
            )
        return head

    def _asked(
        self, session_id: str, message: Any, user_id: str | None
    ) -> tuple[Head | None, Shown, Message | None]:
        """A session's head and window, and what to recall for."""
        self._check(session_id, user_id)
        head = self._owned(session_id, user_id)
        entries = self._parts.windows.of(head) if head else []
        window = self._parts.packer.window(head, entries)
        query = self._query(message)
        if query is None:
            turns = (entry.message for entry in reversed(window.turns))
            query = next((turn for turn in turns if role_of(turn) == "user"), None)
        return head, window, query

    def _troubles(self, head: Head | None) -> list[str]:
        """What a context of a session should warn of, whatever was recalled."""
        return [*self._parts.absorber.troubles(), *self._parts.overflow.troubles(head)]

    def _query(self, message: Any) -> Message | None:
        if message is None or isinstance(message, Message):
            return message
        if isinstance(message, str):
            return Message(role="user", content=message)
        return Message.of(message)
