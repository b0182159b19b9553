"""Sessions, their messages and their contexts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from agent_memory.core.records import Head
from agent_memory.engine.append import Update
from agent_memory.errors import AccessDenied, Damaged, SessionDeleting
from agent_memory.server.operation import At, Form, SessionId, operation
from agent_memory.server.paging import Paged, cut, place_of
from agent_memory.server.problems import not_found
from agent_memory.server.views import talk, upkeep
from agent_memory.server.views.showing import Done

Said = Annotated[
    str | dict[str, Any],
    Field(description="A message: an OpenAI chat dict; a bare text is the user's."),
]
Format = Literal["openai.responses", "anthropic.messages"]


class ListSessions(Paged):
    """Which sessions."""

    prefix: str | None = Field(None, description="Only those whose ids begin so.")
    newest: bool = Field(False, description="The one that was spoken in last first.")


class OneSession(Form):
    """A session."""

    session_id: SessionId


class Describe(OneSession):
    """What a session is called."""

    metadata: dict[str, Any] = Field(description="A title, tags, whatever JSON holds.")


class Append(OneSession):
    """Messages to append."""

    messages: list[dict[str, Any]] = Field(
        min_length=1,
        max_length=500,
        description="OpenAI chat dicts. One with an `id` is stored once, however often it is sent.",
    )
    expected_end: int | None = Field(
        None, ge=0, description="Append only if the log still ends at this number."
    )


class ReadLog(OneSession, Paged):
    """Which messages."""


class GetContext(OneSession):
    """What to recall for."""

    message: Said | None = Field(None, description="The question; null for the newest one.")
    max_tokens: int | None = Field(None, ge=1, description="A smaller budget, for this call.")
    format: Format | None = Field(None, description="For which API; null for OpenAI's chat.")


@operation("GET", "/sessions", "read")
def list_sessions(at: At, asked: ListSessions) -> talk.Sessions:
    """List the user's sessions, in order of their ids or the newest first."""
    heads = at.memory.sessions(
        user_id=at.user_id,
        limit=asked.limit + 1,
        after=asked.after,
        prefix=asked.prefix,
        newest=asked.newest,
    )
    page, more = cut(heads, asked.limit, lambda head: head.session_id)
    return talk.Sessions([talk.session(head) for head in page], more)


@operation("GET", "/sessions/{session_id}", "read")
def read_session(at: At, asked: OneSession) -> talk.Session:
    """Tell how a session stands."""
    return talk.session(_head(at, asked))


@operation("GET", "/sessions/{session_id}/window", "read")
def read_window(at: At, asked: OneSession) -> talk.Window:
    """Tell what of a session's log is in its window, what stands for the rest, and what waits."""
    absorbing = at.memory.components.absorber.blocks
    return talk.window(_head(at, asked), at.memory.config.max_tokens, absorbing)


def _head(at: At, asked: OneSession) -> Head:
    head = at.memory.head(at.own(asked.session_id), user_id=at.user_id)
    if head is None:  # deleted a moment ago
        raise not_found()
    return head


@operation("PUT", "/sessions/{session_id}/metadata", "write")
def describe_session(at: At, asked: Describe) -> Done:
    """Keep what a session is called, in place of what was kept; it begins if need be."""
    session_id = at.to_write(asked.session_id)
    at.memory.describe(session_id, asked.metadata, user_id=at.user_id)
    return Done()


@operation("DELETE", "/sessions/{session_id}", "delete")
def delete_session(at: At, asked: OneSession) -> upkeep.Receipt:
    """Erase a session and all that derives from it; the receipt says what became of each place."""
    session_id = at.own(asked.session_id, deleting=True)
    return upkeep.receipt(at.memory.delete(session_id, user_id=at.user_id))


