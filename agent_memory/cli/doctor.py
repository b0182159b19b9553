"""`agent-memory doctor`: one line for each part, with what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_memory.cli import common
from agent_memory.cli.common import FAILED, NO_EMBEDDER, ConfigOption, ModelOption, P, StoreOption
from agent_memory.cli.config_files import store_files
from agent_memory.cli.view import NOTHING, cell, grid
from agent_memory.errors import AgentMemoryError
from agent_memory.models.embedders import is_remote

if TYPE_CHECKING:
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.ltm_blocks.base import Block, Resources
    from agent_memory.stores.base import Store

_STYLES = {"✓": "bold green", "✗": "bold red", NOTHING: "yellow"}
_SHOWN = 10
_CHECK_SECONDS = 30.0
_RESTORE = "Put a backup back; what can still be read, `agent-memory export` saves."
_OF_STORE = ("store", "migration")

Check = tuple[str, str]
"""✓ it works, ✗ it fails, a dash: there is nothing to check; and what was found, and what to do."""


@common.guarded
def doctor(
    model: ModelOption = None,
    call: Annotated[
        bool, typer.Option("--call", help="Ask the model, and a remote embedder, for real.")
    ] = False,
    mend: Annotated[
        bool,
        typer.Option("--repair", help="Say what can be done about damaged records; ask; do it."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --repair: do not ask.")] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Check the store, what was absorbed, the embedder and the model, and say what to do.

    Changes nothing but with --repair: it looks at a copy of the store.
    """
    files = store_files(config)
    settings = {name: common.load_config(store, files[name], model=model) for name in files}
    if mend:
        from agent_memory.cli.repair import repair

        sound = [repair(one, yes=yes) for one in settings.values()]
        if not all(sound):
            raise typer.Exit(FAILED)
        return
    found = [(name, *one) for name in files for one in _all(settings[name], call)]
    found.append(("", "mcp", _mcp()))
    several = len(files) > 1
    table = grid("", *["store"] * several, "part", "found", header=False)
    for name, what, (mark, told) in found:
        table.add_row(cell(mark, _STYLES[mark]), *[cell(name)] * several, what, cell(told))
    common.out().print(table)
    if any(mark == "✗" for _, _, (mark, _) in found):
        raise typer.Exit(FAILED)


def _all(config: AgentMemoryConfig, call: bool) -> Iterator[tuple[str, Check]]:
    yield from _store(config.model_copy(update={"system_store": None}), call)
    if config.system_store is not None:
        apart = {"store": config.system_store, "system_store": None, "overflow": None, "blocks": ()}
        found = _store(config.model_copy(update=apart), call)
        yield from ((f"system {what}", one) for what, one in found if what in _OF_STORE)
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
    from agent_memory.engine.transfer.migration.migrate import UNFINISHED, is_unfinished
    from agent_memory.stores import open_store
    from agent_memory.stores.sql.copying import copied

    url = str(config.store)
    try:
        with ExitStack() as opened:
            copy, schema = opened.enter_context(copied(url))
            looked_at = config.model_copy(update={"store": copy})

            def copy_of(place: str) -> str:
                return opened.enter_context(copied(place))[0]

            resources = opened.enter_context(closing(Services(looked_at, copy_of))).resources
            yield "store", _opened(url, resources.store, schema and f", {schema}")
            yield "records", _tried(_records, url, copy, resources.store)
            if is_unfinished(opened.enter_context(closing(open_store(copy, config.namespace)))):
                yield "migration", ("✗", UNFINISHED)
            yield "vectors", _tried(_vectors, config, resources, call)
            yield "absorbing", _tried(_absorbing, config, resources.store)
            for block in config.all_blocks:
                if not block.absorbs:
                    yield block.name, _tried(_usable, block, resources)
            yield "shares", _tried(_shares, config, resources.store)
    except AgentMemoryError as error:
        yield "store", ("✗", str(error))


def _records(url: str, copy: str, store: Store) -> Check:
    """Whether each record can be read, and what SQLite says of its file."""
    from agent_memory.engine.edit.repair import look
    from agent_memory.stores.sql.checking import quick_check

    wrong: list[str] | None = []
    if copy.startswith("sqlite:") and copy != url:
        wrong = quick_check(Path(copy.removeprefix("sqlite:///")), _CHECK_SECONDS)
    problems = [f"The file is damaged, in SQLite's words: {one}." for one in wrong or ()]
    problems += [_RESTORE] * bool(problems)
    try:
        looked = look(store, _CHECK_SECONDS)
    except AgentMemoryError as error:  # what was found before is to be told, too
        return _found(problems or [str(error)], "")
    problems += [str(error) for error in looked.damaged if error.damage or not wrong]
    if problems or (looked.is_whole and wrong is not None):
        return _found(problems, "Each can be read.")
    told = f"After {_CHECK_SECONDS:g} s {looked.sessions} sessions were looked at, all sound"
    return NOTHING, f"{told}: `agent-memory doctor --repair` looks at all."


