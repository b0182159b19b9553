"""Call a memory at random until killed, and report each call to the parent process."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from random import Random
from time import perf_counter

from agent_memory import AgentMemory
from agent_memory.core.context import MemoryContext
from agent_memory.engine import leases
from agent_memory.errors import InvalidBudget
from agent_memory.strategies.base import Absorb
from agent_memory.testing.watching import watched
from benchmarks.durability.ledger import Op
from benchmarks.durability.site import FACTS, MAX_TOKENS, VECTORS, Mode, Site
from benchmarks.durability.verify import catch_up

Step = tuple[str, int]
"""A named step, and its occurrence."""

_LEASE_SECONDS = 0.5
_WORDS = ["amber", "basil", "cedar", "dune", "ember", "fjord", "grove", "heron", "inlet", "kelp"]
_CALLS = {
    "update": 12,
    "update many": 4,
    "update shared": 6,
    "update system": 1,
    "get": 3,
    "flush": 3,
    "pop": 3,
}
"""The calls of one process, and how often each is made."""

_RARE = ("flush all", "delete", "delete_user", "replay")
"""Calls that few processes make: they delete or rebuild data, and so hide damage by other calls."""


@dataclass(frozen=True, slots=True)
class Round:
    """The work of one process. `own` and `shared` map its sessions to users. `kill` ends it."""

    name: str
    seed: int
    own: Mapping[str, str | None]
    shared: Mapping[str, str]
    mode: Mode
    absorb: Absorb
    rare: bool
    kill: Step | None = None


class Steps:
    """Count the steps of this process, and kill it at one of them."""

    def __init__(self, kill: Step | None) -> None:
        self.seen: Counter[str] = Counter()
        self._kill = kill
        self._lock = threading.Lock()

    def __call__(self, step: str) -> None:
        with self._lock:
            self.seen[step] += 1
            if (step, self.seen[step]) == self._kill:
                os.kill(os.getpid(), signal.SIGKILL)


def run_until_killed(site: Site, task: Round, told: Connection) -> None:
    """Do a round, and report each call before it is made and after it returned."""
    # leases of a killed process stay: the next process must not wait ten seconds for each
    leases.LEASE_SECONDS, leases._BEAT_SECONDS = _LEASE_SECONDS, _LEASE_SECONDS / 4
    steps = Steps(task.kill)
    store = watched(site.store(), steps)
    with site.memory(store, task.mode, task.absorb) as memory:
        for session_id in task.own:
            log = memory.history(session_id)
            told.send(("seen", session_id, [entry.message.text() for entry in log]))
        for op in _ops(task):
            told.send(("begin", op))
            began = perf_counter()
            try:
                result = _call(memory, op)
            except Exception as error:  # noqa: BLE001 - no call may fail: the parent notes it
                told.send(("failed", op, f"{type(error).__name__}: {error}"))
                break  # the next process sees whether it took effect
            told.send(("done", op, result, perf_counter() - began))
    store.close()
    told.send(("steps", steps.seen))


def finish(site: Site, told: Connection) -> None:
    """Do all pending work, and report the work that failed."""
    store = site.store()
    with site.memory(store) as memory:
        for finding in catch_up(memory):
            told.send(finding)
    store.close()


def _ops(task: Round) -> Iterator[Op]:
    random = Random(task.seed)
    calls = [name for name, times in _CALLS.items() for _ in range(times)]
    calls += _RARE if task.rare else ()
    random.shuffle(calls)
    said = 0

    def text() -> str:
        nonlocal said
        said += 1
        return f"{task.name}.{said} " + " ".join(random.choices(_WORDS, k=random.randint(3, 12)))

    users = sorted({user for user in task.own.values() if user})
    for call in calls:
        own, shared = random.choice(list(task.own)), random.choice(list(task.shared))
        user = task.own[own] or random.choice([None, users[-1]])
        match call:
            case "update":
                yield Op("update", own, (text(),), user)
            case "update many":
                yield Op("update", own, tuple(text() for _ in range(random.randint(2, 4))), user)
            case "update system":
                yield Op("update", own, (text(),), user, role="system")
            case "update shared":
                yield Op("update", shared, (text(),), task.shared[shared])
            case "flush all":
                yield Op("flush")
            case "pop":
                yield Op(call, own, count=random.randint(1, 3))
            case "delete_user":
                yield Op(call, user_id=users[0])
            case "replay":
                yield Op(call, random.choice([VECTORS, FACTS]))
            case _:
                yield Op(call, own)


def _call(memory: AgentMemory, op: Op) -> object:
    calls: dict[str, Callable[[], object]] = {
        "update": lambda: memory.update(op.session_id, _messages(op), user_id=op.user_id).end,
        "get": lambda: _within_budget(memory.get(op.session_id)),
        "flush": lambda: len(memory.flush(op.session_id or None)),
        "pop": lambda: [message.text() for message in memory.pop(op.session_id, op.count)],
        "delete": lambda: memory.delete(op.session_id),
        "delete_user": lambda: memory.delete_user(op.user_id or ""),
        "replay": lambda: sum(1 for _ in memory.replay(op.session_id)),
    }
    return calls[op.name]()


def _within_budget(context: MemoryContext) -> None:
    if context.tokens > MAX_TOKENS:
        raise InvalidBudget(f"a context of {context.tokens} tokens, above {MAX_TOKENS}")


def _messages(op: Op) -> list[dict[str, str]]:
    roles = [op.role, "assistant"]
    return [{"role": roles[n % 2], "content": text} for n, text in enumerate(op.texts)]
