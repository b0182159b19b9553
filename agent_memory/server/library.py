"""Operations for the library's calls, derived from `client.calls` and the Python signatures.

An omitted field has the library's default. The credential decides which users and sessions a
request may name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from agent_memory import operations
from agent_memory.client.calls import CALLS, HANDLES, MESSAGES, MOST, Call, Whose
from agent_memory.client.values import checked, message_of
from agent_memory.client.values import plain as exactly
from agent_memory.core.context import Explanation, MemoryContext
from agent_memory.core.messages import compact_json
from agent_memory.core.records import Head, Recall
from agent_memory.core.turns import Turn, messages_of
from agent_memory.engine.append import Update
from agent_memory.engine.recall.merged_search import Filter
from agent_memory.engine.stale_report import recalls_in
from agent_memory.errors import AccessDenied, Damaged, InvalidInput, SessionDeleting
from agent_memory.server.forms import FORMS
from agent_memory.server.inputs import SHARE, input_of
from agent_memory.server.operation import At, Operation, about, place_of
from agent_memory.server.problems import INVALID, NOT_FOUND, Refused, not_found

_ABSENT = object()
_MAKING = ("create_file", "write_file")


class _Found(list[Recall]):
    warnings: list[str]


def operation_of(call: Call) -> Operation:
    form = FORMS[call.form]

    def run(at: At, asked: Any) -> Any:
        found = made(call, at, asked)
        return shown(call, at, asked, found)

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
        once=call.once,
        versioned=call.versioned,
        together=_append_together if call.name == "append_messages" else None,
        anyones=call.needs != "admin" and call.subject != "shared",
        exact=True,
    )


def shown(call: Call, at: At, asked: Any, found: Any) -> Any:
    """Return the response for the result of a call. Raise 404 for data that does not exist."""
    form = FORMS[call.form]
    is_result = call.types.get("return") is not type(None)
    if found is _ABSENT or (form.optional and is_result and (found is None or found is False)):
        raise not_found()
    return Value(exactly(found)) if at.exact else form.show(found, at, asked)


@dataclass(frozen=True, slots=True)
class Value:
    """A result with all its fields, for the Python client."""

    value: Any


def made(call: Call, at: At, asked: Any, **more: Any) -> Any:
    """Make a call for the authenticated principal."""
    given, places = _arguments(call, at, asked)
    if call.name == "call_tool" or given.get("tools"):
        at.principal.require("delete")  # a model may delete with a tool
    if call.function_name == "forget_all":
        given["found"] = _without_others(at, given["found"])
    if call.subject == "memory" and call.names_user:
        given["user_id"] = at.user_id or None
    if call.name == "get_working":
        given["default"] = _ABSENT
    if call.subject == "operations":
        places = [at.memory]
    if call.name == "verify_receipt" and not isinstance(asked.receipt, str):
        given["receipt"] = compact_json(asked.receipt)  # so that all of it is checked
    with admins_told(at):
        if call.name == "search":
            return _search(at, **given)
        target = _target(call, at, asked)
        _check_there(call, at, asked, target)
        found = getattr(target, call.function_name)(*places, **given, **more)
    if call.subject != "memory":
        return found
    return _without_ids(found if "admin" in at.principal.rights else _without_past(found))


@contextmanager
def admins_told(at: At) -> Iterator[None]:
    """Show an admin the library's error if a session belongs to another user."""
    try:
        yield
    except AccessDenied as error:
        if "admin" not in at.principal.rights:
            raise
        raise Refused(NOT_FOUND, str(error), error=type(error)) from error


def _check_there(call: Call, at: At, asked: Any, target: Any) -> None:
    """Raise 404 for a note or a file that does not exist.

    The library's own error is a sentence for a model. Only the Python client gets that error.
    """
    if at.exact:
        return
    if call.name == "change_note" and target.get(asked.note_id) is None:
        raise not_found()
    path = getattr(asked, "old_path", None) or getattr(asked, "path", None)
    is_made = call.name in _MAKING
    if call.subject == "files" and path is not None and not is_made and not target.exists(path):
        raise not_found()


def _arguments(call: Call, at: At, asked: Any) -> tuple[dict[str, Any], Sequence[Any]]:
    form, sent, places = FORMS[call.form], asked.model_fields_set, ()
    given: dict[str, Any] = {}
    for name, one in call.fields.items():
        if one.name in sent:
            value = getattr(asked, one.name)
            if name in MESSAGES:
                given[name] = _said(value)
            elif name != "after":
                given[name] = checked(one.type, value, one.name)
    if "session_id" in given and call.whose:
        deleting = call.function_name == "delete"
        given["session_id"] = at.session(given["session_id"], call.whose, deleting=deleting)
    if "turn" in call.parameters:
        given["turn"] = _turn(at, asked, given)
    if "source" in call.parameters:
        given |= _source(given)
    for name, one in call.fields.items():
        if one.many:
            places = given.pop(name, ())
    if call.once and at.key is not None:
        given["key"] = at.key
    if call.versioned and at.version is not None:
        given["expected"] = at.version
    if "after" in call.fields and asked.after is not None:
        is_seq = call.fields["after"].type is int
        given["after"] = place_of(asked.after) if is_seq else asked.after
    if "limit" in given or form.paged:
        _limit(call, at, asked, given)
    return given, places


