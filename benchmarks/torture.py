"""Kill, race, verify: `python -m benchmarks.torture --store sqlite:///memory.db`.

Processes use a memory at random and are killed at each step of its work in turn; others write the
same sessions all at once. Then everything is compared with what they acknowledged. A store may hold
other data: the run keeps to a namespace of its own, and removes it if nothing was found.

With `--calls 1000000` instead: so many calls at random by users of one process, each of whom says
nothing without a word of their own; no call may give one's word to another.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from tempfile import mkdtemp
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from agent_memory.errors import AgentMemoryError
from benchmarks.torture_crowd import Plan as CallPlan
from benchmarks.torture_crowd import Report as CallReport
from benchmarks.torture_crowd_run import run_crowd
from benchmarks.torture_ledger import DOUBLED, ERROR, LOST, REORDERED, REVIVED, UNFINISHED
from benchmarks.torture_run import Plan, Report, run
from benchmarks.torture_site import FACTS, VECTORS
from benchmarks.torture_verify import BEHIND, DUE, FOREIGN, LEASED, MISSING, ORPHANED

_SHOWN = 25
_ROWS = {
    "lost": LOST,
    "doubled": DOUBLED,
    "reordered": REORDERED,
    "back after a deletion": REVIVED,
    "records orphaned": ORPHANED,
    "records of another user": FOREIGN,
    "vectors missing": f"{VECTORS} {MISSING}",
    "vectors doubled": f"{VECTORS} {DOUBLED}",
    "facts missing": f"{FACTS} {MISSING}",
    "facts doubled": f"{FACTS} {DOUBLED}",
    "not absorbed": BEHIND,
    "deletions unfinished": UNFINISHED,
    "leases left": LEASED,
    "left due": DUE,
    "errors that reached a caller": ERROR,
}


def main(
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="The store; by default a temporary file.")
    ] = None,
    kills: Annotated[int, typer.Option(min=0, help="Processes to kill.")] = 300,
    processes: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 8,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each in the races.")] = 4,
    messages: Annotated[int, typer.Option(min=1, help="Messages of each thread.")] = 25,
    seed: Annotated[int, typer.Option(help="Another seed is another run.")] = 0,
    calls: Annotated[
        int, typer.Option(min=0, help="Instead of kills and races: so many random calls.")
    ] = 0,
    users: Annotated[int, typer.Option(min=2, help="Users who make them.")] = 50,
) -> None:
    """Torture a store: kills, races, and a look at what is left."""
    console, began = Console(highlight=False), monotonic()
    folder = Path(mkdtemp(prefix="torture-")) if store is None else None
    url = store or f"sqlite:///{folder}/memory.db"
    if calls:
        _call(console, CallPlan(url, f"torture-{token_hex(4)}", calls, users, threads, seed))
        _clear(folder)
        return
    if url.startswith("memory:"):
        raise typer.BadParameter("Processes can't share memory://. Name another store.")
    plan = Plan(url, kills, processes, threads, messages, seed)
    with _progress() as progress:
        bars = {part: progress.add_task(part, total=total) for part, total in plan.parts.items()}
        try:
            report = run(plan, lambda part, n: progress.advance(bars[part], n))
        except AgentMemoryError as error:
            console.print(str(error), style="red", markup=False)
            raise typer.Exit(2) from None
    console.print(_table(report, monotonic() - began))
    for finding in report.findings[:_SHOWN]:
        told = f"{finding.kind}: {finding.session_id}: {finding.detail} ({finding.during})"
        console.print(told, markup=False)
    if report.findings:
        console.print(f"Kept for a look: {url}, namespace {report.namespace}.", markup=False)
        raise typer.Exit(1)
    _clear(folder)


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True))


def _clear(folder: Path | None) -> None:
    if folder is not None:
        rmtree(folder)


def _call(console: Console, plan: CallPlan) -> None:
    """Run the calls."""
    with _progress() as progress:
        bar = progress.add_task("calls", total=plan.calls)
        report = run_crowd(plan, lambda count: progress.advance(bar, count))
    console.print(_table_of_calls(report))
    for leak in report.leaks[:_SHOWN]:
        told = f"call {leak.number}, {leak.name} by {leak.user}: {leak.told}"
        console.print(told, markup=False)
    if report.leaks:
        console.print(f"Kept for a look: {plan.url}, namespace {plan.namespace}.", markup=False)
        raise typer.Exit(1)


def _table_of_calls(report: CallReport) -> Table:
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, count in report.done.most_common():
        table.add_row(name, f"{count:,}")
    table.add_section()
    for name, count in sorted((report.refused + report.errors).items()):
        table.add_row(name, f"{count:,}")
    table.add_section()
    done = report.done.total()
    table.add_row("operations", f"{done:,}")
    table.add_row("requests to the model", f"{report.requests:,}")
    table.add_row("canaries looked at", f"{report.words:,}")
    table.add_row("time", f"{report.seconds:,.0f} s, {done / report.seconds:,.0f} a second")
    verdict = f"[red]{len(report.leaks)} things are wrong" if report.leaks else "[green]no leak"
    table.add_row("verdict", verdict)
    return table


def _table(report: Report, seconds: float) -> Table:
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("kills", f"{report.kills:,}")
    table.add_row("messages", f"{report.messages:,}")
    found = Counter(finding.kind for finding in report.findings)
    for label, kind in _ROWS.items():
        table.add_row(label, f"{found[kind]:,}", style="red" if found[kind] else None)
    for mode, stall in sorted(report.stalls.items()):
        table.add_row(f"longest stall, {mode}", f"{stall:.2f} s")
    table.add_row("time", f"{seconds:.0f} s")
    table.add_section()
    verdict = f"[red]{len(report.findings)} things are wrong" if report.findings else "[green]good"
    table.add_row("verdict", verdict)
    return table


if __name__ == "__main__":
    typer.run(main)
