"""Maintain a memory: flush, retry, replay, prune, delete, verify."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from agent_memory.cli.common import (
    FAILED,
    ConfigOption,
    StoreOption,
    err,
    existing,
    guarded,
    has_failed,
    head_of,
    load_config,
    open_memory,
    out,
    plain,
)
from agent_memory.core.ids import readable
from agent_memory.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent_memory.core.records import Head
    from agent_memory.engine.stats import Progress as Step

_INTERRUPTED = 130


@guarded
def flush(
    session: Annotated[
        str | None,
        typer.Argument(metavar="[SESSION]", help="Only this session; all by default."),
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Make blocks absorb everything that is pending. Idempotent, for any scheduler."""
    from rich.progress import Progress

    from agent_memory.cli.view import absorbed_table

    with open_memory(load_config(store, config)) as memory:
        if session is not None:
            head_of(memory, session)
        with Progress(console=err(), transient=True) as progress:
            task = progress.add_task("absorbing", total=None)

            def told(step: Step) -> None:
                progress.update(task, completed=step.done, total=step.total)

            done = memory.flush(session, progress=told)
    out().print(absorbed_table(done) if done else "Nothing was pending.")
    if any(map(has_failed, done)):
        raise typer.Exit(FAILED)


@guarded
def retry(
    block: Annotated[
        str | None, typer.Argument(metavar="[BLOCK]", help="Only this block; all by default.")
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Make blocks absorb their dead letters: messages they failed on too often (see `doctor`)."""
    from agent_memory import operations
    from agent_memory.cli.view import absorbed_table

    with open_memory(load_config(store, config)) as memory:
        letters = len(operations.dead_letters(memory, block))
        done = operations.retry(memory, block)
        left = len(operations.dead_letters(memory, block))
    out().print(absorbed_table(done) if letters else "There are no dead letters.")
    if left:
        err().print(f"{left} of {letters} dead letters are left.", style="yellow")
        raise typer.Exit(FAILED)


@guarded
def replay(
    block: Annotated[str, typer.Argument(metavar="BLOCK", help="The block's name.")],
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Rebuild a block from the logs, after a change of its settings or its embedding model.

    Other processes can go on meanwhile. Run it again to continue an interrupted replay.
    """
    from rich.progress import Progress

    from agent_memory.operations import rebuild

    steps: list[Step] = []
    rebuilding = cast("Generator[Step]", rebuild(existing(load_config(store, config)), block))
    try:
        with closing(rebuilding), Progress(console=err(), transient=True) as progress:
            task = progress.add_task("replaying", total=None)
            for step in rebuilding:
                if not steps and step.done > 1:
                    told = f"Continuing an interrupted replay: {step.done - 1} sessions were done."
                    progress.console.print(told)
                steps.append(step)
                progress.update(task, completed=step.done, total=step.total)
    except KeyboardInterrupt:
        so_far = f" after {steps[-1].done} of {steps[-1].total} sessions" if steps else ""
        told = f"{block}: stopped{so_far}. Run the same command to continue."
        err().print(told, style="yellow", markup=False)
        raise typer.Exit(_INTERRUPTED) from None
    console = out()
    errors = [f"{readable(step.session_id)}: {step.error}" for step in steps if step.error]
    rebuilt = f"{len(steps) - len(errors)} of {len(steps)} sessions rebuilt."
    console.print(f"{block}: {rebuilt}", markup=False)
    for told in errors:
        console.print(told, style="red", markup=False)
    if errors:
        raise typer.Exit(FAILED)


@guarded
def prune(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")],
    to: Annotated[
        int, typer.Option("--to", metavar="TOKENS", help="The size of the window.", min=1)
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Shrink a session's window to a number of tokens, by its strategy. The log stays."""
    console = out()
    with open_memory(load_config(store, config)) as memory:
        head = head_of(memory, session)
        console.print(_window(head), markup=False)
        if head.window_tokens <= to:
            console.print(f"It has no more than {to} tokens: nothing to do.")
            return
        if not yes:
            typer.confirm(f"Shrink it to {to} tokens?", abort=True)
        console.print(_window(memory.prune(session, to)), markup=False)


def _window(head: Head) -> str:
    kept = len(head.pinned) + head.end - head.start
    return (
        f"Window of {head.session_id}: {head.window_tokens} tokens, {kept} of {head.end} messages."
    )


@guarded
def delete(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    receipt: Annotated[
        Path | None, typer.Option("--receipt", metavar="FILE", help="A file for the receipt.")
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Delete a session: its log, its window, and all records derived from it."""
    with open_memory(load_config(store, config)) as memory:
        try:
            told = f"{head_of(memory, session).end}"
        except Damaged:
            told = "damaged head, all"
        if not yes:
            typer.confirm(
                plain(f"Delete {session} with its {told} messages and all records from them?"),
                abort=True,
            )
        made = memory.delete(session)
    if receipt is not None:
        receipt.write_text(made.to_json() + "\n", encoding="utf-8")
    out().print(plain(f"{session} is deleted."), markup=False)


@guarded
def verify(
    receipt: Annotated[Path, typer.Argument(metavar="RECEIPT", help="The file with the receipt.")],
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Verify a receipt of a deletion or a checkpoint against the store as it is now.

    Exits with 1 if a part of the receipt does not hold. Reads all records of the store.
    """
    from agent_memory import operations
    from agent_memory.config.sources import read_text

    text = read_text(receipt, "the receipt")
    with open_memory(load_config(store, config)) as memory:
        found = operations.verify(memory, text)
    out().print(str(found), markup=False, soft_wrap=True)
    if any(part.state == "failed" for part in found.parts):
        raise typer.Exit(FAILED)
