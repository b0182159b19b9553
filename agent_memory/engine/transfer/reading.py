"""Reads the lines of a session's snapshot, and checks each against the lines before it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NoReturn, TypeVar

from pydantic import ValidationError

from agent_memory.core.forms import Form
from agent_memory.core.idempotency import KeyRecord
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import DeadLetter, Entry, Head, Record, Scope, Summary
from agent_memory.core.system_collections import VALUES
from agent_memory.engine.transfer.snapshot import (
    FORMAT,
    VERSION,
    EndForm,
    EntryForm,
    FactForm,
    ForgottenForm,
    HeadForm,
    KeyForm,
    LetterForm,
    Opening,
    ValueForm,
    VectorForm,
    VectorsForm,
    invalid,
    refused,
)
from agent_memory.engine.values.items import restored
from agent_memory.errors import InvalidInput, InvalidMessage, InvalidSnapshot
from agent_memory.ltm_blocks.registry import FORGOTTEN, Tombstone, record_of

F = TypeVar("F", bound=Form)


@dataclass(frozen=True, slots=True)
class Stored:
    """A record of a block or of a system collection. `traits` are its search features as bytes."""

    kind: Literal["fact", "vector", "forgotten", "value"]
    block: str
    record: Record
    traits: bytes = b""


Item = KeyRecord | Stored | VectorsForm | DeadLetter


class Reading:
    """Reads a snapshot: the first two lines immediately, further lines on demand.

    All items belong to the session and the user of the first line. `head` is the session's head,
    with version 0. Iterate over `entries` and then over `records`: both raise `InvalidSnapshot` at
    an invalid line, or if a line is missing.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = iter(lines)
        self._digest = hashlib.sha256()  # of all lines before the line that was read last
        self._line = b""
        self._number = 0
        self._announced: set[str] = set()
        self._keys: set[str] = set()
        self._values: set[str] = set()
        opening = self._form(Opening, self._next())
        self.head = self._head(opening, self._form(HeadForm, self._next()))
        self._log = _Log(self.head)
        self._after_log: dict[str, Any] = {}  # the fields of the first line after the log

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of the log."""
        while (fields := self._next()).get("kind") == "entry":
            yield self._entry(self._form(EntryForm, fields))
        self._after_log = fields
        if problem := self._log.problem_at_end():
            raise self._refused(problem)

    def records(self) -> Iterator[tuple[int, Item]]:
        """Yield the items after the log, each with the number of its line."""
        fields = self._after_log
        while (kind := fields.get("kind")) != "end":
            if not isinstance(kind, str) or kind not in _ITEMS:
                raise self._refused("it is of a kind that does not belong here")
            form, read = _ITEMS[kind]
            yield self._number, read(self, self._form(form, fields))
            fields = self._next()
        self._end(self._form(EndForm, fields))

    def _next(self) -> dict[str, Any]:
        self._number += 1
        self._digest.update(self._line)
        line = next(self._lines, None)
        if line is None and self._number == 1:
            raise InvalidSnapshot("line 1: the file is empty. Use a snapshot of a session.")
        if line is None:
            raise self._refused("the file ends here, before its last line")
        self._line = line
        if self._number == 1:
            _check_format(line)
        if not line.endswith(b"\n"):
            raise self._refused("the file is cut off in the middle of this line")
        return _parsed(self._number, line)

    def _form(self, form: type[F], fields: dict[str, Any]) -> F:
        try:
            return form.model_validate(fields)
        except ValidationError as error:
            raise invalid(self._number, "its", error) from None

    def _head(self, opening: Opening, form: HeadForm) -> Head:
        other = {"kind", "pinned", "system", "system_at", "summary", "begun"}
        head = Head(
            session_id=opening.session,
            user_id=opening.user,
            pinned=tuple(form.pinned),
            system=self._system(form),
            summary=Summary(**form.summary.model_dump()) if form.summary else None,
            version=0,
            deleting=False,
            created_at=form.begun,
            **form.model_dump(exclude=other),
        )
        if problem := _head_problem(head):
            raise self._refused(problem)
        return head

    def _system(self, form: HeadForm) -> Message | None:
        if form.system is None:
            return None
        if form.system_at is None:
            raise self._refused("its system message has no time")
        system = self._message(form.system, form.system_at)
        if not system.is_system:
            raise self._refused("its system message has another role")
        return system

    def _entry(self, form: EntryForm) -> Entry:
        message = self._message(form.message, form.at)
        name, at = self.head.session_id, form.at
        entry = Entry(name, form.seq, message, form.tokens, form.total, form.encoding, at)
        if problem := self._log.problem(entry):
            raise self._refused(problem)
        return entry

    def _message(self, fields: dict[str, Any], at: datetime) -> Message:
        """Return the message of a line, with the line's time. Refuse a form that no log stores."""
        try:
            message = Message.of(fields)
        except InvalidMessage as error:
            raise self._refused(f"its message is not usable: {error}") from None
        text = compact_json(fields)
        own = fields.get("created_at")
        if "created_at" in fields and (not isinstance(own, str) or message.created_at != at):
            raise self._refused("its message has another time than the line")
        if message.model_fields_set != fields.keys():
            raise self._refused("its message is not in the form that logs store")
        return Message.from_json(text, at)

    def _key(self, form: KeyForm) -> KeyRecord:
        if form.name in self._keys:
            raise self._refused("an earlier line has the same key")
        if not form.seq <= min(form.end, self.head.end):
            raise self._refused("its messages are not in the log")
        self._keys.add(form.name)
        return KeyRecord(**form.model_dump(exclude={"kind"}))

    def _fact(self, form: FactForm) -> Stored:
        return Stored("fact", form.block, self._record(form))

    def _vectors(self, form: VectorsForm) -> VectorsForm:
        if form.block in self._announced:
            raise self._refused(f"an earlier line announces the vectors of block {form.block!r}")
        self._announced.add(form.block)
        return form

    def _vector(self, form: VectorForm) -> Stored:
        if form.block not in self._announced:
            raise self._refused(f"no earlier line announces the vectors of block {form.block!r}")
        return Stored("vector", form.block, self._record(form), form.traits)

    def _record(self, form: FactForm) -> Record:
        head = self.head
        self._within(form.first, form.last)
        if form.of == "user" and head.user_id is None:
            raise self._refused("the record belongs to a user, but the session has no user")
        if any(seq > head.end for seq in form.sources):
            raise self._refused("its `sources` are not in the log")
        cursor = head.cursors.get(form.block)
        if cursor is not None and form.last > max(cursor, head.expired):
            raise self._refused(f"block {form.block!r} has not absorbed these messages")
        return Record(
            id=form.id,
            owner=Scope(head.user_id if form.of == "user" else None, head.session_id).owner,
            session_id=head.session_id,
            first=form.first,
            last=form.last,
            text=form.text,
            sources=tuple(form.sources),
            created_at=form.at,
            metadata=form.metadata,
        )

    def _letter(self, form: LetterForm) -> DeadLetter:
        self._within(form.first, form.last)
        if form.last > self.head.cursors.get(form.block, 0) or form.first <= self.head.expired:
            raise self._refused(f"block {form.block!r} cannot have a dead letter for them")
        return DeadLetter(session_id=self.head.session_id, **form.model_dump(exclude={"kind"}))

    def _forgotten(self, form: ForgottenForm) -> Stored:
        if form.first > form.last:
            raise self._refused("its last message comes before its first")
        head, span = self.head, form.span
        tombstone = Tombstone(
            fact=form.fact,
            session_id=head.session_id,
            first=form.first,
            last=form.last,
            span=None if span is None else (span[0], span[1]),
            at=form.at,
            why=form.why,
            spared=tuple(form.spared),
        )
        owner = Scope(head.user_id, head.session_id).owner
        return Stored("forgotten", FORGOTTEN, record_of(tombstone, form.block, owner))

    def _value(self, form: ValueForm) -> Stored:
        try:
            record = restored(form.text, form.metadata, self.head.session_id, form.at)
        except InvalidInput as error:
            raise self._refused(str(error).rstrip(".")) from None
        if record.id in self._values:
            raise self._refused("an earlier line has a value of the same key")
        self._values.add(record.id)
        return Stored("value", VALUES.name, record)

    def _within(self, first: int, last: int) -> None:
        if not first <= last <= self.head.end:
            raise self._refused("its messages are not in the log")

    def _end(self, form: EndForm) -> None:
        if form.sha256 != self._digest.hexdigest():
            raise self._refused(
                "its `sha256` does not fit the lines before it: one of these lines was changed"
            )
        for _ in self._lines:
            self._number += 1
            raise self._refused("something follows the last line")

    def _refused(self, why: str) -> InvalidSnapshot:
        return refused(self._number, why)


