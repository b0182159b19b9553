"""A whole turn: recall, call a model, run tools, store. Blocks have hooks for its start and end.

`Regenerate` answers a question again, and replaces the old answer with the new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from agent_memory.core.idempotency import KeyStored, WriteKey, digest_of, key_of
from agent_memory.core.limits import check_id, how_many, quoted
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head, Recall, Scope, Span
from agent_memory.core.shapes import role_of
from agent_memory.core.tools import READ_MESSAGE, Tool
from agent_memory.core.turns import (
    Turn,
    check_complete,
    check_so_far,
    check_turn,
    messages_of,
    question_of,
    turn_of,
)
from agent_memory.engine.edit.plans import window_before
from agent_memory.engine.guard import scope_of
from agent_memory.engine.loop.rounds import Chunks, CompletionStream, Conversation, Offer, ToolLike
from agent_memory.engine.paging import range_of
from agent_memory.engine.recall.contexts import LoadedSession, Pack
from agent_memory.engine.recall.runner import resolve
from agent_memory.errors import Conflict, InvalidInput, ModelRequired
from agent_memory.ltm_blocks.base import Block
from agent_memory.models.usage import Account

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components
    from agent_memory.models.llm import LLM


def answered_before(
    llm: LLM, messages: Sequence[Message], key: str | None, *, stream: bool
) -> Chunks:
    """Return the answer of a stored turn as a response. With `stream`, yield one chunk before.

    Raise `Conflict` if the answer is no longer in the log.
    """
    view = messages[-1].to_openai() if messages and role_of(messages[-1]) == "assistant" else None
    if view is None:
        raise Conflict(
            f"The turn of the key {quoted(key)} was stored, but its answer is no longer in the "
            "log. Ask again with another key."
        )
    if stream:
        yield llm.as_chunk(view)
    return llm.as_response(view)


logger = logging.getLogger(__name__)


def call_hooks(
    blocks: Iterable[Block],
    scope_of: Callable[[str | None, str | None], Scope],
    turn: Turn,
    messages: Sequence[Message] | None,
) -> None:
    """Call the blocks' hooks for a turn's start or, with `messages`, for its end."""
    hook, arguments = ("turn_began", ()) if messages is None else ("turn_ended", (messages,))
    own = [block for block in blocks if getattr(type(block), hook) is not getattr(Block, hook)]
    scope = scope_of(turn.user_id, turn.session_id) if own else Scope()
    for block in own:
        try:
            resolve(getattr(block, hook)(scope, turn, *arguments))
        except Exception:  # a hook must not stop the turn
            logger.exception("the turn hook of block %r failed", block.name)


_SET_HERE = ("messages", "api_base", "api_key", "num_retries", "max_retries", "drop_params")


@dataclass(frozen=True, slots=True)
class Turns:
    """The calls of a turn. The attributes are the functions that these calls use.

    No lock is held during model calls, so other calls for the session continue. Each turn is stored
    atomically.

    Attributes:
        begin: Returns a function that packs a turn's context, as `Contexts.begin`.
        update: Stores a turn, as `AgentMemory.update`.
        stored: Returns the messages stored under a key. None if the key is unknown.
        replaced: Replaces the old answer with a turn of `regenerate`.
        call_tool: Runs a tool of the memory, as `AgentMemory.call_tool`.
        toolbox: Returns the tools of the memory, by name.
        models: Returns a language model by name. For None, returns the configured model, if
            any.
        notify: Calls the blocks' turn hooks. See `call_hooks`.
    """

    begin: Callable[..., Pack]
    update: Callable[..., Head]
    stored: Callable[..., Sequence[Message] | None]
    replaced: Callable[[Turn, Span, Sequence[Message]], Head]
    call_tool: Callable[..., str]
    toolbox: Callable[[], Mapping[str, Tool]]
    models: Callable[[str | None], LLM | None]
    notify: Callable[[Turn, Sequence[Message] | None], None]

    def before(self, session_id: str, message: Any, user_id: str | None) -> Turn:
        messages = messages_of(message, "user")
        check_so_far(messages)
        pack = self.begin(session_id, messages, user_id=user_id)
        turn = turn_of(session_id, user_id, messages, pack(messages))
        self.notify(turn, None)
        return turn

    def after(
        self,
        turn: Turn,
        answer: Any,
        key: WriteKey | str | None = None,
        expected_end: int | None = None,
    ) -> Head:
        check_turn(turn)
        messages = [*turn.turn_messages, *messages_of(answer, "assistant")]
        check_complete(messages)
        if turn.regenerates is not None:
            head = self.replaced(turn, turn.regenerates, messages)
        else:
            args = turn.session_id, messages
            head = self.update(*args, user_id=turn.user_id, key=key, expected_end=expected_end)
        self.notify(turn, messages)
        return head

    def complete(
        self,
        session_id: str,
        message: Any,
        *,
        user_id: str | None,
        model: str | None = None,
        tools: Sequence[ToolLike] | None = None,
        stream: bool = False,
        max_rounds: int = 8,
        key: str | None = None,
        expected_end: int | None = None,
        **options: Any,
    ) -> Any:
        _check_options(options)
        max_rounds = how_many("max_rounds", max_rounds)
        if model is not None:
            check_id("model", model)
        messages = messages_of(message, "user")
        own = None if key is None else key_of(key, question_of(messages))
        llm = self.models(model)
        if llm is None:
            raise ModelRequired(
                "completion() needs a language model. Configure one, such as "
                'AgentMemory(model="openai/gpt-4o-mini"), or name it in the call.'
            )

        account = Account("completion", user_id)
        llm = llm.charged_to(account)
        stored = None if own is None else self.stored(session_id, own, user_id=user_id)
        if stored is not None:
            before = answered_before(llm, stored, key, stream=stream)
            chunks = CompletionStream(before, account)
            return chunks if stream else _read(chunks)

        call = partial(self.call_tool, session_id, user_id=user_id)
        offer = Offer(tools, self.toolbox() if tools else {}, call)
        with Account("other", within=account).charged():
            reads = READ_MESSAGE in offer.run_here
            pack = self.begin(session_id, messages, user_id=user_id, reads_turn=reads)
        turn = turn_of(session_id, user_id, messages, pack(messages))
        self.notify(turn, None)
        for warning in turn.context.warnings:
            logger.warning("completion: %s", warning)

        new = own and replace(own, is_new=True)

        def store(turn: Turn, answer: Message, response: Any) -> Chunks:
            try:
                self.after(turn, answer, new, expected_end)
            except KeyStored:  # a concurrent call with the key was faster: return its answer
                first = self.stored(session_id, own, user_id=user_id) or ()
                return (yield from answered_before(llm, first, key, stream=False))
            return response

        talk = Conversation(turn, pack, llm, offer, max_rounds, options, store)
        include_usage = bool((options.get("stream_options") or {}).get("include_usage"))
        chunks = CompletionStream(talk.rounds(stream=stream), account, include_usage=include_usage)
        return chunks if stream else _read(chunks)


def _read(chunks: CompletionStream) -> Any:
    for _ in chunks:  # runs the rounds: without `stream`, there are no chunks
        pass
    return chunks.response


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` for options that the memory sets, and for several answers."""
    if options.get("n") not in (None, 1):
        raise InvalidInput("n must be 1: a turn has one answer. For another answer, call again.")
    for name in _SET_HERE:
        if name in options:
            raise InvalidInput(
                f"{name} cannot be an option of completion(): the memory sets it. If the "
                "configuration has this setting, change it there."
            )


