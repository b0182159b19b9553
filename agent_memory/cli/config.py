"""`agent-memory config`: the schema of settings, those in force, and what a file will do."""

from __future__ import annotations

import json
from typing import Any

import typer

from agent_memory.cli import config_check
from agent_memory.cli.common import (
    ConfigOption,
    StoreOption,
    guarded,
    load_config,
)

app = typer.Typer(
    help="Check a configuration file, print its JSON schema, or the settings in force.",
    no_args_is_help=True,
)
app.command()(config_check.check)

_MASK = "***"


@app.command()
@guarded
def schema() -> None:
    """Print the JSON schema of configuration files, deployments included."""
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.engine.deployment import STORES

    told = AgentMemoryConfig.model_json_schema()
    store = {name: told[name] for name in ("properties", "additionalProperties", "type")}
    told.setdefault("$defs", {})["Store"] = {**store, "title": "Store"}
    stores = {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"$ref": "#/$defs/Store"},
    }
    told["properties"] = {**told["properties"], STORES: stores}
    _print(told)


@app.command()
@guarded
def show(store: StoreOption = None, config: ConfigOption = None) -> None:
    """Print the settings in force as JSON, without secrets.

    These come from the options, the environment (AGENT_MEMORY_*), the file and the defaults.
    """
    settings = load_config(store, config)
    told = settings.model_dump(mode="json")
    told["overflow"] = settings.strategy.model_dump(mode="json")
    told["api_key"] = _MASK if settings.api_key else None
    _print(told)


def _print(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
