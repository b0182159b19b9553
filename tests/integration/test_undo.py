"""A `pop` leaves no trace of the removed messages."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_memory import AgentMemory, ExtractiveMemory, FlushToLTM, Message, Summarize, VectorMemory
from agent_memory.core.records import Entry, Record, Scope
from agent_memory.errors import StoreUnavailable
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import Store
from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing import FakeLLM, watched
from tests.integration.fact_model import Model, dated
from tests.integration.undo_twin import (
    assert_alike,
    everything,
    opened,
    turn,
    twins,
    view,
    with_tool,
)
from tests.kit import Echo, at_length
from tests.servers.qdrant import StandIn

SYSTEM = {"role": "system", "content": "Be kind.", "created_at": "2024-01-05T00:00:00Z"}
KEPT = [SYSTEM, *turn("I have a dog", "How nice."), *with_tool("And a job", "Acme", "Good.", 1)]
POPPED = [
    *turn("The dog is called moon-canary", "A fine name, moon-canary."),
    {**SYSTEM, "content": "Speak of moon-canary only."},
    *with_tool("I left the job", "moon-canary Ltd", "Which moon-canary?", 2),
]
OTHER = turn("My dog sleeps in the kayak", "On the river?", "2024-01-06")


@pytest.fixture
def model() -> Model:
    """Return a model that finds facts. Those of popped messages name, update and end others."""
    model = Model()
    model.tell("I have a dog", "Has a dog.", category="pets")
    model.tell("And a job", "Works at Acme.", category="work")
    model.tell("called moon-canary", "Has a dog named moon-canary.", ("update", "Has a dog."))
    model.tell("I left the job", "Works at moon-canary.", ("update", "Works at Acme."))
    model.tell("sleeps in the kayak", "The dog sleeps in a kayak.")
    return model


@pytest.fixture
def fake(model: Model) -> Iterator[FakeLLM]:
    with FakeLLM(model) as fake:
        yield fake


def together(memory: AgentMemory, popped: Sequence[Any]) -> None:
    """Absorb the messages to be popped in one batch with earlier ones."""
    memory.update("s", [*KEPT, *popped], user_id="ada")
    memory.flush()
    memory.update("t", OTHER, user_id="ada")
    memory.flush()


def apart(memory: AgentMemory, popped: Sequence[Any]) -> None:
    memory.update("s", KEPT, user_id="ada")
    memory.flush()
    memory.update("s", popped)
    memory.flush()
    memory.update("t", OTHER, user_id="ada")
    memory.flush()


def waiting(memory: AgentMemory, popped: Sequence[Any]) -> None:
    memory.update("s", [*KEPT, *popped], user_id="ada")
    memory.update("t", OTHER, user_id="ada")


TOLD = [together, apart, waiting]


@pytest.mark.parametrize("told", TOLD)
def test_removed_data_leaves_no_trace(
    store: Store, fake: FakeLLM, told: Callable[[AgentMemory, Sequence[Any]], None]
) -> None:
    """Wrong: after a pop, a call shows a trace of the popped messages."""
    with twins(fake, store=store) as (memory, twin):
        told(memory, POPPED)
        told(twin, [])
        taken = [message.text() for message in memory.pop("s", len(POPPED))]
        assert taken[:2] == ["The dog is called moon-canary", "A fine name, moon-canary."]
        assert "moon-canary" not in everything(memory)
        assert_alike(memory, twin)
        for one in (memory, twin):  # later messages find no trace either
            one.update("s", turn("The dog is called Rex", "I see.", "2024-01-08"))
        assert_alike(memory, twin)


@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize("kind", ["split", "qdrant", "qdrant server"])
def test_popped_messages_leave_no_trace_in_separate_stores(
    fake: FakeLLM, kind: str, told: Callable[[AgentMemory, Sequence[Any]], None]
) -> None:
    """Wrong: a pop leaves data in a separate store of system messages or vectors."""
    with ExitStack() as stack:
        fields: dict[str, Any] = {"system_store": MemoryStore()} if kind == "split" else {}
        places = {"qdrant": ":memory:"}
        if kind == "qdrant server":
            places[kind] = stack.enter_context(StandIn()).url
        blocks = [VectorMemory(store=places.get(kind)), ExtractiveMemory()]
        memory = stack.enter_context(opened(fake, *blocks, **fields))
        twin = stack.enter_context(opened(fake))
        told(memory, POPPED)
        told(twin, [])
        memory.pop("s", len(POPPED))
        assert "moon-canary" not in everything(memory)
        assert_alike(memory, twin)


def test_pop_cleans_any_block(
    store: Store, fake: FakeLLM, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong: a pop by a memory without the blocks leaves their records of the popped messages."""
    with twins(fake, store=store) as (memory, twin):
        together(memory, POPPED)
        together(twin, [])
        assert "moon-canary" in everything(memory)
        with AgentMemory(store=store, blocks=[]) as bare:
            bare.pop("s", len(POPPED))
        assert "'vector' absorbed session 's' and is not configured" in caplog.text
        assert "moon-canary" not in everything(memory)
        assert_alike(memory, twin)


