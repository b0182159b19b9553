"""Contract tests for a chat history and for a vector index, over every store.

A subclass gives the fixture `history`, and `other`, a second handle on the same data where several
may share it. Or it gives `opened`, which takes a dimension and returns an open index.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from math import inf, nan, sqrt
from typing import Any

import pytest

from agent_memory import ChatHistory, Message, VectorIndex
from agent_memory.errors import DimensionMismatch, InvalidId, InvalidInput, InvalidMessage
from agent_memory.standalone.item_index import Match
from agent_memory.testing.contract import together

_CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}
_RICH: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "name": "ana", "content": [{"type": "text", "text": "é\x00\ud83d 😀"}]},
    {"role": "assistant", "content": None, "tool_calls": [_CALL], "refusal": None},
    {"role": "tool", "tool_call_id": "c1", "content": "", "metadata": {"ms": [1, 2.5, None]}},
    {"role": "user", "content": "late", "created_at": datetime(2024, 2, 29, 1, 2, 3, 4, UTC)},
]
_AFTER = [
    ["a"], ["a", "b", "c", "d"], ["x", "b", "c"], ["a", "x", "c"], ["b", "c"], ["a", "b", "c"],
    ["c", "b", "a"], [], [str(n) for n in range(300)],
]  # fmt: skip
_ROUNDS = 10


def chat_of(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


def texts(history: ChatHistory, session_id: str = "s") -> list[str]:
    return [message.text() for message in history.load(session_id)]


def _read_meanwhile(history: ChatHistory, change: Callable[[], None]) -> list[list[str]]:
    """Return all that two threads read while a third makes changes."""
    done: list[None] = []

    def changed() -> None:
        try:
            change()
        finally:
            done.append(None)

    def read() -> list[list[str]]:
        seen = []
        while not done:
            seen.append(texts(history))
        return seen

    _, one, other = together([changed, read, read])
    return one + other


class ChatHistoryContract:
    """Contract of a store for whole lists of messages."""

    @pytest.fixture
    def history(self) -> Iterator[ChatHistory]:
        pytest.fail("Give the contract a `history` fixture.")

    @pytest.fixture
    def other(self, history: ChatHistory) -> ChatHistory:
        return history

    def test_a_saved_list_loads_unchanged(self, history: ChatHistory, other: ChatHistory) -> None:
        """Wrong: a field, a picture or a tool call of a conversation is lost."""
        history.save("s", _RICH)
        given = [Message.of(one).to_dict() for one in _RICH]
        assert [one.to_dict() for one in other.load("s")] == given
        again = other.load("s")
        other.save("s", [*again, *chat_of("more")])
        assert history.load("s")[:-1] == again

    def test_a_save_replaces_the_old_list(self, history: ChatHistory, other: ChatHistory) -> None:
        """Wrong: a save keeps replaced messages, or loses others."""
        for after in _AFTER:
            history.save("s", chat_of("a", "b", "c"))
            assert texts(other) == ["a", "b", "c"]
            other.save("s", chat_of(*after))
            assert texts(history) == after

    def test_a_message_with_another_role_or_name_is_replaced(self, history: ChatHistory) -> None:
        """Wrong: a message with the same text but another role or name is not replaced."""
        history.save("s", chat_of("a", "b"))
        later = [{"role": "assistant", "content": "a"}, {**chat_of("b")[0], "name": "kim"}]
        history.save("s", later)
        assert [(one.role, one.name) for one in history.load("s")] == [
            ("assistant", None), ("user", "kim"),
        ]  # fmt: skip

    def test_histories_of_two_sessions_are_independent(self, history: ChatHistory) -> None:
        """Wrong: one conversation overwrites another."""
        history.save("s", chat_of("a"))
        history.save("t", chat_of("b"))
        history.save("s", chat_of("c"))
        assert (texts(history, "s"), texts(history, "t")) == (["c"], ["b"])

    def test_clear_removes_only_its_session(self, history: ChatHistory, other: ChatHistory) -> None:
        """Wrong: clearing twice fails, clears another session, or cleared messages come back."""
        history.save("s", chat_of("a", "b"))
        history.save("t", chat_of("c"))
        for handle in (other, history):
            handle.clear("s")
            assert history.load("s") == other.load("s") == []
        assert texts(other, "t") == ["c"]
        history.save("s", chat_of("anew"))
        assert texts(other) == ["anew"]

    def test_a_history_can_be_empty(self, history: ChatHistory, other: ChatHistory) -> None:
        """Wrong: a new session cannot be loaded, or an emptied one keeps its last list."""
        assert history.load("s") == []
        history.save("s", [])
        assert other.load("s") == []
        other.save("s", chat_of("a"))
        history.save("s", [])
        assert other.load("s") == []
        other.save("s", chat_of("b"))
        assert texts(history) == ["b"]

    def test_a_list_with_an_invalid_message_is_refused(self, history: ChatHistory) -> None:
        """Wrong: a list with an invalid message is saved in part, or raises a bare error."""
        history.save("s", chat_of("a", "b"))
        bad: list[Any] = [{"content": "?"}, 7, {"role": "king"}]
        for one in bad:
            with pytest.raises(InvalidMessage):
                history.save("s", [*chat_of("a", "c"), one])
        for one in [*bad, "text", *chat_of("a"), None]:
            with pytest.raises(InvalidMessage):
                history.save("s", one)
        assert texts(history) == ["a", "b"]

    def test_invalid_session_ids_are_refused(self, history: ChatHistory) -> None:
        """Wrong: an id that a database truncates is accepted."""
        bad: list[Any] = ["", " ", "x" * 256, "a\x00b", 7]
        for name in bad:
            for call in (history.load, history.clear, lambda one: history.save(one, chat_of("a"))):
                with pytest.raises(InvalidId):
                    call(name)

    def test_changing_a_saved_list_does_not_change_the_history(self, history: ChatHistory) -> None:
        """Wrong: a caller who changes its list later changes the stored one."""
        given: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
        history.save("s", given)
        given[0]["content"][0]["text"] = "changed"
        (loaded,) = history.load("s")
        assert loaded.content == [{"type": "text", "text": "a"}]
        loaded.content.append({"type": "text", "text": "b"})
        assert texts(history) == ["a"]

    def test_a_reader_sees_no_mixture_of_lists(
        self, history: ChatHistory, other: ChatHistory
    ) -> None:
        """Wrong: a reader gets a mixture of two lists, or none."""
        lists = [[f"{name}{n}" for n in range(size)] for name, size in (("a", 40), ("b", 3))]
        history.save("s", chat_of(*lists[0]))

        def save() -> None:
            for turn in range(_ROUNDS):
                history.save("s", chat_of(*lists[turn % 2]))

        assert [one for one in _read_meanwhile(other, save) if one not in lists] == []
        assert texts(other) == lists[(_ROUNDS - 1) % 2]

    def test_concurrent_saves_do_not_mix(self, history: ChatHistory, other: ChatHistory) -> None:
        """Wrong: concurrent saves leave a mixture of their lists."""
        lists = {
            name: [f"{name}{n}" for n in range(size)]
            for name, size in (("a", 30), ("b", 7), ("c", 30), ("d", 1))
        }
        handles = (history, other) * 2

        def save(handle: ChatHistory, mine: list[str]) -> None:
            for turn in range(_ROUNDS // 2):
                handle.save("s", chat_of(*mine[turn % 2 :]))

        together([partial(save, *one) for one in zip(handles, lists.values(), strict=True)])
        found = texts(history)
        assert found == texts(other)
        assert found in [some for one in lists.values() for some in (one, one[1:])]

    def test_a_clear_is_atomic_for_readers(self, history: ChatHistory, other: ChatHistory) -> None:
        """Wrong: a reader sees part of a list while it is cleared."""
        whole = [str(n) for n in range(40)]

        def change() -> None:
            for _ in range(_ROUNDS // 2):
                history.save("s", chat_of(*whole))
                history.clear("s")

        seen = _read_meanwhile(other, change)
        assert [one for one in seen if one not in ([], whole)] == []
        assert texts(other) == []


Opened = Callable[[int], VectorIndex]
"""Opens the same index once more, for vectors of so many numbers."""

COMPASS = {"e": [1.0, 0.0, 0.0], "ne": [3.0, 4.0, 0.0], "n": [0.0, 2.0, 0.0], "w": [-5.0, 0.0, 0.0]}
EAST = [7.0, 0.0, 0.0]

_NO_VECTORS: list[Any] = [
    [1, nan, 0], [1, inf, 0], [0, 0, 0], [-inf, 0, 0], [0.0, -0.0, 0.0], ["1", "2", "3"],
    [[1, 2, 3]], 7, [1, None, 3], [True, False, True], [1j, 0, 0], [[1], [2, 3]], [],
]  # fmt: skip
_NO_ITEMS: list[Any] = [
    {"vector": EAST}, {"id": "", "vector": EAST}, {"id": 7, "vector": EAST}, {"id": "a"},
    {"id": "a", "vector": EAST, "metadata": {"x": {1, 2}}}, "a", None,
    {"id": "a", "vector": EAST, "metadata": {"x": nan}}, {"id": "a", "vectors": EAST},
    {"id": "a", "vector": EAST, "text": 7}, {"id": "x" * 256, "vector": EAST},
    {"id": "a", "vector": EAST, "metadata": [1]},
]  # fmt: skip


def items(vectors: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    return [{"id": name, "vector": vector} for name, vector in vectors.items()]


def ids(found: Sequence[Match]) -> list[str]:
    return [one.id for one in found]


class VectorIndexContract:
    """Contract of an index that stores vectors by id and finds them by cosine."""

    @pytest.fixture
    def opened(self) -> Opened:
        """Open the index under test. Subclasses define it."""
        pytest.fail("Give the contract an `opened` fixture.")

    @pytest.fixture
    def index(self, opened: Opened) -> VectorIndex:
        return opened(3)

    @pytest.fixture
    def other(self, opened: Opened, index: VectorIndex) -> VectorIndex:
        return opened(3)

    def test_scores_are_cosines_descending(self, index: VectorIndex, other: VectorIndex) -> None:
        """Wrong: the most similar item does not come first, or vector lengths change scores."""
        index.store(items(COMPASS))
        found = other.search(EAST)
        assert ids(found) == ["e", "ne", "n", "w"]
        assert [one.score for one in found] == [1.0, 0.6, 0.0, -1.0]
        for own in ([1.0, 2.0, 0.0], [0.1, 0.2, 0.3], [1.0, 1.0, 1.0]):
            index.store({"id": "own", "vector": own}, user_id="own")
            assert [one.score for one in index.search(own, user_id="own")] == [1.0]
        (first, *_) = other.search([1.0, 1.0, 1.0])
        assert first.id == "ne"
        assert first.score == pytest.approx(7 / (5 * sqrt(3)), abs=1e-12)

    def test_items_are_read_by_id_and_prefix(self, index: VectorIndex, other: VectorIndex) -> None:
        """Wrong: items cannot be read by id or prefix, or another user's are returned."""
        index.store([{**one, "metadata": {"of": one["id"]}} for one in items(COMPASS)])
        index.store({"id": "n", "vector": EAST, "text": "hers"}, user_id="ana")
        found = other.get(["n", "none", "e"])
        assert [one.id for one in found] == ["n", "e"]
        assert found[0].text is None
        assert found[0].metadata == {"of": "n"}
        assert [number > 0 for number in found[0].vector] == [False, True, False]
        assert [one.text for one in other.get("n", user_id="ana")] == ["hers"]
        assert sorted(one.id for one in other.items()) == sorted(COMPASS)
        assert sorted(one.id for one in other.items(prefix="n")) == ["n", "ne"]
        other.delete_prefix("n")
        assert sorted(one.id for one in index.items()) == ["e", "w"]
        assert [one.id for one in index.items(user_id="ana")] == ["n"]

    def test_the_threshold_is_exclusive(self, index: VectorIndex) -> None:
        """Wrong: an item that scores exactly the threshold is found."""
        index.store(items(COMPASS))
        assert ids(index.search(EAST, threshold=0.6)) == ["e"]
        assert ids(index.search(EAST, threshold=0.5999999)) == ["e", "ne"]
        assert ids(index.search(EAST, threshold=0)) == ["e", "ne"]
        assert ids(index.search(EAST, threshold=-1)) == ["e", "ne", "n"]
        assert ids(index.search(EAST, threshold=-1.5)) == ["e", "ne", "n", "w"]
        assert index.search(EAST, threshold=1) == []
        for one in index.search([0.3, -0.2, 0.7]):
            assert one.id not in ids(index.search([0.3, -0.2, 0.7], threshold=one.score))

    def test_a_search_returns_at_most_top_k_existing_items(self, index: VectorIndex) -> None:
        """Wrong: a search returns more than `top_k` items, or ones that do not exist."""
        assert index.search(EAST) == []
        index.store(items(COMPASS))
        counts = [len(index.search(EAST, top_k=k)) for k in (0, 1, 2, 4, 5, 100)]
        assert counts == [0, 1, 2, 4, 4, 4]
        assert ids(index.search(EAST, top_k=2)) == ["e", "ne"]
        assert len(index.search(EAST, top_k=3, threshold=0.9)) == 1

    def test_an_invalid_top_k_or_threshold_is_refused(self, index: VectorIndex) -> None:
        """Wrong: an invalid `top_k` or `threshold` is accepted."""
        index.store(items(COMPASS))
        bad: list[Any] = [-1, 1.5, "3", True, None]
        for one in bad:
            with pytest.raises(InvalidInput):
                index.search(EAST, top_k=one)
        none: list[Any] = [nan, "0.5"]
        for one in none:
            with pytest.raises(InvalidInput):
                index.search(EAST, threshold=one)

    def test_items_with_equal_scores_are_ordered_by_id(self, index: VectorIndex) -> None:
        """Wrong: items with equal scores have a random order."""
        names = [f"{n:03}" for n in range(200)]
        index.store(items({name: [1.0, 2.0, 3.0] for name in names[::-1]}))
        index.store(items({"a": [1.0, 2.0, 3.0001], "b": EAST}))
        assert ids(index.search([1.0, 2.0, 3.0], top_k=7)) == names[:7]

    def test_the_same_id_replaces_an_item(self, index: VectorIndex, other: VectorIndex) -> None:
        """Wrong: a changed item is also found by its old vector."""
        index.store([{"id": "a", "vector": EAST, "text": "was", "metadata": {"n": 1}}])
        other.store([{"id": "a", "vector": [0, 0, 1], "text": "is"}])
        for handle in (index, other):
            (found,) = handle.search(EAST)
            assert (found.score, found.text, dict(found.metadata)) == (0.0, "is", {})
        index.store([*items({"b": EAST}), *items({"b": [0, 0, 1]})])
        assert [one.score for one in other.search([0, 0, 1])] == [1.0, 1.0]

    def test_text_and_metadata_stay_unchanged(self, index: VectorIndex, other: VectorIndex) -> None:
        """Wrong: an item's text or metadata comes back changed."""
        metadata = {"é\x00": [1, 2.5, None, True, {"deep": ["x"]}], "id": "mine"}
        index.store({"id": "é/😀 1", "vector": EAST, "text": "a\x00\n😀", "metadata": metadata})
        index.store({"id": "bare", "vector": [0, 1, 0]})
        index.store({"id": "blank", "vector": [0, 0, 1], "text": ""})
        first, bare, blank = other.search([3, 2, 1])
        assert (first.id, first.text, first.metadata) == ("é/😀 1", "a\x00\n😀", metadata)
        assert (bare.text, dict(bare.metadata), blank.text) == (None, {}, "")

    def test_changing_a_stored_item_does_not_change_the_index(self, index: VectorIndex) -> None:
        """Wrong: a caller who changes its metadata or vector later changes the stored item."""
        metadata: dict[str, Any] = {"tags": ["a"]}
        vector = [1.0, 0.0, 0.0]
        index.store({"id": "a", "vector": vector, "metadata": metadata})
        metadata["tags"].append("b")
        vector[0] = -1.0
        for _ in range(2):
            (found,) = index.search(EAST)
            assert (found.score, found.metadata) == (1.0, {"tags": ["a"]})
            found.metadata["tags"].append("c")

    def test_delete_removes_only_named_items(self, index: VectorIndex, other: VectorIndex) -> None:
        """Wrong: a deleted item is found, another is deleted too, or deleting twice fails."""
        index.store(items(COMPASS))
        assert len(other.search(EAST)) == 4
        for _ in range(2):
            other.delete(["ne", "nobody"])
            assert ids(index.search(EAST)) == ids(other.search(EAST)) == ["e", "n", "w"]
        other.delete("n")
        index.delete([])
        index.store(items({"ne": [0, 0, 1]}))
        assert [(one.id, one.score) for one in other.search(EAST)] == [
            ("e", 1.0), ("ne", 0.0), ("w", -1.0),
        ]  # fmt: skip

    def test_users_are_isolated(self, index: VectorIndex) -> None:
        """Wrong: a user finds, overwrites or deletes another user's items, or shared ones."""
        for user in ("ana", "ben", None):
            index.store([{"id": "a", "vector": EAST, "text": f"of {user}"}], user_id=user)
        index.store(items({"b": EAST}), user_id="ben")
        index.delete(["a", "b"], user_id="ana")
        assert index.search(EAST, user_id="ana") == []
        assert [one.text for one in index.search(EAST, user_id="ben")] == ["of ben", None]
        assert [one.text for one in index.search(EAST)] == ["of None"]
        assert index.search(EAST, user_id="everybody") == []

    def test_an_invalid_vector_is_refused(self, index: VectorIndex) -> None:
        """Wrong: an invalid vector is stored, or other items of a refused list are."""
        for bad in _NO_VECTORS:
            with pytest.raises(InvalidInput):
                index.store(items({"good": EAST, "bad": bad}))
            with pytest.raises(InvalidInput):
                index.search(bad)
        assert index.search(EAST) == []

    def test_a_list_with_an_invalid_item_is_refused(self, index: VectorIndex) -> None:
        """Wrong: part of a refused list is stored, or an item that cannot be read back."""
        for bad in _NO_ITEMS:
            with pytest.raises(InvalidInput):
                index.store([*items({"good": EAST}), bad])
        assert index.search(EAST) == []

    def test_very_long_and_very_short_vectors_can_be_compared(self, index: VectorIndex) -> None:
        """Wrong: a very long or short vector matches nothing, or raises an arithmetic error."""
        for scale in (5e-324, 1e-300, 1.0, 1e300):
            index.store(items({"a": [3 * scale, 0, 0], "b": [0, scale, 0]}))
            assert [one.score for one in index.search([scale, 0, 0])] == [1.0, 0.0]

    def test_a_vector_of_another_dimension_is_refused(self, opened: Opened) -> None:
        """Wrong: vectors of different dimensions are stored in one index."""
        index = opened(3)
        for length in (1, 2, 4):
            with pytest.raises(DimensionMismatch):
                index.store(items({"good": EAST, "bad": [1.0] * length}))
            with pytest.raises(DimensionMismatch):
                index.search([1.0] * length)
        assert index.search(EAST) == []
        index.store(items(COMPASS))
        for length in (1, 2, 4):
            with pytest.raises(DimensionMismatch):
                opened(length)
            with pytest.raises(DimensionMismatch):
                index.search([1.0] * length, top_k=0)
        assert len(opened(3).search(EAST)) == 4

    def test_concurrent_threads_lose_no_item(self, index: VectorIndex, other: VectorIndex) -> None:
        """Wrong: concurrent stores and deletions lose items or break each other."""

        def work(handle: VectorIndex, name: str) -> None:
            for turn in range(4):
                handle.store(items({f"{name}{turn}": [turn, 1, 0], f"{name} gone": EAST}))
                assert f"{name}{turn}" in ids(handle.search([turn, 1, 0], top_k=100))
                handle.delete(f"{name} gone")

        together([partial(work, one, f"{n}/") for n, one in enumerate((index, other) * 2)])
        assert ids(index.search([0, 1, 0], top_k=4)) == [f"{n}/0" for n in range(4)]
        assert len(other.search(EAST, top_k=100)) == 16
