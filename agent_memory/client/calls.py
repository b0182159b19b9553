"""The table of calls, from which the service, its OpenAPI document and the client are derived.

A call makes a public method of a library class available under an HTTP method and path. Parameters,
defaults and types come from the Python signature. To add a call, add one line to `_TABLE`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Any, Literal, cast, get_args, get_type_hints

from agent_memory.core.messages import Message
from agent_memory.core.records import Span

Method = Literal["GET", "POST", "PUT", "DELETE"]
Right = Literal["read", "write", "delete", "admin"]
SessionAccess = Literal["read", "write", "own", ""]

EXACT = "application/vnd.agent-memory+json"
"""The media type of answers with all fields of the library's values, for the Python client."""

CLASSES: Mapping[str, str] = {
    "memory": "agent_memory.engine.memory:AgentMemory",
    "user": "agent_memory.engine.user:User",
    "notes": "agent_memory.ltm_blocks.notes:Notes",
    "files": "agent_memory.ltm_blocks.files.block:Files",
    "skills": "agent_memory.ltm_blocks.skills.block:Skills",
    "spatial": "agent_memory.ltm_blocks.spatial.handle:SpatialHandle",
    "working": "agent_memory.ltm_blocks.working:Scratchpad",
    "values": "agent_memory.engine.values.key_values:KeyValues",
    "share": "agent_memory.engine.sharing.shares:Share",
    "shared": "agent_memory.engine.sharing.shares:SharedMemory",
    "operations": "agent_memory.operations:",
}
"""The class of each subject (`memory` in `memory.update`). "operations" is a module."""

HANDLES = frozenset({"notes", "files", "skills", "spatial", "values"})
"""The subjects (see `CLASSES`) that are opened for a user, or for the user of a session."""

MOST = 500
"""The maximum number of items in one page of a list."""

