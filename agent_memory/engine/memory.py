"""`AgentMemory`: the engine. Synchronous, safe to share between threads."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

from agent_memory.config import AgentMemoryConfig
from agent_memory.context import BlockInfo, MemoryContext, Packer
from agent_memory.engine.absorbing import Absorber
from agent_memory.engine.admission import check_id, check_size, system_matters
from agent_memory.engine.bridge import resolve
from agent_memory.engine.deletion import Deletion
from agent_memory.engine.leases import Leases
from agent_memory.engine.overflow import Overflow
from agent_memory.engine.paging import all_heads
from agent_memory.engine.recalling import Recaller
from agent_memory.engine.services import Services
from agent_memory.engine.session import Session
from agent_memory.engine.stats import BlockStats, Progress, Stats
from agent_memory.errors import (
    ConfigError,
    MemoryClosed,
    SessionDeleting,
    SessionOfAnotherUser,
    StoreUnavailable,
)
from agent_memory.fusion import merge
from agent_memory.ltm_blocks.base import Block
from agent_memory.messages import Message
from agent_memory.records import Absorbed, Draft, Entry, Head, Recall, Scope, empty_head
from agent_memory.window import role_of

logger = logging.getLogger(__name__)

_FLUSH_WAIT = 60.0


class AgentMemory:
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
        self._services = Services(self.config)
        resources = self._services.resources
        self._store = resources.store
        self._counter = resources.counter
        self._closed = False
        self.blocks: dict[str, Block] = {}
        try:
            for block in self.config.all_blocks:
                self.blocks[block.name] = block.bind(resources)
        except BaseException:
            self.close()
            raise
        self._leases = Leases(self._store)
        self._absorber = Absorber(self._store, self._leases, list(self.blocks.values()))
        self._deletion = Deletion(self._store, self._leases, self._absorber)
        self._recaller = Recaller(list(self.blocks.values()), self.config.recall_timeout)
        self._strategy = self.config.strategy
        recall_tokens = self.config.max_recall_tokens if self.blocks else 0
        self._overflow = Overflow(
            self._store, self._strategy, resources, self.config.max_tokens, recall_tokens
        )
        self._packer = Packer(
            self._counter,
            self.config.max_tokens,
            self.config.max_recall_tokens,
            self.config.memory_role,
            {b.name: BlockInfo(b.kind, b.max_tokens) for b in self.blocks.values()},
        )

    def __repr__(self) -> str:
        return f"AgentMemory(namespace={self.config.namespace!r}, blocks={list(self.blocks)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def update(self, session_id: str, message: Any, *, user_id: str | None = None) -> Head:
        """Append a message, or a list of them atomically; make room where the window overflows.

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
        drafts = [self._draft(Message.of(one)) for one in given]
        if not drafts:
            return self._owned(session_id, user_id) or empty_head(
                session_id, user_id, datetime.now(UTC)
            )
        room = self.config.max_tokens - self._counter.overhead
        head = self._store.head(session_id) if system_matters(drafts, room) else None
        check_size(drafts, head.system_tokens if head else 0, room)
        try:
            head = self._store.append(session_id, drafts, user_id)
        except SessionDeleting:
            self._deletion.session(session_id)
            head = self._store.append(session_id, drafts, user_id)
        return self._make_room(head)

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
        self._check(session_id, user_id)
        head = self._owned(session_id, user_id)
        entries = self._overflow.window(head) if head else []
        window = self._packer.window(head, entries)
        query = self._query(message)
        if query is None:
            turns = (entry.message for entry in reversed(window[1]))
            query = next((turn for turn in turns if role_of(turn) == "user"), None)
        owner = head.user_id if head and head.user_id is not None else user_id
        found, warnings = self._recaller.recall(Scope(owner, session_id), query)
        shown = {(entry.session_id, entry.seq) for entry in window[1]}
        warnings += [*self._absorber.troubles(), *self._overflow.troubles(head)]
        return self._packer.pack(head, window, merge(found, shown), warnings)

    def delete(self, session_id: str) -> None:
        """Remove the session's log and head, and every record that blocks derived from it.

        Idempotent; a deletion that was interrupted is resumed by the next call for the session.
        Blocks that are no longer configured are deleted from too, in this memory's own store.
        """
        self._check(session_id, None)
        self._deletion.session(session_id)

    def delete_user(self, user_id: str) -> None:
        """The same for all of a user's sessions and records."""
        self._check(None, user_id)
        self._deletion.user(user_id)

    def flush(self, session_id: str | None = None) -> list[Absorbed]:
        """Absorb whatever is pending, now, for one session or for all. Idempotent.

        A stand-in summary is redone too, where the model is back.
        """
        self._check(session_id, None)
        heads = all_heads(self._store) if session_id is None else [self._store.head(session_id)]
        done: list[Absorbed] = []
        for head in heads:
            if head is not None and not head.deleting:
                with self._leases.hold(head.session_id, _FLUSH_WAIT) as held:
                    if not held:
                        done += self._absorber.refused(head)
                        continue
                    done += self._absorber.absorb(head.session_id, insist=True)
                    self._overflow.redo_summary(self._store.head(head.session_id) or head)
        return done

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
        with self._leases.hold(session_id, _FLUSH_WAIT) as held:
            while True:
                head = self._store.head(session_id)
                if head is None or head.deleting or count < 1:
                    return []
                if not held:
                    raise StoreUnavailable(
                        f"Session {session_id!r} is being absorbed and did not let go within "
                        f"{_FLUSH_WAIT:g} s. Nothing was taken back; try again."
                    )
                end = max(0, head.end - count)
                taken = self._store.read(session_id, after=end)
                for name, block in self._absorber.blocks.items():
                    if head.cursors.get(name, 0) > end:
                        resolve(block.delete(Scope(head.user_id, session_id, after=end)))
                if self._store.truncate(self._overflow.shortened(head, end, taken), end):
                    return [entry.message for entry in taken]

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        """A page of sessions in order of their ids: those after `after`, of one user if named."""
        self._check(None, user_id)
        page = self._store.sessions(user_id=user_id, limit=limit, after=after)
        return [head for head in page if not head.deleting]

    def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        limit: int = 10,
    ) -> list[Recall]:
        """What blocks recall, merged best first, without a window.

        Args:
            query: What to look for.
            user_id: Whose memory to search.
            session_id: Only what comes from this session (and what holds for everyone).
            limit: At most this many.

        Without user and session, only what holds for everyone is searched.
        """
        self._check(session_id, user_id)
        head = self._owned(session_id, user_id) if session_id is not None else None
        owner = head.user_id if head and head.user_id is not None else user_id
        found, warnings = self._recaller.recall(
            Scope(owner, session_id), Message(role="user", content=query)
        )
        for warning in warnings:
            logger.warning("search: %s", warning)
        merged = [
            recall
            for recall in merge(found)
            if session_id is None
            or not recall.sources
            or any(source[0] == session_id for source in recall.sources)
        ]
        return [
            replace(recall, tokens=self._counter.text(recall.text)) for recall in merged[:limit]
        ]

    def replay(self, block: str) -> Iterator[Progress]:
        """Rebuild one block from the log, session by session, while other calls go on.

        Args:
            block: Its name.

        Yields:
            Progress after each session.

        Raises:
            ConfigError: No absorbing block has that name.
        """
        self._check(None, None)
        if block not in self._absorber.blocks:
            known = ", ".join(self._absorber.blocks) or "none"
            raise ConfigError(f"No block named {block!r} absorbs the log. Blocks that do: {known}.")
        return self._replayed(block)

    def session(self, session_id: str, user_id: str | None = None) -> Session:
        """The same calls with the ids bound."""
        self._check(session_id, user_id)
        return Session(self, session_id, user_id)

    def stats(self) -> Stats:
        """Counts, what each block still has to absorb, model calls, tokens and cost."""
        self._check(None, None)
        counts = self._store.counts()
        lags = dict.fromkeys(self._absorber.blocks, 0)
        for head in all_heads(self._store):
            for name in lags:
                lags[name] += head.end - head.cursors.get(name, 0)
        blocks = {
            name: BlockStats(lag, self._absorber.errors.get(name)) for name, lag in lags.items()
        }
        return Stats(counts.sessions, counts.entries, blocks, self._services.ledger.snapshot())

    def close(self) -> None:
        """Release connections. Idempotent; other calls raise `MemoryClosed` afterwards."""
        if not self._closed:
            self._closed = True
            for block in self.blocks.values():
                block.close()
            self._store.close()

    def _check(self, session_id: str | None, user_id: str | None) -> None:
        if self._closed:
            raise MemoryClosed("This memory was closed. Open a new AgentMemory.")
        if session_id is not None:
            check_id("session_id", session_id)
        if user_id is not None:
            check_id("user_id", user_id)

    def _draft(self, message: Message) -> Draft:
        return Draft(message, self._counter.message(message), self._counter.encoding)

    def _make_room(self, head: Head) -> Head:
        """Settle an overflowing window and feed the blocks; whatever fails is tried again later."""
        session_id, due = head.session_id, self._due(head)
        if due is None and head.window_tokens <= self._overflow.limit(head):
            return head
        try:
            with self._leases.hold(head.session_id) as held:
                if held:
                    head = self._overflow.settle(head)
                    upto = max(head.start, due or 0)
                    if self._absorber.blocks and upto > 0:
                        self._absorber.absorb(head.session_id, upto)
                        head = self._store.head(head.session_id) or head
        except Exception:  # the messages are stored: room is made by a later call
            logger.exception("session %r not settled; it will be tried again", session_id)
        return head

    def _due(self, head: Head) -> int | None:
        """The seq up to which blocks are to absorb now, by the strategy's word; None: not yet."""
        when = self._strategy.absorbs
        cursors = [head.cursors.get(name, 0) for name in self._absorber.ready()]
        behind = min(cursors, default=head.end)
        if behind < head.start:  # what left the window earlier and could not be absorbed then
            return head.start
        if when == "overflow":
            return None
        if when == "every_update":
            return head.end if behind < head.end else None
        reached = self._store.pick(head.session_id, [behind]) if behind else []
        waiting = head.total - (reached[0].total if reached else 0)
        return head.end if waiting >= when else None

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

    def _query(self, message: Any) -> Message | None:
        if message is None or isinstance(message, Message):
            return message
        if isinstance(message, str):
            return Message(role="user", content=message)
        return Message.of(message)

    def _replayed(self, block: str) -> Iterator[Progress]:
        total = self._store.counts().sessions
        for done, head in enumerate(all_heads(self._store), 1):
            with self._leases.hold(head.session_id, _FLUSH_WAIT) as held:
                error = None if held else "another worker holds the session"
                if held and not head.deleting:
                    self._absorber.rewind(head.session_id, block)
                    fed = self._absorber.absorb(head.session_id, only=block, insist=True)
                    error = next((one.error for one in fed if one.error), None)
            yield Progress(block, head.session_id, done, max(done, total), error)