_ITEMS: Mapping[str, tuple[type[Form], Callable[[Reading, Any], Item]]] = {
    "key": (KeyForm, Reading._key),
    "fact": (FactForm, Reading._fact),
    "vectors": (VectorsForm, Reading._vectors),
    "vector": (VectorForm, Reading._vector),
    "dead_letter": (LetterForm, Reading._letter),
    "forgotten": (ForgottenForm, Reading._forgotten),
    "value": (ValueForm, Reading._value),
}
"""For each kind of line after the log: the line's form, and the function that checks it."""


class _Log:
    def __init__(self, head: Head) -> None:
        self._head = head
        self._seq = head.expired
        self._total: int | None = None if head.expired else 0
        self._pinned = 0
        self._pinned_left = set(head.pinned)

    def problem(self, entry: Entry) -> str | None:
        """Return the problem of the next entry, or None."""
        head = self._head
        if entry.seq != self._seq + 1:
            return f"message {self._seq + 1} is missing"
        if self._total is None:
            self._total = entry.before
            if self._total < 0 or (head.start == head.expired and head.start_total != self._total):
                return "its `total` does not fit the head"
        if entry.before != self._total:
            return "its `total` is not the sum of the tokens so far"
        if entry.seq == head.start and entry.total != head.start_total:
            return "its `total` is not the head's `start_total`"
        if entry.seq in self._pinned_left:
            self._pinned_left.remove(entry.seq)
            self._pinned += entry.tokens
        self._seq, self._total = entry.seq, entry.total
        return None

    def problem_at_end(self) -> str | None:
        """Return the problem at the end of the log, or None."""
        head = self._head
        if self._seq != head.end:
            return f"message {self._seq + 1} is missing"
        if self._total != head.total or self._pinned != head.pinned_tokens:
            return "the tokens of the log are not those that the head counts"
        return None


def _head_problem(head: Head) -> str | None:
    """Return the problem that a head has regardless of its log, or None."""
    if not head.expired <= head.start <= head.end or 0 < head.end == head.expired:
        return "`expired`, `start` and `end` do not follow each other"
    if head.start == 0 and head.start_total:
        return "`start_total` is not 0 at the beginning"
    if any(not head.expired < seq <= head.start for seq in head.pinned):
        return "`pinned` are not messages before the window"
    if list(head.pinned) != sorted(set(head.pinned)):
        return "`pinned` are not in order"
    if any(cursor > head.end for cursor in head.cursors.values()):
        return "a cursor is after the log's `end`"
    summary = head.summary
    if summary and not (summary.redo_after or 0) <= summary.upto <= head.end:
        return "the summary covers messages that the log does not have"
    return None


def _check_format(line: bytes) -> None:
    """Refuse a file of another kind or of a later version."""
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
