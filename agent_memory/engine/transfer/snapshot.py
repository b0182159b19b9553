"""The format of a snapshot: the form of each line, the writer, and a reader of lines."""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TextIO, cast

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from agent_memory.core.forms import Count, Form, Name, Plain, Seq, check_storable
from agent_memory.core.limits import MAX_ID
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Head, Record, Scope
from agent_memory.errors import InvalidInput, InvalidSnapshot

FORMAT = "agent-memory.session"
VERSION = 1

_LONGEST_FIRST = 2**16
_LONGEST = 2**28  # bytes of a line: a message of 64 MiB takes at most 3 times as much in JSON


def _moment(value: object) -> datetime:
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        if moment.utcoffset() == timedelta():
            return moment.astimezone(UTC)
    raise ValueError("not a time in ISO 8601 with the offset +00:00")


def _bytes(value: object) -> bytes:
    if isinstance(value, str):
        return b64decode(value, validate=True)
    raise ValueError("not base64")


Moment = Annotated[datetime, BeforeValidator(_moment)]
Base64 = Annotated[bytes, BeforeValidator(_bytes)]
BlockName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]


class Opening(Form):
    """The first line: format, time, session, user, and the release of the library."""

    format: Literal["agent-memory.session"]
    version: Literal[1]
    library: str
    at: Moment
    session: str
    user: str | None


class SummaryForm(Form):
    text: str
    tokens: Count
    upto: Count
    by: str
    redo_after: Count | None
    redo_text: str | None


class HeadForm(Form):
    """The second line: the session's head."""

    kind: Literal["head"]
    end: Count
    total: Count
    expired: Count
    start: Count
    start_total: Count
    pinned: list[Seq]
    pinned_tokens: Count
    system_at: Moment | None
    system_tokens: Count
    summary: SummaryForm | None
    cursors: dict[BlockName, Count]
    begun: Moment
    system: Plain | None


class EntryForm(Form):
    kind: Literal["entry"]
    seq: Seq
    tokens: Count
    total: Count
    encoding: Annotated[str, Field(max_length=MAX_ID), AfterValidator(check_storable)]
    at: Moment
    message: Plain


class KeyForm(Form):
    kind: Literal["key"]
    name: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    seq: Seq
    end: Seq
    total: Count
    at: Moment


class FactForm(Form):
    """A block's record. `of` is the kind of the record's owner."""

    kind: Literal["fact"]
    block: BlockName
    id: Name
    of: Literal["user", "session"]
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
    """A record with its features. `traits` are the bytes of a segment with this record alone."""

    kind: Literal["vector"]  # type: ignore[assignment]
    traits: Base64


class LetterForm(Form):
    kind: Literal["dead_letter"]
    block: BlockName
    first: Seq
    last: Seq
    attempts: Seq
    error: str
    since: Moment


class ForgottenForm(Form):
    """A tombstone, which prevents that forgotten facts are absorbed again."""

    kind: Literal["forgotten"]
    first: Seq
    last: Seq
    at: Moment
    block: BlockName
    fact: Name | None
    span: Annotated[list[Count], Field(min_length=2, max_length=2)] | None
    why: str
    spared: list[Name]


class ValueForm(Form):
    """The record of a value that the session stores. `text` is the value's key."""

    kind: Literal["value"]
    text: str
    at: Moment
    metadata: Plain


class EndForm(Form):
    """The last line: the SHA-256 of all lines before it."""

    kind: Literal["end"]
    sha256: str


_FORMS: Mapping[str, type[Form]] = {
    "head": HeadForm,
    "entry": EntryForm,
    "key": KeyForm,
    "fact": FactForm,
    "vectors": VectorsForm,
    "vector": VectorForm,
    "dead_letter": LetterForm,
    "forgotten": ForgottenForm,
    "value": ValueForm,
    "end": EndForm,
}


def refused(number: int, why: str) -> InvalidSnapshot:
    return InvalidSnapshot(
        f"line {number}: {why}. Nothing was imported. Use an intact copy of the file."
    )


def invalid(number: int, what: str, error: ValidationError) -> InvalidSnapshot:
    """Return the error of a line whose fields do not have the form of `what`."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return refused(number, f"{what} `{where}` is not usable: {first['msg']}")


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export.

    Attributes:
        entries: The number of messages.
        records: The number of records of blocks: facts, vectors, dead letters and tombstones.
        left_out: Names of the blocks whose records this store cannot export. These blocks absorb
            the imported session from the beginning.
    """

    session_id: str
    entries: int
    records: int
    left_out: tuple[str, ...] = ()


