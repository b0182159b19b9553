"""The snapshot file: altered files are refused, whole files are read."""

import io
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.idempotency import KeyRecord
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import DeadLetter, Entry, Head, Record, Summary
from agent_memory.engine.transfer.reading import Reading, Stored
from agent_memory.engine.transfer.snapshot import Writing
from agent_memory.errors import InvalidSnapshot

pytestmark = pytest.mark.long

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
ODD = 'Grüße \u2028 \x00 \ud83d "quoted"'
"""Letters, a line separator, a NUL, half of a surrogate pair."""


def entry(seq: int, total: int, message: Message, tokens: int = 5) -> Entry:
    return Entry("s", seq, message, tokens, total, "o200k_base", message.created_at)


def log() -> list[Entry]:
    """Five messages after three that have expired."""
    said = [
        Message(role="system", content="Be kind.", created_at=AT),
        Message(role="user", content=ODD, created_at=AT + timedelta(microseconds=1)),
        Message(role="assistant", content=None, tool_calls=[{"id": "c", "n": 2**70, "x": 1e22}],
                created_at=AT),
        Message(role="tool", content="{}", tool_call_id="c", own={"a": [None, 0.1]}, created_at=AT),
        Message(raw={"type": "reasoning"}, format="openai.responses", metadata={"k": 1},
                created_at=AT),
    ]  # fmt: skip
    totals = [15, 20, 25, 30, 35]
    return [entry(4 + at, totals[at], one) for at, one in enumerate(said)]


def head() -> Head:
    return replace(
        Head("s", "ada", created_at=AT),
        end=8, total=35, expired=3, start=6, start_total=25, pinned=(5,), pinned_tokens=5,
        system=log()[0].message, system_tokens=5, cursors={"facts": 7, "vector": 8},
        summary=Summary(ODD, 3, 6, "local", redo_after=0, redo_text=ODD),
    )  # fmt: skip


def record(name: str = "r1", owner: str = "user:ada", last: int = 7) -> Record:
    sources, metadata = (last,) if last else (), {"deep": [{"x": 1.5}], "t": ODD}
    return Record(name, owner, "s", last, last, ODD, sources, AT, metadata)


def key(digit: str, seq: int) -> KeyRecord:
    return KeyRecord(digit * 40, digit * 64, seq, 9, 21, AT)


def letter() -> DeadLetter:
    return DeadLetter("facts", "s", 5, 6, 5, "It failed.", AT)


def lines() -> list[str]:
    writing = Writing(head())
    gone = {"block": "facts", "fact": "f", "span": (0, 3), "why": "asked", "spared": ("c",)}
    return [
        writing.opening("0.1.0"),
        writing.head(),
        *(writing.line("entry", one, at=one.created_at) for one in log()),
        writing.line("vectors", block="vector", dimension=4, model="model"),
        writing.record("vector", record(), b"\x01\x02"),
        writing.record("facts", record(last=7)),
        writing.record("pad", record("r2", "session:s", last=0)),
        writing.line("dead_letter", letter()),
        writing.line("forgotten", record(), at=AT, **gone),
        writing.line("key", key("a", 4)),
        writing.line("key", key("b", 7)),
        writing.end(),
    ]


def read(raw: bytes) -> list[Any]:
    reading = Reading(io.BytesIO(raw))
    return [reading.head, *reading.entries(), *(item for _, item in reading.records())]


def summed(bodies: Iterable[str]) -> bytes:
    """Return the lines, the last one with the digest of all before."""
    written = b""
    for body in bodies:
        fields = json.loads(body)
        if isinstance(fields, dict) and "sha256" in fields:
            body = compact_json({**fields, "sha256": sha256(written).hexdigest()})
        written += f"{body}\n".encode()
    return written


def bodies() -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines()]


