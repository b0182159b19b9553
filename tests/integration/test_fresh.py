"""New messages are found in other sessions before any block has absorbed them."""

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agent_memory import AgentMemory, StaticMemory, VectorMemory
from agent_memory.operations import import_session
from agent_memory.stores.base import Store
from tests.integration.fact_model import texts
from tests.kit import SECONDS, Silent, until, user

SAID = "I am allergic to peanuts, badly."
ASKED = "Am I allergic to peanuts?"


@pytest.fixture
def memory(url: str) -> Iterator[AgentMemory]:
    with AgentMemory(store=url, blocks=[VectorMemory()], recall_timeout=60) as memory:
        yield memory


def test_a_search_of_an_empty_session_does_not_hide_later_messages(memory: AgentMemory) -> None:
    """Wrong: a search right after the system message hides all later messages."""
    memory.update("s", {"role": "system", "content": "Be kind."}, user_id="ana")
    assert memory.search("cat", user_id="ana") == []
    memory.update("s", {"role": "user", "content": "My cat is called Mia."})
    assert "Mia" in memory.search("cat", user_id="ana")[0].text
    memory.update("t", {"role": "user", "content": "Hello."}, user_id="ana")
    assert "Mia" in str(memory.get("t", "What is my cat called?").recalls)


def test_absorbing_a_message_does_not_change_its_id_or_score(memory: AgentMemory) -> None:
    """Wrong: absorbing a message changes its id or score in a search, or it is found twice."""
    for name in ("a", "b"):
        for number in range(12):
            text = f"On trip {number} of {name} we saw a harbour, a parrot and {number} sailors."
            memory.update(name, user(text), user_id="u")
        if name == "a":
            memory.flush("a")
    asked = "On which trip did we see 7 sailors?"
    before = memory.search(asked, user_id="u", limit=30)
    memory.flush()
    after = memory.search(asked, user_id="u", limit=30)
    assert [one.id for one in before] == [one.id for one in after]
    assert [one.score for one in before] == pytest.approx([one.score for one in after], rel=1e-3)
    assert len({one.sources for one in before}) == len(before)


def test_messages_of_another_memory_are_found_immediately(memory: AgentMemory, url: str) -> None:
    """Wrong: messages appended by another memory are not found."""
    memory.update("a", user("I live in Porto."), user_id="u")
    assert texts(memory.search("Where do I live?", user_id="u")) == ["user: I live in Porto."]
    with AgentMemory(store=url, blocks=[VectorMemory()]) as other:
        other.update("a", user(SAID))
        other.update("b", user("My sister lives in Braga."), user_id="u")
    assert f"user: {SAID}" in texts(memory.search(ASKED, user_id="u"))
    found = texts(memory.search("Where does my sister live?", user_id="u"))
    assert found[0] == "user: My sister lives in Braga."


def test_popped_and_deleted_messages_are_not_found(memory: AgentMemory) -> None:
    """Wrong: a popped or deleted message is still found in the index of pending messages."""
    memory.update("a", [user("The code is 4711."), user(SAID)], user_id="u")
    assert len(memory.search("code 4711 peanuts allergic", user_id="u")) == 2
    memory.pop("a")
    assert f"user: {SAID}" not in texts(memory.search(ASKED, user_id="u"))
    memory.update("a", user("I like walnuts."))
    assert f"user: {SAID}" not in texts(memory.search(ASKED, user_id="u"))
    assert texts(memory.search("Which nuts, walnuts?", user_id="u"))[0] == "user: I like walnuts."
    memory.delete("a")
    assert memory.search("Which nuts, walnuts?", user_id="u") == []
    memory.update("a", user("The code is 4712."), user_id="v")
    assert memory.search("What is the code?", user_id="u") == []


def test_an_imported_session_is_found(memory: AgentMemory, tmp_path: Path) -> None:
    """Wrong: an imported session is not found until its next message."""
    memory.update("a", user(SAID), user_id="u")
    memory.session("a", "u").export(tmp_path / "a.jsonl")
    with AgentMemory(store=f"sqlite:///{tmp_path / 'n.db'}", blocks=[VectorMemory()]) as other:
        import_session(other, tmp_path / "a.jsonl")
        assert texts(other.search(ASKED, user_id="u")) == [f"user: {SAID}"]


def test_messages_without_a_user_are_found_only_in_their_session(memory: AgentMemory) -> None:
    """Wrong: messages of a session without a user are found from other sessions or users."""
    memory.update("a", user(SAID))
    assert texts(memory.search(ASKED, session_id="a")) == [f"user: {SAID}"]
    assert memory.search(ASKED, session_id="b") == []
    assert memory.search(ASKED, user_id="u") == []
    assert memory.search(ASKED) == []


