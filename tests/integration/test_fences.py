"""Workers that stall during their work while others take over their sessions."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from agent_memory import AgentMemory, FlushToLTM, Message, StoreError, operations
from agent_memory.core.records import Entry, Lease, Recall, Scope
from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing.watching import watched
from tests.kit import Echo, Silent, running, wait_for_calls

Kept = dict[tuple[str, int], tuple[str, str]]
"""The owner and text of a block's records, by session and seq."""


class Notes(Silent):
    """A block with its own database, without leases."""

    kind: str = "notebook"
    pages: Any
    step: Any

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.step("before write")
        for entry in entries:
            self.pages[entry.session_id, entry.seq] = scope.owner, entry.message.text()
            self.step("after write")

    def delete(self, scope: Scope) -> None:
        self.step("before erase")
        for (session, seq), (owner, _) in list(self.pages.items()):
            mine = owner == scope.owner if scope.session_id is None else session == scope.session_id
            if mine and seq > scope.after:
                del self.pages[session, seq]
        self.step("after erase")


class Facts(Echo):
    """A block that stores its records in the engine's store, under the lease."""

    kind: str = "facts"

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return []


@dataclass
class Steps:
    """Counts the steps of one memory's work, and calls `then` at one of them."""

    left: int = 0
    then: Callable[[], None] | None = None
    at: str = ""

    def __call__(self, step: str) -> None:
        if step.startswith("after") and step != "after write":
            return
        self.left -= 1
        if self.left < 0 and self.then is not None:
            then, self.then, self.at = self.then, None, step
            then()


@dataclass
class Place:
    """One store, the notebook's pages, and two memories over both."""

    store: MemoryStore = field(default_factory=MemoryStore)
    pages: Kept = field(default_factory=dict)
    steps: Steps = field(default_factory=Steps)
    absorb_timeout: float = 300.0

    def __post_init__(self) -> None:
        self.one = self._opened(self.steps)
        self.two = self._opened(lambda step: None)

    def _opened(self, step: Callable[[str], None]) -> AgentMemory:
        blocks = [Facts(), Notes(pages=self.pages, step=step)]
        overflow = FlushToLTM(blocks=blocks, max_stm_ratio=0.9)
        store = watched(self.store, step)
        return AgentMemory(
            store=store,
            max_tokens=2000,
            overflow=overflow,
            absorb_attempts=1,
            absorb_timeout=self.absorb_timeout,
        )

    def add(self, *texts: str, session: str = "s", user: str | None = "ann") -> None:
        given = [{"role": "user", "content": text} for text in texts]
        self.two.update(session, given, user_id=user)

    def check(self) -> None:
        """Assert that the blocks hold exactly the logs' messages."""
        self.steps.then = None
        for memory in (self.one, self.two):
            assert {done.error for done in memory.flush()} <= {None}
            operations.retry(memory)
        wanted: Kept = {}
        for head in self.two.sessions():
            owner = Scope(head.user_id, head.session_id).owner
            for entry in self.two.history(head.session_id):
                wanted[head.session_id, entry.seq] = owner, entry.message.text()
        facts: Kept = {}
        for owner in ("user:ann", "user:bob", "session:s", "session:t"):
            for one in self.store.records("facts", owner):
                assert (one.session_id, one.first) not in facts
                facts[one.session_id, one.first] = owner, one.text
        assert (facts, self.pages) == (wanted, wanted), self.steps.at
        assert self.two.stats().dead_letters == 0


@pytest.fixture(autouse=True)
def _leases_of_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory.engine.leases.LEASE_SECONDS", 0.0)
    monkeypatch.setattr("agent_memory.engine.leases._BEAT_SECONDS", 3600.0)
    # run blocks one after the other, so that steps have a fixed order
    monkeypatch.setattr(
        "agent_memory.engine.processing.absorb.in_parallel",
        lambda calls: [call() for call in calls],
    )


Act = Callable[[Place], None]


def absorbs(place: Place) -> None:
    place.one.flush("s")


def takes_a_turn(place: Place) -> None:
    place.one.components.work.process("s", scheduled=True)


