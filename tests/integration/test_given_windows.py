"""`get(window=...)`: a framework's messages, within the budget and with recalls."""

from typing import Any

import pytest

from agent_memory import AgentMemory, NullMemory, StaticMemory, Summarize, VectorMemory
from agent_memory.core.token_counter import TokenCounter
from agent_memory.testing import FakeLLM
from tests.histories import call, result
from tests.kit import assistant, model_at, user

Json = dict[str, Any]


GIVEN: list[Json] = [user("What is due?"), call(["c1"], "due"), result("c1", "The rent.")]


def test_a_window_argument_is_shown_and_not_stored() -> None:
    """Wrong: the given window is stored, or the session's own window is shown too."""
    with AgentMemory(store="memory://", blocks=[]) as memory:
        memory.update("s", [user("Hello."), assistant("Hello!")])
        for session in ("s", "new"):
            assert memory.get(session, window=GIVEN).to_messages() == GIVEN
        assert len(memory.history("s")) == 2
        assert memory.history("new") == []
        assert memory.get("s", window=[]).to_messages() == []
    assert NullMemory().get("s", window=GIVEN).to_messages() == GIVEN
    with AgentMemory(store="memory://", blocks=[]) as memory:
        memory.update("s", [{"role": "system", "content": "Rhyme."}, user("Hello.")])
        assert memory.get("s", window=GIVEN).to_messages() == GIVEN
        ruled = [{"role": "system", "content": "Be brief."}, *GIVEN]
        context = memory.get("s", window=ruled)
        assert context.to_messages() == ruled
        assert context.head == memory.get("s").head


def test_a_window_argument_fits_the_budget_and_is_not_recalled() -> None:
    """Wrong: the given window is recalled as well, or the context exceeds its budget."""
    with AgentMemory(store="memory://", blocks=[VectorMemory()]) as memory:
        memory.update("old", [user("The rent is 900 euros."), assistant("Noted.")], user_id="ana")
        held = [user("The rent is due on Monday."), assistant("I see.")]
        memory.update("s", held, user_id="ana")
        memory.flush()
        context = memory.get("s", window=[*held, user("What of the rent?")], user_id="ana")
        texts = [one.text for one in context.recalls]
        assert any("900 euros" in text for text in texts)
        assert not any("Monday" in text for text in texts)
        shown = context.to_messages()
        assert [one["role"] for one in shown] == ["user", "assistant", "system", "user"]
    talk = [one for at in range(60) for one in (user(f"Question {at}?"), assistant("An answer."))]
    long = [*talk, *GIVEN[:2], {**GIVEN[2], "content": "Much to pay. " * 400}]
    with AgentMemory(store="memory://", blocks=[], max_tokens=300) as memory:
        for given in (talk, long):
            context = memory.get("s", window=given)
            shown = context.to_messages()
            assert memory.components.resources.counter.context(shown) <= 300
            assert shown[0]["role"] == "user"
        roles = [one["role"] for one in shown]
        assert roles[-3:] == ["user", "assistant", "tool"]
        assert memory.get("s", window=talk, max_tokens=100).tokens <= 100


def test_the_summary_covers_messages_that_left_the_sessions_window() -> None:
    """Wrong: the summary of messages that left the session's window is missing."""
    with FakeLLM("The boxes are blue.") as fake, AgentMemory(
        "memory://", blocks=[], max_tokens=300, overflow=Summarize(max_summary_tokens=60),
        **model_at(fake),
    ) as memory:  # fmt: skip
        for at in range(30):
            memory.update("s", [user(f"Box {at} is blue."), assistant("Noted.")])
        head = memory.get("s").head
        assert head.summary is not None
        held = [one.message.to_dict() for one in memory.history("s", after=head.start)]
        assert memory.get("s", window=held).to_messages() == memory.get("s").to_messages()


def test_a_window_argument_is_complete_after_a_cut_of_the_session() -> None:
    """Wrong: after a cut of the session's window, a given window loses its first messages."""
    given = [assistant("Good morning."), user("What is due?")]
    with AgentMemory(store="memory://", blocks=[], max_tokens=300) as memory:
        for at in range(60):
            memory.update("s", [user(f"Question {at}?"), assistant("An answer.")])
        assert memory.get("s", window=given).to_messages() == given


# --- `memory_role="leading"`: summary and memory are part of the first system message -------------

FACTS = StaticMemory(facts=["The office opens at eight."])
COUNTER = TokenCounter()


def shown_messages(memory: AgentMemory, **how: Any) -> list[dict[str, Any]]:
    context = memory.get("s", "When does the office open?", **how)
    chat = context.to_messages()
    assert COUNTER.context(chat) == context.tokens <= context.max_tokens
    return chat


@pytest.mark.parametrize("system", ["Be short.", [{"type": "text", "text": "Be short."}], None])
def test_there_is_one_system_message_at_the_top(system: Any) -> None:
    """Wrong: a context has a second system message, which chat templates refuse."""
    strategy = Summarize(max_summary_tokens=60, max_messages=4)
    with AgentMemory(
        "memory://", max_tokens=600, blocks=[FACTS], overflow=strategy, memory_role="leading"
    ) as memory:
        if system is not None:
            memory.update("s", {"role": "system", "content": system})
        for i in range(12):
            memory.update("s", {"role": "user", "content": f"Item {i} is coded QX-{i} for good."})
        chat = shown_messages(memory)
        assert [one["role"] for one in chat].count("system") == 1
        top = str(chat[0]["content"])
        parts = [top.find(one) for one in ("Be short.", "<summary>", "<memory>")]
        assert parts == sorted(parts)
        assert parts[1:] != [-1, -1]
        assert (parts[0] == -1) == (system is None)
        assert all("<memory>" not in str(one) for one in chat[1:])
        before = str(memory.history("s")[0].message.content)
        assert "<summary>" not in before  # the log stores the original message
        for budget in (64, 90, 120, 200):
            small = shown_messages(memory, max_tokens=budget)
            assert sum(one["role"] == "system" for one in small) <= 1


def test_a_context_without_memory_has_no_system_message() -> None:
    """Wrong: a context has an empty system message."""
    with AgentMemory("memory://", blocks=[], memory_role="leading") as memory:
        assert [one["role"] for one in shown_messages(memory)] == ["user"]
