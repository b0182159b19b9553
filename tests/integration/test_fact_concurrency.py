"""Concurrent absorbs of one user, in threads, memories and processes, and killed absorbs."""

import html
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_memory import AgentMemory, ExtractiveMemory
from agent_memory.core.records import Record
from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing import FakeLLM, watched
from tests.integration.fact_model import groups_of, known_of, messages_of
from tests.kit import SECONDS, Cut, model_at

SESSIONS = [f"s{n}" for n in range(10)]
SAME = ["I live in Oslo."] * 10
WORDINGS = [
    *(f"{verb} in Oslo." for verb in ("Lives", "The user lives", "Has a home", "Is at home")),
    *(f"{verb} in Oslo." for verb in ("Resides", "Dwells", "Keeps house")),
    *("Oslo is where the user lives.", "Their home town is Oslo.", "Calls Oslo home."),
]


def answer(body: dict[str, Any]) -> str:
    """Act as a model that finds all facts of a category to be the same."""
    asked = html.unescape(body["messages"][-1]["content"])
    if messages_of(asked) is None:
        found = [
            {"number": new.number, "answer": "same", "which": [older[0].number]}
            for new, older in groups_of(asked)
        ]
        return json.dumps({"answers": found})
    same = {"known": [1], "relation": "same"} if known_of(asked) else {}
    lines = re.findall(r"(?m)^\[(\d+)\] \S+ user: (.*)$", asked)
    facts = [
        {"text": text, "category": "home", "message": int(number), "quote": text, **same}
        for number, text in lines
    ]
    return json.dumps({"facts": facts})


@pytest.fixture
def fake() -> Iterator[FakeLLM]:
    with FakeLLM(answer) as fake:
        yield fake


def opened(fake: FakeLLM, store: Any = "memory://") -> AgentMemory:
    return AgentMemory(store=store, blocks=[ExtractiveMemory()], **model_at(fake))


def add(memory: AgentMemory, session: str, text: str, user: str = "ann") -> None:
    memory.update(session, {"role": "user", "content": text}, user_id=user)


def begin(memory: AgentMemory, session: str) -> None:
    """Absorb a first message, because a block's records are cleared at the start of a session."""
    memory.update(session, {"role": "assistant", "content": "Hello."}, user_id="ann")
    assert [done.last for done in memory.flush(session)] == [1]


def run_together(calls: Sequence[Callable[[], object]]) -> None:
    """Make these calls in as many threads, all at the same time."""
    begin = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> None:
        begin.wait(SECONDS)
        call()

    with ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(run, call) for call in calls]:
            done.result(SECONDS)


def evidence(memory: AgentMemory, user: str = "ann") -> list[tuple[str, int]]:
    """Return the sources of a user's only fact."""
    (fact,) = memory.user(user).facts()
    assert len(fact.evidence) == len(fact.sources)
    (learned,) = [change for change in memory.user(user).audit() if change.what == "learned"]
    assert learned.fact == fact.id
    return sorted(fact.sources)


ONCE_EACH = sorted((session, 1) for session in SESSIONS)


def test_one_session_is_absorbed_once(fake: FakeLLM) -> None:
    """Wrong: concurrent flushes of a session each call the model, or store a second fact."""
    with opened(fake) as memory:
        add(memory, "s", SAME[0])
        run_together([lambda: memory.flush("s")] * 10)
        assert evidence(memory) == [("s", 1)]
        assert len(fake.requests) == 1


def test_equal_messages_absorbed_concurrently_become_one_fact(fake: FakeLLM) -> None:
    """Wrong: equal messages that are absorbed concurrently each become a fact."""
    with opened(fake) as memory:

        def tell() -> None:
            add(memory, "s", SAME[0])
            memory.flush("s")

        run_together([tell] * 10)
        assert evidence(memory) == [("s", seq) for seq in range(1, 11)]


@pytest.mark.parametrize("texts", [SAME, WORDINGS])
def test_concurrent_threads_store_a_fact_once(fake: FakeLLM, texts: list[str]) -> None:
    """Wrong: sessions of one user that are absorbed concurrently each store the same fact."""
    with opened(fake) as memory:
        for session, text in zip(SESSIONS, texts, strict=True):
            add(memory, session, text)
        run_together([lambda s=session: memory.flush(s) for session in SESSIONS])  # type: ignore[misc]
        assert evidence(memory) == ONCE_EACH


ABSORBER = """
import sys
from agent_memory import AgentMemory, ExtractiveMemory

url, api_base, *sessions = sys.argv[1:]
memory = AgentMemory(store=url, blocks=[ExtractiveMemory()], model="openai/test-model",
                     api_base=api_base, api_key="sk-test")
memory.user("ann").facts()
print("ready", flush=True)
sys.stdin.readline()
for session in sessions:
    for done in memory.flush(session):
        assert done.error is None, done.error
memory.close()
"""