_PAGE = 64


class Regenerate:
    """Replaces the answer to the newest question. `settle` does the work that follows an edit."""

    def __init__(self, parts: Components, settle: Callable[[Head], Head]) -> None:
        self._parts, self._store, self._settle = parts, parts.store, settle

    def turn(self, session_id: str, user_id: str | None) -> Turn:
        head = self._parts.guard.owned(session_id, user_id)
        question = self._question(head) if head else None
        if head is None or question is None:
            raise InvalidInput(
                f"Session {session_id!r} has no question to ask again. Ask one first."
            )
        before, entries = self._before(head, question)
        packer, messages = self._parts.contexts.packer, [question.message]
        window = packer.window(before, entries, messages)
        scope = replace(scope_of(head, user_id, session_id), shown=window.sources)
        session = LoadedSession(packer, before, entries, messages, question.message, scope, window)
        view = self._parts.contexts.view(session)
        view = view._replace(recalls=self._without(head, question, view.recalls))
        context = self._parts.contexts.sending(session_id, view)(messages)
        part = Span(session_id, question.seq, head.end)
        return turn_of(session_id, user_id, messages, context, part)

    def replace(self, turn: Turn, part: Span, messages: Sequence[Message]) -> Head:
        """Replace a turn's answer. Raise `InvalidInput` if the session has other messages now."""
        head = self._parts.guard.owned(turn.session_id, turn.user_id)
        if head is not None and self._is_stored(head, part, messages):  # the call is a retry
            return head
        drafts = self._parts.appender.drafts(messages[1:], turn.session_id, turn.user_id)
        stored = self._parts.editor.answer(part, messages[0], drafts, turn.user_id)
        if stored is None:
            raise InvalidInput(
                f"Session {turn.session_id!r} was deleted since the call of regenerate(). "
                "Nothing was stored; ask the question as a new one."
            )
        return self._settle(stored)

    def _is_stored(self, head: Head, part: Span, messages: Sequence[Message]) -> bool:
        """Return whether the log has exactly these messages from the start of `part` on."""
        log = range_of(self._store, head, part.first - 1, head.end)
        stored = [entry.message for entry in log if not entry.message.is_system]
        new = [message for message in messages if not message.is_system]
        return digest_of(stored) == digest_of(new)

    def _question(self, head: Head) -> Entry | None:
        end = head.end
        while end > head.expired:
            after = max(head.expired, end - _PAGE)
            for entry in reversed(range_of(self._store, head, after, end)):
                if role_of(entry.message) == "user":
                    return entry
            end = after
        return None

    def _before(self, head: Head, question: Entry) -> tuple[Head, list[Entry]]:
        """Return the head and the window as they were before the question."""
        end = question.seq - 1
        if head.start <= end:
            shown = [entry for entry in self._parts.windows.of(head) if entry.seq <= end]
        else:  # the question has left the window
            head = window_before(head, end, partial(range_of, self._store, head))
            shown = range_of(self._store, head, head.start, end)
        return replace(head, end=end, total=question.total - question.tokens), shown

    def _without(
        self, head: Head, question: Entry, by_block: Mapping[str, Sequence[Recall]]
    ) -> dict[str, list[Recall]]:
        """Drop the recalls that derive from the question or from later messages of the session.

        If a record derives from messages before and after the question, its recalls are dropped
        too.
        """
        remaining: dict[str, list[Recall]] = {}
        for block, recalls in by_block.items():
            last = min(self._parts.editor.reach(block, head, question.seq), question.seq - 1)
            remaining[block] = [
                recall
                for recall in recalls
                if not any(name == head.session_id and seq > last for name, seq in recall.sources)
            ]
        return remaining
