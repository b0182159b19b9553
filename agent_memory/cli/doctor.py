"""`agent-memory doctor`: one line for each part, with what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from agent_memory.cli import common
from agent_memory.cli.common import FAILED, NO_EMBEDDER, ConfigOption, ModelOption, P, StoreOption
from agent_memory.cli.config_files import store_files
from agent_memory.cli.view import NOTHING, cell, grid
from agent_memory.core.ids import readable
from agent_memory.errors import AgentMemoryError, StoreUnavailable

if TYPE_CHECKING:
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.ltm_blocks.base import Block, Resources
    from agent_memory.stores.base import Store

_STYLES = {"✓": "bold green", "✗": "bold red", NOTHING: "yellow"}
_SQLITE = "sqlite:///"
_SHOWN = 10
_MIGRATION = (
    "A migration into this store is under way, or stopped half-way: use the former store until "
    "`agent-memory migrate FROM_URL TO_URL`, given again, comes to its end."
)


Check = tuple[str, str]
"""✓ it works, ✗ it fails, a dash: there is nothing to check; and what was found, and what to do."""


@common.guarded
def doctor(
    model: ModelOption = None,
    call: Annotated[
        bool, typer.Option("--call", help="Ask the model, and a remote embedder, for real.")
    ] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Check the store, what was absorbed, the embedder and the model, and say what to do.

    Changes nothing: it looks at a copy of the store.
    """
    files = store_files(config)
    settings = {name: common.load_config(store, files[name], model=model) for name in files}
    found = [(name, one) for name in files for one in _all(settings[name], call)]
    found.append(("", ("mcp", _mcp())))
    table = grid("", *(["store"] if len(files) > 1 else []), "part", "found", header=False)
    for name, (what, (mark, told)) in found:
        named = [cell(name)] if len(files) > 1 else []
        table.add_row(cell(mark, _STYLES[mark]), *named, what, cell(told))
    common.out().print(table)
    if any(mark == "✗" for _, (_, (mark, _)) in found):
        raise typer.Exit(FAILED)


def _all(config: AgentMemoryConfig, call: bool) -> Iterator[tuple[str, Check]]:
    yield from _store(config.model_copy(update={"system_store": None}), call)
    if config.system_store is not None:
        apart = {"store": config.system_store, "system_store": None, "overflow": None, "blocks": ()}
        for what, found in _store(config.model_copy(update=apart), call):
            if what in ("store", "migration"):
                yield f"system {what}", found
    yield "embedder", _tried(_embedder, config, call)
    yield "model", _tried(_model, config, call)


def _tried(check: Callable[P, Check], *args: P.args, **kwargs: P.kwargs) -> Check:
    """A check whose foreseeable failure is its finding."""
    try:
        return check(*args, **kwargs)
    except AgentMemoryError as error:
        return "✗", str(error)


def _store(config: AgentMemoryConfig, call: bool) -> Iterator[tuple[str, Check]]:
    from agent_memory.engine.services import Services
    from agent_memory.engine.transfer.migration.migrate import is_unfinished
    from agent_memory.stores import open_store

    try:
        with _copied(config) as (copy, schema), closing(Services(copy)) as services:
            resources = services.resources
            yield "store", _opened(config, resources.store, schema)
            with closing(open_store(str(copy.store), copy.namespace)) as unsealed:
                if is_unfinished(unsealed):
                    yield "migration", ("✗", _MIGRATION)
            if str(copy.store).startswith((_SQLITE, "memory:")):  # to bind to a server changes it
                yield "vectors", _tried(_vectors, copy, resources, call)
            yield "absorbing", _tried(_absorbing, copy, resources.store)
            for block in copy.all_blocks:
                if not block.absorbs:
                    yield block.name, _tried(_usable, block, resources)
            yield "shares", _tried(_shares, copy, resources.store)
    except AgentMemoryError as error:
        yield "store", ("✗", str(error))


@contextmanager
def _copied(config: AgentMemoryConfig) -> Iterator[tuple[AgentMemoryConfig, str]]:
    """The settings over a copy of the SQLite file, and its schema version in words.

    Opening the file itself would bring its schema up to date, and binding a block to it would
    announce the block's embedding model.
    """
    from agent_memory.stores.sql.migrations import STEPS, stored_version
    from agent_memory.stores.sql.sqlite_connection import Connection

    url = str(config.store)
    if not url.startswith(_SQLITE) or common.missing_file(url):
        empty = {"store": "memory://"} if common.missing_file(url) else {}
        yield config.model_copy(update=empty), ""
        return
    path = Path(url.removeprefix(_SQLITE)).absolute()
    with TemporaryDirectory(prefix="agent-memory-") as folder:
        copy = Path(folder) / "copy.db"
        try:
            with closing(sqlite3.connect(copy)) as ours:
                with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)) as theirs:
                    theirs.backup(ours)
                found, newest = stored_version(Connection(ours)), 1 + len(STEPS)
        except sqlite3.Error as error:
            told = f"The SQLite database {str(path)!r} is not one of agent-memory, or failed: "
            raise StoreUnavailable(f"{told}{error}.") from error
        later = f"; the next use makes it {newest}" if found and found < newest else ""
        schema = f", schema version {found}{later}" if found else ", with no memory in it yet"
        yield config.model_copy(update={"store": f"{_SQLITE}{copy.as_posix()}"}), schema


