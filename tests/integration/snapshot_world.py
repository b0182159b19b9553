"""Helpers for tests of snapshots: a conversation with data in every block, and what it shows."""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest

from agent_memory import AgentMemory, Block, Chain, FlushToLTM, Summarize, WorkingMemory, operations
from agent_memory.core.messages import compact_json
from agent_memory.core.records import Scope
from agent_memory.engine.values.key_values import KeyValues
from agent_memory.ltm_blocks import ExtractiveMemory, NoteMemory, SpatialMemory, VectorMemory
from agent_memory.stores import EncryptedStore, Keys, SplitStore, Store, open_store
from agent_memory.testing import FakeLLM
from tests.integration.fact_model import Model, at
from tests.kit import assistant, user

CANARY = "xylophone"
QUESTIONS = ("Which tree did I plant by the river?", "Where does Ada live?", CANARY, "tea")


def model() -> Model:
    """Return a model that finds facts in some messages. The later of two towns holds."""
    found = Model()
    found.tell("I live in Porto", "Ada lives in Porto.", subject="user", category="home")
    found.tell(
        "I moved to Lisbon", "Ada lives in Lisbon.", ("update", "Ada lives in Porto."),
        subject="user", category="home",
    )  # fmt: skip
    found.tell("a xylophone", "Ada plays the xylophone.", subject="user", category="music")
    found.tell("my password", "Ada has a password.", subject="user", category="secret")
    return found


def blocks() -> list[Block]:
    """Return two blocks that absorb, and three that are written directly."""
    kept: list[Block] = [WorkingMemory(persist=True), NoteMemory(), SpatialMemory()]
    return [ExtractiveMemory(), VectorMemory(), *kept]


@contextmanager
def remembering(
    store: Any, *, using: list[Block] | None = None, base: str | None = None, **more: Any
) -> Iterator[AgentMemory]:
    """Open a memory over a store, with a model that finds facts, or the model at `base`."""
    overflow = Chain(
        [FlushToLTM(blocks=blocks() if using is None else using), Summarize(max_summary_tokens=100)]
    )
    patience = {"recall_timeout": 60, "model_timeout": 60}
    fields = {"max_tokens": 700, "overflow": overflow, **patience, **more}
    with ExitStack() as stack:
        base = base or stack.enter_context(FakeLLM(model())).api_base
        asked = {"model": "openai/any", "api_base": base, "api_key": "k"}
        # a busy machine must not decide which messages have vectors
        stack.enter_context(patch("agent_memory.models.embedders.best_effort._SOON_SECONDS", 60))
        yield stack.enter_context(AgentMemory(store=store, **asked, **fields))


def messages(count: int = 24) -> list[dict[str, Any]]:
    """Return a conversation with all kinds of messages, some of which state facts."""
    call = {"id": "c1", "type": "function", "function": {"name": "plant", "arguments": "{}"}}
    said: list[dict[str, Any]] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi, I live in Porto and play a xylophone."},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "tool_call_id": "c1", "content": '{"done": true}'},
        assistant("Done. \u2028 Gr\u00fc\u00dfe \x00 \ud83d", seen=[1e22, 2**70]),
        {"raw": {"type": "reasoning", "id": "r"}, "format": "openai.responses"},
        {"role": "user", "content": [{"type": "text", "text": "Look!"}], "metadata": {"k": 1}},
    ]
    for n in range(count):
        said.append(user(f"I planted tree {n} by the river, of kind {n % 5}."))
        said.append(assistant(f"Tree {n} will grow."))
    said.append({"role": "user", "content": "I moved to Lisbon; my password is nobody's business."})
    return [{"created_at": at(f"2025-03-{1 + n // 4:02}"), **one} for n, one in enumerate(said)]


def converse(memory: AgentMemory, session_id: str = "s", user_id: str | None = "ada") -> None:
    """Store the conversation, and write to each block."""
    mine = memory.session(session_id, user_id)
    for number, one in enumerate(messages()):
        mine.update(one, key=f"k{number}")
    assert [one.error for one in memory.flush() if one.error] == []
    (secret,) = [fact for fact in mine.owner().facts() if "password" in fact.text]
    mine.owner().forget(secret.id, why="asked")
    mine.working().set("plan", {"next": [CANARY]})
    mine.owner().notes().add(f"Likes tea, and {CANARY}s.", {"from": 3})
    # of an age in words that stays the same while a test runs
    seen_at = datetime.now(UTC) - timedelta(days=3.5)
    where = {"position": (1.5, 2.0), "at": seen_at, "confidence": 0.5}
    mine.owner().spatial().observe(f"A {CANARY} on the table.", **where)
    memory.describe(session_id, {"title": f"Of {CANARY}s", "from": [1, None]}, user_id=user_id)
    own = own_values(memory, session_id)
    own.put(("cart", "a/b"), "tea", {"price": 1.5}, ttl=10**6, texts=["green tea", "black tea"])
    own.put((), "gone", CANARY, ttl=1e-6)
    mine.update({"role": "user", "content": "And tea?"})
    memory.flush()


