"""The answers of the calls: how the result of a Python method is shown.

The form of a call is named in the table (`agent_memory.client.calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from agent_memory.core.context import MemoryContext
from agent_memory.core.formats.exact import as_json
from agent_memory.core.idempotency import version_of
from agent_memory.core.prompt_log import SentContext
from agent_memory.core.receipts import Receipt
from agent_memory.core.records import (
    Absorbed,
    DeadLetter,
    Entry,
    Head,
    LeftOut,
    Recall,
    Span,
    Surplus,
)
from agent_memory.core.turns import answer_in
from agent_memory.core.usage import Usage
from agent_memory.engine.listing import UserSize
from agent_memory.engine.stats import BlockStats
from agent_memory.engine.values.items import KeyValue
from agent_memory.server.operation import At, cut, page_of
from agent_memory.server.shapes import SHAPES, Shape

Paged = Literal["", "all", "part"]

_JSON = dict[str, Any]


def _class(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(f"agent_memory.ltm_blocks.{module}"), name)


Fact: Any = _class("extractive.history.fact:Fact")
Change: Any = _class("extractive.history.history:Change")
Note: Any = _class("notes:Note")
Skill: Any = _class("skills.files:Skill")
Observation: Any = _class("spatial.observation:Observation")
SpatialMatch: Any = _class("spatial.observation:SpatialMatch")
Stale: Any = _class("extractive.history.likeness:Stale")


@dataclass(frozen=True)
class AnswerForm:
    """The form of an answer.

    Attributes:
        show: Returns the answer for a result, the request's context and its input.
        paged: "all" if the method returns a whole list, which is cut into pages; "part" if the
            method takes a limit itself; empty if the answer has no pages.
        optional: Whether None and False mean that the thing does not exist.
    """

    shape: Shape
    show: Callable[[Any, At, Any], Any]
    paged: Paged = ""
    optional: bool = False


def _answer(
    name: str,
    description: str,
    types: dict[str, Any],
    show: Callable[[Any, At, Any], Any],
    paged: Paged = "",
) -> AnswerForm:
    return AnswerForm(Shape(name, description, types), show, paged)


def _of(kind: Any, optional: bool = False) -> AnswerForm:
    return AnswerForm(SHAPES[kind], lambda found, at, asked: found, optional=optional)


def _field(name: str, description: str, field: str, kind: Any) -> AnswerForm:
    return _answer(name, description, {field: kind}, lambda found, at, asked: {field: found})


def _page(
    name: str, description: str, field: str, kind: Any, key: Callable[[Any], str]
) -> AnswerForm:
    """Return the form of a page of a list. `key` returns the unique name of an item."""

    def show(found: Sequence[Any], at: At, asked: Any) -> _JSON:
        page, more = page_of(found, asked.limit, asked.after, key)
        return {field: page, "total": len(found), "next": more}

    types = {field: list[kind], "total": int, "next": str | None}
    return _answer(name, description, types, show, "all")


def _parts(name: str, description: str, **parts: tuple[Any, Any]) -> AnswerForm:
    """Return the form of an answer with parts of the result, each with its type and attribute."""
    types = {field: kind for field, (kind, _) in parts.items()}
    shape = Shape(name, description, types, {field: get for field, (_, get) in parts.items()})
    return AnswerForm(shape, lambda found, at, asked: shape.shown(found))


def _sessions(found: list[Head], at: At, asked: Any) -> _JSON:
    page, more = cut(found, asked.limit, lambda head: head.session_id)
    return {"sessions": page, "next": more}


def _log(found: list[Entry], at: At, asked: Any) -> _JSON:
    page, more = cut(found, asked.limit, lambda entry: str(entry.seq))
    expired, end = at.length(asked.session_id)
    total = None if hasattr(asked, "share") else end - expired
    return {"messages": page, "next": more, "total": total}


def _contexts(found: list[SentContext], at: At, asked: Any) -> _JSON:
    page, more = cut(list(dict.fromkeys(one.turn for one in found)), asked.limit, str)
    return {"contexts": [one for one in found if one.turn in page], "next": more}


def _context(found: MemoryContext, at: At, asked: Any) -> _JSON:
    arguments = as_json(found.to_arguments())
    messages = arguments.pop(next(iter(arguments)))
    more = {"recalls": found.recalls, "warnings": found.warnings}
    budget = {"tokens": found.tokens, "max_tokens": found.max_tokens}
    return {"messages": messages, "arguments": arguments, **more, **budget}


def _answered(found: Any, at: At, asked: Any) -> _JSON:
    end = None if hasattr(asked, "share") else at.length(asked.session_id)[1]
    return {"message": answer_in(found), "end": end}


def _changes(found: list[Any], at: At, asked: Any) -> _JSON:
    numbered = list(enumerate(found, 1))
    page, more = page_of(numbered, asked.limit, asked.after, lambda one: str(one[0]))
    return {"changes": [one for _, one in page], "total": len(found), "next": more}


def _file(found: str | None, at: At, asked: Any) -> _JSON:
    text = asked.text if found is None else found
    return {"path": asked.path, "text": text, "version": version_of(text)}


def _agents(found: Any, at: At, asked: Any) -> _JSON:
    return {"agents": at.memory.share(asked.share).agents() if found is None else found}


_BUDGET = {"tokens": (int, "context.tokens"), "max_tokens": (int, "context.max_tokens")}
_WARNINGS = (list[str], "warnings")
_NEXT = {"next": str | None}

FORGOTTEN = Shape("Forgotten", "The ids of the forgotten facts.", {"forgotten": list[str]})

FORMS: dict[str, AnswerForm] = {
    "done": AnswerForm(
        Shape("Done", "A confirmation.", {"done": bool}),
        lambda found, at, asked: {"done": True},
        optional=True,
    ),
    "sessions": _answer(
        "Sessions", "A page of sessions.", {"sessions": list[Head], **_NEXT}, _sessions, "part"
    ),
    "session": _of(Head, optional=True),
    "end": _parts(
        "End",
        "The end of a session's log after a write.",
        end=(int, "end"),
        tokens=(int, "total"),
    ),
    "log": _answer(
        "Log",
        "A page of a session's log.",
        {"messages": list[Entry], **_NEXT, "total": int | None},
        _log,
        "part",
    ),
    "messages": _field("Messages", "Messages, unchanged.", "messages", list[_JSON]),
    "context": _answer(
        "Context",
        "The context to send to a model, within the budget. `messages` fit any chat API, or "
        "the API of the format. `arguments` has the API's other arguments, such as the system "
        "text.",
        {
            "messages": list[_JSON],
            "arguments": _JSON,
            "recalls": list[Recall],
            "warnings": list[str],
            "tokens": int,
            "max_tokens": int,
        },
        _context,
    ),
    "contexts": _answer(
        "SentContexts",
        "A page of the prompt log.",
        {"contexts": list[SentContext], **_NEXT},
        _contexts,
        "part",
    ),
    "begun": _parts(
        "Begun",
        "A turn without its answer. Send `messages` to the model, then `asked`, the answer, "
        "and `regenerates` if it is set, to after-turn.",
        messages=(list[_JSON], "messages"),
        asked=(list[_JSON], "asked"),
        regenerates=(Span | None, "regenerates"),
        **_BUDGET,
        warnings=(list[str], "context.warnings"),
    ),
    "answered": _answer(
        "Answered",
        "The answer of a model. The turn is stored up to `end`.",
        {"message": _JSON, "end": int | None},
        _answered,
    ),
    "found": _field("Found", "The results of a search, best first.", "results", list[Recall]),
    "searched": _parts(
        "Searched",
        "The results of a search, best first. `warnings` lists blocks that could not be searched.",
        results=(list[Recall], lambda found: found),
        warnings=_WARNINGS,
    ),
    "explained": _parts(
        "Explained",
        "The recalls for a question, the records left out, and why. `messages` is the prompt "
        "that a model would be sent now.",
        recalls=(list[Recall], "recalls"),
        left_out=(list[LeftOut], "left_out"),
        dropped=(list[str], "dropped"),
        given_up=(list[DeadLetter], "dead_letters"),
        messages=(list[_JSON], lambda found: as_json(found.context.to_messages())),
        **_BUDGET,
        warnings=_WARNINGS,
    ),
    "receipt": _of(Receipt),
    "absorbed": _field("Absorbed", "The result of absorbing.", "absorbed", list[Absorbed]),
    "tools": _field("Tools", "Tools, as a chat API takes them.", "tools", list[_JSON]),
    "text": _field("Text", "A text.", "text", str),
    "count": _field("Count", "A number.", "count", int),
    "value": _field("Value", "A value.", "value", Any),
    "working": _field("Working", "The working memory of a session.", "values", _JSON),
    "keys": _field("Keys", "The keys of a working memory.", "keys", list[str]),
    "users": _page("Users", "A page of users, by id.", "users", UserSize, lambda one: one.user_id),
    "shares": _field("Shares", "Shared namespaces.", "shares", list[str]),
    "dead_letters": _page(
        "DeadLetters",
        "A page of dead letters.",
        "dead_letters",
        DeadLetter,
        lambda one: f"{one.block} {one.first} {one.session_id}",
    ),
    "stats": _parts(
        "Stats",
        "The memory's statistics. `usage` counts this process only.",
        sessions=(int, "sessions"),
        messages=(int, "entries"),
        blocks=(dict[str, BlockStats], "blocks"),
        usage=(Usage, "usage"),
    ),
    "facts": _page(
        "Facts",
        "A page of facts, in the order in which they were stated.",
        "facts",
        Fact,
        lambda fact: str(fact.id),
    ),
    "stale": _field("StaleFacts", "Facts that may be forgotten.", "facts", list[Stale]),
    "profile": _field("Profile", "The values of the profile's fields.", "profile", _JSON),
    "changes": _answer(
        "Audit",
        "A page of changes, oldest first.",
        {"changes": list[Change], "total": int, **_NEXT},
        _changes,
        "all",
    ),
    "surplus": _field("SurplusFound", "Records that may be deleted.", "surplus", list[Surplus]),
    "forgotten": AnswerForm(
        FORGOTTEN, lambda found, at, asked: {"forgotten": [one.id for one in found]}
    ),
    "forgotten_all": _field("Removed", "The records that are gone.", "removed", list[Recall]),
    "note": _of(Note, optional=True),
    "notes": _page("Notes", "A page of notes, oldest first.", "notes", Note, lambda note: note.id),
    "files": _page("Files", "The paths of a page of files, in order.", "paths", str, str),
    "file": _answer(
        "File",
        "A file. Pass its `version` in If-Match.",
        {"path": str, "text": str, "version": str},
        _file,
    ),
    "skill": _of(Skill, optional=True),
    "skills": _page(
        "Skills", "A page of skills, by name.", "skills", Skill, lambda skill: skill.name
    ),
    "some_skills": _field("SomeSkills", "Skills, best first.", "skills", list[Skill]),
    "observation": _of(Observation, optional=True),
    "observations": _page(
        "Observations",
        "A page of observations, oldest first.",
        "observations",
        Observation,
        lambda one: one.id,
    ),
    "some_observations": _field(
        "SomeObservations", "Observations.", "observations", list[Observation]
    ),
    "near": _field(
        "NearBy", "The observations near a place, best first.", "results", list[SpatialMatch]
    ),
    "item": _of(KeyValue, optional=True),
    "items": _field("Items", "Values.", "items", list[KeyValue]),
    "namespaces": _field("Namespaces", "Namespaces.", "namespaces", list[list[str]]),
    "agents": _answer(
        "Agents",
        "The agents of a shared namespace, with their access.",
        {"agents": dict[str, str]},
        _agents,
    ),
    "access": _field("HasAccess", "Whether an agent has access.", "has_access", bool),
}
"""The forms by name."""
