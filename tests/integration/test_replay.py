"""Rebuilding blocks from the log: on demand, automatically, and under another embedding model."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from agent_memory import AgentMemory, Block, FlushToLTM, Message, Recall, VectorMemory
from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.records import Entry, Scope
from agent_memory.engine.assembly import Components
from agent_memory.errors import ConfigError, DimensionMismatch
from agent_memory.operations import rebuild
from agent_memory.retrieval.query import Query
from agent_memory.stores import MemoryStore, Store
from agent_memory.testing import FakeLLM, watched
from agent_memory.testing.contract import everything, ranked
from tests.kit import SECONDS, Cut, Echo, cut_at, until, user


class Notes(Echo):
    """Marks its records with its version, and recalls nothing."""

    kind: str = "notes"
    version: str = "v1"
    fed: Counter[str] = Counter()

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return []

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.fed[entries[0].session_id] += 1
        super().update(scope, entries)

    def text_of(self, entry: Entry) -> str:
        return f"{self.version} {entry.message.text()}"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory.engine.processing.worker.POLL_SECONDS", 0.02)


def yesterday() -> datetime:
    return datetime.now(UTC) - timedelta(days=1)


def config(store: Store | str, *blocks: Block, **fields: Any) -> AgentMemoryConfig:
    absorb = fields.pop("absorb", "every_update")
    overflow = FlushToLTM(blocks=list(blocks), absorb=absorb)
    return AgentMemoryConfig(store=store, overflow=overflow, **fields)


def noted(store: Store, block: str = "notes") -> list[str]:
    return sorted(fact.text for fact in store.records(block, "user:ada"))


@pytest.mark.usefixtures("short_leases")
def test_a_rebuild_survives_any_interruption() -> None:
    """Wrong: an interrupted replay starts over, or leaves a session or entry in the old version."""
    everything = [f"v2 {n} in {name}" for name in ("s0", "s1", "s2") for n in range(3)]
    for step in range(1, 300):
        store = MemoryStore()
        with AgentMemory(config(store, Notes())) as memory:
            for name in ("s0", "s1", "s2"):
                memory.update(name, [user(f"{n} in {name}") for n in range(3)], user_id="ada")
        first, second = (Notes(version="v2", fed=Counter()) for _ in range(2))
        seen: list[str] = []
        with AgentMemory(config(watched(store, cut_at(step)[0]), first)) as memory:
            try:
                seen += [progress.session_id for progress in memory.replay("notes")]
            except Cut:
                pass
            else:
                break
        time.sleep(0.01)
        with AgentMemory(config(store, second)) as memory:
            progress = list(memory.replay("notes"))
        assert noted(store) == sorted(everything), step
        if progress and step > 5:  # the note of its progress exists
            assert (progress[-1].done, progress[-1].total) == (3, 3)
        assert not set(seen) & set(second.fed), "begun anew"
        assert all(progress.error is None for progress in progress)
        assert store.records("_notes", "replays") == []
    assert step > 30


def test_a_replay_runs_while_sessions_change(url: str) -> None:
    """Wrong: a replay loses, duplicates or restores records of sessions that change meanwhile."""
    done = threading.Event()
    said: Counter[str] = Counter()
    with AgentMemory(config(url, Notes())) as memory:
        for n in range(30):
            memory.update(f"s{n:02}", [user("hello") for _ in range(4)], user_id="ada")
            said[f"s{n:02}"] += 4
    with AgentMemory(config(url, Notes(version="v2"), overflow_mode="background")) as memory:

        def talk(names: list[str]) -> None:
            n = 0
            while not done.is_set() or n < len(names):
                memory.update(names[n % len(names)], user("hello again"), user_id="ada")
                said[names[n % len(names)]] += 1
                n += 1

        def delete(names: list[str]) -> None:
            for name in names:
                memory.delete(name)

        with ThreadPoolExecutor() as pool:
            jobs = [
                pool.submit(talk, ["s00", "s15", "s29"]),
                pool.submit(talk, ["r new", "t new", "s15 new"]),
                pool.submit(delete, ["s05", "s20", "s28"]),
            ]
            for progress in memory.replay("notes"):
                assert progress.error is None
            done.set()
            for job in jobs:
                job.result(SECONDS)
        memory.flush()
        for name in ("s05", "s20", "s28"):
            del said[name]
        kept = memory._store.records("notes", "user:ada")
        assert Counter(fact.session_id for fact in kept) == said
        assert {fact.text.split()[0] for fact in kept} == {"v2"}
        assert not memory.stats().blocks["notes"].lag


def test_a_session_leased_elsewhere_is_replayed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a session that another worker holds is never replayed."""
    monkeypatch.setattr("agent_memory.engine.leases._WAIT_SECONDS", 0.05)
    store = MemoryStore()
    with AgentMemory(config(store, Notes())) as memory:
        memory.update("s", user("hello", created_at=yesterday()), user_id="ada")
    with AgentMemory(config(store, Notes(version="v2"))) as memory:
        assert store.lease("s", "somebody", 60)
        (progress,) = memory.replay("notes")
        assert progress.error is not None
        store.release("s", "somebody")
        worker = Components(config(store, Notes(version="v2"))).worker(1)
        worker.run_once()
        worker.stop()
    assert noted(store) == ["v2 hello"]


