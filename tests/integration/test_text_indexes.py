"""What is kept of notes' and skills' texts between searches: neither read nor embedded again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from agent_memory import AgentMemory, NoteMemory, SkillMemory
from agent_memory.core.records import Scope
from agent_memory.errors import ModelUnavailable
from agent_memory.ltm_blocks.text_indexes import TextIndexes
from agent_memory.models.embedders.best_effort import BestEffort
from agent_memory.models.embedders.cache import CachedEmbedder
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.vectors import Encoding

ADA = Scope("ada", "s")


class Letters:
    """An embedder by letters, which tells what it was asked."""

    name, dimension, baseline = "letters", 26, 0.0

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.is_down = False

    def load(self) -> None:
        """It has nothing to load."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        if self.is_down:
            raise ModelUnavailable("down")
        self.asked.append(list(texts))
        rows = np.zeros((len(texts), 26), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for letter in text.lower():
                if "a" <= letter <= "z":
                    row[ord(letter) - ord("a")] += 1
            row /= np.linalg.norm(row) or 1
        return rows


@pytest.fixture
def words_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of which the words were read, as they are."""
    read: list[str] = []
    as_before = Features.of_statements

    def of_statements(texts: Sequence[str], encodings: Sequence[Encoding]) -> Features:
        read.extend(texts)
        return as_before(texts, encodings)

    monkeypatch.setattr(Features, "of_statements", of_statements)
    return read


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[AgentMemory, AgentMemory]]:
    """Two over one file, as two processes have it."""
    url = f"sqlite:///{tmp_path}/m.db"
    blocks = [NoteMemory(), SkillMemory(folder=tmp_path / "skills")]
    with (
        AgentMemory(store=url, blocks=blocks, min_relevance=0) as one,
        AgentMemory(store=url, blocks=blocks, min_relevance=0) as two,
    ):
        yield one, two


def recalled(memory: AgentMemory, question: str) -> list[str]:
    return sorted(one.text for one in memory.get("s", question, user_id="ada").recalls)


def test_words_of_notes_are_read_once(
    pair: tuple[AgentMemory, AgentMemory], words_read: list[str]
) -> None:
    """Wrong: each context reads the words of all notes anew, or one after a change does; or what
    another process has written, changed or deleted is found, or not, because of what is kept."""
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


def test_words_of_skills_are_read_once(
    pair: tuple[AgentMemory, AgentMemory], words_read: list[str]
) -> None:
    """Wrong: each context reads the words of all skills anew; or a skill that another process has
    saved is not found."""
    one, two = pair
    skills = two.user("ada").skills()
    skills.write("paint-boat", "Paint the boat", steps=["Sand it."])
    assert len(recalled(one, "paint the boat")) == 1
    words_read.clear()
    assert len(recalled(one, "paint the boat")) == 1
    assert words_read == []
    skills.write("sell-boat", "Sell or paint the boat", steps=["Ask around."])
    assert len(recalled(one, "paint the boat")) == 2
    assert len(words_read) == 2
    skills.delete("paint-boat")
    assert len(recalled(one, "paint the boat")) == 1


@pytest.mark.parametrize("by", ["user", "clear", "other"])
def test_what_is_deleted_is_not_kept(pair: tuple[AgentMemory, AgentMemory], by: str) -> None:
    """Wrong: the texts of a user who is gone stay in memory."""
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
        assert isinstance(block, NoteMemory | SkillMemory)
        assert not block._indexes


def test_the_same_texts_are_embedded_once() -> None:
    """Wrong: texts are embedded at every search; or an index that was made without vectors, while
    the embedder was down, is kept once it is up again."""
    letters = Letters()
    best = BestEffort(lambda: CachedEmbedder(letters, size=0))
    indexes = TextIndexes(best)
    letters.is_down = True
    assert not indexes.of("ada", ["tea"]).encoded
    letters.is_down, best._down_until = False, 0.0
    first = indexes.of("ada", ["tea"])
    assert first.encoded
    assert indexes.of("ada", ["tea"]) is first
    assert indexes.of("bob", ["tea"]) is not first
    letters.is_down = True
    assert indexes.of("ada", ["tea"]) is first
    letters.is_down = False
    more = indexes.of("ada", ["tea", "oil"])
    assert letters.asked == [["tea"], ["tea"], ["tea", "oil"]]
    assert more.relevance(best.query("some oil")).argmax() == 1
