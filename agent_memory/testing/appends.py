"""Contract tests for appending, expiring and finding messages; see `testing.contract`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from agent_memory.core.idempotency import Once, key_of
from agent_memory.errors import SessionDeleting, SessionOfAnotherUser
from agent_memory.stores.base import Store
from agent_memory.testing.contract import (
    DAY,
    Contract,
    changed,
    draft,
    seqs_of,
    stored,
    texts_of,
    together,
)


class AppendContract(Contract):
    """Contract of a `SessionStore` for appends."""

    def test_a_new_system_message_replaces_the_previous_one(self, store: Store) -> None:
        """Wrong: system messages fill the window, the first one stays forever, or one is lost."""
        first = store.append("s", [draft("one", 9, "system"), draft("a", 2)])
        assert (first.total, first.system_tokens) == (2, 9)
        assert first.system is not None
        assert first.system.content == "one"
        drafts = [draft("two", 5, "system"), draft("three", 7, "developer"), draft("b", 1)]
        second = store.append("s", drafts)
        assert (second.total, second.system_tokens, second.end) == (3, 7, 5)
        assert second.system is not None
        assert second.system.content == "three"
        assert second.version == first.version + 1
        assert stored(store) == second
        assert [e.total for e in store.read("s")] == [0, 2, 2, 2, 3]
        third = store.append("s", [draft("four", 5, "system"), draft("five", 7, "system")])
        assert third.system is not None
        assert (third.system.content, third.system_tokens) == ("four\n\nfive", 12)

    def test_a_repeated_system_message_keeps_the_version(self, store: Store) -> None:
        """Wrong: compactions fail while a caller repeats its system message with each update."""
        first = store.append("s", [draft("be kind", 4, "system")])
        second = store.append("s", [draft("be kind", 4, "system"), draft("a")])
        assert second.version == first.version
        assert stored(store) == second

    def test_the_first_user_owns_the_session_and_resets_its_cursors(self, store: Store) -> None:
        """Wrong: cursors survive the first append with a user.

        Blocks then never absorb the earlier messages for this user.
        """
        store.append("s", [draft("a")])
        moved = changed(store, cursors={"vector": 1})
        assert moved.cursors == {"vector": 1}
        claimed = store.append("s", [draft("b")], "u")
        assert (claimed.user_id, claimed.cursors) == ("u", {})
        assert claimed.version == moved.version + 1
        assert stored(store) == claimed
        for drafts in ([draft("c")], []):
            with pytest.raises(SessionOfAnotherUser):
                store.append("s", drafts, "U")

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
        once = Once(key=key_of("k", []), at=DAY)
        for places in ((0,), ()):
            assert other.append_once("s", [draft(large[1:])], once).places == places
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


class ExpiryContract(Contract):
    """Contract of a `SessionStore` for the removal of entries up to `Head.expired`."""

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


class LaggingContract(Contract):
    """Contract of a `SessionStore` for finding messages that a block has not absorbed yet."""

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
