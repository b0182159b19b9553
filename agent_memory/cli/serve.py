"""`agent-memory serve`: the memory over HTTP, for many users at once."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_memory.cli.common import (
    ConfigOption,
    StoreOption,
    guarded,
    load_config,
    open_memory,
    without_password,
)
from agent_memory.core.processes import share_arenas
from agent_memory.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from agent_memory.aio.memory import AsyncAgentMemory
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.listening.asgi import App
    from agent_memory.server.keys import KeyRing
    from agent_memory.server.tokens import Issuer

_FIRST_KEY = 'agent-memory keys create --label backend --users "*" --rights read,write,delete,admin'

_NO_MCP = 'It is not served to MCP clients: that needs the extra, pip install "agent-memory[mcp]".'


@guarded
def serve(
    host: Annotated[
        str, typer.Option("--host", metavar="NAME", help="Where to listen.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65_535, help="0 picks one.")
    ] = 8766,
    jwks: Annotated[
        str | None,
        typer.Option(
            "--jwks", metavar="URL", help="Take JWTs too: where their issuer's public keys are."
        ),
    ] = None,
    issuer: Annotated[
        str, typer.Option("--issuer", metavar="NAME", help="Of JWTs: what `iss` must be.")
    ] = "",
    audience: Annotated[
        str, typer.Option("--audience", metavar="NAME", help="Of JWTs: what `aud` must name.")
    ] = "",
    user_claim: Annotated[
        str, typer.Option("--user-claim", metavar="NAME", help="Of JWTs: who names the user.")
    ] = "sub",
    jwt_rights: Annotated[
        str,
        typer.Option("--jwt-rights", metavar="LIST", help="What users with JWTs may do."),
    ] = "read,write,delete",
    rate: Annotated[
        float,
        typer.Option(
            "--rate", metavar="N", min=0, help="Requests a second for each credential; 0: any."
        ),
    ] = 50.0,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Serve the memory over HTTP at /v1, to people at /, to MCP clients at /mcp, until SIGTERM.

    Who may do what comes from the credential: see `agent-memory keys`. Any number may run over one
    store. It logs to stderr, one JSON object a line, without anything that was said.
    """
    from agent_memory.listening.serving import listen
    from agent_memory.server.tokens import issuer_of

    _check_installed()
    rights = [one.strip() for one in jwt_rights.split(",")]
    trusted = None if jwks is None else issuer_of(jwks, issuer, audience, user_claim, rights)
    share_arenas()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda number, frame: sys.exit(0))
    settings = _settings(store, config)
    with listen(host, port) as listener, open_memory(settings, create=True) as memory:
        from agent_memory.aio.memory import AsyncAgentMemory
        from agent_memory.listening.serving import serve as run
        from agent_memory.server.application import Application
        from agent_memory.server.credentials import Credentials
        from agent_memory.server.keys import KeyRing
        from agent_memory.server.limits import Limits
        from agent_memory.server.logs import log_as_json
        from agent_memory.server.metrics import Metrics
        from agent_memory.server.tokens import Tokens

        memory.warm_up()  # who connects meanwhile waits, and is answered by a process that is warm
        address, port = listener.getsockname()[:2]
        ring = KeyRing(memory.components.store)
        _check_credentials(ring, trusted, address)
        credentials = Credentials(ring, None if trusted is None else Tokens(trusted))
        limits = replace(Limits(), per_second=rate, burst=max(1, int(rate * 4)))
        awaited = AsyncAgentMemory(memory)
        mcp = _mcp(awaited)
        app = Application(awaited, credentials, Metrics(), limits, mcp=mcp)
        place = without_password(str(settings.store))
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        typer.echo(f"Serving {place} at {address}/v1, and its page at {address}/. Ctrl-C stops it.")
        typer.echo(_NO_MCP if mcp is None else f"MCP clients find it at {address}/mcp.")
        log_as_json()
        with app.figures.kept_up():
            run(app, listener)


def _check_installed() -> None:
    """Say it at once where the extra is not installed, and not at the first request.

    Raises:
        MissingExtra: It is not.
    """
    if not all(map(find_spec, ("jwt", "prometheus_client", "uvicorn"))):
        raise MissingExtra("agent-memory serve", "server")


def _mcp(memory: AsyncAgentMemory) -> App | None:
    """What answers MCP clients; None where the extra is not installed."""
    if find_spec("mcp") is None:
        return None
    from agent_memory.mcp.http import behind

    return behind(memory)


def _settings(store: str | None, config: ConfigOption) -> AgentMemoryConfig:
    """The settings; unless they say otherwise, what was said is absorbed in the background, and
    what models were sent is kept."""
    settings = load_config(store, config)
    usual: dict[str, Any] = {"overflow_mode": "background", "keep_contexts": True}
    if settings.redact is not None:  # which lets nothing be kept as it was sent
        del usual["keep_contexts"]
    mine = {name: value for name, value in usual.items() if name not in settings.model_fields_set}
    return settings.model_copy(update=mine)


def _check_credentials(ring: KeyRing, trusted: Issuer | None, address: str) -> None:
    """Say it where nobody can come in; off loopback do not even listen.

    Raises:
        ConfigError: Others in the network could reach it, and there is no credential.
    """
    is_local = ip_address(address.partition("%")[0]).is_loopback
    now = datetime.now(UTC)
    can_come_in = trusted is not None or any(key.is_valid(now) for key in ring.all())
    if not can_come_in and not is_local:
        raise ConfigError(
            "There is no credential, and others in the network could reach this. Make a key first: "
            f"{_FIRST_KEY}. Or take JWTs: --jwks, --issuer, --audience."
        )
    if not can_come_in:
        typer.echo(f"There is no key yet, so nobody can come in. Make one: {_FIRST_KEY}", err=True)
    if not is_local:
        typer.echo(
            "warning: It speaks plain HTTP, so that others in the network can read along. Put a "
            "proxy with TLS before it.",
            err=True,
        )