def test_a_snapshot_is_read_back_unchanged() -> None:
    """Wrong: a head, a message or a record comes back changed."""
    found = read("".join(lines()).encode())
    assert found[0] == replace(head(), version=0)
    assert found[1:6] == log()
    texts = [one.message.to_json() for one in log()]
    assert [one.message.to_json() for one in found[1:6]] == texts
    assert (found[6].block, found[6].dimension, found[6].model) == ("vector", 4, "model")
    assert (found[7].record, found[7].traits) == (record(), b"\x01\x02")
    assert found[8:10] == [
        Stored("fact", "facts", record()),
        Stored("fact", "pad", record("r2", "session:s", 0)),
    ]
    assert found[10] == letter()
    assert found[12:] == [key("a", 4), key("b", 7)]
    gone = found[11].record
    assert (gone.owner, gone.first, gone.metadata["span"]) == ("user:ada", 7, [0, 3])
    assert read(summed(map(compact_json, bodies()))) == found


def test_a_snapshot_is_jsonl_with_a_standard_digest() -> None:
    """Wrong: the last line's digest is not what `head -n -1 FILE | sha256sum` prints."""
    written = [line.encode() for line in lines()]
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in written)
    whole = sha256(b"".join(written[:-1])).hexdigest()
    assert json.loads(written[-1])["sha256"] == whole


def number_of(error: pytest.ExceptionInfo[InvalidSnapshot]) -> int:
    found = re.match(r"line (\d+): ", str(error.value))
    return int(found[1])


def test_every_flipped_byte_is_refused() -> None:
    """Wrong: an altered byte is accepted."""
    raw = "".join(lines()).encode()
    for at in range(len(raw)):
        ways = (raw[at] ^ 1, raw[at] ^ 0x80, ord("\n"))  # another bit, invalid UTF-8, another line
        flipped = ways[at % 3] if ways[at % 3] != raw[at] else ord(" ")
        with pytest.raises(InvalidSnapshot) as error:
            read(raw[:at] + bytes([flipped]) + raw[at + 1 :])
        assert number_of(error) > raw.count(b"\n", 0, at), at


def test_every_prefix_is_refused() -> None:
    """Wrong: a truncated file is accepted as whole."""
    raw = "".join(lines()).encode()
    for size in range(len(raw)):
        with pytest.raises(InvalidSnapshot) as error:
            read(raw[:size])
        assert number_of(error) == raw.count(b"\n", 0, size) + 1, size
        between = raw[:size].endswith(b"\n")
        assert size < 200 or ("ends here" if between else "in the middle") in str(error.value)


def edited(at: int, /, **fields: Any) -> bytes:
    """Return the file with changed fields in one line, and valid checksums."""
    found = bodies()
    found[at] = {**found[at], **fields}
    return summed(map(compact_json, found))


MISFITS: list[tuple[int, str, list[Any]]] = [
    (0, "format", ["other"]),
    (0, "version", [0]),
    (0, "user", [5]),
    (0, "more", [1]),
    (0, "at", ["yesterday"]),
    (1, "kind", ["entry"]),
    (1, "end", [9, -1, 8.0]),
    (1, "total", [36]),
    (1, "expired", [2]),
    (1, "start", [9, 2]),
    (1, "start_total", [24]),
    (1, "pinned", [[7], [3], [5, 5]]),
    (1, "pinned_tokens", [4]),
    (1, "cursors", [{"facts": 9}, {"_notes": 1}, {"facts": "7"}]),
    (1, "system", [{"role": "user", "content": "x"}]),
    (1, "system_at", [None]),
    (1, "summary", [{"text": "x"}]),
    (1, "begun", ["2026-03-01T12:00:00", "2026-03-01T12:00:00+02:00"]),
    (2, "seq", [5]),
    (2, "total", [14]),
    (3, "total", [21]),
    (3, "tokens", [6, 2**60]),
    (3, "encoding", ["a\x00"]),
    (3, "message", [{"content": "no role"}, {"role": "nobody"}, []]),
    (3, "message", [{"role": "user", "created_at": at} for at in (None, "2020-01-01T00:00:00Z")]),
    (3, "message", [{"choices": [{"message": {"role": "user"}}]}]),
    (7, "block", ["_notes"]),
    (7, "dimension", [-1]),
    (8, "block", ["other"]),
    (8, "traits", ["not base64!"]),
    (8, "id", ["", "x" * 256]),
    (8, "of", ["everyone"]),
    (8, "owner", ["user:ben"]),
    (8, "session_id", ["other"]),
    (9, "block", ["_forgotten", "x" * 65]),
    (9, "last", [8, 9]),
    (9, "first", [8]),
    (9, "sources", [[9], [0]]),
    (9, "at", [5]),
    (9, "kind", ["vectors", "entry", "thing", []]),
    (11, "last", [8]),
    (11, "first", [3]),
    (11, "block", ["other"]),
    (11, "attempts", [0]),
    (12, "first", [9]),
    (12, "span", [[1]]),
    (12, "spared", [[1]]),
    (13, "name", ["A" * 40]),
    (13, "digest", ["sealed.1.k.x"]),
    (13, "seq", [9, 0]),
    (13, "end", [3]),
    (13, "at", ["then"]),
    (14, "name", ["a" * 40]),
]
"""Lines of the file, their fields, and values that these cannot have."""


