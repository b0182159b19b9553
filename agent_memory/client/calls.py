"""The table of the library's calls that can be made over a wire. Service and client are made of it.

A call is a public method of a class of the library: its name, its parameters, their defaults and
its types are read there, so they cannot differ from what the table says.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Literal, get_type_hints

from agent_memory.core.messages import Message

Right = Literal["read", "write", "delete", "admin"]
Whose = Literal["read", "write", "own", ""]

MEMORY = "agent_memory.engine.memory:AgentMemory"
USER = "agent_memory.engine.user:User"
SHARE = "agent_memory.engine.sharing.shares:Share"
HANDLES: Mapping[str, str] = {
    "notes": "agent_memory.ltm_blocks.notes:Notes",
    "files": "agent_memory.ltm_blocks.files.block:Files",
    "skills": "agent_memory.ltm_blocks.skills.block:Skills",
    "spatial": "agent_memory.ltm_blocks.spatial.handle:SpatialHandle",
    "working": "agent_memory.ltm_blocks.working:Scratchpad",
    "values": "agent_memory.engine.values.key_values:KeyValues",
    "shared": "agent_memory.engine.sharing.shared:SharedMemory",
}
"""What is opened for a user, a session or an agent, by the subject that names it here."""

PATH = "/calls/{subject}/{name}"
AT_HAND = "at_hand"
"""Field of a request: the session at hand, as for `Session.owner` and `Session.working`."""

SHARED = "share"
"""Field of a request: the shared namespace."""

_BEGIN = frozenset({"update", "describe", "remember", "after_turn", "completion", "call_tool"})
_OF_ONES_OWN = frozenset({"checkpoint", "regenerate", "delete", "prune", "pin", "unpin"})
_NOT_SENT = frozenset({"self", "user_id", "model", "options", "progress", "embedder", "stream"})
_SAID = list[Message] | Message | str | None

MESSAGES = frozenset({"message", "answer", "window"})
"""Parameters that take messages in any form. They are sent as messages, or as a text."""

MOST = 500
"""So many messages of a log are in one answer; the client asks for the rest."""

_NAMED: Mapping[str, str] = {
    "Note": "agent_memory.ltm_blocks.notes",
    "Fact": "agent_memory.ltm_blocks.extractive.history.fact",
    "Change": "agent_memory.ltm_blocks.extractive.history.auditing",
    "Stale": "agent_memory.ltm_blocks.extractive.history.staleness",
    "Entry": "agent_memory.core.records",
    "Head": "agent_memory.core.records",
    "Recall": "agent_memory.core.records",
    "MemoryContext": "agent_memory.core.context",
    "Turn": "agent_memory.core.turns",
    "BaseModel": "pydantic",
    "ConfigDict": "pydantic",
    "date": "datetime",
    "datetime": "datetime",
    "Sequence": "collections.abc",
    "GivenTool": "agent_memory.engine.loop.offering",
    "Embedder": "agent_memory.models.embedders.base",
    "SpatialMemory": "agent_memory.ltm_blocks.spatial.block",
}
"""Types that modules name for checkers alone."""


@dataclass(frozen=True)
class Call:
    """A call of the library.

    Attributes:
        subject: Whose call: "memory", "user", "share", or a handle's name.
        name: The method.
        needs: The right that it needs.
        again: Whether it may be asked again where nobody knows whether it was done.
    """

    subject: str
    name: str
    needs: Right
    again: bool = True

    @property
    def id(self) -> str:
        """Its name among the operations of the service."""
        return f"{self.subject}_{self.name}"

    @property
    def path(self) -> str:
        """Its path below /v1."""
        return PATH.format(subject=self.subject, name=self.name)

    @property
    def whose(self) -> Whose:
        """What is asked of the session that it names: that it is there and the user's ("own"), that
        it is or can be ("write"), or nothing: another's is as one that there is not ("read").
        """
        if self.subject not in ("memory", "user") or "session_id" not in self.takes:
            return ""
        if self.name in _OF_ONES_OWN:
            return "own"
        return "write" if self.name in _BEGIN else "read"

    @cached_property
    def names_user(self) -> bool:
        """Whether the method takes a `user_id`."""
        return "user_id" in inspect.signature(self.function).parameters

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The method."""
        found: Callable[..., Any] = getattr(class_of(self.subject), self.name)
        return found

    @cached_property
    def takes(self) -> Mapping[str, inspect.Parameter]:
        """What of its parameters is sent, by their names."""
        parameters = inspect.signature(self.function).parameters
        return {name: one for name, one in parameters.items() if name not in _NOT_SENT}

    @cached_property
    def types(self) -> Mapping[str, Any]:
        """The types of what is sent, and of what it gives as "return"."""
        found = hints_of(self.function)
        return {name: _SAID if name in MESSAGES else one for name, one in found.items()}


def class_of(subject: str) -> type:
    """The class of the library whose calls are a subject's."""
    module, name = {"memory": MEMORY, "user": USER, "share": SHARE, **HANDLES}[subject].split(":")
    found: type = getattr(import_module(module), name)
    return found


def hints_of(thing: Any) -> dict[str, Any]:
    """The types of a function's parameters, or of a class's fields."""
    return get_type_hints(thing, localns=_Names())


def of(subject: str) -> Iterator[Call]:
    """The calls of a subject."""
    return (one for one in CALLS if one.subject == subject)


class _Names(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        return getattr(import_module(_NAMED[name]), name)  # a KeyError: it is looked for elsewhere


def _calls(subject: str, again: bool = True, **names: str) -> Iterator[Call]:
    for right, listed in names.items():
        for name in listed.split():
            yield Call(subject, name, right, again)  # type: ignore[arg-type]


CALLS: tuple[Call, ...] = (
    *_calls(
        "memory",
        read="get search explain history contexts head before_turn regenerate tools checkpoint "
        "sessions",
        write="update remember describe after_turn completion call_tool end flush prune pin unpin",
        delete="delete delete_user",
        admin="stats",
    ),
    *_calls("memory", again=False, delete="pop"),
    *_calls(
        "user",
        read="facts profile stale audit sessions surplus",
        write="pin unpin",
        delete="forget forget_all delete",
    ),
    *_calls("notes", read="all get", write="add update", delete="delete clear"),
    *_calls("files", read="paths read version view", write="write", delete="delete clear"),
    *_calls("files", again=False, write="create str_replace insert rename"),
    *_calls("skills", read="all load tagged search", write="save write", delete="delete"),
    *_calls(
        "spatial",
        read="near nearest within get all count",
        write="observe",
        delete="delete clear",
    ),
    *_calls("spatial", again=False, write="observe_many"),
    *_calls("working", read="all keys get", write="set", delete="delete clear"),
    *_calls(
        "values", read="search namespaces", write="get put put_many", delete="delete clear sweep"
    ),
    *_calls("share", admin="grant revoke has_access agents sessions delete"),
    *_calls(
        "shared",
        read="get search history sessions facts profile before_turn",
        write="update after_turn completion",
    ),
    *_calls("shared", again=False, delete="pop"),
)
"""Every call, in the order of the document."""
