"""What a configuration will do, in words: the exact sentences."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from agent_memory import (
    AgentMemoryConfig,
    Block,
    Chain,
    Entry,
    ExtractiveMemory,
    FileMemory,
    FlushToLTM,
    Message,
    NoteMemory,
    Recall,
    SkillMemory,
    SpatialMemory,
    StaticMemory,
    Strategy,
    Summarize,
    Trim,
    VectorMemory,
    WorkingMemory,
)
from agent_memory.cli.common import without_password
from agent_memory.cli.config_words import block_words, describe, when_full
from agent_memory.core.kinds import BUILT_IN, find_kind
from agent_memory.core.records import Scope
from agent_memory.stores import MemoryStore


class Own(Strategy):
    kind: str = "own"


class Foreign(Block):
    kind: str = "foreign"

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return []

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        pass

    def delete(self, scope: Scope) -> None:
        pass


def told(**fields: Any) -> dict[str, str]:
    return dict(describe(AgentMemoryConfig(**fields)))


def test_the_defaults() -> None:
    """Wrong: a line is missing, or says what is not so."""
    assert told() == {
        "store": "sqlite:///agent_memory.db; namespace default",
        "capacity": "100,000 tokens",
        "when full": "the oldest turns leave",
        "blocks": "none",
        "embedder": "the local one, where it is installed",
        "model": "none",
        "retention": "messages are kept for ever",
        "work": "updates make room before they return",
        "encryption": "none",
    }


def test_all_of_it() -> None:
    """Wrong: a setting is left out, or a secret is told."""
    assert told(
        store="postgresql://ana:hunter2@db.example:5432/memory?password=hunter2",
        system_store="redis://:hunter2@cache/0",
        durability="power",
        namespace="help",
        max_tokens=8_000,
        max_messages=1_200,
        max_recall_tokens=1_500,
        model="openai/gpt-4o-mini",
        api_base="https://ana:hunter2@models.example/v1",
        api_key="sk-hunter2",
        embedding="openai/text-embedding-3-small",
        overflow=Chain(
            [
                FlushToLTM(blocks=[StaticMemory(facts=["x"])], max_stm_ratio=0.6, absorb=2_000),
                Summarize(),
            ]
        ),
        blocks=[VectorMemory(name="past", max_tokens=900)],
        overflow_mode="background",
        idle_minutes=90,
        encryption="MEMORY_KEYS",
        retention=timedelta(days=90),
        shares={"team-chat": {"planner": "write", "critic": "read"}, "empty": {}},
    ) == {
        "store": "postgresql://ana:***@db.example:5432/memory, each update safe from power loss; "
        "system messages in redis://:***@cache/0; namespace help",
        "capacity": "8,000 tokens, and 1,200 messages; recalls take at most 1,500 of the tokens",
        "when full": "the oldest turns leave; the window has 60% of the tokens; the oldest turns "
        "leave, and a summary of 500 tokens by openai/gpt-4o-mini stands for them",
        "blocks": "1 given fact, messages found again by words and meaning (past), at most 900 "
        "tokens",
        "absorbing": "blocks absorb once 2,000 tokens wait",
        "embedder": "openai/text-embedding-3-small, asked over the network",
        "model": "openai/gpt-4o-mini at https://ana:***@models.example/v1",
        "retention": "a message goes 90 days after its time, once it left the window and every "
        "block absorbed it",
        "work": "room is made after updates, by 4 threads here; a session silent for 90 minutes "
        "is absorbed wholly",
        "encryption": "with the keys in MEMORY_KEYS",
        "shares": "team-chat: planner may write, critic may read; empty: nobody",
    }


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (Trim(), "the oldest turns leave"),
        (Trim(keep_tokens=1_500), "the oldest turns leave, down to 1,500 tokens"),
        (
            Trim(keep_tokens=900, keep_messages=1),
            "the oldest turns leave, down to 900 tokens, 1 message",
        ),
        (
            Trim(by="importance", keep_messages=20),
            "the older turns that say least leave, down to 20 messages",
        ),
        (
            Summarize(max_summary_tokens=2_000, keep_messages=20, model="openai/other"),
            "the oldest turns leave, down to 20 messages, and a summary of 2,000 tokens by "
            "openai/other stands for them",
        ),
        (
            Summarize(),
            "the oldest turns leave, and a summary of 500 tokens made locally, without a model, "
            "stands for them",
        ),
        (FlushToLTM(), "the oldest turns leave; the window has 50% of the tokens"),
        (Own(), "a strategy of your own decides: own"),
    ],
)
def test_policies(strategy: Strategy, words: str) -> None:
    """Wrong: a policy is told as another one, or without its numbers."""
    assert when_full(strategy, None) == words


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (StaticMemory(facts=["a", "b"]), "2 given facts"),
        (ExtractiveMemory(roles=("user", "tool")), "facts from what user, tool messages say"),
        (
            VectorMemory(store="http://qdrant.example:6333"),
            "messages found again by words and meaning, kept in http://qdrant.example:6333",
        ),
        (NoteMemory(), "up to 1,000 notes that a model writes"),
        (WorkingMemory(max_keys=1), "a scratchpad of 1 key a session"),
        (SkillMemory(folder="skills"), "skills in skills"),
        (SpatialMemory(dimensions=3), "what was seen where, in 3 dimensions"),
        (FileMemory(), "up to 500 files that a model writes"),
        (Foreign(name="mine"), "a block of your own: foreign (mine)"),
    ],
)
def test_blocks(block: Block, words: str) -> None:
    """Wrong: a block is told as another one."""
    assert block_words(block) == words


def test_every_kind_has_words() -> None:
    """Wrong: a kind that is built in is told as one of the user's own."""
    made: dict[str, dict[str, Any]] = {"skills": {"folder": "x"}, "chain": {"members": [Trim()]}}
    for group, kinds in BUILT_IN.items():
        for kind in kinds:
            one: BaseModel = find_kind(group, kind)(**made.get(kind, {}))
            words = when_full(one, None) if isinstance(one, Strategy) else block_words(one)  # type: ignore[arg-type]
            assert "of your own" not in words, kind


