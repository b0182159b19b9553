"""`agent-memory keys` and `agent-memory shares`: the service's API keys, and agents' access."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from agent_memory.cli import common, terminal
from agent_memory.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.server.keys import Key

keys = typer.Typer(
    help="Create, list and revoke API keys of the service (`agent-memory serve`).",
    no_args_is_help=True,
)
_with_keys = partial(common.with_memory, silent=True)


@keys.command()
@common.with_settings
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

    ttl = common.how_long("--expires", expires)
    if str(settings.store).startswith("memory:"):
        raise ConfigError(
            "A memory:// store is lost when this command ends, and so is the key. Pass --store or "
            "--config with the service's store, such as sqlite:///memory.db."
        )
    with terminal.quiet(), common.open_memory(settings, create=True) as memory:
        ring = KeyRing(memory.components.store)
        token, _ = ring.create(label, _list(users), _list(rights), ttl=ttl)
    typer.echo("The key, shown only now:", err=True)
    typer.echo(token)


@keys.command("list")
@_with_keys
def list_keys(memory: AgentMemory) -> None:
    """List all keys, including invalid keys, with their rights, users, state and last use."""
    from agent_memory.server.keys import KeyRing

    columns = ("key", "label", "users", "rights", "made", "state", "last use")
    listed = terminal.table(columns, map(_row, KeyRing(memory.components.store).all()))
    listed.columns[0].no_wrap = True  # users copy the prefix for `keys revoke`
    terminal.show(listed, "There are no keys.")


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
    terminal.say(f"{key.prefix} ({key.label}) is revoked.")


def _list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _row(key: Key) -> Sequence[str]:
    rights = ", ".join(sorted(key.rights, key=["read", "write", "delete", "admin"].index))
    times = (f"{key.created_at:%Y-%m-%d}", _state(key), _minute(key.used_at))
    return (key.prefix, key.label, ", ".join(key.users), rights, *times)


def _state(key: Key) -> str:
    if key.revoked_at is not None:
        return f"revoked {key.revoked_at:%Y-%m-%d}"
    if key.expires_at is None:
        return "valid"
    over = "expired" if key.expires_at <= datetime.now(UTC) else "valid until"
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
@common.with_memory
def list_shares(memory: AgentMemory) -> None:
    """List shared namespaces with their agents, the agents' access, and the number of sessions."""
    from agent_memory import operations

    listed = terminal.table(("namespace", "sessions", "agent", "access"), right=("sessions",))
    for name in operations.shares(memory):
        share, after, count = memory.share(name), None, 0
        while page := share.sessions(limit=_PAGE, after=after):
            count, after = count + len(page), page[-1].session_id
        agents = list(share.agents().items())
        for number, (agent, access) in enumerate(agents or [(terminal.NOTHING, terminal.NOTHING)]):
            of_share = (terminal.cell(name), str(count)) if number == 0 else ("", "")
            listed.add_row(*of_share, terminal.cell(agent), access)
    terminal.show(listed, "There are no shared namespaces.")


@shares.command()
@partial(common.with_memory, create=True)
def grant(
    memory: AgentMemory,
    name: NameArgument,
    agent: AgentArgument,
    access: Annotated[Literal["read", "write"], Argument(help='"write" includes "read".')],
) -> None:
    """Grant an agent read or write access, from its next call on."""
    memory.share(name).grant(agent, access)
    terminal.say(f"{agent} may {access} in {name}.")


@shares.command("revoke")
@common.with_memory
def revoke_share(memory: AgentMemory, name: NameArgument, agent: AgentArgument) -> None:
    """Revoke an agent's access, from its next call on. The agent's messages stay."""
    memory.share(name).revoke(agent)
    terminal.say(f"{agent} has no access to {name}.")
