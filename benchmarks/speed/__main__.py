"""Measure speed against floors and the peers that are installed: `python -m benchmarks speed`.

`python -m benchmarks peers` installs the peers. `python -m benchmarks speed table results.json`
prints the tables of an earlier run as Markdown.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from benchmarks.messages import machine
from benchmarks.speed import report, start
from benchmarks.speed.contenders import PEERS_DIR
from benchmarks.speed.run import Results, Run, load
from benchmarks.speed.workloads import FULL, SMALL, works

START = "start"

main = typer.Typer(help=__doc__, add_completion=False, pretty_exceptions_enable=False)


@main.callback(invoke_without_command=True)
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
    out: Annotated[Path, typer.Option(help="Where results.json goes.")] = Path("bench-results"),
    peers_dir: Annotated[Path, typer.Option(help="Where peers are installed.")] = PEERS_DIR,
    peers: Annotated[bool, typer.Option(help="Run the peers that are installed.")] = True,
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
        place = peers_dir if peers else Path(folder)
        runner = Run(chosen, scale, rounds, place, Path(folder))
        runner.into(results, _show)
        if START in wanted:
            results.start = start.measure(
                runner.present, runner.peers_dir, runner.folder, rounds, _show
            )
    print(file=sys.stderr)
    results.save(out / "results.json")
    print(report.markdown(results))
    print(out / "results.json")


@main.command()
def table(path: Path) -> None:
    """Print the tables of an earlier run as Markdown."""
    print(report.markdown(load(path)))


def _show(step: str) -> None:
    """Show the current step, in place of the previous one."""
    print(f"\r{step[:100]:100}", end="", file=sys.stderr, flush=True)