def deletes(place: Place) -> None:
    place.one.delete("s")


def deletes_the_user(place: Place) -> None:
    place.one.delete_user("ann")


def pops(place: Place) -> None:
    place.one.pop("s", 2)


def retries(place: Place) -> None:
    operations.retry(place.one)


def replays(place: Place) -> None:
    for _ in place.one.replay("notebook"):
        pass


def absorbs_more(place: Place) -> None:
    place.one.flush("s")


WORK = [absorbs, absorbs_more, deletes, deletes_the_user, pops, retries, replays]


def appends_more(place: Place) -> None:
    place.add("four", "five")
    place.two.flush()


def is_gone(place: Place) -> None:
    place.two.delete("s")


def deletes_and_appends(place: Place) -> None:
    place.two.delete("s")
    place.add("fresh")
    place.two.flush()


def deletes_and_appends_unabsorbed(place: Place) -> None:
    place.two.delete("s")
    place.add("fresh", "fruit", "for", "all")


def passes_to_another_user(place: Place) -> None:
    place.two.delete("s")
    place.add("bob's", user="bob")
    place.two.flush()


def is_shorter(place: Place) -> None:
    place.two.pop("s", 2)


def pops_and_appends(place: Place) -> None:
    place.two.pop("s", 2)
    place.add("two, again")
    place.two.flush()


def pops_and_appends_unabsorbed(place: Place) -> None:
    place.two.pop("s", 2)
    place.add("two, again")


def loses_its_user(place: Place) -> None:
    place.two.delete_user("ann")
    place.add("who am I", session="t", user="ann")
    place.two.flush()


BETWEEN = [
    *(
        appends_more,
        is_gone,
        deletes_and_appends,
        deletes_and_appends_unabsorbed,
        passes_to_another_user,
        is_shorter,
    ),
    *(pops_and_appends, pops_and_appends_unabsorbed, loses_its_user),
]


def stalled(prepare: Callable[[], Place], between: Act) -> Iterator[Place]:
    """Yield new places. In each, the first memory stalls one step later."""
    for left in range(10_000):
        place = prepare()
        place.steps.left, place.steps.then = left, partial(between, place)
        yield place
        if not place.steps.at:
            assert left > 2
            return


def prepared(work: Act) -> Place:
    """Return a place with a session that is absorbed in part, or has a dead letter for retries."""
    place = Place()
    if work in (absorbs, takes_a_turn):
        place.add("one", "two", "three")
        place.two.components.store.schedule_all()
        return place
    if work is absorbs_more:
        place.add("one")
        place.two.flush()
        place.add("two", "three")
        return place
    if work is retries:
        broken = place.two.blocks["notebook"]
        place.add("one", "two", "three")
        object.__setattr__(broken, "step", _fails)
        place.two.flush()
        object.__setattr__(broken, "step", lambda step: None)
        assert len(operations.dead_letters(place.two)) == 1
        return place
    place.add("one", "two", "three")
    place.two.flush()
    return place


def _fails(step: str) -> None:
    if step == "before write":
        raise ValueError("no such answer")


def ends_right(place: Place, work: Act) -> None:
    """Do the work, which may fail only if it was stalled, and check the blocks."""
    try:
        work(place)
    except StoreError:
        assert place.steps.at
    if place.steps.at:
        place.check()


@pytest.mark.long
@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("work", WORK)
def test_a_stalled_worker_overwrites_no_newer_data(work: Act, between: Act) -> None:
    """Wrong: a worker that stalled overwrites newer data with its old state."""
    for place in stalled(lambda: prepared(work), lambda place: _meanwhile(place, between)):
        ends_right(place, work)


def _meanwhile(place: Place, between: Act) -> None:
    text = "SELECT holder FROM agent_memory_documents WHERE collection = 'head'"
    owner = place.store._kernel._database.read(lambda it: it.value(text))
    between(place)
    if owner:  # the worker renews its lease before it continues
        place.one.components.leases.renew(Lease("s", owner))


def marked() -> Place:
    place = Place()
    place.add("old")
    head = place.store.head("s")
    assert head is not None
    assert place.store.move(replace(head, deleting=True))
    return place


