"""A turn around the caller's own loop: the messages for the model, and the stored ones."""

from collections.abc import Iterator
from typing import Any

import pytest

from agent_memory import AgentMemory, StaticMemory, Summarize, VectorMemory
from agent_memory.errors import InvalidMessage, StoreError, StoreUnavailable
from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing import FakeLLM, watched
from tests.histories import call, result
from tests.kit import with_model

Q = {"role": "user", "content": "What is the weather in Oslo?"}
A = {"role": "assistant", "content": "It rains."}
HOLD = "Nobody may leave the camp after dark."


@pytest.fixture
def memory(url: str) -> Iterator[AgentMemory]:
    with AgentMemory(store=url, blocks=[StaticMemory(facts=[HOLD])]) as memory:
        yield memory


def logged(memory: AgentMemory, session_id: str = "s") -> list[tuple[str | None, str]]:
    return [(one.message.role, one.message.text()) for one in memory.history(session_id)]


def test_before_turn_returns_the_messages_and_stores_nothing(memory: AgentMemory) -> None:
    """Wrong: the question is stored without an answer, or earlier messages are not sent."""
    memory.update("s", [Q, A], user_id="ada")
    turn = memory.before_turn("s", "And in Rome?", user_id="ada")
    assert [m["role"] for m in turn.messages] == ["user", "assistant", "system", "user"]
    assert turn.messages[-1] == {"role": "user", "content": "And in Rome?"}
    assert HOLD in turn.messages[2]["content"]
    assert (turn.session_id, turn.user_id) == ("s", "ada")
    assert [m.text() for m in turn.turn_messages] == ["And in Rome?"]
    assert turn.context.messages == memory.get("s").messages
    assert len(logged(memory)) == 2
    memory.before_turn("another", "Hello", user_id="bob")
    assert [head.session_id for head in memory.sessions()] == ["s"]


def test_recalls_are_for_the_question(url: str) -> None:
    """Wrong: the recall is made for a tool's result instead of the question."""
    with AgentMemory(store=url, blocks=[VectorMemory()]) as memory:
        memory.update("old", {"role": "user", "content": "My parrot is Bella."}, user_id="ada")
        memory.update("old", {"role": "user", "content": "The rent is due."}, user_id="ada")
        memory.flush()
        turn_messages = [
            {"role": "user", "content": "What is the name of my parrot?"},
            call(["a"]),
            result("a", "The rent is due."),
        ]
        turn = memory.before_turn("new", turn_messages, user_id="ada")
        assert "Bella" in turn.context.recalls[0].text
        assert "Bella" in str(turn.messages)


@pytest.mark.parametrize(
    "message",
    [
        [],
        [{"role": "system", "content": "Be kind."}],
        [Q, call(["a"])],
        [Q, result("a")],
        None,
        "",
        [{"role": "user", "content": " "}, call(["a"]), result("a")],
    ],
    ids=["nothing", "system", "call", "result", "none", "blank", "blank, call and result"],
)
def test_a_turn_that_a_provider_would_refuse_is_rejected(memory: AgentMemory, message: Any) -> None:
    """Wrong: a turn that a provider would refuse is accepted."""
    with pytest.raises(InvalidMessage):
        memory.before_turn("s", message)


def test_a_turn_that_does_not_fit_is_shortened(url: str) -> None:
    """Wrong: a long turn is refused, exceeds the budget, or loses its newest message."""
    with AgentMemory(store=url, max_tokens=200) as memory:
        turn = memory.before_turn("s", "first " + "word " * 400)
        (turn_messages,) = turn.messages
        assert turn_messages["content"].startswith("first word word")
        assert "characters left out" in turn_messages["content"]
        assert turn.turn_messages[0].text() == "first " + "word " * 400
        assert turn.context.tokens <= 200
        assert "newest turn" in turn.context.warnings[0]
        long = memory.before_turn("s", [Q, call(["a"]), result("a", "told " * 400)]).messages
        assert long[:2] == [Q, call(["a"])]
        assert long[2]["content"].startswith("told told")
        assert memory.sessions() == []


