"""What is known of a user: facts, their profile, every change, and forgetting."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from agent_memory.cli.common import (
    ConfigOption,
    StoreOption,
    UserOption,
    guarded,
    load_config,
    moment_of,
    open_memory,
    out,
    owner_of,
)
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from agent_memory.engine.memory import AgentMemory
    from agent_memory.ltm_blocks.extractive.history.fact import Fact

SessionOption = Annotated[
    str | None, typer.Option("--session", metavar="ID", help="Only what comes from it.")
]
AsOfOption = Annotated[
    datetime | None,
    typer.Option("--as-of", help="What held at that moment (UTC), not what is current."),
]
KnownAtOption = Annotated[
    datetime | None, typer.Option("--known-at", help="By what had been said by then (UTC).")
]

_SOURCE = re.compile(r"(.+):(\d+)-(\d+)")


def _opened(store: str | None, config: Path | None) -> AgentMemory:
    """The memory, with a block that keeps facts where the settings name no blocks."""
    from agent_memory.ltm_blocks import ExtractiveMemory

    return open_memory(load_config(store, config, beside=[ExtractiveMemory()]))


@guarded
def facts(
    user: UserOption = None,
    session: SessionOption = None,
    as_of: AsOfOption = None,
    known_at: KnownAtOption = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only those not worth recalling, with the why.")
    ] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """List the facts known of a user, each with its time and the words it rests on."""
    from agent_memory.cli.view import cell

    with _opened(store, config) as memory:
        if stale:
            old = owner_of(memory, user, session).stale()
            found = [one.fact for one in old]
            why = [one.why if one.of is None else f"{one.why} of {one.of.id[:8]}" for one in old]
        else:
            found = owner_of(memory, user, session).facts(
                session_id=session, as_of=moment_of(as_of), known_at=moment_of(known_at)
            )
            why = None
    out().print(_table(found, why) if found else cell("No facts."))


@guarded
def profile(
    user: UserOption = None,
    session: SessionOption = None,
    as_of: AsOfOption = None,
    known_at: KnownAtOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Print the profile of a user, as JSON."""
    with _opened(store, config) as memory:
        owner = owner_of(memory, user, session)
        found = owner.profile(as_of=moment_of(as_of), known_at=moment_of(known_at))
    typer.echo(found.model_dump_json(indent=2))


@guarded
def audit(
    user: UserOption = None,
    session: SessionOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """List every change to what is known of a user, oldest first, with the why."""
    from agent_memory.cli.view import NOTHING, cell, grid

    with _opened(store, config) as memory:
        changes = owner_of(memory, user, session).audit()
    table = grid("when", "what", "fact", "text", "why", "messages")
    for one in changes:
        table.add_row(
            f"{one.at:%Y-%m-%d %H:%M}", one.what, cell((one.fact or NOTHING)[:8]),
            cell(one.text or NOTHING), cell(one.why),
            cell(f"{one.session_id} #{_span(one.first, one.last)}"),
        )  # fmt: skip
    out().print(table if changes else "No changes.")


@guarded
def forget(
    fact: Annotated[
        str | None,
        typer.Argument(metavar="[FACT]", help="A fact's id, or how it begins; wants --user."),
    ] = None,
    user: UserOption = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="SESSION[:FIRST-LAST]",
            help="Instead: all that comes from a session, or from some of its messages.",
        ),
    ] = None,
    why: Annotated[str, typer.Option("--why", help="What the audit is to say.")] = "",
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Forget a fact, or what comes from a session. What these had superseded holds again."""
    from agent_memory.cli.view import cell

    part = _part(source)
    with _opened(store, config) as memory:
        owner = owner_of(memory, user, part[0] if isinstance(part, tuple) else part)
        if fact is not None and part is None:
            fact = _whole_id(fact, {one.fact for one in owner.audit() if one.fact})
        gone = owner.forget(fact, source=part, why=why)
    console = out()
    console.print(_table(gone) if gone else "Nothing was known of it.")
    if gone:
        console.print(cell("Forgotten. The messages are still in the log.", "dim"))


def _table(facts: list[Fact], why: list[str] | None = None) -> Table:
    from agent_memory.cli.view import cell, grid

    table = grid("id", "time", "fact", "role", "quote", "messages", *(["why"] if why else []))
    for place, fact in enumerate(facts):
        table.add_row(
            fact.id[:8], cell(fact.time), cell(fact.text), fact.role,
            cell(fact.quote, "dim"), cell(", ".join(f"{of} #{seq}" for of, seq in fact.sources)),
            *([why[place]] if why else []),
        )  # fmt: skip
    return table


def _span(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else str(first)


def _part(source: str | None) -> str | tuple[str, int, int] | None:
    found = _SOURCE.fullmatch(source) if source else None
    return (found[1], int(found[2]), int(found[3])) if found else source


def _whole_id(begun: str, ids: set[str]) -> str:
    """The one id that begins so.

    Raises:
        InvalidInput: Several do.
    """
    found = sorted(name for name in ids if name.startswith(begun))
    if len(found) > 1:
        raise InvalidInput(f"Several facts' ids begin with {begun!r}. Give more of the one meant.")
    return found[0] if found else begun