def past(store: Store) -> None:
    """Store an inactive session of 150 messages and an active one, none of them absorbed."""
    with AgentMemory(config(store, Notes(), max_tokens=400, absorb="overflow")) as memory:
        old = [user(f"{n}", created_at=yesterday()) for n in range(150)]
        memory.update("old", old, user_id="ada")
        for n in range(40):
            memory.update("new", user(f"and {n}"), user_id="ada")


@pytest.mark.parametrize("how", ["background", "worker"])
def test_a_new_block_absorbs_the_past(how: str) -> None:
    """Wrong: a block that is added later never absorbs earlier messages."""
    store = MemoryStore()
    past(store)
    worker = Components(config(store, Notes(), absorb="overflow")).worker(1)
    worker.run_once()
    worker.stop()
    assert store.due() == []
    blocks = (Notes(), Notes(name="added"))
    settings = config(store, *blocks, max_tokens=400, absorb="overflow")
    head = store.head("new")
    assert 0 < head.start < head.end
    left = [f"v1 {n}" for n in range(150)] + [f"v1 and {n}" for n in range(head.start)]
    if how == "background":
        fields = {name: getattr(settings, name) for name in settings.model_fields_set}
        with AgentMemory(**fields, overflow_mode="background"):
            until(lambda: len(noted(store, "added")) >= len(left))
    else:
        worker = Components(settings).worker(2)
        worker.run_once()
        worker.stop()
    assert noted(store, "added") == sorted(left)  # of the active session only what left the window
    assert store.due() == []


def test_a_block_that_is_configured_again_catches_up() -> None:
    """Wrong: a block that was not configured for a time never absorbs the messages of that time."""
    store = MemoryStore()
    both, one = (Notes(), Notes(name="added")), (Notes(),)
    for blocks, text in ((both, "before"), (one, "meanwhile"), (one, "still"), (both, "after")):
        with AgentMemory(config(store, *blocks, absorb="overflow")) as memory:
            memory.update(text, user(text, created_at=yesterday()), user_id="ada")
            memory.update("s", user(f"{text} in s", created_at=yesterday()), user_id="ada")
        worker = Components(config(store, *blocks, absorb="overflow")).worker(1)
        worker.run_once()
        worker.stop()
        assert store.due() == []
    texts = ["before", "meanwhile", "still", "after"]
    everything = sorted(f"v1 {t}" for text in texts for t in (text, f"{text} in s"))
    assert noted(store) == everything
    assert noted(store, "added") == everything


