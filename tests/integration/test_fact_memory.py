"""Facts of one user in several processes and calls, and a `forget` that is interrupted."""

import re
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from agent_memory import AgentMemory
from agent_memory.core.records import Scope
from agent_memory.errors import StoreUnavailable
from agent_memory.ltm_blocks.versions import erase
from agent_memory.stores import MemoryStore, open_store
from agent_memory.testing import watched
from tests.integration.fact_model import Model, absorbed, dated, remembering, texts

BLOCK = "extractive"


def recalled(memory: AgentMemory, user_id: str = "ada") -> list[str]:
    """Return the facts that a context shows, sorted."""
    return sorted(texts(memory.get("new", user_id=user_id).recalls))


@pytest.fixture
def model() -> Model:
    model = Model()
    model.tell("I live in Oslo", "Lives in Oslo.", category="home")
    model.tell("I row", "Rows.", category="sport")
    return model


def test_a_recall_reflects_changes_of_other_processes(url: str, model: Model) -> None:
    """Wrong: a process recalls facts that another has forgotten or deleted, or misses new ones."""
    with remembering(model, url) as one, remembering(model, url) as other:
        absorbed(one, "s1", dated("I live in Oslo"))
        assert recalled(other) == recalled(one) == ["Lives in Oslo."]
        absorbed(other, "s2", dated("I row"))
        assert recalled(one) == ["Lives in Oslo.", "Rows."]
        other.session("s1").owner().forget(source="s1")
        assert recalled(one) == ["Rows."]
        other.pop("s2")
        assert recalled(one) == []
        absorbed(other, "s3", dated("I row"))
        assert recalled(one) == ["Rows."]
        other.delete("s3")
        assert recalled(one) == []
        absorbed(other, "s4", dated("I row"))
        assert recalled(one) == ["Rows."]
        other.delete_user("ada")
        assert recalled(one) == []
        absorbed(other, "s5", dated("I row"), user_id="ben")
        assert recalled(one) == []
        assert recalled(one, "ben") == ["Rows."]


def test_an_unfinished_deletion_hides_facts_of_the_session(model: Model) -> None:
    """Wrong: facts of a session are shown although its interrupted deletion hides the session."""
    rome = model.tell("I live in Rome", "Lives in Rome.", ("update", "Lives in Oslo."))
    with remembering(model, keep_contexts=True) as memory:
        absorbed(memory, "s1", dated("I live in Oslo"), dated(rome))
        absorbed(memory, "s2", dated("I row"))
        memory.get("s2", "Where do I live?")

        def shown() -> str:
            ada, asked = memory.user("ada"), memory.explain("Where do I live?", user_id="ada")
            kept = ada.facts(), ada.audit(), ada.surplus(older_than=timedelta(0))
            return f"{asked} {kept} {memory.contexts('s2')}"

        assert {"Oslo", "Rome"} <= {*re.findall(r"\w+", shown())}
        store = memory.components.store
        assert store.move(replace(store.head("s1"), deleting=True))
        assert not {"Oslo", "Rome"} & {*re.findall(r"\w+", shown())}
        assert "Rows" in shown()


def test_claims_of_a_repeated_absorb_replace_the_earlier_ones(url: str) -> None:
    """Wrong: a process still recalls claims that another process replaced."""
    model = Model()
    with remembering(model, url) as one, remembering(model, url) as two:
        absorbed(one, "a", dated(model.tell("I have a dog.", "Has a dog.")))
        assert recalled(two) == ["Has a dog."]
        model.finds.clear()
        model.tell("I have a dog.", "Owns a dog.")
        one.blocks[BLOCK].update(Scope("ada", "a"), one.history("a"))
        assert recalled(one) == recalled(two) == ["Owns a dog."]
        kept = one.components.store.records(BLOCK, "user:ada")
        assert [one.text for one in kept if "fact" in one.metadata] == ["Owns a dog."]


