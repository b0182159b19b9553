"""Cached words and vectors of notes and skills: neither read nor embedded again."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent_memory import AgentMemory, NoteMemory, SkillMemory
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.vectors import Encoding


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


def recalled(memory: AgentMemory, question: str) -> list[str]:
    return sorted(one.text for one in memory.get("s", question, user_id="ada").recalls)


def test_note_words_are_read_once(
    pair: tuple[AgentMemory, AgentMemory], words_read: list[str]
) -> None:
    """Wrong: each context, or each change, parses the words of all notes again."""
    one, two = pair
    notes = two.user("ada").notes()
    notes.add("The boat is green")
    other = notes.add("The boat is old")
    assert recalled(one, "the boat") == ["The boat is green", "The boat is old"]
    words_read.clear()
    assert recalled(one, "the boat") == ["The boat is green", "The boat is old"]
    assert words_read == []
    notes.update(other.id, "The boat is new")
    assert recalled(one, "the boat") == ["The boat is green", "The boat is new"]
    assert words_read == ["The boat is green", "The boat is new"]
    notes.delete(other.id)
    assert recalled(one, "the boat") == ["The boat is green"]
    words_read.clear()
    assert recalled(one, "the boat") == ["The boat is green"]
    assert words_read == []


@pytest.mark.parametrize("by", ["user", "clear", "other"])
def test_what_is_deleted_is_not_kept(pair: tuple[AgentMemory, AgentMemory], by: str) -> None:
    """Wrong: the texts of a deleted user stay in the cache."""
    one, two = pair
    one.user("ada").notes().add("The boat is green")
    one.user("ada").skills().write("paint-boat", "Paint the boat", steps=["Sand it."])
    assert len(recalled(one, "paint the boat")) == 2
    if by == "clear":
        one.user("ada").notes().clear()
        one.user("ada").skills().delete("paint-boat")
    else:
        (one if by == "user" else two).delete_user("ada")
    if by != "user":
        assert recalled(one, "paint the boat") == []
    for block in one.blocks.values():
        assert not block._indexes
