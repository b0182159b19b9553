"""The engine as users call it, on a real SQLite file and in memory."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_memory import AgentMemory, FlushToLTM, StaticMemory, Trim, VectorMemory
from tests.kit import assistant, user


@pytest.fixture
def memory(url: str) -> Iterator[AgentMemory]:
    blocks = [StaticMemory(facts=["Remote work: 3 days a week."]), VectorMemory()]
    flush = FlushToLTM(blocks=blocks, max_stm_ratio=0.5)
    with AgentMemory(store=url, max_tokens=400, overflow=flush) as memory:
        yield memory


def talk(memory: AgentMemory, session: str, turns: int, owner: str | None = None) -> None:
    for i in range(turns):
        said = user(f"Note {i}: my {owner or 'own'} garden has {i} roses.")
        memory.update(session, said, user_id=owner)
        memory.update(session, assistant(f"Noted, {i} roses."), user_id=owner)


def test_overflow_absorbs_and_recalls(memory: AgentMemory) -> None:
    """Wrong: messages that left the window are lost or shown twice."""
    memory.update("s", user("I am Sarah and I work in Marketing."), user_id="sarah")
    memory.update("s", assistant("Welcome, Sarah."), user_id="sarah")
    talk(memory, "s", 20, "sarah")
    context = memory.get("s", "Where does Sarah work?")
    assert context.head.start > 2
    assert context.head.cursors == {"vector": context.head.start}
    assert any("Marketing" in match.text for match in context.vector_matches)
    assert [fact.text for fact in context.static_facts] == ["Remote work: 3 days a week."]
    assert context.tokens <= context.max_tokens
    shown = {message.text() for message in context.messages}
    assert not any(text in recall.text for recall in context.vector_matches for text in shown)


def test_delete_reaches_blocks_that_are_no_longer_configured(url: str) -> None:
    """Wrong: deleted data is back when a former block is configured again."""
    with AgentMemory(store=url, blocks=[VectorMemory(name="former")]) as memory:
        memory.update("s", user("My boat is blue."), user_id="ada")
        memory.flush()
    with AgentMemory(store=url) as memory:
        memory.delete_user("ada")
    with AgentMemory(store=url, blocks=[VectorMemory(name="former")]) as memory:
        assert memory.search("boat", user_id="ada") == []


def test_calls_on_a_missing_session_return_immediately(memory: AgentMemory) -> None:
    """Wrong: a call on a session that does not exist waits for its lease."""
    with ThreadPoolExecutor(1) as pool:
        calls = [
            pool.submit(memory.pop, "nothing"),
            pool.submit(memory.flush, "nothing"),
            pool.submit(memory.history, "nothing"),
        ]
        gone = pool.submit(memory.delete, "nothing")
        assert [call.result(timeout=10) for call in calls] == [[], [], []]
        assert gone.result(timeout=10).id == "nothing"


def test_pop_back_to_the_windows_start_shows_turns_again(url: str) -> None:
    """Wrong: after a pop of the whole window the context is empty although the log is not."""
    with AgentMemory(store=url, max_tokens=300) as memory:
        talk(memory, "s", 20)
        head = memory.get("s").head
        memory.pop("s", head.end - head.start)
        assert len(memory.get("s").messages) > 4


def test_a_number_for_absorb_starts_absorbing_before_an_overflow() -> None:
    """Wrong: a number for `absorb` has no effect before an overflow."""
    tokens = FlushToLTM(blocks=[VectorMemory(name="later")], absorb=60)
    with AgentMemory(store="memory://", max_tokens=2000, overflow=tokens) as memory:
        cursors = [memory.update("s", user(f"My bike {i} is red.")).cursors for i in range(6)]
        assert cursors[0] == {}
        assert cursors[-1]["later"] > 1


def test_the_start_of_a_context_is_stable_between_overflows(url: str) -> None:
    """Wrong: the start of the context changes between two overflows."""
    with AgentMemory(store=url, max_tokens=1000, overflow=Trim(), blocks=[]) as memory:
        memory.update("s", {"role": "system", "content": "Be kind."})
        same = 0
        previous: list[dict[str, object]] = []
        for i in range(100):
            memory.update("s", [user(f"Message number {i} of a long talk."), assistant("Go on.")])
            chat = memory.get("s").to_messages()
            same += chat[: len(previous)] == previous
            previous = chat
        assert same >= 85
