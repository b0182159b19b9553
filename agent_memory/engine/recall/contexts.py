"""Contexts: a session's window, plus the records that blocks recall for a message."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_memory.core.cache import Cache
from agent_memory.core.compactions import native
from agent_memory.core.context import BlockInfo, MemoryContext, left_out_of, without_context
from agent_memory.core.formats.registry import format_of
from agent_memory.core.fusion import merge
from agent_memory.core.limits import quoted
from agent_memory.core.messages import Message
from agent_memory.core.packing import Packer, Shown
from agent_memory.core.prompt_log import LoggedPrompt, encode_context
from agent_memory.core.query_text import is_small_talk, query_message, with_earlier
from agent_memory.core.records import Entry, Head, LeftOut, Recall, Scope
from agent_memory.core.rendering import OPENING
from agent_memory.core.shapes import newest_user, role_of, user_messages
from agent_memory.core.threads import off_main_thread
from agent_memory.core.usage import Usage
from agent_memory.core.window import ruled
from agent_memory.engine.guard import scope_of
from agent_memory.engine.paging import picked_of, still_exists
from agent_memory.engine.recall.fan_out import FanOut
from agent_memory.engine.recall.prompt_log import Prompts
from agent_memory.errors import InvalidBudget, StoreError
from agent_memory.ltm_blocks.base import Block
from agent_memory.models.usage import Account, current_account
from agent_memory.stores.base import SessionStore

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components

logger = logging.getLogger(__name__)

_MOST_CONTEXTS = 100  # maximum number of sessions whose last context is cached
_IS_MEANT = 0.5  # minimum relevance of a recall that counts as an answer to the question

BlockRecalls = dict[str, list[Recall]]


Pack = Callable[[Sequence[Message]], MemoryContext]
"""Returns a context that ends with the given messages of the current turn."""


class LoadedSession(NamedTuple):
    """A session as it was read, before blocks recall.

    `messages` are the messages of the current turn. `query` is the message to recall for. `window`
    has the messages that the context shows.
    """

    packer: Packer
    head: Head | None
    entries: list[Entry]
    messages: Sequence[Message]
    query: Message | None
    scope: Scope
    window: Shown

    def search_message(self) -> Message | None:
        """Return the message to recall for. If it follows up a question, the question is added."""
        if self.query is None:
            return None
        entries = (entry.message for entry in reversed(self.entries))
        return with_earlier(self.query, user_messages(chain(reversed(self.messages), entries)))


class View(NamedTuple):
    """A session and its recalls, from which contexts are packed.

    `among` names the blocks whose sources are in the session's store. None means all blocks.
    """

    session: LoadedSession
    recalls: BlockRecalls
    warnings: list[str]
    among: Collection[str] | None = None
    usage: Usage = Usage()

    def context(self, window: Shown | None = None) -> MemoryContext:
        """Return the context. Pass `window` if the turn has more messages than at the beginning."""
        session = self.session
        window = window or session.window
        recalls = self.merged(window)
        text = session.query.text() if recalls and session.query is not None else ""
        packed = session.packer.pack(session.head, window, recalls, self.warnings, text)
        return packed if self.usage == Usage() else replace(packed, usage=self.usage)

    def merged(self, window: Shown, *, low_scores: bool = False) -> list[Recall]:
        """Return the merged recalls, best first, without messages that the window shows in full.

        With `low_scores`, include recalls that score far below the best recall of their block.
        """
        if not any(self.recalls.values()):
            return []
        query = self.session.query
        text = query.text() if query is not None else ""
        floors = {} if low_scores else self.session.packer.floors(text)
        shown = self.session.scope.shown if window is self.session.window else window.sources
        return merge(self.recalls, shown, self.among, floors)

    def left_out(self, context: MemoryContext, window: Shown) -> list[LeftOut]:
        """Return the recalls that a context leaves out, each with the reason."""
        every = [recall for recalls in self.recalls.values() for recall in recalls]
        merged = self.merged(window, low_scores=True)
        return left_out_of(every, merged, self.merged(window), context)

    def window(self, messages: Sequence[Message]) -> Shown:
        """Return the part of the window that a context shows together with these messages."""
        session = self.session
        if messages is session.messages:
            return session.window
        return session.packer.window(session.head, session.entries, messages)


class Contexts:
    """Reads sessions and blocks, and packs contexts."""

    def __init__(self, parts: Components) -> None:
        self._parts, self._store, self._guard = parts, parts.store, parts.guard
        self._prompt_log, self.prompts = parts.prompt_log, Prompts()
        # the last context of each session, with the turn's question if it is not in the log
        self._last: Cache[str, tuple[MemoryContext, Sequence[Message]]] = Cache(_MOST_CONTEXTS)
        self.blocks = list(parts.all_blocks.values()) if parts.blocks else []
        if parts.log_block is not None and parts.absorber.blocks:
            self.blocks.append(parts.log_block)
        config = parts.config
        self.packer = Packer(
            parts.resources.counter,
            config.max_tokens,
            config.recall_tokens,
            config.memory_role,
            {
                block.name: BlockInfo(block.kind, block.max_tokens, block.selective)
                for block in self.blocks
            },
            config.max_messages,
            config.strategy.share,
            config.strategy.summary_tokens,
            cuts=config.min_relevance > 0,
        )
        limit, store_id = config.recall_timeout, config.namespace
        self._recaller = FanOut(limit, blocks=self.blocks, store_id=store_id)

    def get(
        self,
        session_id: str,
        message: Any,
        user_id: str | None,
        max_tokens: int | None = None,
        form: str | None = None,
        shown: Sequence[Any] | None = None,
    ) -> MemoryContext:
        """Return a context. Packing runs on the caller's thread."""
        query = query_of(message)
        packer = self.packer.lowered(checked_budget(max_tokens))
        options: dict[str, Any] = {"packer": packer, "query": query, "form": form, "shown": shown}
        session = self.see(session_id, to_add(query), user_id, dedupe=True, **options)
        return self.sending(session_id, self.view(session), form)(session.messages)

    @off_main_thread
    def were(
        self, session_id: str, user_id: str | None, after: int, limit: int | None
    ) -> list[LoggedPrompt]:
        head = self._guard.owned(session_id, user_id)
        if head is None:
            return []
        scope = scope_of(head, user_id, session_id)

        def recall_now(message: Message) -> list[Recall]:
            by_block, _ = self.recall(scope, message)
            return [recall for recalls in by_block.values() for recall in recalls]

        return self._prompt_log.read(head, after, limit, recall_now)

    @off_main_thread
    def begin(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        user_id: str | None,
        reads_turn: bool = False,
    ) -> Pack:
        """Return a function that packs the context of a turn. Call it again as the turn grows.

        With `reads_turn`, the model has a tool that reads shortened messages of the turn in full.
        """
        packer = replace(self.packer, reads_turn=reads_turn)
        session = self.see(session_id, messages, user_id, packer=packer)
        return self.sending(session_id, self.view(session))

    def sending(self, session_id: str, view: View, form: str | None = None) -> Pack:
        """Return a function that packs contexts, counts their recalls and logs the prompts."""
        counted = False

        def pack(messages: Sequence[Message]) -> MemoryContext:
            window = view.window(messages)
            nonlocal counted
            context = self.prompts.noted(view.session.scope, view.context(window), window)
            if not counted:  # recall runs once per turn
                self._count(view.session, context)
                counted = True
            if form is not None:
                context = replace(context, format=form)
            self._last.put(session_id, (context, messages if context.turn_messages else ()))
            if self._prompt_log.on:
                self._keep(session_id, view, window, context)
            return context

        return pack

    def _count(self, session: LoadedSession, context: MemoryContext) -> None:
        query = session.query
        for block in self.blocks:
            ids = [
                recall.id
                for recall in context.recalls
                if recall.block == block.name
                and (recall.relevance is None or recall.relevance >= _IS_MEANT)
            ]
            if ids and block.counts_recalls:
                try:
                    off_main_thread(block.recalled)(session.scope, ids)
                except StoreError as error:  # if the count fails, the context is still returned
                    logger.warning("recalls were not counted: %s", error)
        if self.blocks and query is not None and not is_small_talk(query.text()):
            selective = (context.blocks[recall.block].selective for recall in context.recalls)
            self._parts.recalls.note(hit=any(selective))

    def _keep(self, session_id: str, view: View, window: Shown, context: MemoryContext) -> None:
        session = view.session
        question = session.query.text() if session.query is not None else ""
        left_out = view.left_out(context, window)
        encoded = encode_context(context, window, session.entries, question, left_out)
        self._prompt_log.keep(session_id, encoded, session.scope.user_id, session.head)

    def new_in(self, session_id: str, messages: Sequence[Any]) -> Sequence[Any]:
        """Return an update's messages without a copy of the last context: see `without_context`."""
        context, question = self._last.get(session_id, (None, ()))
        new = without_context(messages, context, question)
        head = context.head if context is not None else None
        if new is messages or head is None or self._is_stored(head):
            return new
        return without_context(messages, None, ())

    def _is_stored(self, head: Head) -> bool:
        """Return whether the log still has the messages of a head: none was popped or deleted."""
        newest = picked_of(self._store, head, [head.end]) if head.end else []
        if head.end and (not newest or newest[0].total != head.total):
            return False
        return still_exists(self._store, head)

    def see(
        self,
        session_id: str,
        messages: Sequence[Message],
        user_id: str | None,
        *,
        packer: Packer | None = None,
        query: Message | None = None,
        dedupe: bool = False,
        form: str | None = None,
        shown: Sequence[Any] | None = None,
    ) -> LoadedSession:
        """Read a session for a context that ends with the given messages.

        `query` is the message to recall for, by default the newest user message. With `dedupe`,
        leave `messages` out if they already end the window. `shown` replaces the session's window.
        """
        head = self._guard.owned(session_id, user_id)
        windows, compaction = self._parts.windows, self._parts.compaction
        entries = compaction.cleared(head, windows.of(head)) if head else []
        packer = packer or self.packer
        if shown is None:
            window = _window(packer, head, entries, messages, dedupe, form)
        else:
            held = frozenset([(session_id, entry.seq) for entry in entries])
            entries = packer.entries(shown)
            begun = head or Head(session_id, user_id, created_at=datetime.now(UTC))
            begun = replace(ruled(begun, entries), start=0)  # these entries are a whole window
            window = _window(packer, begun, entries, messages, dedupe, form)
            window = replace(window, held=held)
        if query is None:
            logged = (entry.message for entry in reversed(entries))
            query = newest_user(chain(reversed(messages), logged))
        scope = scope_of(head, user_id, session_id)
        if self.blocks:
            scope = replace(scope, shown=window.sources)
            query = query and query_message(query)
        return LoadedSession(packer, head, entries, messages, query, scope, window)

    def view(self, session: LoadedSession) -> View:
        with Account("other", session.scope.user_id, within=current_account()).charged() as account:
            by_block, warnings = self.recall(session.scope, session.search_message())
        warnings += self._parts.warnings(session.head)
        warnings += self.waiting(session.scope, session.head)
        return View(session, by_block, warnings, usage=account.usage)

    def waiting(self, scope: Scope, head: Head | None) -> list[str]:
        """Return a warning for each block that has not absorbed all messages.

        Messages in the window of the session `head` do not count, because the context shows them.
        """
        warnings = []
        for block in self.blocks:
            if not block.absorbs or block.recalls_pending or not scope.is_somebodys:
                continue
            count = 0
            for lag in self._parts.resources.pending.lags(block.name, scope):
                own = head is not None and lag.session_id == head.session_id
                count += max(0, (head.start if own and head else lag.end) - lag.after)
            if count:
                wait, by = "messages wait", "are searched by their words until it absorbs them"
                if count == 1:
                    wait, by = "message waits", "is searched by its words until it absorbs it"
                warnings.append(f"{count} {wait} for the block {block.name!r}, and {by}.")
        return warnings

    def recall(self, scope: Scope, message: Message | None) -> tuple[BlockRecalls, list[str]]:
        """Return the recalls by block, and a warning for each block that failed.

        If the message is small talk, only blocks that ignore the message are queried.
        """
        if not self.blocks:
            return {}, []
        scope = replace(scope, pinned=self._parts.pins.of(scope))
        targets = self._recaller.targets(scope)
        queried = [target for target in targets if is_queried(target.block, message)]
        by_block, warnings = self._recaller.recall(scope, queried, message, self.packer.candidates)
        stored = with_pins(existing(self._store, by_block), scope)
        return self._recaller.marked(targets, stored), warnings


