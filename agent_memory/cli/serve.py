"""`agent-memory serve` and `agent-memory mcp`: serve a memory over HTTP, or to MCP clients."""

from __future__ import annotations

import atexit
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from agent_memory.cli import common, terminal
from agent_memory.core.limits import check_id
from agent_memory.core.processes import share_arenas
from agent_memory.core.threads import Handover
from agent_memory.errors import ConfigError, InvalidInput, MissingExtra, install_command

if TYPE_CHECKING:
    from socket import socket

    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.mcp.http import Tokens as UserTokens
    from agent_memory.server.credentials import Tokens
    from agent_memory.server.keys import KeyRing

UNENCRYPTED = (
    "warning: This serves unencrypted HTTP to the network. Put a proxy with TLS in front of it"
)
_MOST_REQUESTS = 1_000_000
_WORK_SECONDS = 10.0  # for background work, after the requests in progress
_FIRST_KEY = 'agent-memory keys create --label backend --users "*" --rights read,write,delete,admin'

_NO_MCP = f"MCP is not served. To serve it: {install_command('mcp')}"

PortOption = Annotated[int, Option(metavar="N", min=0, max=65_535, help="0 picks a free port.")]


def _checked_rate(value: float) -> float:
    if not 0 <= value <= _MOST_REQUESTS:  # this form also refuses NaN
        raise typer.BadParameter(f"It is {value:g}. Use a number from 0 to {_MOST_REQUESTS:,}.")
    return value


@common.with_settings
def serve(
    settings: AgentMemoryConfig,
    host: Annotated[str, Option(metavar="NAME", help="The address to listen on.")] = "127.0.0.1",
    port: PortOption = 8766,
    jwks: Annotated[
        str | None,
        Option(metavar="URL", help="Accept JWTs: the URL of their issuer's public keys."),
    ] = None,
    issuer: Annotated[str, Option(metavar="NAME", help="The required `iss` of JWTs.")] = "",
    audience: Annotated[str, Option(metavar="NAME", help="The required `aud` of JWTs.")] = "",
    user_claim: Annotated[
        str, Option(metavar="NAME", help="The claim of JWTs with the user.")
    ] = "sub",
    jwt_rights: Annotated[
        str, Option(metavar="LIST", help="The rights of users with JWTs.")
    ] = "read,write,delete",
    rate: Annotated[
        float,
        Option(
            metavar="N",
            callback=_checked_rate,
            help="Requests per second for each credential, up to a million; 0: no limit.",
        ),
    ] = 50.0,
) -> None:
    """Serve HTTP until SIGTERM: the API at /v1, the web page at /, and MCP at /mcp.

    A request's credential decides for which users the request may act, and with which rights: see
    `agent-memory keys`. Any number of these processes can share a store. The log goes to stderr,
    one JSON object per line, without message content.
    """
    if not all(map(find_spec, ("jwt", "prometheus_client", "starlette", "uvicorn"))):
        raise MissingExtra("agent-memory serve", "server")
    from agent_memory.server.credentials import Credentials, Limits, Tokens

    if jwks is None and (issuer or audience):
        raise ConfigError("--issuer and --audience are only for JWTs. Add --jwks.")
    rights = [right.strip() for right in jwt_rights.split(",")]
    trusted = None if jwks is None else Tokens(jwks, issuer, audience, user_claim, rights)
    with listening(host, port, lambda: _served(settings)) as (memory, listener, address, is_local):
        from agent_memory.aio import AsyncAgentMemory
        from agent_memory.listening.serving import serve as run
        from agent_memory.server.application import Application
        from agent_memory.server.keys import KeyRing
        from agent_memory.server.monitoring import Metrics, log_as_json

        ring = KeyRing(memory.components.store)
        _check_credentials(ring, trusted, is_local)
        credentials = Credentials(ring, trusted)
        limits = Limits(per_second=rate, burst=max(1, int(rate * 4)))
        awaited = AsyncAgentMemory(memory)
        mcp = None
        if find_spec("mcp") is not None:
            from agent_memory.mcp.http import behind

            mcp = behind(awaited)
        app = Application(awaited, credentials, Metrics(), limits, mcp=mcp)
        place = common.without_password(str(settings.store))
        text = f"Serving {place} at {address}/v1, and its page at {address}/. Ctrl-C stops it.\n"
        text += _NO_MCP if mcp is None else f"MCP is at {address}/mcp."
        log_as_json()
        with app.figures.reporting():
            run(app, listener, lambda: typer.echo(text))


@contextmanager
def listening(
    host: str, port: int, settings: Callable[[], AgentMemoryConfig]
) -> Iterator[tuple[AgentMemory, socket, str, bool]]:
    """Listen until SIGINT or SIGTERM, and open a memory.

    Yield the memory, the listening socket, the URL, and whether only this machine can connect.
    """
    from agent_memory.listening.serving import listen

    share_arenas()
    with (
        common.on_signals(lambda number, frame: sys.exit(0)),
        listen(host, port) as listener,
        common.open_memory(settings(), create=True) as memory,
    ):
        memory.warm_up()  # connections wait in the socket's queue meanwhile
        address, port = listener.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        try:
            yield memory, listener, url, ip_address(address.partition("%")[0]).is_loopback
        except SystemExit:
            try:
                memory._close(_WORK_SECONDS)
            finally:
                _leave_calls()
            raise


