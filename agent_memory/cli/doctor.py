"""`agent-memory doctor`: check each part, say what to do, and repair damaged records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from agent_memory.cli import common, terminal
from agent_memory.errors import AgentMemoryError, Damaged, install_command

if TYPE_CHECKING:
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.ltm_blocks.base import Block, Resources
    from agent_memory.stores.base import Store


def repair(config: AgentMemoryConfig, *, yes: bool) -> bool:
    """Show how to repair each damaged record, ask, and repair. Return whether no damage is left."""
    from agent_memory import operations

    with common.open_memory(config) as memory:
        left = operations.damaged(memory)
        if not left:
            terminal.say("All records can be read. There is nothing to repair.")
        plans = {error: operations.repair(memory, error, dry_run=True) for error in left}
        for error, plan in plans.items():
            terminal.say(f"{error.damage or error}: {plan or _why(error, memory.blocks)}")
        if any(plans.values()):
            if not yes:
                typer.confirm("Do this?", abort=True)
            # messages are repaired before heads, which are derived from the log
            for error in sorted(plans, key=_rank):
                operations.repair(memory, error)
            left = operations.damaged(memory)
            terminal.say(f"{len(plans)} records were damaged; {len(left)} still are.")
    for error in left:
        terminal.note(str(error), "red")
    return not left


def _why(error: Damaged, blocks: Collection[str]) -> str:
    block = error.damage.block if error.damage else ""
    if not block or block in blocks:
        return "It cannot be repaired."
    return (
        f"It cannot be repaired without the block {block!r}. Run this command with settings that "
        "have this block."
    )


def _rank(error: Damaged) -> int:
    kinds = ("message", "session", "fact", "vector", "file")
    return kinds.index(error.damage.kind) if error.damage else len(kinds)


_STYLES = {"✓": "bold green", "✗": "bold red", terminal.NOTHING: "yellow"}
_SHOWN = 10
_CHECK_SECONDS = 30.0
_RESTORE = "Restore a backup, or save the readable sessions with `agent-memory export`."
_UNCALLED = "It was not called. Use --call to call it."
_OF_STORE = ("store", "migration")

Check = tuple[str, str]
"""A mark and a finding. ✓: it works. ✗: it fails. A dash: any other finding."""


def doctor(
    model: common.ModelOption = None,
    call: Annotated[bool, Option("--call", help="Call the model, and a remote embedder.")] = False,
    mend: Annotated[
        bool, Option("--repair", help="Show how to repair damaged records, ask, and repair them.")
    ] = False,
    yes: common.YesOption = False,
    store: common.StoreOption = None,
    config: common.ConfigOption = None,
) -> None:
    """Check the store, the absorption of messages, the embedder and the model. Say what to do.

    Reads a copy of an SQLite file. Only --repair changes anything.
    """
    files = common.store_files(config)
    settings = {name: common.load_config(store, files[name], model=model) for name in files}
    if mend:
        sound = [repair(store_config, yes=yes) for store_config in settings.values()]
        if not all(sound):
            raise typer.Exit(common.FAILED)
        return
    checks = [(name, *check) for name in files for check in _all(settings[name], call)]
    checks.append(("", "mcp", _mcp()))
    several = len(files) > 1
    listed = terminal.table(("", *["store"] * several, "part", "found"), header=False)
    for name, what, (mark, finding) in checks:
        texts = map(terminal.cell, (*[name] * several, what, finding))
        listed.add_row(terminal.cell(mark, _STYLES[mark]), *texts)
    terminal.out().print(listed)
    if any(mark == "✗" for _, _, (mark, _) in checks):
        raise typer.Exit(common.FAILED)


def _all(config: AgentMemoryConfig, call: bool) -> Iterator[tuple[str, Check]]:
    yield from _store(config.model_copy(update={"system_store": None}), call)
    if config.system_store is not None:
        alone = {"store": config.system_store, "system_store": None, "overflow": None, "blocks": ()}
        checks = _store(config.model_copy(update=alone), call)
        yield from ((f"system {what}", check) for what, check in checks if what in _OF_STORE)
    yield "embedder", _tried(_embedder, config, call)
    yield "model", _tried(_model, config, call)


def _tried(check: Callable[..., Check], *args: Any) -> Check:
    """Run a check and return its finding. An expected error becomes a finding."""
    try:
        return check(*args)
    except AgentMemoryError as error:
        return "✗", str(error)


def _store(config: AgentMemoryConfig, call: bool) -> Iterator[tuple[str, Check]]:
    from agent_memory.engine.assembly import Services
    from agent_memory.engine.transfer.migrate import UNFINISHED, is_unfinished
    from agent_memory.stores import open_store
    from agent_memory.stores.sql.backups import copied

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
    """Check that each record can be read. For a SQLite file, also run SQLite's own check."""
    from agent_memory.engine.edit.repair import look
    from agent_memory.stores.sql.backups import quick_check

    wrong: list[str] | None = []
    if copy.startswith("sqlite:") and copy != url:
        wrong = quick_check(Path(copy.removeprefix("sqlite:///")), _CHECK_SECONDS)
    problems = [f"The file is damaged; SQLite reports: {line}." for line in wrong or ()]
    problems += [_RESTORE] * bool(problems)
    try:
        looked = look(store, _CHECK_SECONDS)
    except AgentMemoryError as error:  # probably a consequence of the earlier findings
        return _verdict(problems or [str(error)], "")
    problems += [str(error) for error in looked.damaged if error.damage or not wrong]
    if problems or (looked.is_complete and wrong is not None):
        return _verdict(problems, "All records can be read.")
    text = f"Stopped after {_CHECK_SECONDS:g} s: {looked.sessions} sessions are undamaged"
    return terminal.NOTHING, f"{text}. `agent-memory doctor --repair` checks all sessions."


