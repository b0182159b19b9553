"""Values by namespace and key."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent_memory import AgentMemory, InvalidInput
from agent_memory.engine.values import key_values
from agent_memory.engine.values.items import Put


def test_a_value_is_stored_by_user_namespace_and_key(memory: AgentMemory) -> None:
    """Wrong: another key's, namespace's or user's value is returned, or `created_at` changes."""
    values = memory.values("ana")
    first = values.put(("prefs", "ui"), "theme", {"dark": True, "sizes": [1, 2.5, None]})
    second = values.put(("prefs", "ui"), "theme", {"dark": False})
    found = values.get(("prefs", "ui"), "theme")
    assert found == second
    assert found.value == {"dark": False}
    assert found.created_at == first.created_at < found.updated_at
    assert values.get(("prefs",), "theme") is None
    assert values.get(("prefs", "ui"), "Theme") is None
    assert memory.values("ben").get(("prefs", "ui"), "theme") is None
    assert memory.values().get(("prefs", "ui"), "theme") is None
    assert memory.user("ana").values().get(("prefs", "ui"), "theme") == found
    values.delete(("prefs", "ui"), "theme")
    values.delete(("prefs", "ui"), "theme")
    assert values.get(("prefs", "ui"), "theme") is None
    assert values.namespaces() == []


@pytest.mark.parametrize("value", [None, 0, "text", [], {}, [{"a": ["b"]}], "x" * 200_000, True])
def test_a_value_of_any_shape_is_returned_unchanged(memory: AgentMemory, value: Any) -> None:
    """Wrong: a value is refused or changed."""
    values = memory.values()
    values.put((), "k", value)
    (found,) = values.search()
    assert found.value == value
    assert values.get((), "k") == found


def test_changes_to_a_returned_value_do_not_change_the_stored_one(memory: AgentMemory) -> None:
    """Wrong: a caller who changes a returned value changes the stored one."""
    values = memory.values()
    given = {"tags": ["a"]}
    values.put(("n",), "k", given)
    given["tags"].append("b")
    for _ in range(2):
        (found,) = values.search(("n",))
        found.value["tags"].append("c")
        one = values.get(("n",), "k")
        assert one.value == {"tags": ["a"]}


def test_namespaces_match_only_complete_labels(memory: AgentMemory) -> None:
    """Wrong: ("user",) finds values of ("users",), or a special character splits a label."""
    values = memory.values()
    paths = [("users", "a"), ("users", "a", "x"), ("users", "ab"), ("user",), ("u%\x1fs", "\u00e4")]
    for path in paths:
        values.put(path, "k", list(path))
    assert values.namespaces() == sorted(paths)
    assert values.namespaces(("users",)) == [("users", "a"), ("users", "a", "x"), ("users", "ab")]
    assert values.namespaces(("users", "a")) == [("users", "a"), ("users", "a", "x")]
    assert values.namespaces(("*", "a")) == [("users", "a"), ("users", "a", "x")]
    assert values.namespaces(suffix=("a",)) == [("users", "a")]
    assert values.namespaces(depth=1) == [("u%\x1fs",), ("user",), ("users",)]
    assert values.namespaces(limit=2, offset=1) == sorted(paths)[1:3]
    assert [one.value for one in values.search(("user",))] == [["user"]]
    assert {one.namespace for one in values.search(("users", "a"))} == {*paths[:2]}
    values.clear(("users", "a"))
    assert values.namespaces(("users",)) == [("users", "ab")]


def test_a_search_returns_only_values_that_meet_its_conditions(memory: AgentMemory) -> None:
    """Wrong: a condition is ignored, or matches a value without the field."""
    values = memory.values()
    for number in range(10):
        values.put(("n",), f"k{number}", {"size": number, "of": {"kind": "abc"[number % 3]}})
    values.put(("n",), "other", ["no", "fields"])

    def found(where: dict[str, Any]) -> list[str]:
        return sorted(one.key for one in values.search(("n",), where=where, limit=99))

    assert found({"size": 3}) == ["k3"]
    assert found({"size": {"$gte": 7, "$lt": 9}}) == ["k7", "k8"]
    assert found({"of.kind": "a", "size": {"$gt": 0}}) == ["k3", "k6", "k9"]
    assert found({"of": {"kind": "b"}}) == ["k1", "k4", "k7"]
    assert found({"size": {"$in": [1, 2, 77]}}) == ["k1", "k2"]
    assert found({"size": {"$gt": "a"}}) == []
    assert found({"none": {"$ne": 1}})[-1] == "other"
    assert found({"size": None}) == found({"size": {"$eq": None}}) == ["other"]
    assert found({"of": {"$in": {1, "a"}}}) == []
    assert [one.key for one in values.search(("n",), limit=2, offset=1)] == ["k9", "k8"]
    for wrong in ({"size": {"$near": 1}}, ["size"], {"size": {"$in": 3}}):
        with pytest.raises(InvalidInput):
            values.search(("n",), where=wrong)  # type: ignore[arg-type]