def is_queried(block: Block, message: Message | None) -> bool:
    """Return whether a context queries a block. Small talk does not query selective blocks."""
    return message is None or not block.selective or not is_small_talk(message.text())


def _window(
    packer: Packer,
    head: Head | None,
    entries: list[Entry],
    messages: Sequence[Message],
    dedupe: bool,
    form: str | None,
) -> Shown:
    """Return the part of a window that a context shows.

    If the provider of the format has compacted the conversation, the part begins at the newest
    compaction. A compaction that does not fit the budget is ignored.
    """
    if form is None:
        return packer.window(head, entries, messages, dedupe=dedupe)
    provider = format_of(form)
    if provider.arguments.user_first:
        packer = replace(packer, reserve=packer.counter.chat({"role": "user", "content": OPENING}))
    for cut in (True, False):
        own_head, own, compaction = native(head, entries, provider, packer.counter, cut=cut)
        window = packer.window(own_head, own, messages, dedupe=dedupe)
        first = window.turns[0].seq if window.turns else None
        if compaction is None or (first == compaction and first not in window.cut):
            break
    return window


def existing(store: SessionStore, by_block: BlockRecalls) -> BlockRecalls:
    """Drop the recalls from deleted sessions."""
    gone = gone_from(store, [hit for hits in by_block.values() for hit in hits])
    if not gone:
        return by_block
    return {
        block: [hit for hit in hits if not any(session in gone for session, _ in hit.sources)]
        for block, hits in by_block.items()
    }