def filled() -> Place:
    place = Place()
    place.add("one", "two", "three")
    place.two.flush()
    return place


def nobodys() -> Place:
    place = Place()
    place.add("one", "two", user=None)
    return place


@pytest.mark.parametrize(
    "work",
    [
        lambda place: place.one.update("s", {"role": "user", "content": "more"}),
        lambda place: place.one.flush("s"),
        lambda place: place.one.flush(),
        lambda place: place.one.components.work.process("s", scheduled=True),
    ],
)
def test_completing_a_deletion_keeps_the_next_session(work: Callable[[Place], object]) -> None:
    """Wrong: a worker that completes a deletion also deletes the new session under that id."""
    for place in stalled(marked, lambda place: place.add("fresh", user=None)):
        work(place)
        if place.steps.at:
            said = [entry.message.text() for entry in place.two.history("s")]
            assert "fresh" in said, place.steps.at
            assert "old" not in said
            place.check()


def test_pops_and_deletions_remove_no_newer_message() -> None:
    """Wrong: a pop or a deletion removes a newer message that it does not return."""
    for place in stalled(filled, lambda place: place.add("four")):
        taken = [message.text() for message in place.one.pop("s", 1)]
        if place.steps.at:
            left = [entry.message.text() for entry in place.two.history("s")]
            assert sorted([*left, *taken]) == ["four", "one", "three", "two"], place.steps.at
            assert taken in (["three"], ["four"])
            place.check()
    for place in stalled(filled, passes_to_another_user):
        place.one.delete_user("ann")
        if place.steps.at:
            heads = {head.session_id: head.user_id for head in place.two.sessions()}
            assert heads == {"s": "bob"}, place.steps.at
            place.check()


def gets_a_user_and_is_absorbed(place: Place) -> None:
    place.add("I am Ann")
    place.two.flush()


@pytest.mark.parametrize(
    "between", [lambda place: place.add("I am Ann"), gets_a_user_and_is_absorbed]
)
@pytest.mark.parametrize("work", [absorbs, takes_a_turn, pops, deletes, replays])
def test_records_move_to_the_user_that_a_session_gets(work: Act, between: Act) -> None:
    """Wrong: records of a session stay under the session after it got a user."""
    for place in stalled(nobodys, between):
        ends_right(place, work)


def test_a_block_that_failed_to_forget_leaves_no_records_of_the_session() -> None:
    """Wrong: a block that failed to forget keeps records under the session besides the user's."""
    place = nobodys()
    place.two.flush()
    notebook = place.two.blocks["notebook"]

    def fails(step: str) -> None:
        if step == "before erase":
            raise ValueError("can not forget")

    object.__setattr__(notebook, "step", fails)
    place.add("I am Ann")
    for _ in range(3):
        place.two.flush()
    assert operations.dead_letters(place.two) == []
    object.__setattr__(notebook, "step", lambda step: None)
    place.check()
    assert {owner for owner, _ in place.pages.values()} == {"user:ann"}


def nothing(place: Place) -> None:
    pass


def is_retried(place: Place) -> None:
    place.two.flush()


@pytest.mark.long
@pytest.mark.parametrize("between", [nothing, is_retried, *BETWEEN])
@pytest.mark.parametrize("call", ["write", "erase"])
def test_late_writes_are_fixed(call: str, between: Act, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: writes or deletions of a timed-out block are never corrected."""
    place = Place(absorb_timeout=0.25)
    over, broken = threading.Event(), ["before " + call, "after " + call]

    def hangs(step: str) -> None:
        if step in broken:
            over.wait(60)

    place.add("one", "two", "three")
    object.__setattr__(place.one.blocks["notebook"], "step", hangs)
    assert [done.error for done in place.one.flush() if done.block == "notebook"] != [None]
    between(place)
    assert running("notebook")
    over.set()
    wait_for_calls("notebook")
    due = {head.session_id for head in place.store.due()}
    for head in place.two.sessions():
        assert head.session_id in due or not head.lag("notebook"), "nobody is to look at it again"
    place.check()
