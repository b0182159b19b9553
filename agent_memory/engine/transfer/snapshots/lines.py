"""The lines of a snapshot: JSON, a running digest, and a strict form for each kind."""

from __future__ import annotations

import binascii
import hashlib
import json
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, BeforeValidator, Field

from agent_memory.core.forms import Count, Form, Name, Plain, Seq, kept_by_all
from agent_memory.core.ids import MAX_ID
from agent_memory.core.limits import text_of
from agent_memory.core.records import Record
from agent_memory.engine.values.items import checked, id_of, own_root, owner_of
from agent_memory.errors import InvalidInput, InvalidSnapshot
from agent_memory.ltm_blocks.keyed_records import plain_json


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
        format: The name of the format.
        version: The version of the format.
        library: The release of agent-memory that wrote it.
        at: When it was written.
        session: The session's id.
        user: The id of its user, or None.
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
    """The second line. See `records.Head`."""

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
    """See `idempotency.KeptKey`."""

    kind: Literal["key"]
    name: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    seq: Seq
    end: Seq
    total: Count
    at: Moment


class FactForm(Form):
    """See `records.Record`. The owner is given as its kind only."""

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
    """The line before the first vector of a block."""

    kind: Literal["vectors"]
    block: BlockName
    dimension: Count
    model: Name


class VectorForm(FactForm):
    """A record with its features, in base64."""

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
    """The vectors of a value's texts, of one embedder, in base64."""

    embedder: Name
    count: Seq
    vectors: str


class ValueForm(Form):
    """See `items.KeyValue`. The value is JSON."""

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
    """The last line: the number of lines of each kind, and the SHA-256 of all lines before it."""

    kind: Literal["end"]
    counts: dict[str, Count]
    sha256: str


FORMAT = "agent-memory.session"
VERSION = 1

_DIGITS = 32
_SUM = ',"sum":"%s"}\n'
_SUMMED = re.compile(rb',"sum":"([0-9a-f]{32})"}\n\Z')


class Digest:
    """The digest of the lines so far."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def whole(self) -> str:
        """Return the digest of all lines so far."""
        return self._sha.hexdigest()

    def summed(self, body: str) -> str:
        """Return the next line: a JSON object with its sum."""
        begun = body[:-1]
        self._sha.update(begun.encode())
        end = _SUM % self._sha.hexdigest()[:_DIGITS]
        self._sha.update(end.encode())
        return begun + end

    def holds(self, line: bytes) -> bool:
        """Add the next line, and return whether its sum is correct."""
        found = _SUMMED.search(line)
        if found is None:
            return False
        self._sha.update(line[: found.start()])
        right = self._sha.hexdigest()[:_DIGITS].encode() == found[1]
        self._sha.update(line[found.start() :])
        return right


def checked_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the lines of a snapshot without their sums.

    Yields:
        A line's number, from 1, the digest of all lines before it, and its fields.

    Raises:
        InvalidSnapshot: A line was altered. It is not yielded.
    """
    digest = Digest()
    number = 0
    for number, line in enumerate(lines, 1):
        before = digest.whole()
        if number == 1:
            _check_format(line)
        if not line.endswith(b"\n"):
            raise refused(number, "the file is cut off in the middle of this line")
        if not digest.holds(line):
            raise refused(number, "it is not as it was written, or a line before it is missing")
        fields = _parsed(number, line)
        fields.pop("sum")
        yield number, before, fields
    if not number:
        raise InvalidSnapshot("line 1: the file is empty; a snapshot of a session has lines.")


def refused(number: int, why: str) -> InvalidSnapshot:
    """Return the error for a line of a snapshot, with the reason."""
    return InvalidSnapshot(
        f"line {number}: {why}. Nothing was imported. Use an intact copy of the file."
    )


def _check_format(line: bytes) -> None:
    """Refuse a file of another kind or of a later version, before its sums are checked."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    version = fields.get("version") if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise refused(1, "this is not the beginning of a session's snapshot")
    if type(version) is int and version > VERSION:
        raise InvalidSnapshot(
            f"line 1: the snapshot has version {version} of the format, and this release reads up "
            f"to {VERSION}. Nothing was imported; install a newer agent-memory."
        )


def _parsed(number: int, line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise refused(number, f"it is not plain JSON ({error})") from None
    if not isinstance(fields, dict):
        raise refused(number, "it is not a JSON object")
    return fields


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _no_constant(digits)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_FLOAT = 4  # bytes


def value_of(form: ValueForm, session_id: str) -> Record:
    """Return the record of a value that belongs to a session.

    Raises:
        InvalidInput: `KeyValues` would not store it like this.
    """
    namespace, key = checked(form.namespace), text_of("key", form.key)
    if (form.ttl is None) != (form.until is None):
        raise InvalidInput("its `ttl` and its `until` do not say the same.")
    metadata: dict[str, Any] = {
        "ns": list(namespace),
        "value": plain_json(_read(form.value), "The value"),
        "begun": form.begun.isoformat(),
    }
    if form.until is not None:
        metadata |= {"ttl": form.ttl, "until": form.until.isoformat()}
    if form.meaning is not None:
        metadata["vectors"] = _vectors(form.meaning)
    owner = owner_of(own_root(session_id), namespace)
    return Record(id_of(owner, key), owner, session_id, 0, 0, key, (), form.at, metadata)


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput("its `value` is no JSON.") from None


def _vectors(form: MeaningForm) -> list[Any]:
    import numpy as np

    try:
        raw = b64decode(form.vectors, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("its `vectors` are not base64.") from None
    if not raw or len(raw) % (_FLOAT * form.count):
        raise InvalidInput("its `vectors` are not as many as they say.")
    if not np.isfinite(np.frombuffer(raw, np.float32)).all():
        raise InvalidInput("its `vectors` are not numbers.")
    return [form.embedder, b64encode(raw).decode(), form.count]
