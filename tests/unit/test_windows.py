"""Cached windows show what the log holds, whoever changed it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import AgentMemory, Entry, Head, Trim
from agent_memory.engine import paging
from agent_memory.engine.paging import Windows
from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing.contract import draft, stored, together
from tests.kit import Echo


class Reader(MemoryStore):
    """Record which entries of logs are read."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        found = super().read(session_id, after=after, limit=limit)
        self.seen += [entry.seq for entry in found]
        return found


@pytest.fixture
def store() -> Reader:
    return Reader()


def _texts(entries: Sequence[Entry]) -> list[str]:
    return [entry.message.text() for entry in entries]


def _say(store: MemoryStore, *texts: str, session_id: str = "s") -> Head:
    return store.append(session_id, [draft(text) for text in texts])


def test_a_cached_window_reads_only_newer_entries(store: Reader) -> None:
    """Wrong: each call reads the whole window again, or misses new entries."""
    kept = Windows(store)
    assert _texts(kept.of(_say(store, "a", "b"))) == ["a", "b"]
    assert _texts(kept.of(_say(store, "c"))) == ["a", "b", "c"]
    assert _texts(kept.of(stored(store))) == ["a", "b", "c"]
    assert store.seen == [1, 2, 3]


def test_entries_appended_by_this_process_are_not_read_back(store: Reader) -> None:
    """Wrong: the cache reads messages back that this process has just appended."""
    kept = Windows(store)
    kept.of(_say(store, "a"))
    for drafts in ([draft("b"), draft("b2")], [draft("c", metadata={"n": [1]})]):
        kept.appended(store.append("s", drafts), drafts)
    drafts[0].message.metadata["n"].append(2)
    head = stored(store)
    seen = kept.of(head)
    assert store.seen == [1]
    assert seen == store.read("s")
    assert seen[-1].message.metadata == {"n": [1]}


def test_concurrent_appends_appear_once_in_a_cached_window() -> None:
    """Wrong: a message that arrives while a window is read is shown twice or not at all."""
    store = MemoryStore()
    kept = Windows(store)
    kept.of(_say(store, "first"))

    def talk(name: str) -> None:
        for n in range(150):
            drafts = [draft(f"{name}{n}", metadata={"n": n})]
            kept.appended(store.append("s", drafts), drafts)
            seqs = [entry.seq for entry in kept.of(stored(store))]
            assert seqs == list(range(1, len(seqs) + 1))

    together([partial(talk, name) for name in "abcd"])
    assert kept.of(stored(store)) == store.read("s")


def test_a_cut_by_this_process_reads_nothing(store: Reader) -> None:
    """Wrong: a cut makes the remaining window be read again."""
    kept = Windows(store)
    head = _say(store, "a", "b", "c", "d")
    kept.of(head)
    moved = store.move(replace(head, start=3, pinned=(2,)))
    assert moved is not None
    kept.moved(head, moved)
    assert _texts(kept.of(moved)) == ["b", "d"]
    assert _texts(kept.of(_say(store, "e"))) == ["b", "d", "e"]
    assert store.seen == [1, 2, 3, 4, 5]


def test_a_restored_session_is_read_again(store: Reader) -> None:
    """Wrong: after a session was deleted and restored elsewhere, the cache shows its former window,
    because version and time are equal."""
    head, first = _say(store, "a", "bb"), store.read("s", limit=1)
    for texts in (["bb"], ["bb", "c"], ["long", "c", "d"]):
        kept = Windows(store)
        kept.of(head)
        store.delete("s")
        begun = store.rewrite(replace(head, version=0), 0, first)
        while begun.version < head.version:
            begun = store.move(begun) or begun
        brought = store.append("s", [draft(text, tokens=len(text)) for text in texts])
        assert (brought.version, brought.created_at) == (head.version, head.created_at)
        assert _texts(kept.of(brought)) == ["a", *texts]
        head = brought


