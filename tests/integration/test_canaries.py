"""Many users call everything at random, and each says nothing without a word of their own: no call
gives one's word to another. `AGENT_MEMORY_CALLS=1000000` makes the run long."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from random import Random
from typing import Any

import pytest
from pydantic import BaseModel

from agent_memory import AgentMemory, Block, Session, User, operations
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Recall, Scope
from agent_memory.engine.guard import Guard
from agent_memory.errors import AgentMemoryError
from agent_memory.testing import FakeLLM
from tests.isolation.acts import NOT_CALLED, OPERATIONS, Act
from tests.isolation.canaries import Aviary, Canary, words_in
from tests.isolation.crowd import TEAMS, Crowd, Plan, Report
from tests.isolation.echo import Echo
from tests.isolation.run import blocks, run_crowd

FACES = (AgentMemory, Session, User)
CALLS = int(os.environ.get("AGENT_MEMORY_CALLS", "1800"))
CALLED = {call for row in OPERATIONS.values() for call in row.calls}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory.engine.processing.worker.POLL_SECONDS", 0.05)


@pytest.mark.timeout(300)
def test_nobody_reads_another_users_words(tmp_path: Path) -> None:
    """Wrong: a call, a log line or a request to the model holds what another user has said, or one
    who was deleted; or it raises what no caller expects; or something stays in the store's file."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count

    plan = Plan(f"sqlite:///{tmp_path}/m.db", "n", calls=CALLS, users=5, threads=4, seed=1)
    report = run_crowd(plan, advance)
    assert report.leaks == []
    assert report.done.total() == done == CALLS
    assert report.words > 300
    assert report.requests > 5
    assert report.refused["SessionOfAnotherUser"] > 50
    assert report.refused["AccessDenied"] > 10
    often = {row.name for row in OPERATIONS.values() if row.weight >= 0.4}
    assert often <= report.done.keys()


def test_one_thread_does_the_same_again(tmp_path: Path) -> None:
    """Wrong: a leak that a seed shows can't be looked at a second time."""
    reports = [
        run_crowd(Plan("memory://", "n", 200, 4, 1, seed), lambda count: None) for seed in (5, 5, 6)
    ]
    told = [(one.done, one.refused, one.errors, one.words) for one in reports]
    assert told[0] == told[1] != told[2]


def test_every_call_is_in_the_table() -> None:
    """Wrong: a new call is not looked at, and nobody notices."""
    public = set(operations.__all__) | {
        name for face in FACES for name in dir(face) if not name.startswith("_")
    }
    for name in sorted(public - CALLED - NOT_CALLED.keys()):
        pytest.fail(
            f"{name} is in no operation of tests/isolation/*_calls.py. Add one to the "
            "table, with whose words it may give back; or say in NOT_CALLED why there is none."
        )
    assert CALLED | NOT_CALLED.keys() <= public
    assert not CALLED & NOT_CALLED.keys()


def test_each_operation_makes_its_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an operation says that it makes a call, and never does."""
    made: set[str] = set()

    def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*given: Any, **named: Any) -> Any:
            made.add(name)
            return call(*given, **named)

        return noting

    for face in (*FACES, operations):
        for name in (one for one in dir(face) if one in CALLED):
            monkeypatch.setattr(face, name, noted(name, getattr(face, name)))
    with FakeLLM(Echo(lambda words: None)) as model:
        memory = AgentMemory(
            store="memory://", blocks=blocks(tmp_path), recall_timeout=60, max_tokens=600,
            model="openai/gpt-4o-mini", api_base=model.api_base, api_key="none",
        )  # fmt: skip
        with memory:
            memory.update("v-0", {"role": "user", "content": "hello"}, user_id="v")
            memory.share(TEAMS[0]).grant("u", "write")
            for row in OPERATIONS.values():
                made.clear()
                for seed in range(200):
                    memory.update("u-1", {"role": "user", "content": "hello"}, user_id="u")
                    act = Act(memory, "u", "w", "u-1", False, "v-0", TEAMS[0], "t", Random(seed))
                    with suppress(AgentMemoryError):
                        list(found if isinstance(found := row.run(act), Iterator) else ())
                    if made >= set(row.calls):
                        break
                assert made >= set(row.calls), row.name


# --- the detector ---------------------------------------------------------------------------------


class Gossip(Block):
    """Tells what was asked last, whoever asked it, in one way or another."""

    kind: str = "gossip"
    way: str
    heard: Any

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        said = " ".join(self.heard)
        self.heard[:] = [message.text()] if message else []
        if self.way == "error":
            raise ValueError(said)
        if self.way == "log":
            logging.getLogger("agent_memory.gossip").error("heard %s", said)
        elif self.way == "metadata":
            return [Recall(self.name, "g", "psst", metadata={"deep": [{said: (1, said)}]})]
        elif self.way == "text":
            return [Recall(self.name, "g", said)]
        return []

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        """It has heard enough."""

    def delete(self, scope: Scope) -> None:
        """It never forgets."""


@pytest.mark.parametrize("way", ["text", "metadata", "error", "log"])
def test_a_planted_leak_is_seen(way: str) -> None:
    """Wrong: the run finds everything good, whatever a block tells whom."""
    plan = Plan("memory://", "n", calls=150, users=3, threads=1, seed=2)
    report = run_crowd(plan, lambda count: None, [Gossip(way=way, heard=[])])
    assert {"get", "search", "call_tool"} & {leak.name for leak in report.leaks}
    assert "gave back Canary(user=" in report.leaks[0].told


def test_a_memory_that_lets_others_in_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a session that is another user's can be read, and nobody says so."""
    real = Guard.owned
    monkeypatch.setattr(Guard, "owned", lambda self, name, user: real(self, name, None))
    report = run_crowd(Plan("memory://", "n", 150, 3, 1, 3), lambda count: None)
    assert "trespass" in {leak.name for leak in report.leaks}
    assert [leak for leak in report.leaks if leak.told.startswith("was not refused")]
    assert [leak for leak in report.leaks if leak.told.startswith("gave back")]