def _opened(url: str, store: Store, schema: str) -> Check:
    shown = common.without_password(url)
    if common.missing_file(url):
        return NOTHING, f"{shown} does not exist yet; the first message makes it."
    counts, note = store.counts(), getattr(store, "durability_note", None)
    gone = " and is gone with the process" if url.startswith("memory:") else ""
    held = f"{counts.sessions} sessions, {counts.entries} messages"
    return "✓", f"{shown} opens{gone}{schema}: {held}.{f' {note()}' if note else ''}"


def _found(problems: Sequence[str], fine: str) -> Check:
    more = [f"{len(problems)} in all."] * (len(problems) > _SHOWN)
    return "✗" if problems else "✓", "\n".join([*problems[:_SHOWN], *more]) or fine


def _vectors(config: AgentMemoryConfig, resources: Resources, call: bool) -> Check:
    from agent_memory.ltm_blocks.vector import VectorMemory

    blocks = [block for block in config.all_blocks if isinstance(block, VectorMemory)]
    models = [block.embedding or config.embedding for block in blocks]
    if not blocks:
        return NOTHING, "No VectorMemory is configured."
    if not call and any(map(is_remote, models)):
        return NOTHING, "Their dimension is the remote embedder's to tell: try --call."
    problems = [problem for block in blocks for problem in block.problems(resources)]
    if not problems and all(map(common.by_words, models)):
        return NOTHING, "There is no embedder: VectorMemory goes by words alone."
    kept = {common.without_password(block.store or "the session store") for block in blocks}
    told = f"Vectors in {', '.join(sorted(kept))} and the embedder agree on their dimension."
    return _found(problems, told)


def _absorbing(config: AgentMemoryConfig, store: Store) -> Check:
    from agent_memory.engine.processing.dead_letters import DeadLetters
    from agent_memory.engine.processing.replay import unfinished
    from agent_memory.engine.system_records import SystemRecords

    letters = DeadLetters(store, config.absorb_attempts)
    names = [block.name for block in config.all_blocks if block.absorbs]
    dead = [str(letter) for name in names for letter in letters.dead(name)]
    failing = {name: error for name in names if (error := letters.failing(name))}
    fails = [
        f"{name} could not absorb, and will try again: {error}"
        for name, error in failing.items()
        if name not in config.lacking_models
    ]
    more = [f"{len(dead)} dead letters: mend the cause, then `agent-memory retry`."] * bool(dead)
    told = [*dead[:_SHOWN], *fails, *config.lacking_models.values(), *more]
    told += unfinished(SystemRecords(store))
    mark = "✗" if dead or fails else NOTHING if told or not store.counts().sessions else "✓"
    return mark, "\n".join(told) or "No failures, no dead letters, no replay stopped half-way."


def _usable(block: Block, resources: Resources) -> Check:
    block.bind(resources).close()
    fine = f"{type(block).__name__} is configured and can be used."
    return _found(block.problems(resources), fine)


def _shares(config: AgentMemoryConfig, store: Store) -> Check:
    from agent_memory.engine.sharing.grants import Grants

    grants = Grants(store)
    found = [grants.agents(share) for share in grants.shares()]
    vain = grants.in_vain(config.shares)
    agents = len({agent for granted in found for agent in granted})
    counted = f"Shared namespaces: {len(found)}; agents with access: {agents}."
    told = [counted if found else "Nothing is shared between agents.", *vain[:_SHOWN]]
    return NOTHING if vain or not found else "✓", "\n".join(told)


def _embedder(config: AgentMemoryConfig, call: bool) -> Check:
    from agent_memory.models.embedders import open_embedder

    if common.by_words(config.embedding):
        return NOTHING, NO_EMBEDDER
    if is_remote(config.embedding) and not call:
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
    found = metadata.version("mcp") if util.find_spec("mcp") else ""
    if found.startswith("2."):
        return "✓", f"mcp {found} is installed: `agent-memory mcp --user ID` can start."
    told = f"{found or 'Not'} installed; `agent-memory mcp` needs version 2: "
    return "✗" if found else NOTHING, f'{told}pip install "agent-memory[mcp]"'
