"""Each dependency failing in each way at each step: nothing is lost, and all catches up."""

import json
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from string import ascii_lowercase
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from agent_memory import AgentMemory, Chain, ExtractiveMemory, Summarize, VectorMemory, operations
from agent_memory.errors import ModelOutputInvalid, StoreError, StoreUnavailable
from agent_memory.models.embedders.vectors import unit_rows
from agent_memory.retrieval.query import Query
from agent_memory.stores import MemoryStore
from agent_memory.strategies import FlushToLTM, Strategy
from agent_memory.testing import FakeLLM, watched
from agent_memory.testing.contract import everything
from agent_memory.testing.fake_llm import Outage
from tests.kit import wait_for_calls, with_model

pytestmark = pytest.mark.long

MODEL = "openai/test-model"
NAMES = [f"({a}{b})" for a in ascii_lowercase for b in ascii_lowercase]
NAME = re.compile(r"\([a-z]{2}\)")

DOWN = ["refuse", "error", "limit", "hang", "slow", "html", "half", "empty"]
WAYS = {
    "summaries": DOWN,  # a truncated summary looks like a short one
    "extraction": [*DOWN, "cut"],
    "embedder": [*DOWN, "cut", "nan", "zero"],
    "vectors": ["refuse", "hang", "slow", "unanswered"],
    "facts": ["refuse", "hang", "slow", "unanswered"],
}
CALLS = {
    "vectors": {"put_vectors", "search_vectors", "delete_vectors"},
    "facts": {"put_records", "records", "delete_records"},
}
BLOCK = {"extraction": "extractive", "facts": "extractive", "embedder": "vector",
         "vectors": "vector", "summaries": None}  # fmt: skip
CASES = [
    pytest.param(dependency, way, id=f"{dependency}-{way}")
    for dependency, ways in WAYS.items()
    for way in ways
]


def talk(first: int, last: int) -> list[dict[str, str]]:
    """Return messages with distinct names, by which absorbed ones are recognized."""
    return [
        {"role": "user", "content": f"Please write down what {NAMES[n]} told all of us that day."}
        for n in range(first, last)
    ]


def answer(body: dict[str, Any]) -> str:
    """Answer like a faithful model: a fact for each message, or all names in the request."""
    material = body["messages"][1]["content"]
    if "response_format" not in body:
        return " ".join(NAME.findall(material))
    facts = [
        {"text": f"There is {found[2]}.", "message": int(found[1]), "quote": found[2]}
        for found in re.finditer(r"\[(\d+)\].*?(\([a-z]{2}\))", material)
    ]
    return json.dumps({"facts": facts, "answers": []})  # the facts are unrelated to others


class Fault:
    """A store that fails in one way, in the calls of one kind."""

    def __init__(self) -> None:
        self.way = ""
        self.calls: set[str] = set()
        self.over = threading.Event()

    def __call__(self, step: str) -> None:
        moment, call = step.split()
        if call not in self.calls:
            return
        if self.way == "slow":
            time.sleep(0.02)
        elif self.way == "hang" and moment == "before":
            self.over.wait()
            raise StoreUnavailable("it hung")
        elif (self.way, moment) in (("refuse", "before"), ("unanswered", "after")):
            raise StoreUnavailable("it is down")


