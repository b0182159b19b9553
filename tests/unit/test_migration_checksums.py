"""Checksums of migrated data: equal for equal data, and different otherwise."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.messages import Message
from agent_memory.core.records import Head, Record, Summary
from agent_memory.engine.transfer.migrate import origin_of
from agent_memory.engine.transfer.mirror import (
    Item,
    Part,
    Sums,
    mirror,
    record_digest,
    session_digest,
)
from tests.histories import histories, log_of

AT = datetime(2024, 2, 29, 12, 30, 15, 123457, tzinfo=UTC)
SYSTEM = Message(role="system", content="be kind", created_at=AT)
SUMMARY = Summary("so far", 3, 4, "local", 1, "before")
HEAD = replace(
    Head("s", "u", created_at=AT), end=9, total=27, start=4, start_total=12, pinned=(2,),
    pinned_tokens=3, system=SYSTEM, system_tokens=4, summary=SUMMARY, cursors={"a": 1, "b": 2},
)  # fmt: skip
OTHERS: dict[str, Any] = {
    "session_id": "S", "user_id": None, "end": 10, "total": 28, "expired": 1, "start": 5,
    "start_total": 13, "pinned": (1,), "pinned_tokens": 4, "system": None, "system_tokens": 5,
    "summary": replace(SUMMARY, redo_text=None), "cursors": {"a": 1}, "deleting": True,
    "created_at": AT + timedelta(microseconds=1),
}  # fmt: skip
RECORD = Record("r", "user:u", "s", 1, 2, "text", (1, 2), AT, {"a": [1, None], "b": 1.5})
OTHER_RECORDS: dict[str, Any] = {
    "id": "r2", "owner": "user:v", "session_id": "", "first": 0, "last": 3, "text": "text ",
    "sources": (1,), "created_at": AT + timedelta(microseconds=1), "metadata": {"a": [1], "b": 1.5},
}  # fmt: skip


@pytest.mark.parametrize("name", [field.name for field in fields(Head)])
def test_each_field_of_a_head_counts(name: str) -> None:
    """Wrong: a head with a changed field has the same checksum."""
    changed = replace(HEAD, **{name: OTHERS.get(name, 77)})
    beside = {"version", "updated_at", "metadata"}  # computed, or of other records
    assert (session_digest(changed, []) == session_digest(HEAD, [])) == (name in beside)


@pytest.mark.parametrize(
    "system",
    [
        SYSTEM.model_copy(update={"created_at": AT + timedelta(microseconds=1)}),
        Message(role="developer", content="be kind", created_at=AT),
        Message(role="system", content="be kind", created_at=AT, metadata={"a": 1}),
    ],
)
def test_all_of_a_system_message_counts(system: Message) -> None:
    """Wrong: a system message without a field, or its time, has the same checksum."""
    assert session_digest(replace(HEAD, system=system), []) != session_digest(HEAD, [])


@pytest.mark.parametrize("name", Record.__slots__)
def test_each_field_of_a_record_counts(name: str) -> None:
    """Wrong: a record with a changed field has the same checksum."""
    changed = replace(RECORD, **{name: OTHER_RECORDS[name]})
    assert record_digest("x", changed) != record_digest("x", RECORD)


def test_block_and_traits_of_a_record_count() -> None:
    """Wrong: a record of another block, or with other vectors, has the same checksum."""
    three = {record_digest("x", RECORD, b"1"), record_digest("y", RECORD, b"1")}
    assert len(three | {record_digest("x", RECORD, b"2")}) == 3


@given(histories(), st.data())
def test_each_entry_counts(messages: list[dict[str, Any]], data: st.DataObject) -> None:
    """Wrong: a log with a missing, additional, changed or moved entry has the same checksum."""
    log = log_of(messages, lambda _: 3)
    whole = session_digest(HEAD, log)
    again = [
        replace(one, message=Message.from_json(one.message.to_json(), one.created_at))
        for one in log
    ]
    assert session_digest(HEAD, again) == whole
    place = data.draw(st.integers(0, len(log) - 1))
    name = data.draw(st.sampled_from(["seq", "tokens", "total", "encoding"]))
    value = {"encoding": "other"}.get(name, 999)
    message = Message(role="user", content="something else", created_at=AT)
    for changed in (
        log[:place] + log[place + 1 :],
        [*log, log[place]],
        [*log[:place], replace(log[place], **{name: value}), *log[place + 1 :]],
        [*log[:place], replace(log[place], message=message), *log[place + 1 :]],
    ):
        assert session_digest(HEAD, changed) != whole
    assert session_digest(replace(HEAD, end=10), log) != whole


@given(st.lists(st.tuples(st.sampled_from("ab"), st.binary(min_size=32, max_size=32))), st.data())
def test_sums_know_no_order(records: list[tuple[str, bytes]], data: st.DataObject) -> None:
    """Wrong: record order changes the checksum, or a missing or duplicate record does not."""
    whole = _sums(records)
    assert whole.differing(_sums(data.draw(st.permutations(records)))) == []
    if records:
        kind, digest = records[0]
        assert whole.differing(_sums(records[1:])) == [kind]
        assert whole.differing(_sums([*records, (kind, digest)])) == [kind]
        assert whole.differing(_sums([*records[1:], (kind, digest[::-1] + b"1")])) == [kind]


def test_what_cancels_out_is_told_apart_by_its_count() -> None:
    """Wrong: records whose checksums sum to zero count as no records."""
    half = (2**255).to_bytes(32)
    assert _sums([("a", half), ("a", half)]).differing(Sums()) == ["a"]


def _sums(records: list[tuple[str, bytes]]) -> Sums:
    sums = Sums()
    for kind, digest in records:
        sums.add(kind, digest)
    return sums


class Held(Part):
    """Data that counts writes, and whose removals also remove neighbours."""

    def __init__(self, **records: bytes) -> None:
        self.records = dict(records)
        self.written = 0

    def read(self) -> Any:
        for name, digest in list(self.records.items()):
            yield Item(name[0], (name[0], name), digest, name)

    def put(self, items: Any) -> None:
        self.written += len(items)
        self.records |= {item.value: item.digest for item in items}

    def remove(self, ids: Any) -> None:
        for block, _ in list(ids):
            for name in [name for name in self.records if name[0] == block]:
                del self.records[name]


_SHELVES = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.sampled_from([b"1" * 32, b"2" * 32])
)


@given(_SHELVES, _SHELVES, st.integers(1, 5))
def test_a_mirror_shows_what_is_before_it(
    source: dict[str, bytes], target: dict[str, bytes], page: int
) -> None:
    """Wrong: a repeated copy misses a record, keeps a stale one, or writes without need."""
    here, there, sums = Held(**source), Held(**target), Sums()
    here.page = page
    assert sum(mirror(here, there, sums)) == len(source)
    assert there.records == here.records == source
    if not target.keys() - source.keys():
        assert there.written == len(source.items() - target.items())
    assert sums.differing(_sums([(one.name, one.digest) for one in here.read()])) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("postgresql://u:a@h/db", "postgresql://v:b@h/db", True),
        ("postgresql://u:a@h/db", "postgresql://u:a@h/db2", False),
        ("postgresql://h/db", "mysql://h/db", False),
        ("redis://:a@h:1/0?password=x", "redis://:b@h:1/0?password=y", True),
        ("unix:///s.sock?db=1", "unix:///s.sock?db=2", False),
        ("mongodb://u:p@a:1,b:2/db?w=1", "mongodb://a:1,b:2/db?w=1", True),
        ("sqlite:///./a.db", "sqlite:///a.db", True),
        ("sqlite:///a@b.db", "sqlite:///c@b.db", False),
    ],
)
def test_a_source_is_known_again(one: str, other: str, same: bool) -> None:
    """Wrong: a changed password makes a source unknown, or another database counts as the same."""
    assert (origin_of(one) == origin_of(other)) == same
    assert len(origin_of(one)) == 64
