"""`agent-memory config check`: what a file will do, and what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_memory.cli.common import FAILED, fail, guarded, out
from agent_memory.cli.view import cell, grid

if TYPE_CHECKING:
    from agent_memory.cli.config_layers import Layers
    from agent_memory.cli.config_mistakes import Examined, Finding
    from agent_memory.config.settings import AgentMemoryConfig

_STYLES = {"error": "bold red", "warning": "yellow"}


@guarded
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Settings as TOML, YAML or JSON.")],
) -> None:
    """Say in one screen what a file of settings will do, and all that is wrong with it.

    Opens no store and asks no network: `agent-memory doctor --config FILE` does.
    """
    from agent_memory.config.sources import read_settings

    try:
        stores, findings = examine(read_settings(file))
    except RecursionError:
        fail(f"{file} is nested too deeply: perhaps a table or list in it holds itself.")
    for name, config in stores.items():
        _show_store(name, config)
    _show_findings(file, findings)
    if any(one.level == "error" for one in findings):
        raise typer.Exit(FAILED)


def examine(
    table: Mapping[str, Any],
) -> tuple[dict[str, AgentMemoryConfig | None], list[Finding]]:
    """The stores that a file describes, and what is wrong with it, errors first.

    Args:
        table: What the file holds; the environment is read beside it.

    Returns:
        The settings of each store, None where they are not valid; and the findings.
    """
    from agent_memory.cli.config_layers import Layers
    from agent_memory.cli.config_mistakes import Finding, examined
    from agent_memory.cli.config_remarks import PLACED_BY, places, variables
    from agent_memory.engine.deployment import ONLY, STORES, store_problem

    top = {name: value for name, value in table.items() if name != STORES}
    tables = table.get(STORES, {ONLY: {}})
    if not isinstance(tables, dict) or not tables:
        told = f"This must be a table with a table for each store, [{STORES}.NAME]."
        return {}, [Finding("error", STORES, told)]
    stores: dict[str, Examined] = {}
    found: list[Finding] = []
    for name, own in tables.items():
        if problem := store_problem(name, own):
            found.append(Finding("error", f"{STORES}.{name}", problem))
            continue
        layers = Layers.of(name if STORES in table else None, top, own)
        stores[name] = examined(layers.settings())
        found += _findings(layers, stores[name])
    placed = {name: one.config for name, one in stores.items() if not one.bad & PLACED_BY}
    found += places(placed)
    found += variables(os.environ, {name: one.config for name, one in stores.items()})
    valid = {name: None if one.wrong else one.config for name, one in stores.items()}
    # what stands at the top is found with each store
    return valid, sorted(dict.fromkeys(found), key=lambda one: one.level)


def _findings(layers: Layers, one: Examined) -> Iterator[Finding]:
    from agent_memory.cli.config_mistakes import Finding
    from agent_memory.cli.config_remarks import doubtful, lacking

    for path, told in one.wrong:
        yield Finding("error", layers.place(path), told)
    for fields, told in lacking(one.config):
        if not one.bad & {*fields}:
            yield Finding("error", layers.place(fields[:1]), told)
    for fields, told in doubtful(one.config):
        if not one.bad & {*fields}:
            yield Finding("warning", layers.place(fields[:1]), told)


def _show_store(name: str, config: AgentMemoryConfig | None) -> None:
    from agent_memory.cli.config_words import describe

    out().print(cell(name, "bold"))
    if config is None:
        out().print("  What it will do cannot be told before the errors below are mended.\n")
        return
    table = grid("part", "what it does", header=False)
    for part, told in describe(config):
        table.add_row(cell(f"  {part}", "dim"), cell(told))
    out().print(table)
    out().print()


def _show_findings(file: Path, findings: list[Finding]) -> None:
    table = grid("level", "where", "told", header=False)
    for one in findings:
        table.add_row(cell(one.level, _STYLES[one.level]), cell(one.where), cell(one.told))
    if findings:
        out().print(table)
    out().print(cell(_verdict(file, findings)), soft_wrap=True)


def _verdict(file: Path, findings: list[Finding]) -> str:
    counts = [
        f"{count} {level}" + ("s" if count > 1 else "")
        for level in _STYLES
        if (count := sum(one.level == level for one in findings))
    ]
    wrong = f"{file}: {', '.join(counts) or 'nothing is wrong'}."
    return f"{wrong} No store was opened: `agent-memory doctor --config {file}` does."
