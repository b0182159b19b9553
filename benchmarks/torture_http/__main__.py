"""Many users, all kinds of credentials, cut connections and killed servers:
`python -m benchmarks.torture_http --requests 1000000 --writes 10000`.

Processes of `agent-memory serve` run over one store. First users ask at random, of their own things
and of others', at `/v1` and `/mcp`, with credentials that are good, wrong, revoked, over or
another's; no answer, log or file may hold a word of another user's. Then what is another's is held
against what does not exist, in status, body and time. At last writes are cut off and sent again,
while servers are killed: none may be lost or doubled.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.torture_http.alike import Held
from benchmarks.torture_http.crowd import Report
from benchmarks.torture_http.once import Report as OnceReport
from benchmarks.torture_http.run import Plan, attack, comparisons, write

_SHOWN = 25
_RARE = 0.001
"""So rarely, of all pairs together, chance may part two that are alike."""


def main(
    requests: Annotated[int, typer.Option(min=0, help="Random requests.")] = 20_000,
    rounds: Annotated[
        int, typer.Option(min=0, help="Rounds of another's beside nobody's, for each call.")
    ] = 50,
    writes: Annotated[int, typer.Option(min=0, help="Writes that are cut off.")] = 1_000,
    users: Annotated[int, typer.Option(min=4, help="Users.")] = 50,
    servers: Annotated[int, typer.Option(min=2, help="Server processes.")] = 2,
    threads: Annotated[int, typer.Option(min=1, help="Requests at a time.")] = 4,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="The store; by default a temporary file.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed is another run.")] = 0,
) -> None:
    """Attack the service."""
    console, wrong = Console(highlight=False), 0
    plan = Plan(requests, rounds, writes, users, servers, threads, store, seed)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        bars = {
            name: progress.add_task(name, total=total)
            for name, total in (
                ("requests", requests),
                ("comparisons", comparisons(plan)),
                ("writes", writes),
            )
        }
        if requests or rounds:
            report, held = attack(
                plan,
                lambda: progress.advance(bars["requests"]),
                lambda: progress.advance(bars["comparisons"]),
            )
            console.print(_table(report))
            for leak in report.leaks[:_SHOWN]:
                told = f"{leak.number}, {leak.case}: {leak.user}, {leak.name} with {leak.kind}"
                console.print(f"{told}: {leak.told}", markup=False)
            if rounds:
                console.print(_table_of_pairs(held))
            differ = [f"{one.name}: {told}" for one in held for told in one.differ]
            for told in differ[:_SHOWN]:
                console.print(told, markup=False)
            wrong += len(report.leaks) + len(differ)
        if writes:
            once = write(plan, lambda: progress.advance(bars["writes"]))
            console.print(_table_of_writes(once))
            for told in once.found[:_SHOWN]:
                console.print(told, markup=False)
            wrong += len(once.found)
    raise typer.Exit(bool(wrong))


def _table(report: Report) -> Table:
    table = _empty()
    for name, number in report.calls.most_common():
        mean = report.took[name] / number * 1_000
        table.add_row(f"{name}, {mean:,.1f} ms each", f"{number:,}")
    table.add_section()
    for counted in (report.kinds, report.asked, report.statuses):
        for what, number in counted.most_common():
            table.add_row(str(what), f"{number:,}")
        table.add_section()
    done = report.asked.total()
    table.add_row("requests", f"{done:,}")
    table.add_row("canaries looked at", f"{report.words:,}")
    table.add_row("time", f"{report.seconds:,.0f} s, {done / report.seconds:,.0f} a second")
    table.add_row("verdict", _verdict(len(report.leaks), "no leak"))
    return table


def _table_of_pairs(held: list[Held]) -> Table:
    table = _empty("another's beside nobody's", "apart, \N{MICRO SIGN}s", "by chance", "control")
    for one in sorted(held, key=lambda one: one.chance):
        apart, chances = one.apart * 1e6, (one.chance, one.chance_of_control)
        table.add_row(one.name, f"{apart:+,.0f}", *(f"{chance:.3f}" for chance in chances))
    table.add_section()
    told = sum(one.chance * len(held) < _RARE for one in held)
    table.add_row("told apart by time", f"{told} of {len(held)}")
    differ = sum(len(one.differ) for one in held)
    table.add_row("told apart by status, headers or body", _verdict(differ, "none"))
    return table


def _table_of_writes(report: OnceReport) -> Table:
    table = _empty()
    for counted in (report.writes, report.sent):
        for name, number in counted.most_common():
            table.add_row(name, f"{number:,}")
        table.add_section()
    table.add_row("writes", f"{report.writes.total():,}")
    table.add_row("requests", f"{report.sent.total():,}")
    table.add_row("kills", f"{report.kills:,}")
    table.add_row("verdict", _verdict(len(report.found), "none lost, none doubled"))
    return table


def _empty(*titles: str) -> Table:
    table = Table(*titles, show_header=bool(titles))
    if not titles:
        table.add_column()
        table.add_column(justify="right")
    return table


def _verdict(wrong: int, good: str) -> str:
    return f"[red]{wrong} things are wrong" if wrong else f"[green]{good}"


if __name__ == "__main__":
    typer.run(main)