def test_a_memory_that_keeps_a_deleted_user_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: what a user had said before being deleted comes back, and counts as the user's own."""
    monkeypatch.setattr(AgentMemory, "delete_user", lambda self, user_id: None)
    often = replace(OPERATIONS["delete_user"], weight=5)
    monkeypatch.setitem(OPERATIONS, "delete_user", often)
    report = run_crowd(Plan("memory://", "n", 300, 2, 1, 4), lambda count: None)
    told = [leak.told for leak in report.leaks if leak.name != "the end"]
    assert [one for one in told if one.startswith("gave back") and "life=0" in one]


def test_an_error_that_nobody_expects_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a bug that shows as an error of Python's own is counted with the refusals."""

    def history(self: AgentMemory, session_id: str, **given: Any) -> list[Entry]:
        raise KeyError(session_id)

    monkeypatch.setattr(AgentMemory, "history", history)
    report = run_crowd(Plan("memory://", "n", 50, 3, 1, 5), lambda count: None)
    assert "raised KeyError" in report.leaks[0].told


def test_a_request_of_two_users_is_seen() -> None:
    """Wrong: the model is sent what another user has said, and nobody looks."""
    report, aviary = Report(), Aviary(7)
    crowd = Crowd(Plan("", "", 0, 2, 1, 7), report)
    for words in ({("u000", 0)}, {("team-a/u000", 0), ("team-a/u001", 0)}):
        crowd.sent({aviary.word(*one) for one in words})
    assert report.leaks == []
    for words in (
        {("u000", 0), ("u001", 0)},
        {("u000", 0), ("u000", 1)},
        {("u000", 0), ("team-a/u000", 0)},
        {("team-b/u000", 0), ("team-a/u000", 0)},
    ):
        for one in words:
            crowd._aviary.word(*one)
        report.leaks.clear()
        crowd.sent({aviary.word(*one) for one in words})
        assert "the model was sent words of" in report.leaks[0].told


class Model(BaseModel, extra="allow"):
    inner: Any


@dataclass
class Record:
    inner: Any


WAYS: dict[str, Callable[[str], Any]] = {
    "text": lambda word: f"a{word}b",
    "bytes": lambda word: word.encode(),
    "key": lambda word: {"a": {word: 1}},
    "tuple": lambda word: ([1, (word, 2)],),
    "set": lambda word: {word},
    "dataclass": lambda word: Record([Record(word)]),
    "pydantic": lambda word: Model(inner={"a": Model(inner=word)}),
    "an extra field": lambda word: Model.model_validate({"inner": 1, "other": word}),
    "a message": lambda word: Message(role="user", content=[{"type": "text", "text": word}]),
    "an unknown field of a message": lambda word: Message.of(
        {"role": "user", "content": "x", "y": word}
    ),
    "an error": lambda word: ValueError(word),
    "what an error rests on": lambda word: _error(word),
    "what something else is told as": PurePath,
}


def _error(word: str) -> Exception:
    try:
        raise KeyError(word)
    except KeyError as cause:
        error = ValueError("no")
        error.__cause__ = cause
        return error


@pytest.mark.parametrize("way", WAYS)
def test_words_are_found_wherever_they_are(way: str) -> None:
    """Wrong: a leak in a corner of what a call gives back is not seen."""
    word = Aviary(1).word("u", 0)
    assert words_in(WAYS[way](word)) == {word}
    assert words_in(WAYS[way]("nothing")) == set()


def test_words_are_nobodys_by_chance() -> None:
    """Wrong: two users, or two lives of one, have the same word; or a seed is no seed."""
    aviary = Aviary(1)
    words = [aviary.word(f"u{user}", life) for user in range(50) for life in range(50)]
    assert len(set(words)) == 2500
    assert aviary.whose(words[51]) == Canary("u1", 1)
    assert aviary.whose("zq000000000000qz").user == "nobody"
    assert Aviary(1).word("u1", 1) == words[51] != Aviary(2).word("u1", 1)
    ring: list[Any] = [words[0]]
    ring.append(ring)
    assert words_in(ring) == {words[0]}