def _append_together(asked: Sequence[tuple[At, Append]]) -> Sequence[talk.End | Exception]:
    """Append for several at once; each gets an answer, or its error."""
    memory = asked[0][0].memory
    done = memory._update_all(
        [
            Update(one.session_id, one.messages, at.user_id, at.key, one.expected_end, own=True)
            for at, one in asked
        ]
    )
    if done is None:
        return [_appended(*one) for one in asked]
    return [_answer(*one, head) for one, head in zip(asked, done, strict=True)]


def _answer(at: At, asked: Append, head: Head | Exception) -> talk.End | Exception:
    if isinstance(head, Head):
        return talk.end(head)
    # nothing was stored: whose the session is decides what is told, and a deletion is finished
    by_itself = isinstance(head, AccessDenied | Damaged | SessionDeleting)
    return _appended(at, asked) if by_itself else head


def _appended(at: At, asked: Append) -> talk.End | Exception:
    try:
        return _append(at, asked)
    except Exception as error:  # noqa: BLE001 - it is that request's alone
        return error


def _append(at: At, asked: Append) -> talk.End:
    head = at.memory.update(
        at.to_write(asked.session_id),
        asked.messages,
        user_id=at.user_id,
        key=at.key,
        expected_end=asked.expected_end,
    )
    return talk.end(head)


@operation(
    "POST",
    "/sessions/{session_id}/messages",
    "write",
    once=True,
    together=_append_together,
)
def append_messages(at: At, asked: Append) -> talk.End:
    """Append messages to a session, all of them or none; it begins if need be.

    They are durable when this answers. The Idempotency-Key is kept with them, in one transaction.
    """
    return _append(at, asked)


@operation("GET", "/sessions/{session_id}/messages", "read")
def list_messages(at: At, asked: ReadLog) -> talk.Log:
    """Read a session's log, oldest first."""
    session_id, after = at.own(asked.session_id), place_of(asked.after)
    log = at.memory.history(session_id, user_id=at.user_id, after=after, limit=asked.limit + 1)
    expired, end = at.length(session_id)
    page, more = cut(log, asked.limit, lambda entry: str(entry.seq))
    return talk.Log([talk.logged(entry) for entry in page], more, end - expired)


@operation("POST", "/sessions/{session_id}/context", "read")
def get_context(at: At, asked: GetContext) -> talk.Context:
    """Give what to send to a model: the window, and what is recalled. Stores nothing.

    A session that does not exist yet gives what is recalled only.
    """
    found = at.memory.get(
        at.to_read(asked.session_id),
        asked.message,
        user_id=at.user_id,
        max_tokens=asked.max_tokens,
        format=asked.format,
    )
    return talk.context(found)


@operation("GET", "/sessions/{session_id}/contexts", "read")
def list_contexts(at: At, asked: ReadLog) -> talk.SentContexts:
    """Tell what models were sent in a session, turn by turn, oldest first. A page has whole turns.

    It is kept where the setting `keep_contexts` says so, as the service does by default.
    """
    session_id, after = at.own(asked.session_id), place_of(asked.after)
    found = at.memory.contexts(session_id, user_id=at.user_id, after=after, limit=asked.limit + 1)
    turns = list(dict.fromkeys(one.turn for one in found))
    page, more = cut(turns, asked.limit, str)
    return talk.SentContexts([talk.sent_context(one) for one in found if one.turn in page], more)


@operation("POST", "/sessions/{session_id}/checkpoint", "read")
def make_checkpoint(at: At, asked: OneSession) -> upkeep.Receipt:
    """Give a receipt for everything up to the newest message: it is durable."""
    return upkeep.receipt(at.memory.checkpoint(at.own(asked.session_id), user_id=at.user_id))


@operation("POST", "/sessions/{session_id}/end", "write")
def end_session(at: At, asked: OneSession) -> upkeep.Absorbed:
    """Say that a conversation is over for now: what waits is absorbed; the log stays."""
    done = at.memory.end(at.own(asked.session_id), user_id=at.user_id)
    return upkeep.absorbed(done)
