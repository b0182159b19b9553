"""Operations for the library's calls, derived from `client.calls` and the Python signatures.

An omitted field has the library's default. The credential decides which users and sessions a
request may name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from agent_memory import operations
from agent_memory.client.calls import CALLS, HANDLES, MESSAGES, MOST, Call, SessionAccess
from agent_memory.client.values import checked, message_of
from agent_memory.client.values import plain as exactly
from agent_memory.core.context import Explanation, MemoryContext
from agent_memory.core.messages import compact_json
from agent_memory.core.records import Head, Recall
from agent_memory.core.turns import Turn, messages_of
from agent_memory.engine.append import Update
from agent_memory.engine.listing import recalls_in
from agent_memory.engine.recall.merged_search import Filter
from agent_memory.errors import AccessDenied, Damaged, InvalidInput, SessionDeleting
from agent_memory.server.forms import FORMS
from agent_memory.server.inputs import SHARE, input_of
from agent_memory.server.operation import At, Operation, about, place_of
from agent_memory.server.problems import Kind, Refused, not_found

_ABSENT = object()


class _Recalls(list[Recall]):
    warnings: list[str]


_IN_TURNS = ", read; with `tools` also delete"
_MORE_RIGHTS: Mapping[str, str] = {
    "call_tool": ", read, delete",
    "take_turn": _IN_TURNS,
    "take_shared": _IN_TURNS,
    "get_value": "; with `refresh` also write",
}
"""The rights that `run_call` requires besides `Call.needs`, for the OpenAPI document."""


def operation_of(call: Call) -> Operation:
    form = FORMS[call.form]

    def run(at: At, request: Any) -> Any:
        result = run_call(call, at, request)
        return shown(call, at, request, result)

    summary, _ = about(call.function)
    described = f"In Python: `{call.subject}.{call.function_name}`."
    return Operation(
        call.name,
        call.method,
        call.path,
        call.needs,
        run,
        input_of(call),
        form.shape,
        (summary.rstrip(".:") + ".", described),
        keyed=call.keyed,
        again=call.again,
        versioned=call.versioned,
        run_all=_append_all if call.name == "append_messages" else None,
        anyones=call.needs != "admin" and call.subject != "shared",
        asks_model=call.function_name == "completion",
        exact=True,
        more_rights=_MORE_RIGHTS.get(call.name, ""),
    )


def shown(call: Call, at: At, request: Any, result: Any) -> Any:
    """Return the response for the result of a call. Raise 404 for data that does not exist."""
    form = FORMS[call.form]
    is_result = call.types.get("return") is not type(None)
    if result is _ABSENT or (form.optional and is_result and (result is None or result is False)):
        raise not_found()
    return Value(exactly(result)) if at.exact else form.show(result, at, request)


@dataclass(frozen=True, slots=True)
class Value:
    """A result with all its fields, for the Python client."""

    value: Any


def run_call(call: Call, at: At, request: Any, **more: Any) -> Any:
    """Make a call for the authenticated principal."""
    arguments, places = _arguments(call, at, request)
    if call.name == "call_tool" or call.function_name == "completion":
        at.principal.require("read")  # the answer may quote the memory
    if call.name == "call_tool" or arguments.get("tools"):
        at.principal.require("delete")  # a model may delete with a tool
    if arguments.get("refresh"):
        at.principal.require("write")  # a refresh postpones the value's expiry
    if call.function_name == "forget_all":
        arguments["found"] = _without_others(at, arguments["found"])
    if call.subject == "memory" and call.names_user:
        arguments["user_id"] = at.user_id or None
    if call.name == "get_working":
        arguments["default"] = _ABSENT
    if call.subject == "operations":
        places = [at.memory]
    if call.name == "verify_receipt" and not isinstance(request.receipt, str):
        arguments["receipt"] = compact_json(request.receipt)  # as text, all fields are checked
    with errors_for_admins(at):
        if call.name == "search":
            return _search(at, **arguments)
        target = _target(call, at, request)
        _check_there(call, at, request, target)
        result = getattr(target, call.function_name)(*places, **arguments, **more)
    if call.subject != "memory":
        return result
    return _without_ids(result if "admin" in at.principal.rights else _without_past(result))


@contextmanager
def errors_for_admins(at: At) -> Iterator[None]:
    """Show an admin the library's error if a session belongs to another user."""
    try:
        yield
    except AccessDenied as error:
        if "admin" not in at.principal.rights:
            raise
        raise Refused(Kind.NOT_FOUND, str(error), error=type(error)) from error


