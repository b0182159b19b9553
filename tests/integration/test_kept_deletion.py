"""Data that agents write directly: deleted with its session and user, and read by no other user."""

import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from agent_memory import AgentMemory, Block, FileMemory, InvalidInput, NoteMemory, SkillMemory, User
from agent_memory.core.records import Record, Scope
from agent_memory.ltm_blocks import SpatialMemory, WorkingMemory
from agent_memory.ltm_blocks.skills import Skill
from agent_memory.ltm_blocks.versions import version_owner
from agent_memory.stores import Store
from agent_memory.testing.contract import together
from tests.kit import opened

USERS = ("ada", "ben")


def blocks(folder: Path) -> list[Block]:
    return [
        WorkingMemory(persist=True), NoteMemory(), FileMemory(), SpatialMemory(),
        SkillMemory(folder=folder / "skills"),
    ]  # fmt: skip


def canary(user: str | None, session_id: str) -> str:
    """Return a word that all data of this user and session contains."""
    return f"canary-{user or 'nobody'}-{session_id}"


def keep(memory: AgentMemory, user: str | None, session_id: str) -> None:
    word, mine = canary(user, session_id), memory.session(session_id, user)
    mine.update({"role": "user", "content": f"I said {word}."})
    mine.working().set("plan", [word])
    mine.owner().notes().add(f"A note on {word}.")
    mine.owner().values().put(("of", session_id), "word", word)
    mine.owner().files().create(f"/memories/{word}.txt", f"{word}\n")
    mine.owner().spatial().observe(f"Saw {word}.", (1.0, 2.0))
    name = f"skill-{user or 'nobody'}-{session_id}"
    mine.owner().skills().save(Skill(name, f"How to find {word}."))


def readable(memory: AgentMemory, user: str | None, session_id: str) -> str:
    """Return all that a user and their model can read, by handle, tool and context."""
    mine = memory.session(session_id, user)
    read = [
        mine.get("canary note").to_messages(),
        mine.call_tool("memory_read", {"query": "canary"}),
        mine.call_tool("working_get"),
        mine.call_tool("files", {"command": "view", "path": "/memories"}),
        mine.call_tool("spatial_near", {"position": [0, 0]}),
        mine.call_tool("skills_find", {"query": "find the canary"}),
        [str(one) for one in mine.owner().notes().all()],
        [str(one) for one in mine.owner().values().search()],
        [mine.owner().files().read(path) for path in mine.owner().files().paths()],
        [str(one) for one in mine.owner().spatial().all()],
        [str(one) for one in mine.owner().skills().all()],
    ]
    return json.dumps(read, default=str)


@pytest.fixture
def memory(store: Store, tmp_path: Path) -> AgentMemory:
    """Two users with two sessions each, and a session without a user."""
    memory = AgentMemory(store=store, blocks=blocks(tmp_path))
    for user in USERS:
        for session_id in (f"{user}1", f"{user}2"):
            keep(memory, user, session_id)
    keep(memory, None, "alone")
    return memory


def test_blocks_return_only_data_of_the_user(memory: AgentMemory) -> None:
    """Wrong: a block returns another user's data."""
    with memory:
        for user, session_id in (("ada", "ada1"), ("ben", "ben2"), (None, "alone"), ("eve", "e")):
            told = readable(memory, user, session_id)
            for other in {"ada", "ben", "nobody"} - {user or "nobody"}:
                assert f"canary-{other}" not in told
            if user != "eve":
                assert canary(user, session_id) in told


def left(store: Store, *owners: str) -> list[Record]:
    blocks = ("working", "notes", "files", "spatial")
    return [one for block in blocks for owner in owners for one in store.records(block, owner)]


def by_itself(memory: AgentMemory, delete: Callable[[AgentMemory], None]) -> None:
    delete(memory)


def by_another(memory: AgentMemory, delete: Callable[[AgentMemory], None]) -> None:
    """Delete with a memory without blocks, like a script or the command line."""
    with closing(AgentMemory(store=memory.config.store)) as other:
        delete(other)


