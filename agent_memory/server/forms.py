"""The forms of responses, which show the results of Python methods.

`agent_memory.client.calls` names the form of each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from operator import attrgetter
from typing import Any, Literal, get_args

from agent_memory.client.calls import CALLS
from agent_memory.core.context import MemoryContext
from agent_memory.core.formats.exact import as_json
from agent_memory.core.idempotency import version_of
from agent_memory.core.prompt_log import LoggedPrompt
from agent_memory.core.records import Entry, Head, Recall
from agent_memory.core.turns import answer_in
from agent_memory.server.operation import At, cut, page_of
from agent_memory.server.shapes import SHAPES, Shape, shape_of

Paged = Literal["", "all", "part"]

_JSON = dict[str, Any]
_RESULT = object()
_PAGE_BYTES = 4 * 2**20


@dataclass(frozen=True)
class AnswerForm:
    shape: Shape
    # returns the response, given a result, the request's context and the request's input
    show: Callable[[Any, At, Any], Any]
    # "all" if the method returns a whole list, which the service cuts into pages. "part" if the
    # method itself takes a limit. An empty text if the response has no pages.
    paged: Paged = ""
    # whether a result of None or False means that the requested data does not exist
    optional: bool = False


Builder = Callable[[Any], AnswerForm]
"""Returns a form for the type of the Python method's result."""

_FORMS: dict[str, Builder] = {}


def _answer(
    name: str,
    description: str,
    types: dict[str, Any],
    show: Callable[[Any, At, Any], Any],
    paged: Paged = "",
    optional: bool = False,
) -> Builder:
    """Return a builder of forms with these fields. `_RESULT` stands for the type of the result."""

    def build(kind: Any) -> AnswerForm:
        fields = {field: kind if value is _RESULT else value for field, value in types.items()}
        return AnswerForm(Shape(name, description, fields), show, paged, optional)

    return build


def _shown_by(
    name: str, paged: Paged = "", *, optional: bool = False, **types: Any
) -> Callable[[Callable[[Any, At, Any], Any]], None]:
    """Return a decorator for a function that shows results. Its docstring is the description."""

    def add(show: Callable[[Any, At, Any], Any]) -> None:
        description = " ".join((show.__doc__ or "").split())
        _FORMS[show.__name__] = _answer(name, description, types, show, paged, optional)

    return add


def _value(kind: Any) -> AnswerForm:
    """Return the form of one value, which may not exist."""
    kind = next(arg for arg in get_args(kind) or [kind] if arg is not type(None))
    return AnswerForm(SHAPES[kind], lambda result, at, request: result, optional=True)


def _field(name: str, description: str, field: str, kind: Any = _RESULT) -> Builder:
    return _answer(name, description, {field: kind}, lambda result, at, request: {field: result})


def _page(
    name: str, description: str, field: str, key: Callable[[Any], str] = attrgetter("id")
) -> Builder:
    """Return a builder of forms for a page of a list. `key` returns the unique name of an item."""

    def show(items: Sequence[Any], at: At, request: Any) -> _JSON:
        page, more = page_of(items, request.limit, request.after, key)
        return {field: page, "total": len(items), "next": more}

    types = {field: _RESULT, "total": int, "next": str | None}
    return _answer(name, description, types, show, "all")


def _parts(name: str, description: str, fields: str, **rest: tuple[Any, Any]) -> Builder:
    """Return a builder of forms with fields of the result. `shape_of` describes the arguments."""

    def build(kind: Any) -> AnswerForm:
        shape = shape_of(kind, name, description, fields, **rest)
        return AnswerForm(shape, lambda result, at, request: shape.shown(result))

    return build


@_shown_by("Done", optional=True, done=bool)
def done(result: Any, at: At, request: Any) -> _JSON:
    """A confirmation."""
    return {"done": True}


@_shown_by("Sessions", "part", sessions=_RESULT, next=str | None)
def sessions(heads: list[Head], at: At, request: Any) -> _JSON:
    """A page of sessions."""
    page, more = cut(heads, request.limit, lambda head: head.session_id)
    return {"sessions": page, "next": more}


@_shown_by("Log", "part", messages=_RESULT, next=str | None, total=int | None)
def log(entries: list[Entry], at: At, request: Any) -> _JSON:
    """A page of a session's log."""
    sizes = accumulate(len(entry.message.to_json().encode()) for entry in entries)
    fitting = sum(1 for _ in takewhile(lambda size: size <= _PAGE_BYTES, sizes))
    page, more = cut(entries, min(request.limit, max(fitting, 1)), lambda entry: str(entry.seq))
    expired, end = at.length(request.session_id)
    total = None if hasattr(request, "share") else end - expired
    return {"messages": page, "next": more, "total": total}


@_shown_by("LoggedPrompts", "part", contexts=_RESULT, next=str | None)
def contexts(every: list[LoggedPrompt], at: At, request: Any) -> _JSON:
    """A page of the prompt log."""
    page, more = cut(list(dict.fromkeys(context.turn for context in every)), request.limit, str)
    return {"contexts": [context for context in every if context.turn in page], "next": more}


_CONTEXT: Any = {
    **{"messages": list[_JSON], "arguments": _JSON, "recalls": list[Recall]},
    **{"warnings": list[str], "tokens": int, "max_tokens": int},
}


