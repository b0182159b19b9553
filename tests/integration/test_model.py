"""The engine compared with a model, under crashes, stalls and outages between its steps."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, combinations, permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from agent_memory import AgentMemory, Block, FlushToLTM, Message, VectorMemory, operations
from agent_memory.core.records import Entry, Lease, Recall, Scope
from agent_memory.errors import LeaseLost, SessionOfAnotherUser, StoreError, StoreUnavailable
from agent_memory.ltm_blocks.base import Resources
from agent_memory.models.embedders.base import CachedEmbedder
from agent_memory.stores.base import Store
from agent_memory.stores.sql.store import MemoryStore, SQLStore
from agent_memory.testing.contract import everything
from agent_memory.testing.watching import watched
from tests.kit import Echo

EXAMPLES = int(os.environ.get("AGENT_MEMORY_EXAMPLES", "0"))
MAX_TOKENS = 110


# --- the model -----------------------------------------------------------------------------------

State = dict[str, tuple[str | None, tuple[str, ...]]]
"""The owner and log of each session: all that callers of an `AgentMemory` see."""


@dataclass(frozen=True)
class Op:
    """A call: its name and its arguments."""

    name: str
    session: str = ""
    user: str | None = None
    count: int = 1
    texts: tuple[str, ...] = ()


def after(state: State, op: Op) -> State:
    state = dict(state)
    owner, log = state.get(op.session, (None, ()))
    if op.name == "update" and (op.user is None or owner in (None, op.user)):
        state[op.session] = owner or op.user, (*log, *op.texts)
    elif op.name == "pop" and op.session in state:
        state[op.session] = owner, log[: -op.count]
    elif op.name == "delete":
        state.pop(op.session, None)
    elif op.name == "delete_user":
        state = {name: kept for name, kept in state.items() if kept[0] != op.user}
    elif op.name == "forget":
        state = {name: kept for name, kept in state.items() if name not in op.texts}
    return state


def outcomes(state: State, op: Op, whole: bool) -> Iterator[State]:
    """States after a call: interrupted, it may do nothing, or mark some of the sessions."""
    done = after(state, op)
    gone = state.keys() - done.keys() if not whole else set()
    for kept in chain.from_iterable(combinations(sorted(gone), n) for n in range(len(gone) + 1)):
        yield done | {name: state[name] for name in kept}
    if not whole:
        yield state


def candidates(state: State, calls: Sequence[tuple[Op, bool]]) -> list[State]:
    """Return the states that concurrent calls may lead to, in any order."""
    found: list[State] = []
    for order in permutations(calls):
        states = [state]
        for op, whole in order:
            states = [one for before in states for one in outcomes(before, op, whole)]
        found += states
    return found


class Crash(BaseException):
    """Stands for the end of the process."""


class World:
    """The time, failures by block, and the contents of the block `elsewhere`."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.broken: dict[str, str] = {}
        self.elsewhere: dict[tuple[str, int], tuple[str, str]] = {}

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 1.0)

    def fail(self, block: str, place: str) -> None:
        """Raise the error of a broken block, at a place of its work."""
        match self.broken.get(block), place:
            case "refusing", "before":
                raise ConnectionError("refused")
            case "store", "before":
                raise StoreUnavailable("the store is down")
            case "rubbish", "before" | "between":
                raise ValueError("no such answer")
            case "half", "between":
                raise ValueError("half an answer")


class Breakable(Block):
    """Fails before its work, or in the middle of an update."""

    world: Any

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        self.world.fail(self.name, "before")
        return super().get(scope, message, limit)

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.world.fail(self.name, "before")
        super().update(scope, entries[:1])
        self.world.fail(self.name, "between")
        super().update(scope, entries)

    def delete(self, scope: Scope) -> None:
        self.world.fail(self.name, "before")
        super().delete(scope)


class Facts(Breakable, Echo):
    """Stores each entry as a fact in the engine's store."""

    kind: Literal["facts"] = "facts"


