"""Blocks are notified of the beginning and the end of a turn, with all its messages."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import PrivateAttr

from agent_memory import AgentMemory, CompositeMemory, Message, Recall, StaticMemory, Turn
from agent_memory.core.records import Scope
from agent_memory.errors import ModelError
from agent_memory.ltm_blocks.base import ManualBlock
from agent_memory.testing import FakeLLM
from tests.kit import with_model


class Diary(ManualBlock):
    """Record its events."""

    kind: str = "diary"
    _told: list[tuple[Any, ...]] = PrivateAttr(default_factory=list)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return []

    def delete(self, scope: Scope) -> None:
        """Nothing."""

    def turn_began(self, scope: Scope, turn: Turn) -> None:
        self._told.append(("began", scope.user_id, turn.session_id, turn.turn_messages[-1].text()))

    async def turn_ended(self, scope: Scope, turn: Turn, said: Sequence[Message]) -> None:
        roles = [f"{one.role}:{len(one.tool_calls or [])}" for one in said]
        self._told.append(("ended", scope.user_id, turn.session_id, roles, said[-1].text()))


class Plain:
    """An object with a block's methods that wants events of ends."""

    name = "plain"

    def __init__(self) -> None:
        self.ends: list[str] = []

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return []

    def update(self, scope: Scope, entries: Any) -> None:
        """Nothing."""

    def delete(self, scope: Scope) -> None:
        """Nothing."""

    def turn_ended(self, scope: Scope, turn: Turn, said: Sequence[Message]) -> None:
        self.ends.append(said[-1].text())
        raise RuntimeError("a block's own mistake")


def events(memory: AgentMemory) -> list[tuple[Any, ...]]:
    block = memory.blocks["diary"]
    return block._told


def test_blocks_are_notified_of_a_turn_of_a_custom_loop() -> None:
    """Wrong: a block is notified of a turn before it is stored, twice, or not at all."""
    plain = Plain()
    with AgentMemory("memory://", blocks=[Diary(), plain]) as memory:
        turn = memory.before_turn("s", "Hello?", user_id="ana")
        assert events(memory) == [("began", "ana", "s", "Hello?")]
        assert memory.history("s") == []
        memory.after_turn(turn, "Hi.")
        assert events(memory)[1:] == [("ended", "ana", "s", ["user:0", "assistant:0"], "Hi.")]
        assert plain.ends == ["Hi."]
        assert len(memory.history("s")) == 2
        memory.after_turn(memory.regenerate("s"), "Hello!")
        assert [one[0] for one in events(memory)] == ["began", "ended", "began", "ended"]
        assert events(memory)[-1][-1] == "Hello!"


def test_blocks_get_the_tool_calls_and_the_answer_of_a_completion() -> None:
    """Wrong: a block gets the answer of a turn without its tool calls."""
    with FakeLLM() as fake, with_model(fake, blocks=[Diary()]) as memory:
        fake.call(("memory_write", {"text": "Ana is vegetarian."}))
        fake.reply("Noted.")
        tools = memory.tools("s", user_id="ana")
        memory.completion("s", "I am vegetarian.", user_id="ana", tools=tools)
        roles = ["user:0", "assistant:1", "tool:0", "assistant:0"]
        ended = ("ended", "ana", "s", roles, "Noted.")
        assert events(memory) == [("began", "ana", "s", "I am vegetarian."), ended]
        fake.fail(401)
        with pytest.raises(ModelError):
            memory.completion("s", "And now?", user_id="ana")
        assert [one[0] for one in events(memory)][2:] == ["began"]


def test_composites_and_namespaces_notify_blocks_of_turns() -> None:
    """Wrong: a composite or a shared namespace does not notify blocks of turns."""
    home = AgentMemory("memory://", blocks=[Diary()])
    with CompositeMemory({"home": home, "rules": StaticMemory(facts=["Be kind."])}) as both:
        both.after_turn(both.before_turn("s", "Hello?"), "Hi.")
        assert [one[0] for one in events(home)] == ["began", "ended"]
    with AgentMemory("memory://", blocks=[Diary()]) as memory:
        memory.update("s", {"role": "user", "content": "Mine."}, user_id="ana")
        team = memory.share("team")
        team.grant("ann", "write")
        agent = team.agent("ann")
        agent.after_turn(agent.before_turn("s", "Ours?"), "Yes.")
        assert len({one[1:3] for one in events(memory)}) == 1
        assert all(one[1] != "ana" and one[2] != "s" for one in events(memory))