@_shown_by("Context", **_CONTEXT)
def context(result: MemoryContext, at: At, request: Any) -> _JSON:
    """The context to send to a model, within the budget. `messages` fit any chat API, or the API of
    the requested format. `arguments` has the API's other arguments, such as the system text.
    """
    arguments = as_json(result.to_arguments())
    messages = arguments.pop(next(iter(arguments)))
    more = {"recalls": result.recalls, "warnings": result.warnings}
    budget = {"tokens": result.tokens, "max_tokens": result.max_tokens}
    return {"messages": messages, "arguments": arguments, **more, **budget}


@_shown_by("Answered", message=_JSON, end=int | None)
def answered(result: Any, at: At, request: Any) -> _JSON:
    """The answer of a model. The turn is stored up to `end`."""
    end = None if hasattr(request, "share") else at.length(request.session_id)[1]
    return {"message": answer_in(result), "end": end}


@_shown_by("Searched", results=_RESULT, warnings=list[str])
def searched(results: Any, at: At, request: Any) -> _JSON:
    """The results of a search, best first. `warnings` lists blocks that could not be searched."""
    return {"results": results, "warnings": results.warnings}


@_shown_by("Audit", "all", changes=_RESULT, total=int, next=str | None)
def changes(every: list[Any], at: At, request: Any) -> _JSON:
    """A page of changes, oldest first."""
    numbered = list(enumerate(every, 1))
    page, more = page_of(numbered, request.limit, request.after, lambda item: str(item[0]))
    return {"changes": [item for _, item in page], "total": len(every), "next": more}


@_shown_by("Forgotten", forgotten=list[str])
def forgotten(facts: list[Any], at: At, request: Any) -> _JSON:
    """The ids of the forgotten facts."""
    return {"forgotten": [fact.id for fact in facts]}


@_shown_by("File", path=str, text=str, version=str)
def file(result: str | None, at: At, request: Any) -> _JSON:
    """A file. Pass its `version` in If-Match."""
    text = request.text if result is None else result
    return {"path": request.path, "text": text, "version": version_of(text)}


@_shown_by("Agents", agents=dict[str, str])
def agents(result: Any, at: At, request: Any) -> _JSON:
    """The agents of a shared namespace, with their access."""
    return {"agents": at.memory.share(request.share).agents() if result is None else result}


_PACKED = "tokens=context.tokens max_tokens=context.max_tokens"
_FORMS |= {
    "session": _value,
    "end": _parts("End", "The end of a session's log after a write.", "end tokens=total"),
    "messages": _field("Messages", "Messages, unchanged.", "messages"),
    "begun": _parts(
        "Begun",
        "A turn without its answer. Send `messages` to the model. Then send `turn_messages`, the "
        "answer, and `regenerates` (if set) to after-turn.",
        f"messages turn_messages regenerates {_PACKED} warnings=context.warnings",
    ),
    "found": _field("Found", "The results of a search, best first.", "results"),
    "explained": _parts(
        "Explained",
        "The recalls for a question, and the records left out, with reasons. `messages` is the "
        "prompt that a model would be sent now.",
        f"recalls left_out dropped given_up=dead_letters {_PACKED} warnings",
        messages=(list[_JSON], lambda explanation: as_json(explanation.context.to_messages())),
    ),
    "receipt": _value,
    "absorbed": _field("Absorbed", "The result of absorbing.", "absorbed"),
    "tools": _field("Tools", "Tools, as a chat API takes them.", "tools"),
    "text": _field("Text", "A text.", "text"),
    "count": _field("Count", "A number.", "count"),
    "value": _field("Value", "A value.", "value"),
    "working": _field("Working", "The working memory of a session.", "values"),
    "keys": _field("Keys", "The keys of a working memory.", "keys"),
    "users": _page("Users", "A page of users, by id.", "users", attrgetter("user_id")),
    "shares": _field("Shares", "Shared namespaces.", "shares"),
    "dead_letters": _page(
        "DeadLetters",
        "A page of dead letters.",
        "dead_letters",
        lambda letter: f"{letter.block} {letter.first} {letter.session_id}",
    ),
    "stats": _parts(
        "Stats",
        "The memory's statistics. `usage` counts this process only.",
        "sessions messages=entries blocks usage",
    ),
    "facts": _page("Facts", "A page of facts, in the order in which they were stated.", "facts"),
    "stale": _field("StaleFacts", "Facts proposed for forgetting.", "facts"),
    "profile": _field("Profile", "The values of the profile's fields.", "profile", _JSON),
    "surplus": _field("SurplusFound", "Records proposed for deletion.", "surplus"),
    "forgotten_all": _field("Removed", "The records that are gone.", "removed"),
    "note": _value,
    "notes": _page("Notes", "A page of notes, oldest first.", "notes"),
    "files": _page("Files", "The paths of a page of files, in order.", "paths", str),
    "skill": _value,
    "skills": _page("Skills", "A page of skills, by name.", "skills", attrgetter("name")),
    "some_skills": _field("SomeSkills", "Skills, best first.", "skills"),
    "observation": _value,
    "observations": _page("Observations", "A page of observations, oldest first.", "observations"),
    "some_observations": _field("SomeObservations", "Observations.", "observations"),
    "near": _field("NearBy", "The observations near a place, best first.", "results"),
    "item": _value,
    "items": _field("Items", "Values.", "items"),
    "namespaces": _field("Namespaces", "Namespaces.", "namespaces"),
    "access": _field("HasAccess", "Whether an agent has access.", "has_access"),
}

FORMS = {call.form: _FORMS[call.form](call.types["return"]) for call in CALLS}
