"""`agent-memory shares`: shared namespaces, and which agents may read and write them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from agent_memory.cli.common import (
    ConfigOption,
    StoreOption,
    guarded,
    load_config,
    open_memory,
    out,
)

app = typer.Typer(
    help="List the namespaces that agents share; grant and revoke access.",
    no_args_is_help=True,
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The namespace's name.")]
AgentArgument = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's id.")]

_PAGE = 500


class Access(StrEnum):
    """What can be granted."""

    READ = "read"
    WRITE = "write"


@app.command("list")
@guarded
def list_(store: StoreOption = None, config: ConfigOption = None) -> None:
    """List shared namespaces: their agents, what each may do, and how many sessions there are."""
    from agent_memory.cli.view import NOTHING, cell, grid

    table = grid("namespace", "sessions", "agent", "access", right=("sessions",))
    from agent_memory import operations

    with open_memory(load_config(store, config)) as memory:
        names = operations.shares(memory)
        for name in names:
            share, after, count = memory.share(name), None, 0
            while page := share.sessions(limit=_PAGE, after=after):
                count, after = count + len(page), page[-1].session_id
            agents = list(share.agents().items())
            for number, (agent, access) in enumerate(agents or [(NOTHING, NOTHING)]):
                of_share = (cell(name), str(count)) if number == 0 else ("", "")
                table.add_row(*of_share, cell(agent), access)
    out().print(table if names else "Nothing is shared between agents.")


@app.command()
@guarded
def grant(
    name: NameArgument,
    agent: AgentArgument,
    access: Annotated[Access, typer.Argument(help="Who may write may read too.")],
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Let an agent read, or read and write, from its next call on."""
    from agent_memory.cli.view import cell

    with open_memory(load_config(store, config), create=True) as memory:
        memory.share(name).grant(agent, access.value)
    out().print(cell(f"{agent} may {access.value} in {name}."))


@app.command()
@guarded
def revoke(
    name: NameArgument,
    agent: AgentArgument,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Shut an agent out, from its next call on. What it wrote stays."""
    from agent_memory.cli.view import cell

    with open_memory(load_config(store, config)) as memory:
        memory.share(name).revoke(agent)
    out().print(cell(f"{agent} has no access to {name}."))
