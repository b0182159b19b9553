"""How damaged documents of MongoDB are read: no server is needed for that."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head, Summary, empty_head
from agent_memory.errors import Damaged
from agent_memory.stores.damage import leave_out, noted, undamaged, whole
from agent_memory.stores.mongodb.documents import (
    entry_of,
    entry_values,
    head_of,
    head_values,
    lag_of,
)

pytest.importorskip("pymongo")

NOW = datetime(2024, 2, 29, tzinfo=UTC)


def head() -> Head:
    """One of a session with all parts."""
    return replace(
        empty_head("s", "u", NOW),
        summary=Summary("so far", 2, 1, "local"),
        cursors={"facts": 1},
        version=3,
        end=2,
        total=9,
    )


def doc(**fields: Any) -> dict[str, Any]:
    """Its document, with other fields in it."""
    begun = int(NOW.timestamp() * 1e6)
    return {"sid": "s", "end": 2, "total": 9, "begun": begun, **head_values(head()), **fields}


def test_a_sound_document() -> None:
    """Else: nothing below is worth anything."""
    assert head_of(doc()) == head()
    assert lag_of(doc(), "facts").after == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("summary", "{broken"),
        ("summary", '{"text": 1, "tokens": 1, "upto": 1, "by": "x"}'),
        ("cursors", None),
        ("cursors", "{broken"),
        ("pinned", [1, "x"]),
        ("system", b"\xff"),
        ("start", 1.5),
        ("end", "many"),
        ("version", None),
    ],
)
def test_a_damaged_document(field: str, value: object) -> None:
    """Wrong: an error that is not ours, or what can still be read of a head is not told."""
    with pytest.raises(Damaged, match=rf"Session 's' .*\({field}\)") as raised:
        head_of(doc(**{field: value}))
    damage = raised.value.damage
    assert damage is not None
    assert damage.head is not None
    assert damage.broken == (field,)
    assert damage.head.user_id == "u"
    assert damage.is_known == (field not in ("end", "version"))
    assert getattr(damage.head, field) != value


def test_cursors_name_their_blocks_still() -> None:
    """Wrong: a block whose cursor cannot be read keeps what it has of a session that is deleted."""
    with pytest.raises(Damaged) as raised:
        head_of(doc(cursors='{"facts":12,"vector":3'))
    assert raised.value.damage is not None
    assert raised.value.damage.head is not None
    assert raised.value.damage.head.cursors == {"facts": 0, "vector": 0}
    assert lag_of(doc(cursors='{"facts":12,'), "facts").after == 0


def test_a_damaged_entry() -> None:
    """Wrong: an error that does not say which message it is about."""
    entry = Entry("s", 2, Message(role="user", content="a"), 1, 4, "test", NOW)
    values = entry_values(entry, 1, "w")
    assert entry_of("s", values).seq == 2
    for field in ("message", "tokens", "created_at"):
        with pytest.raises(Damaged, match="Message 2 of session 's'"):
            entry_of("s", {**values, field: "x"})


def test_what_is_left_out_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: a worker writes the same line every two seconds, or nobody hears of it."""

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
    with pytest.raises(Damaged, match="Row 2"):
        list(whole(one for some in ([1], [2]) for one in undamaged(some, decode)))
