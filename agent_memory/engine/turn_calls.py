"""The calls of `AgentMemory` about a whole turn: recall, ask a model, run tools, store."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.core.turns import Turn, check_so_far, check_whole, fitted, messages_of
from agent_memory.core.window import role_of
from agent_memory.engine.calls import Calls
from agent_memory.engine.loop.conversing import CompletionStream, Conversation
from agent_memory.engine.loop.offering import GivenTool, Offer
from agent_memory.errors import InvalidInput, ModelRequired

if TYPE_CHECKING:
    from agent_memory.core.context import MemoryContext
    from agent_memory.core.messages import Message
    from agent_memory.core.records import Head, Span
    from agent_memory.core.tokens.counter import TokenCounter
    from agent_memory.core.tools import Tool
    from agent_memory.engine.assembly import Parts

logger = logging.getLogger(__name__)

_SET_HERE = ("messages", "api_base", "api_key", "num_retries", "max_retries", "drop_params")


class TurnCalls(Calls):
    """A turn in one call, or around a loop of the caller's own.

    Nothing is held while a model thinks: other calls for the session go on, and each turn is stored
    as a whole.
    """

    _parts: Parts
    _counter: TokenCounter

    def before_turn(self, session_id: str, message: Any, *, user_id: str | None = None) -> Turn:
        """What to send a model: the context for a turn, with the turn at its end. Stores nothing.

        Args:
            session_id: The conversation.
            message: The turn so far: the question as text or as a message, or a list of messages,
                such as the question, an assistant message with calls of tools, and their results.
            user_id: The user, needed where the session does not exist yet.

        Returns:
            The turn; its `messages` are for any chat API, within `max_tokens`. Of the context
            recalls give way to the turn first, then the oldest turns.

        Raises:
            InvalidMessage: Nothing is asked, or a call of a tool has no result.
            MessageTooLarge: The turn alone with the system message does not fit.
            SessionOfAnotherUser: The session belongs to another user.
            StoreError: The session store failed.
        """
        asked = messages_of(message, "user")
        check_so_far(asked)
        return self._begun(session_id, asked, user_id)

    def after_turn(self, turn: Turn, answer: Any) -> Head:
        """Store a turn with its answer, all of it or nothing.

        What `regenerate` gave is put in the place of the old answer.

        Args:
            turn: What `before_turn` or `regenerate` gave.
            answer: What the model said, as text or in any form that `update` takes; or a list, in
                order: assistant messages with calls of tools, their results, the answer.

        Returns:
            The session's head afterwards.

        Raises:
            InvalidMessage: The turn does not end with an answer, or a call has no result, or a
                result no call. Nothing was stored.
            InvalidInput: The session went on since `regenerate`. Nothing was stored.
            MessageTooLarge: One of the messages could never fit the budget. Nothing was stored.
            SessionOfAnotherUser: The session belongs to another user.
            StoreError: The store failed; nothing was stored.
        """
        said = [*turn.asked, *messages_of(answer, "assistant")]
        check_whole(said)
        if turn.regenerates is not None:
            return self._replaced(turn, turn.regenerates, said)
        return self.update(turn.session_id, said, user_id=turn.user_id)

    def completion(
        self,
        session_id: str,
        message: Any,
        *,
        user_id: str | None = None,
        model: str | None = None,
        tools: Sequence[GivenTool] | None = None,
        stream: bool = False,
        max_rounds: int = 8,
        **options: Any,
    ) -> Any:
        """Recall, ask the model, run its tools, and store the turn once the answer is there.

        Whatever fails or is broken off on the way, nothing is stored.

        Args:
            session_id: The conversation.
            message: As for `before_turn`.
            user_id: The user, needed where the session does not exist yet.
            model: Another litellm model than the configured one.
            tools: What the model may call. Schemas of the memory's own tools (see `tools`) are run
                for this session and user; functions are called with checked arguments, and what
                they raise is raised, but for `ToolRefused`, which the model reads. A call of any
                other schema is handed back: see below.
            stream: Give litellm's chunks as they arrive, of all rounds.
            max_rounds: How often tools may be run; then the model has to answer without.
            **options: What else litellm is to send: `temperature`, `response_format`, ...

        Returns:
            litellm's `ModelResponse`, or with `stream` an iterator of its chunks. Where it calls
            tools that the caller has to run, nothing is stored yet: go on with
            `completion(session_id, [question, response, *results], ...)`.

        Raises:
            InvalidInput: The turn so far, a tool or an option is not usable.
            MessageTooLarge: The turn does not fit the budget, or the answer never could.
            ModelRequired: No model is configured or named.
            ModelError: The model failed.
            SessionOfAnotherUser: The session belongs to another user.
            StoreError: The store failed.
        """
        _check_options(options, max_rounds)
        asked = messages_of(message, "user")
        llm = self._parts.services.resources.models(model)
        if llm is None:
            raise ModelRequired(
                "completion() needs a language model. Configure one, such as "
                'AgentMemory(model="openai/gpt-4o-mini"), or name it in the call.'
            )

        def call(name: str, arguments: str) -> str:
            return self.call_tool(session_id, name, arguments, user_id=user_id)

        offer = Offer(tools, self._toolbox() if tools else {}, call)
        turn = self._begun(session_id, asked, user_id)
        for warning in turn.context.warnings:
            logger.warning("completion: %s", warning)
        talk = Conversation(turn, llm, offer, self._counter, max_rounds, options, self.after_turn)
        chunks = CompletionStream(talk.rounds(stream=stream))
        if stream:
            return chunks
        for _ in chunks:  # there are none
            pass
        return chunks.response

    def _begun(self, session_id: str, asked: list[Message], user_id: str | None) -> Turn:
        question = next((one for one in reversed(asked) if role_of(one) == "user"), None)
        context = self.get(session_id, question, user_id=user_id)
        return Turn(session_id, user_id, asked, context, fitted(context, asked, self._counter))

    @abstractmethod
    def _replaced(self, turn: Turn, part: Span, said: Sequence[Message]) -> Head:
        """See `RegenerateCalls`."""

    @abstractmethod
    def get(
        self, session_id: str, message: Any = None, *, user_id: str | None = None
    ) -> MemoryContext:
        """See `AgentMemory.get`."""

    @abstractmethod
    def update(self, session_id: str, message: Any, *, user_id: str | None = None) -> Head:
        """See `AgentMemory.update`."""

    @abstractmethod
    def call_tool(
        self,
        session_id: str,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        user_id: str | None = None,
    ) -> str:
        """See `ToolCalls.call_tool`."""

    @abstractmethod
    def _toolbox(self) -> dict[str, Tool]:
        """See `ToolCalls`."""


def _check_options(options: Mapping[str, Any], max_rounds: int) -> None:
    """Refuse options that would be overruled, or that leave open what is to be stored.

    Raises:
        InvalidInput: There is one.
    """
    if max_rounds < 0:
        raise InvalidInput(f"max_rounds is {max_rounds}. Give 0 or more.")
    if options.get("n") not in (None, 1):
        raise InvalidInput("n must be 1: a turn has one answer. Ask again for another one.")
    for name in _SET_HERE:
        if name in options:
            raise InvalidInput(
                f"{name} cannot be an option of completion(): it is set by the memory. Configure "
                "it, where it is a setting."
            )
