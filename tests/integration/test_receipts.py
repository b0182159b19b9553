"""Receipts of `delete`, `delete_user` and `checkpoint`, and their verification."""

import base64
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_memory import (
    AgentMemory,
    Block,
    CompositeMemory,
    ExtractiveMemory,
    NoteMemory,
    VectorMemory,
    operations,
)
from agent_memory.core.receipts import Part, Receipt, merged
from agent_memory.core.records import Scope
from agent_memory.engine.system_records import Kind
from agent_memory.errors import InvalidInput
from agent_memory.stores.sql.backups import back_up
from tests.kit import assistant, invoke, user

SAID = [user("My boat is blue."), assistant("A fine colour.")]


def states(receipt: Receipt) -> dict[str, str]:
    return {part.place: part.state for part in receipt.parts}


def failed(receipt: Receipt) -> list[str]:
    return [part.place for part in receipt.parts if part.state == "failed"]


@pytest.fixture(params=["sqlite", "encrypted"])
def memory(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AgentMemory]:
    """A memory with three sessions of two users."""
    monkeypatch.setenv("KEYS", "k1:" + base64.b64encode(b"k" * 32).decode())
    keys = "KEYS" if request.param == "encrypted" else None
    with AgentMemory(f"{tmp_path}/m.db", encryption=keys) as memory:
        for session_id, user_id in [("a1", "ana"), ("a2", "ana"), ("b1", "ben")]:
            memory.update(session_id, SAID, user_id=user_id)
        memory.remember("Ana sails.", user_id="ana")
        memory.flush()
        yield memory


def test_a_receipt_of_a_session_lists_every_place(memory: AgentMemory) -> None:
    """Wrong: a receipt omits a place, or leftover data counts as deleted."""
    receipt = memory.delete("a1")
    told = states(receipt)
    assert {place for place, state in told.items() if state == "done"} >= {
        "log", "block 'vector'", "block 'notes'", "notes of the engine", "caches", "files",
    }  # fmt: skip
    assert told["backups"] == "not supported"
    assert (receipt.kind, receipt.id, receipt.namespace) == ("session", "a1", "default")
    assert "boat" not in receipt.to_json()
    assert Receipt.from_json(receipt.to_json()) == receipt
    assert failed(operations.verify(memory, receipt.to_json())) == []
    other = replace(receipt, id="a2", signature=None)
    assert "log" in failed(operations.verify(memory, other))


