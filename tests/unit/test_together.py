"""Brief calls that are made together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from agent_memory.server.together import Together

T = TypeVar("T")

Call = Callable[[], Any]


def all_made(calls: Sequence[Call]) -> list[Any]:
    """What comes of calls."""
    return [_made(call) for call in calls]


def _made(call: Call) -> Any:
    try:
        return call()
    except IndexError as error:
        return error


class Turns:
    """Runs calls here, each once the loop has had its turn, and counts."""

    def __init__(self) -> None:
        self.count = 0
        self.failure: Exception | None = None

    async def run(self, call: Callable[[], T], /) -> T:
        self.count += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return call()


def test_calls_that_come_one_after_the_other_are_all_made() -> None:
    """Wrong: one that comes right when the last turn has ended waits for a turn that nobody has."""

    async def main() -> list[int]:
        together = Together(Turns().run, all_made, 1, 60)
        return [await together.made(lambda n=n: n) for n in range(5)]  # type: ignore[misc]

    assert asyncio.run(asyncio.wait_for(main(), 30)) == [0, 1, 2, 3, 4]


def test_those_that_wait_share_a_turn() -> None:
    """Wrong: each takes a thread of its own; or what one gives another gets."""
    turns = Turns()

    async def main() -> list[int]:
        together = Together(turns.run, all_made, 1, 60)
        return await asyncio.gather(*[together.made(lambda n=n: n) for n in range(20)])  # type: ignore[misc]

    assert asyncio.run(main()) == list(range(20))
    assert turns.count <= 2


def test_one_that_fails_fails_alone() -> None:
    """Wrong: who waits in the same turn gets the error of another, or no answer."""

    async def main() -> list[Any]:
        together = Together(Turns().run, all_made, 1, 60)
        calls: list[Callable[[], Any]] = [lambda: 1, lambda: [][0], lambda: 3]
        return await asyncio.gather(*map(together.made, calls), return_exceptions=True)

    first, second, third = asyncio.run(main())
    assert (first, third) == (1, 3)
    assert isinstance(second, IndexError)


def test_where_no_turn_can_be_had_all_are_told() -> None:
    """Wrong: they wait for ever, or none can come after them."""
    turns = Turns()
    turns.failure = RuntimeError("can't start new thread")

    async def main() -> tuple[list[Any], int]:
        together = Together(turns.run, all_made, 1, 60)
        made = [together.made(lambda: 1) for _ in range(3)]
        told = await asyncio.gather(*made, return_exceptions=True)
        turns.failure = None
        return told, await together.made(lambda: 2)

    told, after = asyncio.run(asyncio.wait_for(main(), 30))
    assert [str(one) for one in told] == ["can't start new thread"] * 3
    assert after == 2


def test_one_whose_caller_has_gone_is_not_begun() -> None:
    """Wrong: what nobody waits for any more keeps others waiting; or it breaks their turn."""
    made: list[str] = []

    async def main() -> None:
        together = Together(Turns().run, all_made, 1, 60)
        first = asyncio.ensure_future(together.made(lambda: made.append("first")))
        await asyncio.sleep(0)  # it has begun
        gone = asyncio.ensure_future(together.made(lambda: made.append("gone")))
        last = asyncio.ensure_future(together.made(lambda: made.append("last")))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(first, last)
        with pytest.raises(asyncio.CancelledError):
            await gone

    asyncio.run(main())
    assert made == ["first", "last"]


def test_a_turn_that_hangs_is_given_up() -> None:
    """Wrong: a store that does not answer keeps a request waiting for ever, and all after it."""
    made = 0

    async def run(call: Callable[[], T], /) -> T:
        nonlocal made
        made += 1
        if made == 1:
            await asyncio.Event().wait()
        return call()

    async def main() -> int:
        together = Together(run, all_made, 1, 0.01)
        with pytest.raises(TimeoutError):
            await together.made(lambda: 1)
        return await together.made(lambda: 2)

    assert asyncio.run(asyncio.wait_for(main(), 30)) == 2