# Columns: name, HTTP method, path, Python method, right, `Call.whose` (empty if left out), and
# `Call.form`. "no-retry" marks a call that must not be retried if its outcome is unknown.
_TABLE = """
list_sessions    GET    /sessions                           memory.sessions    read   sessions
read_session     GET    /sessions/{session_id}              memory.head        read   own session
delete_session   DELETE /sessions/{session_id}              memory.delete      delete own receipt
describe_session PUT    /sessions/{session_id}/metadata     memory.describe    write  write done
append_messages  POST   /sessions/{session_id}/messages     memory.update      write  write end
list_messages    GET    /sessions/{session_id}/messages     memory.history     read   own log
pop_messages DELETE /sessions/{session_id}/messages memory.pop delete own messages no-retry
get_context      POST   /sessions/{session_id}/context      memory.get         read   read context
list_contexts    GET    /sessions/{session_id}/contexts     memory.contexts    read   own contexts
make_checkpoint  POST   /sessions/{session_id}/checkpoint   memory.checkpoint  read   own receipt
end_session      POST   /sessions/{session_id}/end          memory.end         write  own absorbed
prune_session    POST   /sessions/{session_id}/prune        memory.prune       write  own end
pin_message      PUT    /sessions/{session_id}/pins/{seq}   memory.pin         write  own done
unpin_message    DELETE /sessions/{session_id}/pins/{seq}   memory.unpin       write  own done
list_tools       GET    /sessions/{session_id}/tools        memory.tools       read   read tools
call_tool POST /sessions/{session_id}/tools/{name} memory.call_tool write write text no-retry
before_turn      POST   /sessions/{session_id}/before-turn  memory.before_turn read   read begun
regenerate       POST   /sessions/{session_id}/regenerate   memory.regenerate  read   own begun
after_turn       POST   /sessions/{session_id}/after-turn   memory.after_turn  write  write end
take_turn        POST   /sessions/{session_id}/turn         memory.completion  write  write answered
search           POST   /search                             memory.search      read   read searched
explain          POST   /explain                            memory.explain     read   read explained
flush            POST   /operations/flush                   memory.flush       admin  absorbed
flush_own        POST   /flush                              memory.flush       write  read absorbed
read_stats       GET    /stats                              memory.stats       admin  stats

list_facts   GET    /facts       user.facts      read   read facts
list_stale   GET    /facts/stale user.stale      read   stale
read_profile GET    /profile     user.profile    read   profile
list_changes GET    /audit       user.audit      read   changes
list_surplus GET    /surplus     user.surplus    read   surplus
forget       POST   /forget      user.forget     delete read forgotten
forget_all   POST   /forget-all  user.forget_all delete forgotten_all
pin          PUT    /pins/{id}   user.pin        write  done
unpin        DELETE /pins/{id}   user.unpin      write  done
delete_user  DELETE /user        user.delete     delete receipt

list_notes  GET    /notes           notes.all    read   notes
write_note  POST   /notes           notes.add    write  note
clear_notes DELETE /notes           notes.clear  delete done
read_note   GET    /notes/{note_id} notes.get    read   note
change_note PUT    /notes/{note_id} notes.update write  note
delete_note DELETE /notes/{note_id} notes.delete delete done

list_files      GET    /files        files.paths       read   files
clear_files     DELETE /files        files.clear       delete done
read_file       GET    /file         files.read        read   file
write_file      PUT    /file         files.write       write  file
delete_file     DELETE /file         files.delete      delete done
file_version    GET    /file/version files.version     read   text
view_file       GET    /file/view    files.view        read   text
create_file     POST   /file/create  files.create      write  text no-retry
replace_in_file POST   /file/replace files.str_replace write  text no-retry
insert_in_file  POST   /file/insert  files.insert      write  text no-retry
rename_file     POST   /file/rename  files.rename      write  text no-retry

list_skills   GET    /skills        skills.all    read   skills
store_skill   POST   /skills        skills.save   write  skill
search_skills POST   /skills/search skills.search read   some_skills
tagged_skills POST   /skills/tagged skills.tagged read   some_skills
read_skill    GET    /skills/{name} skills.load   read   skill
save_skill    PUT    /skills/{name} skills.write  write  skill
delete_skill  DELETE /skills/{name} skills.delete delete done

list_observations  GET    /places                  spatial.all          read   observations
observe            POST   /places                  spatial.observe      write  observation
clear_places       DELETE /places                  spatial.clear        delete done
count_places       GET    /places/count            spatial.count        read   count
observe_many POST /places/batch spatial.observe_many write some_observations no-retry
look_near          POST   /places/near             spatial.near         read   near
look_nearest       POST   /places/nearest          spatial.nearest      read   near
look_within        POST   /places/within           spatial.within       read   near
read_observation   GET    /places/{observation_id} spatial.get          read   observation
delete_observation DELETE /places/{observation_id} spatial.delete       delete done

read_working   GET    /sessions/{session_id}/working       working.all    read   read working
clear_working  DELETE /sessions/{session_id}/working       working.clear  delete read done
list_working   GET    /sessions/{session_id}/working-keys  working.keys   read   read keys
get_working    GET    /sessions/{session_id}/working/{key} working.get    read   read value
set_working    PUT    /sessions/{session_id}/working/{key} working.set    write  write done
delete_working DELETE /sessions/{session_id}/working/{key} working.delete delete read done

put_values      POST   /values            values.put_many   write  items
clear_values    DELETE /values            values.clear      delete done
search_values   POST   /values/search     values.search     read   items
list_namespaces GET    /values/namespaces values.namespaces read   namespaces
sweep_values    POST   /values/sweep      values.sweep      delete count
get_value       GET    /value             values.get        read   item
put_value       PUT    /value             values.put        write  item
delete_value    DELETE /value             values.delete     delete done

list_agents    GET    /shares/{share}/agents              share.agents     admin agents
read_access    GET    /shares/{share}/agents/{agent_id}   share.has_access admin access
grant_access   PUT    /shares/{share}/agents/{agent_id}   share.grant      admin agents
revoke_access  DELETE /shares/{share}/agents/{agent_id}   share.revoke     admin agents
delete_share   DELETE /shares/{share}                     share.delete     admin done
share_sessions GET    /operations/shares/{share}/sessions share.sessions   admin sessions

list_shared_sessions GET /shares/{share}/sessions shared.sessions read sessions
append_shared POST /shares/{share}/sessions/{session_id}/messages shared.update write end
list_shared GET /shares/{share}/sessions/{session_id}/messages shared.history read log
pop_shared DELETE /shares/{share}/sessions/{session_id}/messages shared.pop delete messages no-retry
shared_context POST /shares/{share}/sessions/{session_id}/context shared.get read context
begin_shared POST /shares/{share}/sessions/{session_id}/before-turn shared.before_turn read begun
finish_shared POST /shares/{share}/sessions/{session_id}/after-turn shared.after_turn write end
take_shared POST /shares/{share}/sessions/{session_id}/turn shared.completion write answered
search_shared POST /shares/{share}/search shared.search read found
list_shared_facts GET /shares/{share}/facts shared.facts read facts
read_shared_profile GET /shares/{share}/profile shared.profile read profile

list_users         GET  /users                   operations.users        admin users
list_shares        GET  /shares                  operations.shares       admin shares
list_dead_letters  GET  /operations/dead-letters operations.dead_letters admin dead_letters
retry_dead_letters POST /operations/retry        operations.retry        admin absorbed
verify_receipt     POST /receipts/verify         operations.verify       admin receipt
"""

_CLIENT_SIDE = frozenset(
    {"self", "memory", "user_id", "model", "options", "progress", "embedder", "stream"}
)
_ANY_MESSAGE = list[Message] | Message | str | None

MESSAGES = frozenset({"message", "answer", "window", "turn_messages"})
"""Parameters that accept messages in any form."""

_RENAMED: Mapping[str, str] = {"file_text": "text", "k": "limit"}
_SPLIT: Mapping[str, Mapping[str, Any]] = {
    "turn": {"session_id": str, "turn_messages": _ANY_MESSAGE, "regenerates": Span | None},
    "source": {"session_id": str | None, "first": int | None, "last": int | None},
}
"""Parameters that are sent as several fields."""

