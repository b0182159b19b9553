"""The operations of the service: the library's calls, and further calls defined here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from tempfile import TemporaryFile
from typing import IO, Annotated, Any, Final

from pydantic import Field

from agent_memory.client.calls import CALLS
from agent_memory.client.values import checked, digest_of, edited
from agent_memory.client.values import plain as exactly
from agent_memory.core.idempotency import version_of
from agent_memory.core.limits import MOST
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head
from agent_memory.engine.spending import Today
from agent_memory.engine.stats import Counted, SharedMetrics
from agent_memory.errors import ConfigError, Conflict
from agent_memory.server import library
from agent_memory.server.credentials import RIGHTS
from agent_memory.server.forms import FORMS
from agent_memory.server.library import Value, errors_for_admins, run_call
from agent_memory.server.operation import At, Operation, SessionId, about, operation, operations_of
from agent_memory.server.problems import not_found
from agent_memory.server.shapes import Shape, shape_of

_PAGE = 200
_EVENTS: Final = "text/event-stream"
_TURN = next(call for call in CALLS if call.name == "take_turn")

Lines = Iterator[dict[str, Any]]
Name = Annotated[str, Field(min_length=1, description="Its name.")]
Edited = Annotated[str, Field(max_length=100, description="The digest of the log before the edit.")]
Log = Annotated[
    list[int | dict[str, Any]],
    Field(description="Seqs of messages that stay, and {message, created_at} for new messages."),
]
FactId = Annotated[str, Field(min_length=1, max_length=400)]
Why = Annotated[str, Field(max_length=1_000, description="The reason, for the audit.")]


_WINDOW = shape_of(
    Head,
    "Window",
    "The window of a session: the messages after `start` up to `end`, and the `pinned` messages. "
    "Messages up to `expired` were removed from the log. `lag` is the number of messages that "
    "each block has yet to absorb.",
    "start end expired pinned system summary tokens=window_tokens",
    max_tokens=(int, None),
    lag=(dict[str, int], None),
)


@operation("GET", "/sessions/{session_id}/window", "read", _WINDOW)
def read_window(at: At, session_id: SessionId) -> dict[str, Any]:
    """Return a session's window, its summary, and how much each block has yet to absorb."""
    head = at.memory.head(at.session(session_id, "own"), user_id=at.user_id)
    if head is None:  # the session was deleted meanwhile
        raise not_found()
    blocks = at.memory.components.absorber.blocks
    more = {"max_tokens": at.memory.config.max_tokens, "lag": {n: head.lag(n) for n in blocks}}
    return {**_WINDOW.shown(head), **more}


@operation(
    "PUT", "/sessions/{session_id}/messages", "delete", FORMS["end"].shape, anyones=True, exact=True
)
def replace_log(at: At, session_id: SessionId, digest: Edited, log: Log) -> Any:
    """Replace a session's log with the result of an edit, in one step.

    The call is refused (409) if the log has changed since it was read.
    """
    wanted = [item if isinstance(item, int) else checked(Message, item, "log") for item in log]

    def change(now: list[Entry]) -> list[Entry | Message]:
        if digest_of(now) != digest:
            raise Conflict("The log has changed since it was read. Read it again and repeat.")
        return edited(now, wanted)

    session_id = at.session(session_id, "write")
    with errors_for_admins(at):
        head: Head = at.memory.edit(session_id, change, user_id=at.user_id or None)
    return Value(exactly(head)) if at.exact else FORMS["end"].show(head, at, None)


@operation("GET", "/sessions/{session_id}/export", "read", streams=_EVENTS, anyones=True)
def export_session(at: At, session_id: SessionId) -> Lines:
    """Stream a session's snapshot: `value` events with its lines, then `end`."""
    session = at.memory.session(at.session(session_id, "own"), at.user_id or None)
    file = TemporaryFile("w+", encoding="utf-8", newline="\n")  # noqa: SIM115 - read while it is sent
    try:
        with errors_for_admins(at):
            exported = session.export(file)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return _lines(file, exactly(exported))


@operation("POST", "/operations/replay", "admin", streams=_EVENTS)
def replay(at: At, block: Name) -> Lines:
    """Rebuild a block from the log, session by session, with a `value` event after each session."""
    return _events(at.memory.replay(block))


def stream_turn(at: At, request: Any) -> Lines:
    """Run take_turn as server-sent events: `token` with a `text` for each piece, then `stored`.

    For a client that accepts the exact format, the events are `value` for each piece, then `end`.
    If the client disconnects before the end, nothing is stored.
    """
    chunks = run_call(_TURN, at, request, stream=True)
    return _events(chunks) if at.exact else _tokens(at, request.session_id, chunks)


STREAM_TURN = replace(
    next(call for call in library.OPERATIONS if call.name == "take_turn"),
    name="stream_turn",
    path="/sessions/{session_id}/turn-stream",
    run=stream_turn,
    answer=None,
    about=about(stream_turn),
    streams=_EVENTS,
)


@operation("DELETE", "/facts/{fact_id}", "delete", FORMS["forgotten"].shape)
def forget_fact(at: At, fact_id: FactId, why: Why = "") -> dict[str, Any]:
    """Forget a fact permanently. The messages stay."""
    forgotten = at.user.forget(fact_id, why=why)
    if not forgotten:
        raise not_found()
    return {"forgotten": [fact.id for fact in forgotten]}