class Digests(Echo):
    """Stores one record for each batch."""

    kind: str = "digests"

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        first, last, session_id = entries[0].seq, entries[-1].seq, entries[0].session_id
        record = Record(
            record_id(self.name, session_id, first, last), scope.owner, session_id, first, last,
            " / ".join(entry.message.text() for entry in entries), (first, last),
            entries[0].created_at,
        )  # fmt: skip
        self.resources.store.put_records(self.name, [record], lease=scope.lease)


def test_a_record_of_several_messages_is_rebuilt_after_a_pop() -> None:
    """Wrong: a record of popped and remaining messages keeps popped words, or is not remade."""
    with AgentMemory(store="memory://", overflow=FlushToLTM(blocks=[Digests()])) as memory:
        memory.update("s", [dated("one"), dated("two")], user_id="ada")
        memory.flush()
        memory.update("s", [dated("three"), dated("four"), dated("five")])
        memory.flush()
        memory.pop("s", 2)
        texts = [one.text for one in memory.search("", user_id="ada")]
        assert texts == ["one / two"]
        memory.flush()
        assert {one.text for one in memory.search("", user_id="ada")} == {"one / two", "three"}


def long(number: int, popped: bool) -> dict[str, Any]:
    word = "moon-canary" if popped else "garden"
    return dated(f"{word} {number}: " + f"roses and {word} and tulips " * 3)


@pytest.mark.parametrize("writer", ["model", "local", "redone"])
@pytest.mark.parametrize("count", [1, 20, 30])
def test_a_summary_has_no_text_of_popped_messages(fake: FakeLLM, writer: str, count: int) -> None:
    """Wrong: the summary contains text of a popped message."""
    fake.default = lambda body: body["messages"][-1]["content"]  # it repeats its whole input
    fields: dict[str, Any] = {"overflow": Summarize(max_summary_tokens=120), "max_tokens": 700}
    fields["store"] = MemoryStore()
    model = "openai/any" if writer == "model" else None
    with opened(fake, **fields, model=model) as memory:
        for number in range(30):
            memory.update("s", long(number, popped=number >= 30 - count), user_id="ada")
        before = memory.sessions()[0]
        assert before.start > 3
        memory.pop("s", count)
        head = memory.sessions()[0]
        assert (head.summary == before.summary) == (before.start < head.end)
        assert head.summary is None or head.summary.upto <= head.end
        assert "moon-canary" not in everything(memory)
    with opened(fake, **fields, model=None if writer == "local" else "openai/any") as memory:
        memory.update("s", long(99, popped=False))
        memory.flush()
        head, told = memory.sessions()[0], everything(memory)
        assert "moon-canary" not in told
        assert head.window_tokens == sum(one.tokens for one in memory.history("s")[head.start :])
        assert (head.start > 0) == (head.summary is not None)


STEP = st.one_of(
    st.integers(1, 4).map(lambda n: ("say", n)),
    st.integers(1, 5).map(lambda n: ("pop", n)),
    st.sampled_from([("flush", 0), ("other", 0), ("flush", 1)]),
)


def mixing(body: dict[str, Any]) -> str:
    """Find one fact in each message, and name the batch's newest message in all of them."""
    model, shown = Model(), str(body["messages"][1]["content"])
    words = [word for word in shown.replace("\n", " ").split(" ") if word.startswith("word-")]
    for word in words:
        model.tell(word, f"Knows {word} and {words[-1]}.")
    return model(body)