def _opened(url: str, store: Store, schema: str) -> Check:
    shown = common.without_password(url)
    if common.missing_file(url):
        return terminal.NOTHING, f"{shown} does not exist yet; the first message creates it."
    store.unlock("doctor", "doctor")  # changes nothing, but a read-only PostgreSQL refuses it
    counts, durability = store.counts(), getattr(store, "durability_note", None)
    gone = ", and its data is lost when the process ends" if url.startswith("memory:") else ""
    held = f"{counts.sessions} sessions, {counts.entries} messages"
    return "✓", f"{shown} opens{gone}{schema}: {held}.{f' {durability()}' if durability else ''}"


def _verdict(problems: Sequence[str], fine: str) -> Check:
    more = [f"{len(problems)} in all."] * (len(problems) > _SHOWN)
    return "✗" if problems else "✓", "\n".join([*problems[:_SHOWN], *more]) or fine


def _vectors(config: AgentMemoryConfig, resources: Resources, call: bool) -> Check:
    from agent_memory.ltm_blocks.vector import VectorMemory
    from agent_memory.models.embedders import is_remote

    blocks = [block for block in config.all_blocks if isinstance(block, VectorMemory)]
    models = [block.embedding or config.embedding for block in blocks]
    if not blocks:
        return terminal.NOTHING, "No VectorMemory is configured."
    if not call and any(map(is_remote, models)):
        return terminal.NOTHING, "The remote embedder sets the dimension. Check it with --call."
    problems = [problem for block in blocks for problem in block.problems(resources)]
    if not problems and all(map(common.by_words, models)):
        return terminal.NOTHING, "There is no embedder: VectorMemory searches by words only."
    stores = {common.without_password(block.store or "the session store") for block in blocks}
    text = f"Vectors in {', '.join(sorted(stores))} have the embedder's dimension."
    return _verdict(problems, text)


