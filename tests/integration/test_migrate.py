"""Migration of a deployment to another database: all data arrives unchanged, and nothing else."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agent_memory import AgentMemory, InvalidInput, NoteMemory, operations
from agent_memory.engine import leases
from agent_memory.engine.system_records import Kind, SystemRecords
from agent_memory.engine.transfer.migrate import (
    Migrated,
    is_unfinished,
    migrate,
    migrate_stores,
    origin_of,
)
from agent_memory.errors import StoreError, StoreUnavailable, UnknownStore
from agent_memory.stores import EncryptedStore, Keys, MemoryStore, SplitStore, Store, open_store
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.testing import watched
from agent_memory.testing.contract import draft, record, stored, units, worded
from tests.integration.migrating import everything, file_bytes, fill, moved, opened, readable
from tests.kit import StepwiseNotes

KEY = {"k": bytes(range(32))}


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.02)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "source.db"
    store = open_store(f"sqlite:///{path}")
    fill(store)
    store.close()
    return path


@pytest.fixture
def source(filled: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copy(filled, tmp_path / "source.db")
    yield from _opened(tmp_path / "source.db")


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Store]:
    yield from _opened(tmp_path / "target.db")


@pytest.fixture
def small() -> Store:
    store = MemoryStore()
    for name in ("a", "b", "c"):
        store.append(name, [draft(f"{name} says {n}") for n in range(3)], f"of {name}")
        store.put_records("facts", [record(f"f{name}", f"user:of {name}", name)])
    store.append("long", [draft(f"long {n}") for n in range(120)], "of a")
    store.open_vectors("vector", 8, "m")
    names = [record(f"v{n}", "user:of a", "abc"[n % 3]) for n in range(9)]
    store.put_vectors("vector", names, worded(["fox"] * 9, meaning=units(9)))
    return store


def watching(store: Store, watch: Callable[[str], None]) -> Store:
    """Return the store on a watched kernel."""
    return KernelStore(watched(store.kernel, watch))


def _opened(path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{path}")
    yield store
    store.close()


def _put_vectors(store: Store, name: str, session_id: str = "a") -> None:
    store.open_vectors("vector", 8, "m")
    one = record(name, "user:of a", session_id)
    store.put_vectors("vector", [one], worded(["owl"], meaning=units(1)))


def test_a_migration_copies_all_data_unchanged(source: Store, target: Store) -> None:
    """Wrong: a migration loses, doubles or changes data, or users see other data than before."""
    before = everything(source)
    last = moved(source, target)
    assert everything(target) == before == everything(source)
    facts = len(before["facts"])
    counts = source.counts()
    assert last.verified == Migrated(counts.sessions, counts.entries, facts, len(before["vectors"]))
    assert not is_unfinished(target)
    assert readable(target) == readable(source)


def test_a_url_migration_keeps_the_source_and_shows_progress(filled: Path, tmp_path: Path) -> None:
    """Wrong: `operations.migrate` changes the source, or writes into a target in use. Or the
    progress starts again for each block."""
    url = f"sqlite:///{tmp_path}/target.db"
    shutil.copy(filled, tmp_path / "source.db")
    before = file_bytes(tmp_path, "source.db")
    steps = list(operations.migrate(f"sqlite:///{tmp_path}/source.db", url))
    assert file_bytes(tmp_path, "source.db") == before
    assert [step.what for step in steps if step.verified] == ["verifying"]
    order = list(dict.fromkeys(step.what for step in steps))
    assert order == ["facts", "vectors", "sessions", "verifying"]
    for what in order:
        dones = [step.done for step in steps if step.what == what]
        assert dones == sorted(dones)
        totals = {step.total for step in steps if step.what == what} - {None}
        assert totals <= {dones[-1]} if dones else not totals, what
    with pytest.raises(InvalidInput, match="nothing to copy in this namespace"):
        list(operations.migrate(f"sqlite:///{tmp_path}/source.db", url, namespace="other"))
    with closing(open_store(url)) as store:
        store.append("new", [draft("of the target")])
    with pytest.raises(InvalidInput, match="already has data in this namespace: 18 sess"):
        list(operations.migrate(f"sqlite:///{tmp_path}/source.db", url))


def test_a_migration_moves_only_its_namespace(tmp_path: Path) -> None:
    """Wrong: a migration moves other namespaces of the database, or is refused because of them."""
    for name in ("ours", "theirs"):
        for file in ("source", "target"):
            store = open_store(f"sqlite:///{tmp_path}/{file}.db", name)
            if file == "source" or name == "theirs":
                store.append(f"{name} in {file}", [draft(name)])
                _put_vectors(store, name)
                store.put_records("facts", [record(name)])
            store.close()
    urls = [f"sqlite:///{tmp_path}/{file}.db" for file in ("source", "target")]
    *_, last = operations.migrate(*urls, namespace="ours")
    assert last.verified == Migrated(1, 1, 1, 1)
    for name, expected in (("ours", "ours in source"), ("theirs", "theirs in target")):
        store = open_store(urls[1], name)
        assert [head.session_id for head in store.sessions()] == [expected]
        store.close()


def test_migrated_sessions_are_due(small: Store, target: Store) -> None:
    """Wrong: pending messages are not absorbed at the target until the session's next update."""
    for head in small.due():
        small.schedule(head, None)
    moved(small, target)
    assert sorted(head.session_id for head in target.due()) == ["a", "b", "c", "long"]
    assert target.append("long", [draft("more")], "of a").end == 121


