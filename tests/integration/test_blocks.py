"""Blocks in the live engine: extraction over real HTTP, the real embedder, Qdrant's local mode."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, Block, ExtractiveMemory, Message, StaticMemory, VectorMemory
from agent_memory.core.records import Entry, Recall, Scope
from agent_memory.errors import InvalidSetting
from tests.integration.fact_model import Model, absorbed, remembering, said
from tests.kit import Silent, user


def test_facts_carry_category_source_and_quote() -> None:
    """Wrong: a fact lacks its category, quote or source, and cannot be traced to a message."""
    model, quote = Model(), "from Marketing & Sales"
    model.tell(quote, "Sarah works in Marketing.", category="work")
    with remembering(model) as memory:
        absorbed(memory, "s", said("I'm Sarah, from Marketing & Sales."), user_id="sarah")
        (fact,) = memory.search("Marketing", user_id="sarah")
        assert fact.sources == (("s", 1),)
        assert fact.metadata == {
            "category": "work",
            "quote": quote,
            "subject": "user",
            "role": "user",
            "confidence": 1.0,
        }
        (shown,) = memory.get("t", "Which department?", user_id="sarah").extracted_facts
        assert shown.text == "Sarah works in Marketing."


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        ({"id": "fact1", "content": "The office opens at nine."}, "The office opens at nine."),
        ({"content": "Closed on Sundays."}, "Closed on Sundays."),
        ({"office_hours": "9 to 17"}, "office hours: 9 to 17"),
        ({"text": 3, "of": "parts"}, "text: 3; of: parts"),
        ({"name": "Acme", "office": {"city": "Köln", "floors": [1, 2]}},
         "name: Acme; office city: Köln; office floors: 1, 2"),
        ({"staff": [{"name": "Ana"}, {"name": "Ben", "lead": True}]},
         "staff 1 name: Ana; staff 2 name: Ben; staff 2 lead: yes"),
        ({"id": "leave", "content": {"days": 25, "carry_over": {"days": 5, "until": "March"}}},
         "days: 25; carry over days: 5; carry over until: March"),
        ({"id": "r", "title": "Refunds", "content": ["within 14 days", "with a receipt"]},
         "title: Refunds; within 14 days, with a receipt"),
        (["tea", "coffee"], "tea, coffee"),
        (42, "42"),
        ({"fax": None, "shop": False, "rooms": []}, "fax: none; shop: no; rooms: none"),
    ],
)  # fmt: skip
def test_static_facts_are_said_as_people_would(fact: Any, said: str) -> None:
    """Wrong: the model reads braces and quotes, or part of a static fact is lost."""
    with AgentMemory(store="memory://", blocks=[StaticMemory(facts=[fact])]) as memory:
        (shown,) = memory.get("s", user_id="anyone").static_facts
    assert shown.text == said
    assert not isinstance(fact, dict) or fact.get("id", shown.id) == shown.id


def test_a_dict_of_static_facts_has_one_for_each_key() -> None:
    """Wrong: a dict of static facts becomes a single fact, or a value that is no JSON is
    accepted."""
    facts = {"office": "Berlin", "leave": {"days": 25, "sick_days": 10}}
    with AgentMemory("memory://", blocks=[StaticMemory(facts=facts)]) as memory:
        shown = [one.text for one in memory.get("s", user_id="anyone").static_facts]
    assert shown == ["office: Berlin", "leave days: 25; leave sick days: 10"]
    with AgentMemory("memory://", blocks=[StaticMemory(facts="Be brief.")]) as memory:  # type: ignore[arg-type]
        assert [one.text for one in memory.get("s").static_facts] == ["Be brief."]
    with pytest.raises(InvalidSetting):
        StaticMemory(facts=[{"a": object()}])


class PlainNotes:
    """A block that subclasses nothing."""

    def __init__(self) -> None:
        self.notes: dict[tuple[str, int], str] = {}

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return [Recall("?", str(seq), text) for (_, seq), text in self.notes.items()][:limit]

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.notes |= {(entry.session_id, entry.seq): entry.message.text() for entry in entries}

    def delete(self, scope: Scope) -> None:
        self.notes = {key: text for key, text in self.notes.items() if key[0] != scope.session_id}


def test_an_object_with_the_methods_is_a_block_and_none_without() -> None:
    """Wrong: a block has to subclass `Block`, or a subclass may lack a method."""
    with AgentMemory(store="memory://", blocks=[PlainNotes()]) as memory:
        memory.update("s", {"role": "user", "content": "My bike is red."}, user_id="a")
        memory.flush()
        context = memory.get("t", user_id="a")
        assert [(r.block, r.text) for r in context.recalls] == [("plain_notes", "My bike is red.")]
        assert "<plain_notes_memory>" in str(context.to_messages())
        memory.delete("s")
        assert memory.get("t", user_id="a").recalls == []

    class Half(Block):
        kind: str = "half"

        def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
            return []

    with pytest.raises(TypeError, match="delete"):
        Half()  # type: ignore[abstract]


class Homeless(Silent):
    """Fails because its file does not exist."""

    kind: str = "homeless"
    folder: str = ""

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        open(f"{self.folder}/kept.json", encoding="utf-8").close()
        return []

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.get(scope, None, 1)


def test_warnings_name_no_folders(tmp_path: Path) -> None:
    """Wrong: a warning shows a path of this machine to the model."""
    for store in ("memory://", f"sqlite:///{tmp_path}/m.db"):
        blocks = [Homeless(folder=str(tmp_path))]
        with AgentMemory(store=store, blocks=blocks, overflow_mode="inline") as memory:
            memory.update("s", {"role": "user", "content": "Hi"}, user_id="a")
            memory.flush()
            for session in ("s", "t"):
                told = " ".join(memory.get(session, "Hi", user_id="a").warnings)
                assert "FileNotFoundError: No such file or directory: 'kept.json'" in told
                assert str(tmp_path) not in told


def test_a_block_without_a_model_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: no warning says that a block without a model finds no facts, or it is repeated."""
    with AgentMemory(store="memory://", blocks=[ExtractiveMemory()]) as memory:
        assert "'extractive' absorbs nothing" in caplog.text
        memory.update("s", user("I'm Sarah."), user_id="sarah")
        for _ in range(2):
            (told,) = memory.get("s").warnings
            assert 'Set `model`, such as model="openai/gpt-4o-mini"' in told
            assert memory.stats().blocks["extractive"].error == told
            memory.flush()
        assert memory.user("sarah").facts() == []
    caplog.clear()
    own = ExtractiveMemory(model="openai/gpt-4o-mini")
    with AgentMemory(store="memory://", blocks=[own, VectorMemory()]) as memory:
        assert memory.get("s").warnings == []
    assert "model" not in caplog.text
