"""Claims, the immutable statements that make up facts, with their links and records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    Base64Bytes,
    ConfigDict,
    TypeAdapter,
    with_config,
)

from agent_memory.core.forms import Count, Name, Share
from agent_memory.core.records import Record
from agent_memory.ltm_blocks.base import record_id
from agent_memory.ltm_blocks.extractive.history.periods import Precision, day_of
from agent_memory.ltm_blocks.registry import Tombstone

LinkKind = Literal["update", "refine", "replace", "contradict", "end"]
"""A claim's relation to an older fact. "update": both are values of one thing at different times.
"refine": the claim includes the older fact. "replace": the older fact is a plan that was changed.
"contradict": it was never true. "end": it ended when the claim ended."""

Relation = Literal["same", "update", "refine", "end", "contradict", "deny"]
"""A finding's relation to an older fact, as a model states it. In addition to `LinkKind`: "same"
repeats the older fact, and "deny" contradicts it without a replacement."""

Kind = Literal["event", "state", "plan", ""]
"""An event happened, a state lasts, a plan is for the future."""


def _in_utc(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError("it is not within the years 1 to 9999") from None


_Time = Annotated[AwareDatetime, AfterValidator(_in_utc)]

_known_fields_only = with_config(ConfigDict(extra="forbid"))


@_known_fields_only
@dataclass(frozen=True, slots=True)
class Link:
    """A claim's relation to an older fact."""

    kind: LinkKind
    fact: str


@_known_fields_only
@dataclass(frozen=True, slots=True)
class Claim:
    """A statement from one message."""

    id: str
    fact: Name  # the id of the fact, which is the id of the first claim that stated the fact
    text: str
    subject: str
    category: str
    confidence: Share
    role: str
    valid_from: _Time | None  # when the claim became true; None if unknown
    valid_to: _Time | None  # when the claim stopped being true, exclusive; None for no end
    recorded_at: datetime
    session_id: str
    seq: int
    quote: str
    # start and end of the quote in the message's text with white space collapsed
    span: tuple[Count, Count]
    model: str
    prompt: str
    links: tuple[Link, ...] = ()
    field: str | None = None
    value: Any = None
    alone: bool = False  # whether the profile's field has one value at a time
    embedder: str = ""
    vector: Base64Bytes = b""  # the vector of the text, float16
    place: Count = 0  # the claim's position among the findings of its batch
    kind: Kind = ""
    when: str = ""  # the words that state the claim's time, if they are too vague for a date
    precision: Precision = "year"  # see `Fact`

    @property
    def content_id(self) -> str:
        """An id that does not depend on the message's seq, which an edit may change."""
        return record_id(self.session_id, self.subject, self.text)

    @property
    def begins(self) -> datetime | None:
        """When the claim became true: the stated beginning, otherwise the day of the statement.

        None if no beginning is stated, and the claim had ended by the day of the statement.
        """
        return since(self.valid_from, self.valid_to, self.recorded_at)

    @property
    def ends(self) -> datetime | None:
        """When the claim stops being true, exclusive. An undated event ends after its statement."""
        if self.kind == "event" and self.valid_from is None and self.valid_to is None:
            return day_of(self.recorded_at) + timedelta(days=1)
        return self.valid_to


def since(begin: datetime | None, end: datetime | None, stated_at: datetime) -> datetime | None:
    stated_on = day_of(stated_at)
    return stated_on if begin is None and (end is None or stated_on < end) else begin


@_known_fields_only
@dataclass(frozen=True, slots=True)
class Batch:
    """The result of extracting facts from one batch of messages."""

    session_id: str
    first: int
    last: int
    at: datetime
    model: str
    prompt: str
    found: Count
    refused: dict[str, Count]


@dataclass(frozen=True, slots=True)
class Journal:
    """All stored data on one owner's facts."""

    claims: Sequence[Claim] = ()
    batches: Sequence[Batch] = ()
    forgotten: Sequence[Tombstone] = ()
    # claims that a tombstone covers, but whose records are not erased yet
    remains: Sequence[Claim] = ()


def covers(tombstone: Tombstone, claim: Claim) -> bool:
    names, place = (claim.id, claim.content_id), (claim.session_id, claim.seq, claim.span)
    return all(tombstone.covers(name, *place) for name in names)


_MOST_LINKS = 64
"""Maximum number of links of a claim. Links to old, superseded facts are left out."""


