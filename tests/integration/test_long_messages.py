"""Long messages: each passage is found, and deleted and absorbed again with its message."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, Recall, VectorMemory
from agent_memory.core.records import Record, Scope
from agent_memory.core.transcript import passages
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import Store

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
    with AgentMemory(
        store=store, max_tokens=budget, blocks=[VectorMemory()], recall_timeout=60.0
    ) as memory:
        yield memory


def found(memory: AgentMemory, **more: Any) -> list[Recall]:
    """Return the recalls for the question that contain the needle."""
    recalls = memory.search(QUESTION, **{"user_id": "ada", **more})
    return [one for one in recalls if NEEDLE in one.text]


def kept(store: Store, session_id: str = "s") -> list[Record]:
    """Return all records of a session, in the order of its log."""
    pages = [page for page, _ in store.all_vectors("vector", session_id=session_id)]
    records = [record for page in pages for record in page]
    return sorted(records, key=lambda one: (one.first, one.metadata.get("part", [0])[0]))


def ids(store: Store) -> list[str]:
    return [one.id for one in kept(store)]


def test_what_stands_at_the_end_of_a_long_message_is_found(tmp_path: Path) -> None:
    """Wrong: a fact near the end of a long message is not found."""
    url = f"sqlite:///{tmp_path}/m.db"
    with remembering(url) as memory:
        converse(memory, text=document(1_000))
        assert memory.history("s")[2].tokens > 13_000
        first = memory.search(QUESTION, user_id="ada")[0]
        assert NEEDLE in first.text
        assert first.tokens < 600
        assert first.sources == (("s", 3),)
        assert first.text.startswith("user: … ")
        assert first.text.endswith(" …")
        assert found(memory, user_id=None, session_id="s")[0].id == first.id
    with remembering(url, SMALL) as memory:
        for session_id in ("later", "s"):
            context = memory.get(session_id, QUESTION, user_id="ada")
            assert context.tokens <= SMALL
            assert NEEDLE in str(context.to_messages())
            assert NEEDLE in context.recalls[0].text
        context = memory.get("later", "On which day do I row?", user_id="ada")
        assert context.recalls[0].text.startswith("user: I row on Sundays.")


def test_without_a_block_the_log_is_searched_by_passages(tmp_path: Path) -> None:
    """Wrong: a search in the log returns a long message whole, or not at all."""
    with AgentMemory(store=f"sqlite:///{tmp_path}/m.db", max_tokens=LARGE) as memory:
        converse(memory)
        first = memory.search(QUESTION, session_id="s")[0]
        assert NEEDLE in first.text
        assert first.tokens < 600


def test_records_of_every_passage(store: Store) -> None:
    """Wrong: passages overwrite each other, are stored twice, or change ids of short messages."""
    with remembering(store) as memory:
        converse(memory)
        records = kept(store)
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
        block = memory.blocks["vector"]
        block.update(Scope("ada", "s"), memory.history("s"))
        assert ids(store) == [one.id for one in records]
        assert len(found(memory)) == 1


def test_what_is_forgotten_is_forgotten_with_all_passages(store: Store) -> None:
    """Wrong: a passage is still found after a pop or a deletion."""
    with remembering(store) as memory:
        for session_id, user_id in (("s", "ada"), ("t", "ada"), ("u", "ben")):
            converse(memory, session_id, user_id)
        memory.pop("s", 2)
        assert [one.first for one in kept(store)] == [1, 2]
        assert [one.sources[0][0] for one in found(memory)] == ["t"]
        memory.delete("t")
        assert kept(store, "t") == []
        assert found(memory) == []
        assert found(memory, user_id="ben")
        memory.delete_user("ben")
        assert kept(store, "u") == []
        assert [one.first for one in kept(store)] == [1, 2]
