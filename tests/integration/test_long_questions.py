"""Questions as long as a document: their cost, and their recalls."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from agent_memory import AgentMemory, Block, Message, VectorMemory
from agent_memory.core.query_text import MOST, query_message
from agent_memory.core.records import Entry, Lag, Recall, Scope
from agent_memory.core.threads import given_up
from agent_memory.engine.recall.runner import TimeLimited
from agent_memory.ltm_blocks.pending_index import Waiting
from agent_memory.stores.memory import MemoryStore
from agent_memory.stores.pending import Tail, Tails
from agent_memory.testing.watching import watched
from tests.kit import SECONDS, Silent, user

ASK = "What is the name of the dog that Ada adopted?"
DOCUMENT = " ".join(
    f"Under clause {number} the party named in annex {number % 97} keeps the records of all that "
    f"it delivers for a period of {number % 12} months."
    for number in range(5_000)
)
LONG = {
    "at the end": f"{DOCUMENT}\n\n{ASK}",
    "at the end of the last line": f"{DOCUMENT} {ASK}",
    "at the beginning": f"{ASK}\n\n{DOCUMENT}",
    "at the beginning of the first line": f"{ASK} {DOCUMENT}",
}


def waits(text: str) -> Tails:
    """Return a pending message with as many tokens as words."""
    count, at = len(text.split()), datetime(2026, 3, 1, tzinfo=UTC)
    message, lag = Message(role="user", content=text), Lag("s", 0, 1, count, 1, at)
    return Tails([lag], [Tail(lag, [Entry("s", 1, message, count, count, "o200k_base", at)])])


class Asked(Silent):
    """Records the questions it is asked."""

    kind: str = "asked"
    texts: list[str] = []

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        self.texts.append(message.text() if message else "")
        return []


CALLS: dict[str, Callable[[AgentMemory, str], Any]] = {
    "get": lambda memory, text: memory.get("s", text, user_id="ada"),
    "search": lambda memory, text: memory.search(text, user_id="ada"),
    "explain": lambda memory, text: memory.explain(text, user_id="ada"),
    "before_turn": lambda memory, text: memory.before_turn("s", text, user_id="ada"),
}


@pytest.mark.parametrize("call", CALLS)
def test_what_is_recalled_for_is_bounded(call: str) -> None:
    """Wrong: each block searches for the whole of a pasted document, which costs seconds of CPU."""
    block = Asked()
    with AgentMemory(store="memory://", blocks=[block], recall_timeout=SECONDS) as memory:
        CALLS[call](memory, LONG["at the end"])
    (text,) = block.texts
    assert text.endswith(ASK)
    assert len(text) <= MOST + 1


def test_what_waits_is_made_ready_once() -> None:
    """Wrong: concurrent searches each index the same pending message."""
    made: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def make(said: Sequence[Any]) -> Any:
        made.append(len(said))
        begun.set()
        assert go_on.wait(SECONDS)
        return [], None

    waiting, tails = Waiting(["user"]), waits(ASK)
    asking = [
        threading.Thread(target=waiting.index, args=(tails, "user:ada", "dog", make))
        for _ in range(4)
    ]
    for one in asking:
        one.start()
    assert begun.wait(SECONDS)
    time.sleep(0.2)  # give the other threads time to start
    go_on.set()
    for one in asking:
        one.join(SECONDS)
    assert made == [1]


def test_what_is_looked_at_of_what_waits_is_bounded() -> None:
    """Wrong: each search reads all of a pending message, however long it is."""
    looked_at: list[str] = []

    def make(said: Sequence[Any]) -> Any:
        looked_at.extend(turn.text for _, turn in said)
        return [], None

    words = [f"w{number:x}" for number in range(150_000)]
    words[70_000] = "Ada adopted a dog."
    Waiting(["user"]).index(waits(" ".join(words)), "user:ada", ASK, make)
    assert sum(map(len, looked_at)) < 250_000
    assert any("Ada adopted a dog." in text for text in looked_at)
    assert any(words[-1] in text for text in looked_at)


@pytest.mark.parametrize("blocks", [[VectorMemory()], []], ids=["vectors", "log"])
def test_what_was_pasted_is_found_at_once(blocks: list[Block]) -> None:
    """Wrong: a pasted document is not searched until it is absorbed."""
    halves = DOCUMENT[:300_000], DOCUMENT[300_000:]
    text = " Ada adopted a dog from the shelter, its name is Biscuit. ".join(halves)
    with AgentMemory(store="memory://", blocks=blocks, recall_timeout=SECONDS) as memory:
        memory.update("s", {"role": "user", "content": text}, user_id="ada")
        assert "Biscuit" in memory.search(ASK, user_id="ada")[0].text


@pytest.mark.long
@pytest.mark.parametrize("blocks", [[VectorMemory()], []], ids=["vectors", "log"])
@pytest.mark.parametrize("where", LONG)
def test_a_long_question_finds(where: str, blocks: list[Block]) -> None:
    """Wrong: a question before or after a pasted document recalls nothing."""
    with AgentMemory(store="memory://", blocks=blocks, recall_timeout=SECONDS) as memory:
        for number in range(300):
            text = f"Note {number}: the meeting on budgets moved to room {number}."
            memory.update("old", user(text), user_id="ada")
        memory.update("old", user("Ada adopted a dog, its name is Biscuit."), user_id="ada")
        found = memory.search(LONG[where], user_id="ada")
        assert "Biscuit" in found[0].text
        if blocks:
            assert "Biscuit" in str(memory.get("new", LONG[where], user_id="ada").recalls)


def test_a_short_question_stays_as_it_is() -> None:
    """Wrong: a short question is copied or shortened."""
    message = Message(role="user", content="x" * MOST)
    assert query_message(message) is message


def test_what_was_given_up_stops() -> None:
    """Wrong: a search that timed out goes on to search deeper."""
    gate, ended = threading.Event(), threading.Event()
    searches: list[str] = []

    def watch(step: str) -> None:
        if step == "before search_vectors":
            searches.append(step)
            assert gate.wait(SECONDS)

    store = watched(MemoryStore(), watch)
    with AgentMemory(
        store=store, blocks=[VectorMemory(name="v")], recall_timeout=SECONDS
    ) as memory:
        same = [{"role": "user", "content": "We had tea."} for _ in range(400)]
        memory.update("s", same, user_id="ada")
        memory.flush()
        block = memory.blocks["v"]
        message, scope = Message(role="user", content="tea"), Scope("ada", None)

        def search() -> None:
            block.get(scope, message, 10)
            assert given_up()
            ended.set()

        with pytest.raises(TimeoutError):
            TimeLimited().run("v", search, 0.01, lambda: None)
        gate.set()
        assert ended.wait(SECONDS)
        assert len(searches) == 1
        block.get(scope, message, 10)
        assert len(searches) > 2  # without a timeout it searches deeper
