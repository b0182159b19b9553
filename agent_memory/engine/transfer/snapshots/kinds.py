"""What the records of our own blocks have to hold, so that the block can read them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from agent_memory.core.records import Record
from agent_memory.engine.transfer.snapshots.forms import Count, Line, Name, Plain
from agent_memory.errors import ToolRefused
from agent_memory.ltm_blocks.files.paths import checked_path
from agent_memory.ltm_blocks.spatial.observation import MOST

_BATCH = "batch"


def _aware(text: str) -> str:
    if datetime.fromisoformat(text).utcoffset() is None:
        raise ValueError("a time without its offset")
    return text


def _vector(text: str) -> str:
    try:
        size = len(base64.b64decode(text, validate=True))
    except binascii.Error:
        raise ValueError("not base64") from None
    if size % 2:
        raise ValueError("not float16")
    return text


def _path(text: str) -> str:
    try:
        same = checked_path(text) == text
    except ToolRefused:
        same = False
    if not same:
        raise ValueError("no path under /memories")
    return text


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("not printable")
    return text


_Share = Annotated[float, Field(ge=0, le=1)]
_Time = Annotated[str, AfterValidator(_aware)] | None
_Link = Annotated[list[str], Field(min_length=2, max_length=2)]
_Coordinate = Annotated[float, Field(ge=-MOST, le=MOST)]


class _Claim(Line):
    """See `facts.claims.Claim`."""

    fact: Name
    subject: str
    category: str
    confidence: _Share
    role: str
    valid_from: _Time
    valid_to: _Time
    quote: str
    span: Annotated[list[Count], Field(min_length=2, max_length=2)]
    model: str
    prompt: str
    links: list[_Link]
    field: str | None = None
    value: Any = None
    alone: bool = False
    embedder: str = ""
    vector: Annotated[str, AfterValidator(_vector)]
    place: Count = 0


class _Answer(Line):
    model: str
    prompt: str
    found: Count
    refused: dict[str, Count]


class _Batch(Line):
    """See `facts.claims.Batch`."""

    batch: _Answer


class _Value(Line):
    key: Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_printable)]


class _Note(Line):
    id: Name
    metadata: Plain = Field(default_factory=dict)


class _File(Line):
    id: Name
    path: Annotated[str, AfterValidator(_path)]


class _Observation(Line):
    position: Annotated[list[_Coordinate], Field(min_length=2, max_length=3)]
    confidence: _Share
    metadata: Plain = Field(default_factory=dict)


def unreadable(kind: str, record: Record) -> str | None:
    """Why a block of a kind could not read a record; None where it could, or nobody knows.

    Args:
        kind: The block's kind.
        record: What is to be kept for it.
    """
    check = _CHECKS.get(kind)
    try:
        return check(record) if check is not None else None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"its metadata's `{where}` is not usable: {first['msg']}"


def _extracted(record: Record) -> str | None:
    if _BATCH in record.metadata:
        _Batch.model_validate(record.metadata)
        return None if record.first else "it comes from no message"
    claim = _Claim.model_validate(record.metadata)
    if any(kind not in ("update", "contradict", "end") for kind, _ in claim.links):
        return "it says of another fact what is not known"
    if record.first != record.last or record.sources != (record.first,):
        return "a fact comes from one message"
    return None


def _working(record: Record) -> str | None:
    _Value.model_validate(record.metadata)
    try:
        json.loads(record.text)
    except (ValueError, RecursionError):
        return "its text is no JSON"
    return None


def _holding(form: type[Line]) -> Callable[[Record], None]:
    def check(record: Record) -> None:
        form.model_validate(record.metadata)

    return check


_CHECKS: dict[str, Callable[[Record], str | None]] = {
    "extractive": _extracted,
    "working": _working,
    "notes": _holding(_Note),
    "files": _holding(_File),
    "spatial": _holding(_Observation),
}
