"""Benchmarks: `python -m benchmarks`, against the floors and the peers that are installed.

`python -m benchmarks peers` installs the peers. `python -m benchmarks table results.json` prints
the tables of an earlier run as Markdown.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import installing, plots, report, start
from benchmarks.contenders import PEERS_DIR
from benchmarks.results import Results, load
from benchmarks.running import Run, machine
from benchmarks.workloads import FULL, SMALL, works

START = "start"

app = typer.Typer(help=__doc__, add_completion=False, pretty_exceptions_enable=False)
PeersDir = Annotated[Path, typer.Option(help="Where peers are installed.")]


@app.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    small: Annotated[
        bool, typer.Option(help="A quick check that everything runs; its figures say little.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="append, get, overflow, sessions, background, start; repeatable."
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds; 5 by default, 2 if small.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where results and plots go.")] = Path("bench-results"),
    peers_dir: PeersDir = PEERS_DIR,
    peers: Annotated[bool, typer.Option(help="Run the peers that are installed.")] = True,
    install: Annotated[
        bool, typer.Option(help="Measure the size of a fresh install too, over the network.")
    ] = False,
) -> None:
    """Run the benchmarks."""
    if context.invoked_subcommand is not None:
        return
    rounds = rounds or (2 if small else 5)
    scale = SMALL if small else FULL
    known = works(scale, rounds)
    names = [*(work.name for work in known), START]
    for name in only or ():
        if name not in names:
            raise typer.BadParameter(f"No work is named {name}. There are {', '.join(names)}.")
    wanted = set(only or names)
    results = Results(machine(), rounds, small)
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="agent-memory-bench-") as folder:
        chosen = [work for work in known if work.name in wanted]
        _measure(
            Run(chosen, scale, rounds, peers_dir if peers else Path(folder), Path(folder)),
            results,
            START in wanted,
        )
    if install:
        results.start["install"] = start.installed_size()
    results.save(out / "results.json")
    console = _console()
    report.show(results, console)
    drawn = plots.draw(results, out)
    if not drawn:
        console.print("No plots: matplotlib is not installed (pip install 'agent-memory[bench]').")
    for path in (out / "results.json", *drawn):
        console.print(str(path), markup=False)


@app.command("peers")
def install_peers(peers_dir: PeersDir = PEERS_DIR) -> None:
    """Install the peers, each in a virtualenv of its own."""
    failed = False
    console = Console()
    with _progress() as progress:
        bar = progress.add_task("peers", total=len(installing.plan()))
        for name, reason in installing.install(peers_dir):
            progress.advance(bar)
            failed |= reason is not None
            console.print(f"{name}: {reason or 'installed'}", markup=False)
    raise typer.Exit(failed)


@app.command()
def table(path: Path) -> None:
    """Print the tables of an earlier run as Markdown."""
    print(report.markdown(load(path)))


def _measure(runner: Run, results: Results, with_start: bool) -> None:
    rounds = results.rounds
    total = runner.steps + (start.steps(runner.present, rounds) if with_start else 0)
    with _progress() as progress:
        bar = progress.add_task("starting", total=total)

        def advance(what: str) -> None:
            progress.update(bar, advance=1, description=what)

        runner.into(results, advance)
        if with_start:
            results.start = start.measure(
                runner.present, runner.peers_dir, runner.folder, rounds, advance
            )


def _console() -> Console:
    """As wide as the terminal; in a file, wide enough for the tables."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    # Redrawn seldom: what is measured shares the machine.
    return Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), refresh_per_second=2
    )


if __name__ == "__main__":
    app()
