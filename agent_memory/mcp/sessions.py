"""A user's sessions as MCP resources: the list of sessions, and each session's log."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from agent_memory.errors import InvalidInput, ToolRefused

if TYPE_CHECKING:
    from agent_memory.core.records import Scope
    from agent_memory.engine.memory import AgentMemory

SESSIONS = "memory://sessions"
LISTING = f"{SESSIONS}{{?after}}"
LOG = f"{SESSIONS}/{{session_id}}{{?after}}"

_LISTING = re.compile(rf"{SESSIONS}(?:\?after=([^&#]+))?")
_LOG = re.compile(rf"{SESSIONS}/([^/?#]+)(?:\?after=([0-9]{{1,15}}))?")
_PAGE = 500


def check_own(memory: AgentMemory, scope: Scope, session_id: str) -> None:
    """Check that a session belongs to the user."""
    assert scope.user_id is not None, "the server names the user of each call"
    if memory.components.guard.ownership(session_id, scope.user_id) != "own":
        raise ToolRefused(f"There is no session {session_id!r}. {SESSIONS} lists the sessions.")


def read(memory: AgentMemory, scope: Scope, uri: str) -> str:
    """Return a resource as JSON. `next` is the URI of the next page, if there is one."""
    if found := _LISTING.fullmatch(uri):
        return _listing(memory, scope, unquote(found[1]) if found[1] else None)
    if found := _LOG.fullmatch(uri):
        return _log(memory, scope, unquote(found[1]), int(found[2] or 0))
    raise InvalidInput(f"There is no resource {uri[:200]!r}. Use {LISTING} or {LOG}.")


def _listing(memory: AgentMemory, scope: Scope, after: str | None) -> str:
    heads = memory.sessions(user_id=scope.user_id, limit=_PAGE + 1, after=after)
    page = heads[:_PAGE]
    told = [
        {
            "session_id": head.session_id,
            "uri": _uri(head.session_id),
            "messages": head.end,
            "created_at": head.created_at.isoformat(),
        }
        for head in page
    ]
    more = f"{SESSIONS}?after={_quoted(page[-1].session_id)}" if len(heads) > _PAGE else None
    return json.dumps({"sessions": told, "next": more}, ensure_ascii=False)


def _log(memory: AgentMemory, scope: Scope, session_id: str, after: int) -> str:
    check_own(memory, scope, session_id)
    entries = memory.history(session_id, user_id=scope.user_id, after=after, limit=_PAGE + 1)
    page = entries[:_PAGE]
    more = f"{_uri(session_id)}?after={page[-1].seq}" if len(entries) > _PAGE else None
    messages = [
        {"seq": one.seq, **one.message.to_dict(), "created_at": one.created_at.isoformat()}
        for one in page
    ]
    told = {"session_id": session_id, "messages": messages, "next": more}
    return json.dumps(told, ensure_ascii=False)


def _uri(session_id: str) -> str:
    return f"{SESSIONS}/{_quoted(session_id)}"


def _quoted(session_id: str) -> str:
    return quote(session_id, safe="")