def _absorbing(config: AgentMemoryConfig, store: Store) -> Check:
    from agent_memory.engine.processing.failures import DeadLetters
    from agent_memory.engine.processing.session_work import unfinished_replays
    from agent_memory.engine.system_records import SystemRecords

    letters = DeadLetters(store, config.absorb_attempts)
    names = [block.name for block in config.all_blocks if block.absorbs]
    dead = [str(letter) for name in names for letter in letters.dead(name)]
    failing = {name: error for name in names if (error := letters.newest_error(name))}
    fails = [
        f"{name} failed to absorb and will retry: {error}"
        for name, error in failing.items()
        if name not in config.lacking_models
    ]
    more = [f"{len(dead)} dead letters: fix the cause, then run `agent-memory retry`."] * bool(dead)
    lines = [*dead[:_SHOWN], *fails, *config.lacking_models.values(), *more]
    lines += unfinished_replays(SystemRecords(store))
    mark = (
        "✗" if dead or fails else terminal.NOTHING if lines or not store.counts().sessions else "✓"
    )
    return mark, "\n".join(lines) or "No failures, no dead letters, no unfinished replay."


def _usable(block: Block, resources: Resources) -> Check:
    block.bind(resources).close()
    fine = f"{type(block).__name__} is configured and works."
    return _verdict(block.problems(resources), fine)


def _shares(config: AgentMemoryConfig, store: Store) -> Check:
    from agent_memory.engine.sharing.grants import Grants

    grants = Grants(store)
    shares = [grants.agents(share) for share in grants.shares()]
    vain = grants.overridden(config.shares)
    agents = len({agent for granted in shares for agent in granted})
    counted = f"Shared namespaces: {len(shares)}; agents with access: {agents}."
    lines = [counted if shares else "There are no shared namespaces.", *vain[:_SHOWN]]
    return terminal.NOTHING if vain or not shares else "✓", "\n".join(lines)


def _embedder(config: AgentMemoryConfig, call: bool) -> Check:
    from agent_memory.models.embedders import is_remote, open_embedder

    if common.by_words(config.embedding):
        return terminal.NOTHING, common.NO_EMBEDDER
    if is_remote(config.embedding) and not call:
        return _key(str(config.embedding), config)
    base, key, seconds = config.api_base, config.api_key, config.model_timeout
    embedder = open_embedder(config.embedding, api_base=base, api_key=key, timeout=seconds)
    length = embedder.embed(["Is anyone there?"]).shape[1]
    return "✓", f"{embedder.name} loads and returns {length} numbers per text."


def _model(config: AgentMemoryConfig, call: bool) -> Check:
    from agent_memory.models.llm import LLM

    if config.model is None:
        text = "No model is configured: summaries are quotes, and no facts are extracted. "
        return (
            terminal.NOTHING,
            f"{text}Set AGENT_MEMORY_MODEL or `model`, such as openai/gpt-4o-mini.",
        )
    if not call:
        return _key(config.model, config)
    base, key, seconds = config.api_base, config.api_key, config.model_timeout
    llm = LLM(config.model, api_base=base, api_key=key, timeout=seconds, attempts=1)
    llm.complete([{"role": "user", "content": "Answer with the word ok."}])
    return "✓", f"{config.model} answers."


def _key(model: str, config: AgentMemoryConfig) -> Check:
    """Check that a model has its key, without calling it."""
    from agent_memory.models.loading import load_litellm

    litellm = load_litellm()
    try:
        litellm.get_llm_provider(model, api_base=config.api_base)
    except litellm.BadRequestError:
        text = f"{model} names no provider that litellm knows. Name it as provider/model, such as"
        return "✗", f"{text} openai/gpt-4o-mini."
    environment = litellm.validate_environment(model, api_base=config.api_base)
    if config.api_key is not None or environment["keys_in_environment"]:
        return "✓", f"{model} is configured; no key is missing. {_UNCALLED}"
    if config.api_base is None and environment["missing_keys"]:
        missing = ", ".join(environment["missing_keys"])
        return "✗", f"{model} needs {missing} in the environment, or api_key."
    return (
        terminal.NOTHING,
        f"{model} is configured; whether it needs a key is not known. {_UNCALLED}",
    )


def _mcp() -> Check:
    version = metadata.version("mcp") if util.find_spec("mcp") else ""
    if version.startswith("2."):
        return "✓", f"mcp {version} is installed: `agent-memory mcp --user ID` can start."
    text = f"{version or 'Not'} installed; `agent-memory mcp` needs version 2: "
    return "✗" if version else terminal.NOTHING, f"{text}{install_command('mcp')}"