def links_for(
    targets: Sequence[tuple[LinkKind, str]], claims: Iterable[Claim], *, denies: bool = False
) -> tuple[Link, ...]:
    """Return the links of a claim that relates to older facts.

    The claim also links to the facts that are linked with its targets, so that the order of the
    facts survives if a target is forgotten. A claim that contradicts or refines a target takes over
    the target's relations. If it only `denies` the targets, it links only to them, and to the facts
    that they contradicted.
    """
    tied = _ties(claims)
    links: dict[str, LinkKind] = {fact: kind for kind, fact in targets}
    for kind, fact in targets:
        for other, inherited in tied.get(fact, {}).items():
            if denies and kind == "contradict" and inherited != "contradict":
                continue
            if other not in links:
                links[other] = _passed_on(kind, inherited)
    return tuple(Link(kind, fact) for fact, kind in list(links.items())[:_MOST_LINKS])


def links_again(fact: str, claims: Iterable[Claim]) -> tuple[Link, ...]:
    """Return the links of a claim that repeats a fact, in case the first claim is deleted."""
    links = list(_ties(claims).get(fact, {}).items())[:_MOST_LINKS]
    return tuple(Link(kind, other) for other, kind in links)


def _passed_on(kind: LinkKind, inherited: LinkKind) -> LinkKind:
    """Return the relation to a fact that is reached through another fact."""
    if kind in ("contradict", "refine", "replace"):
        return inherited
    return "end" if (kind, inherited) == ("end", "contradict") else "update"


def _ties(claims: Iterable[Claim]) -> Mapping[str, Mapping[str, LinkKind]]:
    """Return for each fact its linked facts, newest first, each with the relation."""
    tied: dict[str, dict[str, LinkKind]] = {}
    for claim in sorted(claims, key=lambda c: (c.recorded_at, c.seq), reverse=True):
        for link in claim.links:
            own = tied.setdefault(claim.fact, {})
            # a newer claim's relation stays, unless it is "update"
            if own.get(link.fact, "update") == "update":
                own[link.fact] = link.kind
            tied.setdefault(link.fact, {}).setdefault(claim.fact, "update")
    return tied


RECALLED = "recalled"
"""Metadata key and text of the record of counts: the number of contexts with each fact, by id."""

Recorded = Claim | Batch | None
"""A decoded record; None for the record of counts."""

_CLAIMS, _BATCHES = TypeAdapter(Claim), TypeAdapter(Batch)


def record_of_claim(claim: Claim, owner: str) -> Record:
    own = {"id", "text", "session_id", "seq", "recorded_at"}
    metadata = _CLAIMS.dump_python(claim, mode="json", exclude=own)
    place, sources = (claim.session_id, claim.seq, claim.seq), (claim.seq,)
    return Record(claim.id, owner, *place, claim.text, sources, claim.recorded_at, metadata)


def record_of_batch(batch: Batch, record_id: str, owner: str) -> Record:
    own = {"session_id", "first", "last", "at"}
    metadata = _BATCHES.dump_python(batch, mode="json", exclude=own)
    place = (batch.session_id, batch.first, batch.last)
    return Record(record_id, owner, *place, "batch", (), batch.at, metadata)


def recorded(record: Record) -> Recorded:
    """Decode one record. Raise `pydantic.ValidationError` if it is not valid."""
    fields, session_id, at = record.metadata, record.session_id, record.created_at
    if fields.keys() == {RECALLED}:
        return None
    if "found" in fields:
        place = {"session_id": session_id, "first": record.first, "last": record.last, "at": at}
        return _BATCHES.validate_python({**fields, **place})
    own = {"id": record.id, "text": record.text, "seq": record.first, "recorded_at": at}
    return _CLAIMS.validate_python({**fields, **own, "session_id": session_id})


def journal_of(entries: Iterable[Recorded], forgotten: Sequence[Tombstone]) -> Journal:
    """Return the journal of an owner's decoded records.

    Claims that must stay forgotten, but still have a record, are in `Journal.remains`.
    """
    claims: list[Claim] = []
    batches: list[Batch] = []
    remains: list[Claim] = []
    for entry in entries:
        if isinstance(entry, Batch):
            batches.append(entry)
        elif entry is not None:
            covered = any(covers(gone, entry) for gone in forgotten)
            (remains if covered else claims).append(entry)
    return Journal(claims, batches, forgotten, remains)
