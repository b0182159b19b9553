"""A whole turn: recall, ask a model, run tools, store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agent_memory.core.turns import Turn, check_so_far, check_whole, fitted, messages_of
from agent_memory.core.window import role_of
from agent_memory.engine.loop.conversing import CompletionStream, Conversation
from agent_memory.engine.loop.offering import GivenTool, Offer
from agent_memory.errors import InvalidInput, ModelRequired

if TYPE_CHECKING:
    from agent_memory.core.context import MemoryContext
    from agent_memory.core.messages import Message
    from agent_memory.core.records import Head, Span
    from agent_memory.core.tokens.counter import TokenCounter
    from agent_memory.core.tools import Tool
    from agent_memory.models.llm import LLM

logger = logging.getLogger(__name__)

_SET_HERE = ("messages", "api_base", "api_key", "num_retries", "max_retries", "drop_params")


class Get(Protocol):
    """Reads a session, as `AgentMemory.get`."""

    def __call__(
        self, session_id: str, message: Any, *, user_id: str | None = None
    ) -> MemoryContext: ...


class Update(Protocol):
    """Stores messages, as `AgentMemory.update`."""

    def __call__(self, session_id: str, message: Any, *, user_id: str | None = None) -> Head: ...


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
        get: Reads the context.
        update: Stores a turn.
        replaced: Puts a turn in the place of the answer that it regenerates.
        call_tool: Runs a tool of the memory.
        toolbox: The tools of the memory, by name.
        models: Opens a language model by name; for None the configured one, or None without one.
        counter: Counts tokens.
    """

    get: Get
    update: Update
    replaced: Callable[[Turn, Span, Sequence[Message]], Head]
    call_tool: CallTool
    toolbox: Callable[[], Mapping[str, Tool]]
    models: Callable[[str | None], LLM | None]
    counter: TokenCounter

    def before(self, session_id: str, message: Any, user_id: str | None) -> Turn:
        """See `AgentMemory.before_turn`."""
        asked = messages_of(message, "user")
        check_so_far(asked)
        return self._begun(session_id, asked, user_id)

    def after(self, turn: Turn, answer: Any) -> Head:
        """See `AgentMemory.after_turn`."""
        said = [*turn.asked, *messages_of(answer, "assistant")]
        check_whole(said)
        if turn.regenerates is not None:
            return self.replaced(turn, turn.regenerates, said)
        return self.update(turn.session_id, said, user_id=turn.user_id)

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
        **options: Any,
    ) -> Any:
        """See `AgentMemory.completion`."""
        _check_options(options, max_rounds)
        asked = messages_of(message, "user")
        llm = self.models(model)
        if llm is None:
            raise ModelRequired(
                "completion() needs a language model. Configure one, such as "
                'AgentMemory(model="openai/gpt-4o-mini"), or name it in the call.'
            )

        def call(name: str, arguments: str) -> str:
            return self.call_tool(session_id, name, arguments, user_id=user_id)

        offer = Offer(tools, self.toolbox() if tools else {}, call)
        turn = self._begun(session_id, asked, user_id)
        for warning in turn.context.warnings:
            logger.warning("completion: %s", warning)
        talk = Conversation(turn, llm, offer, self.counter, max_rounds, options, self.after)
        chunks = CompletionStream(talk.rounds(stream=stream))
        if stream:
            return chunks
        for _ in chunks:  # there are none
            pass
        return chunks.response

    def _begun(self, session_id: str, asked: list[Message], user_id: str | None) -> Turn:
        question = next((one for one in reversed(asked) if role_of(one) == "user"), None)
        context = self.get(session_id, question, user_id=user_id)
        return Turn(session_id, user_id, asked, context, fitted(context, asked, self.counter))


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
