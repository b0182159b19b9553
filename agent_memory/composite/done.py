"""One call made of several members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from agent_memory.core.records import Absorbed
from agent_memory.errors import StoreError

T = TypeVar("T")


def all_done(what: str, calls: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """Make all calls, one after the other; what they gave.

    Raises:
        StoreError: Some failed; it names them.
    """
    done: dict[str, T] = {}
    failed: dict[str, Exception] = {}
    for name, call in calls.items():
        try:
            done[name] = call()
        except Exception as error:  # noqa: BLE001 - the others come first; then it is raised
            failed[name] = error
    if failed:
        told = "; ".join(f"{name!r}: {type(e).__name__}: {e}" for name, e in failed.items())
        raise StoreError(
            f"{what}() failed in {told}. The other members are done; call it again."
        ) from next(iter(failed.values()))
    return done


def named(name: str, absorbed: Iterable[Absorbed]) -> list[Absorbed]:
    """What a member's blocks absorbed, under "<member>.<block>"."""
    return [replace(one, block=f"{name}.{one.block}") for one in absorbed]
