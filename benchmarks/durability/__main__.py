"""Kill, race, verify: `python -m benchmarks durability --store sqlite:///memory.db`.

Processes make random calls of a memory, and are killed at each step of the memory's work in turn.
Other processes write the same sessions at the same time. Then the stored data is compared with the
acknowledged calls. The store may have other data: the run uses its own namespace, and removes it if
nothing is wrong.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
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

from agent_memory.engine.paging import all_heads
from agent_memory.errors import AgentMemoryError
from agent_memory.stores.base import Store
from agent_memory.testing import FakeLLM
from benchmarks.durability.child import finish
from benchmarks.durability.kills import owners, run_kills
from benchmarks.durability.ledger import (
    DOUBLED,
    ERROR,
    LOST,
    REORDERED,
    REVIVED,
    UNFINISHED,
    Finding,
)
from benchmarks.durability.processes import Child
from benchmarks.durability.races import USERS, plan, run_race
from benchmarks.durability.site import FACTS, VECTORS, Site, finder
from benchmarks.durability.verify import BEHIND, DUE, FOREIGN, LEASED, MISSING, ORPHANED, verify

_MANY = 100  # sessions of the second race
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


@dataclass(slots=True)
class Report:
    """Results of a run; `stalls` has the seconds of the longest update, by mode."""

    namespace: str
    messages: int = 0
    stalls: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


def run(
    url: str,
    kills: int,
    processes: int,
    threads: int,
    messages: int,
    seed: int,
    advance: Callable[[str], None],
) -> Report:
    """Kill and race processes in a new namespace. Delete it if nothing is wrong."""
    report = Report(f"durability-{token_hex(4)}")
    with FakeLLM(finder()) as model:
        site = Site(url, report.namespace, model.api_base)
        store = site.store()  # if it cannot be opened, this fails and not every process
        try:
            lanes = run_kills(site, store, kills, processes, seed, partial(advance, "kills"))
            races = [
                plan("one", processes, threads, 1, messages),
                plan("many", processes, threads, _MANY, 2 * messages),
            ]
            for race, part in zip(races, ("one session", "many sessions"), strict=True):
                run_race(site, race, threads, partial(advance, part))
            last = Child(finish, site)
            report.findings += last.messages()
            if last.exit_code:
                error = f"the last process ended with {last.exit_code}"
                report.findings.append(Finding(ERROR, "", error))
            everybody = owners(lanes) | {f"user:{user}" for user in USERS}
            report.findings += verify(store, everybody)
            for lane in lanes:
                report.messages += lane.ledger.acknowledged
                report.stalls |= lane.stalls
                report.findings += [*lane.findings, *lane.check()]
            for race in races:
                report.messages += sum(map(len, race.said.values()))
                report.stalls |= race.stalls
                report.findings += [*race.findings, *race.check(store)]
            report.findings = list(dict.fromkeys(report.findings))
            if not report.findings:
                _clean(store)
        finally:
            store.close()
    return report


def _clean(store: Store) -> None:
    for head in list(all_heads(store)):
        for place in (FACTS, "_failed"):
            store.delete_records(place, session_id=head.session_id)
        store.delete(head.session_id)
    store.clear_vectors(VECTORS)
    for place in ("_notes", FACTS):  # records without a session
        store.delete_records(place, session_id="")


def main(
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="The store; by default a temporary file.")
    ] = None,
    kills: Annotated[int, typer.Option(min=0, help="Processes to kill.")] = 300,
    processes: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 8,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each in the races.")] = 4,
    messages: Annotated[int, typer.Option(min=1, help="Messages of each thread.")] = 25,
    seed: Annotated[int, typer.Option(help="Another seed is another run.")] = 0,
) -> None:
    """Kill and race processes over a store, and verify what is stored."""
    console, began = Console(highlight=False), monotonic()
    folder = Path(mkdtemp(prefix="durability-")) if store is None else None
    url = store or f"sqlite:///{folder}/memory.db"
    if url.startswith("memory:"):
        raise typer.BadParameter("Processes can't share memory://. Name another store.")
    raced = processes * threads * messages
    parts = {"kills": kills, "one session": raced, "many sessions": 2 * raced}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        bars = {part: progress.add_task(part, total=total) for part, total in parts.items()}
        try:
            report = run(
                url, kills, processes, threads, messages, seed,
                lambda part: progress.advance(bars[part]),
            )  # fmt: skip
        except AgentMemoryError as error:
            console.print(str(error), style="red", markup=False)
            raise typer.Exit(2) from None
    found = Counter(finding.kind for finding in report.findings)
    table = Table("", "", show_header=False)
    table.add_row("kills", f"{kills:,}")
    table.add_row("messages", f"{report.messages:,}")
    for label, kind in _ROWS.items():
        table.add_row(label, f"{found[kind]:,}", style="red" if found[kind] else None)
    for mode, stall in sorted(report.stalls.items()):
        table.add_row(f"longest stall, {mode}", f"{stall:.2f} s")
    table.add_row("time", f"{monotonic() - began:.0f} s")
    wrong = len(report.findings)
    table.add_row("verdict", f"[red]{wrong} things are wrong" if wrong else "[green]good")
    console.print(table)
    for finding in report.findings[:_SHOWN]:
        line = f"{finding.kind}: {finding.session_id}: {finding.detail} ({finding.during})"
        console.print(line, markup=False)
    if report.findings:
        console.print(f"Not deleted: {url}, namespace {report.namespace}.", markup=False)
        raise typer.Exit(1)
    if folder is not None:
        rmtree(folder)
