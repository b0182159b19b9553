"""Contract tests for a chat history over every store. A subclass gives a `history` fixture.

`other` is a second handle on the same data, where several may share it.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from agent_memory import ChatHistory, Message
from agent_memory.errors import InvalidId, InvalidMessage
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


def said(*texts: str) -> list[dict[str, Any]]:
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

    def test_what_was_saved_is_loaded(self, history: ChatHistory, other: ChatHistory) -> None:
        """Wrong: a field, a picture or a tool call of a conversation is lost."""
        history.save("s", _RICH)
        given = [Message.of(one).to_dict() for one in _RICH]
        assert [one.to_dict() for one in other.load("s")] == given
        again = other.load("s")
        other.save("s", [*again, *said("more")])
        assert history.load("s")[:-1] == again

    def test_a_list_replaces_another(self, history: ChatHistory, other: ChatHistory) -> None:
        """Wrong: a save keeps replaced messages, or loses others."""
        for after in _AFTER:
            history.save("s", said("a", "b", "c"))
            assert texts(other) == ["a", "b", "c"]
            other.save("s", said(*after))
            assert texts(history) == after

    def test_the_same_words_of_another(self, history: ChatHistory) -> None:
        """Wrong: a message with the same text but another role or name is not replaced."""
        history.save("s", said("a", "b"))
        later = [{"role": "assistant", "content": "a"}, {**said("b")[0], "name": "kim"}]
        history.save("s", later)
        assert [(one.role, one.name) for one in history.load("s")] == [
            ("assistant", None), ("user", "kim"),
        ]  # fmt: skip

    def test_sessions_are_apart(self, history: ChatHistory) -> None:
        """Wrong: one conversation overwrites another."""
        history.save("s", said("a"))
        history.save("t", said("b"))
        history.save("s", said("c"))
        assert (texts(history, "s"), texts(history, "t")) == (["c"], ["b"])

    def test_clearing(self, history: ChatHistory, other: ChatHistory) -> None:
        """Wrong: clearing twice fails, clears another session, or cleared messages come back."""
        history.save("s", said("a", "b"))
        history.save("t", said("c"))
        for handle in (other, history):
            handle.clear("s")
            assert history.load("s") == other.load("s") == []
        assert texts(other, "t") == ["c"]
        history.save("s", said("anew"))
        assert texts(other) == ["anew"]

    def test_an_empty_history(self, history: ChatHistory, other: ChatHistory) -> None:
        """Wrong: a new session cannot be loaded, or an emptied one keeps its last list."""
        assert history.load("s") == []
        history.save("s", [])
        assert other.load("s") == []
        other.save("s", said("a"))
        history.save("s", [])
        assert other.load("s") == []
        other.save("s", said("b"))
        assert texts(history) == ["b"]

    def test_what_is_no_message(self, history: ChatHistory) -> None:
        """Wrong: a list with an invalid message is saved in part, or raises a bare error."""
        history.save("s", said("a", "b"))
        bad: list[Any] = [{"content": "?"}, 7, {"role": "king"}]
        for one in bad:
            with pytest.raises(InvalidMessage):
                history.save("s", [*said("a", "c"), one])
        for one in [*bad, "text", *said("a"), None]:
            with pytest.raises(InvalidMessage):
                history.save("s", one)
        assert texts(history) == ["a", "b"]

    def test_ids_that_cannot_be_kept(self, history: ChatHistory) -> None:
        """Wrong: an id that a database truncates is accepted."""
        bad: list[Any] = ["", " ", "x" * 256, "a\x00b", 7]
        for name in bad:
            for call in (history.load, history.clear, lambda one: history.save(one, said("a"))):
                with pytest.raises(InvalidId):
                    call(name)

    def test_a_list_is_the_callers_own(self, history: ChatHistory) -> None:
        """Wrong: a caller who changes its list later changes the stored one."""
        given: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
        history.save("s", given)
        given[0]["content"][0]["text"] = "changed"
        (loaded,) = history.load("s")
        assert loaded.content == [{"type": "text", "text": "a"}]
        loaded.content.append({"type": "text", "text": "b"})
        assert texts(history) == ["a"]

    def test_readers_see_one_list_or_another(
        self, history: ChatHistory, other: ChatHistory
    ) -> None:
        """Wrong: a reader gets a mixture of two lists, or none."""
        lists = [[f"{name}{n}" for n in range(size)] for name, size in (("a", 40), ("b", 3))]
        history.save("s", said(*lists[0]))

        def save() -> None:
            for turn in range(_ROUNDS):
                history.save("s", said(*lists[turn % 2]))

        assert [one for one in _read_meanwhile(other, save) if one not in lists] == []
        assert texts(other) == lists[(_ROUNDS - 1) % 2]

    def test_savers_do_not_mix(self, history: ChatHistory, other: ChatHistory) -> None:
        """Wrong: concurrent saves leave a mixture of their lists."""
        lists = {
            name: [f"{name}{n}" for n in range(size)]
            for name, size in (("a", 30), ("b", 7), ("c", 30), ("d", 1))
        }
        handles = (history, other) * 2

        def save(handle: ChatHistory, mine: list[str]) -> None:
            for turn in range(_ROUNDS // 2):
                handle.save("s", said(*mine[turn % 2 :]))

        together([partial(save, *one) for one in zip(handles, lists.values(), strict=True)])
        found = texts(history)
        assert found == texts(other)
        assert found in [some for one in lists.values() for some in (one, one[1:])]

    def test_a_clearing_is_whole(self, history: ChatHistory, other: ChatHistory) -> None:
        """Wrong: a reader sees part of a list while it is cleared."""
        whole = [str(n) for n in range(40)]

        def change() -> None:
            for _ in range(_ROUNDS // 2):
                history.save("s", said(*whole))
                history.clear("s")

        seen = _read_meanwhile(other, change)
        assert [one for one in seen if one not in ([], whole)] == []
        assert texts(other) == []
