"""Contract tests for idempotent writes of session stores; see `testing.contract`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from agent_memory.core.idempotency import (
    Appended,
    KeptKey,
    Once,
    as_it_was,
    digest_of,
    key_of,
    key_of_message,
)
from agent_memory.core.records import Draft
from agent_memory.errors import Conflict
from agent_memory.stores.base import Store
from agent_memory.testing.contract import DAY, Contract, changed, draft, stored, texts_of, together


def terms(
    drafts: Sequence[Draft],
    key: str | None = None,
    *,
    ids: bool = False,
    end: int | None = None,
    day: int = 0,
    since: int | None = None,
) -> Once:
    """Return the argument `once` of an append. `day` and `since` count days after `DAY`."""
    messages = [draft.message for draft in drafts]
    return Once(
        key=None if key is None else key_of(key, messages),
        ids=tuple(map(key_of_message, messages)) if ids else (),
        expected_end=end,
        at=DAY + timedelta(day),
        since=None if since is None else DAY + timedelta(since),
    )


def append(
    store: Store, drafts: list[Draft], key: str | None = None, user: str | None = None, **more: Any
) -> Appended:
    """Append messages to the session "s", with more arguments for `terms`."""
    return store.append_once("s", drafts, terms(drafts, key, **more), user)


def once(store: Store, text: str, key: str | None = None, **more: Any) -> Appended:
    """Append one message under a key, which is the message's text by default."""
    return append(store, [draft(text)], key or text, **more)


def kept(done: Appended) -> KeptKey:
    """Return the key of an append that stored nothing, from the append that first used it."""
    assert done.before is not None
    return done.before


