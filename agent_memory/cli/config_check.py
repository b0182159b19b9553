"""`agent-memory config check`: what a file will do, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_memory.cli.common import FAILED, fail, guarded, out, without_password
from agent_memory.cli.view import cell, grid
from agent_memory.models.embedders import is_remote

if TYPE_CHECKING:
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.ltm_blocks.base import Block
    from agent_memory.strategies.base import Strategy

_STYLES = {"error": "bold red", "warning": "yellow"}
_UNKNOWN = [("", "What it will do cannot be told before the errors below are mended.")]
_USUAL = {"max_stm_ratio": 1.0, "by": "age"}
"""Settings that are not worth a word as they are."""

_WORDS = {"by", "folder", "roles", "store"}
"""The fields of strategies and blocks whose words are told; of others, the numbers are."""


@guarded
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Settings as TOML, YAML or JSON.")],
) -> None:
    """Say in one screen what a file of settings will do, and all that is wrong with it.

    Opens no store and asks no network: `agent-memory doctor --config FILE` does.
    """
    from agent_memory.cli.config_mistakes import examine
    from agent_memory.config.sources import read_settings

    try:
        stores, findings = examine(read_settings(file))
    except RecursionError:
        fail(f"{file} is nested too deeply: perhaps a table or list in it holds itself.")
    for name, config in stores.items():
        table = grid("part", "what it does", header=False)
        for part, told in describe(config) if config is not None else _UNKNOWN:
            table.add_row(cell(f"  {part}", "dim"), cell(told))
        out().print(cell(name, "bold"), table, "", sep="\n")
    table = grid("level", "where", "told", header=False)
    for level, where, told in findings:
        table.add_row(cell(level, _STYLES[level]), cell(where), cell(told))
    if findings:
        out().print(table)
    levels = [level for level, _, _ in findings]
    told = f"{levels.count('error')} errors, {levels.count('warning')} warnings"
    told = f"{file}: {told if levels else 'nothing is wrong'}. No store was opened: "
    out().print(cell(f"{told}`agent-memory doctor --config {file}` does."), soft_wrap=True)
    if "error" in levels:
        raise typer.Exit(FAILED)


def describe(config: AgentMemoryConfig) -> Iterator[tuple[str, str]]:
    """Each part of a store, and what will become of it: one line of a table each."""
    store = without_password(str(config.store))
    if store.startswith("memory:"):
        store += ", gone with the process"
    elif config.durability == "power":
        store += ", each update safe from power loss"
    if config.system_store is not None:
        store += f"; system messages in {without_password(str(config.system_store))}"
    yield "store", f"{store}; namespace {config.namespace}"
    most = f", and {config.max_messages:,} messages" if config.max_messages is not None else ""
    recalls = f"; {config.recall_tokens:,} of them for recalls" if config.all_blocks else ""
    yield "capacity", f"{config.max_tokens:,} tokens{recalls}{most}"
    yield "when full", described(config.strategy, config.model)
    blocks = [described(block, config.model) for block in config.all_blocks]
    yield "blocks", "\n".join(blocks) or "none"
    if blocks:
        when = {"overflow": "what leaves the window", "every_update": "each message at once"}
        absorbs = config.strategy.absorbs
        told = when[absorbs] if isinstance(absorbs, str) else f"once {absorbs:,} tokens wait"
        yield "absorbing", f"blocks absorb {told}"
    name = config.embedding or "local"
    yield "embedder", f"{name}, {'asked over the network' if is_remote(name) else 'run here'}"
    at = f" at {without_password(config.api_base)}" if config.api_base else ""
    yield "model", f"{config.model}{at}" if config.model else "none"
    time = "" if config.retention == "window" else f"{config.retention} after its time, "
    goes = f"a message goes {time}once it left the window and every block absorbed it"
    kept = "messages are kept for ever" if config.retention == "forever" else goes
    yield "retention", kept.replace(", 0:00:00", "")
    work = f"room is made after updates, threads here: {config.background_threads}"
    if config.idle_minutes:
        work += f"; a session silent for {config.idle_minutes:g} minutes is absorbed wholly"
    inline = config.overflow_mode == "inline"
    yield "work", "updates make room before they return" if inline else work
    variable = config.encryption or "none"  # what is no name may be a key
    yield "encryption", variable if variable.isidentifier() else "***"
    for space, grants in config.shares.items():
        yield f"share {space}", ", ".join(map(" may ".join, grants.items())) or "nobody"


def described(one: Block | Strategy, model: str | None) -> str:
    """What a block or strategy does: the first sentence of its class, and its settings."""
    if members := getattr(one, "members", ()):
        return "\n".join(described(member, model) for member in members)
    sentence = " ".join((type(one).__doc__ or "a class of your own").split("\n\n")[0].split())
    name = getattr(one, "name", one.kind)
    told = [f"named {name}"] if name != one.kind else []
    for field, value in one:
        if field in _USUAL and value == _USUAL[field]:
            continue
        if isinstance(value, tuple):
            value = ", ".join(value) if field in _WORDS else len(value)
        if isinstance(value, int | float) or (field in _WORDS and value is not None):
            told.append(f"{field} {without_password(str(value))}")
    told += [f"asks {name or model or 'no model'}" for name in one.language_models]
    return f"{one.kind}: {sentence.rstrip('.')}" + (f" ({', '.join(told)})" if told else "")
