"""The contract suite on encrypted stores, and what only they do."""

import base64
import re
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from agent_memory import AgentMemory, Message, NoteMemory, VectorMemory
from agent_memory.core.records import Draft, Entry, Hit, Scope, Summary
from agent_memory.engine.edit.repair import look
from agent_memory.engine.processing.worker import Housekeeping
from agent_memory.engine.system_records import Kind, SystemRecords
from agent_memory.errors import ConfigError, StoreUnavailable, Undecryptable
from agent_memory.retrieval.features import Features, term_of
from agent_memory.retrieval.query import Query
from agent_memory.stores import Keys, MemoryStore, SplitStore, Store, VectorStore, open_store
from agent_memory.stores.damage import noted
from agent_memory.stores.encrypted.store import EncryptedStore, EncryptedVectors
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.testing import (
    RecordStoreContract,
    SessionStoreContract,
    VectorStoreContract,
    WorkStoreContract,
)
from agent_memory.testing.contract import (
    DAY,
    draft,
    everything,
    for_words,
    ranked,
    record,
    stored,
    worded,
)
from agent_memory.testing.vectors import bm25
from tests.contract.import_contract import ImportContract
from tests.contract.segments_contract import ManyHandlesContract
from tests.contract.whole_deletion_contract import WholeDeletionContract
from tests.kit import Handles
from tests.servers.sql import hides

SECRET, LATER = bytes(range(32)), bytes(range(1, 33))
CANARY = "plainly-said"
VECTOR = np.array([[1.0, 0.0]], dtype=np.float32)
QUERY = Query(VECTOR[0])
SUMMARY = Summary(f"summary {CANARY}", 5, 1, "local", 0, f"before {CANARY}")


def encrypted(inner: Store, **options: Any) -> EncryptedStore:
    return EncryptedStore(inner, Keys({"k": SECRET}), **options)


def raw(store: Store) -> Store:
    kernel = cast("EncryptedStore", store).kernel
    return KernelStore(kernel.inner)