class IdempotencyContract(Contract):
    """Contract of a `SessionStore` for retries: a retried write stores nothing twice."""

    def test_a_retry_with_the_same_key_stores_nothing(self, store: Store, other: Store) -> None:
        """Wrong: a caller that missed the reply and retries stores its message twice."""
        drafts = [draft("a"), draft("b", 4)]
        first = append(store, drafts, "k", user="u")
        assert (first.places, first.before) == ((0, 1), None)
        assert first.head == stored(other)
        assert (first.head.end, first.head.total, first.head.user_id) == (2, 7, "u")
        for handle in (store, other):
            again = append(handle, drafts, "k", day=1, user="u")
            (key,) = handle.keys("s")
            assert (again.places, again.before, again.head) == ((), key, first.head)
            assert as_it_was(again.head, key) == first.head
        other.append("s", [draft("c")])
        later = append(store, drafts, "k")
        assert later.head.end == 3
        was = as_it_was(later.head, kept(later))
        assert (was.end, was.total) == (2, 7)
        assert texts_of(other) == ["a", "b", "c"]

    def test_sessions_and_namespaces_share_no_keys(self, store: Store, elsewhere: Store) -> None:
        """Wrong: a key used in one session blocks the same key in another."""
        drafts = [draft("a")]
        options = terms(drafts, "k")
        assert store.append_once("s", drafts, options).places == (0,)
        assert store.append_once("S", drafts, options).places == (0,)
        assert elsewhere.append_once("s", drafts, options).places == (0,)
        assert not elsewhere.append_once("s", drafts, options).places
        assert len(store.keys("s")) == 1

    def test_messages_with_ids_are_stored_once(self, store: Store, other: Store) -> None:
        """Wrong: the retry of a partly stored list loses messages, or stores some twice."""
        drafts = [draft(f"{n}", id=f"m{n}") for n in range(5)]
        some = [drafts[1], drafts[3]]
        assert append(store, some, ids=True).head.end == 2
        rest = append(other, drafts, ids=True)
        assert (rest.places, rest.before, rest.head.end) == ((0, 2, 4), None, 5)
        assert rest.head == stored(store)
        assert texts_of(store) == ["1", "3", "0", "2", "4"]
        for part in (drafts, drafts[2:], [drafts[1]]):
            again = append(store, part, ids=True)
            assert again.places == ()
        assert (kept(again).end, kept(again).seq) == (2, 1)
        mixed = [drafts[0], draft("no id"), draft("5", id="m5")]
        assert append(store, mixed, ids=True).places == (1, 2)

    def test_a_stale_expected_end_is_rejected(self, store: Store, other: Store) -> None:
        """Wrong: a writer that read an older log appends after entries that it has not seen."""
        first = [draft("a")]
        with pytest.raises(Conflict, match="ends at 0"):
            append(store, first, end=1)
        assert store.head("s") is None
        assert append(store, first, end=0).head.end == 1
        assert other.append("s", [draft("b")]).end == 2
        for handle in (store, other):
            for end in (0, 1, 3):
                with pytest.raises(Conflict, match="ends at 2"):
                    append(handle, first, end=end)
        assert append(store, first, "k", end=2).head.end == 3
        assert store.append("s", [draft("d")]).end == 4
        again = append(other, first, "k", end=2)
        assert kept(again).end == 3
        assert texts_of(store) == ["a", "b", "a", "d"]

    def test_concurrent_retries_store_the_message_once(self, store: Store, other: Store) -> None:
        """Wrong: several concurrent retries store the message more than once."""
        handles = [store, other] * 4
        for n in range(5):
            calls = [partial(once, handle, f"m{n}") for handle in handles]
            done: list[Appended] = together(calls)
            assert sorted(len(item.places) for item in done) == [0] * 7 + [1]
            assert {item.head.end if item.places else kept(item).end for item in done} == {n + 1}
        assert texts_of(store) == [f"m{n}" for n in range(5)]

    def test_a_key_outlives_its_expired_message(self, store: Store, other: Store) -> None:
        """Wrong: a late retry of an expired message is stored again."""
        texts = [f"m{n}" for n in range(20)]
        for text in texts:
            once(store, text)
        changed(other, expired=15, start=15, start_total=45)
        for handle in (store, other):
            assert not any(once(handle, text).places for text in texts)
        assert len(store.read("s")) == 5

    def test_a_removed_message_can_be_appended_again(self, store: Store, other: Store) -> None:
        """Wrong: a message that was taken back cannot be sent again."""
        texts = [f"m{n}" for n in range(20)]
        for text in texts:
            once(store, text)
        both = [draft("both"), draft("of two")]
        append(store, both, "both")
        assert other.rewrite(stored(other), 21) is not None
        # one of the two messages remains
        assert not append(store, both, "both").places
        assert other.rewrite(stored(other), 5) is not None
        assert len(other.keys("s")) == 5
        assert not any(once(store, text).places for text in texts[:5])
        for n, text in enumerate(texts[5:12], 5):
            assert once(store, text).head.end == n + 1
            assert not once(other, text).places
        assert append(store, both, "both").places
        assert texts_of(other) == [*texts[:12], "both", "of two"]

    def test_keys_can_be_copied_to_another_store(self, store: Store, other: Store) -> None:
        """Wrong: a session that moves to another store loses its keys."""
        assert store.keys("s") == []
        keys = [
            KeptKey(key_of(f"k{n}", []).name, digest_of([]), n + 1, n + 2, 3 * n, DAY)
            for n in range(120)
        ]
        store.put_keys("s", keys)
        assert store.head("s") is None
        assert store.keys("s") == []
        store.append("s", [draft(f"m{n}") for n in range(121)])
        store.put_keys("s", keys[:100])
        other.put_keys("s", keys[90:])
        assert store.keys("s") == keys
        assert other.keys("s", [keys[7].name, keys[110].name, "none"]) == [keys[7], keys[110]]
        assert other.keys("s", []) == []
        options = Once(key=key_of("k7", []), at=DAY)
        assert other.append_once("s", [draft("late")], options).before == keys[7]
        assert once(other, "new").head.end == 122
        assert not once(store, "new").places
        assert store.rewrite(stored(store), 50) is not None
        assert store.keys("s") == keys[:50]
