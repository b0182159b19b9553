"""Notes: how they are written, owned, found and deleted, and their cached words and vectors."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_memory import AgentMemory, AgentMemoryConfig, Message
from agent_memory.core.records import Scope
from agent_memory.errors import Conflict, InvalidInput, ModelUnavailable
from agent_memory.ltm_blocks import NoteMemory, SkillMemory, VectorMemory
from agent_memory.ltm_blocks.notes import Note, Notes
from agent_memory.models.embedders.base import CachedEmbedder
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.vectors import Encoding
from agent_memory.stores.sql.store import MemoryStore
from tests.kit import SECONDS, opened

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def memory(url: str) -> Iterator[AgentMemory]:
    with opened(url, NoteMemory()) as memory:
        yield memory


def texts(notes: Notes) -> list[str]:
    return [note.text for note in notes.all()]


def recalled(memory: AgentMemory, question: str | None, user_id: str = "ada") -> list[str]:
    context = memory.get("another session", question, user_id=user_id)
    assert context.warnings == []
    return [recall.text for recall in context.recalls]


def test_notes_can_be_added_changed_and_deleted(memory: AgentMemory) -> None:
    """Wrong: a note is lost, stored twice, or cannot be changed or deleted."""
    notes = memory.user("ada").notes()
    assert (notes.all(), notes.get("x")) == ([], None)
    tea = notes.add("  Likes tea.\n", {"by": "clerk"})
    dog = notes.add("Has a dog.")
    assert (tea.text, tea.metadata, tea.session_id) == ("Likes tea.", {"by": "clerk"}, "")
    assert notes.all() == [tea, dog]
    assert notes.get(tea.id) == tea
    assert notes.add("Likes tea.") == tea
    assert len({tea.id, dog.id}) == 2
    green = notes.update(tea.id, "Likes green tea.")
    assert green == Note(tea.id, "Likes green tea.", green.created_at, "", {"by": "clerk"})
    assert green.created_at > dog.created_at > tea.created_at
    assert notes.all() == [dog, green]
    assert notes.delete(dog.id) is True
    assert notes.delete(dog.id) is False
    with pytest.raises(InvalidInput, match=f"There is no note with the id '{dog.id}'"):
        notes.update(dog.id, "Has two dogs.")
    assert texts(memory.user("ada").notes()) == ["Likes green tea."]
    notes.clear()
    assert notes.all() == []


def test_a_key_belongs_to_one_text(memory: AgentMemory) -> None:
    """Wrong: whether a used key is refused depends on which of two notes is older."""
    notes = memory.user("ada").notes()
    notes.add("Likes tea.")
    notes.add("Sails.", key="k")
    notes.add("Has a dog.")
    for text in ("Likes tea.", "Has a dog."):
        with pytest.raises(Conflict):
            notes.add(text, key="k")
    assert notes.add("Sails.", key="k") == notes.all()[1]


def test_a_bad_note_is_refused(url: str) -> None:
    """Wrong: a note is stored that is empty, too long, not JSON, or above the maximum number."""
    with opened(url, NoteMemory(max_notes=2, max_chars=20)) as memory:
        notes = memory.session("s", "ada").owner().notes()
        bad: list[tuple[str, dict[str, Any], str]] = [
            (" \n", {}, "is empty"),
            ("x" * 21, {}, "has 21 characters; the maximum is 20"),
            ("half \ud800", {}, "half of a surrogate pair"),
            ("Tea.", {"a": {1, 2}}, "metadata is not plain JSON: Object of type set"),
            ("Tea.", {"a": "x" * 20}, "metadata has more than 20 characters"),
        ]
        for text, metadata, wanted in bad:
            with pytest.raises(InvalidInput, match=wanted):
                notes.add(text, metadata)
        assert memory.sessions() == []
        first = notes.add("x" * 20, {"a": "x" * 12})
        notes.add("second")
        with pytest.raises(InvalidInput, match="There are 2 notes"):
            notes.add("third")
        for text in ("", "x" * 21, "\ud800"):
            with pytest.raises(InvalidInput):
                notes.update(first.id, text)
        assert notes.add("second").text == notes.all()[-1].text == "second"
        assert notes.all()[0] == first
        notes.update(first.id, "third")
        assert notes.delete(first.id)
        notes.add("fourth")
        assert texts(notes) == ["second", "fourth"]
        memory.user("ben").notes().add("of ben")  # another user has a limit of their own


def test_notes_relevant_to_the_question_are_recalled(memory: AgentMemory) -> None:
    """Wrong: a relevant note is not recalled by words or meaning, or irrelevant ones are."""
    notes = memory.session("s", "ada").owner().notes()
    for number in range(40):
        notes.add(f"Invoice {number} was paid on time.")
    notes.add("Is allergic to peanuts.")
    notes.add("Her daughter plays the violin.")
    assert recalled(memory, "Which nuts is she allergic to?")[0] == "Is allergic to peanuts."
    assert recalled(memory, "What musical instrument?")[0] == "Her daughter plays the violin."
    assert recalled(memory, "xyzzy?") == []
    assert recalled(memory, "peanuts", "ben") == []
    newest = recalled(memory, None)
    assert newest[:2] == ["Her daughter plays the violin.", "Is allergic to peanuts."]
    found = memory.search("peanuts", user_id="ada", limit=1)
    assert [(one.block, one.text) for one in found] == [("notes", "Is allergic to peanuts.")]
    assert memory.search("peanuts") == []
    block = memory.blocks["notes"]
    assert block.get(Scope("ada"), None, 0) == []
    assert block.get(Scope(), Message(role="user", content="peanuts"), 5) == []


def test_notes_without_a_block_are_stored_but_not_recalled() -> None:
    """Wrong: notes need a block to be stored, or are recalled without one."""
    store = MemoryStore()
    with opened(store) as memory:
        memory.user("ada").notes().add("Likes tea.")
        assert texts(memory.user("ada").notes()) == ["Likes tea."]
        assert memory.get("s", "tea?", user_id="ada").recalls == []
        assert [one.text for one in memory.search("tea", user_id="ada")] == ["Likes tea."]
        memory.delete_user("ada")
        assert memory.user("ada").notes().all() == []
        memory.user("ada").notes().add("Likes coffee.")
    with opened(store, NoteMemory()) as memory:
        assert recalled(memory, "coffee") == ["Likes coffee."]


class Reading:
    """An embedder whose vectors show which words a text has. It may be down."""

    name, dimension = "reading", 3

    def __init__(self) -> None:
        self.asked = 0
        self.down = False

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += 1
        if self.down:
            raise ModelUnavailable("It is down.")
        rows = [[float(word in text) for word in ("tea", "dog", "brew")] for text in texts]
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.maximum(lengths, 1), np.float32)


def test_notes_are_found_by_words_during_an_embedder_outage(memory: AgentMemory) -> None:
    """Wrong: an outage of the embedder hides notes that share words with the question."""
    embedder, block = Reading(), memory.blocks["notes"]
    block = block.bind(replace(block.resources, embedders=lambda name: CachedEmbedder(embedder)))

    def found(question: str) -> list[str]:
        recalls = block.get(Scope("ada"), Message(role="user", content=question), 5)
        return [recall.text for recall in recalls]

    notes = memory.user("ada").notes()
    notes.add("Prefers green tea, which is to brew for two minutes.")
    notes.add("Has a dog named Rex.")
    assert found("brew")[0].startswith("Prefers green tea")
    embedder.down, embedder.asked = True, 0
    assert found("What is the dog named?") == ["Has a dog named Rex."]
    assert found("How long is the green tea to brew?")[0].startswith("Prefers green tea")
    assert embedder.asked == 1


def test_a_block_of_another_kind_may_be_called_notes(url: str) -> None:
    """Wrong: notes and the records of a block named "notes" are mixed up."""
    with opened(url, VectorMemory(name="notes")) as memory:
        memory.update("s", {"role": "user", "content": "I like tea."}, user_id="ada")
        memory.flush()
        memory.user("ada").notes().add("Likes milk.")
        assert texts(memory.user("ada").notes()) == ["Likes milk."]
        found = {one.text: one.block for one in memory.search("tea milk", user_id="ada")}
        assert found.keys() == {"user: I like tea.", "Likes milk."}
        assert found["user: I like tea."] == "notes" != found["Likes milk."]


def test_notes_survive_a_restart(tmp_path: Path) -> None:
    """Wrong: notes are lost at a restart, or a settings file cannot name the block."""
    file = tmp_path / "memory.toml"
    file.write_text(
        f'store = "sqlite:///{tmp_path}/m.db"\nrecall_timeout = {SECONDS}\n'
        '[[blocks]]\nkind = "notes"\nname = "diary"\n'
    )
    settings = AgentMemoryConfig.from_file(file)
    with AgentMemory(settings) as memory:
        note = memory.session("s", "ada").owner().notes().add("Likes tea.", {"by": "clerk"})
    with AgentMemory(settings) as memory:
        assert memory.user("ada").notes().all() == [note]
        assert "<diary_memory>" in memory.get("s", "tea").to_messages()[0]["content"]


@pytest.fixture
def words_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts whose words were parsed, in order."""
    read: list[str] = []
    as_before = Features.of_statements

    def of_statements(texts: Sequence[str], encodings: Sequence[Encoding]) -> Features:
        read.extend(texts)
        return as_before(texts, encodings)

    monkeypatch.setattr(Features, "of_statements", of_statements)
    return read


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[AgentMemory, AgentMemory]]:
    """Two memories over one file, as in two processes."""
    url = f"sqlite:///{tmp_path}/m.db"
    blocks = [NoteMemory(), SkillMemory(folder=tmp_path / "skills")]
    with (
        AgentMemory(store=url, blocks=blocks, min_relevance=0) as one,
        AgentMemory(store=url, blocks=blocks, min_relevance=0) as two,
    ):
        yield one, two


