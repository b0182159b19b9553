"""The rounds of one turn: a model is asked, what it asks for is done, until it answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from agent_memory.core.messages import Message
from agent_memory.core.turns import (
    EARLIER,
    Turn,
    answer_in,
    check_so_far,
    open_calls,
    turn_of,
)
from agent_memory.engine.loop.offering import Offer
from agent_memory.engine.message_pages import readable
from agent_memory.errors import ModelOutputInvalid
from agent_memory.models.usage import Account, Usage

if TYPE_CHECKING:
    from agent_memory.engine.recall.contexts import Pack
    from agent_memory.models.llm import LLM

Chunks = Generator[Any, None, Any]


class Conversation:
    """What becomes of one turn.

    Args:
        turn: The turn so far; calls of tools that are run here may wait for their results.
        pack: Packs the turn's context anew when it has grown.
        llm: Who answers.
        offer: The tools.
        max_rounds: How often tools may be run before an answer is due.
        options: What else the model is sent.
        store: Stores a turn with its answer.

    Raises:
        InvalidMessage: The turn so far has calls without results that nobody here can run.
    """

    def __init__(
        self,
        turn: Turn,
        pack: Pack,
        llm: LLM,
        offer: Offer,
        max_rounds: int,
        options: Mapping[str, Any],
        store: Callable[[Turn, Message], object],
    ) -> None:
        self._turn = turn
        self._pack = pack
        self._llm = llm
        self._offer = offer
        self._max_rounds = max_rounds
        self._options = options
        self._store = store
        self._waiting = list(filter(offer.is_run_here, open_calls(turn.asked)))
        check_so_far(turn.asked, self._waiting)

    def rounds(self, *, stream: bool) -> Chunks:
        """Ask, run tools, ask again; store the turn once the answer is there.

        Args:
            stream: Whether to yield the model's chunks as they arrive.

        Returns:
            The last response: the answer, or calls that the caller has to run.

        Raises:
            ModelError: The model failed, or asks for tools when it may not any more.
        """
        given = len(self._turn.asked)
        turn = self._done(self._turn, [], self._waiting)
        for run in range(self._max_rounds + 1):
            is_last = run == self._max_rounds
            fields = self._fields(is_first=run == 0, is_last=is_last)
            if stream:
                response = yield from self._llm.chunks(turn.messages, **fields)
            else:
                response = self._llm.respond(turn.messages, **fields)
            answer = answer_in(response)
            if self._offer.hands_back(answer):
                earlier = turn.asked[given:]
                if earlier:
                    setattr(response, EARLIER, [message.to_dict() for message in earlier])
                return response
            if not answer.tool_calls:
                self._store(turn, answer)
                return response
            if not is_last:
                turn = self._done(turn, [answer], answer.tool_calls)
        raise ModelOutputInvalid(
            f"{self._llm.model} asks for more tools after max_rounds={self._max_rounds} rounds of "
            "them, when it was told to answer. Nothing was stored. Raise max_rounds, or ask for "
            "less at once."
        )

    def _fields(self, *, is_first: bool, is_last: bool) -> dict[str, Any]:
        """What one request is sent beside its messages.

        A choice of tools is for the first request: a call that is asked for each time never ends.
        """
        fields = dict(self._options)
        if not is_first:
            fields.pop("tool_choice", None)
        if self._offer.schemas:
            fields["tools"] = self._offer.schemas
            if is_last:
                fields["tool_choice"] = "none"
        return fields

    def _done(
        self, turn: Turn, said: Iterable[Message], calls: Iterable[Mapping[str, Any]]
    ) -> Turn:
        """The turn with what was said, and with the results of the calls, whole: its context shows
        of them what fits."""
        asked, todo = [*turn.asked, *said], list(calls)
        for call in todo:
            with readable(turn.session_id, turn.context.head, asked):
                text = self._offer.run(call)
            asked.append(Message(role="tool", tool_call_id=str(call.get("id")), content=text))
        if len(asked) == len(turn.asked):
            return turn
        return turn_of(turn.session_id, turn.user_id, asked, self._pack(asked), turn.regenerates)


class CompletionStream:
    """The chunks of litellm, as they arrive. The turn is stored once all of them were read.

    Nothing is stored of a stream that was closed early or failed. `close` may be called from any
    thread, and does not wait for the model.

    Args:
        chunks: What `Conversation.rounds` gives.
        account: What models are asked on.
        usage_asked: Whether a chunk that has no choices, and tells only what was used, is given.

    Attributes:
        response: At the end, all chunks of the last round put together; its `cost` is the turn's.
    """

    def __init__(self, chunks: Chunks, account: Account, *, usage_asked: bool = False) -> None:
        self._chunks = chunks
        self._account = account
        self._usage_asked = usage_asked
        self._reading = threading.Lock()
        self._stopped = False
        self.response: Any = None

    @property
    def usage(self) -> Usage:
        """What models were asked for in this turn so far, by all rounds and by recalling."""
        return self._account.usage

    @property
    def cost(self) -> float | None:
        """US dollars that it took so far; None where the price of a model is not known."""
        return self.usage.cost

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with self._reading:
            try:
                while not self._stopped:
                    chunk = next(self._chunks)
                    if chunk.choices or self._usage_asked:
                        return chunk
                raise StopIteration
            except StopIteration as end:
                if end.value is not None:
                    self.response = end.value
                    setattr(self.response, "cost", self.cost)  # noqa: B010 - litellm's own class
                raise
            finally:
                if self._stopped:
                    self._chunks.close()

    def close(self) -> None:
        """Stop. A step that is under way on another thread ends with its chunk."""
        self._stopped = True
        if self._reading.acquire(blocking=False):
            try:
                self._chunks.close()
            finally:
                self._reading.release()
