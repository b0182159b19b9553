"""Kill processes at named steps and at random moments, on the same sessions."""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import cycle, product
from random import Random
from typing import Any

from agent_memory.stores.base import Store
from agent_memory.strategies.base import Absorb
from benchmarks.durability.child import Round, Step, run_until_killed
from benchmarks.durability.ledger import ERROR, UNFINISHED, Finding, Ledger, compare
from benchmarks.durability.processes import Child, Hung
from benchmarks.durability.site import Mode, Site
from benchmarks.durability.verify import inspect, texts

SHARED = {"shared-1": "shared-user", "shared-2": "shared-user", "shared-3": "other-user"}
"""Sessions that all lanes write, each with its user."""

Steps = dict[tuple[Mode, bool], Counter[str]]
"""How often each step occurs, by mode and by whether the process makes the rare calls."""

_MODES: tuple[Mode, ...] = ("inline", "background")
_ABSORBS: tuple[Absorb, ...] = ("overflow", "every_update", 60)
_RARE = 0.2
_MESSAGES = 60
_RISKIEST = (
    "after put_records",
    "after put_vectors",
    "before put_vectors",
    "before rewrite",
    "before delete_vectors",
    "after delete",
    "before delete",
    "after append",
)
"""The riskiest steps; a short run is killed at these, in both modes."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill at a step, or at a moment: some seconds after a number of messages."""

    mode: Mode
    rare: bool
    step: Step | None = None
    moment: tuple[int, float] | None = None

    def __str__(self) -> str:
        where = "{} #{}".format(*self.step) if self.step else "a random moment"
        return f"{where}, {self.mode}"


class Lane:
    """Runs one process after another. Each continues after the one before was killed.

    Only the first of the lane's two `users` is ever deleted. `stalls` has the seconds of the
    longest update, by mode.
    """

    def __init__(self, number: int, site: Site, store: Store, seed: int) -> None:
        self._name = f"lane{number}"
        self._site = site
        self._store = store
        self._random = Random(f"{seed}/{number}")
        self._rounds = 0
        self._last: Kill | None = None
        first, second = f"{self._name}-a", f"{self._name}-b"
        owners = {"1": first, "2": first, "3": second, "4": None}
        self.users = (first, second)
        self.ledger = Ledger({f"{self._name}-{name}": user for name, user in owners.items()})
        self.sessions = set(self.ledger.users)
        self.stalls: Counter[str] = Counter()
        self.findings: list[Finding] = []

    def round(self, kill: Kill) -> Counter[str] | None:
        """Run a process to its end. Return its steps, or None if it was killed."""
        self._rounds += 1
        self._leave()
        task = Round(
            name=f"{self._name}.{self._rounds}",
            seed=self._random.getrandbits(32),
            own=dict(self.ledger.users),
            shared=SHARED,
            mode=kill.mode,
            absorb=self._random.choice(_ABSORBS),
            rare=kill.rare,
            kill=kill.step,
        )
        process = Child(run_until_killed, self._site, task)
        steps: Counter[str] | None = None
        try:
            for message in process.messages(kill.moment):
                steps = self._hear(message, kill.mode) or steps
        except Hung as error:
            self._report(Finding(ERROR, "", str(error)), task.name)
        if process.exit_code not in (0, -signal.SIGKILL):
            told = f"a process ended with {process.exit_code}"
            self._report(Finding(ERROR, "", told), task.name)
        for finding in self.ledger.findings:
            self._report(finding, task.name)
        self.ledger.findings.clear()
        self._last = None if steps else kill
        if steps is None:
            self._inspect(task.name)
        return steps

    def _inspect(self, task: str) -> None:
        """Check the records that the kill has left."""
        for session_id, user in (SHARED | self.ledger.users).items():
            if user != self.users[0]:  # another process may be finishing this user's deletion
                for finding in inspect(self._store, session_id):
                    self._report(finding, task)

    def check(self) -> list[Finding]:
        """Return the findings about the lane's sessions after the last round."""
        self._leave()
        for session_id in list(self.ledger.logs):
            self.ledger.seen(session_id, texts(self._store, session_id))
        findings = list(self.ledger.findings)
        for session_id, said in self.ledger.shared.items():
            log = texts(self._store, session_id)
            mine = [text for text in log if text.startswith(f"{self._name}.")]
            findings += compare(session_id, mine, said.begun, said.unsure)
        for logs in self.ledger.leaving:
            now = {session_id: texts(self._store, session_id) for session_id in logs}
            if any(now.values()) and now != logs:
                findings.append(Finding(UNFINISHED, ", ".join(logs), "the deletion of a user"))
        return findings

    def _hear(self, message: tuple[Any, ...], mode: Mode) -> Counter[str] | None:
        match message:
            case ("seen", session_id, texts):
                self.ledger.seen(session_id, texts)
            case ("begin", op):
                self.ledger.begin(op)
            case ("done", op, result, seconds):
                self.ledger.done(op, result)
                if op.name == "update":
                    self.stalls[mode] = max(self.stalls[mode], seconds)
            case ("failed", op, error):
                self.ledger.findings.append(Finding(ERROR, op.session_id, f"{op.name}: {error}"))
            case ("steps", steps):
                return Counter(steps)
        return None

    def _report(self, finding: Finding, task: str) -> None:
        during = f"{task}, killed before it: {self._last or 'nobody'}"
        self.findings.append(replace(finding, during=during))

    def _leave(self) -> None:
        """If a user's deletion was interrupted, continue with other sessions of this user."""
        op = self.ledger.interrupted
        if op and op.name == "delete_user":
            left = [name for name, user in self.ledger.users.items() if user == op.user_id]
            self.ledger.leave({name: f"{name}+" for name in left})
            self.sessions.update(self.ledger.users)