def test_a_turn_is_stored_unchanged(memory: AgentMemory) -> None:
    """Wrong: a message's order or a field is lost."""
    turn = memory.before_turn("s", [Q, call(["a", "b"]), result("b"), result("a")], user_id="ada")
    answer = {"role": "assistant", "content": "Rain.", "reasoning_content": "wet", "extra": [1]}
    head = memory.after_turn(turn, [call(["c"]), result("c"), answer])
    assert (head.end, head.user_id) == (7, "ada")
    given = [Q, call(["a", "b"]), result("b"), result("a"), call(["c"]), result("c"), answer]
    assert [one.message.to_dict() for one in memory.history("s")] == given


@pytest.mark.parametrize(
    "answer",
    [[], Q, call(["a"]), [call(["a"]), result("a")], [call(["a"]), A],
     [call(["a", "b"]), result("a"), A], [result("a"), A],
     [A, {"role": "system", "content": "Be kind."}], None, {"choices": []}],
    ids=["nothing", "question", "call", "result", "no-result", "one-result", "no-call", "system",
         "none", "no-choice"],
)  # fmt: skip
def test_an_incomplete_turn_is_rejected(memory: AgentMemory, answer: Any) -> None:
    """Wrong: a call without its result is stored, and later requests are refused for it."""
    memory.update("s", [Q, A])
    turn = memory.before_turn("s", "Why?")
    with pytest.raises(InvalidMessage):
        memory.after_turn(turn, answer)
    assert len(logged(memory)) == 2
    memory.after_turn(turn, A)
    assert len(logged(memory)) == 4


def test_a_system_message_in_a_turn_replaces_the_sessions_one(memory: AgentMemory) -> None:
    """Wrong: the model gets two system messages, or the next turn gets none."""
    system = {"role": "system", "content": "Be brief."}
    memory.update("s", {"role": "system", "content": "Be long."})
    turn = memory.before_turn("s", [system, Q])
    assert turn.messages[0] == system
    assert "Be long." not in str(turn.messages)
    memory.after_turn(turn, A)
    assert memory.before_turn("s", "Why?").messages[0] == system


@pytest.mark.parametrize("step", ["before append", "after append"])
def test_a_failing_store_stores_all_or_nothing(step: str) -> None:
    """Wrong: the question is stored without its answer."""
    broken: list[str] = []

    def fail(now: str) -> None:
        if now in broken:
            raise StoreUnavailable("the store is down")

    memory = AgentMemory(store=watched(MemoryStore(), fail))
    turn = memory.before_turn("s", Q)
    broken.append(step)
    with pytest.raises(StoreError):
        memory.after_turn(turn, A)
    broken.clear()
    assert len(logged(memory)) == (0 if step == "before append" else 2)
    memory.close()


def test_a_turn_is_stored_although_the_window_moved_meanwhile(url: str) -> None:
    """Wrong: a turn is refused or split because the window moved while the model answered."""
    fields: dict[str, Any] = {"max_tokens": 200, "overflow": Summarize(max_summary_tokens=40)}
    with (
        FakeLLM("They talked of parrots.") as fake,
        with_model(fake, store=url, **fields) as memory,
    ):
        turn = memory.before_turn("s", [Q, call(["a"]), result("a")])
        for i in range(12):
            memory.after_turn(memory.before_turn("s", f"{i}. " + "parrot " * 20), A)
        memory.pop("s", 2)
        memory.after_turn(turn, A)
        said = [one.message.to_dict() for one in memory.history("s")]
        assert said[-4:] == [Q, call(["a"]), result("a"), A]
        again = memory.before_turn("s", "parrot " * 80)
        assert memory.components.resources.counter.context(again.messages) <= 200
