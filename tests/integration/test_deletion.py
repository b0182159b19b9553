"""Deletion: interrupted at any step or raced by other calls, it completes and leaves nothing."""

import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, AgentMemoryConfig, Chain, FlushToLTM, Summarize, operations
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head, Scope
from agent_memory.engine.assembly import Components
from agent_memory.engine.paging import all_heads
from agent_memory.engine.system_records import Kind, SystemRecords
from agent_memory.errors import StoreUnavailable
from agent_memory.ltm_blocks import Block, ExtractiveMemory, VectorMemory
from agent_memory.stores import MemoryStore, Store
from agent_memory.testing import FakeLLM, watched
from tests import histories
from tests.kit import SECONDS, Cut, Echo, Silent, cut_at, steps_of, until, user, wait_for_calls

Way = Callable[[AgentMemory, AgentMemoryConfig], None]


class Notes(Echo):
    """Calls `within`, then stores each message as a fact."""

    kind: str = "notes"
    within: Callable[[], None] = lambda: None

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.within()
        super().update(scope, entries)


class Elsewhere(Silent):
    """Calls `within`, then keeps each message outside the store, without leases."""

    kind: str = "elsewhere"
    kept: dict[tuple[str, int], str] = {}
    within: Callable[[], None] = lambda: None

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.within()
        self.kept.update({(one.session_id, one.seq): one.message.text() for one in entries})

    def delete(self, scope: Scope) -> None:
        for key in [key for key in self.kept if key[0] == scope.session_id]:
            del self.kept[key]


def config(store: Store | str, *blocks: Block, **fields: Any) -> AgentMemoryConfig:
    overflow = FlushToLTM(blocks=list(blocks) or [Notes()], absorb="every_update")
    return AgentMemoryConfig(store=store, overflow=overflow, **fields)


def filled(store: Store) -> None:
    with AgentMemory(config(store)) as memory:
        for name, owner in (("a1", "ada"), ("a2", "ada"), ("b", "bob")):
            said = [user(f"{owner} said {n} in {name}") for n in range(3)]
            memory.update(name, said, user_id=owner)


def lists(memory: AgentMemory, session_id: str, owner: str) -> bool:
    """Return whether a session is listed, and assert that its texts are found only then."""
    texts = [
        *(entry.message.text() for entry in memory.history(session_id)),
        *(recall.text for recall in memory.search("said", user_id=owner, limit=100)),
        *(recall.text for recall in memory.get("another", "said", user_id=owner).recalls),
        *(recall.text for recall in memory.get(session_id, "said", user_id=owner).recalls),
        *(message.text() for message in memory.get(session_id).messages),
    ]
    found = [text for text in texts if f"in {session_id}" in text]
    listed = session_id in [head.session_id for head in memory.sessions(user_id=owner)]
    assert bool(found) == listed
    return listed


def traces(store: Store) -> list[str]:
    """Return all that a store holds of Ada, and of unfinished deletions."""
    places = [("notes", "user:ada"), ("_notes", "user deletions"), ("_notes", "scrubs")]
    texts = [one.text for block, owner in places for one in store.records(block, owner)]
    return [*texts, *(head.session_id for head in all_heads(store, "ada"))]


def by_delete(memory: AgentMemory, _: AgentMemoryConfig) -> None:
    memory.delete("a1")


def by_delete_user(memory: AgentMemory, _: AgentMemoryConfig) -> None:
    memory.delete_user("ada")


def by_flush(memory: AgentMemory, _: AgentMemoryConfig) -> None:
    memory.flush()


def by_worker(_: AgentMemory, settings: AgentMemoryConfig) -> None:
    with closing(Components(settings)) as parts:
        worker = parts.worker(1)
        worker.run_once()
        worker.stop()


def by_running_worker(_: AgentMemory, settings: AgentMemoryConfig) -> None:
    fields = {name: getattr(settings, name) for name in settings.model_fields_set}
    store = settings.store
    assert not isinstance(store, str)
    with AgentMemory(**fields, overflow_mode="background"):
        until(lambda: not any(head.deleting for head in all_heads(store)))
        until(lambda: not store.records("_notes", "scrubs"))


WAYS = [by_delete, by_flush, by_worker, by_running_worker]
USER_WAYS = [by_delete_user, by_flush, by_worker]