@dataclass
class Rig:
    """A memory over one dependency that can be made to fail."""

    dependency: str
    way: str
    memory: AgentMemory
    store: MemoryStore
    fake: FakeLLM
    fault: Fault
    clock: list[float]

    @property
    def harmless(self) -> bool:
        return self.way == "slow"

    def begin(self) -> None:
        if self.dependency in CALLS:
            self.fault.over.clear()
            self.fault.way, self.fault.calls = self.way, CALLS[self.dependency]
        else:
            only = "embeddings" if self.dependency == "embedder" else "chat"
            self.fake.outage(cast("Outage", self.way), only=cast("Any", only))

    def end(self) -> None:
        self.fault.calls = set()
        self.fault.over.set()
        self.fake.clear()
        for block in self.memory.blocks:  # a late call removes its records, and runs again
            wait_for_calls(block)

    def catch_up(self, session: str = "s") -> None:
        for _ in range(10):
            self.clock[0] += 1000
            if not any(done.error for done in self.memory.flush(session)):
                break

    def absorbed(self, block: str, session: str = "s") -> Counter[int]:
        """Count how often the block has each entry of a session."""
        if block == "vector":
            vector = np.ones(self.fake.dimension, dtype=np.float32)
            found = self.store.search_vectors("vector", "user:ada", Query(vector), 1000)
            assert np.isfinite([hit.score for hit in found]).all()
            records = everything(self.store, "vector", "user:ada", self.fake.dimension)
        else:
            records = self.store.records(block, "user:ada")
        return Counter(seq for r in records if r.session_id == session for seq in r.sources)

    def check_all_absorbed_once(self, count: int, session: str = "s") -> None:
        entries = self.memory.history(session)
        assert [NAME.findall(str(entry.message.content))[0] for entry in entries] == NAMES[:count]
        for block in self.memory.blocks:
            assert self.absorbed(block, session) == dict.fromkeys(range(1, count + 1), 1)
        head = self.memory.get(session).head
        assert head.start > 0
        if self.dependency == "summaries":
            assert (head.summary.by, head.summary.redo_after) == (MODEL, None)
            assert NAME.findall(head.summary.text) == NAMES[: head.start]
        assert self._warnings(session) == []

    def _warnings(self, session: str) -> list[str]:
        """Return the warnings that remain. On a busy machine a block may have been slow once."""
        told: list[str] = []
        for _ in range(10):
            self.clock[0] += 1000
            said = self.memory.get(session).warnings
            # other warnings are about pending messages of other sessions
            pending = "searched by their words until it absorbs them"
            told = [one for one in said if pending not in one]
            if not told:
                break
        return told


@contextmanager
def rigged(
    dependency: str, way: str, monkeypatch: pytest.MonkeyPatch, **fields: Any
) -> Iterator[Rig]:
    clock = [0.0]
    monkeypatch.setattr("agent_memory.engine.recall.runner.monotonic", lambda: clock[0])
    monkeypatch.setattr("agent_memory.models.embedders.best_effort._REST_SECONDS", 0.0)
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda seconds: None))
    store, fault = MemoryStore(), Fault()
    overflow: Strategy = FlushToLTM(blocks=[ExtractiveMemory(), VectorMemory()], max_stm_ratio=0.3)
    if dependency == "summaries":
        flush = FlushToLTM(blocks=[VectorMemory()], max_stm_ratio=0.5)
        overflow = Chain([flush, Summarize(max_summary_tokens=300, keep_user_tokens=0)])
    with FakeLLM(answer, dimension=16) as fake:
        hangs = way == "hang"
        settings: dict[str, Any] = {
            "store": watched(store, fault), "max_tokens": 1000, "overflow": overflow,
            "model": MODEL, "embedding": MODEL, "api_base": fake.api_base, "api_key": "none",
            "quiet_seconds": 0, "model_timeout": 0.2 if hangs else 30.0,
            "recall_timeout": 0.2 if hangs and dependency != "summaries" else 60.0,
            "absorb_timeout": 2.0 if hangs and dependency in CALLS else 60.0,
        }  # fmt: skip
        with AgentMemory(**settings | fields) as memory:
            rig = Rig(dependency, way, memory, store, fake, fault, clock)
            try:
                yield rig
            finally:
                rig.end()