def _check_there(call: Call, at: At, request: Any, target: Any) -> None:
    """Raise 404 for a note or a file that does not exist.

    The library's own error is a sentence for a model. Only the Python client gets that error.
    """
    if at.exact:
        return
    if call.name == "change_note" and target.get(request.note_id) is None:
        raise not_found()
    path = getattr(request, "old_path", None) or getattr(request, "path", None)
    creates = call.name in ("create_file", "write_file")
    if call.subject == "files" and path is not None and not creates and not target.exists(path):
        raise not_found()


def _arguments(call: Call, at: At, request: Any) -> tuple[dict[str, Any], Sequence[Any]]:
    form, present, places = FORMS[call.form], request.model_fields_set, ()
    arguments: dict[str, Any] = {}
    for name, field in call.fields.items():
        if field.name in present:
            value = getattr(request, field.name)
            if name in MESSAGES:
                arguments[name] = _messages(value)
            elif name != "after":
                arguments[name] = checked(field.type, value, field.name)
    if "session_id" in arguments and call.access:
        deleting = call.function_name == "delete"
        session_id = at.session(arguments["session_id"], call.access, deleting=deleting)
        arguments["session_id"] = session_id
    if "turn" in call.parameters:
        arguments["turn"] = _turn(at, request, arguments)
    if "source" in call.parameters:
        arguments |= _source(arguments)
    for name, field in call.fields.items():
        if field.many:
            places = arguments.pop(name, ())
    if call.keyed and at.key is not None:
        arguments["key"] = at.key
    if call.versioned and at.version is not None:
        arguments["expected"] = at.version
    if "after" in call.fields and request.after is not None:
        is_seq = call.fields["after"].type is int
        arguments["after"] = place_of(request.after) if is_seq else request.after
    if "limit" in arguments or form.paged:
        _limit(call, at, request, arguments)
    return arguments, places


def _limit(call: Call, at: At, request: Any, arguments: dict[str, Any]) -> None:
    """Check the limit of a list. Request one more item, to detect whether the page is the last."""
    limit: int = request.limit
    if not at.exact and not 1 <= limit <= MOST:
        problem = f"limit is {limit}. Use 1 to {MOST}"
        raise Refused(Kind.INVALID, f"{problem}.", ({"field": "limit", "problem": problem},))
    paged = FORMS[call.form].paged
    if paged == "all":
        arguments.pop("limit", None)
    elif paged == "part" and not at.exact:
        name = "limit" if arguments.get("last") is None else "last"
        arguments[name] = limit + 1 if name == "limit" else min(arguments["last"], limit)
    elif call.function_name == "history":
        for name in ("limit", "last"):
            if type(arguments.get(name)) is int:
                arguments[name] = min(arguments[name], MOST)
        if arguments.get("limit") is None and arguments.get("last") is None:
            arguments["limit"] = MOST


def _messages(value: Any) -> Any:
    """Return messages for the library. A message with a time becomes a `Message`."""
    return [message_of(item) for item in value] if isinstance(value, list) else message_of(value)