@pytest.mark.parametrize("way", [by_itself, by_another])
def test_a_deleted_user_leaves_nothing(
    memory: AgentMemory, store: Store, way: Callable[..., None], tmp_path: Path
) -> None:
    """Wrong: a block keeps data of a deleted user, or loses another user's."""
    with memory:
        memory.user("ada").values().put(("own",), "word", "canary-ada, of no session")
        assert canary("ada", "ada1") in readable(memory, "ada", "ada1")  # which fills the caches
        way(memory, lambda it: it.delete_user("ada"))
        if way is by_another:  # only a memory with this block knows its folder
            memory.blocks["skills"].delete(Scope("ada"))
        owners = ["user:ada", "session:ada1", "session:ada2"]
        assert not left(store, *owners, *map(version_owner, owners))
        for session_id in ("ada1", "ada2", "new"):
            assert "canary-ada" not in readable(memory, "ada", session_id)
        assert canary("ben", "ben1") in readable(memory, "ben", "ben1")
        assert canary(None, "alone") in readable(memory, None, "alone")
    files = [file for file in tmp_path.rglob("*") if file.is_file() and "-wal" not in file.name]
    assert not [file for file in files if b"canary-ada" in file.read_bytes()]


@pytest.mark.parametrize("way", [by_itself, by_another])
def test_a_deleted_session_leaves_none_of_its_own_data(
    memory: AgentMemory, store: Store, way: Callable[..., None], tmp_path: Path
) -> None:
    """Wrong: data of a deleted session is left, in the store, a folder or a cache."""
    with memory:
        for user, session_id in (("ada", "ada1"), (None, "alone")):
            assert canary(user, session_id) in readable(memory, user, session_id)
        way(memory, lambda it: it.delete("ada1"))
        assert not [one for one in left(store, "user:ada") if one.session_id == "ada1"]
        assert not left(store, "session:ada1")
        told, own = readable(memory, "ada", "ada2"), canary("ada", "ada2")
        ada = memory.session("ada2", "ada")
        assert [one.text for one in ada.owner().notes().all()] == [f"A note on {own}."]
        assert [one.text for one in ada.owner().spatial().all()] == [f"Saw {own}."]
        paths = [f"/memories/{canary('ada', n)}.txt" for n in ("ada1", "ada2")]
        assert ada.owner().files().paths() == paths
        assert ada.owner().values().namespaces() == [("of", "ada2")]
        assert memory.session("ada1", "ada").working().all() == {}
        assert own in told
        way(memory, lambda it: it.delete("alone"))
        assert not left(store, "session:alone", version_owner("session:alone"))
        if way is by_another:  # only a memory with this block knows its folder
            memory.blocks["skills"].delete(Scope(None, "alone"))
        assert canary(None, "alone") not in readable(memory, None, "alone")
        assert not list(tmp_path.rglob("skill-nobody-*"))


def test_data_written_before_the_first_message_has_an_owner(store: Store, tmp_path: Path) -> None:
    """Wrong: data written before the first message has no owner, and is never deleted."""
    with AgentMemory(store=store, blocks=blocks(tmp_path)) as memory:
        pad = memory.session("s", "ada").working()
        pad.set("plan", "canary-ada")
        assert [head.session_id for head in memory.sessions(user_id="ada")] == ["s"]
        memory.delete_user("ada")
        assert memory.sessions() == []
        assert memory.session("s", "ben").working().all() == {}
        values = memory.session("t").owner().values()
        values.put(("n",), "k", "canary")
        assert [head.session_id for head in memory.sessions()] == ["t"]
        memory.delete("t")
        assert values.namespaces() == []


LIMITED: dict[str, tuple[Block, Callable[[User, int], object]]] = {
    "notes": (NoteMemory(max_notes=3), lambda own, n: own.notes().add(f"Note {n}.")),
    "files": (
        FileMemory(max_files=3), lambda own, n: own.files().create(f"/memories/{n}", "text"),
    ),
    "spatial": (
        SpatialMemory(max_observations=3), lambda own, n: own.spatial().observe("thing", (n, 0)),
    ),
}  # fmt: skip


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", ["working", *LIMITED])
def test_concurrent_writers_do_not_exceed_the_limit(url: str, kind: str) -> None:
    """Wrong: writers in two processes exceed the block's limit."""
    block, write = LIMITED.get(kind, (WorkingMemory(max_keys=3), None))
    refused: list[int] = []

    def put(memory: AgentMemory, number: int) -> None:
        session = memory.session("s", "ada")
        try:
            if write is None:
                session.working().set(str(number), 1)
            else:
                write(session.owner(), number)
        except InvalidInput:
            refused.append(number)

    with opened(url, block) as one, opened(url, block) as two:
        together([partial(put, (one, two)[number % 2], number) for number in range(8)])
        assert len(refused) == 5
        assert len(left(one.components.store, "user:ada", "session:s")) == 3