def test_encrypted_data_stays_encrypted(source: Store, tmp_path: Path, target: Store) -> None:
    """Wrong: encrypted data is moved in plain text, or cannot be decrypted afterwards."""
    plain, sealed = tmp_path / "plain.db", open_store(f"sqlite:///{tmp_path}/sealed.db")
    with opened(EncryptedStore(sealed, Keys(KEY))) as memory:
        mine = memory.session("s", "ada")
        mine.update([{"role": "system", "content": "rules"}, {"role": "user", "content": "I row"}])
        mine.owner().notes().add("xylophone")
        memory.flush()
    urls = f"sqlite:///{tmp_path}/sealed.db", f"sqlite:///{tmp_path}/target.db"
    *_, last = migrate(*urls)
    assert last.verified.vectors > 0
    there, here = (EncryptedStore(one, Keys(KEY)) for one in (target, sealed))
    assert everything(there) == everything(here)
    held = file_bytes(tmp_path, "target.db")
    assert b"xylophone" not in held
    assert b"AMSG" not in held
    assert not plain.exists()
    with opened(EncryptedStore(target, Keys(KEY))) as memory:
        assert [one.message.text() for one in memory.history("s")] == ["rules", "I row"]
        notes = memory.session("s", "ada").owner().notes().all()
        assert [note.text for note in notes] == ["xylophone"]
        assert [fact.text for fact in memory.user("ada").facts()] == ["Rows."]
        assert memory.search("row", user_id="ada")
    sealed.close()


def test_system_messages_in_a_separate_store_are_included(target: Store) -> None:
    """Wrong: after both stores were moved, a session has lost its system message."""
    main, system = MemoryStore(), MemoryStore()
    rules = {"role": "system", "content": "rules"}
    with AgentMemory(store=SplitStore(main, system)) as memory:
        memory.update("s", [rules, {"role": "user", "content": "hi"}])
    other = MemoryStore()
    moved(main, target)
    assert moved(system, other).verified == Migrated(0, 0, 1, 0)
    with AgentMemory(store=SplitStore(target, other)) as memory:
        assert memory.get("s").to_messages()[0] == rules


@pytest.mark.parametrize(
    ("put", "told"),
    [
        (lambda store: store.append("s", [draft("x")]), "1 sessions"),
        (lambda store: store.put_records("facts", [record("x")]), "facts of 'facts'"),
        (lambda store: _put_vectors(store, "x"), "vectors of 'vector'"),
    ],
)
def test_full_target(small: Store, target: Store, put: Callable[[Store], None], told: str) -> None:
    """Wrong: a migration into a target with data mixes or loses data."""
    put(target)
    before = everything(target)
    with pytest.raises(InvalidInput, match=told):
        moved(small, target)
    assert everything(target) == before
    assert not is_unfinished(target)