@pytest.mark.parametrize(
    ("retention", "when"),
    [
        (timedelta(days=1), "1 day after its time, "),
        (timedelta(hours=36), "36 hours after its time, "),
        (timedelta(minutes=5), "5 minutes after its time, "),
        (timedelta(seconds=61), "61 seconds after its time, "),
        ("window", ""),
    ],
)
def test_retention(retention: Any, when: str) -> None:
    """Wrong: a time in a unit that nobody counts in, or another time."""
    assert told(retention=retention)["retention"] == (
        f"a message goes {when}once it left the window and every block absorbed it"
    )


def test_small_differences() -> None:
    """Wrong: one value of a setting is told as another."""
    assert told(store="memory://")["store"] == "memory://, gone with the process; namespace default"
    assert told(embedding="local")["embedder"] == "the local one"
    assert told(embedding="fastembed/x")["embedder"] == "fastembed/x, run here"
    never = told(overflow_mode="background", background_threads=1, idle_minutes=None)
    assert never["work"] == "room is made after updates, by 1 thread here"
    for absorb, words in (
        ("overflow", "what leaves the window"),
        ("every_update", "each message at once"),
    ):
        strategy = FlushToLTM(blocks=[StaticMemory(facts=["x"])], absorb=absorb)
        assert told(overflow=strategy)["absorbing"] == f"blocks absorb {words}"
    assert "hunter2" not in str(told(encryption="k1:hunter2=="))
    assert "MemoryStore" in told(store=MemoryStore())["store"]


@pytest.mark.parametrize(
    ("url", "fit"),
    [
        ("sqlite:///a@b/memory.db", "sqlite:///a@b/memory.db"),
        ("memory://", "memory://"),
        ("redis://cache:6379/0", "redis://cache:6379/0"),
        ("mongodb://ana@h1:1,h2:2/m?password=hunter2", "mongodb://ana@h1:1,h2:2/m"),
        ("postgresql://ana:hun/ter2@host/m", "postgresql://ana:***@host/m"),
        ("postgresql://ana:hun@ter2@host/m", "postgresql://ana:***@host/m"),
        ("postgresql://ana:hun?ter2@host/m", "postgresql://ana:***@host/m"),
        ("redis://:hunter2@cache", "redis://:***@cache"),
    ],
)
def test_a_url_fit_to_be_printed(url: str, fit: str) -> None:
    """Wrong: an awkward password is printed, or the place is not."""
    assert without_password(url) == fit
