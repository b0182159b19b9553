"""`agent-memory worker`: absorb in a separate process. Any number can share a store."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated

import typer

from agent_memory.cli.common import (
    FAILED,
    ConfigOption,
    StoreOption,
    existing,
    guarded,
    has_failed,
    load_config,
    plain,
    without_password,
)
from agent_memory.core.ids import readable
from agent_memory.core.processes import share_arenas
from agent_memory.errors import ConfigError

if TYPE_CHECKING:
    from agent_memory.engine.processing.session_work import Processed
    from agent_memory.engine.processing.worker import Worker


@guarded
def worker(
    once: Annotated[
        bool,
        typer.Option("--once", help="Absorb what is due and exit, for cron; 1 if a block failed."),
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(
            "--background-threads",
            metavar="N",
            min=1,
            max=256,
            help="Sessions in parallel. Default: `background_threads` of the configuration.",
        ),
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Absorb what is due, session by session, users in turn, until stopped.

    Use the settings of the processes that update the store. Any number of workers can run. SIGTERM
    or Ctrl-C lets it finish the work in progress. A second one ends it immediately. Nothing is lost
    either way.
    """
    from agent_memory.engine.assembly import Components
    from agent_memory.engine.stats import SharedMetrics

    settings = existing(load_config(store, config))
    place = without_password(str(settings.store))
    if place.startswith("memory:"):
        raise ConfigError(
            "A worker needs a store that processes can share, and memory:// is private to one. "
            "Pass --store or --config with their store, such as sqlite:///memory.db."
        )
    share_arenas()
    with (
        _signals() as stops,
        closing(Components(settings)) as parts,
        SharedMetrics(parts.store).kept_up(parts.counted),
    ):
        report = Report(lambda: stops.put("The output is closed."))
        working = parts.worker(threads or settings.background_threads, report.on_done)
        if not once:
            parts.warm_up()
            typer.echo(f"Working on {place}. Ctrl-C stops it.")
        _work(working, once, stops)
    typer.echo(report.summary())
    if once and report.failing:
        raise typer.Exit(FAILED)


class Report:
    """Prints the work done for each session, and counts it.

    Args:
        unread: Called if the output is closed.

    Attributes:
        failing: The sessions and blocks whose last batch failed.
    """

    def __init__(self, unread: Callable[[], None]) -> None:
        self._unread = unread
        self._lock = threading.Lock()
        self._sessions: set[str] = set()
        self._messages = 0
        self.failing: set[tuple[str, str]] = set()

    def on_done(self, session_id: str, processed: Processed) -> None:
        """Record that a thread has processed a session."""
        from agent_memory.cli.view import reach

        for one in processed.absorbed:
            with self._lock:
                self._sessions.add(session_id)
                self._messages += one.last - one.first + 1
                note = self.failing.add if has_failed(one) else self.failing.discard
                note((session_id, one.block))
            why = f": {one.error}" if one.error else ""
            line = f"{readable(session_id)}: {one.block} absorbed {reach(one)}{why}"
            try:
                typer.echo(plain(" ".join(line.split())))
            except OSError:  # a pipe whose reader is gone
                self._unread()

    def summary(self) -> str:
        """Return the total of the work done."""
        return f"{self._messages} messages of {len(self._sessions)} sessions absorbed."


def _work(worker: Worker, once: bool, stops: SimpleQueue[str]) -> None:
    """Run a worker until all work is done or a stop is requested."""

    def stop() -> None:
        if reason := stops.get():
            with suppress(OSError):  # a pipe whose reader is gone
                typer.echo(f"{reason} Stopping after the work in progress.")
            worker.stop()

    stopper = threading.Thread(target=stop, daemon=True, name="stopper")
    stopper.start()
    try:
        if once:
            worker.run_once()
        else:
            worker.start()
            while stopper.is_alive():
                stopper.join(1.0)  # on Windows an unlimited wait blocks signals
    finally:
        stops.put("")  # an empty reason ends the stopper
        worker.stop()
        stopper.join()


@contextmanager
def _signals() -> Iterator[SimpleQueue[str]]:
    """Yield a queue that receives the first signal as a reason to stop. A second ends the process.

    A signal handler may interrupt a thread that holds the queue's lock. Only `SimpleQueue` is safe
    to write to in that case.
    """
    stops: SimpleQueue[str] = SimpleQueue()

    def hear(number: int, frame: object) -> None:
        for one in before:
            signal.signal(one, signal.SIG_DFL)
        stops.put(f"{signal.Signals(number).name}.")

    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    for one in before:
        signal.signal(one, hear)
    try:
        yield stops
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
