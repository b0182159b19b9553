"""`agent-memory shares`: list shared namespaces; grant and revoke agents' access."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agent_memory.cli.common import out, say, with_memory
from agent_memory.cli.view import NOTHING, cell, grid

if TYPE_CHECKING:
    from agent_memory.engine.memory import AgentMemory

app = typer.Typer(
    help="List the namespaces that agents share; grant and revoke access.", no_args_is_help=True
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The namespace's name.")]
AgentArgument = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's id.")]

_PAGE = 500


@app.command("list")
@with_memory
def list_(memory: AgentMemory) -> None:
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


@app.command()
@partial(with_memory, create=True)
def grant(
    memory: AgentMemory,
    name: NameArgument,
    agent: AgentArgument,
    access: Annotated[Literal["read", "write"], typer.Argument(help='"write" includes "read".')],
) -> None:
    """Grant an agent read or write access, from its next call on."""
    memory.share(name).grant(agent, access)
    say(f"{agent} may {access} in {name}.")


@app.command()
@with_memory
def revoke(memory: AgentMemory, name: NameArgument, agent: AgentArgument) -> None:
    """Revoke an agent's access, from its next call on. The agent's messages stay."""
    memory.share(name).revoke(agent)
    say(f"{agent} has no access to {name}.")