@pytest.mark.parametrize(("dependency", "way"), CASES)
def test_inline_mode_keeps_data(dependency: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an outage makes an update or a get fail, or stops parts that still work."""
    with rigged(dependency, way, monkeypatch) as rig:
        memory = rig.memory
        memory.update("s", talk(0, 20), user_id="ada")
        rig.begin()
        head = memory.update("s", talk(20, 40))
        for n in range(40, 46):
            head = memory.update("s", talk(n, n + 1))
        assert [entry.seq for entry in memory.history("s")] == list(range(1, 47))
        begun = time.monotonic()
        context = memory.get("s", f"Who is {NAMES[0]}, by the way?")
        assert time.monotonic() - begun < 10
        assert context.messages
        if not rig.harmless:
            named = "The summary" if BLOCK[dependency] is None else f"{BLOCK[dependency]!r}"
            assert any(named in warning for warning in context.warnings)
        for block in memory.blocks:
            if rig.harmless or block != BLOCK[dependency]:
                assert head.cursors[block] == head.start
        done = {one.block: one.error for one in memory.flush("s")}
        assert {block for block, error in done.items() if error} == (
            set() if rig.harmless or not BLOCK[dependency] else {BLOCK[dependency]}
        )
        rig.end()
        rig.catch_up()
        rig.check_all_absorbed_once(46)
        assert operations.dead_letters(memory) == []


@pytest.mark.parametrize(("dependency", "way"), CASES)
def test_outages_delay_nothing(dependency: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an update or a get waits for a dependency that hangs."""
    fields = {"overflow_mode": "background", "model_timeout": 60.0, "absorb_timeout": 60.0}
    with rigged(dependency, way, monkeypatch, **fields) as rig:
        memory = rig.memory
        rig.begin()
        memory.update("s", talk(0, 40), user_id="ada")
        for n in range(40, 46):
            memory.update("s", talk(n, n + 1))
        memory.update("t", talk(0, 30), user_id="ada")
        assert len(memory.history("s")) == 46
        assert memory.get("s", f"Who is {NAMES[0]}, by the way?").messages
        assert memory.get("u", "A new session?", user_id="ada").messages == []
        rig.end()
        for session, count in (("s", 46), ("t", 30)):
            rig.catch_up(session)
            rig.check_all_absorbed_once(count, session)


@pytest.mark.parametrize(
    ("dependency", "way"),
    [
        case
        for case in CASES
        if case.id != "facts-hang"  # the note of the deletion would also hang
        and (case.values[0] in CALLS or case.values[1] in ("refuse", "hang", "empty"))
    ],
)
def test_a_deletion_is_complete(dependency: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a deletion during an outage leaves part of a session."""
    with rigged(dependency, way, monkeypatch) as rig:
        memory = rig.memory
        memory.update("s", talk(0, 20), user_id="ada")
        memory.update("t", talk(0, 20), user_id="ada")
        memory.flush()
        rig.begin()
        if dependency == "facts" and not rig.harmless:
            with pytest.raises((StoreError, TimeoutError)):
                memory.delete("s")
        else:
            memory.delete("s")
            assert rig.store.head("s") is None
        assert memory.history("s") == []
        assert memory.get("s").messages == []
        assert [head.session_id for head in memory.sessions()] == ["t"]
        rig.end()
        memory.flush()
        assert rig.store.head("s") is None
        assert [rig.absorbed(block, "s") for block in memory.blocks] == [{}] * len(memory.blocks)
        rig.catch_up("t")
        rig.check_all_absorbed_once(20, "t")


@pytest.mark.parametrize(
    "rows", [[[math.nan, 1.0]], [[math.inf, 1.0]], [[None, 1.0]], [["x", 1.0]], [[1.0], [1.0, 2.0]]]
)
def test_an_invalid_vector_is_rejected(rows: Any) -> None:
    """Wrong: an invalid vector is stored as zeros or NaN, and its message is never found."""
    with pytest.raises(ModelOutputInvalid):
        unit_rows(rows)
    assert np.allclose(unit_rows([[3e30, 4e30]]), [[0.6, 0.8]])


def test_a_service_starts_during_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a service that starts without its embedder cannot append, or never gets it."""
    clock = [0.0]
    monkeypatch.setattr("agent_memory.engine.recall.runner.monotonic", lambda: clock[0])
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda seconds: None))
    with FakeLLM() as fake:
        fake.fail(503, times=100)
        fields: dict[str, Any] = {"model": None, "embedding": "openai/fake", "model_timeout": 1.0}
        with with_model(fake, blocks=[VectorMemory()], **fields) as memory:
            memory.update("s", {"role": "user", "content": "hello"}, user_id="u")
            assert memory.get("s", "hello").messages[0].text() == "hello"
            fake.clear()
            clock[0] += 1000.0
            memory.flush()
            assert [found.text for found in memory.search("hello", user_id="u")] == ["user: hello"]
