"""An LLM reranker chooses the relevant facts. Without its answer the local ranking is used."""

import json
import re
from typing import Any

import pytest

from agent_memory import AgentMemory, ExtractiveMemory, StaticMemory
from agent_memory.ltm_blocks import FactChooser
from agent_memory.testing import FakeLLM
from tests.kit import model_at

FACTS = ["The office opens at eight.", "Parental leave lasts 16 weeks.", "Lunch is at noon."]
BABY = "We are expecting a baby, what do I need to know?"


def opened(fake: FakeLLM, *blocks: Any, **fields: Any) -> AgentMemory:
    return AgentMemory("memory://", blocks=blocks, recall_timeout=30, **model_at(fake), **fields)


def chooser(**fields: Any) -> FactChooser:
    return FactChooser(**{"seconds": 25, **fields})


def naming(words: str) -> Any:
    """Return a model that chooses the facts with one of these words, in reverse order."""

    def answer(body: dict[str, Any]) -> str:
        listed = re.findall(r"^(\d+)\. (.*)$", str(body["messages"][1]["content"]), re.MULTILINE)
        numbers = [int(n) for n, text in listed if re.search(words, text)]
        return json.dumps({"facts": [*numbers[::-1], 99, 0]})

    return answer


def recalled(memory: AgentMemory, question: str = BABY) -> list[str]:
    return [one.text for one in memory.get("s", question, user_id="ana").recalls]


def test_the_reranker_selects_relevant_static_facts(fake: FakeLLM) -> None:
    """Wrong: the reranker's choice is ignored, or its invalid numbers break the recall."""
    fake.default = naming("leave|Lunch")
    prompt = "Choose like a human resources officer."
    with opened(fake, StaticMemory(facts=FACTS, choose=chooser(prompt=prompt))) as memory:
        assert recalled(memory) == [FACTS[2], FACTS[1]]
        assert prompt in str(fake.requests[0])
        assert BABY in str(fake.requests[0])
        asked = len(fake.requests)
        assert recalled(memory, "Thanks!") == []
        assert len(fake.requests) == asked  # small talk calls no model
        assert memory.stats().usage.calls == asked


def test_the_reranker_receives_only_the_top_of_the_ranking(fake: FakeLLM) -> None:
    """Wrong: the request to the model lists more facts than `most`."""
    fake.default = naming("Rule")
    many = [f"Rule {i} is about this and that." for i in range(100)]
    with opened(fake, StaticMemory(facts=many, choose=chooser(most=5))) as memory:
        recalled(memory, "Which rule?")
    assert len(re.findall(r"\d+\. Rule", str(fake.requests[0]["messages"][1]["content"]))) == 5


@pytest.mark.parametrize("how", ["down", "slow", "nonsense", "spent"])
def test_the_local_ranking_is_used_if_the_reranker_fails(
    fake: FakeLLM, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong: without an answer of the model, facts of the local ranking are lost."""
    more: dict[str, Any] = {}
    if how == "down":
        fake.fail(401, times=100)
    elif how == "nonsense":
        fake.default = "I think they all matter."
    elif how == "slow":
        fake.outage("hang")
        more["seconds"] = 0.01
    block = StaticMemory(facts=FACTS, choose=chooser(**more))
    limits = {"total": {"calls": 0}} if how == "spent" else {}
    with opened(fake, block, spending_limits=limits, min_relevance=0) as memory:
        assert sorted(recalled(memory)) == sorted(FACTS)
    (why,) = [one.getMessage() for one in caplog.records if "without a model" in one.getMessage()]
    assert len(why.partition(": ")[2]) > 5


def test_the_reranker_receives_extracted_facts_without_shared_words(fake: FakeLLM) -> None:
    """Wrong: an extracted fact without a word of the question is not offered to the model."""
    fact = {"text": "Is allergic to peanuts.", "message": 1, "quote": "peanuts"}
    find = json.dumps({"facts": [fact]})

    def answer(body: dict[str, Any]) -> str:
        return naming("peanuts")(body) if "<facts>" in str(body) else find

    fake.default = answer
    with opened(fake, ExtractiveMemory(choose=chooser()), embedding=None) as memory:
        memory.update("a", {"role": "user", "content": "I can't have peanuts."}, user_id="ana")
        memory.flush()
        (recall,) = memory.get("b", "What may I cook tonight?", user_id="ana").extracted_facts
        assert "peanuts" in recall.text
        assert memory.get("b", "What may I cook tonight?", user_id="ben").extracted_facts == []


def test_a_reranker_without_a_model_causes_a_warning() -> None:
    """Wrong: no warning says that a reranker without a model has no effect."""
    blocks = [StaticMemory(facts=FACTS, choose=FactChooser())]
    with AgentMemory("memory://", blocks=blocks) as memory:
        (told_why,) = memory.get("s", BABY, user_id="ana").warnings
        assert "'static' recalls by the local ranking only" in told_why