class Elsewhere(Block):
    """Stores each entry outside the store, without leases."""

    kind: Literal["elsewhere"] = "elsewhere"
    world: Any

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        self.world.fail(self.name, "before")
        return [
            Recall(self.name, f"{source}", text, sources=(source,))
            for source, (owner, text) in self.world.elsewhere.items()
            if owner == scope.owner
        ]

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.world.fail(self.name, "before")
        for one in entries:
            self.resources.store.head("a step at which a worker may stall")
            self.world.elsewhere[one.session_id, one.seq] = scope.owner, one.message.text()
            self.world.fail(self.name, "between")

    def delete(self, scope: Scope) -> None:
        self.world.fail(self.name, "before")
        self.resources.store.head("a step at which a worker may stall")
        for (session, seq), (owner, _) in list(self.world.elsewhere.items()):
            mine = owner == scope.owner if scope.session_id is None else session == scope.session_id
            if mine and seq > scope.after:
                del self.world.elsewhere[session, seq]


class CheapEmbedder:
    """Embeds without a model."""

    name = "cheap"
    dimension = 4

    def load(self) -> None:
        pass

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([[1.0, 0.0, 0.0, 0.0] for _ in texts], dtype=np.float32)


class Vectors(Breakable, VectorMemory):
    """`VectorMemory` over a cheap embedder."""

    kind: Literal["vectors"] = "vectors"  # type: ignore[assignment]

    def bind(self, resources: Resources) -> Vectors:
        return super().bind(
            replace(resources, embedders=lambda name: CachedEmbedder(CheapEmbedder()))
        )


BLOCKS: tuple[type[Facts | Elsewhere | Vectors], ...] = (Facts, Elsewhere, Vectors)
NAMES = ("facts", "elsewhere", "vectors")


class Process:
    """A memory as in its own process: it may crash or stall at a step."""

    def __init__(self, store: Store, world: World, settings: dict[str, Any]) -> None:
        self._dead = False
        self._left = 0
        self._then: Callable[[], None] | None = None
        blocks = [block(world=world) for block in BLOCKS]
        overflow = FlushToLTM(blocks=blocks, max_stm_ratio=0.6, absorb=settings["absorb"])
        self.memory = AgentMemory(
            store=watched(store, self._watch), max_tokens=MAX_TOKENS, max_recall_tokens=40,
            overflow=overflow, absorb_attempts=settings["attempts"],
            idle_minutes=settings["idle_minutes"], recall_timeout=60,
        )  # fmt: skip

    def at(self, steps: int, then: Callable[[], None]) -> None:
        """Call `then` after this number of steps."""
        self._left, self._then = steps, then

    def disarm(self) -> bool:
        then, self._then = self._then, None
        return then is not None

    def crash(self) -> None:
        self._dead = True
        raise Crash

    def _watch(self, step: str) -> None:
        if self._dead:  # nothing of an ended process runs, not even its `finally`
            raise Crash
        if self._then is not None:
            self._left -= 1
            if self._left < 0:
                then, self._then = self._then, None
                then()


# --- the story -----------------------------------------------------------------------------------

SESSIONS = ("p", "q", "r")
USERS = ("ann", "bob")
sessions, users = st.sampled_from(SESSIONS), st.sampled_from([None, *USERS])
OPS = st.one_of(
    st.builds(Op, st.just("update"), sessions, users, st.integers(1, 3)),
    st.builds(Op, st.just("update"), sessions, users, st.integers(1, 12)),
    st.builds(Op, st.just("pop"), sessions, count=st.integers(1, 6)),
    st.builds(Op, st.just("delete"), sessions),
    st.builds(Op, st.just("delete_user"), user=st.sampled_from(USERS)),
    st.builds(Op, st.just("flush"), sessions),
    st.builds(Op, st.sampled_from(["flush_all", "retry", "turn", "work"])),
    st.builds(Op, st.just("replay"), st.sampled_from(NAMES)),
    st.builds(Op, st.just("get"), sessions, users),
)
STEPS = st.integers(0, 40) | st.integers(0, 15)