def recalled_texts(memory: AgentMemory, question: str) -> list[str]:
    return sorted(one.text for one in memory.get("s", question, user_id="ada").recalls)


def test_notes_are_read_once(pair: tuple[AgentMemory, AgentMemory], words_read: list[str]) -> None:
    """Wrong: each context, or each change, parses the words of all notes again."""
    one, two = pair
    notes = two.user("ada").notes()
    notes.add("The boat is green")
    other = notes.add("The boat is old")
    assert recalled_texts(one, "the boat") == ["The boat is green", "The boat is old"]
    words_read.clear()
    assert recalled_texts(one, "the boat") == ["The boat is green", "The boat is old"]
    assert words_read == []
    notes.update(other.id, "The boat is new")
    assert recalled_texts(one, "the boat") == ["The boat is green", "The boat is new"]
    assert words_read == ["The boat is green", "The boat is new"]
    notes.delete(other.id)
    assert recalled_texts(one, "the boat") == ["The boat is green"]
    words_read.clear()
    assert recalled_texts(one, "the boat") == ["The boat is green"]
    assert words_read == []


@pytest.mark.parametrize("by", ["user", "clear", "other"])
def test_deleted_texts_leave_the_cache(pair: tuple[AgentMemory, AgentMemory], by: str) -> None:
    """Wrong: the texts of a deleted user stay in the cache."""
    one, two = pair
    one.user("ada").notes().add("The boat is green")
    one.user("ada").skills().write("paint-boat", "Paint the boat", steps=["Sand it."])
    assert len(recalled_texts(one, "paint the boat")) == 2
    if by == "clear":
        one.user("ada").notes().clear()
        one.user("ada").skills().delete("paint-boat")
    else:
        (one if by == "user" else two).delete_user("ada")
    if by != "user":
        assert recalled_texts(one, "paint the boat") == []
    for block in one.blocks.values():
        assert not block._indexes