@pytest.mark.long
@settings(max_examples=at_length(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, min_size=4, max_size=10))
def test_popped_text_never_appears_again(
    steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Wrong: some order of calls shows text of a popped message, or loses another message."""
    url = f"sqlite:///{tmp_path_factory.mktemp('undo')}/m.db"
    log: list[str] = []
    gone: set[str] = set()
    said_so_far = 0
    with FakeLLM(mixing) as fake, ExitStack() as stack:
        handles = [stack.enter_context(opened(fake, store=url)) for _ in range(2)]
        memory = handles[0]
        for step, count in steps:
            if step == "say":
                words = [f"word-{said_so_far + n}-end" for n in range(count)]
                said_so_far += count
                memory.update("s", [dated(word) for word in words], user_id="ada")
                log += words
            elif step == "pop":
                taken = [message.text() for message in memory.pop("s", count)]
                assert taken == log[len(log) - min(count, len(log)) :]
                gone |= set(taken)
                del log[len(log) - len(taken) :]
            elif step == "flush":
                memory.flush()
            else:
                memory = handles[-1 if memory is handles[0] else 0]
            told = everything(memory)
            assert not {word for word in gone if word in told}
        memory.flush()
        assert [entry.message.text() for entry in memory.history("s")] == log
        facts = memory.user("ada").facts()
        assert sorted(one.quote for fact in facts for one in fact.evidence) == sorted(log)
        found = {one.text for one in memory.search("word end", user_id="ada", limit=100, least=0.0)}
        assert {f"user: {word}" for word in log} <= found


class Dying:
    """A process that dies at a step: later calls are not carried out."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, step: str) -> None:
        if step.startswith("before"):
            self.left -= 1
            if self.left < 0:
                raise StoreUnavailable("dead")


@pytest.mark.long
def test_an_interrupted_pop_is_consistent(fake: FakeLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a process that dies during a pop leaves a block between the old and new log."""
    monkeypatch.setattr("agent_memory.engine.leases.LEASE_SECONDS", 0.0)
    monkeypatch.setattr("agent_memory.engine.leases._BEAT_SECONDS", 3600.0)
    with opened(fake) as whole, opened(fake) as twin:
        together(whole, POPPED)
        together(twin, [])
        wanted = {len(KEPT) + len(POPPED): view(whole), len(KEPT): view(twin)}
    left, died = 0, True
    while died:
        store, dying = MemoryStore(), Dying(10_000)
        with opened(fake, store=store) as memory:
            together(memory, POPPED)
            while died and len(memory.history("s")) > len(KEPT):
                with opened(fake, store=watched(store, dying)) as victim:
                    dying.left = left
                    with suppress(StoreUnavailable):
                        victim.pop("s", len(POPPED))
                    died, dying.left, left = dying.left < 0, 10_000, left + 1
                memory.flush()
                assert view(memory) == wanted[len(memory.history("s"))], left
    assert left > 8


class Slow(VectorMemory):
    """Wait in the middle of absorbing."""

    kind: Any = "vector"
    begun: Any
    go_on: Any

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.begun.set()
        assert self.go_on.wait(60)
        super().update(scope, entries)


def test_a_pop_while_a_block_absorbs_leaves_no_record(fake: FakeLLM) -> None:
    """Wrong: a message that is popped while a block absorbs it leaves a record."""
    begun, go_on = threading.Event(), threading.Event()
    blocks = Slow(begun=begun, go_on=go_on), ExtractiveMemory()
    with opened(fake, *blocks) as memory, opened(fake) as twin:
        memory.update("s", [*KEPT, *POPPED], user_id="ada")
        absorbing = threading.Thread(target=memory.flush)
        absorbing.start()
        assert begun.wait(60)
        taken: list[Message] = []
        popping = threading.Thread(target=lambda: taken.extend(memory.pop("s", len(POPPED))))
        popping.start()
        go_on.set()
        for thread in (absorbing, popping):
            thread.join()
        memory.update("t", OTHER, user_id="ada")
        assert len(taken) == len(POPPED)
        together(twin, [])
        assert_alike(memory, twin)
