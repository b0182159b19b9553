"""Write, read and delete while the server of the store comes and goes."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from random import Random
from time import perf_counter, sleep
from typing import Any

from agent_memory import AgentMemory
from agent_memory.core.context import MemoryContext
from agent_memory.engine import leases
from agent_memory.errors import InvalidBudget, InvalidMessage, StoreUnavailable
from benchmarks.durability.site import MAX_TOKENS, Mode, Site

USER = "user"
_LEASE_SECONDS = 1.0
_PAUSE = 0.05
PARTS = ("asks", "looks", "finds", "answers")
"""The last words of a turn's messages. The first word is the name of the turn."""


@dataclass(frozen=True, slots=True)
class Task:
    """Work of one process: `writers` threads write `sessions`, which all processes share."""

    name: str
    sessions: tuple[str, ...]
    writers: int
    mode: Mode

    @property
    def gone(self) -> str:
        """The session that the process deletes repeatedly. No other process uses it."""
        return f"{self.name}-gone"


class _Failed(Exception):
    """A call failed with an error that no outage explains. The parent has the report."""


class _Caller:
    """Repeats each call until it succeeds, and reports each attempt."""

    def __init__(self, told: Connection) -> None:
        self._told = told
        self._lock = threading.Lock()
        self.stop = threading.Event()

    def tell(self, *message: object) -> None:
        with self._lock:
            self._told.send(message)

    def heard(self, what: str, call: Callable[[], Any], *about: object) -> Any:
        while True:
            began = perf_counter()
            try:
                result = call()
            except StoreUnavailable as error:
                self.tell("refused", what, str(error), perf_counter() - began)
                sleep(_PAUSE)
            except Exception as error:
                self.tell("failed", what, f"{type(error).__name__}: {error}")
                self.stop.set()
                raise _Failed from error
            else:
                self.tell("done", what, perf_counter() - began, *about)
                return result


def turn(name: str) -> list[dict[str, Any]]:
    """Return the messages of a turn."""
    asks, looks, finds, answers = (f"{name} {part}" for part in PARTS)
    function = {"name": "look", "arguments": "{}"}
    calls = [{"id": name, "type": "function", "function": function}]
    return [
        {"role": "user", "content": asks},
        {"role": "assistant", "content": looks, "tool_calls": calls},
        {"role": "tool", "tool_call_id": name, "content": finds},
        {"role": "assistant", "content": answers},
    ]


def live(site: Site, task: Task, told: Connection) -> None:
    """Write, read and delete until told to stop; then wait until all is absorbed."""
    leases.LEASE_SECONDS, leases._BEAT_SECONDS = _LEASE_SECONDS, _LEASE_SECONDS / 4
    logging.disable(logging.CRITICAL)  # the server goes away on purpose
    caller, store = _Caller(told), site.store()
    with site.memory(store, task.mode, "every_update") as memory:
        jobs = [(_write, f"{task.name}t{place}") for place in range(task.writers)]
        jobs += [(_read, task.name), (_delete, task.gone)]
        threads = [
            threading.Thread(target=_job, args=(job, caller, memory, task, name))
            for job, name in jobs
        ]
        for thread in threads:
            thread.start()
        told.recv()
        caller.stop.set()
        for thread in threads:
            thread.join()
        caller.tell("written")
        told.recv()
        if task.mode == "background":  # the workers must finish without a wake-up
            while any(block.lag for block in memory.stats().blocks.values()):
                caller.tell("waits")
                sleep(10 * _PAUSE)
    store.close()


def _job(job: Callable[..., None], caller: _Caller, *args: object) -> None:
    try:
        job(caller, *args)
    except _Failed:
        return


def _write(caller: _Caller, memory: AgentMemory, task: Task, name: str) -> None:
    random, number = Random(name), 0
    while not caller.stop.is_set():
        number += 1
        session_id, said = random.choice(task.sessions), f"{name}.{number}"
        given, key = turn(said), said if number % 3 else None
        if key is None:
            given = [{**one, "id": one["content"]} for one in given]

        def call() -> object:
            return memory.update(session_id, given, user_id=USER, key=key)  # noqa: B023

        caller.heard(f"update, {task.mode}", call, session_id, said)
        sleep(random.uniform(0, 6 * _PAUSE))


def _read(caller: _Caller, memory: AgentMemory, task: Task, name: str) -> None:
    random = Random(name)
    while not caller.stop.is_set():
        session_id = random.choice(task.sessions)

        def call() -> None:
            _check(memory.get(session_id, "Who asks?", user_id=USER))  # noqa: B023

        caller.heard("get", call)
        caller.heard("search", lambda: memory.search("Who finds?", user_id=USER))
        sleep(_PAUSE)


def _delete(caller: _Caller, memory: AgentMemory, task: Task, name: str) -> None:
    number = 0
    while not caller.stop.is_set():
        number += 1
        said = f"{name}.{number}"
        caller.heard("update", lambda: memory.update(name, turn(said), user_id=USER, key=said))  # noqa: B023
        caller.heard("delete", lambda: memory.delete(name))
        if left := caller.heard("history", lambda: memory.history(name)):
            caller.tell("failed", "delete", f"{len(left)} messages are still there")
        sleep(_PAUSE)


def _check(context: MemoryContext) -> None:
    """Check that a context is within its budget and has whole turns."""
    if context.tokens > MAX_TOKENS:
        raise InvalidBudget(f"a context of {context.tokens} tokens, above {MAX_TOKENS}")
    asked: set[str] = set()
    answered: set[str] = set()
    for message in context.to_messages():
        asked |= {call["id"] for call in message.get("tool_calls") or ()}
        if message["role"] == "tool":
            answered.add(message["tool_call_id"])
    if asked != answered:
        raise InvalidMessage(f"calls {asked} and results {answered}")