def cut_short(
    step: int, delete: Callable[[AgentMemory], object]
) -> tuple[MemoryStore, list[str], bool]:
    """Delete from a filled store up to a step. Return the store, the steps, and if it ended."""
    store = MemoryStore()
    filled(store)
    watch, steps = cut_at(step)
    with AgentMemory(config(watched(store, watch))) as memory:
        try:
            delete(memory)
        except Cut:
            return store, steps, False
    return store, steps, True


@pytest.mark.usefixtures("short_leases")
@pytest.mark.parametrize("finish", WAYS)
def test_an_interrupted_delete_is_completed(finish: Way) -> None:
    """Wrong: an interrupted deletion is never completed, or shows a half-deleted session."""
    for step in steps_of(finish, WAYS):
        store, steps, ended = cut_short(step, lambda memory: memory.delete("a1"))
        if ended:
            break
        time.sleep(0.01)
        begun = not lists(AgentMemory(config(store)), "a1", "ada")
        settings = config(store)
        with AgentMemory(settings) as memory:
            finish(memory, settings)
            assert lists(memory, "a1", "ada") is not (begun or finish is by_delete), steps
            assert lists(memory, "a2", "ada")
            assert lists(memory, "b", "bob")
        left = any("in a1" in trace for trace in traces(store))
        assert left is not (begun or finish is by_delete), steps
        assert not store.records("_notes", "scrubs"), steps
    assert step > 10


@pytest.mark.usefixtures("short_leases")
@pytest.mark.parametrize("finish", USER_WAYS)
def test_an_interrupted_delete_user_is_completed(finish: Way) -> None:
    """Wrong: after an interrupted deletion, sessions of the user are left."""
    for step in steps_of(finish, USER_WAYS):
        store, steps, ended = cut_short(step, lambda memory: memory.delete_user("ada"))
        if ended:
            break
        time.sleep(0.01)
        pending = store.records("_notes", "user deletions")
        begun = bool(pending or not store.sessions(user_id="ada"))
        cleared = any("cleared" in note.metadata for note in pending)
        if cleared or len(list(all_heads(store, "ada"))) < 2:  # all were marked before
            assert not any(lists(AgentMemory(config(store)), name, "ada") for name in ("a1", "a2"))
        settings = config(store)
        with AgentMemory(settings) as memory:
            finish(memory, settings)
            gone = begun or finish is by_delete_user
            assert lists(memory, "a1", "ada") is lists(memory, "a2", "ada") is not gone, steps
            assert lists(memory, "b", "bob")
        assert bool(traces(store)) is not gone, (steps, traces(store))
    assert step > 20


class Slow(MemoryStore):
    """Runs `then` once, between reading the unfinished deletions of users and returning them."""

    then: Callable[[], object] | None = None

    def records(self, block: str, owner: str) -> Any:
        found = super().records(block, owner)
        if owner == "user deletions" and found and self.then is not None:
            then, self.then = self.then, None
            then()
        return found


@pytest.mark.parametrize("finish", [by_flush, by_worker])
def test_a_second_completion_of_a_deletion_erases_nothing(finish: Way) -> None:
    """Wrong: a worker that reads of a deletion before its end erases newer data of the user."""
    store = Slow()
    settings = config(store)
    with AgentMemory(settings) as memory, AgentMemory(settings) as worker:
        memory.update("s", {"role": "user", "content": "old"}, user_id="ada")
        SystemRecords(store).write(Kind.USER_DELETIONS, "begun", user_id="ada", before=time.time())

        def go_on() -> None:
            memory.delete_user("ada")
            memory.user("ada").notes().add("Kept since.")

        store.then = go_on
        finish(worker, settings)
        assert [note.text for note in memory.user("ada").notes().all()] == ["Kept since."]


@pytest.mark.long
@pytest.mark.usefixtures("short_leases")
@pytest.mark.parametrize("finish", [by_flush, by_worker])
@pytest.mark.parametrize("session_id", ["new", "a1"])
def test_messages_after_a_deletion_survive_its_completion(session_id: str, finish: Way) -> None:
    """Wrong: completing a user's interrupted deletion erases newer messages of the user."""
    for step in steps_of(finish, [by_flush, by_worker]):
        store, steps, ended = cut_short(step, lambda memory: memory.delete_user("ada"))
        if ended:
            break
        if not store.records("_notes", "user deletions"):
            continue
        time.sleep(0.01)
        if session_id == "a1" and not all(head.deleting for head in all_heads(store, "ada")):
            continue  # an unmarked session is still the old one, and is deleted whole
        settings = config(store)
        with AgentMemory(settings) as memory:
            memory.update(session_id, user("said again"), user_id="ada")
            finish(memory, settings)
            memory.flush()
            assert [one.message.text() for one in memory.history(session_id)] == ["said again"]
            found = [one.text for one in memory.search("said", user_id="ada")]
            assert found == ["said again"], steps
            assert [head.session_id for head in memory.sessions(user_id="ada")] == [session_id]
        assert not store.records("_notes", "user deletions")
    assert step > 20


