"""Regenerating the newest answer: asked without the old answer, stored in its place."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agent_memory import ExtractiveMemory, FlushToLTM, NullMemory, VectorMemory
from agent_memory.errors import InvalidInput, InvalidMessage, MessageTooLarge, StoreUnavailable
from agent_memory.stores.base import Store
from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing import FakeLLM, watched
from tests.integration.fact_model import Model, dated
from tests.integration.undo_twin import assert_alike, everything, opened, turn, twins, with_tool

BEFORE = turn("My dog is brown", "A brown dog.")
OLD = with_tool("What does the dog eat?", "old-canary meat", "It eats old-canary.", 1)
ASKED, NEW = "What does the dog eat?", dated("It eats fish.", role="assistant")


@pytest.fixture
def fake() -> Iterator[FakeLLM]:
    """A model whose facts name the old answer if it is in the batch."""

    def mixed(body: dict[str, Any]) -> str:
        model, shown = Model(), str(body["messages"][1]["content"])
        canary = "old-canary" if "old-canary" in shown else "nobody"
        model.tell("My dog", f"The dog is of {canary}.")
        model.tell("the dog eat", f"The dog eats like {canary}.")
        model.tell("sleeps", "The dog sleeps.")
        return model(body)

    with FakeLLM(mixed) as fake:
        yield fake


def blocks(absorb: Any) -> FlushToLTM:
    return FlushToLTM(
        blocks=[VectorMemory(), ExtractiveMemory(roles=("user", "assistant"))], absorb=absorb
    )


@pytest.mark.parametrize("flushed", ["at every update", "in one batch", "not yet"])
def test_a_regeneration_drops_the_old_answer(store: Store, fake: FakeLLM, flushed: str) -> None:
    """Wrong: the model reads the old answer, or a record derived from it."""
    overflow = blocks("every_update" if flushed == "at every update" else "overflow")
    with twins(fake, store=store, overflow=overflow) as (memory, twin):
        for one in (memory, twin):
            one.update("t", turn("It sleeps in the hall", "Fine."), user_id="ada")
            one.update("s", BEFORE if one is memory else [*BEFORE, OLD[0], NEW], user_id="ada")
        memory.update("s", OLD)
        if flushed != "not yet":
            memory.flush()
            assert "old-canary" in str(memory.search("dog eats canary", user_id="ada"))
        asked = memory.regenerate("s", user_id="ada")
        sent = json.dumps(asked.messages)
        assert "old-canary" not in sent
        assert [one["content"] for one in asked.messages if one["role"] != "system"] == [
            "My dog is brown", "A brown dog.", ASKED,
        ]  # fmt: skip
        assert len(memory.history("s")) == len(BEFORE) + len(OLD)
        assert memory.after_turn(asked, NEW).end == len(BEFORE) + 2
        assert "old-canary" not in everything(memory)
        assert_alike(memory, twin)


def test_a_regeneration_recalls_nothing_from_the_old_answer(fake: FakeLLM) -> None:
    """Wrong: a regeneration does not recall other sessions, or recalls the old answer."""
    with opened(fake, overflow=blocks("every_update"), max_tokens=400) as memory:
        memory.update("t", turn("The dog eats bones at the kayak", "Fine."), user_id="ada")
        memory.update("s", BEFORE, user_id="ada")
        memory.update("s", OLD)
        texts = [one.text for one in memory.regenerate("s").context.recalls]
        assert "user: The dog eats bones at the kayak" in str(texts)
        assert ASKED not in str(texts)
        assert "old-canary" not in str(texts)


def test_an_unanswered_question_can_be_regenerated(fake: FakeLLM) -> None:
    """Wrong: an unanswered question is refused, or its answer replaces another message."""
    with opened(fake) as memory:
        memory.update("s", [*BEFORE, dated(ASKED)], user_id="ada")
        asked = memory.regenerate("s")
        assert asked.messages[-1]["content"] == ASKED
        memory.after_turn(asked, NEW)
        texts = [entry.message.text() for entry in memory.history("s")]
        assert texts == ["My dog is brown", "A brown dog.", ASKED, "It eats fish."]


@pytest.mark.parametrize("log", [[], [{"role": "system", "content": "Be kind."}], [NEW]])
def test_regenerating_without_a_question_raises_an_error(fake: FakeLLM, log: list[Any]) -> None:
    """Wrong: regenerating without a question raises a bare error, or asks the model."""
    with opened(fake) as memory:
        memory.update("s", log)
        with pytest.raises(InvalidInput, match="no question to ask again"):
            memory.regenerate("s")
    with NullMemory() as null, pytest.raises(InvalidInput, match="Ask one first"):
        null.regenerate("s")


def test_a_newer_system_message_stays(fake: FakeLLM) -> None:
    """Wrong: a regeneration removes a system message that came after the old answer, or an older
    one applies again."""
    with opened(fake) as memory:
        memory.update("s", [BEFORE[0], {"role": "system", "content": "Be rude."}], user_id="ada")
        memory.update("s", [BEFORE[1], {"role": "system", "content": "Be brief."}])
        asked = memory.regenerate("s")
        assert asked.messages[0] == {"role": "system", "content": "Be brief."}
        head = memory.after_turn(asked, NEW)
        assert head.system is not None
        assert head.system.text() == "Be brief."
        roles = [entry.message.role for entry in memory.history("s")]
        assert roles == ["user", "system", "system", "assistant"]
        totals = [entry.total for entry in memory.history("s")]
        assert totals == [head.total - memory.history("s")[-1].tokens] * 3 + [head.total]


@pytest.mark.parametrize("fault", ["half", "too large", "store"])
def test_a_failed_regeneration_keeps_the_old_answer(fake: FakeLLM, fault: str) -> None:
    """Wrong: a regeneration that fails loses the old answer, or stores part of a new one."""
    down: list[bool] = []

    def watch(step: str) -> None:
        if down and step == "before rewrite":
            raise StoreUnavailable("down")

    kept = watched(MemoryStore(), watch)
    errors = {
        "half": (InvalidMessage, {"role": "assistant", "content": None, "tool_calls": [
            {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}),
        "too large": (MessageTooLarge, "word " * 13_000),
        "store": (StoreUnavailable, NEW),
    }  # fmt: skip
    with twins(fake, store=kept, max_message_bytes=60_000) as (memory, twin):
        for one in (memory, twin):
            one.update("s", [*BEFORE, *OLD], user_id="ada")
            one.flush()
        asked = memory.regenerate("s")
        down += [True] if fault == "store" else []
        error, answer = errors[fault]
        with pytest.raises(error):
            memory.after_turn(asked, answer)
        assert_alike(memory, twin)


@pytest.mark.parametrize("between", ["went on", "was popped and went on", "was deleted"])
def test_a_regeneration_does_not_replace_newer_messages(fake: FakeLLM, between: str) -> None:
    """Wrong: a new answer replaces messages that arrived meanwhile."""
    with opened(fake) as memory:
        memory.update("s", turn(ASKED, "Old."), user_id="ada")
        asked = memory.regenerate("s")
        if between == "went on":
            memory.update("s", turn("And the cat?", "Fish."))
        elif between == "was popped and went on":
            memory.pop("s", 2)
            memory.update("s", turn("And the cat?", "Fish."))
        else:
            memory.delete("s")
        before = memory.history("s")
        with pytest.raises(InvalidInput, match="since the call of regenerate"):
            memory.after_turn(asked, NEW)
        assert memory.history("s") == before


def test_a_regenerated_answer_includes_its_tool_calls(fake: FakeLLM) -> None:
    """Wrong: a new answer loses its tool calls or their results."""
    with opened(fake) as memory:
        memory.update("s", [*BEFORE, *OLD], user_id="ada")
        new = with_tool(ASKED, "fish", "It eats fish.", 2)[1:]
        memory.after_turn(memory.regenerate("s"), new)
        assert [entry.message.role for entry in memory.history("s")] == [
            "user", "assistant", "user", "assistant", "tool", "assistant",
        ]  # fmt: skip
        assert [m["role"] for m in memory.get("s").to_messages() if m["role"] != "system"] == [
            "user", "assistant", "user", "assistant", "tool", "assistant",
        ]  # fmt: skip
