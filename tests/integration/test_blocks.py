"""Blocks in the live engine, and stores and blocks behind a user's proxy object."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from agent_memory import AgentMemory, AgentMemoryConfig, Block, FlushToLTM, Message, NullMemory
from agent_memory.core.records import Entry, Recall, Scope
from agent_memory.errors import ConfigError, InvalidId, InvalidMessage, InvalidSetting
from agent_memory.ltm_blocks import ExtractiveMemory, StaticMemory, VectorMemory, WorkingMemory
from agent_memory.stores import MemoryStore, Store, open_store
from agent_memory.testing import FakeLLM
from tests.integration.fact_model import Model, absorbed, dated, remembering
from tests.kit import Silent, user


def test_facts_carry_category_source_and_quote() -> None:
    """Wrong: a fact lacks its category, quote or source, and cannot be traced to a message."""
    model, quote = Model(), "from Marketing & Sales"
    model.tell(quote, "Sarah works in Marketing.", category="work")
    with remembering(model) as memory:
        absorbed(memory, "s", dated("I'm Sarah, from Marketing & Sales."), user_id="sarah")
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
def test_static_facts_are_shown_as_plain_text(fact: Any, said: str) -> None:
    """Wrong: the model reads braces and quotes, or part of a static fact is lost."""
    with AgentMemory(store="memory://", blocks=[StaticMemory(facts=[fact])]) as memory:
        (shown,) = memory.get("s", user_id="anyone").static_facts
    assert shown.text == said
    assert not isinstance(fact, dict) or fact.get("id", shown.id) == shown.id


def test_a_dict_of_static_facts_becomes_one_fact_per_key() -> None:
    """Wrong: a dict of static facts becomes one fact, or a value that is no JSON is accepted."""
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


def test_an_object_is_a_block_only_with_all_methods() -> None:
    """Wrong: a block has to subclass `Block`, or a subclass may lack a method."""
    with AgentMemory(store="memory://", blocks=[PlainNotes()]) as memory:
        memory.update("s", {"role": "user", "content": "My bike is red."}, user_id="a")
        memory.flush()
        context = memory.get("t", user_id="a")
        assert [(r.block, r.text) for r in context.recalls] == [("plain_notes", "My bike is red.")]
        with pytest.raises(ConfigError, match=r"or name 'plain'\. There are: plain_notes, notes"):
            memory.open("plain")
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


def test_a_block_that_lacks_its_model_causes_a_warning(caplog: pytest.LogCaptureFixture) -> None:
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


class Proxy:
    """Forward every method, without having one."""

    def __init__(self, inner: object, without: frozenset[str] = frozenset()) -> None:
        self._inner = inner
        self._without = without

    def __getattr__(self, name: str) -> Any:
        if name in self._without:
            raise AttributeError(name)
        return getattr(self._inner, name)


def proxied(store: Store, *without: str) -> Store:
    return cast("Store", Proxy(store, frozenset(without)))


@pytest.mark.parametrize("address", ["memory://", "sqlite:///{}/m.db"])
def test_a_proxied_store_is_accepted(address: str, tmp_path: Path) -> None:
    """Wrong: a store wrapped in a proxy that counts or logs calls is refused."""
    store = open_store(address.format(tmp_path), "default", "process")
    with AgentMemory(store=proxied(store), system_store=proxied(MemoryStore())) as memory:
        memory.update("s", [{"role": "system", "content": "be kind"}, user("hello")])
        assert [one.text() for one in memory.get("s").messages] == ["be kind", "hello"]
    store.close()


def test_an_object_that_is_not_a_store_is_refused() -> None:
    """Wrong: an object that lacks a store's method is accepted, and fails at the first call."""
    with pytest.raises(InvalidSetting) as caught:
        AgentMemoryConfig(store=proxied(MemoryStore(), "rewrite"))
    assert "it has no `rewrite`" in str(caught.value)
    with pytest.raises(InvalidSetting, match="it has no `all_records`, `all_vectors`"):
        AgentMemoryConfig(system_store=cast("Store", object()))


class Diary:
    """An object with a block's methods that is not a `Block`."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return [Recall("diary", str(n), text) for n, text in enumerate(self.told)]

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.told += [entry.message.text() for entry in entries]

    def delete(self, scope: Scope) -> None:
        self.told.clear()


def test_a_proxied_block_is_accepted() -> None:
    """Wrong: an object whose methods are proxied is not accepted as a block."""
    blocks: Any = [Proxy(Diary())]
    flush = FlushToLTM(blocks=blocks, absorb="every_update")
    with AgentMemory(store="memory://", overflow=flush) as memory:
        memory.update("s", {"role": "user", "content": "rain all day"}, user_id="ada")
        assert [found.text for found in memory.search("rain", user_id="ada")] == ["rain all day"]


HELLO = {"role": "user", "content": "I like tea."}


def test_a_null_memory_stores_nothing(tmp_path: Path) -> None:
    """Wrong: a message, a note or a value comes back, or a file is made."""
    url = f"sqlite:///{tmp_path}/memory.db"
    config = AgentMemoryConfig(store=url, blocks=[VectorMemory(), WorkingMemory()], max_tokens=900)
    with NullMemory(config) as memory:
        memory.update("s", HELLO, user_id="ada")
        memory.user("ada").notes().add("Likes tea.")
        memory.session("s").working().set("plan", 1)
        memory.user("ada").files().create("/memories/a.txt", "tea")
        memory.user("ada").spatial().observe("tea", (1, 2))
        assert memory.call_tool("s", "memory_write", {"text": "tea"}).startswith("Noted")
        memory.flush()
        context = memory.get("s", "tea")
        assert (context.messages, context.recalls, context.max_tokens) == ([], [], 900)
        assert memory.history("s") == memory.sessions() == memory.search("tea", user_id="ada") == []
        assert memory.user("ada").notes().all() == memory.user("ada").files().paths() == []
        assert memory.session("s").working().all() == {}
        assert memory.user("ada").spatial().all() == []
        assert "Nothing" in memory.call_tool("s", "memory_read", {"query": "tea"})
        assert memory.pop("s") == memory.user("ada").facts() == memory.end("s") == []
        memory.delete("s")
        memory.delete_user("ada")
        assert memory.stats().sessions == 0
    assert isinstance(memory, AgentMemory)
    assert list(tmp_path.iterdir()) == []


def test_a_null_memory_validates_input_and_calls_the_model() -> None:
    """Wrong: a call that succeeds with memory switched off fails when it is switched on."""
    with NullMemory() as memory:
        with pytest.raises(InvalidMessage):
            memory.update("s", {"role": "nobody", "content": "x"})
        with pytest.raises(InvalidId):
            memory.update("", HELLO)
        with pytest.raises(ConfigError, match="skills"):
            memory.open("skills")
        memory.describe("s", {"title": "x"})
        assert memory.sessions() == []
    with (
        FakeLLM("Hello!") as fake,
        NullMemory(model="openai/any", api_base=fake.api_base, api_key="k") as memory,
    ):
        for _ in range(2):
            answer = memory.completion("s", "I like tea.")
            assert answer.choices[0].message.content == "Hello!"
            assert fake.requests[-1]["messages"] == [HELLO]
        assert memory.history("s") == []
