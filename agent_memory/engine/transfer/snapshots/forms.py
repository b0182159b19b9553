"""What each kind of line holds, strictly. Whatever else a line says is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from agent_memory.core.ids import MAX_ID

_MOST = 2**53  # what every database and every reader of JSON keeps exactly
_MAX_DEPTH = 110  # what messages and notes may be nested, and what they are within


def _moment(value: object) -> datetime:
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        if moment.utcoffset() == timedelta():
            return moment.astimezone(UTC)
    raise ValueError("not a time in ISO 8601 with the offset +00:00")


def _kept_by_all(text: str) -> str:
    """What every database can keep in a column of its own."""
    if "\x00" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("it holds a NUL or a lone surrogate")
    return text


def _shallow(value: dict[str, Any]) -> dict[str, Any]:
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        inner = [one for one in level if isinstance(one, dict | list)]
        level = [one for some in inner for one in (some.values() if type(some) is dict else some)]
        if not level:
            return value
    raise ValueError(f"nested more than {_MAX_DEPTH} deep")


Count = Annotated[int, Field(ge=0, le=_MOST)]
Seq = Annotated[int, Field(ge=1, le=_MOST)]
Moment = Annotated[datetime, BeforeValidator(_moment)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_ID), AfterValidator(_kept_by_all)]
BlockName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
Plain = Annotated[dict[str, Any], AfterValidator(_shallow)]
Whose = Literal["user", "session"]


class Line(BaseModel):
    """Base of all lines."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Opening(Line):
    """The first line.

    Attributes:
        format: Names the format.
        version: Of the format.
        library: The release of agent-memory that wrote it.
        at: When it was written.
        session: The session's id.
        user: Its user's, or None.
    """

    format: Literal["agent-memory.session"]
    version: Literal[1]
    library: str
    at: Moment
    session: str
    user: str | None


class SummaryForm(Line):
    """See `records.Summary`."""

    text: str
    tokens: Count
    upto: Count
    by: str
    redo_after: Count | None
    redo_text: str | None


class HeadForm(Line):
    """See `records.Head`; the second line."""

    kind: Literal["head"]
    end: Count
    total: Count
    expired: Count
    start: Count
    start_total: Count
    pinned: list[Seq]
    pinned_tokens: Count
    system: Plain | None
    system_at: Moment | None
    system_tokens: Count
    summary: SummaryForm | None
    cursors: dict[BlockName, Count]
    begun: Moment


class EntryForm(Line):
    """See `records.Entry`."""

    kind: Literal["entry"]
    seq: Seq
    tokens: Count
    total: Count
    encoding: Annotated[str, Field(max_length=MAX_ID), AfterValidator(_kept_by_all)]
    at: Moment
    message: Plain


class FactForm(Line):
    """See `records.Record`; of its owner it says only which of the two."""

    kind: Literal["fact"]
    block: BlockName
    id: Name
    of: Whose
    first: Count
    last: Count
    text: str
    sources: list[Seq]
    at: Moment
    metadata: Plain


class VectorsForm(Line):
    """Comes before the first vector of a block."""

    kind: Literal["vectors"]
    block: BlockName
    dimension: Count
    model: Name


class VectorForm(FactForm):
    """A record with its traits, in base64."""

    kind: Literal["vector"]  # type: ignore[assignment]
    traits: str


class LetterForm(Line):
    """See `records.DeadLetter`."""

    kind: Literal["dead_letter"]
    block: BlockName
    first: Seq
    last: Seq
    attempts: Seq
    error: str
    since: Moment


class ForgottenForm(Line):
    """See `facts.claims.Forgotten`."""

    kind: Literal["forgotten"]
    block: BlockName
    fact: Name | None
    first: Seq
    last: Seq
    span: Annotated[list[Count], Field(min_length=2, max_length=2)] | None
    at: Moment
    why: str
    spared: list[Name]


class EndForm(Line):
    """The last line: how many there are of each kind, and the SHA-256 of all before it."""

    kind: Literal["end"]
    counts: dict[str, Count]
    sha256: str
