"""Sessions as files: snapshot, restore."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, cast

import typer

from agent_memory.cli.backups import restore_store
from agent_memory.cli.common import (
    ConfigOption,
    StoreOption,
    err,
    guarded,
    head_of,
    load_config,
    open_memory,
    out,
)

if TYPE_CHECKING:
    from rich.progress import Progress

_PIPE = Path("-")


@guarded
def snapshot(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")],
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", help="Where to write it; - is stdout.")
    ],
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Write a session with all that belongs to it to a file, for `restore`.

    The log, the head and what blocks keep of it, as they are at one moment; others may go on
    writing meanwhile. The file is readable by its owner alone, and appears once it is whole.
    """
    from agent_memory.engine.transfer.export import written

    with open_memory(load_config(store, config)) as memory, _progress() as progress:
        head = head_of(memory, session)
        with _stdout() if to == _PIPE else written(to) as file:
            # of what blocks keep nobody knows beforehand how much it is
            counted = _Counted(file, progress, head.end - head.expired)
            done = memory.session(session).export(cast("TextIO", counted))
    told = f"{done.entries} messages and {done.records} records of {session} written"
    err().print(f"{told}." if to == _PIPE else f"{told} to {to}.", markup=False, soft_wrap=True)
    for block in done.left_out:
        told = f"{block}: its records can't be taken along; it absorbs the session anew."
        err().print(told, style="yellow", markup=False)


@guarded
def restore(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="What `snapshot` or `backup` wrote; - is stdin."),
    ],
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Bring a session back though it was deleted since.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Replace a store by its backup without asking.")
    ] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Bring back what is in a file: a session that `snapshot` wrote, or a store from `backup`.

    Nothing is there before all of it was read and found to be as it was written. A session comes
    into this store or another; one of the same id must not be there. A backup takes the place of
    the whole store; programs that have it open are told so by their next call.
    """
    from agent_memory import operations
    from agent_memory.stores.sql.backups import is_database

    settings = load_config(store, config)
    if file != _PIPE and is_database(file):
        restore_store(file, str(settings.store), yes)
        return
    with (
        open_memory(settings, create=True) as memory,
        _progress() as progress,
        _stdin() if file == _PIPE else _opened(file, progress) as lines,
    ):
        head = operations.import_session(memory, lines, deleted=deleted)
        waiting = [one.name for one in memory.blocks.values() if one.absorbs and head.lag(one.name)]
    told = f"{head.session_id} is restored: {head.end - head.expired} messages"
    of = f", user {head.user_id}" if head.user_id is not None else ""
    out().print(f"{told}{of}.", markup=False, soft_wrap=True)
    if waiting:
        told = f"To be absorbed by {', '.join(waiting)}: agent-memory flush {head.session_id}"
        out().print(told, markup=False, soft_wrap=True)


class _Counted:
    """Counts the lines that it hands on."""

    def __init__(self, file: TextIO, progress: Progress, total: int) -> None:
        self._file = file
        self._progress = progress
        self._task = progress.add_task("writing", total=total)

    def write(self, line: str) -> None:
        self._file.write(line)
        self._progress.advance(self._task)


@contextmanager
def _progress() -> Iterator[Progress]:
    from rich.progress import Progress

    with Progress(console=err(), transient=True) as progress:
        yield progress


@contextmanager
def _opened(file: Path, progress: Progress) -> Iterator[TextIO]:
    with progress.open(file, "r", encoding="utf-8", newline="\n", description="reading") as opened:
        yield opened


@contextmanager
def _stdout() -> Iterator[TextIO]:
    file = TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n")
    try:
        yield file
    finally:
        file.detach()  # flushed, and stdout stays open


@contextmanager
def _stdin() -> Iterator[TextIO]:
    file = TextIOWrapper(sys.stdin.buffer, encoding="utf-8", newline="\n")
    try:
        yield file
    finally:
        file.detach()
