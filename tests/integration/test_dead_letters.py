"""Dead letters: messages that a block cannot absorb are stored, listed, and retried."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, ConfigError, FlushToLTM, operations
from agent_memory.core.records import Absorbed, Entry, Scope
from agent_memory.errors import (
    ModelForbidden,
    ModelOutputInvalid,
    ModelUnavailable,
    StoreUnavailable,
)
from agent_memory.stores import MemoryStore
from agent_memory.testing.watching import watched
from tests.kit import Cut, Silent
from tests.kit import user as say


@dataclass
class World:
    """State that blocks of several memories share: the messages taken, and the errors to raise."""

    taken: Counter[tuple[str, int]] = field(default_factory=Counter)
    owners: set[str] = field(default_factory=set)
    bad: str = "poison"
    down: Exception | None = None
    stuck: bool = False

    def seqs(self, session: str) -> dict[int, int]:
        return {seq: n for (name, seq), n in sorted(self.taken.items()) if name == session}


class Picky(Silent):
    """Fails on batches with a bad message."""

    kind: str = "picky"
    world: Any = None

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        if self.world.down is not None:
            raise self.world.down
        if self.world.bad and any(self.world.bad in entry.message.text() for entry in entries):
            raise ModelOutputInvalid("it makes no sense to me")
        self.world.owners.add(scope.owner)
        self.world.taken.update((entry.session_id, entry.seq) for entry in entries)

    def delete(self, scope: Scope) -> None:
        if self.world.stuck:
            raise ConnectionError("it cannot forget now")
        for session, seq in list(self.world.taken):
            if session == scope.session_id and seq > scope.after:
                del self.world.taken[session, seq]


def open_memory(world: World, store: Any, attempts: int = 3, **fields: Any) -> AgentMemory:
    strategy = FlushToLTM(blocks=[Picky(world=world)], absorb="every_update")
    return AgentMemory(store=store, overflow=strategy, absorb_attempts=attempts, **fields)


def ranges(memory: AgentMemory) -> list[tuple[str, int, int, int]]:
    letters = operations.dead_letters(memory, "picky")
    stats = memory.stats()
    assert stats.blocks["picky"].dead_letters == len(letters)
    assert stats.dead_letters == len(operations.dead_letters(memory))
    return [(one.session_id, one.first, one.last, one.attempts) for one in letters]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still, so that a block that failed is not retried by itself."""
    now = [0.0]
    monkeypatch.setattr("agent_memory.engine.recall.runner.monotonic", lambda: now[0])
    return now


def give_up(memory: AgentMemory, session: str, *texts: str, user: str | None = None) -> None:
    """Turn messages into a dead letter with as few calls as possible."""
    memory.update(session, [say(text) for text in texts], user_id=user)
    for _ in range(memory.config.absorb_attempts - 1):
        memory.flush(session)


def test_attempts_are_counted_across_memories_and_restarts(world: World, url: str) -> None:
    """Wrong: each process counts its own attempts, so that several never give up."""
    with open_memory(world, url, 5) as one, open_memory(world, url, 5) as two:
        one.update("s", say("poison"), user_id="ada")
        two.flush("s")
        one.flush("s")
        assert ranges(one) == ranges(two) == []
    with open_memory(world, url, 5) as three:
        three.flush("s")
        assert ranges(three) == []
        assert three.stats().blocks["picky"].lag == 1
        (last,) = three.flush("s")
        assert last.error is not None
        assert ranges(three) == [("s", 1, 1, 5)]
        (letter,) = operations.dead_letters(three)
        assert letter.error == "ModelOutputInvalid: it makes no sense to me"
        assert letter.since.tzinfo == UTC
        assert three.stats().blocks["picky"].lag == 0
        assert len(three.history("s")) == 1
    with open_memory(world, url, 5) as four:
        assert operations.dead_letters(four) == [letter]
        with pytest.raises(ConfigError, match="picky"):
            operations.dead_letters(four, "no such block")


