"""The same turns in several stores: each question finds the same ones with the same scores."""

import contextlib
import os
import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import pytest

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Hit, Record
from agent_memory.models.embedders.base import NoEmbedder
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.turns import record_of_turn, turns_said
from agent_memory.retrieval.vectors import Encoding, encoding_of
from agent_memory.stores import open_store
from agent_memory.stores.base import VectorStore
from agent_memory.stores.memory import MemoryStore
from agent_memory.stores.qdrant.store import QdrantStore
from agent_memory.testing.contract import DAY
from tests.servers.qdrant import StandIn

DIMENSION = 24
STORES = [
    "sqlite",
    ":memory:",
    "stand-in",
    *filter(None, [os.environ.get("AGENT_MEMORY_TEST_QDRANT")]),
]
QUESTIONS = 25
SHOWN = 20
CLOSE = 2e-2
"""Stores keep weights of words in half precision; a server tells how rare a word is by
one of its forms."""

SYLLABLES = ["ba", "do", "ri", "ken", "mu", "lo", "sta", "vi", "per", "gan", "tel", "no"]
NAMES = ["Mira", "Tomas"]


@cache
def vocabulary() -> list[str]:
    rng = random.Random(3)
    words = {"".join(rng.choices(SYLLABLES, k=rng.randint(2, 4))) for _ in range(700)}
    return sorted(words)


def written(rng: random.Random, count: int) -> str:
    """Return random words: a few occur in most texts, and most in few."""
    words = vocabulary()
    ranks = [min(int(rng.paretovariate(0.6)) - 1, len(words) - 1) for _ in range(count)]
    return " ".join(words[rank * 7919 % len(words)] for rank in ranks)


class Said(NamedTuple):
    """Records of one session, and their features."""

    records: list[Record]
    features: Features


@cache
def _direction(word: str) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(word.encode()))
    return np.asarray(rng.normal(size=DIMENSION), np.float32)


def encode(texts: Sequence[str]) -> list[Encoding]:
    """Return the mean of random vectors of the words, so that texts with common words are near."""
    rows = np.stack([np.sum([_direction(w) for w in text.split()], axis=0) for text in texts])
    rows = np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)
    return [encoding_of(row) for row in rows]


def sessions(owner: str, seed: int) -> Iterator[Said]:
    """Return sessions between people, and with an assistant whose answers are long."""
    rng = random.Random(seed)
    for number in range(5):
        entries = []
        for seq in range(1, 51):
            answers = number > 2 and seq % 2 == 0
            length = rng.randint(80, 250) if answers else rng.randint(1, 25)
            text = "good." if rng.random() < 0.05 else written(rng, length)
            text += "?" if rng.random() < 0.2 else ""
            role, name = ("assistant", None) if answers else ("user", NAMES[seq % 2])
            said_at = DAY + timedelta(days=9 * number, minutes=seq)
            message = Message(role=role, content=text, name=name, created_at=said_at)
            entries.append(Entry(f"{owner}-{number}", seq, message, 1, seq, "test", said_at))
        said = [(entry, turn) for entry in entries for turn in turns_said(entry)]
        records = [record_of_turn(*s, f"{s[0].session_id}/{s[0].seq:02}", owner) for s in said]
        yield Said(records, Features.of_turns([turn for _, turn in said], encode))


def questions(count: int, seed: int = 5) -> list[str]:
    rng = random.Random(seed)
    asked = []
    for number in range(count):
        text = written(rng, rng.randint(1, 9))
        asked.append(f"What did {NAMES[0]} say of {text} in March?" if number % 5 == 0 else text)
    return asked


def filled(store: VectorStore, *seeds: tuple[str, int], dimension: int = DIMENSION) -> None:
    store.open_vectors("v", dimension, "m")
    for owner, seed in seeds:
        for said in sessions(owner, seed):
            features = said.features
            if not dimension:
                features = replace(features, meaning=np.empty((len(features), 0), np.float32))
            store.put_vectors("v", said.records, features)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VectorStore]:
    with contextlib.ExitStack() as stack:
        opened: VectorStore
        if request.param == "sqlite":
            opened = open_store(f"sqlite:///{tmp_path}/memory.db")
        elif request.param == "stand-in":
            stack.enter_context(pytest.MonkeyPatch.context()).delenv("QDRANT_API_KEY", False)
            opened = QdrantStore(stack.enter_context(StandIn()).url)
        else:
            opened = QdrantStore(request.param, uuid4().hex[:8])
        stack.callback(opened.close)
        stack.callback(opened.clear_vectors, "v")
        yield opened


def hits(store: VectorStore, owner: str, question: str, *, by_words: bool = False) -> list[Hit]:
    encoding = NoEmbedder().encode_query(question) if by_words else encode([question])[0]
    return store.search_vectors("v", owner, Query.of(question, encoding), SHOWN)


def assert_alike(found: Sequence[Hit], wanted: Sequence[Hit]) -> None:
    """Assert the same order, except for ties, and the same parts of each score."""
    assert len(found) == len(wanted)
    by_id = {hit.record.id: hit for hit in wanted}
    for one, there in zip(found, wanted, strict=True):
        assert one.score == pytest.approx(there.score, abs=CLOSE)
        same = by_id.get(one.record.id)
        if same is None:  # one with the score of the last
            assert one.score == pytest.approx(wanted[-1].score, abs=CLOSE)
            continue
        assert one.parts == pytest.approx(same.parts, abs=CLOSE)
        assert one.record == same.record


def test_stores_rank_alike(store: VectorStore) -> None:
    """Wrong: the same question gets other records or scores in another store."""
    plain = MemoryStore()
    for one in (plain, store):
        filled(one, ("user:a", 1))
    orders = []
    for question in questions(QUESTIONS):
        found, wanted = (hits(one, "user:a", question) for one in (store, plain))
        assert_alike(found, wanted)
        orders.append([hit.record.id for hit in found])
    # otherwise the questions would show nothing
    assert len({tuple(order) for order in orders}) > QUESTIONS - 3
    assert len({name for order in orders for name in order}) > 100


def test_stores_rank_alike_by_words_only(store: VectorStore) -> None:
    """Wrong: without an embedder the results depend on the store."""
    plain = MemoryStore()
    for one in (plain, store):
        filled(one, ("user:a", 1), dimension=0)
    for question in questions(10):
        found, wanted = (hits(one, "user:a", question, by_words=True) for one in (store, plain))
        assert_alike(found, wanted)


def test_other_users_change_nothing(store: VectorStore) -> None:
    """Wrong: another user's records are found, or change the scores."""
    plain = MemoryStore()
    filled(plain, ("user:a", 1))
    filled(store, ("user:a", 1), ("user:b", 2))
    for question in questions(10):
        found, wanted = (hits(one, "user:a", question) for one in (store, plain))
        assert {hit.record.session_id.split("-")[0] for hit in found} == {"user:a"}
        assert_alike(found, wanted)
