"""`agent-memory doctor --repair`: what is damaged, what can be done, and doing it."""

from __future__ import annotations

from collections.abc import Collection

import typer

from agent_memory.cli.common import err, open_memory, out
from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.errors import Damaged


def repair(config: AgentMemoryConfig, *, yes: bool) -> bool:
    """Say what would be done about each damaged record; ask; do it. Whether all is sound then."""
    from agent_memory import operations

    with open_memory(config) as memory:
        left = operations.damaged(memory)
        if not left:
            _say("Every record can be read: there is nothing to repair.")
        plans = {error: operations.repair(memory, error, dry_run=True) for error in left}
        for error, plan in plans.items():
            _say(f"{error.damage or error}: {plan or _why(error, memory.blocks)}")
        if any(plans.values()):
            if not yes:
                typer.confirm("Do this?", abort=True)
            # messages first: heads follow from the log
            for error in sorted(plans, key=_rank):
                operations.repair(memory, error)
            left = operations.damaged(memory)
            _say(f"{len(plans)} were damaged; {len(left)} are left.")
    for error in left:
        err().print(str(error), style="red", markup=False)
    return not left


def _why(error: Damaged, blocks: Collection[str]) -> str:
    """Why nothing is planned."""
    block = error.damage.block if error.damage else ""
    if not block or block in blocks:
        return "Nothing can be done about it here."
    return (
        f"Nothing is done here, where block {block!r} is not configured. Run this with the "
        "settings of the memory that has it."
    )


def _rank(error: Damaged) -> int:
    kinds = ("message", "session", "fact", "vector")
    return kinds.index(error.damage.kind) if error.damage else len(kinds)


def _say(text: str) -> None:
    out().print(text, markup=False)
