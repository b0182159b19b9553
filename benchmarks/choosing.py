"""What a command is to run, of all that a file has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import typer


class _Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=_Named)


def chosen(
    read: Callable[[Path], Sequence[T]], data: Path, names: Sequence[str], kind: str, option: str
) -> list[T]:
    """What a file has of these names, in its order; all of it where none is named.

    Args:
        read: Reads the file; a ValueError says what is wrong with it.
        data: The file, or folder, as the option `--data` gave it.
        names: As the option gave them.
        kind: What one of them is called in an error.
        option: The option.

    Raises:
        BadParameter: The file cannot be used, or has none of a name.
    """
    try:
        found = read(data)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--data") from None
    if strange := set(names) - {one.name for one in found}:
        there = ", ".join(one.name for one in found) or "none"
        raise typer.BadParameter(
            f"No {kind} is named {min(strange)!r}; there are {there}.", param_hint=option
        )
    return [one for one in found if not names or one.name in names]
