"""`agent-memory config`: the schema of the configuration, and the one in force."""

from __future__ import annotations

import json
from typing import Any

import typer

from agent_memory.cli.common import (
    ConfigOption,
    StoreOption,
    guarded,
    load_config,
    without_password,
)

app = typer.Typer(
    help="Print the configuration's JSON schema, or the configuration in force.",
    no_args_is_help=True,
)

_MASK = "***"


@app.command()
@guarded
def schema() -> None:
    """Print the JSON schema of configuration files."""
    from agent_memory.config import AgentMemoryConfig

    _print(AgentMemoryConfig.model_json_schema())


@app.command()
@guarded
def show(store: StoreOption = None, config: ConfigOption = None) -> None:
    """Print the settings in force as JSON, without secrets.

    These come from the options, the environment (AGENT_MEMORY_*), the file and the defaults.
    """
    settings = load_config(store, config)
    told = settings.model_dump(mode="json")
    told["overflow"] = settings.strategy.model_dump(mode="json")
    for field in ("store", "system_store"):
        if told[field] is not None:
            told[field] = without_password(str(getattr(settings, field)))
    told["api_key"] = _MASK if settings.api_key else None
    _print(told)


def _print(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
