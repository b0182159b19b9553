"""The service as a whole: what waits, what was given up, what was spent, and receipts."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agent_memory import operations
from agent_memory.core.messages import compact_json
from agent_memory.engine.figures import Figures
from agent_memory.server.calls.shares import Everything
from agent_memory.server.operation import At, Form, SessionId, operation
from agent_memory.server.paging import Paged, page_of
from agent_memory.server.rights import RIGHTS
from agent_memory.server.views import upkeep
from agent_memory.server.views.showing import shown


class OneBlock(Form):
    """A block; null for all."""

    block: str | None = Field(None, description="Its name; null for all.")


class ListDead(OneBlock, Paged):
    """Which dead letters."""


class Flush(Form):
    """What to absorb."""

    session_id: SessionId | None = Field(None, description="Only this session; null for all.")


class Verify(Form):
    """A receipt."""

    receipt: dict[str, Any] = Field(description="As a deletion or a checkpoint gave it, whole.")


@operation("GET", "/stats", "admin")
def read_stats(at: At, asked: Everything) -> upkeep.Stats:
    """Tell how the memory stands: what each block still has to absorb, and what was spent."""
    found = at.memory.stats()
    blocks = {
        name: shown(upkeep.BlockState, one, failing=one.error is not None)
        for name, one in found.blocks.items()
    }
    usage = shown(upkeep.Spent, found.usage)
    return upkeep.Stats(found.sessions, found.entries, blocks, usage)


@operation("GET", "/me", None)
def read_me(at: At, asked: Everything) -> upkeep.Me:
    """Tell what the credential that asks is for."""
    principal, config = at.principal, at.memory.config
    return upkeep.Me(
        principal.name,
        principal.label,
        list(principal.users),
        [right for right in RIGHTS if right in principal.rights],
        {name: block.kind for name, block in at.memory.components.all_blocks.items()},
        config.keep_contexts,
    )


@operation("GET", "/users", "admin")
def list_users(at: At, asked: Paged) -> upkeep.Users:
    """List the users that have a session, by id. It reads the heads of all sessions."""
    found = operations.users(at.memory)
    page, more = page_of(found, asked, lambda user: user.user_id)
    users = [shown(upkeep.UserSize, one, id=one.user_id) for one in page]
    return upkeep.Users(users, len(found), more)


@operation("GET", "/spending", "admin")
def read_spending(at: At, asked: Everything) -> upkeep.Spending:
    """Tell what models were asked for and what that cost, in all processes; and today, where it is
    limited. Each process adds what it counted every 15 seconds."""
    parts = at.memory.components
    return upkeep.spending(Figures(parts.store).read(), parts.services.spending.today())


@operation("GET", "/operations/dead-letters", "admin")
def list_dead_letters(at: At, asked: ListDead) -> upkeep.DeadLetters:
    """List the messages that blocks gave up absorbing."""
    found = operations.dead_letters(at.memory, asked.block)
    page, more = page_of(found, asked, _name)
    letters = [shown(upkeep.DeadLetter, one) for one in page]
    return upkeep.DeadLetters(letters, len(found), more)


@operation("POST", "/operations/retry", "admin")
def retry_dead_letters(at: At, asked: OneBlock) -> upkeep.Absorbed:
    """Have blocks absorb their dead letters, now."""
    return upkeep.absorbed(operations.retry(at.memory, asked.block))


@operation("POST", "/operations/flush", "admin")
def flush(at: At, asked: Flush) -> upkeep.Absorbed:
    """Absorb whatever is pending, now: of one session or of all."""
    return upkeep.absorbed(at.memory.flush(asked.session_id))


@operation("POST", "/receipts/verify", "admin")
def verify_receipt(at: At, asked: Verify) -> upkeep.Receipt:
    """Hold a receipt against the store as it is now. It looks through all records."""
    return upkeep.receipt(operations.verify(at.memory, compact_json(asked.receipt)))


def _name(letter: Any) -> str:
    return f"{letter.block} {letter.first} {letter.session_id}"
