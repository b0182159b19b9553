"""`agent-memory doctor`: one line for each part, with what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    out,
)
from agent_memory.cli.config_files import store_files
from agent_memory.cli.doctor_store import NO_EMBEDDER, Check, attempt, check_store, is_remote
from agent_memory.cli.view import NOTHING, cell, grid

if TYPE_CHECKING:
    from agent_memory.config.settings import AgentMemoryConfig

_STYLES = {"✓": "bold green", "✗": "bold red", NOTHING: "yellow"}


@guarded
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
    files = store_files(config).items()
    stores = {name: load_config(store, file, model=model) for name, file in files}
    table = grid("", *(["store"] if len(stores) > 1 else []), "part", "found", header=False)
    failed = False
    for name, check in _all(stores, call):
        failed = failed or check.mark == "✗"
        named = [cell(name)] if len(stores) > 1 else []
        table.add_row(cell(check.mark, _STYLES[check.mark]), *named, check.what, cell(check.told))
    out().print(table)
    if failed:
        raise typer.Exit(FAILED)


def _all(stores: Mapping[str, AgentMemoryConfig], call: bool) -> Iterator[tuple[str, Check]]:
    """What is found of each store, by its name; then what concerns them all."""
    for name, config in stores.items():
        yield from ((name, check) for check in _checks(config, call))
    yield "", _mcp()


def _checks(config: AgentMemoryConfig, call: bool) -> Iterator[Check]:
    yield from check_store(config, call)
    yield attempt("embedder", lambda: _embedder(config, call))
    yield attempt("model", lambda: _model(config, call))


def _embedder(config: AgentMemoryConfig, call: bool) -> Check:
    from agent_memory.models.embedders import open_embedder

    if config.embedding is None and not local_embedder():
        return Check(NOTHING, "embedder", NO_EMBEDDER)
    if is_remote(config.embedding) and not call:
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
    from agent_memory.models.llm import LLM

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
    untried = "It was not asked: --call does."
    if config.api_key is not None:
        return Check("✓", what, f"{model} is configured, with an API key. {untried}")
    missing = missing_keys(model, config)
    if missing:
        return Check("✗", what, f"{model} needs {missing} in the environment, or api_key.")
    if missing is not None:
        return Check("✓", what, f"{model} is configured, and litellm misses no key. {untried}")
    told = f"{model} is configured; whether it needs a key is not known. {untried}"
    return Check(NOTHING, what, told)


def missing_keys(model: str, config: AgentMemoryConfig) -> str | None:
    """The environment variables that a model needs and lacks; None where that is not known."""
    from agent_memory.models.loading import load_litellm

    if config.api_key is not None:
        return ""
    found = load_litellm().validate_environment(model, api_base=config.api_base)
    if found["keys_in_environment"]:
        return ""
    return None if config.api_base is not None else ", ".join(found["missing_keys"]) or None


def _mcp() -> Check:
    """Whether `agent-memory mcp` could start."""
    from importlib.metadata import PackageNotFoundError, version

    install = 'pip install "agent-memory[mcp]"'
    try:
        found = version("mcp")
    except PackageNotFoundError:
        return Check(NOTHING, "mcp", f"Not installed; `agent-memory mcp` needs it: {install}")
    if found.split(".")[0] != "2":
        return Check("✗", "mcp", f"mcp {found} is installed, and version 2 is needed: {install}")
    return Check("✓", "mcp", f"mcp {found} is installed: `agent-memory mcp --user ID` can start.")