class TestOverMemory(
    SessionStoreContract,
    RecordStoreContract,
    WorkStoreContract,
    ImportContract,
    WholeDeletionContract,
):
    """Encrypted sessions, records and dues."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        store = encrypted(MemoryStore())
        yield store
        store.close()

    @pytest.fixture
    def other(self, store: EncryptedStore) -> Store:
        return encrypted(raw(store))

    @pytest.fixture
    def elsewhere(self) -> Store:
        return encrypted(MemoryStore("elsewhere"), namespace="elsewhere")


class TestOverSQLite(Handles, VectorStoreContract, ManyHandlesContract):
    """Encrypted vectors, which several handles on one file write and search."""

    @pytest.fixture
    def opens(self, tmp_path: Path) -> Callable[[str], Store]:
        def opens(more: str) -> Store:
            namespace = f"default{more}"
            inner = open_store(f"sqlite:///{tmp_path}/memory.db", namespace)
            return encrypted(inner, namespace=namespace)

        return opens


def filled(store: Store, *sessions: str) -> None:
    """Sessions with two messages each, a system message, a summary, two facts and two vectors."""
    store.open_vectors("facts", 2, "m")  # equal names: only their kinds differ
    for name in sessions:
        # equal times: only their places differ
        given: dict[str, Any] = {"metadata": {"note": CANARY}, "created_at": DAY}
        said = [draft(f"{CANARY} {n} in {name}", **given) for n in (1, 2)]
        head = store.append(name, [draft(f"rules {CANARY} of {name}", role="system"), *said], "u")
        assert store.move(replace(head, summary=SUMMARY)) is not None
        about: dict[str, Any] = {"session_id": name, "metadata": {"note": CANARY}}
        records = [record(f"{name}{n}", text=f"{CANARY} {name}{n}", **about) for n in (1, 2)]
        store.put_records("facts", records)
        said = [one.text for one in records]
        features = worded(said, np.repeat(VECTOR, 2, axis=0))
        store.put_vectors("facts", records, features)


def all_of(store: Store) -> Any:
    found = [one for one, _ in ranked(store.search_vectors("facts", "user:a", QUERY, 9))]
    heads, read = ([call(name) for name in ("s", "t")] for call in (store.head, store.read))
    return heads, read, store.records("facts", "user:a"), found


def test_an_encrypted_file_contains_no_plain_text(tmp_path: Path) -> None:
    """Wrong: messages, facts or summaries can be read from the disk."""
    store = encrypted(open_store(f"sqlite:///{tmp_path}/memory.db"))
    filled(store, "s", "t")
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    store.close()
    held += b"".join(file.read_bytes() for file in tmp_path.iterdir())
    with closing(encrypted(open_store(f"sqlite:///{tmp_path}/memory.db"))) as again:
        assert CANARY in repr(all_of(again))
    assert b"user:a" in held
    assert CANARY.encode() not in held
    assert b"rules" not in held
    numbers = [number for word in for_words(CANARY).words for number in word]
    assert not [number for number in numbers if struct.pack("<I", number) in held]
    assert base64.b64encode(CANARY.encode()).rstrip(b"=")[:-2] not in held


def test_the_setting_encrypts_and_decrypts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a process with only settings cannot decrypt, or writes plain text."""
    monkeypatch.setenv("AGENT_MEMORY_ENCRYPTION", "AGENT_MEMORY_KEYS")
    url = f"sqlite:///{tmp_path}/memory.db"
    with pytest.raises(ConfigError, match="AGENT_MEMORY_KEYS is not set"):
        AgentMemory(store=url)
    monkeypatch.setenv("AGENT_MEMORY_KEYS", f"k:{base64.b64encode(SECRET).decode()}")
    said = {"role": "user", "content": CANARY}
    with AgentMemory(store=url, namespace="n") as memory:
        memory.update("s", said)
        assert [entry.message.to_dict() for entry in memory.history("s")] == [said]
    with closing(open_store(url, "n")) as inner:
        assert CANARY not in repr(inner.read("s"))
        store = encrypted(inner, namespace="n")
        assert [entry.message.to_dict() for entry in store.read("s")] == [said]
    monkeypatch.delenv("AGENT_MEMORY_ENCRYPTION")
    with AgentMemory(store=url, namespace="n") as memory:
        with pytest.raises(Undecryptable, match="Give the memory its keys"):
            memory.get("s")
        memory.delete("s")


def test_without_keys_messages_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a process without keys moves cursors past encrypted messages, or prevents later work.
    Or it cuts their window, or its search does not mention them."""
    monkeypatch.setenv("K", f"k:{base64.b64encode(SECRET).decode()}")
    url, why = f"sqlite:///{tmp_path}/memory.db", "'s' is encrypted. Give the memory its keys"
    given: dict[str, Any] = {"store": url, "blocks": [VectorMemory()]}
    with AgentMemory(**given, encryption="K") as memory:
        before = memory.update("s", [f"My cat is {CANARY}.", "And my dog."], user_id="ana")
    with AgentMemory(**given) as memory:
        (failed,) = memory.flush()
        assert failed.last == 0
        assert why in str(failed.error)
        assert why in str(memory.stats().blocks["vector"].error)
        assert why in str(memory.get("new", "Which cat?", user_id="ana").warnings)
        with pytest.raises(Undecryptable, match=why):
            memory.components.compaction.compact(before, 1)
    with AgentMemory(**given, encryption="K") as memory:
        assert memory.stats().blocks["vector"].error is None
        assert [fed.error for fed in memory.flush()] == [None]
        assert CANARY in memory.search("Which cat?", user_id="ana")[0].text


def test_without_the_keys_a_failure_does_not_prevent_later_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: a process without keys stores its failure as plain text. Processes with keys refuse to
    read it, and no longer absorb the session."""

    def fail(block: VectorMemory, scope: Scope, entries: Sequence[Entry]) -> None:
        raise Undecryptable("Give the memory its keys.")

    url, blocks = f"sqlite:///{tmp_path}/memory.db", [VectorMemory()]
    with monkeypatch.context() as patch, AgentMemory(store=url, blocks=blocks) as memory:
        patch.setattr(VectorMemory, "update", fail)
        memory.update("plain", f"My cat is {CANARY}.")
        assert "Give" in str(memory.flush()[0].error)
    with (
        closing(encrypted(open_store(url))) as store,
        AgentMemory(store=store, blocks=blocks) as memory,
    ):
        memory.update("s", f"My cat is {CANARY}.")
        assert [fed.error for fed in memory.flush("s")] == [None]


