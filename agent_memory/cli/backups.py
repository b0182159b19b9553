"""Whole stores as files: backup, and what `restore` does with one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent_memory.cli.common import (
    ConfigOption,
    StoreOption,
    err,
    existing,
    guarded,
    load_config,
    missing_file,
    out,
    without_password,
)


@guarded
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")],
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Write a whole store to a file, for `restore`: all users and namespaces of a SQLite database.

    The store as it is at one moment; others may go on writing meanwhile. The file is checked,
    readable by its owner alone, and appears once it is whole, in place of what was there.
    """
    from agent_memory.stores.sql.backups import back_up

    settings = existing(load_config(store, config))
    url = str(settings.store)
    back_up(url, file)
    told = f"{file} holds what {without_password(url)} held."
    out().print(told, markup=False, soft_wrap=True)
    apart = [f"what the block {one.name!r} keeps" for one in settings.all_blocks if one.store]
    apart += ["system messages"] * (settings.system_store is not None)
    if apart:
        told = f"In stores of their own: {', '.join(apart)}. Back these up too, with --store."
        err().print(told, style="yellow", markup=False)


def restore_store(file: Path, url: str, yes: bool) -> None:
    """Put a backup in the place of a store, after a question if there is one."""
    from agent_memory.stores.sql.backups import put_back

    shown = without_password(url)
    if not yes and url.startswith("sqlite:") and missing_file(url) is None:
        typer.confirm(f"Replace {shown} by {file}? What it holds now will be gone.", abort=True)
    put_back(file, url)
    told = f"{shown} is restored from {file}. Start anew what still has it open."
    out().print(told, markup=False, soft_wrap=True)
