"""Cut lists into pages, each with a cursor to the next. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from pydantic import Field

from agent_memory.server.operation import Form
from agent_memory.server.problems import INVALID, Refused

T = TypeVar("T")
MOST = 500

Limit = Annotated[int, Field(ge=1, le=MOST, description="The maximum number of results.")]
After = Annotated[
    str | None,
    Field(max_length=400, description="The `next` of the previous page; omit for the first page."),
]


class Paged(Form):
    """The input of a call that lists something."""

    limit: Limit = 100
    after: After = None


def cut(found: Sequence[T], limit: int, name: Callable[[T], str]) -> tuple[list[T], str | None]:
    """Return a page, and the name of its last item if there are more.

    Args:
        found: The items in order, one more than `limit` if there are more.
        limit: The size of the page.
        name: Returns the name of an item.
    """
    page = list(found[:limit])
    return page, name(page[-1]) if len(found) > limit else None


def page_of(
    found: Sequence[T], asked: Paged, name: Callable[[T], str]
) -> tuple[list[T], str | None]:
    """Return a page of a complete list, and the name of its last item if there are more.

    Args:
        found: All items, in order.
        asked: The requested page.
        name: Returns the unique name of an item.

    Raises:
        Refused: The item that `after` names does not exist any more.
    """
    begin = 0
    if asked.after is not None:
        places = (place for place, one in enumerate(found, 1) if name(one) == asked.after)
        begin = next(places, 0)
        if not begin:
            raise Refused(INVALID, "`after` names an item that is gone. Start at the first page.")
    return cut(found[begin : begin + asked.limit + 1], asked.limit, name)


def place_of(after: str | None) -> int:
    """Parse `after` as a number; 0 for None.

    Raises:
        Refused: It is not a number.
    """
    if after is None:
        return 0
    if not (after.isascii() and after.isdigit() and len(after) <= 18):
        raise Refused(INVALID, "`after` is not the `next` of a page. Start at the first page.")
    return int(after)