def test_a_completed_migration_can_be_repeated(small: Store, target: Store) -> None:
    """Wrong: repeating a completed migration is refused, or one into a target used since is not."""
    verified = moved(small, target).verified
    steps: list[str] = []
    assert moved(small, watching(target, steps.append)).verified == verified
    assert steps.count("before commit") == 2  # the lock of the migration
    changes: list[Callable[[], object]] = [
        lambda: target.append("c", [draft("of the target")]),
        lambda: target.delete("c"),
        lambda: target.put_records("facts", [record("new")]),
    ]
    for change in changes:
        change()
        before = everything(target)
        with pytest.raises(InvalidInput, match="already has data"):
            moved(small, target)
        assert everything(target) == before


def test_a_target_that_was_opened_but_not_used_is_accepted(small: Store, target: Store) -> None:
    """Wrong: a target on which a memory was opened once is refused."""
    SystemRecords(target).write(Kind.JOBS, "vector", again_at=None)
    target.open_vectors("vector", 3, "another model")
    target.open_vectors("unknown", 3, "m")
    moved(small, target)
    assert everything(target) == everything(small)


def test_a_migration_from_another_source_is_rejected(small: Store, target: Store) -> None:
    """Wrong: a migration continues one that another source began."""
    begun = migrate_stores(small, target, "origin")
    next(begun)
    begun.close()
    for origin in ("other", "originx"):
        with pytest.raises(InvalidInput, match="from another source"):
            list(migrate_stores(small, target, origin))
    with pytest.raises(InvalidInput, match="itself the target of an unfinished migration"):
        moved(target, MemoryStore())
    moved(small, target)
    assert everything(target) == everything(small)


def test_invalid_source_and_target_urls_are_rejected(tmp_path: Path) -> None:
    """Wrong: a mistyped source is created and moved, or a store in memory is accepted."""
    there = f"sqlite:///{tmp_path}/there.db"
    for urls, told in (
        ((f"sqlite:///{tmp_path}/typo.db", there), "no file"),
        (("memory://", there), "ends with its process"),
        ((there, there), "the same database"),
        ((there, "memory://"), "ends with its process"),
    ):
        with pytest.raises(InvalidInput, match=told):
            list(operations.migrate(*urls))
    with pytest.raises(UnknownStore):
        list(operations.migrate(there, "oracle://x"))
    assert not list(tmp_path.iterdir())


def test_migrations_into_one_target_conflict(small: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: two migrations into one target run at the same time."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 60)
    monkeypatch.setattr(leases, "_WAIT_SECONDS", 0.05)
    target = MemoryStore()
    first = migrate_stores(small, target, "origin")
    next(first)
    with pytest.raises(StoreUnavailable):
        moved(small, target)
    list(first)
    assert everything(target) == everything(small)


def _changed_log(store: Store) -> None:
    store.append("a", [draft("one more")])
    store.append("new", [draft("begun meanwhile")], "of c")
    head = stored(store, "b")
    store.rewrite(head, 1)
    store.append("b", [draft("instead")])
    store.move(replace(stored(store, "long"), expired=70, start=80, start_total=240))


def _deleted(store: Store) -> None:
    store.delete("a")
    store.delete_records("facts", owner="user:of a")
    store.delete_vectors("vector", session_id="a")
    store.delete("long")


def _begun_anew(store: Store) -> None:
    store.delete("c")
    store.append("c", [draft("another one")], "of b")


def _other_records(store: Store) -> None:
    store.put_records("facts", [record("fb", "user:of b", "b", text="corrected"), record("fx")])
    store.delete_records("facts", record_id="fa")
    store.put_records("_registry", [record("k")])


def _another_model(store: Store) -> None:
    store.clear_vectors("vector")
    store.open_vectors("vector", 4, "another")
    one = worded(["owl"], meaning=units(1, 4))
    store.put_vectors("vector", [record("v1", "user:of a", "a")], one)


def _changed_unseen(store: Store) -> None:
    changed = replace(store.read("b")[-1], message=draft("b says other").message)
    store.rewrite(stored(store, "b"), 2, [changed])


CHANGES: list[Callable[[Store], object]] = [
    _changed_log, _changed_unseen, _deleted, _begun_anew, _other_records, _another_model,
    lambda store: store.move(replace(stored(store, "a"), deleting=True)),
    lambda store: store.clear_vectors("vector"),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("at", "call"), [("first", "commit"), ("last", "lines")])
def test_a_source_change_during_a_migration_is_detected(
    small: Store, change: Callable[[Store], object], at: str, call: str
) -> None:
    """Wrong: a migration reports success although the source changed meanwhile."""
    target, changed = MemoryStore(), [False]
    calls: list[str] = []
    moved(small, watching(MemoryStore(), calls.append))
    when = 1 if at == "first" else calls.count(f"after {call}")

    def watch(step: str) -> None:
        calls.append(step)
        if calls.count(f"after {call}") == when and not changed[0]:
            changed[0] = True
            change(small)

    calls.clear()
    told = _failure(small, watching(target, watch))
    assert changed[0]
    assert is_unfinished(target) == (told is not None)
    if told is not None:
        assert "not the same as the source" in told
        assert "The source was changed during the migration" in told
        moved(small, target)
    _same(small, target)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda store: store.delete_records("facts", record_id="fa"), "facts of 'facts'"),
        (lambda store: store.put_records("facts", [record("fa")]), "facts of 'facts'"),
        (lambda store: store.delete_vectors("vector", session_id="b"), "vectors of 'vector'"),
        (lambda store: store.append("extra", [draft("x")]), "session 'extra'"),
    ],
)
def test_differences_are_detected(small: Store, spoil: Callable[[Store], None], told: str) -> None:
    """Wrong: the comparison accepts a target that differs from the source."""
    target = MemoryStore()

    def watch(step: str) -> None:
        if len(target.existing(["a", "b", "c", "long"])) == 4:
            spoil(target)

    with pytest.raises(StoreError, match=f"not the same as the source: {told}") as caught:
        moved(small, watching(target, watch))
    assert "meanwhile" not in str(caught.value)
    moved(small, target)
    assert everything(target) == everything(small)


