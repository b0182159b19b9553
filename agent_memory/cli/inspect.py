"""Looking into a memory, moving it and tending it: sessions, show, search, export, import, ..."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_memory.cli.common import (
    FAILED,
    ConfigOption,
    StoreOption,
    UserOption,
    err,
    guarded,
    head_of,
    load_config,
    open_memory,
    out,
)
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_memory.engine.memory import AgentMemory
    from agent_memory.records import Entry, Head

SessionArgument = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]

_PAGE = 500


@guarded
def sessions(
    user: Annotated[
        str | None, typer.Option("--user", metavar="ID", help="Only this user's.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many.")] = 100,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="SESSION", help="Those that come after this one."),
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """List sessions: user, messages, window, and what each block still has to absorb."""
    from agent_memory.cli.view import NOTHING, cell, grid

    with open_memory(load_config(store, config)) as memory:
        page = memory.sessions(user_id=user, limit=limit, after=after)
        blocks = [block.name for block in memory.blocks.values() if block.absorbs]
        columns = ("messages", "window tokens", *(f"{name} lag" for name in blocks))
        table = grid("session", "user", *columns, right=columns)
        for head in page:
            lags = (str(head.end - head.cursors.get(name, 0)) for name in blocks)
            table.add_row(
                cell(head.session_id), cell(head.user_id or NOTHING), str(head.end),
                str(head.window_tokens), *lags,
            )  # fmt: skip
        console = out()
        console.print(table if page else "No sessions.")
        if len(page) == limit:
            console.print(cell(f"Perhaps more: --after {page[-1].session_id}", "dim"))


@guarded
def show(
    session: SessionArgument,
    whole: Annotated[bool, typer.Option("--all", help="The whole log, past the window.")] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Show a session: its system message, its summary and the messages of its window."""
    from agent_memory.cli.view import cell, entry_line

    console = out()
    with open_memory(load_config(store, config)) as memory:
        head = head_of(memory, session)
        console.print(cell(_about(head), "dim"))
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
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for.")],
    user: UserOption = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="Only what comes from it.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many.")] = 10,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Search long-term memory: what the blocks recall for a question, best first."""
    from agent_memory.cli.view import cell, recalls_table

    console = out()
    with open_memory(load_config(store, config)) as memory:
        found = memory.search(query, user_id=user, session_id=session, limit=limit)
    console.print(recalls_table(found) if found else "Nothing found.")
    if user is None and session is None:
        told = "Only what holds for everyone was searched; name --user or --session."
        console.print(cell(told, "dim"))


@guarded
def export(
    session: SessionArgument,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write here instead of to stdout."),
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Write a session's log as JSON lines, as `import` reads them."""
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
def import_(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="JSON lines to read."),
    ],
    session: SessionArgument,
    user: UserOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Append a chat log to a session: JSON lines with role and content.

    `timestamp` or `created_at` is a message's time; `id` and `session_id` go into its metadata. A
    file with a line that is no message is refused before anything is stored.
    """
    from rich.progress import Progress

    from agent_memory.cli.lines import read_lines

    lines = read_lines(file)
    with (
        open_memory(load_config(store, config), create=True) as memory,
        Progress(console=err(), transient=True) as progress,
    ):
        for done, line in enumerate(progress.track(lines, description="importing")):
            try:
                memory.update(session, line.message, user_id=user)
            except InvalidInput as error:
                raise InvalidInput(
                    f"{file.name}, line {line.number}: {error} The {done} messages before it "
                    "were imported."
                ) from None
        head = head_of(memory, session)
    first = head.end - len(lines) + 1
    told = f"{len(lines)} messages imported as #{first} to #{head.end} of {session}."
    out().print(told, markup=False)


@guarded
def flush(
    session: Annotated[
        str | None,
        typer.Argument(metavar="[SESSION]", help="Only this session; all by default."),
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Have the blocks absorb what is pending, now. Safe to repeat, from any scheduler."""
    from agent_memory.cli.view import cell, grid

    with open_memory(load_config(store, config)) as memory:
        if session is not None:
            head_of(memory, session)
        done = memory.flush(session)
    table = grid("session", "block", "absorbed", "")
    for one in done:
        absorbed = f"#{one.first} to #{one.last}" if one.last >= one.first else "nothing"
        table.add_row(cell(one.session_id), one.block, absorbed, cell(one.error or "", "yellow"))
    out().print(table if done else "Nothing was pending.")
    if any(one.error and not one.error.startswith("ModelRequired") for one in done):
        raise typer.Exit(FAILED)


@guarded
def delete(
    session: SessionArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Delete a session: its log, its window, and every record derived from it."""
    with open_memory(load_config(store, config)) as memory:
        head = head_of(memory, session)
        if not yes:
            typer.confirm(
                f"Delete {session} with its {head.end} messages and all derived from them?",
                abort=True,
            )
        memory.delete(session)
    out().print(f"{session} is deleted.", markup=False)


@guarded
def replay(
    block: Annotated[str, typer.Argument(metavar="BLOCK", help="The block's name.")],
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Rebuild one block from the logs, after its settings changed."""
    from rich.progress import Progress

    with open_memory(load_config(store, config)) as memory:
        steps, errors, done = memory.replay(block), [], 0
        with Progress(console=err(), transient=True) as progress:
            task = progress.add_task("replaying", total=None)
            for step in steps:
                done = step.done
                progress.update(task, completed=step.done, total=step.total)
                if step.error:
                    errors.append(f"{step.session_id}: {step.error}")
    console = out()
    console.print(f"{block}: {done - len(errors)} of {done} sessions rebuilt.", markup=False)
    for told in errors:
        console.print(told, style="red", markup=False)
    if errors:
        raise typer.Exit(FAILED)


@guarded
def stats(store: StoreOption = None, config: ConfigOption = None) -> None:
    """Print counts, and what each block still has to absorb."""
    from agent_memory.cli.view import cell, grid

    with open_memory(load_config(store, config)) as memory:
        found = memory.stats()
    table = grid("", "", right=("",), header=False)
    table.columns[0].justify = "left"
    table.add_row("sessions", f"{found.sessions:,}")
    table.add_row("messages", f"{found.entries:,}")
    for name, block in found.blocks.items():
        table.add_row(cell(f"{name}: not absorbed yet"), f"{block.lag:,}")
    out().print(table)


def _about(head: Head) -> str:
    cursors = [f"{name} has absorbed up to #{seq}" for name, seq in head.cursors.items()]
    parts = [
        head.session_id,
        f"user {head.user_id}" if head.user_id else "no user",
        f"{head.end} messages",
        f"window after #{head.start}: {head.window_tokens} tokens",
        *cursors,
    ]
    return " · ".join(parts)


def _log(memory: AgentMemory, head: Head) -> Iterator[Entry]:
    after = 0
    while page := memory.history(head.session_id, after=after, limit=_PAGE):
        yield from page
        after = page[-1].seq