def gone_from(store: SessionStore, recalls: Iterable[Recall]) -> set[str]:
    """Return the sources of recalls that are deleted, or are being deleted."""
    named = {session for recall in recalls for session, _ in recall.sources}
    return named - store.existing(named) if named else named


def with_pins(by_block: BlockRecalls, scope: Scope) -> BlockRecalls:
    """Set `Recall.pinned` of the recalls whose records the user has pinned."""
    if not scope.pinned:
        return by_block
    return {
        block: [replace(hit, pinned=hit.pinned or hit.id in scope.pinned) for hit in hits]
        for block, hits in by_block.items()
    }


def to_add(query: Message | None) -> list[Message]:
    """Return the last messages of a context for a query: the query, if it is a user's message."""
    return [query] if query is not None and role_of(query) == "user" else []


def checked_budget(max_tokens: object) -> int | None:
    """Return `max_tokens`. Raise `InvalidBudget` unless it is None or a positive number."""
    if max_tokens is None:
        return None
    if type(max_tokens) is not int or max_tokens < 1:
        raise InvalidBudget(f"max_tokens is {quoted(max_tokens)}. Give a number of tokens above 0.")
    return max_tokens


def query_of(message: Any) -> Message | None:
    """Return the message to recall for, from text or a message in any form."""
    return None if message is None else Message.of(message)
