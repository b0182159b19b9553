"""Commands that absorb, retry, prune, delete and verify, and the worker."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated, cast

import typer
from typer import Argument, Option

from agent_memory.cli import common, terminal
from agent_memory.core.limits import readable
from agent_memory.core.processes import share_arenas
from agent_memory.errors import ConfigError, Damaged

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.core.records import Head
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.processing.session_work import Processed
    from agent_memory.engine.processing.worker import Worker
    from agent_memory.engine.stats import Progress as Step


@common.with_memory
def flush(
    memory: AgentMemory,
    session: Annotated[str | None, Argument(help="Only this session; all by default.")] = None,
) -> None:
    """Make blocks absorb all pending messages. Any scheduler may run this command."""
    if session is not None:
        common.head_of(memory, session)
    with terminal.progress_bar() as progress:
        task = progress.add_task("absorbing", total=None)

        def advance(step: Step) -> None:
            progress.update(task, completed=step.done, total=step.total)

        done = memory.flush(session, progress=advance)
    terminal.show(terminal.absorbed_table(done), "Nothing was pending.")
    if any(map(common.has_failed, done)):
        raise typer.Exit(common.FAILED)


@common.with_memory
def retry(
    memory: AgentMemory,
    block: Annotated[str | None, Argument(help="Only this block; all by default.")] = None,
) -> None:
    """Make blocks absorb their dead letters: messages that failed too often (see `doctor`)."""
    from agent_memory import operations

    letters = len(operations.dead_letters(memory, block))
    done = operations.retry(memory, block)
    left = len(operations.dead_letters(memory, block))
    terminal.show(terminal.absorbed_table(done), "There are no dead letters.")
    if left:
        terminal.note(f"{left} of {letters} dead letters are left.")
        raise typer.Exit(common.FAILED)


@common.with_settings
def replay(
    settings: AgentMemoryConfig, block: Annotated[str, Argument(help="The block's name.")]
) -> None:
    """Rebuild a block from the logs, after a change of its settings or its embedding model.

    Other processes can use the store meanwhile. To continue an interrupted replay, run the command
    again.
    """
    from agent_memory.operations import rebuild

    steps: list[Step] = []
    rebuilding = cast("Generator[Step]", rebuild(common.existing(settings), block))

    def stopped() -> str:
        so_far = f" after {steps[-1].done} of {steps[-1].total} sessions" if steps else ""
        return f"{block}: stopped{so_far}"

    with common.resumable(stopped), closing(rebuilding), terminal.progress_bar() as progress:
        task = progress.add_task("replaying", total=None)
        for step in rebuilding:
            if not steps and step.done > 1:
                text = f"Continuing an interrupted replay: {step.done - 1} sessions were done."
                progress.console.print(text)
            steps.append(step)
            progress.update(task, completed=step.done, total=step.total)
    errors = [f"{readable(step.session_id)}: {step.error}" for step in steps if step.error]
    terminal.say(f"{block}: {len(steps) - len(errors)} of {len(steps)} sessions rebuilt.")
    for error in errors:
        terminal.say(error, "red")
    if errors:
        raise typer.Exit(common.FAILED)


@common.with_memory
def prune(
    memory: AgentMemory,
    session: common.SessionArgument,
    to: Annotated[int, Option(metavar="TOKENS", help="The size of the window.", min=1)],
    yes: common.YesOption = False,
) -> None:
    """Shrink a session's window to a number of tokens, by the memory's strategy. The log stays."""
    head = common.head_of(memory, session)
    terminal.say(_window(head))
    if head.window_tokens <= to:
        terminal.say(f"The window has at most {to} tokens: nothing to do.")
        return
    if not yes:
        typer.confirm(f"Shrink the window to {to} tokens?", abort=True)
    terminal.say(_window(memory.prune(session, to)))


def _window(head: Head) -> str:
    count = len(head.pinned) + head.end - head.start
    size = f"{head.window_tokens} tokens, {count} of {head.end} messages"
    return f"Window of {head.session_id}: {size}."


@common.with_memory
def delete(
    memory: AgentMemory,
    session: common.SessionArgument,
    yes: common.YesOption = False,
    receipt: Annotated[Path | None, Option(metavar="FILE", help="A file for the receipt.")] = None,
) -> None:
    """Delete a session: its log, its window, and all records derived from it."""
    try:
        count = f"{common.head_of(memory, session).end}"
    except Damaged:
        count = "damaged head, all"
    if not yes:
        question = f"Delete {session} with its {count} messages and all records from them?"
        typer.confirm(terminal.plain(question), abort=True)
    if receipt is not None:
        receipt.open("a", encoding="utf-8").close()  # an error must come before the deletion
    proof = memory.delete(session)
    if receipt is not None:
        receipt.write_text(proof.to_json() + "\n", encoding="utf-8")
    terminal.say(f"{session} is deleted.")


@common.with_memory
def verify(
    memory: AgentMemory, receipt: Annotated[Path, Argument(help="The file with the receipt.")]
) -> None:
    """Verify a receipt of a deletion or a checkpoint against the store as it is now.

    Exits with 1 if a part of the receipt does not hold. Reads all records of the store.
    """
    from agent_memory import operations
    from agent_memory.config.sources import read_text

    result = operations.verify(memory, read_text(receipt, "the receipt"))
    terminal.say(str(result))
    if any(part.state == "failed" for part in result.parts):
        raise typer.Exit(common.FAILED)


@common.with_settings
def worker(
    settings: AgentMemoryConfig,
    once: Annotated[
        bool, Option("--once", help="Absorb what is due and exit, with 1 if anything failed.")
    ] = False,
    threads: Annotated[
        int | None,
        Option(
            "--background-threads",
            metavar="N",
            min=1,
            max=256,
            help="Sessions in parallel. Default: `background_threads` of the configuration.",
        ),
    ] = None,
) -> None:
    """Make blocks absorb what is due, session by session, users in turn, until stopped.

    Use the settings of the processes that update the store. Any number of workers can run. SIGTERM
    or Ctrl-C lets the worker finish the work in progress. A second signal ends the worker
    immediately. No work is lost in either case.
    """
    from agent_memory.engine.assembly import Components
    from agent_memory.engine.stats import SharedMetrics

    settings = common.existing(settings)
    place = common.without_password(str(settings.store))
    if place.startswith("memory:"):
        raise ConfigError(
            "The store memory:// is private to one process. With --store or --config, name a store "
            "that processes share, such as sqlite:///memory.db."
        )
    share_arenas()
    with (
        _signals() as stops,
        closing(Components(settings)) as parts,
        SharedMetrics(parts.store).reporting(parts.counted),
    ):
        report = Report(lambda: stops.put("The output is closed."))
        working = parts.worker(threads or settings.background_threads, report.on_done)
        if not once:
            parts.warm_up()
            typer.echo(f"Working on {place}. Ctrl-C stops it.")
        done = _work(working, once, stops)
    typer.echo(report.summary())
    if once and (report.failing or not done):
        raise typer.Exit(common.FAILED)


class Report:
    """Prints the work done for each session, and counts it."""

    def __init__(self, unread: Callable[[], None]) -> None:
        self._unread = unread
        self._lock = threading.Lock()
        self._sessions: set[str] = set()
        self._messages = 0
        self.failing: set[tuple[str, str]] = set()

    def on_done(self, session_id: str, processed: Processed) -> None:
        for batch in processed.absorbed:
            with self._lock:
                self._sessions.add(session_id)
                self._messages += batch.last - batch.first + 1
                mark = self.failing.add if common.has_failed(batch) else self.failing.discard
                mark((session_id, batch.block))
            why = f": {batch.error}" if batch.error else ""
            line = f"{readable(session_id)}: {batch.block} absorbed {terminal.reach(batch)}{why}"
            try:
                typer.echo(terminal.plain(" ".join(line.split())))
            except OSError:  # a pipe whose reader is gone
                self._unread()

    def summary(self) -> str:
        return f"{self._messages} messages of {len(self._sessions)} sessions absorbed."


def _work(worker: Worker, once: bool, stops: SimpleQueue[str]) -> bool:
    """Run a worker until all work is done or a stop is requested. Return False if work failed."""

    def stop() -> None:
        if reason := stops.get():
            with suppress(OSError):  # a pipe whose reader is gone
                typer.echo(f"{reason} Stopping after the work in progress.")
            worker.stop()

    stopper = threading.Thread(target=stop, daemon=True, name="stopper")
    stopper.start()
    try:
        if once:
            return worker.run_once()
        worker.start()
        while stopper.is_alive():
            stopper.join(1.0)  # on Windows, a wait without a limit blocks signals
        return True
    finally:
        stops.put("")  # an empty reason ends the stopper
        worker.stop()
        stopper.join()


@contextmanager
def _signals() -> Iterator[SimpleQueue[str]]:
    """Yield a queue that receives the first signal as a reason to stop.

    A second signal ends the process. A signal handler may interrupt a thread that holds the queue's
    lock. Only a `SimpleQueue` can be written to in that case.
    """
    stops: SimpleQueue[str] = SimpleQueue()

    def hear(number: int, frame: object) -> None:
        for caught in (signal.SIGINT, signal.SIGTERM):
            signal.signal(caught, signal.SIG_DFL)
        stops.put(f"{signal.Signals(number).name}.")

    with common.on_signals(hear):
        yield stops
