"""A whole torture run: kills, races, and then a look whether everything is as it should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex

from agent_memory.engine.paging import all_heads
from agent_memory.stores.base import Store
from agent_memory.testing import FakeLLM
from benchmarks.torture_child import finish
from benchmarks.torture_kills import owners, run_kills
from benchmarks.torture_ledger import ERROR, Finding
from benchmarks.torture_processes import Child
from benchmarks.torture_races import USERS, plan, run_race
from benchmarks.torture_site import FACTS, VECTORS, Site, finder
from benchmarks.torture_verify import verify

MANY = 100
"""Sessions of the second race."""

Advance = Callable[[str, int], None]
"""Called with a part's name and how much of it was done just now."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done.

    Attributes:
        url: The store.
        kills: Processes to kill.
        processes: How many run at a time.
        threads: How many threads of each write in the races.
        messages: How many each of these writes to the one session; to the many, twice as many.
        seed: Decides what the processes do, and where they are killed.
    """

    url: str
    kills: int
    processes: int
    threads: int
    messages: int
    seed: int

    @property
    def parts(self) -> dict[str, int]:
        """The parts of the run, and how much each has to do."""
        said = self.processes * self.threads * self.messages
        return {"kills": self.kills, "one session": said, "many sessions": 2 * said}


@dataclass(slots=True)
class Report:
    """What came of a run.

    Attributes:
        namespace: Where in the store it took place.
        kills: Processes killed.
        messages: Messages acknowledged.
        stalls: Seconds that the longest update took, by mode.
        findings: What is wrong.
    """

    namespace: str
    kills: int = 0
    messages: int = 0
    stalls: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def add(self, stalls: Counter[str], findings: Iterable[Finding]) -> None:
        """Take in what a part has found."""
        self.stalls |= stalls
        self.findings += findings


def run(given: Plan, advance: Advance) -> Report:
    """Do a run, in a namespace of its own. Without findings, nothing is left of it in the store."""
    report = Report(f"torture-{token_hex(4)}")
    with FakeLLM(finder()) as model:
        site = Site(given.url, report.namespace, model.api_base)
        store = site.store()  # what cannot be opened fails here, and not in every process
        try:
            lanes = run_kills(
                site, store, given.kills, given.processes, given.seed, partial(advance, "kills", 1)
            )
            report.kills = given.kills
            races = [
                plan("one", given.processes, given.threads, 1, given.messages),
                plan("many", given.processes, given.threads, MANY, 2 * given.messages),
            ]
            for race, part in zip(races, ("one session", "many sessions"), strict=True):
                run_race(site, race, given.threads, partial(advance, part, 1))
            last = Child(finish, site)
            report.findings += last.messages()
            if last.exit_code:
                told = f"the last process ended with {last.exit_code}"
                report.findings.append(Finding(ERROR, "", told))
            everybody = owners(lanes) | {f"user:{user}" for user in USERS}
            report.findings += verify(store, everybody)
            for lane in lanes:
                report.messages += lane.ledger.acknowledged
                report.add(lane.stalls, (*lane.findings, *lane.check()))
            for race in races:
                report.messages += sum(map(len, race.said.values()))
                report.add(race.stalls, (*race.findings, *race.check(store)))
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
    for place in ("_notes", FACTS):  # what is of no session
        store.delete_records(place, session_id="")
