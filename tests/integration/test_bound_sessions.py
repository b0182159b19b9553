"""A session of another user is refused by every call of every interface."""

import inspect
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent_memory import AgentMemory, NoteMemory, Session, Turn, User, VectorMemory, WorkingMemory
from agent_memory.engine.sharing.shares import SharedMemory
from agent_memory.errors import AccessDenied, InvalidInput, SessionOfAnotherUser
from agent_memory.testing import FakeLLM
from tests.kit import model_at

SECRET = "My cat is called Xylophone."


def calls_of(face: type) -> list[str]:
    """Return the public methods of a class, inherited ones included."""
    return sorted(
        name
        for name, member in inspect.getmembers(face)
        if not name.startswith("_") and inspect.isfunction(member)
    )


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    """A memory in which Ana has a session with data."""
    blocks = [WorkingMemory(persist=True), NoteMemory(), VectorMemory()]
    with FakeLLM() as fake, AgentMemory("memory://", blocks=blocks, **model_at(fake)) as one:
        said = [{"role": "user", "content": SECRET}, {"role": "assistant", "content": "Noted."}]
        one.update("s", said, user_id="ana")
        one.session("s", "ana").working().set("plan", SECRET)
        yield one


def arguments_of(call: str, turn: Turn) -> list[Any]:
    """Return a call's arguments. A new call that needs some fails here until they are listed."""
    return {
        "update": [{"role": "user", "content": "Hello from Eve."}],
        "search": ["cat"],
        "before_turn": ["What is my cat called?"],
        "after_turn": [turn, "It is Xylophone."],
        "completion": ["What is my cat called?"],
        "call_tool": ["working_get", {}],
        "export": [io.StringIO()],
        "remember": ["Eve was here."],
        "describe": [{"title": "Eve's"}],
        "edit": [lambda log: []],
        "prune": [100],
        "pin": [1],
        "unpin": [1],
    }.get(call, [])


def state(memory: AgentMemory) -> tuple[Any, ...]:
    of_ana = memory.session("s", "ana")
    history = [entry.message.text() for entry in of_ana.history()]
    return memory.update("s", []), history, of_ana.working().all()


@pytest.mark.parametrize("bound", ["begun by ana", "begun by eve"])
@pytest.mark.parametrize("call", calls_of(Session))
def test_a_session_refuses_another_user(memory: AgentMemory, call: str, bound: str) -> None:
    """Wrong: a call on another user's session returns or changes its data."""
    turn = memory.before_turn("s", "What is my cat called?", user_id="ana")
    if bound == "begun by eve":
        turn = replace(turn, user_id="eve")
    before = state(memory)
    with pytest.raises(SessionOfAnotherUser):
        getattr(memory.session("s", "eve"), call)(*arguments_of(call, turn))
    assert state(memory) == before


NAMES_A_SESSION = sorted(
    name
    for name in calls_of(AgentMemory)
    if {"session_id", "user_id"} <= set(inspect.signature(getattr(AgentMemory, name)).parameters)
    and name not in ("session", "explain")  # these two do not refuse
)


@pytest.mark.parametrize("call", NAMES_A_SESSION)
def test_a_call_that_names_a_session_refuses_another_user(memory: AgentMemory, call: str) -> None:
    """Wrong: a call with another user's session reads or changes it."""
    turn = memory.before_turn("s", "What is my cat called?", user_id="ana")
    before = state(memory)
    named = {"query": "cat", "session_id": "s"} if call == "search" else {"session_id": "s"}
    given = [] if call == "search" else arguments_of(call, turn)
    names = list(inspect.signature(getattr(memory, call)).parameters)
    named |= dict(zip([name for name in names if name != "session_id"], given, strict=False))
    with pytest.raises(SessionOfAnotherUser):
        getattr(memory, call)(**named, user_id="eve")
    assert state(memory) == before


WANTED: dict[str, list[Any]] = {
    "forget": ["x"], "forget_all": [[]], "open": ["notes"], "pin": ["x"], "unpin": ["x"],
}  # fmt: skip


@pytest.mark.parametrize("call", calls_of(User))
def test_an_owner_handle_checks_the_session_on_each_call(memory: AgentMemory, call: str) -> None:
    """Wrong: a handle from before the session was Ana's reads Ana's memory."""
    memory.update("t", [{"role": "user", "content": "Hello."}])
    of_eve = memory.session("t", "eve").owner()
    memory.update("t", [{"role": "user", "content": "I am Ana."}], user_id="ana")
    with pytest.raises(SessionOfAnotherUser):
        getattr(of_eve, call)(*WANTED.get(call, []))


def test_a_session_refuses_a_turn_of_another_session(memory: AgentMemory) -> None:
    """Wrong: a bound session stores a turn that was begun in another session."""
    turn = memory.before_turn("s", "And my dog?", user_id="ana")
    for session in (memory.session("t", "ana"), memory.session("t")):
        with pytest.raises(InvalidInput, match="'s', not 't'"):
            session.after_turn(turn, "Rex.")
    assert memory.history("t") == []
    assert len(memory.history("s")) == 2


AGENTS = {
    "update": ["s", {"role": "user", "content": "Hello from Eve."}],
    "search": ["cat"],
    "facts": [],
    "profile": [],
    "sessions": [],
    "before_turn": ["s", "What is my cat called?"],
    "completion": ["s", "What is my cat called?"],
}


@pytest.mark.parametrize("call", calls_of(SharedMemory))
def test_an_agent_without_access_is_refused(memory: AgentMemory, call: str) -> None:
    """Wrong: an agent without a grant reads or writes in a shared namespace."""
    team = memory.share("team")
    team.grant("ana", "write")
    team.agent("ana").update("s", {"role": "user", "content": SECRET})
    turn = team.agent("ana").before_turn("s", "What is my cat called?")
    given = [turn, "It is Xylophone."] if call == "after_turn" else AGENTS.get(call, ["s"])
    with pytest.raises(AccessDenied):
        getattr(team.agent("eve"), call)(*given)
    assert [one.message.text() for one in team.agent("ana").history("s")] == [SECRET]
