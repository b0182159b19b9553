"""What a context is made of: a session's window, and what blocks recall for a message."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from agent_memory.core.asking import asked_for
from agent_memory.core.context import MemoryContext
from agent_memory.core.courtesies import is_courtesy
from agent_memory.core.explanation import left_out_of
from agent_memory.core.formats.registry import format_of
from agent_memory.core.fusion import merge
from agent_memory.core.limits import quoted
from agent_memory.core.messages import Message
from agent_memory.core.native import native
from agent_memory.core.packing import Packer, Shown
from agent_memory.core.records import Entry, Head, LeftOut, Recall, Scope, empty_head
from agent_memory.core.sent import SentContext, kept_of
from agent_memory.core.threads import apart
from agent_memory.core.usage import Usage
from agent_memory.core.window import role_of, ruled
from agent_memory.engine.guard import Guard, scope_of
from agent_memory.engine.recall.fan_out import FanOut
from agent_memory.engine.recall.prompts import Prompts, Recalls
from agent_memory.engine.recall.sent import SentContexts
from agent_memory.engine.windows import Windows
from agent_memory.errors import InvalidBudget, StoreError
from agent_memory.models.usage import Account, current_account
from agent_memory.stores.base import SessionStore
from agent_memory.stores.pending import Pending

logger = logging.getLogger(__name__)

_IS_MEANT = 0.5  # relevance from which on a recall counts as one that was asked for

Found = dict[str, list[Recall]]


Pack = Callable[[Sequence[Message]], MemoryContext]
"""Gives the context for a turn so far."""


class Seen(NamedTuple):
    """What is seen of a session, before anything is recalled.

    Attributes:
        packer: Packs contexts.
        head: The session's head.
        entries: Its window.
        asked: The turn so far.
        query: What to recall for.
        scope: Whose memory to ask.
        window: What a context shows of the window and the turn.
    """

    packer: Packer
    head: Head | None
    entries: list[Entry]
    asked: Sequence[Message]
    query: Message | None
    scope: Scope
    window: Shown


class View(NamedTuple):
    """What a context is packed of.

    Attributes:
        seen: The session, and the turn so far.
        found: What was recalled.
        warnings: What to warn of.
        among: The blocks whose sources are of the session's own store; None for all of them.
        usage: What models were asked for it.
    """

    seen: Seen
    found: Found
    warnings: list[str]
    among: Collection[str] | None = None
    usage: Usage = Usage()

    def context(self, window: Shown | None = None) -> MemoryContext:
        """The context; of another window, where the turn has grown."""
        seen = self.seen
        window = window or seen.window
        recalls = self.merged(window)
        text = seen.query.text() if recalls and seen.query is not None else ""
        packed = seen.packer.pack(seen.head, window, recalls, self.warnings, text)
        return packed if self.usage == Usage() else replace(packed, usage=self.usage)

    def merged(self, window: Shown, *, all_of_it: bool = False) -> list[Recall]:
        """What was recalled and the window does not show whole, merged, best first.

        Args:
            window: The window.
            all_of_it: Also what bears much less on the question than the best.
        """
        if not any(self.found.values()):
            return []
        query = self.seen.query
        text = query.text() if query is not None else ""
        floors = {} if all_of_it else self.seen.packer.floors(text)
        shown = self.seen.scope.shown if window is self.seen.window else window.sources
        return merge(self.found, shown, self.among, floors)

    def left_out(self, context: MemoryContext, window: Shown) -> list[LeftOut]:
        """What blocks recalled for a context and it has not, with the why."""
        found = [one for recalls in self.found.values() for one in recalls]
        merged = self.merged(window, all_of_it=True)
        return left_out_of(found, merged, self.merged(window), context)

    def window(self, asked: Sequence[Message]) -> Shown:
        """What a context shows for the turn so far."""
        seen = self.seen
        if asked is seen.asked:
            return seen.window
        return seen.packer.window(seen.head, seen.entries, asked)


class Contexts:
    """Reads sessions and blocks, and packs what they give.

    Args:
        guard: Says whose a session is.
        store: The log.
        windows: What was read of it.
        packer: Packs a window and recalls within the budget.
        recaller: Asks the blocks.
        troubles: What to warn of, whatever was recalled; of a session, or without one.
        pending: Tells what blocks have not absorbed yet.
        sent: Keeps what is sent.
        recalls: Counts how often something was found.
        pinned: The ids of what is to be recalled first.

    Attributes:
        packer: As given.
        blocks: The blocks that are asked.
        troubles: As given.
        prompts: What contexts were, and how much of each was kept.
    """

    def __init__(
        self,
        guard: Guard,
        store: SessionStore,
        windows: Windows,
        packer: Packer,
        recaller: FanOut,
        troubles: Callable[[Head | None], list[str]],
        pending: Pending,
        sent: SentContexts,
        recalls: Recalls,
        pinned: Callable[[Scope], frozenset[str]],
    ) -> None:
        self._recalls = recalls
        self._pinned = pinned
        self._pending = pending
        self._sent = sent
        self._guard = guard
        self._store = store
        self._windows = windows
        self._recaller = recaller
        self.packer, self.blocks = packer, recaller.blocks
        self.troubles = troubles
        self.prompts = Prompts()

    def get(
        self,
        session_id: str,
        message: Any,
        user_id: str | None,
        max_tokens: int | None = None,
        form: str | None = None,
        given: Sequence[Any] | None = None,
    ) -> MemoryContext:
        """See `AgentMemory.get`."""
        alone = not self.blocks and not self._sent.on  # it only reads, and waits for nobody
        made = self._get if alone else self._got_apart
        return made(session_id, message, user_id, max_tokens, form, given)

    def _get(
        self,
        session_id: str,
        message: Any,
        user_id: str | None,
        max_tokens: int | None,
        form: str | None,
        given: Sequence[Any] | None,
    ) -> MemoryContext:
        query = query_of(message)
        packer = self.packer.lowered(checked_budget(max_tokens))
        how: dict[str, Any] = {"once": True, "form": form, "given": given}
        seen = self.see(session_id, to_add(query), user_id, packer=packer, query=query, **how)
        return self.sending(session_id, self._view(seen), form)(seen.asked)

    _got_apart = apart(_get)

    @apart
    def were(
        self, session_id: str, user_id: str | None, after: int, limit: int | None
    ) -> list[SentContext]:
        """See `AgentMemory.contexts`."""
        head = self._guard.owned(session_id, user_id)
        if head is None:
            return []
        scope = scope_of(head, user_id, session_id)

        def again(question: str) -> list[Recall]:
            found, _ = self.recall(scope, Message(role="user", content=question))
            return [one for recalls in found.values() for one in recalls]

        return self._sent.read(head, after, limit, again)

    @apart
    def begin(
        self,
        session_id: str,
        asked: Sequence[Message],
        *,
        user_id: str | None,
        reads_turn: bool = False,
    ) -> Pack:
        """What packs the context of a turn, and packs it again as the turn grows.

        Args:
            session_id: The conversation.
            asked: The turn so far.
            user_id: The user.
            reads_turn: Whether the model can read on what the turn itself shows in part.
        """
        packer = replace(self.packer, reads_turn=reads_turn)
        seen = self.see(session_id, asked, user_id, packer=packer)
        return self.sending(session_id, self._view(seen))

    def sending(self, session_id: str, view: View, form: str | None = None) -> Pack:
        """What packs contexts of a view that are sent to a model: these are counted, and kept."""
        counted = False

        def pack(asked: Sequence[Message]) -> MemoryContext:
            window = view.window(asked)
            nonlocal counted
            context = self.prompts.noted(view.seen.scope, view.context(window), window)
            if not counted:  # as the turn grows nothing more is looked for
                self._count(view.seen, context)
                counted = True
            if form is not None:
                context = replace(context, format=form)
            if self._sent.on:
                self._keep(session_id, view, window, context)
            return context

        return pack

    def _count(self, seen: Seen, context: MemoryContext) -> None:
        query = seen.query
        for block in self.blocks:
            ids = [
                one.id
                for one in context.recalls
                if one.block == block.name and (one.relevance is None or one.relevance >= _IS_MEANT)
            ]
            if ids and block.counts_recalls:
                try:
                    block.recalled(seen.scope, ids)
                except StoreError as error:  # the context is there, whatever is counted
                    logger.warning("what was recalled is not counted: %s", error)
        if self.blocks and query is not None and not is_courtesy(query.text()):
            selective = (context.blocks[one.block].selective for one in context.recalls)
            self._recalls.note(found=any(selective))

    def _keep(self, session_id: str, view: View, window: Shown, context: MemoryContext) -> None:
        seen = view.seen
        question = seen.query.text() if seen.query is not None else ""
        left_out = view.left_out(context, window)
        kept = kept_of(context, window, seen.entries, question, left_out)
        self._sent.keep(session_id, kept, seen.scope.user_id, seen.head)

    def see(
        self,
        session_id: str,
        asked: Sequence[Message],
        user_id: str | None,
        *,
        packer: Packer | None = None,
        query: Message | None = None,
        once: bool = False,
        form: str | None = None,
        given: Sequence[Any] | None = None,
    ) -> Seen:
        """Read a session.

        Args:
            session_id: The conversation.
            asked: The turn so far.
            user_id: The user.
            packer: Another packer than the configured one.
            query: What to recall for; None for the newest message of the user.
            once: See `Packer.window`.
            form: A format; see `AgentMemory.get`.
            given: What is shown in the window's place; see `AgentMemory.get`.

        Raises:
            InvalidInput: An id, or a message, is not usable.
            SessionOfAnotherUser: The session belongs to another user.
        """
        self._guard.check_session(session_id, user_id)
        head = self._guard.owned(session_id, user_id)
        entries = self._windows.of(head) if head else []
        packer = packer or self.packer
        if given is None:
            window = _window(packer, head, entries, asked, once, form)
        else:
            held = frozenset([(session_id, entry.seq) for entry in entries])
            entries = packer.entries(given)
            begun = head or empty_head(session_id, user_id, datetime.now(UTC))
            window = _window(packer, ruled(begun, entries), entries, asked, once, form)
            window = replace(window, held=held)
        if query is None:
            said = (entry.message for entry in reversed(entries))
            query = newest_user(asked) or next(
                (one for one in said if role_of(one) == "user"), None
            )
        scope = scope_of(head, user_id, session_id)
        if self.blocks:
            scope = replace(scope, shown=window.sources)
            query = query and asked_for(query)
        return Seen(packer, head, entries, asked, query, scope, window)

    def _view(self, seen: Seen) -> View:
        with Account("other", seen.scope.user_id, within=current_account()).charged() as account:
            found, warnings = self.recall(seen.scope, seen.query)
        troubles = [*self.troubles(seen.head), *self.waiting(seen.scope, seen.head)]
        return View(seen, found, [*warnings, *troubles], usage=account.usage)

    def waiting(self, scope: Scope, head: Head | None) -> list[str]:
        """What a context should tell of messages that wait for a block, most often for its model.

        Those that a session's own window has are passed over: it shows them.
        """
        told = []
        for block in self.blocks:
            if not block.absorbs or block.recalls_pending or not scope.is_somebodys:
                continue
            count = 0
            for lag in self._pending.lags(block.name, scope):
                own = head is not None and lag.session_id == head.session_id
                count += max(0, (head.start if own and head else lag.end) - lag.after)
            if count:
                wait, are = ("messages wait", "are") if count > 1 else ("message waits", "is")
                told.append(
                    f"{count} {wait} for the block {block.name!r}, and {are} searched as said "
                    "until then."
                )
        return told

    def recall(self, scope: Scope, message: Message | None) -> tuple[Found, list[str]]:
        """What blocks recall, and a warning for each that could not be asked.

        For what only thanks or greets that is what they recall whatever is asked.
        """
        if not self.blocks:
            return {}, []
        always = None
        if message is not None and is_courtesy(message.text()):
            always = [block.name for block in self.blocks if not block.selective]
        scope = replace(scope, pinned=self._pinned(scope))
        found, warnings = self._recaller.recall(scope, message, self.packer.candidates, always)
        there = existing(self._store, found)
        if scope.pinned:
            there = {
                block: [replace(one, pinned=one.id in scope.pinned) for one in recalls]
                for block, recalls in there.items()
            }
        return self._recaller.marked(scope, there), warnings


def _window(
    packer: Packer,
    head: Head | None,
    entries: list[Entry],
    asked: Sequence[Message],
    once: bool,
    form: str | None,
) -> Shown:
    """What is shown of a window; in a provider's format from its own compaction on, if that has
    room."""
    if form is None:
        return packer.window(head, entries, asked, once=once)
    for cut in (True, False):
        own = native(head, entries, format_of(form), packer.counter, cut=cut)
        window = packer.window(own.head, own.entries, asked, once=once)
        first = window.turns[0].seq if window.turns else None
        if own.compaction is None or (first == own.compaction and first not in window.cut):
            break
    return window


def existing(store: SessionStore, found: Found) -> Found:
    """What was recalled, without what comes from sessions that are gone."""
    named = {source[0] for recalls in found.values() for one in recalls for source in one.sources}
    gone = named - store.existing(named) if named else named
    return {
        block: [one for one in recalls if not any(source[0] in gone for source in one.sources)]
        for block, recalls in found.items()
    }


def to_add(query: Message | None) -> list[Message]:
    """What of a query a context adds at its end: what a user says."""
    return [query] if query is not None and role_of(query) == "user" else []


def newest_user(messages: Sequence[Message]) -> Message | None:
    """The newest message that a user says."""
    return next((one for one in reversed(messages) if role_of(one) == "user"), None)


def checked_budget(max_tokens: object) -> int | None:
    """A budget for one call, if it can be one.

    Raises:
        InvalidBudget: It is no number of tokens.
    """
    if max_tokens is None:
        return None
    if type(max_tokens) is not int or max_tokens < 1:
        raise InvalidBudget(f"max_tokens is {quoted(max_tokens)}. Give a number of tokens above 0.")
    return max_tokens


def query_of(message: Any) -> Message | None:
    """What a context is asked for: text, or a message in any form.

    Raises:
        InvalidMessage: It is none.
    """
    if message is None or isinstance(message, Message):
        return message
    if isinstance(message, str):
        return Message(role="user", content=message)
    return Message.of(message)
