"""What `agent-memory doctor` finds in a store. It looks at a copy: that changes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from agent_memory.cli.common import local_embedder, missing_file, without_password
from agent_memory.cli.view import NOTHING
from agent_memory.core.ids import readable
from agent_memory.errors import AgentMemoryError, StoreUnavailable

if TYPE_CHECKING:
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.engine.services import Services
    from agent_memory.ltm_blocks.base import Block
    from agent_memory.ltm_blocks.vector import VectorMemory

NO_EMBEDDER = (
    "The local embedder is not installed: a VectorMemory goes by words alone. "
    'For meaning too: pip install "agent-memory[local]"'
)
_SQLITE = "sqlite:///"
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Check:
    """What was found of one part.

    Attributes:
        mark: ✓ it works; ✗ it is configured and fails; a dash: there is nothing to check.
        what: The part.
        told: What was found, and what to do.
    """

    mark: str
    what: str
    told: str


def attempt(what: str, check: Callable[[], Check]) -> Check:
    """A check whose foreseeable failure is its finding."""
    try:
        return check()
    except AgentMemoryError as error:
        return Check("✗", what, str(error))


def check_store(config: AgentMemoryConfig, call: bool) -> Iterator[Check]:
    """The store, its vectors, and what was not absorbed; then the store of system messages."""
    yield from _check(config.model_copy(update={"system_store": None}), call)
    if config.system_store is not None:
        apart = {"store": config.system_store, "system_store": None, "overflow": None, "blocks": ()}
        for check in _check(config.model_copy(update=apart), call):
            if check.what in ("store", "migration"):
                yield replace(check, what=f"system {check.what}")


def _check(config: AgentMemoryConfig, call: bool) -> Iterator[Check]:
    from agent_memory.engine.services import Services

    try:
        if not str(config.store).startswith((_SQLITE, "memory:")):
            with closing(Services(config)) as services:
                yield _opened(config, services, "")
                yield from _migration(config)
                yield attempt("absorbing", lambda: _absorbing(config, services))
                yield from _keeping(config, services)
                yield attempt("shares", lambda: _shares(config, services))
            return
        with _copied(config) as copy:
            schema = _schema(str(copy.store))  # opening the copy changes it
            with closing(Services(copy)) as services:
                yield _opened(config, services, schema)
                yield from _migration(copy)
                yield attempt("vectors", lambda: _vectors(copy, services, call))
                yield attempt("absorbing", lambda: _absorbing(copy, services))
                yield from _keeping(copy, services)
                yield attempt("shares", lambda: _shares(copy, services))
    except AgentMemoryError as error:
        yield Check("✗", "store", str(error))


def is_remote(embedding: str | None) -> bool:
    """Whether an embedding model has to be asked over the network."""
    return embedding is not None and embedding != "local" and not embedding.startswith("fastembed/")


@contextmanager
def _copied(config: AgentMemoryConfig) -> Iterator[AgentMemoryConfig]:
    """The same settings over a copy of the SQLite file.

    Opening the file itself would bring its schema up to date, and binding a block to it would
    announce the block's embedding model.
    """
    url = str(config.store)
    if not url.startswith(_SQLITE) or missing_file(url):
        yield config.model_copy(update={"store": "memory://"})
        return
    path = Path(url.removeprefix(_SQLITE)).absolute()
    with TemporaryDirectory(prefix="agent-memory-") as folder:
        copy = Path(folder) / "copy.db"
        try:
            with (
                closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)) as theirs,
                closing(sqlite3.connect(copy)) as ours,
            ):
                theirs.backup(ours)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"The SQLite database {str(path)!r} failed: {error}.") from error
        yield config.model_copy(update={"store": f"{_SQLITE}{copy.as_posix()}"})


def _schema(url: str) -> str:
    """The schema version of the copy, before it is opened."""
    if url == "memory://":
        return ""
    from agent_memory.stores.sql.migrations import STEPS, stored_version
    from agent_memory.stores.sql.sqlite_connection import Connection

    newest = 1 + len(STEPS)
    with closing(sqlite3.connect(url.removeprefix(_SQLITE))) as raw:
        try:
            version = stored_version(Connection(raw))
        except sqlite3.Error as error:
            raise StoreUnavailable(f"It is not a database of agent-memory: {error}.") from error
    if version is None:
        return ", with no memory in it yet"
    later = f"; the next use makes it {newest}" if version < newest else ""
    return f", schema version {version}{later}"


def _opened(config: AgentMemoryConfig, services: Services, schema: str) -> Check:
    url = without_password(str(config.store))
    if missing_file(str(config.store)):
        return Check(NOTHING, "store", f"{url} does not exist yet; the first message makes it.")
    counts = services.resources.store.counts()
    held = f"{counts.sessions} sessions, {counts.entries} messages"
    note = getattr(services.resources.store, "durability_note", None)
    told = f" {note()}" if note else ""
    gone = " and is gone with the process" if url.startswith("memory:") else ""
    return Check("✓", "store", f"{url} opens{gone}{schema}: {held}.{told}")


def _migration(config: AgentMemoryConfig) -> Iterator[Check]:
    """Whether a migration into the store has not come to its end; its note is not sealed."""
    from agent_memory.engine.transfer.migration.migrate import is_unfinished
    from agent_memory.stores import open_store

    with closing(open_store(str(config.store), config.namespace)) as store:
        if is_unfinished(store):
            told = (
                "A migration into this store is under way, or stopped half-way: use the former "
                "store until `agent-memory migrate FROM_URL TO_URL`, given again, comes to its end."
            )
            yield Check("✗", "migration", told)


def _vectors(config: AgentMemoryConfig, services: Services, call: bool) -> Check:
    from agent_memory.ltm_blocks.vector import VectorMemory

    blocks = [block for block in config.all_blocks if isinstance(block, VectorMemory)]
    if not blocks:
        told = "No VectorMemory is configured."
        return Check(NOTHING, "vectors", told if local_embedder() else f"{told} {NO_EMBEDDER}")
    if not call and any(is_remote(block.embedding or config.embedding) for block in blocks):
        return Check(
            NOTHING, "vectors", "Their dimension is the remote embedder's to tell: try --call."
        )
    for block in blocks:
        # binding a block compares its dimension with the one that the copy has stored
        block.model_copy(update={"store": None}).bind(services.resources)
        if block.store not in (None, ":memory:"):
            _search(block, block.store, services)
    places = sorted({block.store or "the session store" for block in blocks})
    kept = ", ".join(without_password(place) for place in places)
    by_default = any((block.embedding or config.embedding) is None for block in blocks)
    if by_default and not local_embedder():
        return Check("✓", "vectors", f"What is in {kept} can be searched. {NO_EMBEDDER}")
    return Check("✓", "vectors", f"Vectors in {kept} and the embedder agree on their dimension.")


def _search(block: VectorMemory, url: str, services: Services) -> None:
    """Search a Qdrant server, which refuses a vector of another dimension; binding changes it."""
    from agent_memory.retrieval.traits import Sought

    resources, question = services.resources, "Does anybody answer?"
    vector = resources.embedders(block.embedding).embed([question])[0]
    with closing(resources.vectors(url)) as server:
        server.search_vectors(block.name, "nobody", Sought.of(question, vector), 1)


def _absorbing(config: AgentMemoryConfig, services: Services) -> Check:
    """Whether there are messages that a block gave up, or a replay that stopped half-way."""
    from agent_memory.engine.processing.dead_letters import DeadLetters
    from agent_memory.engine.system_records import Kind, SystemRecords

    store = services.resources.store
    letters = DeadLetters(store, config.absorb_attempts)
    names = [block.name for block in config.all_blocks if block.absorbs]
    dead = [letter for name in names for letter in letters.dead(name)]
    replays = SystemRecords(store).read(Kind.REPLAYS)
    told = [
        f"{one.block} gave up #{one.first} to #{one.last} of {readable(one.session_id)} after "
        f"{one.attempts} attempts: {one.error}"
        for one in dead[:_SHOWN]
    ]
    if dead:
        more = f", {_SHOWN} of them shown" if len(dead) > _SHOWN else ""
        told.append(f"{len(dead)} dead letters{more}: mend the cause, then `agent-memory retry`.")
    told += [
        f"A replay of {name} is under way, or stopped, after {note['done']} sessions: if it "
        f"stopped, `agent-memory replay {name}` goes on."
        for name, note in replays.items()
    ]
    if told:
        return Check("✗" if dead else NOTHING, "absorbing", "\n".join(told))
    if not store.counts().sessions:
        return Check(NOTHING, "absorbing", "Nothing is stored yet.")
    return Check("✓", "absorbing", "No dead letters, and no replay stopped half-way.")


def _shares(config: AgentMemoryConfig, services: Services) -> Check:
    """Shared namespaces, and what the configuration grants in vain."""
    from agent_memory.engine.sharing.grants import Grants

    grants = Grants(services.resources.store)
    found = {share: grants.agents(share) for share in grants.shares()}
    vain = [
        f"{agent} has {grants.access(share, agent) or 'no'} access to {share}, and not {access}, "
        "as the configuration begins with: what was granted or revoked since wins. If that is not "
        f"meant: `agent-memory shares grant {share} {agent} {access}`."
        for share, agents in config.shares.items()
        for agent, access in agents.items()
        if grants.knows(share, agent) and grants.access(share, agent) != access
    ]
    agents = len({agent for granted in found.values() for agent in granted})
    told = f"Shared namespaces: {len(found)}; agents with access: {agents}."
    if vain:
        return Check(NOTHING, "shares", "\n".join([told, *vain[:_SHOWN]]))
    if not found:
        return Check(NOTHING, "shares", "Nothing is shared between agents.")
    return Check("✓", "shares", told)


def _keeping(config: AgentMemoryConfig, services: Services) -> Iterator[Check]:
    """The blocks that keep what they are given outright, each with what is wrong with it."""
    from agent_memory.ltm_blocks.base import KeepingBlock

    for block in config.all_blocks:
        if isinstance(block, KeepingBlock):
            yield attempt(block.name, partial(_kept, block, services))


def _kept(block: Block, services: Services) -> Check:
    with closing(block.bind(services.resources)) as bound:
        problems = bound.problems()
    if problems:
        shown = "\n".join(problems[:_SHOWN])
        more = f"\n{len(problems)} in all." if len(problems) > _SHOWN else ""
        return Check("✗", block.name, f"{shown}{more}")
    return Check("✓", block.name, f"{type(block).__name__} is configured and can be used.")
