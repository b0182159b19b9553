"""Helpers for tests of migrations: a deployment with every kind of data, and a store's contents as
values that can be compared."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from agent_memory import AgentMemory, FileMemory, FlushToLTM, NoteMemory, WorkingMemory, operations
from agent_memory.core.idempotency import KeyRecord
from agent_memory.core.records import Entry, Head, Scope, Summary
from agent_memory.engine.transfer.migrate import MigrationStep, migrate_stores
from agent_memory.errors import ModelOutputInvalid
from agent_memory.ltm_blocks import ExtractiveMemory, SpatialMemory, VectorMemory
from agent_memory.stores.base import Store
from agent_memory.testing import FakeLLM
from agent_memory.testing.contract import DAY, draft, record, stored, units, worded
from tests.histories import PNG, call, result
from tests.integration.fact_model import Model
from tests.kit import SECONDS, Silent, model_at

ODD = (
    *("50%", "a_b", "a b", "Case", "case", "caf\u00e9", "cafe\u0301", "漢字 👩‍👩‍👧"),
    *("it's;--", "\\n", "/"),
)
"""Ids that a database may misread, or confuse with each other."""

LONG = "word " * 200_000

_HABITS = {"a1": "sing", "a2": "smoke", "b1": "knit", "alone": "hum"}


class Picky(Silent):
    """Fails on batches with "poison" in them."""

    kind: str = "picky"

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        if any("poison" in entry.message.text() for entry in entries):
            raise ModelOutputInvalid("it makes no sense to me")


def _model() -> Model:
    model = Model()
    model.tell("I live in Oslo", "Lives in Oslo.", category="home")
    model.tell("I row", "Rows.", category="sport")
    for habit in _HABITS.values():
        model.tell(f"I {habit}", f"They {habit}.")
    return model


@contextmanager
def opened(store: Store | str, **fields: Any) -> Iterator[AgentMemory]:
    """Open a memory with one block of each kind that keeps data in the store."""
    blocks = [ExtractiveMemory(), VectorMemory(), Picky(), NoteMemory(), FileMemory()]
    with (
        patch("agent_memory.models.embedders.best_effort._SOON_SECONDS", SECONDS),
        FakeLLM(_model()) as fake,
        AgentMemory(
            store=store,
            embedding="local",
            absorb_attempts=1,
            recall_timeout=SECONDS,
            overflow=FlushToLTM(blocks=[*blocks, WorkingMemory(persist=True), SpatialMemory()]),
            **model_at(fake),
            **fields,
        ) as memory,
    ):
        yield memory


def fill(store: Store) -> None:
    """Fill a store with every kind of data, of ada, of ben and without a user."""
    with opened(store) as memory:
        for user, session_id in (("ada", "a1"), ("ada", "a2"), ("ben", "b1"), (None, "alone")):
            mine = memory.session(session_id, user)
            mine.update({"role": "system", "content": f"Be kind to {user}."})
            mine.update([_message("I live in Oslo"), _message(f"I row, says {user}", "assistant")])
            mine.update([_message("this is poison"), _message(f"I {_HABITS[session_id]}")], key="k")
            mine.working().set("plan", [user, {"n": 1.5}])
            mine.owner().notes().add(f"A note on {user}.")
            mine.owner().files().create(f"/memories/{session_id}.txt", f"{user}\n")
            mine.owner().spatial().observe(f"Saw {user}.", (1.0, 2.0))
        memory.flush()
        assert operations.dead_letters(memory)
        assert memory.session("a2").owner().forget(source="a2", why="asked to")
        memory.pop("b1")
    for name in ODD:
        store.append(name, [draft(f"I am {name}"), draft("ok", role="assistant")], f"u{name}")
        store.put_records("extractive", [record(f"odd {name}", f"user:u{name}", name)])
    store.append("forms", [draft(one.pop("content"), 7, **one) for one in _forms()], "ada")
    store.append("long", [draft(f"{n} of many") for n in range(1, 131)])
    keys = [KeyRecord(f"{n:040x}", f"{n:064x}", n, n, 3 * n, DAY) for n in range(1, 41)]
    store.put_keys("long", keys)
    _move(
        store, "long", expired=7, start=60, start_total=180, pinned=(12, 15), pinned_tokens=6,
        summary=Summary("so far \ud800", 6, 60, "local", redo_after=3, redo_text="of before"),
    )  # fmt: skip
    store.open_vectors("index", 8, "a model: of 8")
    words = [f"word{n} fox" for n in range(450)]
    records = [record(f"v{n}", f"user:{n % 3}", f"index:{n % 2}", last=0) for n in range(450)]
    store.put_vectors("index", records, worded(words, units(450)))
    store.open_vectors("bare", 0, "no embedder")
    store.put_vectors("bare", [record("a", session_id="")], worded(["red fox"]))
    items = [record(f"i{n}", session_id="", first=0, last=0) for n in range(430)]
    store.put_records("items", items)


def fill_plainly(store: Store, count: int) -> None:
    """Fill a store with short and long sessions, notes, and `count` facts and vectors."""
    with AgentMemory(store=store, blocks=[NoteMemory()]) as memory:
        for name in ("a", "b", "c"):
            mine = memory.session(name, f"of {name}")
            said = [{"role": "user", "content": f"{name} says {n}", "id": n} for n in range(4)]
            mine.update(said, key="k")
            mine.owner().notes().add(f"A note on {name}.")
    store.append("long", [draft(f"long {n}") for n in range(60)], "of a")
    store.put_records("facts", [record(f"f{n}", f"user:{n % 5}", "a") for n in range(count)])
    store.open_vectors("index", 8, "m")
    names = [record(f"v{n}", "user:of a", "abc"[n % 3]) for n in range(count)]
    words = [f"{'red ' * (n % 3)}fox{n}" for n in range(count)]
    store.put_vectors("index", names, worded(words, meaning=units(count)))


def everything(store: Store) -> dict[str, Any]:
    """Return the contents of a store, except versions of heads and migration notes."""
    heads: list[Head] = []
    while page := store.sessions(limit=7, after=heads[-1].session_id if heads else None):
        heads += page
    return {
        "sessions": [_head(head) for head in sorted(heads, key=lambda one: one.session_id)],
        "entries": [_entry(entry) for head in heads for entry in store.read(head.session_id)],
        "keys": [repr((head.session_id, store.keys(head.session_id))) for head in heads],
        "facts": sorted(
            repr((block, asdict(one)))
            for block, one in store.all_records()
            if block != "_notes" or one.owner not in ("migration", "scrubs")
        ),
        "vectors": sorted(_vectors(store), key=repr),
        "blocks": store.vector_blocks(),
    }


def readable(store: Store | str) -> list[Any]:
    """Return what users and models see of a store, without times."""
    with opened(store) as memory:
        told: list[Any] = [memory.stats().sessions, memory.stats().entries]
        for user, session_id in (("ada", "a1"), ("ada", "a2"), ("ben", "b1"), (None, "alone")):
            mine = memory.session(session_id, user)
            told += [
                [(one.seq, one.message.to_dict()) for one in mine.history()],
                mine.get("Where does she live?").to_messages(),
                mine.working().all(),
                [str(one) for one in mine.owner().notes().all()],
                [mine.owner().files().read(path) for path in mine.owner().files().paths()],
                [one.text for one in mine.owner().spatial().all()],
            ]
        for user in ("ada", "ben"):
            told += [[fact.text for fact in memory.user(user).facts()], memory.user(user).audit()]
            found = memory.search("Who rows in Oslo?", user_id=user)
            told.append([(one.block, one.text, round(one.score, 4)) for one in found])
        return [*told, operations.dead_letters(memory)]


def moved(source: Store, target: Store) -> MigrationStep:
    *_, last = migrate_stores(source, target, "origin")
    return last


def file_bytes(folder: Path, name: str) -> bytes:
    """Return the bytes of all files of an SQLite database."""
    return b"".join(file.read_bytes() for file in sorted(folder.glob(f"{name}*")))


def _message(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text, "created_at": DAY}


def _forms() -> list[dict[str, Any]]:
    return [
        {"content": [{"type": "image_url", "image_url": {"url": PNG}}]},
        {**call(["call_1", "call_2"], arguments='{"q": "x"}')},
        result("call_2"),
        result("call_1", [{"type": "text", "text": "one"}]),
        {"content": "lone \ud800 and nul \x00", "metadata": {"n": [1, 2.5, None, -0.0, 10**30]}},
        {"content": "with a name", "name": "Sarah", "from_the_future": {"b": [{}], "a": [True]}},
        {"content": "of another day", "created_at": DAY},
        {"content": LONG},
        {"content": "Be brief.", "role": "developer"},
    ]  # fmt: skip


def _move(store: Store, session_id: str, **fields: Any) -> None:
    assert store.move(replace(stored(store, session_id), **fields)) is not None


def _head(head: Head) -> str:
    system = None if head.system is None else (head.system.to_dict(), head.system.created_at)
    return repr((asdict(replace(head, version=0, system=None)), system))


def _entry(entry: Entry) -> str:
    fields = {name: getattr(entry, name) for name in entry.__slots__ if name != "message"}
    return repr((fields, entry.message.to_dict(), entry.message.created_at))


def _vectors(store: Store) -> Iterator[tuple[Any, ...]]:
    for block in store.vector_blocks():
        for records, features in store.all_vectors(block):
            for place, one in enumerate(records):
                terms = [*features.words[place], features.tokens.of_record(place)]
                arrays = [features.meaning[place], features.places[place].tolist(), *terms]
                yield block, asdict(one), [np.asarray(array).tolist() for array in arrays]