def test_a_message_that_left_the_window_is_recalled_before_its_absorb(url: str) -> None:
    """Wrong: a message that left the window is not recalled until a thread has absorbed it."""
    with AgentMemory(store=url, blocks=[VectorMemory()], max_messages=4) as memory:
        memory.update("a", user(SAID), user_id="u")
        work = memory.components.work
        work._absorber.blocks.clear()  # as if absorbing were slow
        for number in range(12):
            memory.update("a", user(f"Something else, number {number}."))
        context = memory.get("a", ASKED)
        assert SAID not in [message.content for message in context.messages]
        (recall,) = context.recalls
        assert recall.text.startswith(f"user: {SAID}")
        assert ("a", 13) not in recall.sources


def test_a_question_starts_absorbing_a_long_history() -> None:
    """Wrong: most of many loaded messages are found by words alone until the next `update`."""

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] for _ in texts]

    with AgentMemory("memory://", embedding=embed, recall_timeout=60) as memory:
        memory.update("a", [user(f"Message {number}.") for number in range(520)], user_id="u")
        assert memory.stats().blocks["vector"].lag == 520
        memory.get("b", ASKED, user_id="u")
        until(lambda: memory.stats().blocks["vector"].lag == 0)


def test_equal_messages_do_not_hide_other_messages(memory: AgentMemory) -> None:
    """Wrong: a question that was asked 150 times crowds all other messages out of the results."""
    said = [
        "Momo is my cat, a grey one with white paws.",
        "Our cat Momo was found in the garden shed.",
        "The vet said that Momo the cat needs drops.",
    ]
    for place in range(150):
        memory.update(f"s{place % 5}", user("Where is my cat Momo?"), user_id="u")
    for text in said:
        memory.update("t", user(text), user_id="u")
    for _ in range(2):
        found = texts(memory.search("Where is my cat Momo?", user_id="u"))
        assert {f"user: {text}" for text in said} <= set(found)
        assert len(found) == len(set(found))
        recalls = texts(memory.get("new", "Where is my cat Momo?", user_id="u").recalls)
        assert all(any(text in one for one in recalls) for text in said)
        told = memory.call_tool("new", "memory_read", {"query": "my cat Momo"}, user_id="u")
        assert all(text in told for text in said)
        memory.flush()


def test_equal_messages_do_not_use_up_the_limit_of_a_search(memory: AgentMemory) -> None:
    """Wrong: equal messages use up the limit, so that a search returns too few."""
    for number in range(14):
        text = f"The parrot of harbour {number} is green and loud."
        memory.update("a", [user(text), user(text)], user_id="u")
    for _ in range(2):
        found = memory.search("Which parrot is green and loud?", user_id="u", limit=10)
        assert len(found) == len(set(texts(found))) == 10
        found = memory.search("Which parrot is green and loud?", session_id="a", limit=10)
        assert len(found) == 10
        memory.flush()


def test_a_session_search_finds_messages_that_other_sessions_repeat(memory: AgentMemory) -> None:
    """Wrong: a search of one session misses a message that other sessions contain too."""
    for name in ("a", "b", "c"):
        memory.update(name, user(SAID), user_id="u")
    memory.flush("b")
    for name in ("a", "b", "c"):
        (found,) = memory.search(ASKED, session_id=name)
        assert found.sources == ((name, 1),)


def test_without_an_absorbing_block_a_users_log_is_searched(url: str) -> None:
    """Wrong: without an absorbing block, a search for a user does not search the user's logs."""
    with AgentMemory(store=url, blocks=[StaticMemory(facts=["Peanuts are legumes."])]) as memory:
        memory.update("a", user(SAID), user_id="u")
        memory.update("b", user("I am here for peanuts."), user_id="v")
        found = memory.search(ASKED, user_id="u")
        assert {(one.block, one.text) for one in found} == {
            ("static", "Peanuts are legumes."),
            ("log", f"user: {SAID}"),
        }
        told = memory.call_tool("c", "memory_read", {"query": "peanuts"}, user_id="u")
        assert SAID in told
        assert "I am here" not in told
        assert {one.block for one in memory.get("c", ASKED, user_id="u").recalls} == {"static"}


class Slow(Silent):
    """Absorbs messages, but recalls nothing."""

    kind: str = "slow"