@pytest.mark.parametrize("error", [ModelUnavailable("asleep"), ConnectionError("no way")])
def test_every_process_reports_the_failure_of_a_block(
    world: World, tmp_path: Path, clock: list[float], error: Exception
) -> None:
    """Wrong: a failure is reported only by its own process, or after the block works again."""
    store = f"sqlite:///{tmp_path}/m.db"
    world.down = error
    told = f"{type(error).__name__}: {error}"
    with open_memory(world, store) as here:
        for session in "s", "t":
            here.update(session, say("fine"), user_id="ada")
        with open_memory(world, store) as there:
            assert there.stats().blocks["picky"].error == told
            assert any(told in one for one in there.get("s").warnings)
            assert [one for one in there.get("u", user_id="ben").warnings if "picky" in one]
        world.down = None
        clock[0] = 1e6
        with open_memory(world, store) as there:
            there.flush("t")
            assert there.stats().blocks["picky"].error is None
            assert there.get("s").warnings == []
        with open_memory(world, store) as anywhere:
            assert anywhere.stats().blocks["picky"].error is None
            assert anywhere.get("s").warnings == []
            anywhere.flush()
            assert world.seqs("s") == world.seqs("t") == {1: 1}


def test_a_bad_message_does_not_stop_later_messages(world: World) -> None:
    """Wrong: a bad message blocks later messages, other sessions, users or blocks."""
    other = World(bad="")
    blocks = [Picky(world=world), Picky(name="easy", world=other)]
    overflow = FlushToLTM(blocks=blocks, absorb="every_update")
    with AgentMemory("memory://", overflow=overflow, absorb_attempts=3) as memory:
        memory.update("s", say("poison"), user_id="ada")
        memory.flush("s")
        memory.update("t", say("fine"), user_id="ada")
        memory.update("u", say("fine"), user_id="bob")
        assert world.taken == {("t", 1): 1, ("u", 1): 1}
        assert ranges(memory) == []
        memory.flush("s")
        assert ranges(memory) == [("s", 1, 1, 3)]
        memory.update("s", say("and on"))
        assert world.seqs("s") == {2: 1}
        assert memory.get("s").warnings == []
        assert operations.dead_letters(memory, "easy") == []
        assert other.seqs("s") == {1: 1, 2: 1}


def test_only_the_bad_message_of_a_batch_becomes_a_dead_letter(world: World) -> None:
    """Wrong: messages next to one that a model refuses become a dead letter with it."""
    with open_memory(world, "memory://", 8, quiet_seconds=0) as memory:
        texts = [*map(str, range(100)), "poison", *map(str, range(59))]
        memory.update("s", [say(text) for text in texts])
        calls = 1
        while memory.stats().blocks["picky"].lag:
            memory.flush("s")
            calls += 1
        assert ranges(memory) == [("s", 101, 101, 8)]
        assert world.seqs("s") == {seq: 1 for seq in range(1, 161) if seq != 101}
        assert calls < 40


def test_a_retry_absorbs_and_removes_a_dead_letter(world: World) -> None:
    """Wrong: a retry does not absorb a dead letter, or absorbs it twice."""
    with open_memory(world, "memory://", 1) as memory:
        give_up(memory, "s", "poison", "x")
        give_up(memory, "t", "poison")
        memory.update("s", say("later"))
        world.bad = ""
        assert operations.retry(memory, "picky") == [
            Absorbed("s", "picky", 1, 2),
            Absorbed("t", "picky", 1, 1),
        ]
        assert world.seqs("s") == {1: 1, 2: 1, 3: 1}
        assert world.seqs("t") == {1: 1}
        assert ranges(memory) == []
        assert operations.retry(memory) == []
        memory.flush()
        assert world.seqs("s") == {1: 1, 2: 1, 3: 1}


