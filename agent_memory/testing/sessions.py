"""Contract tests for session stores; see `agent_memory.testing.contract`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from agent_memory.core.idempotency import Idempotency, key_of
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry
from agent_memory.errors import SessionDeleting, SessionOfAnotherUser
from agent_memory.stores.base import Store
from agent_memory.testing.contract import (
    DAY,
    begun,
    changed,
    draft,
    entries,
    seqs_of,
    stored,
    texts_of,
    together,
)
from agent_memory.testing.idempotency import IdempotencyContract

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


def _again(entry: Entry) -> Entry:
    message = Message(role="user", content=f"{entry.message.text()}+", created_at=DAY)
    return replace(entry, message=message, created_at=DAY)


class SessionStoreContract(IdempotencyContract):
    """Contract of a `SessionStore`."""

    def test_a_repeated_system_message_keeps_the_version(self, store: Store) -> None:
        """Wrong: compactions fail while a caller repeats its system message with each update."""
        first = store.append("s", [draft("be kind", 4, "system")])
        second = store.append("s", [draft("be kind", 4, "system"), draft("a")])
        assert second.version == first.version
        assert stored(store) == second

    def test_one_of_several_racing_users_owns_the_session(self, store: Store, other: Store) -> None:
        """Wrong: two users own one session."""

        def claim(handle: Store, user: str) -> str | None:
            try:
                return handle.append("s", [draft(user)], user).user_id
            except SessionOfAnotherUser:
                return None

        users = [f"u{n}" for n in range(6)]
        handles = [store, other] * 3
        calls = [partial(claim, handle, user) for handle, user in zip(handles, users, strict=True)]
        winners = [owner for owner in together(calls) if owner is not None]
        assert winners == [stored(store).user_id]
        assert texts_of(store) == winners

    def test_an_append_sees_the_changes_of_other_handles(self, store: Store, other: Store) -> None:
        """Wrong: a handle's stale cache of a session undoes the changes of other handles."""

        def append(content: str, tokens: int = 3) -> tuple[int, int, int]:
            head = store.append("s", [draft(content, tokens)])
            assert head == stored(other)
            return head.end, head.total, head.version

        assert append("a") == (1, 3, 1)
        other.append("s", [draft("b", 5), draft("c", 7)])
        assert append("d") == (4, 18, 1)
        assert other.rewrite(stored(other), 2) is not None
        assert append("e") == (3, 11, 2)
        changed(other, start=2, cursors={"b": 1})
        assert append("f") == (4, 14, 3)
        other.append("s", [draft("rules", 2, "system")], "u")
        assert append("g") == (6, 17, 4)
        assert other.schedule(stored(other), None)
        assert append("h") == (7, 20, 4)
        assert [head.end for head in other.due()] == [7]
        assert texts_of(other) == ["a", "b", "e", "f", "rules", "g", "h"]
        assert stored(store).user_id == "u"

    def test_appends_do_not_continue_a_deleted_session(self, store: Store, other: Store) -> None:
        """Wrong: after a deletion, a handle continues the deleted session from its cache."""
        store.append("s", [draft("a"), draft("b")], "ann")
        other.delete("s")
        head = store.append("s", [draft("c")])
        assert (head.end, head.total, head.user_id) == (1, 3, None)
        other.delete("s")
        other.append("s", [draft("d"), draft("e")], "bob")
        with pytest.raises(SessionOfAnotherUser):
            store.append("s", [draft("f")], "ann")
        assert store.append("s", [draft("f")], "bob").end == 3
        other.delete("s")
        other.append("s", [draft("g"), draft("h")], "ann")
        assert store.append("s", [draft("i")], "ann").end == 3
        changed(other, deleting=True)
        with pytest.raises(SessionDeleting):
            store.append("s", [draft("j")])
        assert texts_of(other) == ["g", "h", "i"]

    def test_a_message_larger_than_a_row_is_stored(self, store: Store, other: Store) -> None:
        """Wrong: a message beyond the database's row size is refused, or comes back changed."""
        large = 'é"\\n and more: ' * 1_250_000  # 17 million characters, many of them escaped
        store.append("s", [draft("first")])
        assert store.append("s", [draft("second"), draft(large, 5)]).end == 3
        idempotency = Idempotency(key=key_of("k", []), at=DAY)
        for places in ((0,), ()):
            assert other.append_idempotent("s", [draft(large[1:])], idempotency).places == places
        assert store.append("s", [draft("last")]).end == 5
        texts = texts_of(other)
        assert [len(text) for text in texts] == [5, 6, len(large), len(large) - 1, 4]
        assert (texts[2] == large, texts[3] == large[1:]) == (True, True)
        lengths = [len(entry.message.text()) for entry in store.pick("s", [4, 2])]
        assert lengths == [6, len(large) - 1]
        moved = replace(store.pick("s", [4])[0], seq=3, total=9)
        assert store.rewrite(stored(store), 2, [moved]) is not None
        assert other.append("s", [draft("short")]).end == 4
        lengths = [len(entry.message.text()) for entry in other.read("s", after=1)]
        assert lengths == [6, len(large) - 1, 5]
        changed(other, expired=3, start=3, start_total=9)
        assert seqs_of(store.read("s")) == [4]
        store.delete("s")
        assert store.append("s", [draft("anew")]).end == 1
        assert texts_of(store) == ["anew"]

    def test_appends_during_an_expiry_are_stored(self, store: Store, other: Store) -> None:
        """Wrong: a message that arrives during an expiry is lost, or old entries stay."""
        store.append("s", [draft(str(n)) for n in range(1, 21)])

        def expire() -> None:
            for upto in range(1, 16):
                while store.move(replace(stored(store), expired=upto)) is None:
                    pass

        def append() -> None:
            for n in range(20):
                other.append("s", [draft(f"new {n}")])

        together([expire, append, append])
        assert stored(store).end == 60
        assert seqs_of(other.read("s")) == list(range(16, 61))
        assert store.counts().entries == 45

    def test_one_of_several_concurrent_imports_succeeds(self, store: Store, other: Store) -> None:
        """Wrong: two concurrent imports of a session mix their logs."""
        handles = [store, other] * 3
        calls = [
            partial(handle.rewrite, begun(cursors={"n": n}), 0, entries(1, 5, f" by {n}"))
            for n, handle in enumerate(handles)
        ]
        (winner,) = [head for head in together(calls) if head is not None]
        assert [winner] == [stored(store)] == other.due()
        assert texts_of(other) == [f"{seq} by {winner.cursors['n']}" for seq in range(1, 6)]

    def test_concurrent_appends_and_rewrites_lose_nothing(self, store: Store, other: Store) -> None:
        """Wrong: a rewrite removes a message that was appended meanwhile, or seqs have gaps."""
        store.append("s", [draft("first")])

        def append(handle: Store, name: str) -> None:
            for n in range(15):
                handle.append("s", [draft(f"{name}{n}"), draft(f"{name}{n}!")])

        def rewrite(handle: Store) -> None:
            for _ in range(15):
                head = stored(handle)
                after = max(head.end - 3, 0)
                log = handle.read("s", after=after, limit=head.end - after)
                handle.rewrite(head, after, [_again(entry) for entry in log])

        writers = [partial(append, handle, name) for handle, name in ((store, "a"), (other, "b"))]
        together([*writers, partial(rewrite, store), partial(rewrite, other)])
        log = store.read("s")
        assert seqs_of(log) == list(range(1, 62))
        assert [entry.total for entry in log] == list(range(3, 186, 3))
        assert sorted(text.rstrip("+") for text in texts_of(store)) == sorted(
            ["first", *(f"{name}{n}{end}" for name in "ab" for n in range(15) for end in ("", "!"))]
        )
        assert (stored(other).end, stored(other).total) == (61, 183)

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

    def test_lagging_finds_sessions_with_pending_entries(self, store: Store, other: Store) -> None:
        """Wrong: the newest messages of another chat are missed, or appear twice."""
        store.append("s1", [draft(f"a{n}", n) for n in range(1, 6)], "u")
        store.append("s2", [draft("b", 2)], "u")
        store.append("s3", [draft("c")], "u")
        store.append("s4", [draft("d")], "v")
        store.append("s5", [draft("e")])
        changed(store, "s1", cursors={"vector": 3, "facts": 5})
        changed(store, "s3", cursors={"vector": 1})
        lags = {lag.session_id: lag for lag in other.lagging("vector", user_id="u")}
        assert lags.keys() == {"s1", "s2"}
        lag, head = lags["s1"], stored(store, "s1")
        assert (lag.after, lag.end, lag.total) == (3, 5, 15)
        assert (lag.version, lag.created_at) == (head.version, head.created_at)
        assert (lags["s2"].after, lags["s2"].end) == (0, 1)
        facts = {lag.session_id: lag.after for lag in other.lagging("facts", user_id="u")}
        assert facts == {"s2": 0, "s3": 0}
        assert len(other.lagging("another", user_id="u")) == 3
        assert [lag.session_id for lag in other.lagging("vector", user_id="v")] == ["s4"]
        assert other.lagging("vector", user_id="w") == []
        assert [lag.session_id for lag in other.lagging("vector", session_id="s5")] == ["s5"]
        assert other.lagging("vector", session_id="s3") == []
        assert other.lagging("vector", session_id="s9") == []

    def test_block_names_may_resemble_fields_or_blocks(self, store: Store, other: Store) -> None:
        """Wrong: a block misses messages because its name resembles a field or another block."""
        store.append("s", [draft(str(n)) for n in range(12)], "u")
        changed(store, start=12, expired=1, cursors={"vec": 1, "ve": 12})
        behind = [name for name in ("vec", "VE", "e", "start", "expired", "%", "ve")
                  if other.lagging(name, user_id="u")]  # fmt: skip
        assert behind == ["vec", "VE", "e", "start", "expired", "%"]

    def test_tails_returns_unabsorbed_entries_of_sessions(self, store: Store, other: Store) -> None:
        """Wrong: messages of another chat or absorbed messages are returned."""
        store.append("s1", [draft(f"a{n}") for n in range(1, 8)], "u")
        store.append("s2", [draft(f"b{n}") for n in range(1, 4)], "u")
        store.append("s3", [draft("c")], "v")
        changed(store, "s1", cursors={"vector": 4})

        def tails(*names: str, before: int = 0, limit: int = 99) -> list[tuple[str, int, object]]:
            entries = other.tails("vector", names, before=before, limit=limit)
            return [(entry.session_id, entry.seq, entry.message.content) for entry in entries]

        first = [("s1", n, f"a{n}") for n in (5, 6, 7)]
        second = [("s2", n, f"b{n}") for n in (1, 2, 3)]
        assert sorted(tails("s1", "s2")) == [*first, *second]
        assert tails("s2") == second
        assert tails("s1", before=2) == [("s1", n, f"a{n}") for n in (3, 4, 5, 6, 7)]
        assert tails("s2", before=2) == second
        assert tails("s1", limit=2) == first[1:]
        assert (tails("s9"), tails()) == ([], [])

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

    def test_one_of_several_concurrent_moves_succeeds(self, store: Store, other: Store) -> None:
        """Wrong: two writers both believe that their head is the stored one."""
        head = store.append("s", [draft("a")])
        handles = [store, other] * 4
        moves = [partial(h.move, replace(head, cursors={"n": n})) for n, h in enumerate(handles)]
        winners = [moved for moved in together(moves) if moved is not None]
        assert winners == [stored(store)]

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

    def test_a_store_can_be_closed_twice(self, store: Store) -> None:
        """Wrong: leaving a context manager after `close()` fails."""
        store.append("s", [draft("a")])
        store.close()
        store.close()
