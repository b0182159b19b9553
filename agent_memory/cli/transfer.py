"""Backups, snapshots and migrations on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, cast

import typer
from typer import Argument, Option

from agent_memory.cli import common, terminal

if TYPE_CHECKING:
    from rich.progress import Progress

    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.engine.memory import AgentMemory


@common.with_settings
def backup(
    settings: AgentMemoryConfig, file: Annotated[Path, Argument(help="The file to write.")]
) -> None:
    """Back up all users and namespaces of a SQLite database to a file, for `restore`.

    The backup is consistent, also while other processes write. The file is verified, readable by
    its owner only, and replaces an existing file once it is complete.
    """
    from agent_memory.stores.sql.backups import back_up

    url = str(common.existing(settings).store)
    back_up(url, file)
    terminal.say(f"{file} is a backup of {common.without_password(url)}.")
    other = [f"the records of block {block.name!r}" for block in settings.all_blocks if block.store]
    other += ["system messages"] * (settings.system_store is not None)
    if other:
        terminal.note(
            f"Not included: {', '.join(other)}. These are in other stores. If such a store is a "
            "SQLite file, back it up with `backup FILE --store URL`."
        )


_PIPE = Path("-")


@common.with_memory
def snapshot(
    memory: AgentMemory,
    session: common.SessionArgument,
    to: Annotated[Path, Option(metavar="FILE", help="The file to write; - is stdout.")],
) -> None:
    """Write a session to a file, for `restore`: its log, its head and its records in blocks.

    The snapshot is consistent, also while other processes write. The file is readable by its owner
    only, and appears once it is complete.
    """
    from agent_memory.engine.transfer.export import written

    with terminal.progress_bar() as progress:
        head = common.head_of(memory, session)
        with _piped(sys.stdout) if to == _PIPE else written(to) as file:
            # the total leaves out the records of blocks: their number is not known beforehand
            counted = _Counted(file, progress, head.end - head.expired)
            done = memory.session(session).export(cast("TextIO", counted))
    text = f"{done.entries} messages and {done.records} records of {session} written"
    terminal.note(f"{text}." if to == _PIPE else f"{text} to {to}.", "")
    for block in done.left_out:
        terminal.note(
            f"{block}: its store cannot export records, so the file has none. After `restore`, the "
            "block absorbs the session again."
        )


@common.with_settings
def restore(
    settings: AgentMemoryConfig,
    file: Annotated[Path, Argument(help="A file of `snapshot` or `backup`; - is stdin.")],
    deleted: Annotated[
        bool, Option("--deleted", help="Restore a session even if it was deleted.")
    ] = False,
    yes: common.YesOption = False,
) -> None:
    """Restore a session from `snapshot`, or a whole store from `backup`.

    Nothing is visible before the file was read and verified completely. A session can be restored
    into any store that has no session of the same id. A backup replaces the whole store. Programs
    that have opened the store get an error on their next call.
    """
    from agent_memory import operations
    from agent_memory.stores.sql.backups import is_database, put_back

    if file != _PIPE and is_database(file):
        url = str(settings.store)
        shown = common.without_password(url)
        if not yes and url.startswith("sqlite:") and common.missing_file(url) is None:
            text = f"Replace {shown} by {file}? The current data of {shown} will be lost."
            typer.confirm(text, abort=True)
        put_back(file, url)
        terminal.say(f"{shown} is restored from {file}. Restart programs that have opened it.")
        return
    with (
        common.open_memory(settings, create=True) as memory,
        terminal.progress_bar() as progress,
        _piped(sys.stdin)
        if file == _PIPE
        else progress.open(
            file, "r", encoding="utf-8", newline="\n", description="reading"
        ) as lines,
    ):
        head = operations.import_session(memory, lines, deleted=deleted)
        late = [name for name, block in memory.blocks.items() if block.absorbs and head.lag(name)]
    text = f"{head.session_id} is restored: {head.end - head.expired} messages"
    of = f", user {head.user_id}" if head.user_id is not None else ""
    terminal.say(f"{text}{of}.")
    if late:
        terminal.say(
            f"Not absorbed yet by {', '.join(late)}. Run: agent-memory flush {head.session_id}"
        )


class _Counted:
    def __init__(self, file: TextIO, progress: Progress, total: int) -> None:
        self._file = file
        self._progress = progress
        self._task = progress.add_task("writing", total=total)

    def write(self, line: str) -> None:
        self._file.write(line)
        self._progress.advance(self._task)


@contextmanager
def _piped(stream: TextIO) -> Iterator[TextIO]:
    """Yield stdin or stdout as UTF-8 text. The stream stays open afterwards."""
    file = TextIOWrapper(stream.buffer, encoding="utf-8", newline="\n")
    try:
        yield file
    finally:
        file.detach()  # `detach` also flushes


def migrate(
    from_url: Annotated[str, Argument(help="The source store. It is only read.")],
    to_url: Annotated[
        str, Argument(help="The target store: empty, or the target of an interrupted run.")
    ],
    namespace: Annotated[
        str,
        Option(
            metavar="NAME",
            envvar="AGENT_MEMORY_NAMESPACE",
            help="The namespace to copy. It has the same name in both stores.",
        ),
    ] = "default",
) -> None:
    """Copy a namespace's sessions, facts and vectors to another database. Compare both.

    To continue an interrupted run, run the command again. Do not use the stores meanwhile.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from agent_memory.engine.transfer.migrate import migrate as moved

    verified = None
    moving = moved(from_url, to_url, namespace=namespace)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )  # fmt: skip
    with common.resumable(), closing(moving), terminal.progress_bar(*columns) as progress:
        tasks = {}
        for step in moving:
            if step.what not in tasks:
                tasks[step.what] = progress.add_task(step.what, total=None)
            progress.update(tasks[step.what], completed=step.done, total=step.total)
            verified = step.verified
    assert verified is not None, "the last step has the verified counts"
    kinds = ("sessions", "messages", "facts", "vectors")
    rows = ((what, str(getattr(verified, what)), "equal") for what in kinds)
    terminal.out().print(terminal.table(("", "moved", "compared"), rows, right=("moved",)))
    target, source = common.without_password(to_url), common.without_password(from_url)
    terminal.say(f"{target} now has all data of the namespace in {source}.")
