"""The stale report: duplicates and old records, and forgetting what a search found."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, NoteMemory, Recall, SkillMemory, SpatialMemory, VectorMemory
from agent_memory.core.fusion import doubles
from agent_memory.core.records import Scope
from agent_memory.errors import SessionOfAnotherUser
from agent_memory.ltm_blocks.base import ManualBlock
from agent_memory.ltm_blocks.files import FileMemory
from agent_memory.ltm_blocks.skills.files import Skill
from tests.integration.fact_model import Model, absorbed, dated, remembering
from tests.kit import assistant, user

WORDS = ["boat", "river", "lamp", "violin", "harvest", "engine", "pepper", "glacier"]
DOCK = "The boat lies at the eastern dock of the old harbour, next to the blue lamp."


def shares(one: str, other: str) -> float:
    """The Jaccard index of the pairs of neighbouring words."""
    pairs = [set(zip(["", *t.casefold().split()], t.casefold().split())) for t in (one, other)]  # noqa: B905
    words = [set(text.split()) for text in (one, other)]
    if not (words[0] <= words[1] or words[1] <= words[0]):  # a word is replaced
        return 0.0
    return len(pairs[0] & pairs[1]) / len(pairs[0] | pairs[1]) if pairs[0] | pairs[1] else 1.0


@pytest.mark.parametrize("seed", range(20))
def test_every_near_duplicate_is_found(seed: int) -> None:
    """Wrong: the fast comparison misses a pair that comparing every pair finds."""
    rng = random.Random(seed)
    texts: list[str] = []
    for _ in range(60):
        if texts and rng.random() < 0.6:
            words = rng.choice(texts).split()
            for _ in range(rng.choice([0, 1, 1, 2])):
                words[rng.randrange(len(words))] = rng.choice(WORDS)
            texts.append(" ".join(words))
        else:
            texts.append(" ".join(rng.choices(WORDS, k=rng.randint(1, 25))))
    expected: dict[int, int] = {}
    for at, text in enumerate(texts):
        stay = (of for of in range(at) if of not in expected and shares(text, texts[of]) >= 0.8)
        if (of := next(stay, None)) is not None:
            expected[at] = of
    assert doubles(texts) == expected


def test_near_duplicates_share_all_names_and_numbers() -> None:
    """Wrong: two orders that differ only in a number count as duplicates."""
    order = "Please send the parcel with the number {} to the office in the old town by noon today"
    assert doubles([order.format("AB-1234"), order.format("AB-1235")]) == {}
    assert doubles(["", "", "a"]) == {1: 0}
    assert doubles([DOCK, DOCK.casefold()]) == {1: 0}


class Entries(ManualBlock):
    """A user's own block."""

    kind: str = "entries"

    def get(self, scope: Scope, message: Any, limit: int) -> list[Recall]:
        return []

    def stored_records(self, scope: Scope) -> list[Recall]:
        count = 2 if scope.user_id == "ana" else 0
        return [Recall(self.name, f"e{n}", DOCK) for n in range(count)]

    def delete(self, scope: Scope) -> None:
        """Nothing."""


def test_duplicates_of_every_block_are_reported_and_can_be_deleted(tmp_path: Path) -> None:
    """Wrong: the report changes data, misses a block, or its findings cannot be deleted."""
    blocks = [
        NoteMemory(), FileMemory(), SkillMemory(folder=tmp_path / "skills"), SpatialMemory(),
        Entries(), VectorMemory(),
    ]  # fmt: skip
    with AgentMemory("memory://", blocks=blocks) as memory:
        ana = memory.user("ana")
        for text in (DOCK, DOCK.replace("old", "very old"), "Something else."):
            ana.notes().add(text)
            memory.update("s", {"role": "user", "content": text}, user_id="ana")
        for name in ("a", "b"):
            ana.files().create(f"/memories/{name}.md", DOCK)
            ana.skills().save(Skill(f"moor-{name}", DOCK, (DOCK, "Tie the rope.")))
            ana.spatial().observe(DOCK, (1.0, 2.0))
        memory.user("ben").notes().add(DOCK)
        before = len(ana.notes().all())
        found = ana.surplus(messages=True)
        by_block = {one.recall.block: one for one in found}
        assert set(by_block) == {
            "notes", "files", "skills", "spatial", "entries", "log",
        }  # fmt: skip
        assert all(one.why == "duplicate" and one.of is not None for one in found)
        assert "very old" in by_block["notes"].of.text  # the newest stays
        assert len(ana.notes().all()) == before
        gone = ana.forget_all(found)
        assert {one.block for one in gone} == {"notes", "files", "skills", "spatial"}
        assert {one.recall.block for one in ana.surplus(messages=True)} == {"entries", "log"}
        assert len(ana.notes().all()) == before - 1
        assert ana.files().paths() == ["/memories/b.md"]
        assert len(memory.history("s")) == 3
        assert memory.user("ben").surplus() == []
        assert ana.forget_all(found) == []


