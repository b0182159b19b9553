"""Pages of what is listed: some, and what to ask for the rest with. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from pydantic import Field

from agent_memory.server.operation import Form
from agent_memory.server.problems import INVALID, Refused

T = TypeVar("T")
MOST = 500

Limit = Annotated[int, Field(ge=1, le=MOST, description="At most so many.")]
After = Annotated[
    str | None,
    Field(max_length=400, description="The `next` of the page before; without it the first page."),
]
Next = Annotated[
    str | None, Field(description="What to give as `after` for what follows; null where nothing.")
]


class Paged(Form):
    """What a call takes that lists something."""

    limit: Limit = 100
    after: After = None


def cut(found: Sequence[T], limit: int, name: Callable[[T], str]) -> tuple[list[T], str | None]:
    """A page of what was found, and the name of its last where there is more.

    Args:
        found: In order; one more than the page holds, where there is more.
        limit: How many the page holds.
        name: How one is named.
    """
    page = list(found[:limit])
    return page, name(page[-1]) if len(found) > limit else None


def page_of(
    found: Sequence[T], asked: Paged, name: Callable[[T], str]
) -> tuple[list[T], str | None]:
    """A page of what is all there.

    Args:
        found: All of it, in order.
        asked: Which page.
        name: How one is named; no two alike.

    Raises:
        Refused: What the page is to begin after is not there any more.
    """
    begin = 0
    if asked.after is not None:
        places = (place for place, one in enumerate(found, 1) if name(one) == asked.after)
        begin = next(places, 0)
        if not begin:
            raise Refused(INVALID, "What `after` names is not there any more. Begin anew.")
    return cut(found[begin : begin + asked.limit + 1], asked.limit, name)


def place_of(after: str | None) -> int:
    """The number after which a page begins, where things are numbered.

    Raises:
        Refused: It is no such number.
    """
    if after is None:
        return 0
    if not (after.isascii() and after.isdigit() and len(after) <= 18):
        raise Refused(INVALID, "`after` is not what a page gave as `next`. Begin anew.")
    return int(after)
