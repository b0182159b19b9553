"""`agent-memory keys` and `agent-memory shares`: the service's API keys, and agents' access."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from agent_memory.cli.common import (
    how_long,
    open_memory,
    out,
    quiet,
    say,
    with_memory,
    with_settings,
)
from agent_memory.cli.view import NOTHING, cell, grid
from agent_memory.errors import ConfigError

if TYPE_CHECKING:
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.server.keys import Key

keys = typer.Typer(
    help="Create, list and revoke API keys of the service (`agent-memory serve`).",
    no_args_is_help=True,
)
_with_keys = partial(with_memory, silent=True)


@keys.command()
@with_settings
def create(
    settings: AgentMemoryConfig,
    label: Annotated[str, Option(metavar="TEXT", help="A description.")],
    users: Annotated[
        str,
        Option(
            metavar="LIST",
            help="The users that the key may act for: ids separated by commas; team-* for a "
            "prefix; * for everybody. With a key for one user, requests need not name the user.",
        ),
    ],
    rights: Annotated[
        str,
        Option(
            metavar="LIST",
            help='Some of read, write, delete, admin. "admin" is a right on the whole service.',
        ),
    ] = "read,write",
    expires: Annotated[
        str | None, Option(metavar="TIME", help="How long the key is valid: 30d, 12h, 15m.")
    ] = None,
) -> None:
    """Create a key and print it. The key itself is not stored."""
    from agent_memory.server.keys import KeyRing

    ttl = how_long("--expires", expires)
    if str(settings.store).startswith("memory:"):
        raise ConfigError(
            "A memory:// store is lost when this command ends, and so is the key. Pass --store or "
            "--config with the service's store, such as sqlite:///memory.db."
        )
    with quiet(), open_memory(settings, create=True) as memory:
        ring = KeyRing(memory.components.store)
        token, _ = ring.create(label, _list(users), _list(rights), ttl=ttl)
    typer.echo("The key, shown only now:", err=True)
    typer.echo(token)


@keys.command("list")
@_with_keys
def list_keys(memory: AgentMemory) -> None:
    """List all keys, including invalid keys, with their rights, users, state and last use."""
    from agent_memory.server.keys import KeyRing

    now = datetime.now(UTC)
    table = grid("key", "label", "users", "rights", "made", "state", "last use")
    table.columns[0].no_wrap = True  # users copy the prefix for `keys revoke`
    stored = KeyRing(memory.components.store).all()
    for key in stored:
        rights = ", ".join(sorted(key.rights, key=["read", "write", "delete", "admin"].index))
        row = (key.prefix, key.label, ", ".join(key.users), rights)
        times = (f"{key.created_at:%Y-%m-%d}", _state(key, now), _minute(key.used_at))
        table.add_row(*map(cell, (*row, *times)))
    out().print(table if stored else "There are no keys.")


@keys.command("revoke")
@_with_keys
def revoke_key(
    memory: AgentMemory,
    prefix: Annotated[
        str,
        Argument(metavar="KEY", help="The prefix that `keys list` shows, or the whole key."),
    ],
) -> None:
    """Revoke a key. Every process refuses the key from the next request on."""
    from agent_memory.server.keys import KeyRing

    key = KeyRing(memory.components.store).revoke(prefix)
    say(f"{key.prefix} ({key.label}) is revoked.")


def _list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _state(key: Key, now: datetime) -> str:
    if key.revoked_at is not None:
        return f"revoked {key.revoked_at:%Y-%m-%d}"
    if key.expires_at is None:
        return "valid"
    over = "expired" if key.expires_at <= now else "valid until"
    return f"{over} {_minute(key.expires_at)}"


def _minute(at: datetime | None) -> str:
    return "never" if at is None else f"{at:%Y-%m-%d %H:%M}"


shares = typer.Typer(
    help="List the namespaces that agents share; grant and revoke access.", no_args_is_help=True
)

NameArgument = Annotated[str, Argument(metavar="NAME", help="The namespace's name.")]
AgentArgument = Annotated[str, Argument(metavar="AGENT", help="The agent's id.")]

_PAGE = 500


@shares.command("list")
@with_memory
def list_shares(memory: AgentMemory) -> None:
    """List shared namespaces with their agents, the agents' access, and the number of sessions."""
    from agent_memory import operations

    table = grid("namespace", "sessions", "agent", "access", right=("sessions",))

    names = operations.shares(memory)
    for name in names:
        share, after, count = memory.share(name), None, 0
        while page := share.sessions(limit=_PAGE, after=after):
            count, after = count + len(page), page[-1].session_id
        agents = list(share.agents().items())
        for number, (agent, access) in enumerate(agents or [(NOTHING, NOTHING)]):
            of_share = (cell(name), str(count)) if number == 0 else ("", "")
            table.add_row(*of_share, cell(agent), access)
    out().print(table if names else "There are no shared namespaces.")


@shares.command()
@partial(with_memory, create=True)
def grant(
    memory: AgentMemory,
    name: NameArgument,
    agent: AgentArgument,
    access: Annotated[Literal["read", "write"], Argument(help='"write" includes "read".')],
) -> None:
    """Grant an agent read or write access, from its next call on."""
    memory.share(name).grant(agent, access)
    say(f"{agent} may {access} in {name}.")


@shares.command("revoke")
@with_memory
def revoke_share(memory: AgentMemory, name: NameArgument, agent: AgentArgument) -> None:
    """Revoke an agent's access, from its next call on. The agent's messages stay."""
    memory.share(name).revoke(agent)
    say(f"{agent} has no access to {name}.")