@pytest.mark.parametrize("whose", ["session", "user"])
def test_a_pending_erasure_is_shown(
    memory: AgentMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """Wrong: a receipt says that the files are done while a reader keeps the text in the log. Or
    only the next deletion finishes the erasure."""
    monkeypatch.setattr("agent_memory.stores.sql.sqlite._SCRUB_SECONDS", 0.05)
    memory.update("a1", user("My word is xylophone."))
    with closing(sqlite3.connect(tmp_path / "m.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM agent_memory_messages").fetchone()
        receipt = memory.delete("a1") if whose == "session" else memory.delete_user("ana")
        (files,) = (part for part in receipt.parts if part.place == "files")
        assert (files.state, files.why[:8]) == ("failed", "Pending:")
        assert failed(receipt) == ["files"]
        assert memory.components.deletion.scrub().state == "failed"
        memory.flush()
        assert len(memory.components.records.read(Kind.SCRUBS)) == 1
    memory.flush()
    assert b"xylophone" not in (tmp_path / "m.db-wal").read_bytes()
    assert memory.components.records.read(Kind.SCRUBS) == {}
    assert failed(memory.delete("b1")) == []


def test_a_composites_erasure_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: what a deletion left in the file of a member block stays until the next deletion."""
    monkeypatch.setattr("agent_memory.stores.sql.sqlite._SCRUB_SECONDS", 0.05)
    home = AgentMemory(tmp_path / "m.db", blocks=[])
    with CompositeMemory({"home": home, "pad": NoteMemory(name="pad")}) as both:
        both.blocks["pad"].open(Scope("ana")).add("My word is xylophone.")
        with closing(sqlite3.connect(tmp_path / "m.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM agent_memory_messages").fetchone()
            both.delete_user("ana")
            assert b"xylophone" in (tmp_path / "m.db-wal").read_bytes()
        both.flush()
        assert b"xylophone" not in (tmp_path / "m.db-wal").read_bytes()


def test_a_receipt_of_a_user_ignores_data_newer_than_the_deletion(memory: AgentMemory) -> None:
    """Wrong: a user's leftover data counts as deleted, or newer data as leftover."""
    receipt = memory.user("ana").delete()
    assert failed(receipt) == []
    assert failed(operations.verify(memory, receipt)) == []
    assert "log" in failed(operations.verify(memory, replace(receipt, id="ben")))
    memory.update("a1", SAID, user_id="ana")
    memory.remember("Ana is back.", user_id="ana")
    memory.flush()
    assert failed(operations.verify(memory, receipt)) == []
    since = replace(receipt, at=datetime.now(UTC))
    assert "log" in failed(operations.verify(memory, since))


def test_the_verification_names_leftover_records(tmp_path: Path) -> None:
    """Wrong: verification misses a record or a vector of a deleted session."""
    with AgentMemory(f"{tmp_path}/m.db") as memory:
        memory.update("a1", SAID, user_id="ana")
        memory.flush()
        store = memory.components.store
        kept = list(store.all_vectors("vector"))
        receipt = memory.delete("a1")
        for records, features in kept:
            store.put_vectors("vector", records, features)
        store.put_records("odd", kept[0][0])
        left = ["records of 'odd'", "records of 'vector'"]
        assert failed(operations.verify(memory, receipt)) == left


def test_a_checkpoint_confirms_only_stored_messages(memory: AgentMemory) -> None:
    """Wrong: a checkpoint vouches for messages that are not stored, or fails for stored ones."""
    receipt = memory.checkpoint("a1", user_id="ana")
    assert states(receipt)["log"] == "done"
    assert receipt.end == 2
    memory.update("a1", {"role": "user", "content": "More."})
    assert memory.session("a1", "ana").checkpoint().end == 3
    assert failed(operations.verify(memory, receipt)) == []
    memory.pop("a1", 2)
    assert failed(operations.verify(memory, receipt)) == ["log"]
    memory.update("a1", {"role": "user", "content": "Something else."})
    assert failed(operations.verify(memory, receipt)) == ["log"]
    with pytest.raises(InvalidInput, match="no session 'none'"):
        memory.checkpoint("none")


_BROKEN_HEAD = (
    "UPDATE agent_memory_documents SET about = json_set(about, '$.cursors', '{') "
    "WHERE collection = 'head' AND id = 'a1'"
)


def _damage(path: Path, change: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        assert database.execute(change).rowcount


@pytest.mark.parametrize("change", [_BROKEN_HEAD, "UPDATE agent_memory_messages SET body = '{'"])
def test_a_checkpoint_of_a_damaged_log_fails_verification(tmp_path: Path, change: str) -> None:
    """Wrong: verifying a checkpoint of a damaged log raises, or reports that it holds."""
    with AgentMemory(f"{tmp_path}/m.db") as memory:
        memory.update("a1", SAID, user_id="ana")
        receipt = memory.checkpoint("a1")
    _damage(tmp_path / "m.db", change)
    with AgentMemory(f"{tmp_path}/m.db") as memory:
        (log,) = (part for part in operations.verify(memory, receipt).parts if part.place == "log")
        assert log.state == "failed"
        assert "is damaged" in log.why


def test_damaged_data_after_a_restore_fails_verification(tmp_path: Path) -> None:
    """Wrong: verification raises on damaged data, or counts it as deleted."""
    with AgentMemory(f"{tmp_path}/m.db") as memory:
        memory.update("a1", SAID, user_id="ana")
        memory.update("b1", SAID, user_id="ben")
        memory.flush()
        back_up(f"sqlite:///{tmp_path}/m.db", tmp_path / "before.db")
        receipts = [memory.delete("a1"), memory.delete_user("ana"), memory.delete_user("eve")]
    _damage(tmp_path / "before.db", _BROKEN_HEAD)
    vectors = "UPDATE agent_memory_documents SET body = '{' WHERE collection LIKE 'vector:%'"
    _damage(tmp_path / "before.db", vectors)
    with AgentMemory(f"{tmp_path}/before.db") as memory:
        checked = [operations.verify(memory, receipt) for receipt in receipts]
    assert failed(checked[0]) == ["log", "damaged data"]
    assert failed(checked[1]) == ["damaged data"]
    assert failed(checked[2]) == []
    assert states(checked[2])["damaged data"] == "not supported"


def test_an_altered_or_forged_receipt_fails_verification(
    memory: AgentMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: an altered or forged receipt is accepted."""
    receipt = memory.delete("b1")
    checked = operations.verify(memory, receipt)
    if memory.config.encryption is None:
        assert receipt.signature is None
        assert states(checked)["signature"] == "not supported"
        return
    assert states(checked)["signature"] == "done"
    for altered in [
        replace(receipt, id="c1"),
        replace(receipt, parts=()),
        replace(receipt, at=receipt.at.replace(year=2001)),
        replace(receipt, signature=None),
        replace(receipt, signature=memory.delete("a2").signature),
        replace(receipt, signature="sealed.1.k1."),
    ]:
        assert "signature" in failed(operations.verify(memory, altered))
    monkeypatch.setenv("KEYS", "k2:" + base64.b64encode(b"o" * 32).decode())
    with AgentMemory(f"{tmp_path}/other.db", encryption="KEYS") as other:
        assert failed(operations.verify(other, receipt)) == ["signature"]
    with AgentMemory(f"{tmp_path}/other.db", encryption="KEYS", namespace="n") as elsewhere:
        assert failed(operations.verify(elsewhere, receipt)) == ["namespace"]


@pytest.mark.parametrize("whose", ["session", "user"])
def test_a_deleted_session_is_not_imported(memory: AgentMemory, whose: str, tmp_path: Path) -> None:
    """Wrong: an import silently undoes a deletion, or cannot be forced."""
    memory.session("a1").export(tmp_path / "a1.jsonl")
    if whose == "session":
        memory.delete("a1")
    else:
        memory.delete_user("ana")
    with pytest.raises(InvalidInput, match=r"was deleted here on .* deleted=True"):
        operations.import_session(memory, tmp_path / "a1.jsonl")
    assert memory.history("a1") == []
    assert operations.import_session(memory, tmp_path / "a1.jsonl", deleted=True).end == 2
    memory.session("a1").export(tmp_path / "again.jsonl")
    with AgentMemory("memory://") as other:
        assert operations.import_session(other, tmp_path / "again.jsonl").end == 2


def test_a_session_created_after_deletion_can_be_moved(memory: AgentMemory, tmp_path: Path) -> None:
    """Wrong: a new session under a deleted session's id cannot be exported and imported."""
    memory.delete("a1")
    memory.update("a1", SAID, user_id="ana")
    memory.session("a1").export(tmp_path / "a1.jsonl")
    memory.components.store.delete("a1")
    assert operations.import_session(memory, tmp_path / "a1.jsonl").end == 2


def test_a_receipt_reports_a_block_that_is_not_configured(tmp_path: Path) -> None:
    """Wrong: a deletion reports success for a block that is not configured."""
    with AgentMemory(f"{tmp_path}/m.db", blocks=[VectorMemory()]) as memory:
        memory.update("a1", SAID, user_id="ana")
        memory.flush()
    with AgentMemory(f"{tmp_path}/m.db", blocks=[]) as memory:
        assert states(memory.delete("a1"))["block 'vector'"] == "not supported"


@pytest.mark.parametrize(
    "block", [NoteMemory(store="sqlite:///{}/o.db"), VectorMemory(store="sqlite:///{}/o.db")],
    ids=["notes", "vector"],
)  # fmt: skip
@pytest.mark.parametrize("blocks", [[], None], ids=["none", "the defaults"])
@pytest.mark.parametrize("what", ["session", "user"])
def test_a_receipt_reports_a_block_whose_database_is_not_open(
    tmp_path: Path, block: NoteMemory | VectorMemory, blocks: list[Block] | None, what: str
) -> None:
    """Wrong: a receipt says "done" for a block whose database this process has not opened."""
    store = str(block.store).format(tmp_path)
    elsewhere = block.model_copy(update={"store": store})
    place = f"block {block.name!r}"
    with AgentMemory(f"{tmp_path}/m.db", blocks=[elsewhere]) as memory:
        memory.update("a1", SAID, user_id="ana")
        memory.remember("Ana sails.", user_id="ana")
        memory.flush()
    more = {} if blocks is None else {"blocks": blocks}
    with AgentMemory(f"{tmp_path}/m.db", **more) as memory:
        receipt = memory.delete("a1") if what == "session" else memory.delete_user("ana")
        assert states(receipt)[place] == "not supported"
        assert states(operations.verify(memory, receipt))[place] == "not supported"
    with AgentMemory(f"{tmp_path}/m.db", blocks=[elsewhere]) as memory:
        receipt = memory.delete_user("ana")
        assert states(receipt)[place] == "done"
        assert states(operations.verify(memory, receipt)).get(place, "done") == "done"
        assert memory.user("ana").notes().all() == []


def test_a_receipt_names_the_models_that_received_texts(tmp_path: Path) -> None:
    """Wrong: a receipt does not mention texts that were sent to a provider."""
    asked = {"model": "openai/any", "embedding": "openai/other", "api_key": "k"}
    with AgentMemory("memory://", blocks=[ExtractiveMemory()], **asked) as memory:
        memory.update("s", SAID)
        told = states(memory.delete("s"))
    assert told["model 'openai/any'"] == told["model 'openai/other'"] == "not supported"


def test_the_commands_work_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an operator cannot verify a receipt against the store. Or a session is deleted
    although its receipt cannot be written."""
    monkeypatch.chdir(tmp_path)
    with AgentMemory("m.db") as memory:
        memory.update("a1", SAID, user_id="ana")
        memory.session("a1").export("a1.jsonl")

    def run(*arguments: str) -> tuple[int, str]:
        done = invoke([*arguments, "--store", "sqlite:///m.db"])
        return done.exit_code, done.output

    assert run("delete", "a1", "--yes", "--receipt", "missing/r.json")[0] == 1
    with AgentMemory("m.db") as memory:
        assert memory.history("a1", user_id="ana")
    assert run("delete", "a1", "--yes", "--receipt", "r.json")[0] == 0
    code, told = run("verify", "r.json")
    assert code == 0
    assert "log: done" in told
    assert run("restore", "a1.jsonl")[0] != 0
    assert run("restore", "a1.jsonl", "--deleted")[0] == 0
    code, told = run("verify", "r.json")
    assert code == 1
    assert "log: failed (The session still exists.)" in told


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "null", "\ud800", "[" * 100_000),
        *('{"parts": 3}', '{"parts": [], "at": "x"}'),
        *(
            Receipt("session", "s", "default", datetime.now(UTC), (Part("log"),))
            .to_json()
            .replace(*change)
            for change in [
                *(('"session"', '"zzz"'), ('"done"', '"zzz"'), ('"end":0', '"end":"x"')),
                *(('"digest":""', '"digest":{}'), ('"signature":null', '"signature":3')),
                *(('"id":"s"', '"id":7'), ("+00:00", ""), ('"end":0', '"end":0,"more":1')),
            ]
        ),
    ],
)
def test_an_invalid_receipt_raises_a_clear_error(text: str) -> None:
    """Wrong: an invalid receipt raises a bare error."""
    with pytest.raises(InvalidInput, match="not a receipt"):
        Receipt.from_json(text)


def test_a_receipt_reports_the_worst_state_of_each_place() -> None:
    """Wrong: a place that failed in one of many sessions is reported as done."""
    parts = [Part("a"), Part("b", "failed", "x"), Part("a", "not supported"), Part("b"), Part("a")]
    assert merged(parts) == (Part("a", "not supported"), Part("b", "failed", "x"))
