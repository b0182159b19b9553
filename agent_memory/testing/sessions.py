"""Contract tests for session stores; see `agent_memory.testing.contract`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Summary
from agent_memory.stores.base import Counts, Store
from agent_memory.testing.appends import AppendContract, ExpiryContract, LaggingContract
from agent_memory.testing.contract import (
    DAY,
    changed,
    draft,
    seqs_of,
    stored,
    texts_of,
    together,
)
from agent_memory.testing.once import IdempotencyContract
from agent_memory.testing.rewriting import RewriteContract

_MESSAGES: dict[str, dict[str, Any]] = {
    "unicode": {"role": "user", "content": "Grüße 😀 \u202e עברית"},
    "nul": {"role": "user", "content": "nul \x00, controls \x01\x1f\x7f, \r\n\u2028"},
    "surrogates": {"role": "user", "content": "lone \ud83d surrogate \udc00"},
    "empty": {"role": "user", "content": ""},
    "calls": {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "x": [2.5, None]}]},
    "parts": {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
    "metadata": {"role": "user", "content": "x", "metadata": {"a": {"b": [True]}}},
    "extra": {"role": "user", "content": "x", "reasoning": {"n": 1e300}, "refusal": None},
    "dated": {"role": "user", "content": "old", "created_at": DAY},
    "raw": {"raw": {"type": "reasoning", "n": 2**53 + 1}, "format": "openai.responses"},
    "compaction": {"raw": {"type": "compaction", "encrypted_content": "gAAA/+==" * 99},
                   "format": "openai.responses"},
    "compacted": {"raw": {"object": "response.compaction", "output": [{"type": "compaction"}]},
                  "format": "openai.responses"},
    "readable": {"raw": {"role": "assistant", "content": [{"type": "compaction", "content": "x",
                 "signature": None}]}, "format": "anthropic.messages"},
    "another": {"raw": {"anything": [1, {"of": None}]}, "format": "of an adapter"},
    "epoch": {"role": "user", "content": "old", "create_time": 1715000000.25},
    "4mb": {"role": "user", "content": "M" * 4 * 2**20},
}  # fmt: skip


class SessionStoreContract(
    AppendContract, ExpiryContract, LaggingContract, IdempotencyContract, RewriteContract
):
    """Contract of a `SessionStore`."""

    def test_changing_a_returned_value_does_not_change_the_store(self, store: Store) -> None:
        """Wrong: a caller who changes a returned list changes the log."""
        parts = [{"type": "text", "text": "kept"}]
        store.append("s", [draft(parts), draft(parts, role="system")])
        parts[0]["text"] = "changed"
        for entry in store.read("s"):
            assert isinstance(entry.message.content, list)
            entry.message.content[0]["text"] = "changed"
        stored(store).cursors["vector"] = 9
        store.read("s").clear()
        assert texts_of(store) == ["kept", "kept"]
        head = stored(store)
        assert head.cursors == {}
        assert head.system is not None
        assert head.system.text() == "kept"

    def test_existing_omits_missing_and_deleting_sessions(self, store: Store, other: Store) -> None:
        """Wrong: `existing` returns a session that is being deleted, or misses an existing one."""
        names = [f"s{n}" for n in range(1, 700)]
        assert store.existing(names) == set()
        for name in names[:4]:
            store.append(name, [draft("x")])
        assert store.existing([]) == set()
        assert other.existing(names) == set(names[:4])
        assert store.existing({"s2", "s3", "S2", "s9"}) == {"s2", "s3"}
        store.delete("s2")
        changed(other, "s3", deleting=True)
        assert store.existing(names) == {"s1", "s4"}

    def test_move_stores_every_field_of_the_head(self, store: Store) -> None:
        """Wrong: a field of the head is lost or changed."""
        head = store.append("s", [draft(str(n), n) for n in range(1, 6)])
        summary = Summary("so far: \x00 \ud800 😀", 6, 3, "local", redo_after=0, redo_text=None)
        wanted = replace(
            head,
            user_id="u",
            start=3,
            start_total=6,
            pinned=(1, 2),
            pinned_tokens=3,
            system=Message(role="system", content="rules", created_at=DAY),
            system_tokens=4,
            summary=summary,
            cursors={"vector": 3, "facts": 5},
        )
        moved = store.move(wanted)
        assert moved == replace(wanted, version=head.version + 1)
        assert stored(store) == moved
        cleared = changed(store, system=None, summary=None, pinned=(), user_id=None)
        assert (cleared.system, cleared.summary, cleared.pinned) == (None, None, ())
        assert stored(store) == cleared

    def test_one_of_several_concurrent_moves_succeeds(self, store: Store, other: Store) -> None:
        """Wrong: two writers both believe that their head is the stored one."""
        head = store.append("s", [draft("a")])
        handles = [store, other] * 4
        moves = [partial(h.move, replace(head, cursors={"n": n})) for n, h in enumerate(handles)]
        winners = [moved for moved in together(moves) if moved is not None]
        assert winners == [stored(store)]

    def test_sessions_are_listed_in_pages(self, store: Store) -> None:
        """Wrong: a page repeats or skips sessions, or shows another user's sessions."""
        names = ["B", "a", "b", "z", "ä", "é", "😀"]
        for place, name in enumerate(reversed(names)):
            store.append(name, [draft("x", 2)], f"user{place % 2}" if place < 5 else None)
        pages: list[str] = []
        after: str | None = None
        while page := store.sessions(limit=3, after=after):
            assert len(page) <= 3
            pages += [head.session_id for head in page]
            after = page[-1].session_id
        assert pages == names
        assert [h.session_id for h in store.sessions(user_id="user0")] == ["b", "ä", "😀"]
        assert [h.session_id for h in store.sessions(user_id="user0", after="b", limit=1)] == ["ä"]
        assert store.sessions(user_id="USER0") == []
        assert store.sessions(limit=1) == [stored(store, "B")]

    def test_ids_are_compared_exactly(self, store: Store) -> None:
        """Wrong: sessions with similar ids are mixed up."""
        names = ["a", "A", "a ", " a", "á", "a\u0301", "%", "_"]
        names += ["x" * 255, "x" * 254 + "y", "😀" * 255]
        for name in names:
            store.append(name, [draft(name)])
        for name in names:
            assert texts_of(store, name) == [name]
        assert store.counts().sessions == len(names)

    @pytest.mark.parametrize("fields", _MESSAGES.values(), ids=_MESSAGES.keys())
    def test_messages_round_trip(self, store: Store, other: Store, fields: dict[str, Any]) -> None:
        """Wrong: a message changes on its way through the store."""
        message = Message(**fields)
        store.append("s", [Draft(message, 5, "o200k_base")])
        (entry,) = other.read("s")
        assert entry == Entry("s", 1, message, 5, 5, "o200k_base", message.created_at)
        assert entry.message.to_dict() == message.to_dict()
        assert other.pick("s", [1]) == [entry]

    def test_concurrent_appends_are_all_stored(self, store: Store, other: Store) -> None:
        """Wrong: racing appends are lost, share a seq, or corrupt the totals."""

        def run(handle: Store, name: int) -> None:
            for n in range(10):
                handle.append("s", [draft(f"{name}-{n}", 2)])

        together([partial(run, h, n) for n, h in enumerate([store, other] * 8)])
        entries = store.read("s")
        assert seqs_of(entries) == list(range(1, 161))
        assert [e.total for e in entries] == list(range(2, 321, 2))
        texts = texts_of(store)
        assert len(set(texts)) == 160
        for name in range(16):
            mine = [text for text in texts if text.startswith(f"{name}-")]
            assert mine == [f"{name}-{n}" for n in range(10)]

    def test_messages_of_one_append_stay_adjacent(self, store: Store, other: Store) -> None:
        """Wrong: another thread's message is stored between a call and its result."""
        lists = [
            partial(h.append, "s", [draft(f"{n}")] * 5) for n, h in enumerate([store, other] * 4)
        ]
        together(lists)
        texts = texts_of(store)
        assert len(texts) == 40
        assert all(len(set(texts[at : at + 5])) == 1 for at in range(0, 40, 5))

    def test_namespaces_have_independent_sessions(self, store: Store, elsewhere: Store) -> None:
        """Wrong: one namespace reads or deletes the sessions of another."""
        store.append("s", [draft("a")], "u")
        assert elsewhere.head("s") is None
        assert elsewhere.append("s", [draft("b"), draft("c")], "v").end == 2
        assert elsewhere.counts() == Counts(sessions=1, entries=2)
        assert [h.user_id for h in elsewhere.sessions()] == ["v"]
        assert [e.message.content for e in store.pick("s", [1, 2])] == ["a"]
        elsewhere.delete("s")
        assert stored(store).end == 1
        assert len(store.read("s")) == 1

    def test_a_store_can_be_closed_twice(self, store: Store) -> None:
        """Wrong: leaving a context manager after `close()` fails."""
        store.append("s", [draft("a")])
        store.close()
        store.close()
