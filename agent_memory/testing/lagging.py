"""Contract tests for the messages that blocks have not absorbed yet."""

from __future__ import annotations

from dataclasses import replace

from agent_memory.stores.base import Store
from agent_memory.testing.contract import Contract, draft, stored


class LaggingContract(Contract):
    """Contract for finding an owner's messages that are not absorbed yet."""

    def test_sessions_that_go_on_past_a_cursor(self, store: Store, other: Store) -> None:
        """Wrong: the newest messages of another chat are missed, or appear twice."""
        store.append("s1", [draft(f"a{n}", n) for n in range(1, 6)], "u")
        store.append("s2", [draft("b", 2)], "u")
        store.append("s3", [draft("c")], "u")
        store.append("s4", [draft("d")], "v")
        store.append("s5", [draft("e")])
        assert store.move(replace(stored(store, "s1"), cursors={"vector": 3, "facts": 5}))
        assert store.move(replace(stored(store, "s3"), cursors={"vector": 1}))
        found = {one.session_id: one for one in other.lagging("vector", user_id="u")}
        assert found.keys() == {"s1", "s2"}
        one, head = found["s1"], stored(store, "s1")
        assert (one.after, one.end, one.total) == (3, 5, 15)
        assert (one.version, one.created_at) == (head.version, head.created_at)
        assert (found["s2"].after, found["s2"].end) == (0, 1)
        facts = {one.session_id: one.after for one in other.lagging("facts", user_id="u")}
        assert facts == {"s2": 0, "s3": 0}
        assert len(other.lagging("another", user_id="u")) == 3
        assert [one.session_id for one in other.lagging("vector", user_id="v")] == ["s4"]
        assert other.lagging("vector", user_id="w") == []
        assert [one.session_id for one in other.lagging("vector", session_id="s5")] == ["s5"]
        assert other.lagging("vector", session_id="s3") == []
        assert other.lagging("vector", session_id="s9") == []

    def test_the_newest_session_comes_first(self, store: Store) -> None:
        """Wrong: of many chats the oldest are returned, and the newest is not."""
        for name in ("z", "a", "m"):
            store.append(name, [draft("x")], "u")
        assert [one.session_id for one in store.lagging("vector", user_id="u")] == ["m", "a", "z"]

    def test_a_lag_follows_the_log(self, store: Store, other: Store) -> None:
        """Wrong: messages that were taken back or deleted still count."""
        store.append("s", [draft(str(n), n) for n in range(1, 6)], "u")
        assert store.rewrite(stored(store), 2)
        (lag,) = other.lagging("vector", user_id="u")
        assert (lag.end, lag.total) == (2, 3)
        assert store.move(replace(stored(store), expired=1))
        (lag,) = other.lagging("vector", user_id="u")
        assert (lag.after, lag.end) == (1, 2)
        assert store.move(replace(stored(store), deleting=True))
        assert other.lagging("vector", user_id="u") == []
        assert other.lagging("vector", session_id="s") == []
        store.delete("s")
        assert other.lagging("vector", user_id="u") == []

    def test_tails_of_many_sessions(self, store: Store, other: Store) -> None:
        """Wrong: a chat's newest messages are returned for another,
        or absorbed ones are included.
        """
        store.append("s1", [draft(f"a{n}") for n in range(1, 8)], "u")
        store.append("s2", [draft(f"b{n}") for n in range(1, 4)], "u")
        store.append("s3", [draft("c")], "v")
        assert store.move(replace(stored(store, "s1"), cursors={"vector": 4}))

        def said(*names: str, before: int = 0, limit: int = 99) -> list[tuple[str, int, object]]:
            found = other.tails("vector", names, before=before, limit=limit)
            return [(one.session_id, one.seq, one.message.content) for one in found]

        first = [("s1", n, f"a{n}") for n in (5, 6, 7)]
        second = [("s2", n, f"b{n}") for n in (1, 2, 3)]
        assert sorted(said("s1", "s2")) == [*first, *second]
        assert said("s2") == second
        assert said("s1", before=2) == [("s1", n, f"a{n}") for n in (3, 4, 5, 6, 7)]
        assert said("s2", before=2) == second
        assert said("s1", limit=2) == first[1:]
        assert (said("s9"), said()) == ([], [])