@operation("GET", "/user/export", "read", streams="application/x-ndjson")
def export_user(at: At) -> Lines:
    """Export all of the user's data, one JSON object per line, each with its `kind`.

    The last line has the kind "end". An export without this line is incomplete.
    """
    count = 0
    for kind, item in _all(at):
        count += 1
        yield {"kind": kind, kind: item}
    yield {"kind": "end", "lines": count}


@operation(
    "GET",
    "/me",
    None,
    Shape(
        "Me",
        "The credential of the request: its name, users and rights. `blocks` has the kind of each "
        "block of the service, by name. `keeps_contexts` is whether prompts are logged.",
        {
            **{"name": str, "label": str, "users": list[str], "rights": list[str]},
            **{"blocks": dict[str, str], "keeps_contexts": bool},
        },
    ),
)
def read_me(at: At) -> dict[str, Any]:
    """Describe the credential of this request."""
    principal, blocks = at.principal, at.memory.components.all_blocks
    return {
        "name": principal.name,
        "label": principal.label,
        "users": principal.users,
        "rights": [right for right in RIGHTS if right in principal.rights],
        "blocks": {name: block.kind for name, block in blocks.items()},
        "keeps_contexts": at.memory.config.keep_contexts,
    }


_SPENDING = shape_of(
    Counted,
    "Spending",
    "Model usage by purpose, of all processes since the store was created. `cacheable_tokens`: how "
    "many of the contexts' `prompt_tokens` were unchanged from the context before. "
    "`empty_recalls`: how many of the `recalls` found nothing.",
    "purposes=usage prompt_tokens=prompts.tokens cacheable_tokens=prompts.cacheable_tokens "
    "recalls=recalls.queries empty_recalls=recalls.empty",
    today=(Today | None, None),
)


@operation("GET", "/spending", "admin", _SPENDING)
def read_spending(at: At) -> dict[str, Any]:
    """Return the model usage and cost of all processes, by purpose. If spending is limited, return
    today's usage too.

    Each process adds its counters to the store every 15 seconds.
    """
    parts = at.memory.components
    counted = SharedMetrics(parts.store).read()
    return {**_SPENDING.shown(counted), "today": parts.services.spending.today()}


def _lines(file: IO[str], end: Any) -> Lines:
    with file:
        for line in file:
            yield {"event": "value", "value": line}
        yield {"event": "end", "value": end}


def _events(stream: Any) -> Lines:
    """Yield the items of a stream as `value` events, then its result as `end`."""
    try:
        for item in stream:
            yield {"event": "value", "value": exactly(item)}
        yield {"event": "end", "value": exactly(getattr(stream, "response", None))}
    finally:
        stream.close()


def _tokens(at: At, session_id: str, chunks: Any) -> Lines:
    try:
        for chunk in chunks:
            for choice in chunk.choices:
                if choice.delta.content:
                    yield {"event": "token", "text": choice.delta.content}
        yield {"event": "stored", "end": at.length(session_id)[1]}
    finally:
        chunks.close()


def _all(at: At) -> Iterator[tuple[str, object]]:
    after: str | None = None
    while page := at.memory.sessions(user_id=at.user_id, limit=_PAGE, after=after):
        for head in page:
            yield "session", head
            if head.summary is not None:
                yield "summary", {"session_id": head.session_id, "text": head.summary.text}
            yield from (("message", message) for message in _messages(at, head.session_id))
            prompts = at.memory.contexts(head.session_id, user_id=at.user_id)
            yield from (("context", context) for context in prompts)
            with suppress(ConfigError):  # no such block is configured
                if values := at.memory.session(head.session_id, at.user_id).working().all():
                    yield "working", {"session_id": head.session_id, "values": values}
        after = page[-1].session_id
    for kind, read in _stored(at):
        with suppress(ConfigError):  # no such block is configured
            yield from ((kind, item) for item in read())


def _messages(at: At, session_id: str) -> Iterator[object]:
    after = 0
    while page := at.memory.history(session_id, user_id=at.user_id, after=after, limit=_PAGE):
        for entry in page:
            place = {"session_id": entry.session_id, "seq": entry.seq}
            yield {**place, "message": entry.message, "created_at": entry.created_at}
        after = page[-1].seq


def _stored(at: At) -> Iterator[tuple[str, Callable[[], Iterable[object]]]]:
    user = at.user
    yield "note", user.notes().all
    yield "fact", user.facts
    yield "change", user.audit
    yield "profile", lambda: [user.profile()]
    yield "file", lambda: (_file(path, user.files().read(path)) for path in user.files().paths())
    yield "skill", lambda: (skill for skill in user.skills().all() if not skill.shared)
    yield "observation", lambda: user.spatial().all()
    yield "value", lambda: user.values().search(limit=MOST)


def _file(path: str, text: str) -> dict[str, Any]:
    return {"path": path, "text": text, "version": version_of(text)}


OPERATIONS: tuple[Operation, ...] = (*library.OPERATIONS, *operations_of(sys.modules[__name__]))
"""Every operation, in the order of the OpenAPI document."""