def _opened(config: AgentMemoryConfig, store: Store, schema: str) -> Check:
    url = common.without_password(str(config.store))
    if common.missing_file(str(config.store)):
        return NOTHING, f"{url} does not exist yet; the first message makes it."
    counts, note = store.counts(), getattr(store, "durability_note", None)
    gone = " and is gone with the process" if url.startswith("memory:") else ""
    held = f"{counts.sessions} sessions, {counts.entries} messages"
    return "✓", f"{url} opens{gone}{schema}: {held}.{f' {note()}' if note else ''}"


def _vectors(config: AgentMemoryConfig, resources: Resources, call: bool) -> Check:
    from agent_memory.ltm_blocks.vector import VectorMemory
    from agent_memory.retrieval.features import Query

    blocks = [block for block in config.all_blocks if isinstance(block, VectorMemory)]
    if not blocks:
        return NOTHING, "No VectorMemory is configured."
    if not call and any(common.is_remote(one.embedding or config.embedding) for one in blocks):
        return NOTHING, "Their dimension is the remote embedder's to tell: try --call."
    for block in blocks:
        # binding a block compares its dimension with the one that the copy has stored
        block.model_copy(update={"store": None}).bind(resources)
        if block.store not in (None, ":memory:"):  # a server refuses another dimension
            vector = resources.embedders(block.embedding).embed(["Anybody?"])[0]
            with closing(resources.vectors(block.store)) as server:
                server.search_vectors(block.name, "nobody", Query.of("Anybody?", vector), 1)
    if all(common.by_words(one.embedding or config.embedding) for one in blocks):
        return NOTHING, "There is no embedder: VectorMemory goes by words alone."
    kept = {common.without_password(block.store or "the session store") for block in blocks}
    told = f"Vectors in {', '.join(sorted(kept))} and the embedder agree on their dimension."
    return "✓", told


def _absorbing(config: AgentMemoryConfig, store: Store) -> Check:
    from agent_memory.engine.processing.dead_letters import DeadLetters
    from agent_memory.engine.system_records import Kind, SystemRecords

    letters = DeadLetters(store, config.absorb_attempts)
    names = [block.name for block in config.all_blocks if block.absorbs]
    dead = [letter for name in names for letter in letters.dead(name)]
    told = [
        f"{one.block} gave up #{one.first} to #{one.last} of {readable(one.session_id)} after "
        f"{one.attempts} attempts: {one.error}"
        for one in dead[:_SHOWN]
    ]
    told += [f"{len(dead)} dead letters: mend the cause, then `agent-memory retry`."] * bool(dead)
    told += [
        f"A replay of {name} is under way, or stopped, after {note['done']} sessions: if it "
        f"stopped, `agent-memory replay {name}` goes on."
        for name, note in SystemRecords(store).read(Kind.REPLAYS).items()
    ]
    mark = "✗" if dead else NOTHING if told or not store.counts().sessions else "✓"
    return mark, "\n".join(told) or "No dead letters, and no replay stopped half-way."


def _usable(block: Block, resources: Resources) -> Check:
    with closing(block.bind(resources)) as bound:
        problems = list(bound.problems())
    told = problems[:_SHOWN] + [f"{len(problems)} in all."] * (len(problems) > _SHOWN)
    can = f"{type(block).__name__} is configured and can be used."
    return "✗" if told else "✓", "\n".join(told) or can


def _shares(config: AgentMemoryConfig, store: Store) -> Check:
    """Shared namespaces, and what the configuration grants in vain."""
    from agent_memory.engine.sharing.grants import Grants

    grants = Grants(store)
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
    told = told if found else "Nothing is shared between agents."
    return NOTHING if vain or not found else "✓", "\n".join([told, *vain[:_SHOWN]])


def _embedder(config: AgentMemoryConfig, call: bool) -> Check:
    from agent_memory.models.embedders import open_embedder

    if common.by_words(config.embedding):
        return NOTHING, NO_EMBEDDER
    if common.is_remote(config.embedding) and not call:
        return _key(str(config.embedding), config)
    base, key, seconds = config.api_base, config.api_key, config.model_timeout
    embedder = open_embedder(config.embedding, api_base=base, api_key=key, timeout=seconds)
    length = embedder.embed(["Is anyone there?"]).shape[1]
    return "✓", f"{embedder.name} loads and gives {length} numbers a text."


def _model(config: AgentMemoryConfig, call: bool) -> Check:
    from agent_memory.models.llm import LLM

    if config.model is None:
        told = "None is configured: summaries are local extracts, and fact extraction waits. "
        return NOTHING, f"{told}Set AGENT_MEMORY_MODEL or `model`: openai/gpt-4o-mini."
    if not call:
        return _key(config.model, config)
    base, key, seconds = config.api_base, config.api_key, config.model_timeout
    llm = LLM(config.model, api_base=base, api_key=key, timeout=seconds, attempts=1)
    llm.complete([{"role": "user", "content": "Answer with the word ok."}])
    return "✓", f"{config.model} answers."


def _key(model: str, config: AgentMemoryConfig) -> Check:
    """Whether a model has its key, as far as can be told without asking it."""
    missing = common.missing_keys(model, config)
    if missing:
        return "✗", f"{model} needs {missing} in the environment, or api_key."
    known = "no key is missing" if missing is not None else "whether it needs a key is not known"
    told = f"{model} is configured; {known}. It was not asked: --call does."
    return NOTHING if missing is None else "✓", told


def _mcp() -> Check:
    try:
        found = version("mcp")
    except PackageNotFoundError:
        found = ""
    if found.startswith("2."):
        return "✓", f"mcp {found} is installed: `agent-memory mcp --user ID` can start."
    told = f"{found or 'Not'} installed; `agent-memory mcp` needs version 2: "
    return "✗" if found else NOTHING, f'{told}pip install "agent-memory[mcp]"'
