"""`agent-memory doctor`: one line for each part, with what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from agent_memory.cli.common import (
    FAILED,
    ConfigOption,
    ModelOption,
    StoreOption,
    guarded,
    load_config,
    local_embedder,
    missing_file,
    out,
    without_password,
)
from agent_memory.cli.view import NOTHING, cell, grid
from agent_memory.errors import AgentMemoryError

if TYPE_CHECKING:
    from agent_memory.config import AgentMemoryConfig

_STYLES = {"✓": "bold green", "✗": "bold red", NOTHING: "yellow"}
_NO_EMBEDDER = 'The local embedder is not installed. Install it: pip install "agent-memory[local]"'


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


@guarded
def doctor(
    model: ModelOption = None,
    call: Annotated[
        bool, typer.Option("--call", help="Ask the model, and a remote embedder, for real.")
    ] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Check the store, the vectors, the embedder and the model: a line each, with what to do."""
    settings = load_config(store, config, model=model)
    table = grid("", "part", "found", header=False)
    failed = False
    for check in _checks(settings, call):
        failed = failed or check.mark == "✗"
        table.add_row(cell(check.mark, _STYLES[check.mark]), check.what, cell(check.told))
    out().print(table)
    if failed:
        raise typer.Exit(FAILED)


def _checks(config: AgentMemoryConfig, call: bool) -> Iterator[Check]:
    parts: dict[str, Callable[[], Check]] = {
        "store": lambda: _store(config),
        "vectors": lambda: _vectors(config, call),
        "embedder": lambda: _embedder(config, call),
        "model": lambda: _model(config, call),
    }
    for what, check in parts.items():
        try:
            yield check()
        except AgentMemoryError as error:
            yield Check("✗", what, str(error))


def _store(config: AgentMemoryConfig) -> Check:
    from contextlib import closing

    from agent_memory.stores import open_store

    url = without_password(config.store)
    if missing_file(config.store):
        return Check(NOTHING, "store", f"{url} does not exist yet; the first message makes it.")
    with closing(open_store(config.store, config.namespace)) as opened:
        counts = opened.counts()
    held = f"{counts.sessions} sessions, {counts.entries} messages"
    return Check("✓", "store", f"{url} opens{_schema(config.store)}: {held}.")


def _schema(url: str) -> str:
    if url.startswith("memory:"):
        return " and is gone with the process"
    from agent_memory.stores.sql_migrations import STEPS

    return f", schema version {1 + len(STEPS)}"


def _vectors(config: AgentMemoryConfig, call: bool) -> Check:
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.ltm_blocks.vector import VectorMemory

    blocks = [block for block in config.all_blocks if isinstance(block, VectorMemory)]
    if not blocks:
        told = "No VectorMemory is configured."
        return Check(NOTHING, "vectors", told if local_embedder() else f"{told} {_NO_EMBEDDER}")
    if not call and any(_is_remote(block.embedding or config.embedding) for block in blocks):
        return Check(
            NOTHING, "vectors", "Their dimension is the remote embedder's to tell: try --call."
        )
    if missing_file(config.store):  # not to be made by looking at it
        config = config.model_copy(update={"store": "memory://"})
    with AgentMemory(config):  # binding a block compares its dimension with the stored one
        places = {block.store or "the session store" for block in blocks}
    kept = ", ".join(without_password(place) for place in sorted(places))
    return Check("✓", "vectors", f"Vectors in {kept} and the embedder agree on their dimension.")


def _embedder(config: AgentMemoryConfig, call: bool) -> Check:
    from agent_memory.embedders import open_embedder

    if config.embedding is None and not local_embedder():
        wanted = any(block.kind == "vector" for block in config.all_blocks)
        return Check("✗" if wanted else NOTHING, "embedder", _NO_EMBEDDER)
    if _is_remote(config.embedding) and not call:
        return _key(str(config.embedding), config, "embedder")
    embedder = open_embedder(
        config.embedding,
        api_base=config.api_base,
        api_key=config.api_key,
        timeout=config.model_timeout,
    )
    length = embedder.embed(["Is anyone there?"]).shape[1]
    return Check("✓", "embedder", f"{embedder.name} loads and gives {length} numbers a text.")


def _model(config: AgentMemoryConfig, call: bool) -> Check:
    from agent_memory.llm import LLM

    if config.model is None:
        return Check(
            NOTHING,
            "model",
            "None is configured: summaries are local extracts, and fact extraction waits. "
            "Set AGENT_MEMORY_MODEL or `model`, such as openai/gpt-4o-mini.",
        )
    if not call:
        return _key(config.model, config, "model")
    llm = LLM(
        config.model,
        api_base=config.api_base,
        api_key=config.api_key,
        timeout=config.model_timeout,
        attempts=1,
    )
    llm.complete([{"role": "user", "content": "Answer with the word ok."}])
    return Check("✓", "model", f"{config.model} answers.")


def _key(model: str, config: AgentMemoryConfig, what: str) -> Check:
    """Whether a model has its key, as far as can be told without asking it."""
    from agent_memory.llm import load_litellm

    untried = "It was not asked: --call does."
    if config.api_key is not None:
        return Check("✓", what, f"{model} is configured, with an API key. {untried}")
    found = load_litellm().validate_environment(model, api_base=config.api_base)
    if found["keys_in_environment"]:
        return Check("✓", what, f"{model} is configured, and litellm misses no key. {untried}")
    missing = ", ".join(found["missing_keys"])
    if missing and config.api_base is None:
        return Check("✗", what, f"{model} needs {missing} in the environment, or api_key.")
    told = f"{model} is configured; whether it needs a key is not known. {untried}"
    return Check(NOTHING, what, told)


def _is_remote(embedding: str | None) -> bool:
    return embedding is not None and embedding != "local" and not embedding.startswith("fastembed/")
