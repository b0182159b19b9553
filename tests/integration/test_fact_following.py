"""Facts in several processes: each follows the changes that others make to the records."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_memory import AgentMemory
from agent_memory.core.records import Scope
from agent_memory.ltm_blocks.change_log import erase
from agent_memory.stores import open_store
from agent_memory.stores.base import Store
from agent_memory.testing import watched
from tests.integration.fact_model import Model, absorbed, remembering, said, texts

OWNER, BLOCK = "user:ada", "extractive"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path}/m.db"
    store = open_store(url)
    yield store
    store.close()


@contextmanager
def pair(
    model: Model, store: Store, watching: Store | None = None
) -> Iterator[tuple[AgentMemory, AgentMemory]]:
    """Open two memories over one store, like two processes."""
    with remembering(model, watching or store) as one, remembering(model, store) as two:
        yield one, two


def recalled(memory: AgentMemory) -> list[str]:
    return sorted(one.text.split(" (")[0] for one in memory.get("q", user_id="ada").recalls)


def test_what_is_absorbed_anew_takes_the_place_of_what_was(store: Store) -> None:
    """Wrong: a process still recalls claims that another process replaced."""
    model = Model()
    with pair(model, store) as (one, two):
        absorbed(one, "a", said(model.tell("I have a dog.", "Has a dog.")))
        assert recalled(two) == ["Has a dog."]
        model.finds.clear()
        model.tell("I have a dog.", "Owns a dog.")
        block = one.blocks[BLOCK]
        entries = list(one.history("a"))
        block.update(Scope("ada", "a"), entries)
        assert recalled(one) == recalled(two) == ["Owns a dog."]
        kept = store.records(BLOCK, OWNER)
        assert [one.text for one in kept if "fact" in one.metadata] == ["Owns a dog."]


def test_an_erasure_in_the_middle_of_an_absorb(store: Store) -> None:
    """Wrong: a process still recalls a session that was erased while another process absorbed a
    batch."""
    model = Model()
    armed: list[int] = []

    def watch(step: str) -> None:
        if step == "before put_records" and armed:
            armed.clear()
            other.blocks[BLOCK].delete(Scope("ada", "a"))

    other: AgentMemory | None = None
    with pair(model, store, watched(store, watch)) as (one, two):
        other = two
        absorbed(one, "a", said(model.tell("I have a dog.", "Has a dog.")))
        with remembering(model, store) as third:
            absorbed(one, "b", said(model.tell("I play chess.", "Plays chess.")))
            left = ["Likes tea.", "Plays chess."]
            assert recalled(third) == ["Has a dog.", "Plays chess."]
            quote = model.tell("I like tea.", "Likes tea.")
            one.update("b", [said(quote)], user_id="ada")
            armed.append(1)
            one.flush("b")
            assert not armed
            assert recalled(third) == recalled(one) == recalled(two) == left


def test_an_erasure_without_the_block(store: Store) -> None:
    """Wrong: a process still recalls facts that a memory without the block erased."""
    model = Model()
    with pair(model, store) as (one, two):
        absorbed(one, "a", said(model.tell("I have a dog.", "Has a dog.")))
        assert recalled(two) == ["Has a dog."]
        erase(store, BLOCK, Scope("ada"))
        absorbed(one, "b", said(model.tell("I like tea.", "Likes tea.")))
        assert recalled(one) == recalled(two) == ["Likes tea."]
        assert texts(two.user("ada").facts()) == ["Likes tea."]
