"""A recalled message that no longer holds is marked as outdated."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import AgentMemory, ExtractiveMemory, FlushToLTM, Recall, VectorMemory
from agent_memory.core.fusion import marked
from agent_memory.testing import FakeLLM
from tests.integration.composing import composed, opened
from tests.integration.fact_model import Model, absorbed, dated
from tests.kit import model_at

NEWS = datetime(2024, 6, 5, tzinfo=UTC)


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    model = Model()
    model.tell("I live in Paris", "Lives in Paris.", category="home")
    model.tell("home in Lyon", "Has a home in Lyon.", category="home")
    model.tell("a dog in Lyon", "Has a dog in Lyon.", category="pets")
    model.tell("moved to Rome", "Lives in Rome.", ("update", "Lives in Paris."), category="home")
    model.tell("dentist on Monday", "Sees the dentist on Monday.", category="health", kind="plan")
    ties = ("update", "Sees the dentist on Monday.")
    model.tell("it is Friday", "Sees the dentist on Friday.", ties, category="health", kind="plan")
    model.tell("sold it", "Sold the home.", ("end", "Has a home in Lyon."), category="home")
    blocks = FlushToLTM(blocks=[ExtractiveMemory(), VectorMemory()])
    with (
        FakeLLM(model) as fake,
        AgentMemory("memory://", overflow=blocks, min_relevance=0, **model_at(fake)) as memory,
    ):
        absorbed(memory, "s1", dated("I live in Paris", "2024-01-05"))
        absorbed(memory, "s2", dated("I have a home in Lyon, and a dog in Lyon", "2024-02-05"))
        absorbed(memory, "s3", dated("I moved to Rome", "2024-06-05"))
        absorbed(memory, "s4", dated("My home in Lyon? I sold it", "2024-07-05"))
        yield memory


def lines(memory: AgentMemory, question: str) -> str:
    return str(memory.get("new", question, user_id="ada").to_messages()[0]["content"])


def test_a_message_with_only_superseded_facts_is_marked_outdated(memory: AgentMemory) -> None:
    """Wrong: "I live in Paris" is recalled next to "I moved to Rome" without a mark."""
    told = lines(memory, "Where do I live, in Paris or in Rome?")
    assert "[2024-01-05; outdated since 2024-06-05] user: I live in Paris" in told
    assert "[2024-06-05] user: I moved to Rome" in told
    found = memory.search("Where do I live, in Paris or in Rome?", user_id="ada")
    assert any("outdated since 2024-06-05" in str(one) for one in found)


def test_a_message_with_a_changed_plan_is_marked_outdated(memory: AgentMemory) -> None:
    """Wrong: the first day of a moved appointment has no mark, and is "refined" in the audit."""
    absorbed(memory, "e1", dated("I see the dentist on Monday", "2024-02-06"), user_id="eve")
    absorbed(memory, "e2", dated("My dentist called: it is Friday", "2024-06-04"), user_id="eve")
    context = memory.get("new", "When do I see the dentist, on Monday?", user_id="eve")
    told = str(context.to_messages()[0]["content"])
    assert "[2024-02-06; outdated since 2024-06-04] user: I see the dentist on Monday" in told
    assert "[2024-06-04] user: My dentist called: it is Friday" in told
    (change,) = [row for row in memory.user("eve").audit() if row.what == "updated"]
    assert change.why.endswith("took its place: Sees the dentist on Friday.")


def test_a_composite_marks_outdated_messages_of_each_memory(memory: AgentMemory) -> None:
    """Wrong: a message that one memory marks stands in a composite without a mark."""
    with composed({"other": opened(), "first": memory}) as both:
        context = both.get("new", "Where do I live, in Paris or in Rome?", user_id="ada")
        told = str(context.to_messages()[0]["content"])
        assert "[2024-01-05; outdated since 2024-06-05] user: I live in Paris" in told
        found = both.search("Where do I live, in Paris or in Rome?", user_id="ada")
        assert any("outdated since 2024-06-05" in str(one) for one in found)


def test_a_message_with_a_current_fact_is_not_marked_outdated(memory: AgentMemory) -> None:
    """Wrong: a message with two facts is marked as outdated although one of them still holds."""
    told = lines(memory, "What do I have in Lyon, a home or a dog?")
    assert "[2024-02-05] user: I have a home in Lyon, and a dog in Lyon" in told


def test_facts_of_another_user_mark_no_message_outdated(memory: AgentMemory) -> None:
    """Wrong: one user's newer fact marks another user's message as outdated."""
    absorbed(memory, "e1", dated("I live in Paris", "2024-01-05"), user_id="eve")
    found = memory.search("Where do I live, in Paris?", user_id="eve")
    assert found
    assert not any("outdated" in str(one) for one in found)


SOURCES = st.tuples(st.sampled_from(["s", "t"]), st.integers(1, 4))


@given(st.lists(SOURCES, max_size=3), st.dictionaries(SOURCES, st.just(NEWS)))
def test_outdated_recalls(
    sources: list[tuple[str, int]], since: dict[tuple[str, int], datetime]
) -> None:
    """Wrong: a recall with a valid source is marked, or a block marks its own recalls."""
    recall = Recall("vector", "1", "x", sources=tuple(sources))
    [one] = marked("vector", [recall], {"facts": since})
    assert ("outdated" in one.time) == (bool(sources) and set(sources) <= set(since))
    assert marked("facts", [recall], {"facts": since}) == [recall]
