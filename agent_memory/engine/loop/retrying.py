"""A turn that is asked for again once it is stored: its answer is given, and no model is asked."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.core.limits import quoted
from agent_memory.core.window import role_of
from agent_memory.errors import Conflict

if TYPE_CHECKING:
    from agent_memory.core.messages import Message
    from agent_memory.models.llm import LLM


def answered_before(
    llm: LLM, said: Sequence[Message], key: str | None, *, stream: bool
) -> Generator[Any, None, Any]:
    """The response of a turn that was stored before, as `Conversation.rounds` gives one.

    Raises:
        Conflict: The answer is not in the log any more.
    """
    view = said[-1].to_openai() if said and role_of(said[-1]) == "assistant" else None
    if view is None:
        raise Conflict(
            f"The turn of the key {quoted(key)} was stored, and its answer is not in the log any "
            "more. Ask anew, with another key."
        )
    if stream:
        yield llm.as_chunk(view)
    return llm.as_response(view)
