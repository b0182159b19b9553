"""`agent-memory keys`: create, list and revoke the service's API keys."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from agent_memory.cli.common import (
    how_long,
    open_memory,
    out,
    quiet,
    say,
    with_memory,
    with_settings,
)
from agent_memory.cli.view import cell, grid
from agent_memory.errors import ConfigError

if TYPE_CHECKING:
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.server.keys import Key

app = typer.Typer(
    help="Create, list and revoke API keys of the service (`agent-memory serve`).",
    no_args_is_help=True,
)
_with_keys = partial(with_memory, silent=True)


@app.command()
@with_settings
def create(
    settings: AgentMemoryConfig,
    label: Annotated[str, typer.Option(metavar="TEXT", help="A description.")],
    users: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="The users that the key may act for: ids separated by commas; team-* for a "
            "prefix; * for everybody. With a key for one user, requests need not name the user.",
        ),
    ],
    rights: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help='Some of read, write, delete, admin. "admin" is a right on the whole service.',
        ),
    ] = "read,write",
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long the key is valid: 30d, 12h, 15m.")
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


@app.command("list")
@_with_keys
def list_(memory: AgentMemory) -> None:
    """List all keys, including invalid keys, with their rights, users, state and last use."""
    from agent_memory.server.keys import KeyRing

    now = datetime.now(UTC)
    table = grid("key", "label", "users", "rights", "made", "state", "last use")
    table.columns[0].no_wrap = True  # users copy the prefix for `keys revoke`
    keys = KeyRing(memory.components.store).all()
    for key in keys:
        rights = ", ".join(sorted(key.rights, key=["read", "write", "delete", "admin"].index))
        row = (key.prefix, key.label, ", ".join(key.users), rights)
        times = (f"{key.created_at:%Y-%m-%d}", _state(key, now), _minute(key.used_at))
        table.add_row(*map(cell, (*row, *times)))
    out().print(table if keys else "There are no keys.")


@app.command()
@_with_keys
def revoke(
    memory: AgentMemory,
    prefix: Annotated[
        str,
        typer.Argument(metavar="KEY", help="The prefix that `keys list` shows, or the whole key."),
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
