"""The contract with system messages in a separate store, and what only that promises."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent_memory import AgentMemory
from agent_memory.core.idempotency import Append, Appended
from agent_memory.errors import StoreError, StoreUnavailable
from agent_memory.stores import MemoryStore, SplitStore, SQLStore, Store
from agent_memory.stores.kernel.contract import Batch, Document, Outcome, Scan
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.testing import SessionStoreContract, WorkStoreContract
from agent_memory.testing.contract import draft, stored
from tests.contract.import_contract import ImportContract

SECRET = "You are Aurelia, and the vault's word is xylophone."
PROMPT = {"role": "system", "content": SECRET}


def _main(store: SplitStore) -> Store:
    return KernelStore(store.kernel.inner)


def _same(store: SplitStore) -> SplitStore:
    return SplitStore(_main(store), KernelStore(store.kernel._system))


class TestSplit(SessionStoreContract, WorkStoreContract, ImportContract):
    """`SplitStore` overrides heads, entries and due sessions. It forwards records and vectors."""

    @pytest.fixture
    def store(self) -> Store:
        return SplitStore(MemoryStore(), MemoryStore())

    @pytest.fixture
    def other(self, store: SplitStore) -> Store:
        return _same(store)

    @pytest.fixture
    def elsewhere(self) -> Store:
        return SplitStore(MemoryStore("elsewhere"), MemoryStore("elsewhere"))


class Down(MemoryStore):
    """A store that can be made to fail."""

    def fail(self, is_down: bool) -> None:
        def refuse(scan: Scan) -> list[Document]:
            raise StoreUnavailable("The store of system messages is down.")

        vars(self.kernel).pop("scan", None)
        if is_down:
            vars(self.kernel)["scan"] = refuse


def _holds_secret(folder: Path, name: str) -> bool:
    return any(SECRET.encode() in file.read_bytes() for file in folder.glob(f"{name}.db*"))


def test_system_messages_are_stored_only_in_the_system_store(tmp_path: Path) -> None:
    """Wrong: system messages are in the main database, or survive a deletion."""
    main, system = (SQLStore(f"sqlite:///{tmp_path / name}.db") for name in ("main", "system"))
    store = SplitStore(main, system)
    store.append("s", [draft(SECRET, role="system"), draft("hello")])
    head = stored(store)
    assert head.system.content == SECRET
    assert [e.message.content for e in store.read("s")] == [SECRET, "hello"]
    assert _holds_secret(tmp_path, "system")
    assert not _holds_secret(tmp_path, "main")
    store.delete("s")
    store.secure_erase()
    assert not _holds_secret(tmp_path, "system")
    store.close()


def test_a_stored_append_is_acknowledged_if_another_append_fails() -> None:
    """Wrong: an append is stored, and answered with the lost connection of another one, so that its
    caller repeats it. Or the other one, which may be stored too, is repeated by the store."""
    store = SplitStore(MemoryStore(), MemoryStore())
    for name in "stu":
        store.append(name, [draft("a")])
    kernel = store.kernel.inner
    commit = kernel.commit

    def cut(batch: Batch) -> Outcome:
        outcome = commit(batch)
        if "cut off" in repr(batch):
            raise StoreUnavailable("The connection broke after the write.")
        return outcome

    vars(kernel)["commit"] = cut
    texts = {"s": "b", "t": "cut off", "u": "c"}
    done = store.append_all([Append(name, [draft(text)]) for name, text in texts.items()])
    assert [type(one) for one in done] == [Appended, StoreUnavailable, Appended]
    read = {name: [entry.message.content for entry in store.read(name)] for name in texts}
    assert read == {"s": ["a", "b"], "t": ["a", "cut off"], "u": ["a", "c"]}


def test_a_repeated_system_message_is_stored_once() -> None:
    """Wrong: the same system message with each update fills the store, or fails others' swaps."""
    system = MemoryStore()
    store = SplitStore(MemoryStore(), system)
    first = store.append("s", [draft(SECRET, role="system")])
    again = _same(store)
    for handle in (store, again):
        assert handle.append("s", [draft(SECRET, role="system")]).version == first.version
    assert len(system.records("_system", "session:s")) == 1
    system = MemoryStore()
    store = SplitStore(MemoryStore(), system)
    store.append("s", [draft(SECRET, role="system")])
    other = _same(store)
    assert stored(other).system is not None
    store.delete("s")
    head = other.append("s", [draft(SECRET, role="system")])  # it has it cached
    assert head.system is not None
    fresh = _same(store)
    assert stored(fresh).system == head.system
    assert head.system.content == SECRET


def test_an_outage_or_a_wrong_system_store_raises_an_error() -> None:
    """Wrong: an update that fails for its prompt is stored, or a wrong store is not noticed."""
    system = Down()
    store = SplitStore(MemoryStore(), system)
    store.append("s", [draft(SECRET, role="system"), draft("a")])
    system.fail(True)
    assert store.append("s", [draft("b")]).end == 3  # the cached prompt is used
    fresh = _same(store)
    with pytest.raises(StoreUnavailable):
        fresh.append("s", [draft("c")])
    system.fail(False)
    assert fresh.append("s", [draft("c")]).end == 4
    store = SplitStore(MemoryStore(), MemoryStore())
    store.append("s", [draft(SECRET, role="system")])
    store.append("t", [draft("hello")])
    wrong = SplitStore(_main(store), MemoryStore())
    for call in (wrong.head, wrong.read):
        with pytest.raises(StoreError, match="system_store"):
            call("s")
    assert [head.session_id for head in wrong.due()] == ["t"]
    wrong.delete("s")  # a deletion is still possible
    assert store.head("s") is None


def test_a_system_message_stored_before_a_split_remains(tmp_path: Path) -> None:
    """Wrong: setting `system_store` loses earlier system messages."""
    main = MemoryStore()
    main.append("s", [draft(SECRET, role="system")])
    store = SplitStore(main, MemoryStore())
    head = stored(store)
    assert head.system.content == SECRET
    moved = store.move(replace(head, start=1))
    assert moved.system == head.system


def test_the_system_store_setting_separates_system_messages(tmp_path: Path) -> None:
    """Wrong: the setting has no effect, or its store stays open."""
    urls = {name: f"sqlite:///{tmp_path / name}.db" for name in ("main", "system")}
    with AgentMemory(store=urls["main"], system_store=urls["system"]) as memory:
        memory.update("s", [PROMPT, {"role": "user", "content": "x"}])
        assert memory.get("s").messages[0].content == SECRET
        assert not _holds_secret(tmp_path, "main")
    with AgentMemory(store=urls["main"], system_store=urls["system"]) as memory:
        assert memory.history("s")[0].message.content == SECRET
        assert [m.content for m in memory.pop("s", 2)] == [SECRET, "x"]
        assert memory.get("s").messages == []
        memory.update("s", PROMPT)
        memory.delete("s")
    assert not _holds_secret(tmp_path, "system")