@pytest.mark.usefixtures("short_leases")
def test_a_failed_deletion_does_not_block_other_work(caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: a deletion that fails blocks other users' deletions, or other work of a flush."""
    store = MemoryStore()
    filled(store)

    class Stuck(Notes):
        def delete(self, scope: Scope) -> None:
            if scope.user_id == "ada":
                raise ConnectionError("not now")
            super().delete(scope)

    settings = config(store, Stuck())
    with AgentMemory(settings) as memory:
        with pytest.raises(ConnectionError):
            memory.delete_user("ada")
        with AgentMemory(config(watched(store, cut_at(6)[0]))) as other, pytest.raises(Cut):
            other.delete_user("bob")
        with AgentMemory(store=store) as other:
            other.update("c", user("said in c"), user_id="cleo")
        memory.flush()
        assert not memory.sessions(user_id="bob")
        assert lists(memory, "c", "cleo")
        assert not memory.sessions(user_id="ada")
    assert "not now" in caplog.text
    with AgentMemory(config(store)) as memory:
        memory.flush()
    assert traces(store) == []


@pytest.mark.usefixtures("short_leases")
def test_marked_sessions_do_not_end_a_listing() -> None:
    """Wrong: a page of sessions marked for deletion ends the listing."""
    store = MemoryStore()
    with AgentMemory(config(store)) as memory:
        for n in range(130):
            memory.update(f"s{n:03}", user("hello"), user_id="ada")
        memory.update("t", user("hello"), user_id="bob")

        def fail(step: str) -> None:
            if step == "before delete":
                raise Cut

        with AgentMemory(config(watched(store, fail))) as cut, pytest.raises(Cut):
            cut.delete_user("ada")
        assert [head.session_id for head in memory.sessions()] == ["t"]
        assert [head.session_id for head in memory.sessions(limit=1)] == ["t"]
        assert memory.sessions(limit=0) == []


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.mark.parametrize("again", [False, True], ids=["gone", "begun anew"])
@pytest.mark.parametrize("kind", [Notes, Elsewhere])
def test_no_late_writes(kind: type[Notes | Elsewhere], again: bool, gate: threading.Event) -> None:
    """Wrong: a timed-out block that ends after a deletion restores the deleted messages."""
    entered = threading.Event()
    ends = threading.Semaphore(0)

    def stall() -> None:
        if not entered.is_set():
            entered.set()
            assert gate.wait(SECONDS)
            ends.release()

    block = Notes(within=stall) if kind is Notes else Elsewhere(within=stall, kept={})
    kept = block.kept if isinstance(block, Elsewhere) else {}
    store = MemoryStore()
    with AgentMemory(config(store, block, absorb_timeout=0.5)) as memory:
        memory.update("s", user("the old secret"), user_id="ada")  # times out after 0.5 s
        assert entered.is_set()
        memory.delete("s")
        if again:
            memory.update("s", user("something new"), user_id="ada")
        gate.set()
        assert ends.acquire(timeout=SECONDS)
        wait_for_calls(block.name)
        memory.flush()
        found = [*kept.values(), *(fact.text for fact in store.records("notes", "user:ada"))]
        assert found == (["something new"] if again else [])


@pytest.mark.parametrize("call", ["delete", "delete_user"])
def test_a_deletion_waits_for_a_block_that_is_writing(call: str, gate: threading.Event) -> None:
    """Wrong: a deletion returns while a block is still writing the session's records."""
    entered = threading.Event()

    def stall() -> None:
        entered.set()
        assert gate.wait(SECONDS)

    block = Elsewhere(within=stall, kept={})
    settings = config(MemoryStore(), block, overflow_mode="background")
    with AgentMemory(settings) as memory, ThreadPoolExecutor() as pool:
        memory.update("s", user("the old secret"), user_id="ada")
        assert entered.wait(SECONDS)
        done = pool.submit(getattr(memory, call), "s" if call == "delete" else "ada")
        until(lambda: not memory.sessions())
        assert not memory.history("s")
        time.sleep(0.05)
        assert not done.done()
        gate.set()
        done.result(SECONDS)
        assert not block.kept


def test_a_lease_delays_a_deletion(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a deletion that cannot get the lease reports success, or is never completed."""
    monkeypatch.setattr("agent_memory.engine.leases._WAIT_SECONDS", 0.1)
    monkeypatch.setattr("agent_memory.engine.processing.worker.POLL_SECONDS", 0.02)
    entered = threading.Event()

    def stall() -> None:
        entered.set()
        assert gate.wait(SECONDS)

    store = MemoryStore()
    with AgentMemory(config(store, Notes(within=stall), overflow_mode="background")) as memory:
        memory.update("s", user("the old secret"), user_id="ada")
        assert entered.wait(SECONDS)
        with pytest.raises(StoreUnavailable, match="marked for deletion"):
            memory.delete("s")
        gate.set()
        until(lambda: store.head("s") is None)
    assert traces(store) == []


def begin_to_delete(store: Store, session_id: str) -> Head | None:
    head = store.head(session_id)
    return store.move(replace(head, deleting=True)) if head else None


@pytest.mark.parametrize("times", [1, 2, 7])
def test_an_update_succeeds_while_its_session_is_deleted_repeatedly(times: int) -> None:
    """Wrong: an update fails because its session is being deleted at that moment."""
    store, left = MemoryStore(), times

    def watch(step: str) -> None:
        nonlocal left
        if step == "before append" and left:
            left -= 1
            store.append("s", [Draft(Message.of(user("of before")), 1, "x")])
            assert begin_to_delete(store, "s")

    with AgentMemory(config(watched(store, watch))) as memory:
        assert memory.update("s", user("of now")).end == 1
        assert [one.message.text() for one in memory.history("s")] == ["of now"]
    assert left == 0


def test_an_update_fails_after_many_concurrent_deletions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an update waits for ever for a session that is deleted again and again."""
    monkeypatch.setattr("agent_memory.engine.edit.delete._PATIENCE", 0.0)
    store = MemoryStore()

    def watch(step: str) -> None:
        if step == "before append":
            store.append("s", [Draft(Message.of(user("of before")), 1, "x")])
            begin_to_delete(store, "s")

    with (
        AgentMemory(config(watched(store, watch))) as memory,
        pytest.raises(StoreUnavailable, match=r"deleted again and again.*Nothing was stored"),
    ):
        memory.update("s", user("of now"))


@pytest.mark.long
@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_concurrent_updates_and_deletions_of_a_session_succeed(where: str, tmp_path: Path) -> None:
    """Wrong: among many threads an update or a deletion fails, or messages are left."""
    store = "memory://" if where == "memory" else f"sqlite:///{tmp_path}/m.db"
    with AgentMemory(config(store)) as memory, ThreadPoolExecutor(6) as pool:

        def go_on(name: int) -> None:
            for count in range(50):
                assert memory.update("s", user(f"{name} {count}")).end > 0
                memory.delete("s")

        for done in [pool.submit(go_on, name) for name in range(6)]:
            done.result()
        assert memory.history("s") == []
        assert memory.update("s", user("still here")).end == 1
        memory.flush()
        assert [one.text for one in memory.search("here", session_id="s")] == ["still here"]


CANARY = re.compile(rb"canary[0-9a-f]{12}")


class Canaries:
    """Random words, by the place where they were stored."""

    def __init__(self) -> None:
        self.words: dict[str, str] = {}

    def __getitem__(self, place: str) -> str:
        return self.words.setdefault(place, f"canary{secrets.token_hex(6)}")

    def in_files(self, folder: Path) -> list[str]:
        """Return the places whose words are in a file of the folder."""
        found = {word for file in folder.iterdir() for word in CANARY.findall(file.read_bytes())}
        return sorted(place for place, word in self.words.items() if word.encode() in found)


def answers(canaries: Canaries) -> Callable[[dict[str, Any]], str]:
    """Return a model that repeats its input, with words of its own."""

    def answer(body: dict[str, Any]) -> str:
        if "response_format" not in body:
            return f"They spoke of {canaries['summary']}."
        found = re.findall(r"^\[?(\d+).*(I keep \w+)", body["messages"][1]["content"], re.MULTILINE)
        fact = {"text": "They keep it.", "subject": canaries["fact"]}
        facts = [{**fact, "message": int(number), "quote": quote} for number, quote in found]
        return json.dumps({"facts": facts, "answers": []})

    return answer


class Picky(Silent):
    """Fails on sessions with a canary, and quotes their text."""

    kind: str = "picky"

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        if "canary" in entries[0].session_id:
            raise ValueError(f"I do not like {entries[0].message.text()}")


@pytest.mark.parametrize("mode", ["inline", "background"])
@pytest.mark.parametrize("call", ["delete", "delete_user"])
def test_a_deletion_leaves_no_text_in_the_files(call: str, mode: Any, tmp_path: Path) -> None:
    """Wrong: deleted text is left in the database files, even while the memory is open."""
    canaries = Canaries()
    blocks = [ExtractiveMemory(), VectorMemory(), Picky()]
    with FakeLLM(answers(canaries)) as fake:
        flush = FlushToLTM(blocks=blocks, absorb="every_update")
        memory = AgentMemory(
            store=f"sqlite:///{tmp_path}/m.db",
            max_tokens=600,
            absorb_attempts=1,
            overflow_mode=mode,
            overflow=Chain([flush, Summarize(max_summary_tokens=60)]),
            model="openai/any",
            api_base=fake.api_base,
            api_key="k",
        )
        with memory:
            sid, uid = canaries["session id"], canaries["user id"]
            asked = histories.call(["c1"], "f", json.dumps({"x": canaries["arguments"]}))
            answer = histories.result("c1", canaries["tool result"])
            memory.update("kept", user("Bees are mine.", name="bob"), user_id="bob")
            for n in range(8):
                memory.update(
                    sid,
                    [
                        {"role": "system", "content": f"Be kind to {canaries['system']}."},
                        user(f"I keep {canaries['text']} {n}.", name=canaries["name"]),
                        *(asked, answer),
                        user("And " * 30, metadata={"of": canaries["metadata"]}),
                        user("Hm.", beyond={"field": canaries["unknown field"]}),
                    ],
                    user_id=uid,
                )
            memory.flush()
            assert operations.dead_letters(memory, "picky")[0].session_id == sid
            assert canaries["text"] in operations.dead_letters(memory, "picky")[0].error
            head = memory.sessions(user_id=uid)[0]
            assert canaries["summary"] in head.summary.text
            found = memory.search("keep", user_id=uid)
            assert any(canaries["fact"] == one.metadata.get("subject") for one in found)
            assert canaries.in_files(tmp_path) == sorted(canaries.words)
            getattr(memory, call)(sid if call == "delete" else uid)
            assert canaries.in_files(tmp_path) == []
            assert [one.message.text() for one in memory.history("kept")] == ["Bees are mine."]
            assert memory.search("bees", user_id="bob")
    assert canaries.in_files(tmp_path) == []


@pytest.mark.long
@pytest.mark.usefixtures("short_leases")
@pytest.mark.parametrize("finish", [by_flush, by_worker])
@pytest.mark.parametrize("call", ["delete", "delete_user"])
def test_completing_a_deletion_leaves_no_text(call: str, finish: Way, tmp_path: Path) -> None:
    """Wrong: completing a deletion that was interrupted near its end leaves text in the files."""
    for where in ("before delete", "after delete", "before secure_erase", "after secure_erase"):
        canaries, folder = Canaries(), tmp_path / where
        folder.mkdir()
        url = f"sqlite:///{folder}/m.db"

        def watch(step: str, where: str = where) -> None:
            if step == where:
                raise Cut

        sid, uid = canaries["session id"], canaries["user id"]
        with AgentMemory(config(url)) as memory:
            yesterday = datetime.now(UTC) - timedelta(days=1)
            for _ in range(40):
                memory.update(sid, user(canaries["text"] * 20, created_at=yesterday), user_id=uid)
            cutting = AgentMemory(config(watched(memory._store, watch)))
            with pytest.raises(Cut):
                getattr(cutting, call)(sid if call == "delete" else uid)
            cutting.close()
            time.sleep(0.01)
            finish(memory, config(url))
            assert canaries.in_files(folder) == [], where