_NAMED: Mapping[str, str] = {
    "Note": "agent_memory.ltm_blocks.notes",
    "Change": "agent_memory.ltm_blocks.extractive.history.history",
    "Stale": "agent_memory.ltm_blocks.extractive.history.fact",
    "Absorbed": "agent_memory.core.records",
    "Explanation": "agent_memory.core.context",
    "LoggedPrompt": "agent_memory.core.prompt_log",
    "Receipt": "agent_memory.core.receipts",
    "BaseModel": "pydantic",
    "ConfigDict": "pydantic",
    "date": "datetime",
    "datetime": "datetime",
    "Sequence": "collections.abc",
    "Progress": "agent_memory.engine.stats",
    "Stats": "agent_memory.engine.stats",
    "ToolLike": "agent_memory.engine.loop.rounds",
    "Embedder": "agent_memory.models.embedders.base",
}
"""The module of each type that a signature uses and the package does not export."""


@dataclass(frozen=True)
class Field:
    """A field of a request. `many` marks a parameter `*args`, which is sent as a list."""

    name: str
    type: Any
    default: Any = inspect.Parameter.empty
    many: bool = False


@dataclass(frozen=True)
class Call:
    """A line of `_TABLE`: an HTTP method and path that call a Python method."""

    name: str
    method: Method
    path: str
    subject: str  # the class of the Python method, by its name in `CLASSES`
    function_name: str
    needs: Right  # the right that the caller's key needs
    # The check of the session that the call names; empty for no check. "own": the session must
    # exist and belong to the user. "write": it must belong to the user or not exist. "read": it may
    # be missing; another user's session is treated as missing.
    access: SessionAccess = ""
    form: str = ""  # the name of the answer's form; see `agent_memory.server.forms`
    again: bool = True  # whether the call may be retried if its outcome is unknown

    @cached_property
    def function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(class_of(self.subject), self.function_name)
        return function

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    @cached_property
    def types(self) -> Mapping[str, Any]:
        """The types of the parameters by name, and of the result as "return"."""
        hints = hints_of(self.function)
        return {name: _ANY_MESSAGE if name in MESSAGES else hint for name, hint in hints.items()}

    @cached_property
    def names_user(self) -> bool:
        return "user_id" in self.parameters

    @cached_property
    def keyed(self) -> bool:
        """Whether the parameter `key` is an idempotency key, which is sent as a header."""
        return "key" in self.parameters and self.parameters["key"].default is None

    @cached_property
    def versioned(self) -> bool:
        """Whether the parameter `expected` is the version to change, which is sent as a header."""
        return "expected" in self.parameters

    @cached_property
    def session_field(self) -> str:
        """The name of the field with the current session; empty if the call has none."""
        if self.subject in HANDLES or self.subject == "working":
            return "session_id"
        return "in_session" if self.subject == "user" else ""

    def _field_name(self, parameter: str) -> str:
        is_update = self.function_name == "update" and parameter == "message"
        return "messages" if is_update else _RENAMED.get(parameter, parameter)

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """The request's fields by parameter. Each parameter in `_SPLIT` becomes several fields."""
        left_out = {*_CLIENT_SIDE, *_SPLIT, "default"}
        left_out |= {"key"} if self.keyed else set()
        left_out |= {"expected"} if self.versioned else set()
        fields = {}
        for name, parameter in self.parameters.items():
            for part, kind in _SPLIT.get(name, {}).items():
                needed = part in ("turn_messages", "session_id") and name == "turn"
                fields[part] = Field(part, kind, inspect.Parameter.empty if needed else None)
            if name not in left_out:
                many = parameter.kind is parameter.VAR_POSITIONAL
                kind = list[self.types.get(name, Any)] if many else self.types.get(name, Any)  # type: ignore[misc]
                default = () if many else parameter.default
                fields[name] = Field(self._field_name(name), kind, default, many)
        return fields


def class_of(subject: str) -> type:
    module, name = CLASSES[subject].split(":")
    namespace: Any = import_module(module)
    return cast("type", getattr(namespace, name) if name else namespace)


@cache
def hints_of(thing: Any) -> Mapping[str, Any]:
    """Return the types of a function's parameters or a class's fields."""
    return get_type_hints(thing, localns=_Names())


def of(subject: str) -> Mapping[str, Call]:
    """Return the calls of a subject by the name of the Python method."""
    return {call.function_name: call for call in CALLS if call.subject == subject}


class _Names(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        try:
            return getattr(import_module(_NAMED.get(name, "agent_memory")), name)
        except AttributeError:  # after a KeyError, Python looks the name up in builtins
            raise KeyError(name) from None


def _calls() -> Iterator[Call]:
    for line in filter(None, _TABLE.splitlines()):
        name, method, path, call, needs, *more = line.split()
        subject, function_name = call.split(".")
        access = next((word for word in more if word in get_args(SessionAccess)), "")
        form = next(word for word in more if word not in (access, "no-retry"))
        again = "no-retry" not in more
        columns: Any = (name, method, path, subject, function_name, needs, access, form, again)
        yield Call(*columns)


CALLS: tuple[Call, ...] = tuple(_calls())
"""Every call, in the order of the OpenAPI document."""

PARAMETER = re.compile(r"\{(\w+)\}")
"""A field in a path."""