def test_a_search_by_meaning_returns_the_nearest_values_first(memory: AgentMemory) -> None:
    """Wrong: a value without texts ranks before others, or passes a minimum score."""
    values = memory.values()
    values.put(("n",), "bare", {"text": "I love the sea"})
    values.put(("n",), "far", {}, texts=["tax forms of the company"])
    values.put(("n",), "near", {}, texts=["invoices", "swimming in the ocean at the beach"])
    found = values.search(("n",), query="beach and sea")
    assert [one.key for one in found] == ["near", "far", "bare"]
    assert found[0].score is not None
    assert found[1].score is not None
    assert found[2].score is None
    least = found[0].score - 0.01
    found = values.search(("n",), query="beach and sea", least=least)
    assert [one.key for one in found] == ["near"]


def test_an_expired_value_is_gone(memory: AgentMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an expired value is found, is never removed, or passes its first time on."""
    now = datetime.now(UTC)
    monkeypatch.setattr(key_values, "now_utc", lambda: now)
    values = memory.values()
    values.put(("n",), "short", 1, ttl=60)
    values.put(("n",), "long", 2, ttl=600)
    values.put(("n",), "ever", 3)
    now += timedelta(seconds=50)
    assert values.get(("n",), "short", refresh=True) is not None
    now += timedelta(seconds=50)
    assert values.get(("n",), "short") is not None
    now += timedelta(seconds=50)
    assert values.get(("n",), "short") is None
    assert sorted(one.key for one in values.search(("n",))) == ["ever", "long"]
    assert values.put(("n",), "short", 4).created_at == now
    now += timedelta(days=1)
    assert values.sweep() == 1
    assert sorted(one.key for one in values.search(("n",))) == ["ever", "short"]
    for wrong in (0, -1, float("nan"), "60", True):
        with pytest.raises(InvalidInput):
            values.put(("n",), "k", 1, ttl=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("namespace", "key"),
    [("text", "k"), (("a", ""), "k"), (("a",), ""), ((1,), "k"), (("a" * 400,), "k"), (("a",), 3)],
)
def test_invalid_namespace_or_key_is_refused(memory: AgentMemory, namespace: Any, key: Any) -> None:
    """Wrong: an invalid namespace or key is accepted, or raises a bare TypeError."""
    with pytest.raises(InvalidInput):
        memory.values().put(namespace, key, 1)
    assert memory.values().namespaces() == []


def test_put_many_stores_all_values_or_none(memory: AgentMemory) -> None:
    """Wrong: `put_many` stores the first value although the second is invalid."""
    values = memory.values()
    with pytest.raises(InvalidInput):
        values.put_many([Put(("a",), "k", 1), Put(("b",), "k", {1, 2})])
    assert values.namespaces() == []
    kept = values.put_many([Put(("a",), "k", 1), Put(("b",), "k", 2), Put(("a",), "k", 3)])
    assert [(one.namespace, one.value) for one in kept] == [(("a",), 3), (("b",), 2)]


def test_another_process_sees_new_and_deleted_values(url: str) -> None:
    """Wrong: a process does not see values that another one put or deleted."""
    with AgentMemory(store=url, blocks=[]) as one, AgentMemory(store=url, blocks=[]) as other:
        for number in range(3):
            one.values().put(("n",), f"k{number}", number)
            assert len(other.values().search(("n",))) == number + 1
        one.values().delete(("n",), "k0")
        assert [item.key for item in other.values().search(("n",))] == ["k2", "k1"]
        one.values().clear()
        assert other.values().search() == []


def test_concurrent_puts_lose_no_value(memory: AgentMemory) -> None:
    """Wrong: concurrent writers of one namespace undo each other's changes."""
    values = memory.values("ana")

    def put(thread: int) -> None:
        for number in range(20):
            values.put(("n", str(thread % 2)), f"{thread}-{number}", number)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(values.search(limit=1_000)) == 80