@pytest.mark.parametrize(
    ("at", "fields"),
    [
        *((at, {name: one}) for at, name, values in MISFITS for one in values),
        (1, {"expired": 8, "start": 8, "pinned": []}),
    ],
)
def test_invalid_data_with_valid_checksums_is_refused(at: int, fields: dict[str, Any]) -> None:
    """Wrong: a crafted file with valid checksums writes invalid data, or another session's."""
    with pytest.raises(InvalidSnapshot, match=r"^line \d+: ") as error:
        read(edited(at, **fields))
    assert number_of(error) >= at + 1


def test_odd_snapshot_files_are_refused_with_a_reason() -> None:
    """Wrong: a file with a wrong digest, NaN or deep nesting is accepted."""
    with pytest.raises(InvalidSnapshot, match="line 16: its `sha256` does not fit"):
        read("".join([*lines()[:-1], lines()[-1].replace('256":"', '256":"x')]).encode())
    with pytest.raises(InvalidSnapshot, match="line 9: the record belongs to a user"):
        read(edited(0, user=None))
    for number in ("NaN", "Infinity", "1e999", "1" * 5000):
        found = [compact_json(one) for one in bodies()]
        found[9] = found[9].replace('"x":1.5', f'"x":{number}')
        assert number in found[9]
        with pytest.raises(InvalidSnapshot, match="line 10: it is not plain JSON"):
            read("\n".join(found).encode())
    for depth in (200, 100_000):
        found = [compact_json(one) for one in bodies()]
        found[9] = found[9].replace('"x":1.5', f'"x":{"[" * depth}{"]" * depth}')
        with pytest.raises(InvalidSnapshot, match="line 10: "):
            read("\n".join(found).encode())
    with pytest.raises(InvalidSnapshot, match=r"line 1: .* version 2 .* install a newer"):
        read(edited(0, version=2))


@pytest.mark.parametrize(
    "raw", [b"", b"\n", b'{"role":"user","content":"hi"}\n', b"\xff\xfe\n", b"[]\n", b"[" * 99_999]
)
def test_a_file_that_is_not_a_snapshot_raises_a_clear_error(raw: bytes) -> None:
    """Wrong: another kind of file, or an empty one, is reported as damaged, or crashes."""
    with pytest.raises(InvalidSnapshot, match=r"line 1: (the file is empty|this is not)"):
        read(raw)


def test_data_after_the_end_of_a_snapshot_is_refused() -> None:
    """Wrong: text after the end of a snapshot is ignored."""
    raw = "".join(lines()).encode()
    for more in (b"\n", b"{}\n", raw):
        with pytest.raises(InvalidSnapshot, match="line 17: "):
            read(raw + more)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**60) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(st.integers(0, 15), st.data())
def test_any_edit_is_read_or_refused(at: int, data: st.DataObject) -> None:
    """Wrong: a crafted file raises something else than `InvalidSnapshot`."""
    found = bodies()
    name = data.draw(st.sampled_from(sorted(found[at])))
    if data.draw(st.booleans()):
        del found[at][name]
    else:
        found[at][name] = data.draw(_JSON)
    try:
        items = read(summed(json.dumps(one) for one in found))
    except InvalidSnapshot:
        return
    named = {one.record.session_id for one in items if isinstance(one, Stored)}
    assert named <= {items[0].session_id}
