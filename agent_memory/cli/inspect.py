"""Inspect a memory: sessions, show, search, explain, export, stats."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_memory.cli.common import (
    ConfigOption,
    StoreOption,
    UserOption,
    err,
    guarded,
    head_of,
    load_config,
    moment_of,
    open_memory,
    out,
    owner_of,
    plain,
)
from agent_memory.cli.facts import ForgetOption, WhyOption, YesOption, forget_found
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_memory.core.records import Entry, Head
    from agent_memory.engine.memory import AgentMemory

SessionArgument = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]

_PAGE = 500


@guarded
def sessions(
    user: Annotated[
        str | None, typer.Option("--user", metavar="ID", help="Only this user's sessions.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The maximum number.")] = 100,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="SESSION", help="Start after this session."),
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """List sessions: user, messages, window, and the messages each block has yet to absorb."""
    from agent_memory.cli.view import NOTHING, cell, grid

    with open_memory(load_config(store, config)) as memory:
        page = memory.sessions(user_id=user, limit=limit, after=after)
        blocks = [block.name for block in memory.blocks.values() if block.absorbs]
        columns = ("messages", "window tokens", *(f"{name} lag" for name in blocks))
        table = grid("session", "user", *columns, right=columns)
        for head in page:
            lags = (str(head.lag(name) or "") for name in blocks)
            table.add_row(
                cell(head.session_id), cell(head.user_id or NOTHING), str(head.end),
                str(head.window_tokens), *lags,
            )  # fmt: skip
        console = out()
        console.print(table if page else "No sessions.")
        if len(page) == limit:
            console.print(cell(f"Next page: --after {page[-1].session_id}", "dim"))


@guarded
def show(
    session: SessionArgument,
    whole: Annotated[
        bool, typer.Option("--all", help="The whole log, not only the window.")
    ] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Show a session: its system message, its summary and the messages of its window."""
    from agent_memory.cli.view import cell, entry_line

    console = out()
    with open_memory(load_config(store, config)) as memory:
        head = head_of(memory, session)
        console.print(cell(_about(head, memory), "dim"))
        if head.system:
            console.print(cell(f"system: {head.system.text()}", "magenta"))
        if head.summary:
            console.print()
            title = f"summary up to #{head.summary.upto}, by {head.summary.by}:"
            console.print(cell(f"{title}\n{head.summary.text}", "yellow"))
        console.print()
        for entry in _log(memory, head):
            in_window = entry.seq > head.start or entry.seq in head.pinned
            if whole or (in_window and not entry.message.is_system):
                console.print(entry_line(entry, dim=not in_window))


@guarded
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The query text.")],
    user: UserOption = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="Only from this session.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The maximum number.")] = 10,
    block: Annotated[
        list[str] | None,
        typer.Option("--block", metavar="NAME", help="Only from this block; may be repeated."),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option("--role", help="Only from messages of this role; may be repeated."),
    ] = None,
    since: Annotated[
        datetime | None, typer.Option("--since", help="Only from messages of then or later (UTC).")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", help="Only from messages before then (UTC).")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="KEY=VALUE",
            help="Only from messages with this metadata; may be repeated.",
        ),
    ] = None,
    least: Annotated[float | None, typer.Option("--least", help="The lowest score.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the ranking signals of each score.")
    ] = False,
    forget: ForgetOption = False,
    messages: Annotated[
        bool, typer.Option("--messages", help="With --forget: remove messages from the log too.")
    ] = False,
    why: WhyOption = "",
    yes: YesOption = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Search long-term memory, best first."""
    from agent_memory.cli.view import cell, recalls_table

    console = out()
    with open_memory(load_config(store, config)) as memory:
        owner = owner_of(memory, user, session) if forget else None
        found = memory.search(
            query, user_id=user, session_id=session, limit=limit, blocks=block, roles=role,
            since=moment_of(since), until=moment_of(until), where=_where(where),
            least=least,
        )  # fmt: skip
        console.print(recalls_table(found, explain=explain) if found else "Nothing found.")
        if owner is not None:
            forget_found(owner, found, messages=messages, why=why, yes=yes)
    if explain and any(recall.views for recall in found):
        told = (
            "Each signal is relative to the best record shown. A score is their weighted mean plus "
            "the priors."
        )
        console.print(cell(told, "dim"))
    if user is None and session is None:
        told = "Only shared records were searched. To search a user's, pass --user or --session."
        console.print(cell(told, "dim"))


@guarded
def explain(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question.")],
    user: UserOption = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="The session. Default: a new one."),
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Show what would be recalled for a question, what is left out, and why."""
    with open_memory(load_config(store, config)) as memory:
        told = memory.explain(question, user_id=user, session_id=session)
    out().print(plain(str(told)), markup=False, soft_wrap=True)


