"""What the tools of the MCP server take, and what they give as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from agent_memory.core.tools import Arguments
from agent_memory.engine.finding import Kind, Query
from agent_memory.engine.message_pages import ReadMessage

_ID = "The id that search_memories or add_memory gave."


class Search(Query):
    """What `search_memories` takes."""

    limit: int = Field(default=10, ge=1, le=50, description="At most so many results.")
    after: str = Field(
        default="",
        max_length=200,
        description="Where nothing is looked for: the `next` of the page before.",
    )


class Add(Arguments):
    """What `add_memory` takes."""

    text: str = Field(min_length=1, description="What to remember: one fact, in a whole sentence.")


class Update(Arguments):
    """What `update_memory` takes."""

    id: str = Field(min_length=1, max_length=200, description=_ID)
    text: str = Field(min_length=1, description="What it is to say from now on.")


class Delete(Arguments):
    """What `delete_memory` takes."""

    id: str = Field(min_length=1, max_length=200, description=_ID)


class ReadOn(ReadMessage):
    """What `memory_read_message` takes, where no conversation is at hand."""

    session_id: str | None = Field(description="The conversation, as search_memories tells it.")


class Converse(Arguments):
    """What `get_context` takes."""

    session_id: str = Field(
        min_length=1, description="The conversation, as search_memories tells it."
    )
    query: str = Field(
        default="",
        max_length=20_000,
        description="The question at hand: what to recall for, and the last message of the "
        "context; empty for the conversation's newest question.",
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where to read on in a long message; the arguments of `memory_read_message`.

    Attributes:
        session_id: The session.
        seq: The message's number.
        offset: From which character on.
    """

    session_id: str
    seq: int
    offset: int


@dataclass(frozen=True, slots=True)
class Memory:
    """One thing that is remembered.

    Attributes:
        kind: A "note" or a "fact" can be updated and deleted; a "message" was said in a
            conversation; "other" holds for everyone.
        text: What it says.
        id: Its id; a message has none.
        date: The day of what it tells of (UTC), or as a fact's time is written, such as "2023-05"
            or "planned for 2023-07-03".
        session_id: Of a message, its conversation.
        seq: Of a message, its number there: a greater one was said later.
        read_on: Of a part of a long message, where to read on.
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
    """Some of what is remembered.

    Attributes:
        memories: What was found.
        next: Of a list, what to give as `after` for those that follow; None where none do.
        in_part: Whether a part of the memory could not be asked right now; there may be more.
    """

    memories: list[Memory]
    next: str | None = None
    in_part: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """A conversation as a model is to see it.

    Attributes:
        messages: OpenAI chat dicts; a query is the last of them.
        tokens: What they cost.
        max_tokens: What they may.
        warnings: What could not be recalled.
    """

    messages: list[dict[str, Any]]
    tokens: int
    max_tokens: int
    warnings: list[str]


Answer = Memory | Memories | Context
