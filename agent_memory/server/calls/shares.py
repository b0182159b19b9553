"""Namespaces that agents share: an agent is the user that the credential names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from agent_memory import operations
from agent_memory.core.ids import MAX_ID, MAX_SHARE
from agent_memory.server.calls.sessions import Append, GetContext, ReadLog
from agent_memory.server.operation import At, Form, operation
from agent_memory.server.paging import MOST, cut, place_of
from agent_memory.server.views import talk, upkeep
from agent_memory.server.views.showing import Done

if TYPE_CHECKING:
    from agent_memory.engine.sharing.shared import SharedMemory

Share = Annotated[str, Field(min_length=1, max_length=MAX_SHARE, description="The namespace.")]


class OneShare(Form):
    """A shared namespace."""

    share: Share


class OneAgent(OneShare):
    """An agent of a shared namespace."""

    agent_id: str = Field(min_length=1, max_length=MAX_ID, description="The agent.")


class Grant(OneAgent):
    """What an agent may do."""

    access: Literal["read", "write"] = Field("read", description="Who may write may read too.")


class AppendShared(OneShare, Append):
    """Messages to append to a session of the namespace."""


class ReadShared(OneShare, ReadLog):
    """Which messages of a session of the namespace."""


class SharedContext(OneShare, GetContext):
    """What to recall for, in a session of the namespace."""


class SearchShared(OneShare):
    """What to look for in the namespace."""

    query: str = Field(min_length=1, max_length=20_000, description="In words.")
    limit: int = Field(10, ge=1, le=MOST, description="At most so many.")


class Everything(Form):
    """Nothing is asked."""


@operation("GET", "/shares", "admin")
def list_shares(at: At, asked: Everything) -> upkeep.Shares:
    """List the shared namespaces in which anything is granted, or was."""
    return upkeep.Shares(operations.shares(at.memory))


@operation("GET", "/shares/{share}/agents", "admin")
def list_agents(at: At, asked: OneShare) -> upkeep.Agents:
    """List the agents that have access."""
    return upkeep.Agents(dict(at.memory.share(asked.share).agents()))


@operation("PUT", "/shares/{share}/agents/{agent_id}", "admin")
def grant_access(at: At, asked: Grant) -> upkeep.Agents:
    """Let an agent in, from its next call on."""
    share = at.memory.share(asked.share)
    share.grant(asked.agent_id, asked.access)
    return upkeep.Agents(dict(share.agents()))


@operation("DELETE", "/shares/{share}/agents/{agent_id}", "admin")
def revoke_access(at: At, asked: OneAgent) -> upkeep.Agents:
    """Shut an agent out, from its next call on. What it wrote stays."""
    share = at.memory.share(asked.share)
    share.revoke(asked.agent_id)
    return upkeep.Agents(dict(share.agents()))


@operation("DELETE", "/shares/{share}", "admin")
def delete_share(at: At, asked: OneShare) -> Done:
    """Erase a namespace: its grants, its sessions, and all that derives from them."""
    at.memory.share(asked.share).delete()
    return Done()


@operation("POST", "/shares/{share}/sessions/{session_id}/messages", "write", once=True)
def append_shared(at: At, asked: AppendShared) -> talk.End:
    """Append messages to a shared session, as the agent that asks."""
    head = _mine(at, asked).update(
        asked.session_id, asked.messages, key=at.key, expected_end=asked.expected_end
    )
    return talk.end(head)


@operation("GET", "/shares/{share}/sessions/{session_id}/messages", "read")
def list_shared(at: At, asked: ReadShared) -> talk.Log:
    """Read the log of a shared session, oldest first."""
    after = place_of(asked.after)
    log = _mine(at, asked).history(asked.session_id, after=after, limit=asked.limit + 1)
    page, more = cut(log, asked.limit, lambda entry: str(entry.seq))
    return talk.Log([talk.logged(entry) for entry in page], more)


@operation("POST", "/shares/{share}/sessions/{session_id}/context", "read")
def shared_context(at: At, asked: SharedContext) -> talk.Context:
    """Give what to send to a model, in a shared session."""
    found = _mine(at, asked).get(
        asked.session_id, asked.message, max_tokens=asked.max_tokens, format=asked.format
    )
    return talk.context(found)


@operation("POST", "/shares/{share}/search", "read")
def search_shared(at: At, asked: SearchShared) -> talk.Found:
    """Search what is remembered in a namespace."""
    found = _mine(at, asked).search(asked.query, limit=asked.limit)
    return talk.Found([talk.recalled(one) for one in found])


def _mine(at: At, asked: OneShare) -> SharedMemory:
    return at.memory.share(asked.share).agent(at.user_id)