def _limit(call: Call, at: At, asked: Any, given: dict[str, Any]) -> None:
    """Check the limit of a list. Request one more item, to detect whether the page is the last."""
    limit: int = asked.limit
    if not at.exact and not 1 <= limit <= MOST:
        told = f"limit is {limit}. Use 1 to {MOST}"
        raise Refused(INVALID, f"{told}.", ({"field": "limit", "problem": told},))
    paged = FORMS[call.form].paged
    if paged == "all":
        given.pop("limit", None)
    elif paged == "part" and not at.exact:
        name = "limit" if given.get("last") is None else "last"
        given[name] = limit + 1 if name == "limit" else min(given["last"], limit)
    elif call.function_name == "history":
        for name in ("limit", "last"):
            if type(given.get(name)) is int:
                given[name] = min(given[name], MOST)
        if given.get("limit") is None and given.get("last") is None:
            given["limit"] = MOST


def _said(value: Any) -> Any:
    """Return messages for the library. A message with a time becomes a `Message`."""
    return [message_of(one) for one in value] if isinstance(value, list) else message_of(value)


def _target(call: Call, at: At, asked: Any) -> Any:
    memory, user_id = at.memory, at.user_id or None
    if call.subject == "memory":
        return memory
    if call.subject == "operations":
        return operations
    if call.subject in (SHARE, "shared"):
        share = memory.share(asked.share)
        return share if call.subject == SHARE else share.agent(at.user_id)
    session_id = getattr(asked, call.session_field)
    if session_id is not None:
        whose: Whose = "write" if call.needs == "write" else "read"
        session = memory.session(at.session(session_id, whose), user_id)
        if call.subject == "working":
            return session.working()
        owner = session.owner()
    elif user_id is None and call.subject in HANDLES:
        return memory.values() if call.subject == "values" else memory.open(call.subject)
    else:
        owner = memory.user(at.user_id)
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
    found, warnings = search(query, user_id, session_id, limit, Filter.of(**only))
    result = _Found(found)
    result.warnings = warnings
    return result


def _turn(at: At, asked: Any, given: dict[str, Any]) -> Turn:
    session_id = given.pop("session_id")
    said, again = messages_of(given.pop("asked"), "user"), given.pop("regenerates", None)
    again = again and again._replace(session_id=session_id)
    context: Any = None
    return Turn(session_id, at.user_id or None, said, context, [], again)


def _source(given: dict[str, Any]) -> dict[str, Any]:
    session_id, first = given.pop("session_id", None), given.pop("first", None)
    last = given.pop("last", None)
    if first is None and last is not None:
        raise InvalidInput("`last` is set without `first`. Set both.")
    source = session_id if first is None else (session_id, first, last or first)
    return {"source": source}


def _without_others(at: At, found: Any) -> list[Recall]:
    """Remove sources in other users' sessions, as if these sessions did not exist."""
    own = cache(lambda session_id: at.session(session_id, "read") == session_id)
    return [
        replace(one, sources=tuple(place for place in one.sources if own(place[0])))
        for one in recalls_in(found)
    ]


def _without_past(value: Any) -> Any:
    """Remove `kept_tokens` from the context of a session that does not exist.

    The field would show whether another user's session has that id.
    """
    if isinstance(value, MemoryContext) and value.head is None:
        return replace(value, kept_tokens=None)
    if isinstance(value, Turn | Explanation):
        return replace(value, context=_without_past(value.context))
    return value


def _without_ids(value: Any) -> Any:
    """Remove the ids from a turn: they would show whether another user's session has the id."""
    if not isinstance(value, Turn):
        return value
    again = value.regenerates and value.regenerates._replace(session_id="")
    return replace(value, session_id="", user_id=None, regenerates=again)


_APPEND = next(one for one in CALLS if one.name == "append_messages")


def _append_together(asked: Sequence[tuple[At, Any]]) -> Sequence[Any]:
    try:
        updates = [_update(*one) for one in asked]
    except InvalidInput:
        return [_appended(*one) for one in asked]
    done = asked[0][0].memory._update_all(updates)
    return [_answer(*one, head) for one, head in zip(asked, done, strict=True)]


def _update(at: At, asked: Any) -> Update:
    said, own = _said(asked.messages), "admin" not in at.principal.rights
    return Update(asked.session_id, said, at.user_id or None, at.key, asked.expected_end, own)


def _answer(at: At, asked: Any, head: Head | Exception) -> Any:
    if isinstance(head, Head):
        return shown(_APPEND, at, asked, head)
    # Nothing was stored. The call is repeated alone: it may finish the session's deletion, or raise
    # the error that this user may see.
    by_itself = isinstance(head, AccessDenied | Damaged | SessionDeleting)
    return _appended(at, asked) if by_itself else head


def _appended(at: At, asked: Any) -> Any:
    try:
        return shown(_APPEND, at, asked, made(_APPEND, at, asked))
    except Exception as error:  # noqa: BLE001 - it concerns only this request
        return error


OPERATIONS: tuple[Operation, ...] = tuple(map(operation_of, CALLS))
"""One operation for each call in `client.calls`."""