def test_a_failed_retry_does_not_lose_the_dead_letter(world: World) -> None:
    """Wrong: a retry that fails loses the dead letter."""
    with open_memory(world, "memory://", 2) as memory:
        give_up(memory, "s", "poison")
        (failed,) = operations.retry(memory)
        assert (failed.first, failed.last) == (1, 0)
        assert failed.error is not None
        assert ranges(memory) == [("s", 1, 1, 3)]
        world.down = ConnectionError("down")
        operations.retry(memory)
        assert ranges(memory) == [("s", 1, 1, 4)]
        assert operations.dead_letters(memory)[0].error == "ConnectionError: down"


@pytest.mark.parametrize(
    "error", [ConnectionError, TimeoutError, ModelUnavailable, ModelForbidden, StoreUnavailable]
)
def test_an_outage_creates_no_dead_letter(world: World, error: type[Exception]) -> None:
    """Wrong: an outage of the model turns messages into dead letters, or counts as an attempt."""
    with open_memory(world, "memory://", 2) as memory:
        world.down = error("down")
        memory.update("s", [say("fine"), say("too")])
        for _ in range(30):
            memory.flush()
        assert ranges(memory) == []
        world.down, world.bad = None, "too"
        memory.flush()
        world.down = error("down")
        memory.flush()
        assert ranges(memory) == []
        world.down, world.bad = None, ""
        memory.flush()
        assert ranges(memory) == []
        assert world.seqs("s") == {1: 1, 2: 1}


@pytest.mark.parametrize("attempts", [1, 2, 50])
def test_a_change_of_absorb_attempts_loses_no_dead_letter(world: World, attempts: int) -> None:
    """Wrong: after a change of `absorb_attempts` a failed retry removes the dead letter."""
    store = MemoryStore()
    with open_memory(world, store, 2) as memory:
        give_up(memory, "s", "poison")
    with open_memory(world, store, attempts) as memory:
        operations.retry(memory)
        assert ranges(memory) == [("s", 1, 1, 3)]
        world.bad = ""
        operations.retry(memory)
        assert world.seqs("s") == {1: 1}
        assert ranges(memory) == []


def test_a_lower_absorb_attempts_applies_to_the_next_attempt(world: World) -> None:
    """Wrong: after `absorb_attempts` was lowered, a failing batch is tried for ever."""
    store = MemoryStore()
    with open_memory(world, store, 8) as memory:
        memory.update("s", say("poison"))
        for _ in range(4):
            memory.flush()
    with open_memory(world, store, 3) as memory:
        memory.flush()
        assert ranges(memory) == [("s", 1, 1, 6)]


def test_pop_removes_the_dead_letter_of_popped_messages(world: World) -> None:
    """Wrong: a dead letter is still listed after its messages were popped."""
    with open_memory(world, "memory://", 1) as memory:
        memory.update("s", [say("fine"), say("fine")])
        give_up(memory, "s", "poison", "x")
        assert ranges(memory) == [("s", 3, 4, 1)]
        assert len(memory.pop("s", 2)) == 2
        assert ranges(memory) == []
        memory.update("s", say("good"))
        assert world.seqs("s") == {1: 1, 2: 1, 3: 1}


def test_pop_does_not_change_an_older_dead_letter(world: World) -> None:
    """Wrong: a pop of newer messages removes or renews an older dead letter."""
    with open_memory(world, "memory://", 1) as memory:
        give_up(memory, "s", "poison", "x")
        memory.update("s", [say("a"), say("b")])
        memory.pop("s", 1)
        assert ranges(memory) == [("s", 1, 2, 1)]
        assert world.seqs("s") == {3: 1}


@pytest.mark.parametrize("mended", [True, False])
def test_pop_makes_the_rest_of_a_dead_letter_pending(world: World, mended: bool) -> None:
    """Wrong: the rest of a dead letter that a pop shortened is neither listed nor absorbed."""
    with open_memory(world, "memory://", 1) as memory:
        memory.update("s", [say("fine"), say("fine")])
        give_up(memory, "s", "a", "poison", "b", "c")
        assert ranges(memory) == [("s", 3, 6, 1)]
        memory.pop("s", 2)
        assert ranges(memory) == []
        assert memory.stats().blocks["picky"].lag == 2
        if mended:
            world.bad = ""
        memory.flush()
        memory.flush()
        assert world.seqs("s") == ({1: 1, 2: 1, 3: 1, 4: 1} if mended else {1: 1, 2: 1})
        assert ranges(memory) == ([] if mended else [("s", 3, 4, 1)])


