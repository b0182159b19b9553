"""What each kind of line holds, strictly. Whatever else a line says is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from agent_memory.core.forms import Count, Form, Name, Plain, Seq, kept_by_all
from agent_memory.core.ids import MAX_ID


def _moment(value: object) -> datetime:
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        if moment.utcoffset() == timedelta():
            return moment.astimezone(UTC)
    raise ValueError("not a time in ISO 8601 with the offset +00:00")


Moment = Annotated[datetime, BeforeValidator(_moment)]
BlockName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
Whose = Literal["user", "session"]


class Opening(Form):
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


class SummaryForm(Form):
    """See `records.Summary`."""

    text: str
    tokens: Count
    upto: Count
    by: str
    redo_after: Count | None
    redo_text: str | None


class HeadForm(Form):
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


class EntryForm(Form):
    """See `records.Entry`."""

    kind: Literal["entry"]
    seq: Seq
    tokens: Count
    total: Count
    encoding: Annotated[str, Field(max_length=MAX_ID), AfterValidator(kept_by_all)]
    at: Moment
    message: Plain


class KeyForm(Form):
    """See `once.KeptKey`."""

    kind: Literal["key"]
    name: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    seq: Seq
    end: Seq
    total: Count
    at: Moment


class FactForm(Form):
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


class VectorsForm(Form):
    """Comes before the first vector of a block."""

    kind: Literal["vectors"]
    block: BlockName
    dimension: Count
    model: Name


class VectorForm(FactForm):
    """A record with its traits, in base64."""

    kind: Literal["vector"]  # type: ignore[assignment]
    traits: str


class LetterForm(Form):
    """See `records.DeadLetter`."""

    kind: Literal["dead_letter"]
    block: BlockName
    first: Seq
    last: Seq
    attempts: Seq
    error: str
    since: Moment


class ForgottenForm(Form):
    """See `tombstones.Tombstone`."""

    kind: Literal["forgotten"]
    block: BlockName
    fact: Name | None
    first: Seq
    last: Seq
    span: Annotated[list[Count], Field(min_length=2, max_length=2)] | None
    at: Moment
    why: str
    spared: list[Name]


class MeaningForm(Form):
    """By what a value is found: vectors of one embedder, in base64."""

    embedder: Name
    count: Seq
    vectors: str


class ValueForm(Form):
    """See `key_values.KeyValue`; the value as JSON."""

    kind: Literal["value"]
    namespace: list[str]
    key: Annotated[str, Field(min_length=1)]
    value: str
    begun: Moment
    at: Moment
    ttl: Annotated[int | float, Field(gt=0)] | None
    until: Moment | None
    meaning: MeaningForm | None


class EndForm(Form):
    """The last line: how many there are of each kind, and the SHA-256 of all before it."""

    kind: Literal["end"]
    counts: dict[str, Count]
    sha256: str
