"""`agent-memory mcp`: a user's memory for MCP clients, over stdio or HTTP."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_memory.cli.common import (
    ConfigOption,
    StoreOption,
    UserOption,
    guarded,
    load_config,
    open_memory,
)
from agent_memory.cli.serve import UNENCRYPTED, listening
from agent_memory.core.ids import check_id
from agent_memory.core.threads import Handover
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.mcp.http import Tokens

TOKEN = "AGENT_MEMORY_MCP_TOKEN"


@guarded
def mcp(
    user: UserOption = None,
    http: Annotated[
        bool, typer.Option("--http", help="Serve HTTP at /mcp instead of stdin and stdout.")
    ] = False,
    host: Annotated[
        str, typer.Option(metavar="NAME", help="The address that clients connect to.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65_535, help="0 picks a free port.")
    ] = 8765,
    tokens: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A TOML or JSON file of users and their tokens. Without this file, --user names "
            f"the user, and the token is the value of {TOKEN}, or a new token.",
        ),
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Serve a user's memory to MCP clients, which can search, add and forget.

    A client starts this command and uses stdin and stdout. With --http, the command serves many
    clients, and a client's token decides the user. No tool takes a user's id.
    """

    def settings() -> AgentMemoryConfig:
        from agent_memory.ltm_blocks.files.block import FileMemory

        return load_config(store, config, beside=[FileMemory()])

    if http:
        _serve_http(_tokens(user, tokens), host, port, settings)
    elif user is None or tokens is not None:
        raise InvalidInput("Pass --user to name the user. --tokens is only for --http.")
    else:
        _serve_stdio(user, settings)


def _serve_stdio(user: str, settings: Callable[[], AgentMemoryConfig]) -> None:
    from agent_memory.mcp.server import build
    from agent_memory.mcp.stdio import serve, wire

    check_id("--user", user)
    if sys.stdin.isatty():
        typer.echo("An MCP client starts and uses this command. Ctrl-C stops it.", err=True)
    streams = wire()  # before imports that might print
    with open_memory(settings(), create=True) as memory:
        Handover("warm-up", partial(memory.warm_up, user))  # in parallel to the client's handshake
        serve(build(memory, lambda request: user), *streams)


def _serve_http(
    tokens: Tokens, host: str, port: int, settings: Callable[[], AgentMemoryConfig]
) -> None:
    from agent_memory.listening.serving import serve
    from agent_memory.mcp.http import PATH, asgi

    with listening(host, port, settings) as (memory, listener, address, is_local):
        if not is_local:
            typer.echo(f"{UNENCRYPTED}, or listen on 127.0.0.1.", err=True)
        text = f"Serving at {address}{PATH}. Ctrl-C stops it."
        serve(asgi(memory, tokens, host), listener, lambda: typer.echo(text))


def _tokens(user: str | None, file: Path | None) -> Tokens:
    """Return the tokens. A generated token is printed once."""
    from agent_memory.mcp.http import Tokens

    if file is not None and user is None:
        return Tokens.read(file)
    if user is None or file is not None:
        raise InvalidInput("Pass either --user to name one user, or --tokens FILE.")
    token = os.environ.get(TOKEN)
    if token is None:
        token = secrets.token_urlsafe(32)
        typer.echo(f"The token, shown only now: {token}", err=True)
    return Tokens({user: token})