def test_messages_pending_for_a_block_are_recalled_from_the_log(url: str) -> None:
    """Wrong: messages pending for a block are not recalled from the log."""
    with AgentMemory(store=url, blocks=[Slow()]) as memory:
        memory.update("a", user(SAID), user_id="u")
        (recall,) = memory.get("b", ASKED, user_id="u").recalls
        assert (recall.block, recall.text) == ("log", f"user: {SAID}")
        assert "<log_memory>" in str(memory.get("b", ASKED, user_id="u").to_messages())
        assert memory.get("a", ASKED).recalls == []
        memory.flush()
        assert memory.get("b", ASKED, user_id="u").recalls == []
        assert memory.search(ASKED, user_id="u") == []


def test_a_context_warns_about_messages_pending_for_a_block(url: str) -> None:
    """Wrong: no warning says how many messages are pending for a block."""
    with AgentMemory(store=url, blocks=[Slow(), VectorMemory()]) as memory:
        memory.update("a", [user(SAID), user("Really.")], user_id="u")
        memory.update("b", user("Good morning!"), user_id="u")
        assert memory.get("b", ASKED).warnings == [
            "2 messages wait for the block 'slow', and are searched by their words until it "
            "absorbs them."
        ]
        memory.flush("a")
        assert memory.get("b", ASKED).warnings == []
        (warning,) = memory.get("c", ASKED, user_id="u").warnings
        assert warning.startswith("1 message waits for the block 'slow'")
        assert "is searched by its words" in warning
        assert memory.get("c", ASKED, user_id="v").warnings == []


@pytest.mark.parametrize("mode", ["inline", pytest.param("background", marks=pytest.mark.long)])
def test_updates_absorb_a_backlog_of_pending_messages(url: str, mode: Any) -> None:
    """Wrong: updates do not absorb pending messages, so that searches become slower."""
    with AgentMemory(url, overflow_mode=mode, recall_timeout=60) as memory:
        for name in range(12):
            some = [user(f"Sailor {name} {n} sells green parrots.") for n in range(60)]
            memory.update(f"s{name}", [*some, user(SAID)] if name == 5 else some, user_id="u")
        assert memory.stats().blocks["vector"].lag == 721
        for _ in range(2):
            assert texts(memory.search(ASKED, user_id="u", limit=1)) == [f"user: {SAID}"]
            assert f"user: {SAID}" in texts(memory.get("t", ASKED, user_id="u").recalls)
        for number in range(30):
            memory.update("t", user(f"Number {number}."), user_id="u")
        until(lambda: memory.stats().blocks["vector"].lag <= 30)
        assert texts(memory.search(ASKED, user_id="u", limit=1)) == [f"user: {SAID}"]