class Writing:
    """Returns the lines of a snapshot. The caller writes the lines in the order of the calls."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._digest = hashlib.sha256()
        self.counts: Counter[str] = Counter()

    def opening(self, library: str) -> str:
        head = self._head
        fields = {
            "format": FORMAT,
            "version": VERSION,
            "library": library,
            "at": datetime.now(UTC).isoformat(),
            "session": head.session_id,
            "user": head.user_id,
        }
        return self._written(compact_json(fields))

    def head(self) -> str:
        head = self._head
        summary = None if head.summary is None else asdict(head.summary)
        system_at = None if head.system is None else head.system.created_at
        return self.line("head", head, summary=summary, system_at=system_at, begun=head.created_at)

    def record(self, block: str, record: Record, traits: bytes | None = None) -> str:
        """Return the line of a block's record, or of a vector if there are `traits`."""
        own = record.owner == Scope(None, self._head.session_id).owner
        fields: dict[str, Any] = {"block": block, "of": "session" if own else "user"}
        kind = "fact"
        if traits is not None:
            kind, fields["traits"] = "vector", b64encode(traits).decode("ascii")
        return self.line(kind, record, at=record.created_at, **fields)

    def end(self) -> str:
        return self.line("end", sha256=self._digest.hexdigest())

    def line(self, kind: str, source: object = None, **own: Any) -> str:
        """Return the line of a kind. Fields that are not passed are read from `source`."""
        fields: dict[str, Any] = {"kind": kind}
        message = ""
        for name in [name for name in _FORMS[kind].model_fields if name != "kind"]:
            value = own[name] if name in own else getattr(source, name)
            if isinstance(value, Message):  # its stored JSON is written last
                message = f',"{name}":{value.to_json()}'
            else:
                fields[name] = value.isoformat() if isinstance(value, datetime) else value
        self.counts[kind] += 1
        return self._written(f"{compact_json(fields)[:-1]}{message}}}")

    def _written(self, body: str) -> str:
        line = f"{body}\n"
        self._digest.update(line.encode())
        return line


def owners_of(head: Head) -> Sequence[str]:
    """Return the owners of a session's records: its user, and the session itself."""
    return tuple(dict.fromkeys(Scope(user, head.session_id).owner for user in (head.user_id, None)))


def lines_of(source: str | Path | TextIO | Iterable[str], most: int = 0) -> Iterator[bytes]:
    """Yield the lines of a source: a path, an open text file, or lines.

    A line of a file may have 256 MiB, or `most` bytes if this is more.
    """
    if isinstance(source, str | Path):
        with open(source, "rb") as file:
            yield from _read(file, max(most, _LONGEST))
    elif hasattr(source, "readline"):
        yield from _read(cast("TextIO", source), max(most, _LONGEST))
    elif isinstance(source, bytes | bytearray) or not isinstance(source, Iterable):
        raise InvalidInput(
            f"No snapshot can be read from a {type(source).__name__}. Give a path, a text file, "
            "or lines of text."
        )
    else:
        for number, line in enumerate(source, 1):
            if not isinstance(line, str):
                raise refused(number, f"it is a {type(line).__name__}, not text")
            with _in_utf8(number):  # lines from a list may lack their line feed
                raw = (line if line.endswith("\n") else f"{line}\n").encode()
            yield raw


def _read(file: TextIO | BinaryIO, most: int) -> Iterator[bytes]:
    """Yield the lines of an open file. Refuse a line that is too long or endless."""
    number, at_first = 1, "this is not the beginning of a session's snapshot"
    while True:
        longest = _LONGEST_FIRST if number == 1 else most
        with _in_utf8(number):
            line = file.readline(longest + 1)
            raw = line.encode() if isinstance(line, str) else line
        if len(line) > longest:
            raise refused(number, at_first if number == 1 else f"it is longer than {most:,}")
        if not line:
            return
        yield raw
        number += 1


@contextmanager
def _in_utf8(number: int) -> Iterator[None]:
    try:
        yield
    except UnicodeError:
        raise refused(number, "it is not text in UTF-8") from None