@guarded
def export(
    session: SessionArgument,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="The file to write. Default: stdout."),
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Write a session's messages as JSON lines, for `import`.

    `snapshot` also writes the records derived from them.
    """
    from agent_memory.cli.lines import write_line

    with open_memory(load_config(store, config)) as memory:
        log = _log(memory, head_of(memory, session))
        if output is None:
            for entry in log:
                typer.echo(write_line(entry), nl=False)
            return
        with output.open("wb") as file:
            count = sum(1 for entry in log if file.write(write_line(entry)))
    err().print(f"{count} messages written to {output}.", markup=False)


@guarded
def stats(store: StoreOption = None, config: ConfigOption = None) -> None:
    """Print counts, and the pending messages and dead letters of each block."""
    from agent_memory import operations
    from agent_memory.cli.view import NOTHING, cell, grid, one_line

    with open_memory(load_config(store, config)) as memory:
        found = memory.stats()
        errors = {one.block: one.error for one in operations.dead_letters(memory)}  # the newest
    console = out()
    table = grid("", "", right=("",), header=False)
    table.columns[0].justify = "left"
    table.add_row("sessions", f"{found.sessions:,}")
    table.add_row("messages", f"{found.entries:,}")
    console.print(table)
    if found.blocks:
        numbers = ("not absorbed yet", "dead letters")
        table = grid("block", *numbers, "last error", right=numbers)
        for name, block in found.blocks.items():
            error = block.error or errors.get(name, NOTHING)
            table.add_row(name, f"{block.lag:,}", f"{block.dead_letters:,}", one_line(error))
        console.print()
        console.print(table)
    if found.spending is not None:
        spent = found.spending.spent
        told = f"Spent by memory today (UTC): {spent.calls:,} calls, {spent.tokens:,} tokens"
        reached = found.spending.reached
        limit = "" if reached is None else f". The limit is reached: {reached}"
        console.print(f"{told}, ${spent.cost:,.4f}{limit}.", markup=False, soft_wrap=True)
    if found.dead_letters:
        console.print(cell("`agent-memory doctor` lists the dead letters.", "dim"))


def _about(head: Head, memory: AgentMemory) -> str:
    lags = {name: head.lag(name) for name, block in memory.blocks.items() if block.absorbs}
    parts = [
        head.session_id,
        f"user {head.user_id}" if head.user_id else "no user",
        f"{head.end} messages",
        f"window after #{head.start}: {head.window_tokens} tokens",
        *(f"{name} has {lag} pending" for name, lag in lags.items() if lag),
    ]
    return " · ".join(parts)


def _where(given: list[str] | None) -> dict[str, Any] | None:
    """Parse KEY=VALUE conditions. A value that is not JSON is a text.

    Raises:
        InvalidInput: A condition has no key or no "=".
    """
    found: dict[str, Any] = {}
    for one in given or ():
        key, mark, value = one.partition("=")
        if not key or not mark:
            raise InvalidInput("--where is not KEY=VALUE. Use --where topic=boats, for example.")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found or None


def _log(memory: AgentMemory, head: Head) -> Iterator[Entry]:
    after = 0
    while page := memory.history(head.session_id, after=after, limit=_PAGE):
        yield from page
        after = page[-1].seq