def test_old_workers_do_not_hide_sessions_from_a_new_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: in a rolling update old workers put off sessions that the new block has to absorb."""
    store = MemoryStore()
    past(store)
    before = config(store, Notes(), absorb="overflow")
    after = config(store, Notes(), Notes(name="added"), absorb="overflow", max_tokens=400)
    old = Components(before).worker(1)
    old._keep_house()
    new = Components(after).worker(1)
    new._keep_house()  # makes all sessions due
    old.run_once()
    old.stop()
    assert store.due() == []
    now = time.time()
    monkeypatch.setattr("agent_memory.engine.processing.worker.time", lambda: now + 700)
    worker = Components(after).worker(1)
    worker.run_once()
    worker.stop()
    assert len(noted(store, "added")) > 150
    assert store.due() == []
    monkeypatch.setattr("agent_memory.engine.processing.worker.time", lambda: now + 9000)
    Components(after).worker(1)._keep_house()
    assert store.due() == []  # it is not repeated


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeLLM]:
    with FakeLLM() as fake:
        yield fake


def vectors(store: Store, fake: FakeLLM, embedding: str, *names: str) -> AgentMemoryConfig:
    blocks = [VectorMemory(name=name) for name in names or ("vector",)]
    return config(store, *blocks, embedding=embedding, api_base=fake.api_base, api_key="k")


def embedded(store: Store, fake: FakeLLM, embedding: str, name: str = "vector") -> list[str]:
    """Return the texts of Ada's vectors, each found by its vector of the current model."""
    with AgentMemory(vectors(store, fake, embedding, name)):  # opened with this model
        width = 384 if embedding == "local" else fake.dimension
        every = everything(store, name, "user:ada", width)
        for record in every if embedding != "local" else []:
            said = record.text.removeprefix("user: ")  # roles are not embedded
            vector = np.array(fake.vector(said), dtype=np.float32)
            found = store.search_vectors(name, "user:ada", Query(vector), 1)
            best, score = ranked(found)[0]
            assert best.text == record.text
            assert score == pytest.approx(1, abs=1e-5)
        return sorted(record.text for record in every)


def talk(settings: AgentMemoryConfig, count: int = 3) -> list[str]:
    with AgentMemory(settings) as memory:
        for n in range(count):
            memory.update(f"s{n}", [user(f"fact {n}"), user(f"wish {n}")], user_id="ada")
    return sorted(f"user: {what} {n}" for n in range(count) for what in ("fact", "wish"))


def test_two_blocks_can_be_rebuilt_one_after_the_other(fake: FakeLLM) -> None:
    """Wrong: two blocks of the old model block each other's rebuild."""
    store = MemoryStore()
    everything = talk(vectors(store, fake, "local", "first", "second"))
    changed = vectors(store, fake, "openai/a", "first", "second")
    assert len(list(rebuild(changed, "first"))) == 3
    assert embedded(store, fake, "openai/a", "first") == everything
    assert embedded(store, fake, "local", "second") == everything
    with pytest.raises(DimensionMismatch):
        AgentMemory(changed)
    assert len(list(rebuild(changed, "second"))) == 3
    with AgentMemory(changed) as memory:
        assert len(memory.search("fact 1", user_id="ada")) > 0


def test_invalid_rebuild_settings_delete_no_vectors(fake: FakeLLM) -> None:
    """Wrong: invalid settings for a rebuild delete the vectors."""
    store = MemoryStore()
    everything = talk(vectors(store, fake, "local"))
    with pytest.raises(DimensionMismatch, match="needs vectors"):
        list(rebuild(config(store, VectorMemory(dimension=7)), "vector"))
    with pytest.raises(ConfigError, match="No block named 'vektor'"):
        list(rebuild(vectors(store, fake, "openai/a"), "vektor"))
    assert embedded(store, fake, "local") == everything


def test_recall_works_throughout_a_blue_green_rebuild(fake: FakeLLM) -> None:
    """Wrong: during the documented blue-green rebuild nothing is recalled for a time."""
    store = MemoryStore()
    talk(vectors(store, fake, "local"))
    settings = {"api_base": fake.api_base, "api_key": "k"}
    blue, green = VectorMemory(name="vector"), VectorMemory(name="green", embedding="openai/a")
    with AgentMemory(config(store, blue, green, **settings, overflow_mode="background")) as memory:
        memory.update("s0", user("fact of the meantime"), user_id="ada")
        assert {one.block for one in memory.search("fact 1", user_id="ada")} >= {"vector"}
        until(lambda: not any(block.lag for block in memory.stats().blocks.values()))
        assert len(memory.search("fact of the meantime", user_id="ada")) > 0
    store.clear_vectors("vector")
    assert len(embedded(store, fake, "openai/a", "green")) == 7
    with AgentMemory(config(store, green, **settings)) as memory:
        memory.delete_user("ada")
    assert embedded(store, fake, "openai/a", "green") == []
