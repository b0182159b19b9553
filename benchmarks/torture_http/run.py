"""Whole runs: a crowd at the door, what is another's beside what is nobody's, and writes that are
cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from random import Random
from secrets import token_hex
from threading import Thread
from time import monotonic

from agent_memory.testing import FakeLLM
from benchmarks.torture_canaries import Aviary
from benchmarks.torture_http.alike import Comparison, Held, pairs
from benchmarks.torture_http.calls import Call, of_mcp, of_the_table
from benchmarks.torture_http.crowd import Crowd, Report
from benchmarks.torture_http.issuer import issuing
from benchmarks.torture_http.once import (
    SHARE,
    USERS,
    Killer,
    Writer,
    held_against,
    kept,
)
from benchmarks.torture_http.once import Report as OnceReport
from benchmarks.torture_http.people import People
from benchmarks.torture_http.site import PLAIN, Site, site
from benchmarks.torture_model import Echo

Advance = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done.

    Attributes:
        requests: How many random requests.
        rounds: How often each call is asked for another's and for nobody's.
        writes: How many writes are cut off and sent again.
        users: How many users.
        servers: How many processes.
        threads: How many requests at a time.
        store: The store's URL; None for a SQLite file.
        seed: Decides what is done.
    """

    requests: int
    rounds: int
    writes: int
    users: int = 50
    servers: int = 2
    threads: int = 4
    store: str | None = None
    seed: int = 0


@contextmanager
def _site(plan: Plan, blocks: str | None = None) -> Iterator[tuple[Site, People, Aviary]]:
    with FakeLLM(Echo(lambda words: None)) as model, issuing() as issuer:
        name, aviary = f"torture-{token_hex(4)}", Aviary(plan.seed)
        options = issuer.options
        with site(plan.store, name, plan.servers, model.api_base, options, blocks) as place:
            yield place, People(plan.users, place.ring, issuer, aviary), aviary


def _calls(place: Site, people: People) -> list[Call]:
    token = people.all[people.names[0]].good[0].token
    return [*of_the_table(), *of_mcp(place.caller, token)]


def attack(plan: Plan, asked: Advance, compared: Advance) -> tuple[Report, list[Held]]:
    """Have a crowd make random requests; then hold another's against nobody's.

    Args:
        plan: What to do.
        asked: Called after each request.
        compared: Called after each round.
    """
    report, began = Report(), monotonic()
    with _site(plan) as (place, people, aviary):
        calls = _calls(place, people)
        crowd = Crowd(place, people, aviary, calls, plan.seed, report)
        crowd.begin()
        _together(plan.threads, plan.requests, crowd.step, asked)
        report.seconds = monotonic() - began
        held = Comparison(place, people, calls, plan.seed).run(plan.rounds, compared)
        crowd.end()
    return report, held


def comparisons(plan: Plan) -> int:
    """How many rounds there are of the calls of `/v1`; those of tools come to it."""
    return plan.rounds * sum(1 for _ in pairs(of_the_table()))


def _together(threads: int, most: int, step: Callable[[int], object], advance: Advance) -> None:
    numbers = count()

    def work() -> None:
        for number in numbers:
            if number >= most:
                return
            step(number)
            advance()

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work) for _ in range(threads)]:
            done.result()


def write(plan: Plan, advance: Advance) -> OnceReport:
    """Have writes cut off and sent again, while servers are killed.

    Args:
        plan: What to do.
        advance: Called after each write.
    """
    report = OnceReport()
    with _site(plan, PLAIN) as (place, people, _):
        rights = ("read", "write")
        keys = {user: place.ring.create(user, [user], rights)[0] for user in USERS}
        by_name = {one.name: one for one in of_the_table()}
        for user in USERS:
            given = {"share": SHARE, "agent_id": user, "access": "write"}
            by_name["grant_access"].request(given).made(place.caller, 0, people.admin.token)
        killer = Killer(place.servers, Random(f"{plan.seed}/killer"))
        writers = [Writer(n, place, keys, killer, report, plan.seed) for n in range(plan.threads)]
        killing = Thread(target=killer.run, name="killer")
        killing.start()
        numbers = count()
        try:
            with ThreadPoolExecutor(plan.threads) as pool:
                running = [pool.submit(one.run, numbers, plan.writes, advance) for one in writers]
                for done in running:
                    done.result()
        finally:
            killer.end()
            killing.join()
        report.kills = killer.kills
        writes = [one for writer in writers for one in writer.done]
        report.found += held_against(writes, kept(place, keys, plan.threads))
    return report
