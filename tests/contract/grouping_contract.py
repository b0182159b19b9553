"""Contract tests for appending to several sessions in one transaction."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from agent_memory.core.idempotency import Append, Appended, Idempotency, key_of
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft
from agent_memory.errors import Conflict, SessionDeleting, SessionOfAnotherUser
from agent_memory.stores.base import Store
from agent_memory.stores.kernel.contract import Batch, Outcome
from agent_memory.testing.contract import DAY, Contract, draft, stored, together


def log_of(store: Store, session_id: str) -> list[tuple[int, Any]]:
    return [(entry.seq, entry.message.content) for entry in store.read(session_id)]


def keyed(text: str, key: str) -> Append:
    message = Message(role="user", content=text)
    return Append("s", [draft(text)], "ada", Idempotency(key=key_of(key, [message]), at=DAY))


class GroupingContract(Contract):
    """Appends of a group in one transaction."""

    def test_appends_of_a_group_have_the_results_of_single_appends(self, store: Store) -> None:
        """Wrong: the second of two appends to one session gets the first one's seqs."""
        store.append("known", [draft("first")], "ada")
        group = [
            Append("known", [draft("second")], "ada"),
            Append("new", [draft("a"), draft("b", 4)], "ben"),
            Append("known", [draft("rules", 9, "system"), draft("third")], "ada"),
            Append("new", [draft("c")], "ben"),
            Append("known", [draft("fourth")], "ada"),
            Append("empty", [], "ada"),
        ]
        done = store.append_all(group)
        heads = [one.head for one in done if isinstance(one, Appended)]
        assert [head.end for head in heads] == [2, 2, 4, 3, 5, 0]
        assert heads[4] == stored(store, "known")
        assert heads[3] == stored(store, "new")
        assert stored(store, "empty").user_id == "ada"
        words = ["first", "second", "rules", "third", "fourth"]
        assert log_of(store, "known") == list(enumerate(words, 1))
        assert log_of(store, "new") == list(enumerate("abc", 1))
        assert store.append("known", [draft("fifth")], "ada").end == 6

    def test_a_refused_append_does_not_undo_others_of_its_group(self, store: Store) -> None:
        """Wrong: one caller's mistake undoes another's acknowledged append."""
        store.append("bens", [draft("ben's")], "ben")
        going = store.append("going", [draft("x")], "ada")
        assert store.move(replace(going, deleting=True)) is not None
        group = [
            Append("s", [draft("a")], "ada"),
            Append("bens", [draft("not ben"), draft("not ben")], "ada"),
            Append("s", [draft("late")], "ada", Idempotency(expected_end=7)),
            Append("going", [draft("y")], "ada"),
            Append("s", [draft("b")], "ada", Idempotency(expected_end=1)),
        ]
        first, *refused, last = store.append_all(group)
        kinds = [SessionOfAnotherUser, Conflict, SessionDeleting]
        assert [type(one) for one in refused] == kinds
        assert isinstance(first, Appended)
        assert isinstance(last, Appended)
        assert log_of(store, "s") == [(1, "a"), (2, "b")]
        assert log_of(store, "bens") == [(1, "ben's")]

    @pytest.fixture
    def unwritable(self, store: Store) -> Draft:
        return draft("too much", 2**70)

    def test_an_append_that_the_database_refuses_fails_alone(
        self, store: Store, other: Store, unwritable: Draft
    ) -> None:
        """Wrong: one append that the database refuses fails the whole group."""
        store.append("s", [draft("a")], "ada")
        group = [
            Append("s", [draft("b")], "ada"),
            Append("t", [unwritable], "ada"),
            Append("s", [draft("c")], "ada"),
        ]
        first, broken, last = store.append_all(group)
        assert isinstance(broken, Exception)
        assert isinstance(first, Appended)
        assert isinstance(last, Appended)
        assert log_of(other, "s") == [(1, "a"), (2, "b"), (3, "c")]
        assert log_of(other, "t") == []
        assert store.append("s", [draft("d")], "ada").end == 4

    def test_a_retry_in_the_same_group_is_stored_once(self, store: Store, other: Store) -> None:
        """Wrong: a retry in the same group is stored twice."""
        group = [keyed("a", "k1"), keyed("a", "k1"), keyed("b", "k1"), keyed("c", "k2")]
        first, again, wrong, last = store.append_all(group)
        assert isinstance(first, Appended)
        assert isinstance(again, Appended)
        assert isinstance(last, Appended)
        assert (first.places, again.places, last.places) == ((0,), (), (0,))
        assert again.before.end == 1
        assert isinstance(wrong, Conflict)
        (later,) = other.append_all([keyed("c", "k2")])
        assert isinstance(later, Appended)
        assert later.places == ()
        assert log_of(store, "s") == [(1, "a"), (2, "c")]

    def test_an_append_in_a_group_makes_its_session_due(self, store: Store) -> None:
        """Wrong: an append in a group does not make its session due."""
        head = store.append("s", [draft("a")], "ada")
        assert store.schedule(head, 600)
        assert store.due() == []
        (done,) = store.append_all([Append("s", [draft("b")], "ada")])
        assert isinstance(done, Appended)
        assert [one.session_id for one in store.due()] == ["s"]
        assert store.schedule(done.head, 600)
        assert store.append("s", [draft("c")], "ada").end == 3
        assert [one.session_id for one in store.due()] == ["s"]

    def test_an_own_append_does_not_claim_a_session_without_a_user(self, store: Store) -> None:
        """Wrong: an append with `own` takes over a session that has messages and no user."""
        store.append("nobody's", [draft("a")])
        group = [
            Append("nobody's", [draft("b")], "ada", own=True),
            Append("new", [draft("c")], "ada", own=True),
            Append("new", [draft("d")], "ada", own=True),
        ]
        refused, *done = store.append_all(group)
        assert isinstance(refused, SessionOfAnotherUser)
        assert [type(one) for one in done] == [Appended, Appended]
        assert stored(store, "nobody's").user_id is None
        assert log_of(store, "new") == [(1, "c"), (2, "d")]

    def test_concurrent_groups_do_not_deadlock(self, store: Store, other: Store) -> None:
        """Wrong: groups of two processes deadlock."""

        def write(handle: Store, name: str, order: int) -> None:
            for turn in range(5):
                sessions = [f"s{n}" for n in range(4)][::order]
                group = [Append(one, [draft(f"{name}{turn}")], "ada") for one in sessions]
                done = handle.append_all(group)
                assert [type(one) for one in done] == [Appended] * 4, done

        order = zip([store, other, store, other], "abcd", [1, -1, -1, 1], strict=True)
        together([partial(write, *one) for one in order])
        for n in range(4):
            seqs, texts = zip(*log_of(store, f"s{n}"), strict=True)
            assert list(seqs) == list(range(1, 21))
            assert sorted(texts) == sorted(f"{name}{turn}" for name in "abcd" for turn in range(5))

    def test_an_empty_group_does_nothing(self, store: Store) -> None:
        """Wrong: an empty group raises."""
        assert store.append_all([]) == []


def refusing(store: Store, patch: pytest.MonkeyPatch) -> Draft:
    """Return a draft that the store's kernel is made to refuse."""
    kernel: Any = store._kernel  # type: ignore[attr-defined]
    commit = kernel.commit

    def refuse(batch: Batch) -> Outcome:
        if "too much" in repr(batch):
            raise OverflowError
        return commit(batch)  # type: ignore[no-any-return]

    patch.setattr(kernel, "commit", refuse)
    return draft("too much")