def test_old_records_are_reported_only_with_older_than() -> None:
    """Wrong: an old record is reported without `older_than`, or a new one with it."""
    with AgentMemory("memory://") as memory:
        memory.remember("Long ago.", user_id="ana", at=datetime(2020, 1, 1, tzinfo=UTC))
        memory.remember("Just now.", user_id="ana")
        assert memory.user("ana").surplus() == []
        (old,) = memory.user("ana").surplus(older_than=timedelta(days=365))
        assert (old.why, old.recall.text) == ("old", "Long ago.")


def test_reported_facts_equal_the_stale_facts_of_their_block() -> None:
    """Wrong: the report lists other facts than the block's own `stale`."""
    model = Model()
    model.tell("I live in Oslo", "Lives in Oslo.", category="home")
    model.tell("my home is Oslo", "The user lives in Oslo.", category="home")
    with remembering(model) as memory:
        absorbed(memory, "a", dated("I live in Oslo"))
        absorbed(memory, "b", dated("my home is Oslo"))
        stale = [one.fact.id for one in memory.user("ada").stale()]
        assert [one.recall.id for one in memory.user("ada").surplus()] == stale


def test_forget_all_deletes_exactly_the_results_of_a_query() -> None:
    """Wrong: `forget_all` deletes more or less than the given records, or another user's."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    with AgentMemory("memory://", blocks=[VectorMemory(), NoteMemory()]) as memory:
        ana = memory.user("ana")
        memory.remember("Ana is allergic to peanuts.", user_id="ana")
        memory.remember("Ana likes tea.", user_id="ana")
        messages = [
            user("Do peanuts hurt me?", metadata={"topic": "food"}),
            assistant("Peanuts may.", tool_calls=[call]),
            {"role": "tool", "tool_call_id": "c", "content": "looked it up"},
            assistant("So leave them."),
        ]
        memory.update("s", messages, user_id="ana")
        memory.update("t", {"role": "user", "content": "I eat peanuts."}, user_id="ben")
        memory.flush()
        found = memory.search("allergic to peanuts", user_id="ana", blocks=["notes"])
        preview = [one for one in found if "peanuts" in one.text]
        assert ana.forget_all(preview) == preview
        assert [note.text for note in ana.notes().all()] == ["Ana likes tea."]
        assert len(memory.history("s")) == 4
        said_so = memory.search("peanuts", user_id="ana", roles=["assistant"], least=0)
        assert {source for one in said_so for source in one.sources} == {("s", 2), ("s", 4)}
        found = [one for one in said_so if one.sources == (("s", 2),)]
        assert ana.forget_all(found) == []
        assert ana.forget_all(found, messages=True) == found
        left = [entry.message.content for entry in memory.history("s")]
        assert left == ["Do peanuts hurt me?", "So leave them."]
        memory.flush()
        assert "Peanuts may" not in str(memory.search("peanuts", user_id="ana", least=0))
        bens = memory.search("peanuts", user_id="ben")
        with pytest.raises(SessionOfAnotherUser):
            ana.forget_all(bens, messages=True)
        assert len(memory.history("t")) == 1


def test_a_recall_carries_its_messages_metadata() -> None:
    """Wrong: a recall lacks the metadata of its message."""
    noted = {"topic": "food", "ids": [1, 2]}
    with AgentMemory("memory://", blocks=[VectorMemory()]) as memory:
        memory.update("s", user("I love figs.", metadata=noted), user_id="ana")
        for _ in range(2):  # before and after it is absorbed
            (found,) = memory.get("t", "Who loves figs?", user_id="ana").recalls
            assert found.metadata["message"] == noted
            (found,) = memory.search("figs", user_id="ana", where={"topic": "food"})
            assert found.metadata["message"] == noted
            memory.flush()


def test_forgetting_messages_does_not_recreate_a_deleted_session() -> None:
    """Wrong: forgetting messages of a deleted session begins it again, empty."""
    with AgentMemory("memory://", blocks=[], recall_timeout=30) as memory:
        memory.update("s", {"role": "user", "content": DOCK}, user_id="ana")
        found = memory.search("eastern dock", user_id="ana")
        assert found
        memory.delete("s")
        assert memory.user("ana").forget_all(found, messages=True) == []
        assert memory.sessions() == []
