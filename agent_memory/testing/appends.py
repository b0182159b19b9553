"""Contract tests for appending messages."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from agent_memory.core.idempotency import Once, key_of
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft
from agent_memory.errors import SessionDeleting, SessionOfAnotherUser
from agent_memory.stores.base import Store
from agent_memory.testing.contract import DAY, Contract, draft, stored, together


class AppendContract(Contract):
    """Part of `SessionStoreContract`."""

    def test_append_of_nothing_begins_a_session(self, store: Store) -> None:
        """Wrong: a block's data for a session without messages has no session to be deleted with.

        Also wrong: the first message after it is lost, or its seq is not 1.
        """
        begun = store.append("s", [], "ada")
        assert (begun.end, begun.total, begun.user_id) == (0, 0, "ada")
        assert store.head("s") == begun
        assert [head.session_id for head in store.sessions(user_id="ada")] == ["s"]
        assert store.append("s", [], "ada") == begun
        with pytest.raises(SessionOfAnotherUser):
            store.append("s", [], "ben")
        assert store.append("s", [draft("first")], "ada").end == 1
        assert [entry.seq for entry in store.read("s")] == [1]
        store.delete("s")
        assert store.head("s") is None

    def test_append_numbers_entries_and_sums_tokens(self, store: Store) -> None:
        """Wrong: seqs have gaps, or totals are not running sums."""
        first = store.append("s", [draft("a", 3), draft("b", 4)])
        second = store.append("s", [draft("c", 5)])
        assert (first.end, first.total, first.user_id) == (2, 7, None)
        assert (second.end, second.total) == (3, 12)
        assert [(e.seq, e.tokens, e.total) for e in store.read("s")] == [
            (1, 3, 3),
            (2, 4, 7),
            (3, 5, 12),
        ]
        assert stored(store) == second

    def test_append_creates_a_fresh_head(self, store: Store) -> None:
        """Wrong: a new session has a window, cursors or a deletion from before."""
        before = datetime.now(UTC)
        head = store.append("s", [draft("a")], "u")
        assert (head.session_id, head.user_id, head.start, head.pinned) == ("s", "u", 0, ())
        assert (head.system, head.summary, head.cursors, head.deleting) == (None, None, {}, False)
        assert before - timedelta(seconds=1) < head.created_at <= datetime.now(UTC)

    def test_append_of_nothing(self, store: Store) -> None:
        """Wrong: an empty list fails, or creates no session."""
        assert store.append("s", []).end == 0
        assert store.read("s") == []
        assert stored(store).end == 0

    def test_append_leaves_the_version_alone(self, store: Store) -> None:
        """Wrong: every update makes a concurrent compaction lose its compare-and-swap."""
        first = store.append("s", [draft("a")], "u")
        assert store.append("s", [draft("b")], "u").version == first.version
        assert store.append("s", [draft("c")]).version == first.version

    def test_append_is_all_or_nothing(self, store: Store) -> None:
        """Wrong: a part of a refused list is in the log."""
        store.append("s", [draft("a")], "u")
        with pytest.raises(SessionOfAnotherUser):
            store.append("s", [draft("b"), draft("c")], "v")
        assert stored(store).end == 1
        assert len(store.read("s")) == 1

    def test_system_message_replaces_and_adds_nothing(self, store: Store) -> None:
        """Wrong: system messages fill the window, or the first one stays forever."""
        first = store.append("s", [draft("one", 9, "system"), draft("a", 2)])
        assert (first.total, first.system_tokens) == (2, 9)
        assert first.system is not None
        assert first.system.content == "one"
        second = store.append(
            "s", [draft("two", 5, "system"), draft("three", 7, "developer"), draft("b", 1)]
        )
        assert (second.total, second.system_tokens, second.end) == (3, 7, 5)
        assert second.system is not None
        assert second.system.content == "three"
        assert second.version == first.version + 1
        assert stored(store) == second
        assert [e.total for e in store.read("s")] == [0, 2, 2, 2, 3]

    def test_the_same_system_message_again_keeps_the_version(self, store: Store) -> None:
        """Wrong: a caller that sends it with each update starves compactions."""
        first = store.append("s", [draft("be kind", 4, "system")])
        second = store.append("s", [draft("be kind", 4, "system"), draft("a")])
        assert second.version == first.version
        assert stored(store) == second

    def test_a_draft_is_written_as_its_place_asks(self, store: Store, other: Store) -> None:
        """Wrong: a message that a wrapper encrypted for one seq is stored at another, and is
        unreadable.
        """

        def placed(n: int, role: str = "user") -> Draft:
            message = Message(role=role, content=f"{n} for the head")
            return Draft(
                message, 3, "test", lambda seq: Message(role=role, content=f"{n} at {seq}")
            )

        for n in range(1, 10, 3):
            assert store.append("s", [placed(n)]).end == n
            assert other.append("s", [placed(n + 1), placed(n + 2, "system")]).end == n + 2
        assert [entry.message.text() for entry in store.read("s")] == [
            f"{n} at {n}" for n in range(1, 10)
        ]
        head = stored(other)
        assert head.system is not None
        assert head.system.text() == "9 for the head"

    def test_user_claims_a_session_once(self, store: Store) -> None:
        """Wrong: cursors survive the claim, so blocks never absorb the past for the user."""
        first = store.append("s", [draft("a")])
        moved = store.move(replace(first, cursors={"vector": 1}))
        assert moved is not None
        assert moved.cursors == {"vector": 1}
        claimed = store.append("s", [draft("b")], "u")
        assert (claimed.user_id, claimed.cursors) == ("u", {})
        assert claimed.version == moved.version + 1
        assert stored(store) == claimed
        for drafts in ([draft("c")], []):
            with pytest.raises(SessionOfAnotherUser):
                store.append("s", drafts, "U")

    def test_racing_claims_have_one_winner(self, store: Store, other: Store) -> None:
        """Wrong: two users own one session."""

        def claim(handle: Store, user: str) -> str | None:
            try:
                return handle.append("s", [draft(user)], user).user_id
            except SessionOfAnotherUser:
                return None

        users = [f"u{n}" for n in range(6)]
        handles = [store, other] * 3
        owners = together(
            [partial(claim, handle, user) for handle, user in zip(handles, users, strict=True)]
        )
        winners = [owner for owner in owners if owner is not None]
        assert winners == [stored(store).user_id]
        assert [e.message.content for e in store.read("s")] == winners

    def test_append_after_others(self, store: Store, other: Store) -> None:
        """Wrong: a handle's stale cache of a session undoes others' changes."""

        def append(content: str, tokens: int = 3) -> tuple[int, int, int]:
            head = store.append("s", [draft(content, tokens)])
            assert head == stored(other)
            return head.end, head.total, head.version

        assert append("a") == (1, 3, 1)
        other.append("s", [draft("b", 5), draft("c", 7)])
        assert append("d") == (4, 18, 1)
        assert other.rewrite(stored(other), 2) is not None
        assert append("e") == (3, 11, 2)
        assert other.move(replace(stored(other), start=2, cursors={"b": 1})) is not None
        assert append("f") == (4, 14, 3)
        other.append("s", [draft("rules", 2, "system")], "u")
        assert append("g") == (6, 17, 4)
        assert other.schedule(stored(other), None)
        assert append("h") == (7, 20, 4)
        assert [head.end for head in other.due()] == [7]
        texts = [entry.message.text() for entry in other.read("s")]
        assert texts == ["a", "b", "e", "f", "rules", "g", "h"]
        assert stored(store).user_id == "u"

    def test_append_after_a_deletion(self, store: Store, other: Store) -> None:
        """Wrong: a handle with a cached session writes to a new session under the same id."""
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
        assert other.move(replace(stored(other), deleting=True)) is not None
        with pytest.raises(SessionDeleting):
            store.append("s", [draft("j")])
        assert [entry.message.text() for entry in other.read("s")] == ["g", "h", "i"]

    def test_lists_append_after_others(self, store: Store, other: Store) -> None:
        """Wrong: a list that lost its place to another writer is stored in part."""
        for n in range(1, 6):
            store.append("s", [draft(f"a{n}"), draft(f"b{n}")])
            head = other.append("s", [draft(f"c{n}"), draft(f"d{n}")])
            assert (head.end, head.total) == (4 * n, 12 * n)
        texts = [entry.message.text() for entry in store.read("s")]
        assert texts == [f"{name}{n}" for n in range(1, 6) for name in "abcd"]
        assert [entry.seq for entry in store.read("s")] == list(range(1, 21))

    def test_a_message_larger_than_a_row_can_be(self, store: Store, other: Store) -> None:
        """Wrong: a message beyond the database's row size is refused, or comes back changed."""
        large = 'é"\\n and more: ' * 1_250_000  # 17 million characters, many of them escaped
        store.append("s", [draft("first")])
        assert store.append("s", [draft("second"), draft(large, 5)]).end == 3
        once = Once(key=key_of("k", []), at=DAY)
        for places in ((0,), ()):
            assert other.append_once("s", [draft(large[1:])], once).places == places
        assert store.append("s", [draft("last")]).end == 5
        said = [entry.message.text() for entry in other.read("s")]
        assert [len(text) for text in said] == [5, 6, len(large), len(large) - 1, 4]
        assert (said[2] == large, said[3] == large[1:]) == (True, True)
        assert [len(entry.message.text()) for entry in store.pick("s", [4, 2])] == [
            6, len(large) - 1,
        ]  # fmt: skip
        moved = replace(store.pick("s", [4])[0], seq=3, total=9)
        assert store.rewrite(stored(store), 2, [moved]) is not None
        assert other.append("s", [draft("short")]).end == 4
        lengths = [len(entry.message.text()) for entry in other.read("s", after=1)]
        assert lengths == [6, len(large) - 1, 5]
        head = stored(other)
        assert other.move(replace(head, expired=3, start=3, start_total=9)) is not None
        assert [entry.seq for entry in store.read("s")] == [4]
        store.delete("s")
        assert store.append("s", [draft("anew")]).end == 1
        assert [entry.message.text() for entry in store.read("s")] == ["anew"]