def test_the_window_cache_has_a_size_limit(store: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the cache keeps every session that a service ever served."""
    monkeypatch.setattr(paging, "_MOST", 10)
    kept = Windows(store)
    for n in range(20):
        kept.of(_say(store, "a", "b", "c", session_id=f"s{n}"))
    assert sum(len(one.entries) for one in kept._cached.values()) <= 10
    assert _texts(kept.of(_say(store, *"abcdefghijklm", session_id="long"))) == [*"abcdefghijklm"]
    kept.of(_say(store, "a", session_id="s"))
    for _ in range(20):
        drafts = [draft("more")]
        kept.appended(store.append("s", drafts), drafts)
    assert list(kept._cached) == ["s"]
    kept.forget("s")
    assert not kept._cached
    assert kept._cached.total == 0


def test_cache_limits_count_message_sizes(store: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the cache's limit ignores the size of messages."""
    monkeypatch.setattr(paging, "_MOST", 10)
    kept = Windows(store)
    for session in ("one", "two"):
        drafts = [replace(draft("long"), tokens=4_000), replace(draft("longer"), tokens=5_000)]
        kept.of(head := store.append(session, drafts[:1]))
        kept.appended(store.append(session, drafts[1:]), drafts[1:])
    assert list(kept._cached) == ["two"]
    assert kept._cached.total == 11
    kept.forget(head.session_id)
    assert kept._cached.total == 0


_STEPS = st.lists(
    st.sampled_from(
        ["say", "foreign say", "look", "cut", "foreign cut", "pop", "absorb", "delete"]
    ),
    max_size=30,
)


@given(_STEPS)
def test_the_window_is_the_logs(steps: list[str]) -> None:
    """Wrong: after a pop, a cut or a deletion the cache shows removed messages."""
    store = MemoryStore()
    kept = Windows(store)
    head = _say(store, "first")
    for n, step in enumerate(steps):
        match step:
            case "say" | "foreign say":
                drafts = [draft(f"text {n}", n, "system" if n % 7 == 3 else "user")]
                head = store.append("s", drafts)
                if step == "say":
                    kept.appended(head, drafts)
            case "look":
                _check(kept, store, head)
            case "cut" | "foreign cut":
                pinned = (head.start + 1,) if n % 2 and head.start + 1 < head.end else ()
                moved = _moved(store, head, start=max(head.start, head.end - 1), pinned=pinned)
                if step == "cut":
                    kept.moved(head, moved)
                head = moved
            case "pop":
                end = max(head.end - 1, head.start)
                popped = store.rewrite(head, end)
                assert popped is not None
                head = popped
            case "absorb":
                head = _moved(store, head, cursors={"b": head.end})
            case "delete":
                store.delete("s")
                head = _say(store, f"anew {n}")
    _check(kept, store, head)


def _moved(store: MemoryStore, head: Head, **changes: Any) -> Head:
    moved = store.move(replace(head, **changes))
    assert moved is not None
    return moved


def _check(kept: Windows, store: MemoryStore, head: Head) -> None:
    pinned = store.pick("s", head.pinned)
    assert kept.of(head) == [*pinned, *store.read("s", after=head.start)]


def test_moving_a_cursor_does_not_reload_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: each moved cursor makes the whole window be read again."""
    read: list[str] = []
    original = Windows._read

    def noted(kept: Windows, head: Head) -> Any:
        read.append(head.session_id)
        return original(kept, head)

    monkeypatch.setattr(Windows, "_read", noted)
    settings: dict[str, Any] = {"store": MemoryStore(), "max_tokens": 600, "overflow": Trim()}
    with AgentMemory(**settings, overflow_mode="inline", blocks=[Echo()]) as memory:
        for number in range(60):
            said = f"Message {number}, {'with some more words ' * 5}"
            memory.update("s", {"role": "user", "content": said})
        head = memory.components.store.head("s")
    assert head.cursors["echo"] > 30
    assert read == ["s"]
