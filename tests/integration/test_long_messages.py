"""Long messages are found by their passages, and long questions are bounded."""

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, Block, Message, VectorMemory
from agent_memory.core.query_text import MOST, query_message
from agent_memory.core.records import Entry, Lag, Recall, Record, Scope
from agent_memory.core.threads import is_unwanted
from agent_memory.core.transcript import passages
from agent_memory.engine.recall.runner import TimeLimited
from agent_memory.ltm_blocks.base import record_id
from agent_memory.ltm_blocks.pending_index import Encoded, Waiting
from agent_memory.models.embedders.base import NoEmbedder
from agent_memory.retrieval.features import Features, Turn
from agent_memory.retrieval.turns import record_of_turn, spoken
from agent_memory.stores.base import Store
from agent_memory.stores.pending import Tail, Tails
from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing.watching import watched
from tests.kit import SECONDS, Silent, opened, user

pytestmark = pytest.mark.long

LARGE = 200_000
"""A budget in which every message of these tests fits."""
SMALL = 4_000
NEEDLE = "The spare key of the boathouse hangs behind the barometer."
QUESTION = "Where is the spare key of the boathouse?"
WORDS = ("ledger", "timber", "railway", "granite", "orchard", "furnace", "canal", "guild", "tariff")


def document(sentences: int = 250) -> str:
    """Return sentences that are not relevant to the question. The needle stands at 90 % of them."""
    lines = [
        f"In {1500 + n % 400} the {WORDS[n % 9]} and the {WORDS[n * 7 % 8]} of {n} were seen."
        for n in range(sentences)
    ]
    lines.insert(sentences * 9 // 10, NEEDLE)
    return " ".join(lines)


def converse(
    memory: AgentMemory, session_id: str = "s", user_id: str = "ada", text: str = ""
) -> None:
    """Store short messages and a long one, and absorb them."""
    long = text or document()
    for text in ("I row on Sundays.", "Please read this.", long, "Thank you for all of that."):
        memory.update(session_id, {"role": "user", "content": text}, user_id=user_id)
    assert [one.error for one in memory.flush() if one.error] == []


@contextmanager
def remembering(store: Any, budget: int = LARGE) -> Iterator[AgentMemory]:
    """Open a memory with a long recall timeout: on a busy machine the first recall is slow."""
    with opened(store, VectorMemory(), max_tokens=budget) as memory:
        yield memory


def needle_recalls(memory: AgentMemory, **more: Any) -> list[Recall]:
    """Return the recalls for the question that contain the needle."""
    recalls = memory.search(QUESTION, **{"user_id": "ada", **more})
    return [one for one in recalls if NEEDLE in one.text]


def records_of(store: Store, session_id: str = "s") -> list[Record]:
    """Return all records of a session, in the order of its log."""
    pages = [page for page, _ in store.all_vectors("vector", session_id=session_id)]
    records = [record for page in pages for record in page]
    return sorted(records, key=lambda one: (one.first, one.metadata.get("part", [0])[0]))


def ids(store: Store) -> list[str]:
    return [one.id for one in records_of(store)]


def test_text_at_the_end_of_a_long_message_is_found(url: str) -> None:
    """Wrong: a fact near the end of a long message is not found, or shown without its speaker."""
    with remembering(url) as memory:
        converse(memory, text=document(1_000))
        assert memory.history("s")[2].tokens > 13_000
        first = memory.search(QUESTION, user_id="ada")[0]
        assert NEEDLE in first.text
        assert first.tokens < 600
        assert first.sources == (("s", 3),)
        assert first.text.startswith("user: … ")
        assert first.text.endswith(" …")
        assert needle_recalls(memory, user_id=None, session_id="s")[0].id == first.id
    with remembering(url, SMALL) as memory:
        for session_id in ("later", "s"):
            context = memory.get(session_id, QUESTION, user_id="ada")
            assert context.tokens <= SMALL
            assert NEEDLE in context.recalls[0].text
            assert context.recalls[0].text.startswith("user: … ")
        context = memory.get("later", "On which day do I row?", user_id="ada")
        assert context.recalls[0].text.startswith("user: I row on Sundays.")


def test_without_a_block_the_log_is_searched_by_passages(tmp_path: Path) -> None:
    """Wrong: a search in the log returns a long message whole, or not at all."""
    with AgentMemory(store=f"sqlite:///{tmp_path}/m.db", max_tokens=LARGE) as memory:
        converse(memory)
        first = memory.search(QUESTION, session_id="s")[0]
        assert NEEDLE in first.text
        assert first.tokens < 600


def test_every_passage_has_its_own_record(store: Store) -> None:
    """Wrong: passages overwrite each other, are stored twice, or change ids of short messages."""
    with remembering(store) as memory:
        converse(memory)
        records = records_of(store)
        count = len(passages(document()))
        assert count > 8
        assert [one.first for one in records] == [1, 2, *[3] * count, 4]
        short = [records[0], records[1], records[-1]]
        assert [one.id for one in short] == [
            record_id("vector", "user:ada", "s", seq) for seq in (1, 2, 4)
        ]
        assert records[2].id == record_id("vector", "user:ada", "s", 3)
        assert all(one.metadata == {"role": "user", "speaker": "user"} for one in short)
        for number, record in enumerate(records[2:-1]):
            at, of, offset = record.metadata["part"]
            assert (at, of) == (number, count)
            text = record.text.removeprefix("user: ").strip("… ")
            assert document()[offset:].startswith(text)
        turns = [turn for _, turn in spoken(memory.history("s"), ["user"])]
        features = Features.of_turns(turns, NoEmbedder().encode)
        assert max(features.places["words"]) < 250  # a passage is as long as itself
        block = memory.blocks["vector"]
        block.update(Scope("ada", "s"), memory.history("s"))
        assert ids(store) == [one.id for one in records]
        assert len(needle_recalls(memory)) == 1


def test_all_passages_of_a_removed_message_are_removed(store: Store) -> None:
    """Wrong: a passage is still found after a pop or a deletion."""
    with remembering(store) as memory:
        for session_id, user_id in (("s", "ada"), ("t", "ada"), ("u", "ben")):
            converse(memory, session_id, user_id)
        memory.pop("s", 2)
        assert [one.first for one in records_of(store)] == [1, 2]
        assert [one.sources[0][0] for one in needle_recalls(memory)] == ["t"]
        memory.delete("t")
        assert records_of(store, "t") == []
        assert needle_recalls(memory) == []
        assert needle_recalls(memory, user_id="ben")
        memory.delete_user("ben")
        assert records_of(store, "u") == []
        assert [one.first for one in records_of(store)] == [1, 2]


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


class CallRecorder(Silent):
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
def test_the_query_text_of_a_recall_is_bounded(call: str) -> None:
    """Wrong: each block searches for the whole of a pasted document, which costs seconds of CPU."""
    block = CallRecorder()
    with AgentMemory(store="memory://", blocks=[block], recall_timeout=SECONDS) as memory:
        CALLS[call](memory, LONG["at the end"])
    (text,) = block.texts
    assert text.endswith(ASK)
    assert len(text) <= MOST + 1


def test_concurrent_searches_index_a_pending_message_once() -> None:
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


def test_the_index_of_absorbed_messages_is_freed() -> None:
    """Wrong: the memory of a process grows with each user who once had pending messages."""

    def make(said: Sequence[tuple[Entry, Turn]]) -> Encoded:
        records = [record_of_turn(entry, turn, turn.text, "user:ada") for entry, turn in said]
        return records, Features.of_turns([turn for _, turn in said], NoEmbedder().encode)

    waiting = Waiting(["user"])
    built = weakref.ref(waiting.index(waits(ASK), "user:ada", "dog", make).traits)  # type: ignore[union-attr]
    assert waiting.index(Tails([], []), "user:ada", "dog", make) is None
    assert built() is None


def test_the_indexed_text_of_a_pending_message_is_bounded() -> None:
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
def test_a_pasted_document_is_found_before_its_absorb(blocks: list[Block]) -> None:
    """Wrong: a pasted document is not searched until it is absorbed."""
    halves = DOCUMENT[:300_000], DOCUMENT[300_000:]
    text = " Ada adopted a dog from the shelter, its name is Biscuit. ".join(halves)
    with AgentMemory(store="memory://", blocks=blocks, recall_timeout=SECONDS) as memory:
        memory.update("s", {"role": "user", "content": text}, user_id="ada")
        assert "Biscuit" in memory.search(ASK, user_id="ada")[0].text


@pytest.mark.long
@pytest.mark.parametrize("blocks", [[VectorMemory()], []], ids=["vectors", "log"])
@pytest.mark.parametrize("where", LONG)
def test_a_long_question_recalls_relevant_messages(where: str, blocks: list[Block]) -> None:
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


def test_only_thanks_are_removed_from_a_short_question() -> None:
    """Wrong: a short question is copied or shortened, or thanks in another language stay."""
    message = Message(role="user", content="x" * MOST)
    assert query_message(message) is message
    for thanks, asked in (("ありがとう。", "猫の名前は何"), ("धन्यवाद। ", "मैं कहाँ रहता हूँ?")):
        assert query_message(Message(role="user", content=thanks + asked)).text() == asked


def test_a_timed_out_search_stops() -> None:
    """Wrong: a search that timed out goes on to search deeper."""
    gate, ended = threading.Event(), threading.Event()
    searches: list[str] = []

    def watch(step: str) -> None:
        if step == "before search_vectors":
            searches.append(step)
            assert gate.wait(SECONDS)

    store = watched(MemoryStore(), watch)
    with opened(store, VectorMemory(name="v")) as memory:
        same = [{"role": "user", "content": "We had tea."} for _ in range(400)]
        memory.update("s", same, user_id="ada")
        memory.flush()
        block = memory.blocks["v"]
        message, scope = Message(role="user", content="tea"), Scope("ada", None)

        def search() -> None:
            block.get(scope, message, 10)
            assert is_unwanted()
            ended.set()

        with pytest.raises(TimeoutError):
            TimeLimited().run("v", search, 0.01, lambda: None)
        gate.set()
        assert ended.wait(SECONDS)
        assert len(searches) == 1
        block.get(scope, message, 10)
        assert len(searches) > 2  # without a timeout it searches deeper