class Story(RuleBasedStateMachine):
    """Random calls, crashes, stalls and outages. Subclasses choose the store."""

    def __init__(self) -> None:
        super().__init__()
        self.world, self.patch = World(), pytest.MonkeyPatch()
        for name in ("leases.monotonic", "recall.runner.monotonic"):
            self.patch.setattr(f"agent_memory.engine.{name}", self.world.time)
        self.patch.setattr("agent_memory.engine.leases.sleep", self.world.sleep)
        self.patch.setattr("agent_memory.engine.leases._BEAT_SECONDS", 3600.0)
        self.patch.setattr("agent_memory.engine.leases.Lease", self.lease)
        # run blocks one after the other, so that a failing story can be repeated
        self.patch.setattr(
            "agent_memory.engine.processing.absorb.in_parallel",
            lambda calls: [call() for call in calls],
        )
        shim = SimpleNamespace(time=self.world.time)
        self.patch.setattr("agent_memory.stores.kernel.coding.time", shim)
        self.patch.setattr(
            "agent_memory.engine.processing.session_work.datetime", SimpleNamespace(now=self.clock)
        )
        self.patch.setattr(logging.root.manager, "disable", logging.CRITICAL)
        self.sound = False
        self.state: State = {}
        self.leases: list[Lease] = []
        self.doomed: set[tuple[str, str]] = set()
        self.limbo: set[str] = set()
        self.owner_of: dict[str, str] = {}
        self.said = 0
        self.processes: list[Process] = []

    def store(self) -> Store:
        """Open a handle on this story's store, as a process does."""
        raise NotImplementedError

    def lease(self, session: str, owner: str) -> Lease:
        self.leases.append(Lease(session, owner))
        return self.leases[-1]

    def clock(self, zone: Any) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.world.now - 1_000_000.0)

    @initialize(
        absorb=st.sampled_from(["overflow", "every_update", 25]),
        attempts=st.integers(1, 3),
        idle_minutes=st.sampled_from([None, 5.0]),
    )
    def begin(self, **settings: Any) -> None:
        self.settings = settings
        self.raw = self.store()
        self.processes = [self.opened(), self.opened()]

    def opened(self) -> Process:
        return Process(self.store(), self.world, self.settings)

    @rule(op=OPS, who=st.integers(0, 1))
    def call(self, op: Op, who: int) -> None:
        op = self.worded(op)
        error = self.run(self.processes[who], op)
        if not self.world.broken:
            assert error is None
        self.judge([(op, error is None)])

    @rule(op=OPS, who=st.integers(0, 1), steps=STEPS)
    def crash(self, op: Op, who: int, steps: int) -> None:
        """Crash a process during a call, and let another take its place."""
        if op.name in ("get", "work"):  # these work in their own threads
            return
        op, process = self.worded(op), self.processes[who]
        process.at(steps, process.crash)
        error = self.run(process, op)
        if not process.disarm():
            assert isinstance(error, Crash)
            self.processes[who] = self.opened()
        elif not self.world.broken:
            assert error is None
        self.judge([(op, error is None)])

    @rule(op=OPS, other=OPS, who=st.integers(0, 1), steps=STEPS)
    def stall(self, op: Op, other: Op, who: int, steps: int) -> None:
        """Stall a process during a call, while another process makes a call."""
        if op.name in ("get", "work"):
            return
        op, other = self.worded(op), self.worded(other)
        errors: list[BaseException | None] = []
        process = self.processes[who]
        self.leases.clear()

        def meanwhile() -> None:
            held = self.leases.copy()
            errors.append(self.run(self.processes[1 - who], other))
            for lease in held:  # the worker renews its lease before it continues
                process.memory.components.leases.renew(lease)

        process.at(steps, meanwhile)
        first = self.run(process, op)
        process.disarm()
        if not self.world.broken:
            assert not first or isinstance(first, LeaseLost | StoreUnavailable)
            assert not errors or errors[0] is None
        calls = [(op, first is None), *((other, error is None) for error in errors)]
        self.judge(calls)

    @rule(
        block=st.sampled_from(NAMES), how=st.sampled_from(["refusing", "store", "rubbish", "half"])
    )
    def breaks(self, block: str, how: str) -> None:
        self.world.broken[block] = how

    @precondition(lambda self: self.world.broken)
    @rule()
    def heals(self) -> None:
        self.world.broken.clear()

    @rule(seconds=st.sampled_from([1.0, 5.0, 20.0, 400.0]))
    def passes(self, seconds: float) -> None:
        self.world.now += seconds

    @rule(who=st.integers(0, 1))
    def absorb_all_pending(self, who: int) -> None:
        """Assert that without outages all pending messages are absorbed once."""
        self.world.broken.clear()
        memory = self.processes[who].memory
        for name in ("flush_all", "work", "retry"):
            error = self.run(self.processes[who], Op(name))
            assert error is None
        self.limbo.clear()
        self.judge([(Op("flush_all"), True)])
        self.doomed.clear()
        wanted = sorted(
            (session, seq, text, key(session, owner))
            for session, (owner, log) in self.state.items()
            for seq, text in enumerate(log, 1)
        )
        for name in NAMES:
            assert sorted(self.reflected(name)) == wanted, name
        stats = memory.stats()
        assert (stats.dead_letters, {one.lag for one in stats.blocks.values()}) == (0, {0})
        assert all(not head.deleting for head in self.raw.sessions())

    def teardown(self) -> None:
        try:
            if self.sound:
                self.absorb_all_pending(0)
                for session in SESSIONS:
                    self.call(Op("delete", session), 0)
                assert all(not list(self.reflected(name)) for name in NAMES)
                assert all(not self.raw.records("_failed", name) for name in NAMES)
                assert not self.raw.records("_notes", "user deletions")
        finally:
            self.patch.undo()
            super().teardown()

    def worded(self, op: Op) -> Op:
        """Give an update texts that were never used before."""
        if op.name != "update":
            return op
        first, self.said = self.said, self.said + op.count
        return replace(op, texts=tuple(f"words {n}" for n in range(first, self.said)))

    def run(self, process: Process, op: Op) -> BaseException | None:
        """Make a call, and return an error that it may raise."""
        self.sound = False
        try:
            self.make(process.memory, op)
        except SessionOfAnotherUser:
            return None
        except (Crash, StoreError, ConnectionError, ValueError) as error:
            return error
        return None

    def make(self, memory: AgentMemory, op: Op) -> None:
        match op.name:
            case "update":
                given = [{"role": "user", "content": text} for text in op.texts]
                memory.update(op.session, given if op.count > 1 else given[0], user_id=op.user)
            case "pop":
                assert len(memory.pop(op.session, op.count)) <= op.count
            case "delete":
                memory.delete(op.session)
            case "delete_user":
                assert op.user is not None
                memory.delete_user(op.user)
            case "flush":
                memory.flush(op.session)
            case "flush_all":
                memory.flush()
            case "retry":
                operations.retry(memory)
            case "turn":
                for head in memory.components.store.due():
                    memory.components.work.process(head.session_id, scheduled=True)
            case "work":
                worker = memory.components.worker(1)
                worker.run_once()
                worker.stop()
            case "replay":
                for _ in memory.replay(op.session):
                    pass
            case "get":
                context = memory.get(op.session, "words", user_id=op.user)
                assert context.tokens <= MAX_TOKENS
                owner = context.head.user_id if context.head else op.user
                for recall in context.recalls:
                    said = recall.text.split("\n")  # neighbours form one passage
                    assert len(said) == len(recall.sources)
                    for text in said:
                        mine = self.owner_of[text.removeprefix("user: ")]
                        assert mine == key(op.session, owner or op.user)

    def judge(self, calls: list[tuple[Op, bool]]) -> None:
        """Compare the stored state with the states that the model allows."""
        before = self.state
        seen = self.visible()
        owned = {(name, owner) for name, (owner, _) in before.items()}
        owned |= {(op.session, op.user) for op, _ in calls}
        if doomed := tuple(name for name, user in self.doomed if (name, user) in owned):
            calls = [*calls, (Op("forget", texts=doomed), False)]
        assert seen in candidates(before, calls)
        self.state = seen
        interrupted = {op.name for op, whole in calls if not whole}
        gone = {text for _, log in before.values() for text in log}
        gone |= {text for op, _ in calls if op.name == "update" for text in op.texts}
        gone -= {text for _, log in seen.values() for text in log}
        self.limbo |= gone if interrupted else set()
        for op, whole in calls:
            if op.name == "delete_user" and not whole:
                self.doomed |= {(s, op.user or "") for s in seen if seen[s][0] in (None, op.user)}
        self.doomed = {(name, user) for name, user in self.doomed if name in seen}
        self.owner_of |= {
            text: key(session, owner) for session, (owner, log) in seen.items() for text in log
        }
        for name in NAMES:
            self.check(name)

    def visible(self) -> State:
        """Return each session's owner and log, as callers see them."""
        memory = self.processes[0].memory
        found: State = {}
        for head in memory.sessions():
            log = memory.history(head.session_id)
            assert [entry.seq for entry in log] == list(range(1, head.end + 1))
            found[head.session_id] = head.user_id, tuple(entry.message.text() for entry in log)
        return found

    def check(self, block: str) -> None:
        """Assert that a block's records match the log, once each, under the right owner."""
        found = list(self.reflected(block))
        texts = [text for _, _, text, _ in found]
        assert len(texts) == len(set(texts))
        for session, seq, text, owner in found:
            if text in self.limbo:
                continue
            assert text in self.state.get(session, (None, ()))[1][seq - 1 : seq], (block, text)
            assert owner in (self.owner_of[text], f"session:{session}")
        self.sound = True

    def reflected(self, block: str) -> Iterator[tuple[str, int, str, str]]:
        """Yield session, seq, text and owner of a block's records."""
        if block == "elsewhere":
            for (session, seq), (owner, text) in self.world.elsewhere.items():
                yield session, seq, text, owner
            return
        owners = [f"user:{user}" for user in USERS] + [f"session:{name}" for name in SESSIONS]
        for owner in owners:
            if block == "facts":
                records = self.raw.records(block, owner)
            else:
                records = everything(self.raw, block, owner, 4)
            for one in records:
                yield one.session_id, one.first, one.text.removeprefix("user: "), one.owner


def key(session: str, user: str | None) -> str:
    return Scope(user, session).owner


class MemoryStory(Story):
    """Over a `MemoryStore` that all processes share."""

    _one: MemoryStore | None = None

    def store(self) -> Store:
        self._one = self._one or MemoryStore()
        return self._one


class SQLiteStory(Story):
    """Over an SQLite file, opened by each process for itself."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._opened: list[SQLStore] = []

    def store(self) -> Store:
        self._opened.append(SQLStore(f"sqlite:///{Path(self._folder.name, 'm.db')}"))
        return self._opened[-1]

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            for store in self._opened:
                store.close()
            self._folder.cleanup()


COMMON: dict[str, Any] = {
    "stateful_step_count": 30,
    "suppress_health_check": list(HealthCheck),
    "report_multiple_bugs": False,
}
TestInMemory: Any = MemoryStory.TestCase
TestInMemory.settings = settings(max_examples=EXAMPLES or 30, **COMMON)
TestInSQLite: Any = SQLiteStory.TestCase
TestInSQLite.settings = settings(max_examples=EXAMPLES or 8, **COMMON)