def own_values(memory: AgentMemory, session_id: str = "s") -> KeyValues:
    """Return the key-value records of a session, whoever owns it."""
    return memory.components.values_of(Scope(None, session_id))


def exported(memory: AgentMemory, session_id: str = "s") -> list[str]:
    file = io.StringIO()
    memory.session(session_id).export(file)
    return [f"{line}\n" for line in file.getvalue().split("\n")[:-1]]


def log_of(memory: AgentMemory, session_id: str = "s") -> list[tuple[Any, ...]]:
    return [
        (e.seq, e.message.to_json(), e.tokens, e.total, e.encoding, e.created_at)
        for e in memory.history(session_id)
    ]


def head_of(memory: AgentMemory, session_id: str = "s") -> Any:
    """Return the head, without its version."""
    return replace(memory.update(session_id, []), version=0)


def seen(memory: AgentMemory, session_id: str = "s", user_id: str | None = "ada") -> dict[str, Any]:
    """Return all that can be read of a session, without the scores of recalls."""
    mine = memory.session(session_id, user_id)
    return {
        "log": log_of(memory, session_id),
        "keys": memory.components.store.keys(session_id),
        "head": head_of(memory, session_id),
        "contexts": [mine.get(question).to_messages() for question in QUESTIONS],
        "found": [[(r.block, r.id, r.text, r.sources) for r in found] for found in searches(mine)],
        "facts": mine.owner().facts(),
        "audit": mine.owner().audit(),
        "as of": mine.owner().facts(as_of=at("2025-03-02")),
        "working": mine.working().all(),
        "notes": mine.owner().notes().all(),
        "spatial": mine.owner().spatial().all(),
        "values": [
            replace(one, score=None) for one in own_values(memory, session_id).search(query="tea")
        ],
        "title": [one.metadata for one in memory.sessions(prefix=session_id)],
        "dead letters": operations.dead_letters(memory),
    }


def searches(mine: Any) -> list[Any]:
    return [mine.search(question) for question in QUESTIONS]


def scores(memory: AgentMemory, session_id: str = "s", user_id: str | None = "ada") -> list[float]:
    mine = memory.session(session_id, user_id)
    recalled = [mine.get(question).recalls for question in QUESTIONS]
    return [one.score for found in (*searches(mine), *recalled) for one in found]


def resummed(bodies: list[Mapping[str, Any]]) -> list[str]:
    """Return these records as lines with a correct digest."""
    lines: list[str] = []
    for body in bodies:
        if body.get("kind") == "end":
            body = {**body, "sha256": sha256("".join(lines).encode()).hexdigest()}
        lines.append(f"{compact_json(body)}\n")
    return lines


def bodies_of(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def contents(lines: list[str]) -> list[str]:
    """Return the records of a snapshot without its first and last line, sorted."""
    return sorted(map(compact_json, bodies_of(lines)[1:-1]))


@cache
def _snapshot() -> tuple[str, ...]:
    with remembering("memory://") as memory:
        converse(memory)
        return tuple(exported(memory))


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """A snapshot of a session with data in every block."""
    return list(_snapshot())


Opener = Callable[[str], Store]


@pytest.fixture
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens an empty store of a kind."""

    def opened(kind: str) -> Store:
        namespace = f"snap{uuid4().hex}"
        file = f"sqlite:///{tmp_path}/{namespace}.db"
        if kind == "split":
            return SplitStore(open_store(file), open_store(f"{file}.system"))
        if kind in ("memory", "sqlite", "encrypted"):
            store = open_store("memory://" if kind == "memory" else file, namespace)
            if kind == "encrypted":
                store = EncryptedStore(store, Keys({"k": bytes(range(32))}), namespace)
        else:
            store = open_store(request.getfixturevalue(f"{kind}_url"), namespace)
        return store

    with ExitStack() as stack:
        yield lambda kind: stack.enter_context(closing(opened(kind)))


def left_in(store: Store, session_id: str = "s") -> list[object]:
    """Return all that a store holds of a session."""
    found: list[object] = [head for head in store.sessions() if head.session_id == session_id]
    found += store.keys(session_id)
    found += [one for _, one in store.all_records() if one.session_id == session_id]
    for block in store.vector_blocks():
        with suppress(Exception):  # encrypted vectors cannot be listed by session
            found += [list(page) for page in store.all_vectors(block, session_id=session_id)]
    return found
