"""A whole turn: recall, ask a model, run tools, store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agent_memory.core.ids import check_id
from agent_memory.core.limits import how_many
from agent_memory.core.once import WriteKey, key_of
from agent_memory.core.tools import READ_MESSAGE
from agent_memory.core.turns import (
    Turn,
    check_so_far,
    check_turn,
    check_whole,
    messages_of,
    question_of,
    turn_of,
)
from agent_memory.engine.loop.conversing import CompletionStream, Conversation
from agent_memory.engine.loop.offering import GivenTool, Offer
from agent_memory.engine.loop.retrying import answered_before
from agent_memory.errors import InvalidInput, ModelRequired
from agent_memory.models.usage import Account

if TYPE_CHECKING:
    from agent_memory.core.messages import Message
    from agent_memory.core.records import Head, Span
    from agent_memory.core.tools import Tool
    from agent_memory.engine.recall.contexts import Pack
    from agent_memory.models.llm import LLM

logger = logging.getLogger(__name__)

_SET_HERE = ("messages", "api_base", "api_key", "num_retries", "max_retries", "drop_params")


class Begin(Protocol):
    """Reads a session for a turn, as `Contexts.begin`."""

    def __call__(
        self,
        session_id: str,
        asked: Sequence[Message],
        *,
        user_id: str | None,
        reads_turn: bool = False,
    ) -> Pack: ...


class Update(Protocol):
    """Stores messages, as `AgentMemory.update`."""

    def __call__(
        self,
        session_id: str,
        message: Any,
        *,
        user_id: str | None = None,
        key: Any = None,
        expected_end: int | None = None,
    ) -> Head: ...


class Stored(Protocol):
    """The messages that were stored under a key; None where it is not known."""

    def __call__(
        self, session_id: str, key: WriteKey, *, user_id: str | None = None
    ) -> Sequence[Message] | None: ...


class CallTool(Protocol):
    """Runs a tool of the memory, as `AgentMemory.call_tool`."""

    def __call__(
        self, session_id: str, name: str, arguments: str, *, user_id: str | None = None
    ) -> str: ...


@dataclass(frozen=True, slots=True)
class Turns:
    """The calls about a turn, over the calls that read and store.

    Nothing is held while a model thinks: other calls for the session go on, and each turn is stored
    as a whole.

    Attributes:
        begin: Gives what packs a turn's context.
        update: Stores a turn.
        stored: Tells what was stored under a key.
        replaced: Puts a turn in the place of the answer that it regenerates.
        call_tool: Runs a tool of the memory.
        toolbox: The tools of the memory, by name.
        models: Opens a language model by name; for None the configured one, or None without one.
        told: Tells blocks where a turn begins, and with all that was said where it ended.
    """

    begin: Begin
    update: Update
    stored: Stored
    replaced: Callable[[Turn, Span, Sequence[Message]], Head]
    call_tool: CallTool
    toolbox: Callable[[], Mapping[str, Tool]]
    models: Callable[[str | None], LLM | None]
    told: Callable[[Turn, Sequence[Message] | None], None]

    def before(self, session_id: str, message: Any, user_id: str | None) -> Turn:
        """See `AgentMemory.before_turn`."""
        asked = messages_of(message, "user")
        check_so_far(asked)
        pack = self.begin(session_id, asked, user_id=user_id)
        turn = turn_of(session_id, user_id, asked, pack(asked))
        self.told(turn, None)
        return turn

    def after(
        self,
        turn: Turn,
        answer: Any,
        key: WriteKey | str | None = None,
        expected_end: int | None = None,
    ) -> Head:
        """See `AgentMemory.after_turn`."""
        check_turn(turn)
        said = [*turn.asked, *messages_of(answer, "assistant")]
        check_whole(said)
        if turn.regenerates is not None:
            head = self.replaced(turn, turn.regenerates, said)
        else:
            given = turn.session_id, said
            head = self.update(*given, user_id=turn.user_id, key=key, expected_end=expected_end)
        self.told(turn, said)
        return head

    def complete(
        self,
        session_id: str,
        message: Any,
        *,
        user_id: str | None,
        model: str | None = None,
        tools: Sequence[GivenTool] | None = None,
        stream: bool = False,
        max_rounds: int = 8,
        key: str | None = None,
        expected_end: int | None = None,
        **options: Any,
    ) -> Any:
        """See `AgentMemory.completion`."""
        _check_options(options)
        max_rounds = how_many("max_rounds", max_rounds)
        if model is not None:
            check_id("model", model)
        asked = messages_of(message, "user")
        own = None if key is None else key_of(key, question_of(asked))
        llm = self.models(model)
        if llm is None:
            raise ModelRequired(
                "completion() needs a language model. Configure one, such as "
                'AgentMemory(model="openai/gpt-4o-mini"), or name it in the call.'
            )

        account = Account("completion", user_id)
        llm = llm.charged_to(account)
        said = None if own is None else self.stored(session_id, own, user_id=user_id)
        if said is not None:
            before = answered_before(llm, said, key, stream=stream)
            chunks = CompletionStream(before, account)
            return chunks if stream else _read(chunks)

        def call(name: str, arguments: str) -> str:
            return self.call_tool(session_id, name, arguments, user_id=user_id)

        offer = Offer(tools, self.toolbox() if tools else {}, call)
        with Account("other", within=account).charged():
            reads = READ_MESSAGE in offer.run_here
            pack = self.begin(session_id, asked, user_id=user_id, reads_turn=reads)
        turn = turn_of(session_id, user_id, asked, pack(asked))
        self.told(turn, None)
        for warning in turn.context.warnings:
            logger.warning("completion: %s", warning)

        def store(turn: Turn, answer: Message) -> None:
            self.after(turn, answer, own, expected_end)

        talk = Conversation(turn, pack, llm, offer, max_rounds, options, store)
        usage_asked = bool((options.get("stream_options") or {}).get("include_usage"))
        chunks = CompletionStream(talk.rounds(stream=stream), account, usage_asked=usage_asked)
        return chunks if stream else _read(chunks)


def _read(chunks: CompletionStream) -> Any:
    for _ in chunks:  # there are none
        pass
    return chunks.response


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that would be overruled, or that leave open what is to be stored.

    Raises:
        InvalidInput: There is one.
    """
    if options.get("n") not in (None, 1):
        raise InvalidInput("n must be 1: a turn has one answer. Ask again for another one.")
    for name in _SET_HERE:
        if name in options:
            raise InvalidInput(
                f"{name} cannot be an option of completion(): it is set by the memory. Configure "
                "it, where it is a setting."
            )
