"""Filters of `search`, and search in the log of a session when no block absorbs it."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, InvalidInput, StaticMemory, Trim, VectorMemory

BEGUN = datetime(2026, 3, 1, tzinfo=UTC)
SAID = [
    ("user", "My cat is called Mia.", "a"),
    ("assistant", "Mia is a lovely name for a cat.", "a"),
    ("user", "The cat was at the vet.", "b"),
    ("user", "I bought a bicycle.", "b"),
]


@pytest.fixture(params=[True, False], ids=["absorbed", "waiting"])
def memory(url: str, request: pytest.FixtureRequest) -> Iterator[AgentMemory]:
    blocks = [VectorMemory(), StaticMemory(facts=["Cats are welcome."])]
    with AgentMemory(store=url, blocks=blocks, recall_timeout=30) as opened:
        for day, (role, text, topic) in enumerate(SAID):
            at = BEGUN + timedelta(days=day)
            message = {"role": role, "content": text, "created_at": at}
            opened.update(f"s{topic}", {**message, "metadata": {"topic": topic}}, user_id="ana")
        if request.param:
            opened.flush()
        yield opened


def matches(memory: AgentMemory, query: str = "cat", **only: Any) -> list[str]:
    recalls = memory.search(query, user_id="ana", **only)
    return sorted(one.text.split(": ")[-1] for one in recalls)


def test_each_filter_returns_only_matching_records(memory: AgentMemory) -> None:
    """Wrong: a filter returns records that it should exclude, or excludes matching ones."""
    first, second, third, fourth = (text for _, text, _ in SAID)
    assert set(matches(memory, blocks=["vector"], least=0.0)) == {first, second, third, fourth}
    assert matches(memory, blocks=["static"]) == ["Cats are welcome."]
    assert matches(memory, roles=["assistant"]) == [second]
    assert matches(memory, roles="user", until=date(2026, 3, 3)) == [first]
    assert matches(memory, since=BEGUN + timedelta(days=2), least=0.0) == sorted([third, fourth])
    assert matches(memory, where={"topic": "b"}, least=0.0) == sorted([third, fourth])
    assert matches(memory, where={"topic": {"$ne": "b"}}, roles=["user"]) == [first]
    assert matches(memory, blocks=["none"]) == []
    assert matches(memory, limit=1, roles=["user"], where={"topic": "b"}) == [third]


def test_static_facts_do_not_hide_other_results() -> None:
    """Wrong: a search returns all static facts before the records that match."""
    facts = [f"Form HR-{number} needs a signature." for number in range(12)]
    with AgentMemory("memory://", blocks=[StaticMemory(facts=facts)], recall_timeout=30) as memory:
        note = memory.remember("Ana is allergic to peanuts.", user_id="ana")
        assert memory.search("What is Ana allergic to?", user_id="ana")[0].text == note.text
        assert memory.search("Who signs the form HR-7?", user_id="ana")[0].text == facts[7]


def test_a_search_with_least_0_returns_even_distant_records(memory: AgentMemory) -> None:
    """Wrong: a search with `least=0.0` returns nothing because no record is relevant."""
    foreign = "Which port does HTTPS use?"
    assert matches(memory, foreign, blocks=["vector"]) == []
    assert len(matches(memory, foreign, blocks=["vector"], least=0.0)) == 4
    assert len(matches(memory, foreign, blocks=["vector"], least=0.0, limit=2)) == 2
    assert matches(memory, blocks=["vector"], least=1e9) == []


def test_unknown_blocks_log_warnings(memory: AgentMemory, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: a misspelt block name finds nothing, and no warning says so."""
    memory.search("cat", user_id="ana", blocks=["vector", "log"])  # "log" is always a valid name
    assert not caplog.messages
    assert memory.search("cat", user_id="ana", blocks=["vector", "vektor"])
    (told,) = caplog.messages
    assert "vektor" in told
    assert "vector, " in told


def test_a_search_with_entries_returns_the_messages_of_its_recalls(memory: AgentMemory) -> None:
    """Wrong: a search with `entries` lacks the messages of its recalls."""
    recalls = memory.search("cat at the vet", user_id="ana", entries=True, blocks=["vector"])
    assert recalls
    for recall in recalls:
        (entry,) = recall.entries
        assert (entry.session_id, entry.seq) == recall.sources[0]
        assert entry.message.text() in recall.text
    assert all(not one.entries for one in memory.search("cat", user_id="ana"))


@pytest.mark.parametrize(
    "wrong",
    [{"since": datetime(2026, 3, 1)}, {"least": "much"}, {"where": 3}, {"roles": [1]},
     {"where": {"a": {"$x": 1}}}],
)  # fmt: skip
def test_an_invalid_filter_is_rejected(memory: AgentMemory, wrong: Any) -> None:
    """Wrong: an invalid filter is ignored, and everything is returned."""
    with pytest.raises(InvalidInput):
        memory.search("cat", user_id="ana", **wrong)


PARROT = [
    {"role": "system", "content": "You know all about Figaro."},
    {"role": "user", "content": "My parrot is called Figaro, and he is green and very loud."},
    {"role": "assistant", "content": "What a fine name for a parrot! Does he talk, too?"},
    {"role": "user", "content": "He does. I bought him in Lisbon, from a sailor, years ago."},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function",
     "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "Figaro Figaro Figaro"},
    {"role": "assistant", "content": "Lisbon is a city of ships, and of sailors who sell birds."},
]  # fmt: skip


@pytest.fixture
def blockless(tmp_path: Path) -> Iterator[AgentMemory]:
    url = f"sqlite:///{tmp_path / 'm.db'}"
    with AgentMemory(store=url, max_tokens=400, overflow=Trim(), blocks=[]) as memory:
        yield memory


def test_a_session_is_searched_without_any_block(blockless: AgentMemory) -> None:
    """Wrong: without blocks, a search of a session finds nothing."""
    blockless.update("s", PARROT, user_id="u")
    for number in range(40):
        blockless.update("s", {"role": "user", "content": f"Something else, {number}, at length."})
    found = blockless.search("What is the parrot called?", session_id="s")
    assert found[0].text == f"user: {PARROT[1]['content']}"
    assert found[0].sources == (("s", 2),)
    assert (found[0].block, found[0].tokens > 5, found[0].score > 0) == ("log", True, True)
    assert max(source[1] for one in found for source in one.sources) <= 7 + 4
    (bought,) = blockless.search("Where was he bought?", session_id="s", limit=1)
    assert bought.sources == (("s", 4),)


def test_irrelevant_messages_are_not_found(blockless: AgentMemory) -> None:
    """Wrong: a search returns messages that are not relevant."""
    blockless.update("s", PARROT, user_id="u")
    assert blockless.search("quantum chromodynamics", session_id="s") == []
    assert blockless.search("parrot", session_id="nobody") == []
    assert blockless.search("parrot", user_id="nobody") == []


def test_a_code_alone_finds_its_message_first() -> None:
    """Wrong: a search for a code lists messages about codes that only begin alike before it."""
    with AgentMemory("memory://", blocks=[VectorMemory()], recall_timeout=30) as memory:
        said = [f"Invoice INV{n} was paid by the customer." for n in range(2010, 2050)]
        memory.update("s", [{"role": "user", "content": text} for text in said], user_id="ana")
        memory.flush()
        for query in ("INV2033", "invoice INV2033"):
            assert "INV2033" in memory.search(query, user_id="ana", limit=1)[0].text
