"""Recalled facts that are repeated in the conversation do not become new facts."""

import html
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent_memory import AgentMemory, ExtractiveMemory
from agent_memory.stores.memory import MemoryStore
from agent_memory.testing import FakeLLM
from tests.integration.fact_model import Listed, groups_of, known_of, messages_of
from tests.kit import assistant, at_length, model_at, user

TURNS = at_length(100)
SETTLED = 4  # later sessions say nothing new
DAY = datetime(2024, 3, 1, tzinfo=UTC)
ASKED = [
    "I live in Oslo.",
    "My cat is called Mia.",
    "I like hiking in the woods.",
    "Where do I live?",
    "What shall we do on Sunday?",
    "What is my cat called?",
]
OFFERED = ["Nordmarka has the best trails.", "The ferry leaves at nine."]


class Greedy:
    """A model that takes each sentence and list item for a fact."""

    def __init__(self, *, careful: bool) -> None:
        self.careful = careful

    def __call__(self, body: dict[str, Any]) -> str:
        asked = body["messages"][-1]["content"]
        said = messages_of(asked)
        if said is None:
            return json.dumps({"answers": list(self._answers(asked))})
        return json.dumps({"facts": list(self._findings(html.unescape(said), known_of(asked)))})

    def _findings(self, asked: str, known: list[Listed]) -> Iterator[dict[str, Any]]:
        for number, text in re.findall(r"(?m)^\[(\d+)\] \S+ \w+: (.*)$", asked):
            for said in re.split(r" ?- \[[^]]*\] |(?<=[.?]) (?=[A-Z])", text):
                if said:
                    before = self._held(said, known)
                    tied = {"known": before, "relation": "same"} if before else {}
                    yield {"text": said, "message": int(number), "quote": said, **tied}

    def _answers(self, asked: str) -> Iterator[dict[str, Any]]:
        for new, older in groups_of(asked):
            before = self._held(new.text, older)
            if before:
                yield {"number": new.number, "answer": "same", "which": before}

    def _held(self, text: str, known: list[Listed]) -> list[int]:
        if not self.careful:
            return []
        return [one.number for one in known if one.text.rstrip(".") in text][:1]


def talk(memory: AgentMemory) -> Iterator[None]:
    """Hold a long talk in which the assistant repeats its recalls, and yield after each session."""
    for turn in range(TURNS):
        session = f"s{turn // 4}"  # facts that the window shows are not recalled
        text = ASKED[turn % len(ASKED)]
        context = memory.get(session, text, user_id="ann")
        shown = [line for fact in context.extracted_facts for line in fact.text.splitlines()]
        chat = context.to_messages()
        recalled = "".join(one["content"] for one in chat if one["role"] == "system")
        answer = "You told me: " + " ".join(f"- [] {line}" for line in shown)
        if turn < len(OFFERED):
            answer = OFFERED[turn]
        elif turn % 3 == 0:  # with the marks and dates of recalls
            answer = " ".join(line for line in recalled.splitlines() if line.startswith("-"))
        answer = answer or "Hm."
        if turn % 10 == 9:  # the message is stored with its recalls
            text = f"{recalled}\n\n{text}"
        at = DAY + timedelta(hours=turn)
        said = [user(text, created_at=at), assistant(answer, created_at=at)]
        memory.update(session, said, user_id="ann")
        if turn % 4 == 3:
            assert [done.error for done in memory.flush(session)] == [None]
            yield


@pytest.mark.parametrize("careful", [True, False])
@pytest.mark.parametrize("roles", [("user",), ("user", "assistant")])
def test_what_is_recalled_is_not_learned_again(roles: Any, careful: bool) -> None:
    """Wrong: a recalled fact that is repeated becomes another fact."""
    store = MemoryStore()
    with FakeLLM(Greedy(careful=careful)) as fake:
        blocks = [ExtractiveMemory(roles=roles)]
        memory = AgentMemory(store=store, blocks=blocks, max_tokens=2000, **model_at(fake))
        kept = []
        with memory:
            for _ in talk(memory):
                facts = memory.user("ann").facts()
                records = store.records("extractive", "user:ann")
                others = [one for one in records if one.metadata.get("role") not in (None, "user")]
                kept.append(([fact.text for fact in facts], [one.id for one in others]))
            texts, others_kept = kept[-1]
            assert kept[SETTLED:] == [kept[-1]] * (TURNS // 4 - SETTLED)
            assert set(ASKED) <= set(texts)
            assert bool(others_kept) == ("assistant" in roles)
            assert len(texts) == len(set(texts)) <= len(ASKED) + len(OFFERED) + 2
            assert not any("memory" in text or "according" in text for text in texts)
