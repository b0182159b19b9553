"""What a configuration will do, in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

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
from agent_memory.cli.config import describe, described
from agent_memory.core.plugins import BUILT_IN, find_kind
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
        "capacity": "100,000 tokens; 2,000 of them for recalls",
        "when full": "clear_tools: Show stubs in place of old tool results, once the window "
        "exceeds its limit\ntrim: Keep the newest whole turns, or the most important ones. The log "
        "keeps the rest",
        "blocks": "vector: All user and assistant messages of a user with text; long ones in "
        "passages (roles user, assistant)",
        "absorbing": "blocks absorb what leaves the window",
        "embedder": "local, run here",
        "model": "none",
        "retention": "messages are kept for ever",
        "work": "updates make room before they return",
        "encryption": "none",
    }


def test_all_of_it() -> None:
    """Wrong: a setting is left out, or a secret is told."""
    found = told(
        store="postgresql://ana:hunter2@db.example:5432/memory?password=hunter2",
        system_store="redis://:hunter2@cache/0",
        durability="process",
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
    )
    flush, summarize = found.pop("when full").split("\n")
    static, vector = found.pop("blocks").split("\n")
    assert re.fullmatch(r"flush_to_ltm: .+ \(.*max_stm_ratio 0\.6.*\)", flush)
    assert re.fullmatch(
        r"summarize: .+ \(max_summary_tokens 500, asks openai/gpt-4o-mini\)", summarize
    )
    assert re.fullmatch(r"static: .+ \(facts 1\)", static)
    assert re.fullmatch(r"vector: .+ \(named past, max_tokens 900, .+\)", vector)
    assert found == {
        "store": "postgresql://ana:***@db.example:5432/memory, the newest updates not safe from "
        "power loss; "
        "system messages in redis://:***@cache/0; namespace help",
        "capacity": "8,000 tokens; 1,500 of them for recalls, and 1,200 messages",
        "absorbing": "blocks absorb once 2,000 tokens wait",
        "embedder": "openai/text-embedding-3-small, asked over the network",
        "model": "openai/gpt-4o-mini at https://ana:***@models.example/v1",
        "retention": "a message goes 90 days after its time, once it left the window and every "
        "block absorbed it",
        "work": "room is made after updates, threads here: 4; a session silent for 90 minutes "
        "is absorbed wholly",
        "encryption": "MEMORY_KEYS",
        "share team-chat": "planner may write, critic may read",
        "share empty": "nobody",
    }


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        (Trim(keep_tokens=1_500), "keep_tokens 1500"),
        (Trim(max_turns=9, max_stm_ratio=0.8), "max_stm_ratio 0.8, max_turns 9"),
        (Trim(by="importance", keep_messages=20), "keep_messages 20, by importance"),
        (
            Summarize(max_summary_tokens=2_000, keep_messages=20, model="openai/other"),
            "keep_messages 20, max_summary_tokens 2000, asks openai/other",
        ),
        (Summarize(), "max_summary_tokens 500, asks no model"),
        (FlushToLTM(), "max_stm_ratio 0.5, blocks 0"),
    ],
)
def test_policies(strategy: Strategy, settings: str) -> None:
    """Wrong: a policy is told as another one, or without its numbers."""
    words = described(strategy, None)
    assert words.startswith(f"{strategy.kind}: ")
    assert words.endswith(f" ({settings})")


@pytest.mark.parametrize(
    ("block", "settings"),
    [
        (StaticMemory(facts=["a", "b"]), "facts 2"),
        (ExtractiveMemory(roles=("user", "tool")), "roles user, tool"),
        (VectorMemory(store="http://q:6333"), "store http://q:6333"),
        (NoteMemory(), "max_notes 1000"),
        (WorkingMemory(max_keys=1), "max_keys 1"),
        (SkillMemory(folder="skills"), "folder skills"),
        (SpatialMemory(dimensions=3), "dimensions 3"),
        (FileMemory(), "max_files 500"),
        (Foreign(name="mine"), "named mine"),
    ],
)
def test_blocks(block: Block, settings: str) -> None:
    """Wrong: a block is told as another one, or without its numbers."""
    words = described(block, None)
    assert words.startswith(f"{block.kind}: ")
    assert settings in words


def test_a_class_without_a_word_of_its_own() -> None:
    """Wrong: a class of the user's own ends the check, or is told as one of ours."""
    assert described(Own(), None) == "own: a class of your own"
    assert described(Foreign(name="mine"), None) == "foreign: a class of your own (named mine)"


def test_every_kind_has_words() -> None:
    """Wrong: a kind that is built in says nothing of itself."""
    made: dict[str, dict[str, Any]] = {"skills": {"folder": "x"}, "chain": {"members": [Trim()]}}
    for group, kinds in BUILT_IN.items():
        for kind in kinds:
            one: Any = find_kind(group, kind)(**made.get(kind, {}))
            assert "of your own" not in described(one, None), kind


@pytest.mark.parametrize(
    ("retention", "when"),
    [
        (timedelta(days=1), "1 day after its time, "),
        (timedelta(hours=36), "1 day, 12:00:00 after its time, "),
        (timedelta(minutes=5), "0:05:00 after its time, "),
        ("window", ""),
    ],
)
def test_retention(retention: Any, when: str) -> None:
    """Wrong: another time."""
    assert told(retention=retention)["retention"] == (
        f"a message goes {when}once it left the window and every block absorbed it"
    )


def test_small_differences() -> None:
    """Wrong: one value of a setting is told as another."""
    assert told(store="memory://")["store"] == "memory://, gone with the process; namespace default"
    assert told(embedding="local")["embedder"] == "local, run here"
    assert told(embedding="fastembed/x")["embedder"] == "fastembed/x, run here"
    never = told(overflow_mode="background", background_threads=1, idle_minutes=None)
    assert never["work"] == "room is made after updates, threads here: 1"
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