def _target(call: Call, at: At, request: Any) -> Any:
    memory, user_id = at.memory, at.user_id or None
    if call.subject == "memory":
        return memory
    if call.subject == "operations":
        return operations
    if call.subject in (SHARE, "shared"):
        share = memory.share(request.share)
        return share if call.subject == SHARE else share.agent(at.user_id)
    session_id = getattr(request, call.session_field)
    if session_id is not None:
        access: SessionAccess = "write" if call.needs == "write" else "read"
        session = memory.session(at.session(session_id, access), user_id)
        if call.subject == "working":
            return session.working()
        owner = session.owner()
    elif user_id is None and call.subject in HANDLES:
        return memory.values() if call.subject == "values" else memory.open(call.subject)
    else:
        owner = memory.user(at.user_id or at.principal.user(None))
    if call.subject == "user":
        return owner
    return owner.values() if call.subject == "values" else owner.open(call.subject)


def _search(
    at: At,
    query: str,
    *,
    user_id: str | None = None,
    session_id: str | None = None,
    limit: int = 10,
    **only: Any,
) -> list[Recall]:
    search = at.memory.components.search.run
    recalls, warnings = search(query, user_id, session_id, limit, Filter.of(**only))
    result = _Recalls(recalls)
    result.warnings = warnings
    return result


def _turn(at: At, request: Any, arguments: dict[str, Any]) -> Turn:
    session_id = arguments.pop("session_id")
    messages = messages_of(arguments.pop("turn_messages"), "user")
    span = arguments.pop("regenerates", None)
    span = span and span._replace(session_id=session_id)
    context: Any = None
    return Turn(session_id, at.user_id or None, messages, context, [], span)


def _source(arguments: dict[str, Any]) -> dict[str, Any]:
    session_id, first = arguments.pop("session_id", None), arguments.pop("first", None)
    last = arguments.pop("last", None)
    if first is None and last is not None:
        raise InvalidInput("`last` is set without `first`. Set both.")
    source = session_id if first is None else (session_id, first, last or first)
    return {"source": source}


def _without_others(at: At, report: Any) -> list[Recall]:
    """Remove sources in other users' sessions, as if these sessions did not exist."""
    own = cache(lambda session_id: at.session(session_id, "read") == session_id)
    return [
        replace(recall, sources=tuple(place for place in recall.sources if own(place[0])))
        for recall in recalls_in(report)
    ]


def _without_past(value: Any) -> Any:
    """Remove `cacheable_tokens` from the context of a session that does not exist.

    The field would show whether another user's session has that id.
    """
    if isinstance(value, MemoryContext) and value.head is None:
        return replace(value, cacheable_tokens=None)
    if isinstance(value, Turn | Explanation):
        return replace(value, context=_without_past(value.context))
    return value


def _without_ids(value: Any) -> Any:
    """Remove the ids from a turn: they would show whether another user's session has the id."""
    if not isinstance(value, Turn):
        return value
    again = value.regenerates and value.regenerates._replace(session_id="")
    return replace(value, session_id="", user_id=None, regenerates=again)


_APPEND = next(call for call in CALLS if call.name == "append_messages")


def _append_all(jobs: Sequence[tuple[At, Any]]) -> Sequence[Any]:
    try:
        updates = [_update(*job) for job in jobs]
    except InvalidInput:
        return [_appended(*job) for job in jobs]
    heads = jobs[0][0].memory._update_all(updates)
    return [_answer(*job, head) for job, head in zip(jobs, heads, strict=True)]


def _update(at: At, request: Any) -> Update:
    items, own = _messages(request.messages), "admin" not in at.principal.rights
    return Update(request.session_id, items, at.user_id or None, at.key, request.expected_end, own)


def _answer(at: At, request: Any, head: Head | Exception) -> Any:
    if isinstance(head, Head):
        return shown(_APPEND, at, request, head)
    # Nothing was stored. The call is repeated alone. The repeated call may finish the session's
    # deletion, or raises the error that this user may see.
    by_itself = isinstance(head, AccessDenied | Damaged | SessionDeleting)
    return _appended(at, request) if by_itself else head


def _appended(at: At, request: Any) -> Any:
    try:
        return shown(_APPEND, at, request, run_call(_APPEND, at, request))
    except Exception as error:  # noqa: BLE001 - the error concerns one request
        return error


OPERATIONS: tuple[Operation, ...] = tuple(map(operation_of, CALLS))
"""One operation for each call in `client.calls`."""