def run_kills(
    site: Site, store: Store, kills: int, lanes: int, seed: int, advance: Callable[[], None]
) -> list[Lane]:
    """Kill processes in parallel lanes; call `advance` at each kill."""
    running = [Lane(number, site, store, seed) for number in range(lanes)]
    steps: Steps = {
        (mode, rare): running[0].round(Kill(mode, rare)) or Counter()
        for mode in _MODES
        for rare in (False, True)
    }
    plan = _plan(steps, Random(seed))
    lock = threading.Lock()
    left = kills

    def work(lane: Lane) -> None:
        nonlocal left
        while True:
            with lock:
                if not left:
                    return
                left -= 1
                kill = next(plan)
            if lane.round(kill) is None:
                advance()
            else:  # the step did not occur so often this time
                with lock:
                    left += 1

    with ThreadPoolExecutor(lanes) as pool:
        for done in [pool.submit(work, lane) for lane in running]:
            done.result()
    return running


def _plan(steps: Steps, random: Random) -> Iterator[Kill]:
    """Yield kills at all steps in turn, the riskiest first. A quarter are at random moments."""
    known = {step for counts in steps.values() for step in counts}
    ordered = [*_RISKIEST, *sorted(known.difference(_RISKIEST))]
    for place, (step, mode) in enumerate(cycle(product(ordered, _MODES))):
        rare = not steps[mode, False][step] or random.random() < _RARE
        if often := steps[mode, rare][step]:
            yield Kill(mode, rare, step=(step, random.randint(1, often)))
        if place % 3 == 2:
            moment = (random.randrange(_MESSAGES), random.uniform(0, 0.03))
            yield Kill(random.choice(_MODES), random.random() < _RARE, moment=moment)


def owners(lanes: Iterable[Lane]) -> set[str]:
    """Return all users and sessions that may own the lanes' records."""
    users = {*SHARED.values(), *(user for lane in lanes for user in lane.users)}
    sessions = {*SHARED, *(name for lane in lanes for name in lane.sessions)}
    return {f"user:{user}" for user in users} | {f"session:{name}" for name in sessions}