def _leave_calls() -> None:
    """End the process if calls still run: the interpreter would wait for a model that hangs."""
    if sum(not thread.daemon for thread in threading.enumerate()) > 1:  # one is the main thread
        atexit._run_exitfuncs()
        os._exit(0)


def _served(settings: AgentMemoryConfig) -> AgentMemoryConfig:
    """Return the settings with the service's defaults: background work, and a log of prompts."""
    usual: dict[str, Any] = {"overflow_mode": "background", "keep_contexts": True}
    if settings.redact is not None:  # `redact` forbids `keep_contexts`
        del usual["keep_contexts"]
    unset = {name: value for name, value in usual.items() if name not in settings.model_fields_set}
    return settings.model_copy(update=unset)


def _check_credentials(ring: KeyRing, trusted: Tokens | None, is_local: bool) -> None:
    """Raise an error if there is no valid credential and the address is open to the network.

    If only one of these conditions is true, print a warning.
    """
    now = datetime.now(UTC)
    can_come_in = trusted is not None or any(key.is_valid(now) for key in ring.all())
    if not can_come_in and not is_local:
        raise ConfigError(
            "There is no credential, and the address is open to the network. Create a key first: "
            f"{_FIRST_KEY}. Or accept JWTs: --jwks, --issuer, --audience."
        )
    if not can_come_in:
        terminal.note(
            f"There is no key yet: all requests are refused. Create one: {_FIRST_KEY}", ""
        )
    if not is_local:
        typer.echo(f"{UNENCRYPTED}.", err=True)


_TOKEN = "AGENT_MEMORY_MCP_TOKEN"


def mcp(
    user: common.UserOption = None,
    http: Annotated[
        bool, Option("--http", help="Serve HTTP at /mcp instead of stdin and stdout.")
    ] = False,
    host: Annotated[
        str, Option(metavar="NAME", help="The address that clients connect to.")
    ] = "127.0.0.1",
    port: PortOption = 8765,
    tokens: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="A TOML or JSON file of users and their tokens. Without this file, --user names "
            f"the user, and the token is the value of {_TOKEN}, or a new token.",
        ),
    ] = None,
    store: common.StoreOption = None,
    config: common.ConfigOption = None,
) -> None:
    """Serve a user's memory to MCP clients, which can search, add and forget.

    A client starts this command and uses stdin and stdout. With --http, the command serves many
    clients, and a client's token decides the user. No tool takes a user's id.
    """

    def settings() -> AgentMemoryConfig:
        from agent_memory.ltm_blocks.files.block import FileMemory

        return common.load_config(store, config, extra=[FileMemory()])

    if http:
        _serve_http(_tokens(user, tokens), host, port, settings)
    elif user is None or tokens is not None:
        raise InvalidInput("Pass --user to name the user. --tokens is only for --http.")
    else:
        _serve_stdio(user, settings)


def _serve_stdio(user: str, settings: Callable[[], AgentMemoryConfig]) -> None:
    from agent_memory.mcp.server import build, wire
    from agent_memory.mcp.server import serve as run

    check_id("--user", user)
    if sys.stdin.isatty():
        typer.echo("An MCP client starts and uses this command. Ctrl-C stops it.", err=True)
    streams = wire()  # before imports that might print
    with common.open_memory(settings(), create=True) as memory:
        Handover("warm-up", partial(memory.warm_up, user))  # in parallel to the client's handshake
        run(build(memory, lambda request: user), *streams)


def _serve_http(
    tokens: UserTokens, host: str, port: int, settings: Callable[[], AgentMemoryConfig]
) -> None:
    from agent_memory.listening.serving import serve as run
    from agent_memory.mcp.http import PATH, asgi

    with listening(host, port, settings) as (memory, listener, address, is_local):
        if not is_local:
            typer.echo(f"{UNENCRYPTED}, or listen on 127.0.0.1.", err=True)
        text = f"Serving at {address}{PATH}. Ctrl-C stops it."
        run(asgi(memory, tokens, host), listener, lambda: typer.echo(text))


def _tokens(user: str | None, file: Path | None) -> UserTokens:
    """Return the tokens. A generated token is printed once."""
    from agent_memory.mcp.http import Tokens

    if file is not None and user is None:
        return Tokens.read(file)
    if user is None or file is not None:
        raise InvalidInput("Pass either --user to name one user, or --tokens FILE.")
    token = os.environ.get(_TOKEN)
    if token is None:
        token = secrets.token_urlsafe(32)
        typer.echo(f"The token, shown only now: {token}", err=True)
    return Tokens({user: token})
