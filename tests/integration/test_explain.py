"""`explain`: the reasons why records are recalled for a question, or left out."""

from collections.abc import Iterator
from datetime import date

import pytest

from agent_memory import AgentMemory, Chain, ClearTools, InvalidInput, Summarize, Trim
from agent_memory.core.context import Explanation
from tests.histories import call, result
from tests.kit import assistant, user

LISBON = "I moved to Lisbon last spring, for the light."


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    with AgentMemory(store="memory://", recall_timeout=30) as memory:
        yield memory


def reasons(explained: Explanation) -> str:
    return " | ".join(one.why for one in explained.left_out)


def test_explain_lists_the_same_recalls_as_get(memory: AgentMemory) -> None:
    """Wrong: `explain` lists other recalls than `get`, or stores the question."""
    memory.update("mon", user(LISBON), user_id="ana")
    explained = memory.explain("Where in Lisbon do I live?", user_id="ana")
    context = memory.get("tue", "Where in Lisbon do I live?", user_id="ana")
    assert [one.text for one in explained.recalls] == [one.text for one in context.recalls]
    assert LISBON in str(explained)
    assert memory.sessions(limit=10)[0].session_id == "mon"
    assert len(memory.sessions(limit=10)) == 1  # `explain` and `get` store nothing


def test_a_record_below_min_relevance_is_listed_as_left_out() -> None:
    """Wrong: a record below `min_relevance` is not listed as left out."""
    with AgentMemory(store="memory://", min_relevance=0.9, recall_timeout=30) as memory:
        memory.update("mon", [user(LISBON), user("My cat sleeps.")], user_id="ana")
        explained = memory.explain("What of the Lisbon spring light?", user_id="ana")
    assert [LISBON in one.text for one in explained.recalls] == [True]
    assert [one.recall.text for one in explained.left_out] == ["user: My cat sleeps."]
    assert "min_relevance is 0.9" in reasons(explained)


def test_a_record_without_room_is_listed_as_left_out() -> None:
    """Wrong: a record left out for lack of room is not listed."""
    with AgentMemory(store="memory://", max_recall_tokens=60, recall_timeout=30) as memory:
        for number in range(8):
            said = f"Number {number} of my trips to Lisbon took {number + 3} days, all told."
            memory.update(f"s{number}", user(said), user_id="ana")
        explained = memory.explain("How long were my trips to Lisbon?", user_id="ana")
    assert explained.recalls
    assert "there was no room" in reasons(explained)
    assert len(explained.recalls) + len(explained.left_out) >= 8


def test_explain_reports_another_users_session_without_showing_it(memory: AgentMemory) -> None:
    """Wrong: `explain` shows another user's session, or does not warn that it is another user's."""
    memory.update("mon", user(LISBON), user_id="ben")
    explained = memory.explain("Where do I live?", user_id="ana", session_id="mon")
    assert "belongs to another user" in " ".join(explained.warnings)
    assert "Lisbon" not in str(explained)
    memory.update("free", user(LISBON))
    explained = memory.explain("Where do I live?", user_id="ana", session_id="free")
    assert "belongs to no user yet" in " ".join(explained.warnings)


def test_notes_are_recalled_with_their_date(memory: AgentMemory) -> None:
    """Wrong: a note given a date is not recalled, or shown with another date."""
    memory.remember("Ana lives in Lisbon.", user_id="ana", at=date(2024, 5, 1))
    explained = memory.explain("Where does Ana live?", user_id="ana")
    assert "[2024-05-01] Ana lives in Lisbon." in str(explained)
    with pytest.raises(InvalidInput):
        memory.explain("Where does Ana live?")


def test_explain_lists_dropped_and_summarized_messages() -> None:
    """Wrong: `explain` does not say which messages left the window or are summarized."""
    overflow = Chain([ClearTools(keep_tokens=0, at_least=1), Summarize(max_summary_tokens=60)])
    with AgentMemory("memory://", max_tokens=400, overflow=overflow, blocks=[]) as memory:
        for number in range(12):
            steps = [call([f"c{number}"]), result(f"c{number}", "word " * 60)]
            answer = assistant(f"Answer {number}.")
            memory.update("s", [user(f"Question {number}?"), *steps, answer])
        explained = memory.explain("What was the first question?", session_id="s")
        head = explained.context.head
    assert head.start > 0
    assert explained.dropped[:2] == [
        f"left the window: 1 to {head.start}",
        f"of these in the summary: 1 to {head.start}",
    ]
    assert explained.dropped[2].startswith("in the window, but a stub, shortened or left out: ")
    assert f"left the window: 1 to {head.start}" in str(explained)


def test_explain_lists_messages_in_neither_summary_nor_recalls() -> None:
    """Wrong: `explain` does not say which messages are in neither the summary nor the recalls."""
    with AgentMemory("memory://", max_tokens=600, overflow=Trim(), recall_timeout=30) as memory:
        for number in range(40):
            tea = f"Pot {number} on the shelf in the kitchen holds green tea."
            memory.update("s", user(tea if number else "The first note is about Lisbon."))
        explained = memory.explain("What is about Lisbon?", session_id="s")
        head = explained.context.head
    assert head is not None
    left, recalled, neither = explained.dropped
    assert left == f"left the window: 1 to {head.start}"
    assert recalled.startswith("of these recalled: 1")
    assert neither.startswith("of these in neither: ")
    assert neither.endswith(f" to {head.start}")
