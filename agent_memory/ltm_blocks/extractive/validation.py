"""What a record has to hold, so that the block can read it: for records from somebody's file."""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, Field

from agent_memory.core.forms import Count, Form, Name, Share
from agent_memory.core.records import Record
from agent_memory.errors import ConfigError, InvalidInput, ModelError
from agent_memory.ltm_blocks.base import Resources
from agent_memory.ltm_blocks.extractive.history.claims import Kind, LinkKind

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


_Time = Annotated[str, AfterValidator(_aware)] | None
_Link = Annotated[list[str], Field(min_length=2, max_length=2)]


class _Claim(Form):
    """See `history.claims.Claim`."""

    fact: Name
    subject: str
    category: str
    confidence: Share
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
    kind: Kind = ""
    when: str = ""


class _Answer(Form):
    model: str
    prompt: str
    found: Count
    refused: dict[str, Count]


class _Batch(Form):
    """See `history.claims.Batch`."""

    batch: _Answer


def check_record(record: Record) -> None:
    """Refuse what is neither a claim nor a batch.

    Raises:
        InvalidInput: It comes from other messages than such a record does.
        ValidationError: Its metadata has another form.
    """
    if _BATCH in record.metadata:
        _Batch.model_validate(record.metadata)
        if not record.first:
            raise InvalidInput("it comes from no message")
        return
    claim = _Claim.model_validate(record.metadata)
    if any(kind not in get_args(LinkKind) for kind, _ in claim.links):
        raise InvalidInput("it says of another fact what is not known")
    if record.first != record.last or record.sources != (record.first,):
        raise InvalidInput("a fact comes from one message")


def with_own_vector(record: Record, resources: Resources) -> Record:
    """A record, without its vector where that is none of the embedder that it names: it is made
    anew then."""
    kept = record.metadata
    if not kept.get("vector") or "embedder" not in kept:
        return record
    try:
        embedder = resources.embedders(None)
        if kept["embedder"] != embedder.name or _is_finite(kept["vector"], embedder.dimension):
            return record
    except (ModelError, ConfigError):
        pass
    return replace(record, metadata={**kept, "vector": "", "embedder": ""})


def _is_finite(text: str, dimension: int) -> bool:
    import numpy as np

    vector = np.frombuffer(base64.b64decode(text), np.float16)
    return len(vector) == dimension and bool(np.isfinite(vector).all())
