"""`agent-memory config`: check a file of settings, print the schema or the settings in force."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument

from agent_memory.cli import common, terminal
from agent_memory.errors import ConfigError, InvalidShares

if TYPE_CHECKING:
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.ltm_blocks.base import Block
    from agent_memory.strategies.base import Strategy

_USUAL = {"max_stm_ratio": 1.0, "by": "age"}
"""Default values that are not shown."""

_WORDS = {"by", "folder", "roles", "store"}
"""Fields of strategies and blocks whose texts are shown. Other texts are not shown."""


def check(file: Annotated[Path, Argument(help="Settings as TOML, YAML or JSON.")]) -> None:
    """Describe on one screen what a configuration file does, or list its errors.

    Opens no store and uses no network. `agent-memory doctor --config FILE` checks the stores.
    """
    configs: dict[str, AgentMemoryConfig] = {}
    errors: list[str] = []
    for name, place in common.store_files(file).items():
        try:
            configs[name] = common.read_config(place, {})
        except ConfigError as error:
            errors += _mistakes(error, common.settings_in(place or file)[1])
    if errors:
        common.fail("\nerror: ".join(errors), common.BAD_SETTINGS)
    for name, config in configs.items():
        rows = ((terminal.cell(f"  {part}", "dim"), text) for part, text in describe(config))
        parts = terminal.table(("part", "what it does"), rows, header=False)
        terminal.out().print(terminal.cell(name, "bold"), parts, "", sep="\n")
    terminal.say(f"{file}: no errors. To open the stores: `agent-memory doctor --config {file}`")


def _mistakes(error: ConfigError, table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text of an error, and of errors that it hides: those of each setting alone."""
    from agent_memory.config.settings import AgentMemoryConfig

    yield common.line_of(error)
    for name, value in table.items():
        try:
            AgentMemoryConfig.alone(**{name: value})
        except InvalidShares:  # the setting may fit the others
            continue
        except ConfigError as further:
            if str(further) not in str(error):
                further.__notes__ = getattr(error, "__notes__", [])
                yield common.line_of(further)


def describe(config: AgentMemoryConfig) -> Iterator[tuple[str, str]]:
    """Yield a name and a description for each part of a store's configuration."""
    from agent_memory.models.embedders import is_remote

    store = common.without_password(str(config.store))
    if store.startswith("memory:"):
        store += ", lost when the process ends"
    elif config.durability == "process":
        store += ", a power loss may lose the newest updates"
    if config.system_store is not None:
        store += f"; system messages in {common.without_password(str(config.system_store))}"
    yield "store", f"{store}; namespace {config.namespace}"
    most = f", and {config.max_messages:,} messages" if config.max_messages is not None else ""
    recalls = f"; {config.recall_tokens:,} of them for recalls" if config.all_blocks else ""
    yield "capacity", f"{config.max_tokens:,} tokens{recalls}{most}"
    yield "when full", described(config.strategy, config.model)
    blocks = [described(block, config.model) for block in config.all_blocks]
    yield "blocks", "\n".join(blocks) or "none"
    if blocks:
        when = {"overflow": "messages that leave the window", "every_update": "each message"}
        absorbs = config.strategy.absorbs
        pending = when[absorbs] if isinstance(absorbs, str) else f"{absorbs:,} pending tokens"
        yield "absorbing", f"blocks absorb {pending}"
    name = config.embedding or "local"
    yield "embedder", f"{name}, {'over the network' if is_remote(name) else 'in this process'}"
    at = f" at {common.without_password(config.api_base)}" if config.api_base else ""
    yield "model", f"{config.model}{at}" if config.model else "none"
    old = "" if config.retention == "window" else f" older than {config.retention}"
    goes = f"messages{old} are deleted when out of the window and absorbed by all blocks"
    stays = "messages are stored without a time limit" if config.retention == "forever" else goes
    yield "retention", stays.replace(", 0:00:00", "")
    work = f"overflows are handled after updates by {config.background_threads} threads"
    if config.idle_minutes:
        work += f"; sessions idle for {config.idle_minutes:g} minutes are absorbed completely"
    inline = config.overflow_mode == "inline"
    yield "work", "overflows are handled within updates" if inline else work
    yield "encryption", _variable(config) or "none"
    for space, grants in config.shares.items():
        yield f"share {space}", ", ".join(map(" may ".join, grants.items())) or "nobody"


def described(part: Block | Strategy, model: str | None) -> str:
    """Describe a block or strategy: the first paragraph of its class, and its settings."""
    if members := getattr(part, "members", ()):
        return "\n".join(described(member, model) for member in members)
    sentence = " ".join((type(part).__doc__ or "a class of your own").split("\n\n")[0].split())
    name = getattr(part, "name", part.kind)
    notes = [f"named {name}"] if name != part.kind else []
    for field, value in part:
        if field in _USUAL and value == _USUAL[field]:
            continue
        if isinstance(value, tuple):
            value = ", ".join(value) if field in _WORDS else len(value)
        if isinstance(value, int | float) or (field in _WORDS and value is not None):
            notes.append(f"{field} {common.without_password(str(value))}")
    notes += [f"asks {name or model or 'no model'}" for name in part.language_models]
    return f"{part.kind}: {sentence.rstrip('.')}" + (f" ({', '.join(notes)})" if notes else "")


app = typer.Typer(
    help="Check a configuration file, print the JSON schema or the settings in force.",
    no_args_is_help=True,
)
app.command()(check)

_MASK = "***"


@app.command()
def schema() -> None:
    """Print the JSON schema of configuration files, including deployments."""
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.engine.deployment import STORES

    document = AgentMemoryConfig.model_json_schema()
    store = {name: document[name] for name in ("properties", "additionalProperties", "type")}
    document.setdefault("$defs", {})["Store"] = {**store, "title": "Store"}
    stores = {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"$ref": "#/$defs/Store"},
    }
    document["properties"] = {**document["properties"], STORES: stores}
    _print(document)


@app.command()
@common.with_settings
def show(settings: AgentMemoryConfig) -> None:
    """Print the settings in force as JSON, without secrets.

    The settings come from the options, the environment (AGENT_MEMORY_*), the file and the defaults.
    """
    values = settings.model_dump(mode="json")
    values["overflow"] = settings.strategy.model_dump(mode="json")
    values["api_key"] = _MASK if settings.api_key else None
    values["encryption"] = _variable(settings)
    _print(values)


def _variable(config: AgentMemoryConfig) -> str | None:
    name = config.encryption  # an invalid name may be a key, so it is masked
    return name if name is None or name.isidentifier() else _MASK


def _print(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
