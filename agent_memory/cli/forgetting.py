"""Forgetting what a search or a report found: shown first, and forgotten only when told to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agent_memory.cli.common import (
    ConfigOption,
    StoreOption,
    UserOption,
    guarded,
    how_long,
    load_config,
    open_memory,
    out,
    owner_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_memory.core.records import Recall, Surplus
    from agent_memory.engine.user import User

ForgetOption = Annotated[
    bool, typer.Option("--forget", help="Forget for good what is shown, after asking.")
]
WhyOption = Annotated[str, typer.Option("--why", help="What the audit of facts is to say.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_SHORT = 8  # characters of an id


@guarded
def surplus(
    user: UserOption = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="Of its user; or its own, where it has none."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", help="Also what is older: 30d, 12h or 15m."),
    ] = None,
    messages: Annotated[
        bool,
        typer.Option("--messages", help="Also what was said; --forget takes it out of the log."),
    ] = False,
    forget: ForgetOption = False,
    why: WhyOption = "",
    yes: YesOption = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Report what is kept twice or has grown old. Nothing is changed without --forget."""
    age = how_long("--older-than", older_than)
    with open_memory(load_config(store, config)) as memory:
        owner = owner_of(memory, user, session)
        found = owner.surplus(older_than=age, messages=messages)
        _show(found)
        if forget:
            forget_found(owner, found, messages=messages, why=why, yes=yes)


def forget_found(
    owner: User,
    found: Sequence[Recall | Surplus],
    *,
    messages: bool,
    why: str,
    yes: bool,
) -> None:
    """Ask whether to forget what was shown, forget it, and say what is gone.

    Args:
        owner: Whose memory.
        found: What was shown.
        messages: Whether messages are taken out of their logs.
        why: What the audit is to say.
        yes: Whether not to ask.
    """
    if not found:
        return
    if not yes:
        logs = ", messages out of their logs too" if messages else ""
        typer.confirm(f"Forget these {len(found)} for good{logs}?", abort=True)
    gone = owner.forget_all(found, messages=messages, why=why)
    told = f"{len(gone)} of {len(found)} forgotten."
    if len(gone) < len(found) and not messages:
        told += " What is left was said, and stays in the log: --messages takes it out."
    out().print(told)


def _show(found: Sequence[Surplus]) -> None:
    from agent_memory.cli.view import cell, grid, sources

    table = grid("id", "why", "block", "time", "text", "source", "what stays")
    for one in found:
        recall, of = one.recall, one.of
        at = f"{recall.created_at:%Y-%m-%d %H:%M}" if recall.created_at else ""
        table.add_row(
            cell(_short(recall)), one.why if of is None else f"{one.why} of {_short(of)}",
            recall.block, at, cell(recall.text), cell(sources(recall)),
            cell(of.text if of else "", "dim"),
        )  # fmt: skip
    out().print(table if found else "Nothing is kept twice, or older than was asked.")


def _short(recall: Recall) -> str:
    return recall.id if recall.block == "log" else recall.id[:_SHORT]
