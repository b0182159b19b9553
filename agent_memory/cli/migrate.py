"""Moving a deployment from one database to another."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from agent_memory.cli.common import err, guarded, out, without_password

_INTERRUPTED = 130


@guarded
def migrate(
    from_url: Annotated[
        str, typer.Argument(metavar="FROM_URL", help="Where the memory is. It is only read.")
    ],
    to_url: Annotated[
        str,
        typer.Argument(
            metavar="TO_URL", help="Where it is to be: empty, or as an interrupted run left it."
        ),
    ],
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            metavar="NAME",
            envvar="AGENT_MEMORY_NAMESPACE",
            help="What is moved: one namespace, which has the same name in both.",
        ),
    ] = "default",
    encryption: Annotated[
        str | None,
        typer.Option(
            "--encryption",
            metavar="VARIABLE",
            envvar="AGENT_MEMORY_ENCRYPTION",
            help="The environment variable with the keys of an encrypted deployment.",
        ),
    ] = None,
) -> None:
    """Move all sessions, facts and vectors to another database, and verify by checksums.

    A run that was interrupted goes on where it stopped. Let nobody use either store meanwhile.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from agent_memory.cli.view import grid
    from agent_memory.engine.transfer.migration.migrate import migrate as moved

    verified = keys = None
    if encryption:
        from agent_memory.stores.encrypted.keys import Keys

        keys = Keys.from_environment(encryption)
    moving = moved(from_url, to_url, namespace=namespace, keys=keys)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )  # fmt: skip
    try:
        with closing(moving), Progress(*columns, console=err(), transient=True) as progress:
            tasks = {}
            for step in moving:
                if step.what not in tasks:
                    tasks[step.what] = progress.add_task(step.what, total=None)
                progress.update(tasks[step.what], completed=step.done, total=step.total)
                verified = step.verified
    except KeyboardInterrupt:
        err().print("Stopped. The same command goes on from here.", style="yellow")
        raise typer.Exit(_INTERRUPTED) from None
    assert verified is not None, "the last step tells what was verified"
    table = grid("", "moved", "checksums", right=("moved",))
    for what in ("sessions", "messages", "facts", "vectors"):
        table.add_row(what, str(getattr(verified, what)), "equal")
    out().print(table)
    told = f"{without_password(to_url)} holds what {without_password(from_url)} holds."
    out().print(told, markup=False, soft_wrap=True)