def test_the_timeout_excludes_embedder_loading(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: loading the embedder counts against the recall timeout, or its error is raised."""
    begun = threading.Event()
    real = VectorMemory.get

    def load(block: VectorMemory) -> None:
        begun.set()
        raise RuntimeError("not loaded")

    def get(block: VectorMemory, *given: Any) -> Any:
        assert begun.is_set()
        assert threading.current_thread().name.startswith("block-")
        return real(block, *given)

    monkeypatch.setattr(VectorMemory, "load", load)
    monkeypatch.setattr(VectorMemory, "get", get)
    with AgentMemory(store=url, blocks=[VectorMemory()], recall_timeout=60) as memory:
        memory.update("a", user(SAID), user_id="u")
        assert memory.get("b", user_id="u").recalls == []
        assert not begun.is_set()
        assert texts(memory.get("b", ASKED, user_id="u").recalls) == [f"user: {SAID}"]
        begun.clear()
        monkeypatch.setattr(VectorMemory, "get", real)
        assert texts(memory.get("b", ASKED, user_id="u").recalls) == [f"user: {SAID}"]
        assert not begun.is_set()  # not loaded again


def test_messages_in_the_window_do_not_hide_other_messages(memory: AgentMemory) -> None:
    """Wrong: messages shown in the window crowd all others out of the recalls."""
    for day in range(150):
        memory.update("s", user(f"My cat Momo slept on the roof, day {day}."), user_id="u")
    memory.flush()
    asked = "Where is my cat Momo?"
    assert memory.get("s", asked, user_id="u").recalls == []
    memory.update("t", user("Momo the cat was found in the garden shed."), user_id="u")
    assert "garden shed" in memory.get("s", asked, user_id="u").recalls[0].text


def test_an_update_does_not_wait_for_many_messages_to_be_encoded(url: str) -> None:
    """Wrong: a large update waits for the embedder, or its messages are never absorbed."""
    goes_on = threading.Event()

    def embed(texts: Sequence[str]) -> list[list[float]]:
        if any("import" in text for text in texts):
            assert goes_on.wait(60)
        return [[1.0, len(text)] for text in texts]

    long = "of the import, which is long enough for a hundred of them to leave the window " * 3
    with AgentMemory(store=url, embedding=embed, max_tokens=4_000) as memory:
        memory.update("a", [user(f"note {n} {long}") for n in range(300)], user_id="ana")
        assert memory.stats().blocks["vector"].lag == 300
        goes_on.set()
        until(lambda: not memory.stats().blocks["vector"].lag)


FOUND = [f"user: {SAID}"]
_ASK = """
import json, sys
from agent_memory import AgentMemory, VectorMemory
given, asked = json.loads(sys.argv[1]), sys.argv[2]
with AgentMemory(**given, blocks=[VectorMemory()], recall_timeout=60) as memory:
    found = memory.search(asked, user_id="u")
    recalls = memory.get("elsewhere", asked, user_id="u").recalls
    print(json.dumps([[one.text for one in some] for some in (found, recalls)]))
"""


def test_every_store_finds_a_message_before_its_absorb(store: Store) -> None:
    """Wrong: a message is not found before it is absorbed, or another user finds it."""
    with AgentMemory(store=store, blocks=[VectorMemory()], recall_timeout=60) as memory:
        memory.update("a", [user("Good morning!"), user(SAID)], user_id="u")
        memory.update("b", user("I eat peanuts, and am allergic to nothing."), user_id="v")
        memory.update("d", user("Hello."), user_id="u")
        for lag in (4, 0):
            assert memory.stats().blocks["vector"].lag == lag
            assert texts(memory.search(ASKED, user_id="u", limit=1)) == FOUND
            assert texts(memory.search(ASKED, session_id="a", limit=1)) == FOUND
            recalls = memory.get("c", ASKED, user_id="u").recalls
            assert [one.sources[-1] for one in recalls] == [("a", 2)]
            assert memory.get("a", ASKED).recalls == []
            for who, session in (("v", None), ("w", None), ("u", "c"), ("u", "d")):
                assert FOUND[0] not in texts(memory.search(ASKED, user_id=who, session_id=session))
            assert FOUND[0] not in texts(memory.get("c", ASKED, user_id="v").recalls)
            memory.flush()


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_another_process_finds_messages_before_their_absorb(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Wrong: another process does not find messages that are not absorbed yet."""
    server = kind != "sqlite"
    url = request.getfixturevalue(f"{kind}_url") if server else f"sqlite:///{tmp_path}/m.db"
    given = {"store": url, "namespace": f"fresh{uuid4().hex}"}

    def asked() -> list[list[str]]:
        call = [sys.executable, "-c", _ASK, json.dumps(given), ASKED]
        done = subprocess.run(call, check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    with AgentMemory(**given, blocks=[VectorMemory()]) as memory:
        memory.update("a", user(SAID), user_id="u")
        assert asked() == [FOUND, FOUND]
    assert asked() == [FOUND, FOUND]


def test_a_reader_ends_while_others_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the end of a program that only asked waits for the backlog, which waits for a lock."""
    monkeypatch.setattr("agent_memory.engine.opened._BACKLOG_SECONDS", 0.2)
    path = tmp_path / "m.db"
    with AgentMemory(path, blocks=[]) as memory:
        for number in range(100):
            memory.update("s", user(f"{number} herons stand in the reeds."), user_id="ana")
    AgentMemory(path).close()  # registers the block's vectors
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    memory = AgentMemory(path)
    assert memory.search("herons", user_id="ana")
    begun = time.monotonic()
    memory.close()
    assert time.monotonic() - begun < SECONDS / 2
    held.execute("ROLLBACK")
    held.close()
    with AgentMemory(path) as memory:
        memory.flush()
        assert memory.stats().blocks["vector"].lag == 0


def test_pending_messages_that_are_not_searched_are_reported(tmp_path: Path) -> None:
    """Wrong: nothing shows why a message from a bulk of new messages is not recalled."""
    with AgentMemory(tmp_path / "m.db", blocks=[]) as memory:
        memory.update("s", [user(f"Heron {number} stands.") for number in range(600)], user_id="a")
    with AgentMemory(tmp_path / "m.db") as memory:
        (warning,) = memory.get("t", "Which animal did I see?", user_id="a").warnings
        assert "600 messages are not absorbed yet" in warning
        memory.flush()
        assert memory.get("t", "Which animal did I see?", user_id="a").warnings == []