def test_concurrent_processes_store_a_fact_once(fake: FakeLLM, url: str) -> None:
    """Wrong: processes over one file each store the same fact."""
    with opened(fake, url) as memory, ExitStack() as stack:
        for session, text in zip(SESSIONS, WORDINGS, strict=True):
            add(memory, session, text)
        children = []
        for n in range(2):
            command = [sys.executable, "-c", ABSORBER, url, fake.api_base, *SESSIONS[n::2]]
            pipe = subprocess.PIPE
            child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
            stack.enter_context(child)
            stack.callback(child.kill)
            children.append(child)
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            _, errors = child.communicate(timeout=SECONDS)
            assert child.returncode == 0, errors
        assert evidence(memory) == ONCE_EACH


@pytest.mark.parametrize("call", ["<messages>", "<facts>"])
def test_no_user_delays_another(fake: FakeLLM, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Wrong: while the model answers for one user, other users' messages are not absorbed."""
    monkeypatch.setattr("agent_memory.ltm_blocks.extractive.extraction._MOST_FACTS", 0)
    asked, go_on = threading.Event(), threading.Event()

    def slow(body: dict[str, Any]) -> str:
        text = body["messages"][-1]["content"]
        if call in text and "ann" in text:
            asked.set()
            assert go_on.wait(SECONDS)
        return answer(body)

    with opened(fake) as memory, ThreadPoolExecutor(1) as pool:
        add(memory, "a0", "ann lives in Oslo.", "ann")
        memory.flush()
        fake.default = slow
        add(memory, "a1", "Oslo is home of ann.", "ann")
        add(memory, "b0", "bob lives in Rome.", "bob")
        add(memory, "b1", "Rome is home of bob.", "bob")
        try:
            waiting = pool.submit(memory.flush, "a1")
            assert asked.wait(SECONDS)
            memory.flush("b0")
            memory.flush("b1")
            assert evidence(memory, "bob") == [("b0", 1), ("b1", 1)]
            assert not waiting.done()
            assert evidence(memory, "ann") == [("a0", 1)]
        finally:
            go_on.set()
        assert [done.error for done in waiting.result(SECONDS)] == [None]
        assert evidence(memory, "ann") == [("a0", 1), ("a1", 1)]


@dataclass
class Fate:
    """Kills a worker at one of its steps. All later steps fail too."""

    at: int | None = None
    steps: list[str] = field(default_factory=list)
    is_on: bool = False

    def __call__(self, step: str) -> None:
        if self.is_on:
            self.steps.append(step)
            if self.at is not None and len(self.steps) > self.at:
                raise Cut(step)


def stored_facts(store: MemoryStore) -> list[Record]:
    return store.records("extractive", "user:ann")


def absorbed(fake: FakeLLM, text: str, fate: Fate) -> MemoryStore:
    """Return a store whose second session a worker absorbed, or the next one after a kill."""
    store = MemoryStore()
    with opened(fake, store) as memory:
        add(memory, "s0", SAME[0])
        memory.flush()
        begin(memory, "s1")
        add(memory, "s1", text)
    worker = opened(fake, watched(store, fate))
    fate.is_on = True
    with suppress(Cut):
        worker.flush("s1")
    fate.is_on = False
    worker.close()
    with opened(fake, store) as memory:
        assert {done.error for done in memory.flush()} <= {None}
        assert memory.flush() == []
        assert evidence(memory) == [("s0", 1), ("s1", 2)], fate.steps[-1]
    return store


@pytest.mark.parametrize("text", [SAME[0], WORDINGS[2]])
def test_a_killed_worker_leaves_nothing(
    fake: FakeLLM, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Wrong: facts of a killed worker are lost, stored twice, or have a doubled source."""
    monkeypatch.setattr("agent_memory.engine.leases.LEASE_SECONDS", 0.0)
    monkeypatch.setattr("agent_memory.engine.leases._BEAT_SECONDS", 3600.0)
    whole = Fate()
    wanted = stored_facts(absorbed(fake, text, whole))
    assert {"before put_records", "after put_records", "after lock"} <= set(whole.steps)
    assert sorted(one.text for one in wanted)[-3:] == ["batch"] * 3
    assert len(wanted) == 5  # two claims, three batches
    for step in range(len(whole.steps)):
        fate = Fate(step)
        assert [
            (one.id, one.text, one.sources) for one in stored_facts(absorbed(fake, text, fate))
        ] == [(one.id, one.text, one.sources) for one in wanted], fate.steps[-1]


def test_a_retry_replaces_the_different_fact_of_a_killed_worker(fake: FakeLLM) -> None:
    """Wrong: a killed worker's fact stays though the retry found another, or both are compared."""
    store = MemoryStore()
    fate = Fate()

    def die(step: str) -> None:
        if fate.is_on and step == "after put_records":
            raise Cut(step)

    with opened(fake, watched(store, die)) as worker:
        begin(worker, "s")
        add(worker, "s", SAME[0])
        fate.is_on = True
        with pytest.raises(Cut):
            worker.flush()
    assert sorted(one.text for one in stored_facts(store)) == ["I live in Oslo.", "batch", "batch"]
    other = {"text": "Lives in Norway.", "category": "home", "message": 1, "quote": "I live in"}
    fake.reply_json({"facts": [other]})
    with opened(fake, store) as memory:
        memory.flush()
        assert [fact.text for fact in memory.user("ann").facts()] == ["Lives in Norway."]
        assert len(memory.user("ann").audit()) == 1
    assert len(fake.requests) == 2