def test_a_failed_pop_loses_no_message(world: World) -> None:
    """Wrong: after a pop that failed, a block lacks messages that are still in the log."""
    other = World()
    blocks = [Picky(world=world), Picky(name="other", world=other)]
    with AgentMemory(store="memory://", blocks=blocks, absorb_attempts=1) as memory:
        memory.update("s", [say("a"), say("b"), say("poison"), say("c")])
        memory.flush()
        assert ranges(memory) == [("s", 1, 4, 1)]
        memory.update("s", [say("d"), say("e")])
        memory.flush()
        other.stuck = True
        with pytest.raises(ConnectionError):
            memory.pop("s", 3)
        assert len(memory.history("s")) == 6
        other.stuck, world.bad, other.bad = False, "", ""
        memory.flush()
        operations.retry(memory)
        assert world.seqs("s") == other.seqs("s") == dict.fromkeys(range(1, 7), 1)
        assert ranges(memory) == []


@pytest.mark.parametrize("mended", [True, False])
def test_replay_tries_dead_letters_again(world: World, mended: bool) -> None:
    """Wrong: a replay duplicates a dead letter, loses it, or keeps one for absorbed messages."""
    with open_memory(world, "memory://", 2) as memory:
        memory.update("s", say("fine"))
        give_up(memory, "s", "poison", "x")
        memory.update("s", say("fine"))
        if mended:
            world.bad = ""
        list(memory.replay("picky"))
        if not mended:
            assert ranges(memory) == []
            assert memory.stats().blocks["picky"].lag == 4
            memory.flush()
            assert ranges(memory) == [("s", 1, 2, 2)]
            world.bad = ""
            memory.flush()
            operations.retry(memory)
        assert ranges(memory) == []
        assert world.seqs("s") == dict.fromkeys(range(1, 5), 1)


def test_dead_letters_are_absorbed_for_a_later_user_of_the_session(world: World) -> None:
    """Wrong: dead letters are not absorbed for the user whom the session gets later."""
    with open_memory(world, "memory://", 1) as memory:
        give_up(memory, "s", "poison", "x")
        assert ranges(memory) == [("s", 1, 2, 1)]
        world.bad = ""
        memory.update("s", say("I'm Ada."), user_id="ada")
        assert world.seqs("s") == {1: 1, 2: 1, 3: 1}
        assert world.owners == {"user:ada"}
        assert ranges(memory) == []


@pytest.mark.parametrize("step", ["before put_records", "after put_records", "before move"])
def test_a_crash_while_giving_up_loses_no_message(world: World, step: str) -> None:
    """Wrong: a crash leaves a dead letter for absorbed messages, or loses messages."""
    store, watching = MemoryStore(), [False]

    def watch(now: str) -> None:
        if watching[0] and now == step:
            raise Cut

    memory = open_memory(world, watched(store, watch), 2)
    memory.update("s", say("fine"))
    memory.update("s", say("poison"))
    watching[0] = True
    with pytest.raises(Cut):
        memory.flush("s")
    memory.close()
    with open_memory(world, store, 2) as memory:
        world.bad = ""
        memory.flush("s")
        assert world.seqs("s") == {1: 1, 2: 1}
        assert ranges(memory) == []


def test_an_absorbed_batch_removes_its_failed_attempts(world: World, url: str) -> None:
    """Wrong: failed attempts stay counted after another process absorbed the batch."""
    with open_memory(world, url, 3) as memory, open_memory(world, url, 3) as other:
        memory.update("s", say("fine"))
        other.update("s", say("poison"))
        assert memory.stats().blocks["picky"].error is not None
        world.bad = ""
        memory.flush()
        assert world.seqs("s") == {1: 1, 2: 1}
        assert memory._store.records("_failed", "picky") == []
