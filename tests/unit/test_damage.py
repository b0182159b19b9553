"""Reading damaged documents."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head, Summary
from agent_memory.errors import Damaged
from agent_memory.stores.damage import leave_out, noted, undamaged
from agent_memory.stores.kernel.coding import (
    entry_of,
    head_document,
    head_of,
    lag_of,
    line_of_entry,
)
from agent_memory.stores.kernel.contract import Document, Tail

NOW = datetime(2024, 2, 29, tzinfo=UTC)


def head() -> Head:
    return replace(
        Head("s", "u", created_at=NOW),
        summary=Summary("so far", 2, 1, "local"),
        cursors={"facts": 1},
        version=3,
        end=2,
        total=9,
    )


def stored() -> Document:
    return head_document(head())._replace(tail=Tail(2, 9))


def spoilt(field: str, value: object) -> Document:
    """Return the document with another value in one of its fields."""
    one = stored()
    name = "body" if field in ("system", "summary") else "about"
    return one._replace(**{name: json.dumps({**json.loads(getattr(one, name)), field: value})})


def test_an_intact_document_is_read() -> None:
    """Wrong: a sound document is read as damaged."""
    assert head_of(stored()) == head()
    lag = lag_of(stored(), "facts")
    assert lag.after == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("summary", "{broken"),
        ("summary", {"text": 1, "tokens": 1, "upto": 1, "by": "x"}),
        ("cursors", None),
        ("pinned", [1, "x"]),
        ("system", 1),
        ("start", 1.5),
    ],
)
def test_a_damaged_document_raises_damaged_with_readable_fields(field: str, value: object) -> None:
    """Wrong: damage raises a foreign error, or hides the fields of a head that can be read."""
    with pytest.raises(Damaged, match=rf"Session 's' .*\({field}\)") as raised:
        head_of(spoilt(field, value))
    damage = raised.value.damage
    assert damage.broken == (field,)
    assert damage.head.user_id == "u"
    assert damage.is_usable
    assert getattr(damage.head, field) != value


def test_damaged_cursors_and_entries_are_named_in_the_error() -> None:
    """Wrong: a block whose cursor is damaged is forgotten, so a deletion leaves its records."""
    broken = stored()._replace(about='{"cursors":{"facts":12,"vector":3')
    with pytest.raises(Damaged) as raised:
        head_of(broken)
    assert raised.value.damage.head.cursors == {"facts": 0, "vector": 0}
    line = line_of_entry(Entry("s", 2, Message(role="user", content="a"), 1, 4, "test", NOW))
    assert entry_of(line).seq == 2
    for field in ("body", "tokens", "created_at"):
        with pytest.raises(Damaged, match="Message 2 of session 's'"):
            entry_of(line._replace(**{field: "x"}))


def test_omitted_rows_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: the same damage is logged every two seconds, or never."""

    def decode(row: int) -> int:
        if row == 2:
            raise Damaged(f"Row {row} is damaged, as only this test says.")
        return row

    for _ in range(3):
        assert undamaged([1, 2, 3], decode) == [1, 3]
    assert [line for line in caplog.messages if "only this test" in line] == [
        "left out: Row 2 is damaged, as only this test says."
    ]
    with noted() as damaged:
        undamaged([2, 2], decode)
        leave_out(Damaged("another"))
    assert len(damaged) == 3