def test_a_session_that_differs_in_the_target_is_copied_again(small: Store) -> None:
    """Wrong: a log that differs from the source's is not replaced."""
    target, spoilt = MemoryStore(), [False]

    def watch(step: str) -> None:
        if len(target.existing(["a", "b", "c", "long"])) == 4 and not spoilt[0]:
            spoilt[0] = True
            _changed_unseen(target)

    moved(small, watching(target, watch))
    assert everything(target) == everything(small)


def test_a_pending_deletion_is_completed_in_the_target(target: Store) -> None:
    """Wrong: a migration restores a session marked for deletion, or never erases it."""
    source = MemoryStore()

    def fail(step: str) -> None:
        if step == "before delete":
            raise StoreUnavailable("cut short")

    with AgentMemory(store=watched(source, fail), blocks=[StepwiseNotes()]) as memory:
        for name in ("s1", "s2", "s3"):
            mine = memory.session(name, "ada" if name != "s3" else "ben")
            mine.update({"role": "user", "content": f"canary {name}"})
            mine.owner().notes().add(f"canary {name}")
            source.put_records("gone", [record(f"canary {name}", "session:x", name)])
        with pytest.raises(StoreUnavailable):
            memory.delete_user("ada")
    assert [head.deleting for head in source.sessions()] == [True, True, False]
    last = moved(source, target)
    assert (last.verified.sessions, last.verified.messages) == (3, 3)
    assert [head.deleting for head in target.sessions()] == [True, True, False]
    with AgentMemory(store=target, blocks=[NoteMemory()]) as memory:
        memory.flush()
        assert [head.session_id for head in memory.sessions()] == ["s3"]
    assert [head.session_id for head in target.sessions()] == ["s3"]
    assert not SystemRecords(target).read(Kind.USER_DELETIONS)


def test_data_deleted_between_runs_leaves_no_trace(tmp_path: Path, target: Store) -> None:
    """Wrong: text of a user who was deleted between two runs is left in the target's file."""
    source = MemoryStore()
    with AgentMemory(store=source, blocks=[NoteMemory()]) as memory:
        for user in ("ada", "ben"):
            mine = memory.session(f"of {user}", user)
            mine.update([{"role": "user", "content": f"canary-{user} {n}"} for n in range(60)])
            for n in range(40):
                mine.owner().notes().add(f"canary-{user} {n}")

        moved(source, target)
        SystemRecords(target).write(Kind.MIGRATION, "origin")  # as if it was interrupted
        assert b"canary-ada" in file_bytes(tmp_path, "target.db")
        memory.delete_user("ada")
    moved(source, target)
    assert everything(target) == everything(source)
    assert b"canary-ada" not in file_bytes(tmp_path, "target.db")
    assert b"canary-ben" in file_bytes(tmp_path, "target.db")