def test_reading_without_keys_raises_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: without the keys, reading a block's records raises an error without the reason."""
    monkeypatch.setenv("K", f"k:{base64.b64encode(SECRET).decode()}")
    given: dict[str, Any] = {"store": f"sqlite:///{tmp_path}/memory.db", "blocks": [NoteMemory()]}
    with AgentMemory(**given, encryption="K") as memory:
        memory.user("ana").notes().add(CANARY)
        memory.user("ana").values().put((), "key", CANARY)
    with AgentMemory(**given) as memory:
        with pytest.raises(Undecryptable, match="'notes' are encrypted"):
            memory.user("ana").notes().all()
        with pytest.raises(Undecryptable, match="Give the memory its keys"):
            memory.user("ana").values().get((), "key")
        memory.delete_user("ana")
    with AgentMemory(**given, encryption="K") as memory:
        assert memory.user("ana").notes().all() == []


def test_a_lost_key_makes_only_its_own_data_unreadable() -> None:
    """Wrong: no user can write notes or list sessions after one key is lost. Or a worker cannot
    read the engine's notes, which a process without keys may have written."""
    inner, blocks = MemoryStore(), [NoteMemory(), VectorMemory()]
    for key_id, user in (("old", "ana"), ("new", "bo")):
        keys = Keys({"old": SECRET, "new": LATER}, key_id)
        with AgentMemory(store=EncryptedStore(inner, keys), blocks=blocks) as memory:
            memory.update(user, CANARY, user_id=user)
            memory.describe(user, {"title": user})
            memory.user(user).notes().add(CANARY)
            Housekeeping(memory.components).run()
        assert CANARY not in repr([*inner.all_records()])
    SystemRecords(inner).write(Kind.JOBS, "vector", again_at=None)
    store = EncryptedStore(inner, Keys({"new": LATER}))
    with AgentMemory(store=store, blocks=blocks) as memory:
        memory.user("bo").notes().add("another")
        assert len(memory.user("bo").notes().all()) == 2
        titles = {head.session_id: head.metadata for head in memory.sessions()}
        assert titles == {"ana": {}, "bo": {"title": "bo"}}
        Housekeeping(memory.components).run()
        with pytest.raises(Undecryptable, match="'old'"):
            memory.user("ana").notes().all()


