"""Turns: what to send a model, and storing what it answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from agent_memory.core.turns import answer_in, check_whole, messages_of
from agent_memory.server.calls.sessions import OneSession, Said
from agent_memory.server.operation import At, operation
from agent_memory.server.views import talk
from agent_memory.server.views.showing import shown

Messages = Annotated[list[dict[str, Any]], Field(min_length=1, max_length=500)]


class Begin(OneSession):
    """A question, or a turn so far."""

    message: Said | Messages = Field(
        description="The question; or a list: the question, calls of tools, and their results."
    )


class Finish(OneSession):
    """A turn and its answer."""

    asked: Messages = Field(description="What before-turn gave as `asked`.")
    answer: str | dict[str, Any] | Messages = Field(
        description="What the model said, as text or as a message; or a list, in order: calls of "
        "tools, their results, the answer."
    )
    expected_end: int | None = Field(
        None, ge=0, description="Store only if the log still ends at this number."
    )


class Ask(OneSession):
    """A question for the model of the service."""

    message: Said | Messages = Field(description="As for before-turn.")


@operation("POST", "/sessions/{session_id}/before-turn", "read")
def before_turn(at: At, asked: Begin) -> talk.Begun:
    """Give what to send to a model of your own: the context, with the turn at its end."""
    session_id = at.to_read(asked.session_id)
    turn = at.memory.before_turn(session_id, asked.message, user_id=at.user_id)
    said = [message.to_dict() for message in turn.asked]
    return shown(talk.Begun, turn.context, messages=turn.messages, asked=said)


@operation("POST", "/sessions/{session_id}/after-turn", "write", once=True)
def after_turn(at: At, asked: Finish) -> talk.End:
    """Store a turn with its answer, all of it or nothing."""
    session_id = at.to_write(asked.session_id)
    said = [*messages_of(asked.asked, "user"), *messages_of(asked.answer, "assistant")]
    check_whole(said)
    head = at.memory.update(
        session_id, said, user_id=at.user_id, key=at.key, expected_end=asked.expected_end
    )
    return talk.end(head)


@operation("POST", "/sessions/{session_id}/turn", "write", once=True)
def take_turn(at: At, asked: Ask) -> talk.Answered:
    """Have the model of the service answer, and store the turn once the answer is there.

    Whatever fails on the way, nothing is stored. No field of a request names a model or an address.
    """
    session_id = at.to_write(asked.session_id)
    response = at.memory.completion(session_id, asked.message, user_id=at.user_id, key=at.key)
    return talk.Answered(answer_in(response).to_dict(), at.length(session_id)[1])


@operation(
    "POST", "/sessions/{session_id}/turn-stream", "write", once=True, streams="text/event-stream"
)
def stream_turn(at: At, asked: Ask) -> Iterator[dict[str, Any]]:
    """As take_turn, as server-sent events: `token` with a `text` for each piece, then `stored`.

    Who goes away before the end leaves nothing stored.
    """
    session_id = at.to_write(asked.session_id)
    chunks = at.memory.completion(
        session_id, asked.message, user_id=at.user_id, key=at.key, stream=True
    )
    return _told(at, session_id, chunks)


def _told(at: At, session_id: str, chunks: Any) -> Iterator[dict[str, Any]]:
    try:
        for chunk in chunks:
            for choice in chunk.choices:
                if choice.delta.content:
                    yield {"event": "token", "text": choice.delta.content}
        yield {"event": "stored", "end": at.length(session_id)[1]}
    finally:
        chunks.close()
