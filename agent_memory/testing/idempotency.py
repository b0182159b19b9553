"""Contract tests for idempotent writes of session stores; see `agent_memory.testing.contract`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from agent_memory.core.idempotency import (
    Appended,
    Idempotency,
    KeyRecord,
    as_it_was,
    key_of,
    key_of_message,
)
from agent_memory.core.records import Draft
from agent_memory.errors import Conflict
from agent_memory.stores.base import Store
from agent_memory.testing.contract import DAY, Contract, changed, draft, stored, texts_of, together


def append(
    store: Store,
    drafts: Sequence[Draft],
    key: str | None = None,
    user: str | None = None,
    *,
    ids: bool = False,
) -> Appended:
    """Append messages to the session "s", once for a key, or with `ids` once for their ids."""
    messages = [draft.message for draft in drafts]
    terms = Idempotency(
        key=None if key is None else key_of(key, messages),
        ids=tuple(map(key_of_message, messages)) if ids else (),
        at=DAY,
    )
    return store.append_idempotent("s", drafts, terms, user)


def append_keyed(store: Store, text: str) -> Appended:
    """Append one message under a key, which is the message's text."""
    return append(store, [draft(text)], text)


def key_in(done: Appended) -> KeyRecord:
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
            again = append(handle, drafts, "k", user="u")
            (key,) = handle.keys("s")
            assert handle.keys("s", ["none", key.name]) == [key]
            assert handle.keys("s", ["none"]) == []
            assert (again.places, again.before, again.head) == ((), key, first.head)
            assert as_it_was(again.head, key) == first.head
        other.append("s", [draft("c")])
        later = append(store, drafts, "k")
        assert later.head.end == 3
        was = as_it_was(later.head, key_in(later))
        assert (was.end, was.total) == (2, 7)
        assert texts_of(other) == ["a", "b", "c"]

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
        assert (key_in(again).end, key_in(again).seq) == (2, 1)
        mixed = [drafts[0], draft("no id"), draft("5", id="m5")]
        assert append(store, mixed, ids=True).places == (1, 2)

    def test_concurrent_retries_store_the_message_once(self, store: Store, other: Store) -> None:
        """Wrong: several concurrent retries store the message more than once."""
        handles = [store, other] * 4
        for n in range(5):
            calls = [partial(append_keyed, handle, f"m{n}") for handle in handles]
            done: list[Appended] = together(calls)
            assert sorted(len(item.places) for item in done) == [0] * 7 + [1]
            assert {item.head.end if item.places else key_in(item).end for item in done} == {n + 1}
        assert texts_of(store) == [f"m{n}" for n in range(5)]

    def test_a_key_outlives_its_expired_message(self, store: Store, other: Store) -> None:
        """Wrong: a late retry of an expired message is stored again."""
        texts = [f"m{n}" for n in range(20)]
        for text in texts:
            append_keyed(store, text)
        changed(other, expired=15, start=15, start_total=45)
        for handle in (store, other):
            assert not any(append_keyed(handle, text).places for text in texts)
        assert len(store.read("s")) == 5

    def test_a_removed_message_can_be_appended_again(self, store: Store, other: Store) -> None:
        """Wrong: a message that was taken back cannot be sent again, or a remaining one can."""
        texts = [f"m{n}" for n in range(5)]
        for text in texts:
            append_keyed(store, text)
        assert other.rewrite(stored(other), 2) is not None
        assert [key.seq for key in other.keys("s")] == [1, 2]
        assert other.keys("S") == []
        assert [len(append_keyed(store, text).places) for text in texts] == [0, 0, 1, 1, 1]
        assert texts_of(other) == texts

    def test_a_stale_expected_end_is_rejected(self, store: Store, other: Store) -> None:
        """Wrong: a writer that read an older log appends after entries that it has not seen."""

        def append(handle: Store, end: int) -> Appended:
            terms = Idempotency(key_of("k", []), expected_end=end, at=DAY)
            return handle.append_idempotent("s", [draft("c")], terms)

        store.append("s", [draft("a")])
        other.append("s", [draft("b")])
        for handle in (store, other):
            for end in (0, 1, 3):
                with pytest.raises(Conflict, match="ends at 2"):
                    append(handle, end)
        assert append(store, 2).head.end == 3
        assert not append(other, 2).places