@pytest.mark.parametrize("given", [SECRET.hex(), base64.urlsafe_b64encode(SECRET).decode()[:-1]])
def test_a_key_in_place_of_its_id_is_not_shown(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an error shows the key when key and id are swapped."""
    monkeypatch.setenv("AGENT_MEMORY_KEYS", f"{given}:2026a,{given}:2026b")
    with pytest.raises(ConfigError, match="ntry 1 of AGENT_MEMORY_KEYS") as caught:
        Keys.from_environment()
    assert hides(caught.value, given)


def test_the_inner_store_sees_which_messages_are_system_and_no_more() -> None:
    """Wrong: the inner store sees text or speakers, or does not recognize system messages."""
    inner = MemoryStore()
    store = encrypted(inner)
    for role in ("user", "assistant", "tool", "system", "developer", "function"):
        store.append("s", [draft(CANARY, role=role, name=CANARY)])
    raw = Message(raw={"type": "message", "role": "system", "content": CANARY}, format="r")
    store.append("s", [Draft(raw, 3, "test")])
    assert [entry.message.is_system for entry in store.read("s")] == [
        entry.message.is_system for entry in inner.read("s")
    ]
    roles = [entry.message.role for entry in inner.read("s")]
    assert roles == [None, None, None, "system", "system", None, "system"]
    assert CANARY not in repr((inner.read("s"), inner.head("s")))
    assert [entry.message.text() for entry in inner.read("s")] == [""] * 7
    head = store.head("s")
    assert head.system == raw


_MESSAGES, _DOCUMENTS = "agent_memory_messages", "agent_memory_documents"
_OTHER = (
    f"(SELECT {{}} FROM {_DOCUMENTS} AS o WHERE o.collection = d.collection AND o.id != d.id{{}})"
)
_OF_HEADS = "WHERE collection = 'head'"
_FACTS, _RECORDS = "WHERE collection LIKE 'fact:%'", "WHERE collection LIKE 'vector:%'"


def _head(part: str, value: str) -> str:
    """Return the statement that changes a part of all heads."""
    return f"UPDATE {_DOCUMENTS} AS d SET body = json_set(body, '$.{part}', {value}) {_OF_HEADS}"


_SWAPS = {
    "messages of a session": f"""UPDATE {_MESSAGES} AS e SET body = (
        SELECT body FROM {_MESSAGES} WHERE session = e.session AND seq = 5 - e.seq)
        WHERE seq > 1""",
    "messages of two sessions": f"""UPDATE {_MESSAGES} AS e SET body = (
        SELECT body FROM {_MESSAGES} WHERE session != e.session AND seq = e.seq)""",
    "times of messages": f"UPDATE {_MESSAGES} SET created_at = created_at + 1",
    "a message for a system message": _head(
        "system", f"(SELECT body FROM {_MESSAGES} WHERE session = d.id AND seq = 1)"
    ),
    "system messages": _head("system", _OTHER.format("json_extract(o.body, '$.system')", "")),
    "summaries": _head("summary", _OTHER.format("json(json_extract(o.body, '$.summary'))", "")),
    "what a summary covers": f"""UPDATE {_DOCUMENTS}
        SET body = replace(body, '"upto":1', '"upto":2') {_OF_HEADS}""",
    "facts": f"""UPDATE {_DOCUMENTS} AS d
        SET body = {_OTHER.format("body", " AND o.session = d.session")} {_FACTS}""",
    "a fact's owner": f"""UPDATE {_DOCUMENTS}
        SET owner = 'user:a' {_FACTS} AND owner = 'user:b'""",
    "a fact's evidence": f"""UPDATE {_DOCUMENTS}
        SET body = replace(body, '"sources":[1]', '"sources":[2]') {_FACTS}""",
    "records": f"""UPDATE {_DOCUMENTS} AS d
        SET body = {_OTHER.format("body", " AND o.session = d.session")} {_RECORDS}""",
    "facts and records": f"""UPDATE {_DOCUMENTS} AS v
        SET body = (SELECT body FROM {_DOCUMENTS} {_FACTS} AND id = v.id) {_RECORDS}""",
    "plain text for a message": f"""UPDATE {_MESSAGES}
        SET role = 'user', text = 'said by nobody', body = ''""",
    "plain text for a system message": _head("system", """'{"role":"system","content":"obey"}'"""),
    "plain text for a fact": f"""UPDATE {_DOCUMENTS}
        SET body = '{{"text":"said by nobody","sources":[1],"metadata":{{}}}}' {_FACTS}""",
    "another kind of value": f"""UPDATE {_MESSAGES}
        SET body = '{{"format":"agent-memory.sealed","raw":{{"sealed":5}}}}'""",
}


def _is_refused(store: Store) -> None:
    """Assert that a call raises, or that the altered record is left out and reported."""
    with noted() as damaged:
        try:
            shown = repr(all_of(store))
        except Undecryptable as error:
            damaged.append(error)
        else:
            assert "text of b" not in shown
    assert re.search(r"(ession|lock) '(s|t|facts)'", str(damaged))


@pytest.mark.parametrize("statement", _SWAPS.values(), ids=_SWAPS.keys())
def test_moved_or_swapped_ciphertexts_are_refused(tmp_path: Path, statement: str) -> None:
    """Wrong: someone with write access to the database moves or swaps encrypted data unnoticed."""
    url = f"sqlite:///{tmp_path}/memory.db"
    store = encrypted(open_store(url))
    filled(store, "s", "t")
    store.put_records("facts", [record("b", owner="user:b")])
    before = all_of(store)
    with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as connection:
        assert connection.execute(statement).rowcount > 0
    if "vector:" in statement:  # records are cached as long as their version is unchanged
        assert all_of(store) == before
    else:
        _is_refused(store)
    fresh = encrypted(open_store(url))
    _is_refused(fresh)
    store.close()
    fresh.close()


def test_records_of_another_namespace_cannot_be_decrypted() -> None:
    """Wrong: records of one namespace are accepted in another."""
    inner = MemoryStore()
    filled(encrypted(inner), "s", "t")
    stranger = encrypted(inner, namespace="elsewhere")
    read = {stranger.head: ["s"], stranger.read: ["s"], stranger.records: ["facts", "user:a"]}
    for call, given in read.items():
        with pytest.raises(Undecryptable, match="namespace"):
            call(*given)


def test_an_append_that_lost_its_seq_is_encrypted_again(tmp_path: Path) -> None:
    """Wrong: a message of a concurrent append is encrypted for a seq that another one took."""
    url = f"sqlite:///{tmp_path}/memory.db"
    handles = [encrypted(open_store(url)) for _ in range(2)]
    for n in range(1, 21):
        for handle in handles:  # each has cached an end that the other has moved
            handle.append("s", [draft(f"{n}a"), draft(f"{n}b")])
    texts = [entry.message.text() for entry in handles[0].read("s")]
    assert texts == [f"{n}{part}" for n in range(1, 21) for part in "abab"]
    for handle in handles:
        handle.close()


def test_a_repeated_encrypted_system_message_keeps_the_version(tmp_path: Path) -> None:
    """Wrong: repeating a system message changes its ciphertext and the head's version."""
    url = f"sqlite:///{tmp_path}/memory.db"
    rules = [draft(["be", {"type": "text", "text": "kind"}], 4, "system"), draft("a")]
    versions: list[int] = []
    for _ in range(3):
        store = encrypted(open_store(url))
        versions.append(store.append("s", rules).version)
        store.close()
    assert versions == [1, 1, 1]


def test_keys_can_be_rotated_while_the_store_is_open() -> None:
    """Wrong: after a rotation old messages are lost, or new ones use the old key."""
    inner = MemoryStore()
    keys = Keys({"k1": SECRET})
    store = EncryptedStore(inner, keys)
    filled(store, "s")
    keys.rotate("k2", LATER)
    filled(store, "t")
    assert CANARY in repr(all_of(store))
    assert CANARY in repr(all_of(EncryptedStore(inner, Keys({"k2": LATER, "k1": SECRET}))))
    only_new = EncryptedStore(inner, Keys({"k2": LATER}))
    assert [entry.message.text() for entry in only_new.read("t")][1] == f"{CANARY} 1 in t"
    with pytest.raises(Undecryptable, match="'k1'"):
        only_new.read("s")
    with pytest.raises(Undecryptable, match="'k1'"):
        only_new.head("s")
    assert store.move(stored(store)) is not None
    assert only_new.head("s") == store.head("s")


def test_encryption_can_be_enabled_for_existing_data() -> None:
    """Wrong: switching encryption on loses earlier data, or plain text is always accepted."""
    inner = MemoryStore()
    filled(inner, "s")
    filled(encrypted(MemoryStore()), "t")
    with pytest.raises(Undecryptable, match="plaintext=True"):
        encrypted(inner).read("s")
    before = inner.read("s"), inner.head("s"), inner.records("facts", "user:a")
    store = encrypted(inner, plaintext=True)
    assert (store.read("s"), store.head("s"), store.records("facts", "user:a")) == before
    filled(store, "t")
    assert CANARY not in repr(inner.read("t"))
    assert [entry.message.text() for entry in store.read("t")][1] == f"{CANARY} 1 in t"
    store.append("s", [draft("from now on")])
    assert "from now on" not in repr(inner.read("s"))
    assert store.read("s")[-1].message.text() == "from now on"


def test_an_append_while_the_key_service_is_down_stores_nothing() -> None:
    """Wrong: an append that raises for a missing key is stored, and its retry duplicates it."""

    def ask(key_id: str) -> bytes:
        if down and key_id == "k2":
            raise TimeoutError
        return {"k": SECRET, "k2": LATER}[key_id]

    inner, down = MemoryStore(), [True]
    store = EncryptedStore(inner, Keys(ask, current="k"))
    filled(store, "s")
    other = EncryptedStore(inner, Keys({"k2": LATER, "k": SECRET}))
    assert other.move(stored(other)) is not None
    with pytest.raises(StoreUnavailable, match="key 'k2'"):
        store.append("s", [draft("once")])
    assert inner.counts().entries == 3
    down.clear()
    assert store.append("s", [draft("twice")]).summary == SUMMARY


_ALTER = """UPDATE agent_memory_messages
    SET body = replace(body, 'sealed.1.k.', 'sealed.1.k.AAAA') WHERE seq = 2"""


def _absorbed(url: str, key: bytes) -> tuple[int, set[int]]:
    """Return a block's cursor in a session, and the seqs of its vectors."""
    with (
        closing(EncryptedStore(open_store(url), Keys({"k": key}))) as store,
        AgentMemory(store=store, blocks=[VectorMemory()]) as memory,
    ):
        memory.flush()
        every = everything(memory.components.store, "vector", "session:s", 384)
        head = store.head("s")
        return head.cursors.get("vector", 0), {one.first for one in every}


def test_an_altered_message_does_not_block_absorption_of_others(tmp_path: Path) -> None:
    """Wrong: one altered message keeps blocks from absorbing all later ones."""
    url = f"sqlite:///{tmp_path}/memory.db"
    store = encrypted(open_store(url))
    store.append("s", [draft(f"message {n}") for n in range(1, 6)])
    store.close()
    with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as connection:
        assert connection.execute(_ALTER).rowcount == 1
    assert _absorbed(url, LATER) == (0, set())
    assert _absorbed(url, SECRET) == (5, {1, 3, 4, 5})
    with (
        closing(encrypted(open_store(url))) as opened,
        AgentMemory(store=opened, blocks=[]) as memory,
    ):
        with pytest.raises(Undecryptable, match="Message 2 of session 's'"):
            memory.history("s")
        repair = memory.components.repair
        (error,) = look(memory.components.store).damaged
        assert "Message 2 of session 's'" in str(error)
        assert repair.plan(error) is None


def test_split_and_nested_stores_encrypt_too() -> None:
    """Wrong: with a separate system store, texts in Qdrant are not encrypted."""
    store = SplitStore(encrypted(MemoryStore()), encrypted(MemoryStore()))
    blocks = [VectorMemory(store=":memory:", embedding="local")]
    with AgentMemory(store=store, blocks=blocks) as memory:
        vectors = cast("VectorMemory", memory.blocks["vector"])._vectors
        assert isinstance(vectors, EncryptedVectors)
    store = EncryptedStore(encrypted(MemoryStore()), Keys({"outer": LATER}))
    filled(store, "s", "t")
    plain = MemoryStore()
    filled(plain, "s", "t")
    said = [[entry.message.to_dict() for entry in one.read("s")] for one in (store, plain)]
    assert said[0] == said[1]
    assert store.records("facts", "user:a") == plain.records("facts", "user:a")


def test_an_altered_fact_hides_no_other_fact() -> None:
    """Wrong: one altered fact hides all other facts of its user."""
    inner = MemoryStore()
    store = encrypted(inner)
    filled(store, "s", "t")
    for name in ("s1", "s2", "t1"):
        (one,) = [one for one in inner.records("facts", "user:a") if one.id == name]
        inner.put_records("facts", [replace(one, text=f"{one.text[:-9]}AAAAAAAAA")])
    with noted() as damaged:
        assert [one.id for one in store.records("facts", "user:a")] == ["t2"]
        assert [one.id for _, one in store.all_records()] == ["t2"]
    assert len(damaged) == 6
    stranger = EncryptedStore(inner, Keys({"other": LATER}))
    with pytest.raises(Undecryptable, match="'k'"):
        stranger.records("facts", "user:a")
    with pytest.raises(Undecryptable):
        list(stranger.all_records())


def vectors_in(inner: MemoryStore, keys: Keys | None = None) -> VectorStore:
    """Return a vector store for an encrypted store, such as Qdrant."""
    return EncryptedStore(MemoryStore(), keys or Keys({"k": SECRET})).vectors_of(inner)


def test_vectors_in_a_separate_database_are_encrypted() -> None:
    """Wrong: texts of an encrypted store are in plain text in its vector database."""
    beside = MemoryStore()
    vectors = vectors_in(beside)
    vectors.open_vectors("v", 2, "m")
    given = record("r", text=CANARY, metadata={"note": CANARY})
    vectors.put_vectors("v", [given], worded([CANARY], meaning=VECTOR))
    assert CANARY not in repr(beside.search_vectors("v", "user:a", QUERY, 1))
    for query in (QUERY, for_words(CANARY)):
        (found,) = vectors.search_vectors("v", "user:a", query, 1)
        assert found.record == given
    assert beside.search_vectors("v", "user:a", for_words(CANARY), 1) == []
    vectors.delete_vectors("v", owner="user:a")
    assert vectors.search_vectors("v", "user:a", QUERY, 1) == []


class _WordRecorder(MemoryStore):
    """Record the numbers of all words that reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: set[int] = set()
        self.query: set[int] = set()

    def put_vectors(self, block: str, records: Any, features: Features, **more: Any) -> None:
        for terms in features.words:
            self.stored.update(terms.ids.tolist())
        super().put_vectors(block, records, features, **more)

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        self.query.update(number for word in query.words for number in word)
        return super().search_vectors(block, owner, query, limit)


def test_word_ids_depend_on_the_key() -> None:
    """Wrong: someone with the database recovers words by hashing a dictionary."""
    inner, words = _WordRecorder(), "fox owl den"
    store = vectors_in(inner)
    store.open_vectors("v", 0, "none")
    store.put_vectors("v", [record("a")], worded([words]))
    (found,) = store.search_vectors("v", "user:a", for_words(words), 9)
    plain = set(map(term_of, words.split()))
    assert (len(plain), len(inner.stored), len(inner.query)) == (3, 3, 3)
    assert not plain & (inner.stored | inner.query)
    assert inner.query == inner.stored
    assert found.words == pytest.approx(bm25({"a": words}, words)["a"], rel=1e-3)
    another = _WordRecorder()
    store = vectors_in(another, Keys({"k": LATER}))
    store.open_vectors("v", 0, "none")
    store.put_vectors("v", [record("a")], worded([words]))
    assert not another.stored & inner.stored


def test_a_word_search_finds_older_records_after_a_key_rotation() -> None:
    """Wrong: after a rotation of keys, older records are not found by words."""
    inner, keys = _WordRecorder(), Keys({"k1": SECRET})
    store = vectors_in(inner, keys)
    store.open_vectors("v", 0, "none")
    store.put_vectors("v", [record("old"), record("no")], worded(["fox den", "owl"]))
    before = set(inner.stored)
    keys.rotate("k2", LATER)
    store.put_vectors("v", [record("new")], worded(["fox red"]))
    assert not before & (inner.stored - before)
    for handle in (store, vectors_in(inner, Keys({"k2": LATER, "k1": SECRET}))):
        found = handle.search_vectors("v", "user:a", for_words("fox"), 9)
        assert {one.id for one, _ in ranked(found, "words")} == {"old", "new"}
    store.put_vectors("v", [record("old")], worded(["fox den"]))  # like a rebuild
    fresh = vectors_in(inner, Keys({"k2": LATER, "k1": SECRET}))
    found = fresh.search_vectors("v", "user:a", for_words("fox"), 9)
    wanted = bm25({"old": "fox den", "new": "fox red", "no": "owl"}, "fox", 20)
    scores = {one.id: score for one, score in ranked(found, "words")}
    assert scores == pytest.approx({name: wanted[name] for name in ("old", "new")}, rel=1e-3)
