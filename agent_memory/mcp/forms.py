"""Inputs and structured outputs of the MCP server's tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from agent_memory.engine.reading import Kind, Query, ReadMessage


class Search(Query):
    """The input of `search_memories`."""

    limit: int = Field(default=10, ge=1, le=50, description="The maximum number of results.")
    after: str = Field(
        default="",
        max_length=200,
        description="For a list without a query: the `next` of the page before.",
    )


class ReadOn(ReadMessage):
    """The input of `memory_read_message` without a current conversation."""

    session_id: str | None = Field(description="The conversation, from search_memories.")


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a long message: the arguments of `memory_read_message` to read on.

    Attributes:
        session_id: The session.
        seq: The message's seq.
        offset: The first character to read.
    """

    session_id: str
    seq: int
    offset: int


@dataclass(frozen=True, slots=True)
class Memory:
    """One item of the memory.

    Attributes:
        kind: A "note" or a "fact" can be updated and deleted; a "message" is from a conversation;
            "other" is shared by all users.
        text: Its text.
        id: Its id; messages have none.
        date: Its day (UTC), or a fact's time, such as "2023-05" or "planned for 2023-07-03".
        session_id: The conversation of a message.
        seq: The seq of a message in its conversation: a greater one is later.
        read_on: The position to read on, for a part of a long message.
    """

    kind: Kind
    text: str
    id: str | None = None
    date: str | None = None
    session_id: str | None = None
    seq: int | None = None
    read_on: Place | None = None


@dataclass(frozen=True, slots=True)
class Memories:
    """A list of items of the memory.

    Attributes:
        memories: The items.
        next: The `after` of the next page of a list; None on the last page.
        in_part: Whether a part of the memory could not be searched: there may be more items.
    """

    memories: list[Memory]
    next: str | None = None
    in_part: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a conversation, for a model.

    Attributes:
        messages: OpenAI chat dicts; a query is the last of them.
        tokens: Their tokens.
        max_tokens: Their token budget.
        warnings: Blocks that could not be asked.
    """

    messages: list[dict[str, Any]]
    tokens: int
    max_tokens: int
    warnings: list[str]


Answer = Memory | Memories | Context