def test_an_erasure_during_another_absorb_takes_effect(url: str) -> None:
    """Wrong: a process recalls a session that was erased while another process absorbed a batch."""
    model = Model()
    armed: list[int] = []

    def watch(step: str) -> None:
        if step == "before put_records" and armed:
            armed.clear()
            two.blocks[BLOCK].delete(Scope("ada", "a"))

    store = open_store(url)
    with (
        closing(store),
        remembering(model, watched(store, watch)) as one,
        remembering(model, url) as two,
    ):
        absorbed(one, "a", dated(model.tell("I have a dog.", "Has a dog.")))
        with remembering(model, url) as third:
            absorbed(one, "b", dated(model.tell("I play chess.", "Plays chess.")))
            left = ["Likes tea.", "Plays chess."]
            assert recalled(third) == ["Has a dog.", "Plays chess."]
            quote = model.tell("I like tea.", "Likes tea.")
            one.update("b", [dated(quote)], user_id="ada")
            armed.append(1)
            one.flush("b")
            assert not armed
            assert recalled(third) == recalled(one) == recalled(two) == left


def test_an_erasure_by_a_memory_without_the_block_takes_effect(url: str) -> None:
    """Wrong: a process still recalls facts that a memory without the block erased."""
    model = Model()
    with remembering(model, url) as one, remembering(model, url) as two:
        absorbed(one, "a", dated(model.tell("I have a dog.", "Has a dog.")))
        assert recalled(two) == ["Has a dog."]
        with closing(open_store(url)) as store:
            erase(store, BLOCK, Scope("ada"))
        absorbed(one, "b", dated(model.tell("I like tea.", "Likes tea.")))
        assert recalled(one) == recalled(two) == ["Likes tea."]
        assert texts(two.user("ada").facts()) == ["Likes tea."]


def test_repeated_recalls_read_the_facts_once(model: Model) -> None:
    """Wrong: each recall reads all facts again."""
    read: list[str] = []
    store = MemoryStore()
    with remembering(model, watched(store, read.append)) as memory:
        absorbed(memory, "s1", dated("I live in Oslo"))
        recalled(memory)
        read.clear()
        recalled(memory)
        assert read.count("before records") == 2  # the facts' version, and the notes


@pytest.mark.long
@pytest.mark.parametrize("by", ["fact", "source"])
def test_an_interrupted_forget_leaves_no_half_forgotten_fact(model: Model, by: str) -> None:
    """Wrong: after a crash a fact is half forgotten, or is back."""
    model.tell("Oslo is my home", "Lives in Oslo.", category="home")
    for step in range(20):
        left, store = [step], MemoryStore()

        def cut(moment: str, left: list[int] = left) -> None:
            if moment.split()[1] in ("put_records", "delete_records"):
                left[0] -= 1
                if left[0] == -1:
                    raise StoreUnavailable("cut short")

        broken = watched(store, cut)
        with remembering(model, store) as memory:
            absorbed(memory, "s1", *map(dated, ("I live in Oslo", "I row", "Oslo is my home")))
            (oslo,) = [one for one in memory.user("ada").facts() if "Oslo" in one.text]
            assert len(oslo.evidence) == 2
            with remembering(model, broken) as other:
                what = {"fact_id": oslo.id} if by == "fact" else {"source": "s1"}
                try:
                    other.user("ada").forget(**what)
                    ended = True
                except StoreUnavailable:
                    ended = False
                noted = step >= 1 or ended
                rows = ["Rows."] if by == "fact" else []
                now = rows if noted else ["Lives in Oslo.", "Rows."]
                assert sorted(texts(memory.user("ada").facts())) == now
                if ended:
                    break
                other.user("ada").forget(**what)
                assert sorted(texts(memory.user("ada").facts())) == recalled(memory) == rows
                kept = store.records("extractive", "user:ada")
                assert not [record for record in kept if "Oslo" in record.text]
    assert ended
    assert step > 3