def test_interrupted_replays_and_deletions_are_migrated(small: Store, target: Store) -> None:
    """Wrong: a migration loses the state of an interrupted replay or deletion."""
    for kind in (Kind.REPLAYS, Kind.SCRUBS, Kind.USER_DELETIONS, Kind.JOBS):
        SystemRecords(small).write(kind, "key", done=1)
    moved(small, target)
    kept = {kind for kind in Kind if SystemRecords(target).read(kind)}
    assert kept == {Kind.REPLAYS, Kind.USER_DELETIONS, Kind.JOBS}
    assert {kind for kind in Kind if SystemRecords(small).read(kind)} == kept | {Kind.SCRUBS}


def test_the_migration_record_contains_no_text_or_id(source: Store, target: Store) -> None:
    """Wrong: the record that marks an unfinished target contains text or an id."""
    begun = migrate_stores(source, target, "0" * 64)
    next(begun)
    (note,) = target.records("_notes", "migration")
    begun.close()
    assert (note.text, note.metadata, note.session_id) == ("0" * 64, {}, "")


class Paged:
    """A kernel that refuses to read a whole log, or all documents of a collection, at once."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "scan" and not args[0].owner and not args[0].session:
                assert args[0].limit
            if name == "lines":
                assert all(part.limit and part.limit <= 50 for part in args[0])
            return value(*args, **kwargs)

        return call if callable(value) else value


def test_a_migration_reads_logs_and_records_in_pages(source: Store) -> None:
    """Wrong: a migration loads a whole log, or all records of a block, at once."""
    here, there = (KernelStore(Paged(each.kernel)) for each in (source, MemoryStore()))  # type: ignore[arg-type]
    assert moved(here, there).verified is not None


def _same(source: Store, target: Store) -> None:
    assert everything(target) == everything(source)


def _failure(source: Store, target: Store) -> str | None:
    try:
        moved(source, target)
    except StoreError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("postgresql://u:a@h/db", "postgresql://v:b@h/db", True),
        ("postgresql://u:a@h/db", "postgresql://u:a@h/db2", False),
        ("postgresql://h/db", "mysql://h/db", False),
        ("redis://:a@h:1/0?password=x", "redis://:b@h:1/0?password=y", True),
        ("unix:///s.sock?db=1", "unix:///s.sock?db=2", False),
        ("mongodb://u:p@a:1,b:2/db?w=1", "mongodb://a:1,b:2/db?w=1", True),
        ("sqlite:///./a.db", "sqlite:///a.db", True),
        ("sqlite:///a@b.db", "sqlite:///c@b.db", False),
    ],
)
def test_a_source_is_recognized_after_a_password_change(one: str, other: str, same: bool) -> None:
    """Wrong: a changed password makes a source unknown, or another database counts as the same."""
    assert (origin_of(one) == origin_of(other)) == same
    assert len(origin_of(one)) == 64


@pytest.fixture
def urls(
    tmp_path: Path, postgres_url: str, redis_url: str, mysql_url: str, mongodb_url: str
) -> list[str]:
    first, last = (f"sqlite:///{tmp_path / name}.db" for name in ("first", "last"))
    return [first, postgres_url, redis_url, mysql_url, mongodb_url, last]


def test_a_migration_through_all_databases_keeps_all_data(urls: list[str]) -> None:
    """Wrong: a database returns other data than was stored in it, or loses some."""
    namespace = f"ring {uuid4().hex}"
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(open_store(url, namespace))) for url in urls]
        fill(stores[0])
        before = everything(stores[0])
        steps: dict[str, object] = {}
        for here, there in pairwise(urls):
            *_, last = operations.migrate(here, there, namespace=namespace)
            steps[there] = last.verified
        assert len(set(steps.values())) == 1
        for store in stores[1:]:
            assert everything(store) == before
