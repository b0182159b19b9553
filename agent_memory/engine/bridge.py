"""Running blocks: an async one from the sync engine, and several at once within a time limit."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def resolve(value: T | Awaitable[T]) -> T:
    """The value, or what awaiting it gives, on an event loop of its own.

    Safe inside a running loop too: then the awaiting is done by another thread.
    """
    if not inspect.isawaitable(value):
        return value

    async def wait() -> T:
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    done, _ = gather({"": lambda: asyncio.run(wait())}, None)
    outcome = done[""]
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def gather(
    calls: Mapping[str, Callable[[], T]], timeout: float | None
) -> tuple[dict[str, T | Exception], list[str]]:
    """Make all calls at once and wait at most `timeout` seconds for them.

    Each runs on a daemon thread, so that one that hangs keeps neither the caller nor the
    interpreter from going on.

    Returns:
        What each call gave or raised, in the order of `calls`; and the names of those unfinished.
    """
    outcomes: dict[str, T | Exception] = {}

    def run(name: str, call: Callable[[], T]) -> None:
        try:
            outcomes[name] = call()
        except Exception as error:  # noqa: BLE001 - handed to the caller, who names it
            outcomes[name] = error

    threads = {
        name: threading.Thread(target=run, args=(name, call), daemon=True, name=f"recall-{name}")
        for name, call in calls.items()
    }
    for thread in threads.values():
        thread.start()
    deadline = None if timeout is None else time.monotonic() + timeout
    for thread in threads.values():
        thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
    finished = dict(outcomes)
    return (
        {name: finished[name] for name in calls if name in finished},
        [name for name in calls if name not in finished],
    )
