"""A SQLite database as this release writes it: `release_1.db`, which later releases must open.

`python -m tests.contract.test_sql_release` writes it. A release with another schema writes a file
of another name; the files of earlier releases stay.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from agent_memory.core.idempotency import Once, key_of
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Record
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing.contract import stored
from agent_memory.testing.features import for_words, worded

FILE = Path(__file__).with_name("release_1.db")
_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_PARTS = [{"type": "text", "text": "A fox."}, {"type": "image_url", "image_url": {"url": "x"}}]
_SAID = [
    Message(role="system", content="Be brief.", created_at=_AT),
    Message(role="user", content="I moved to Lisbon."),
    Message(role="user", content=_PARTS, name="ana"),
]
_FACT = Record("f", "user:ana", "monday", 2, 2, "Lives in Lisbon.", (2,), _AT, {"sure": True})
_VECTOR = Record("v", "user:ana", "monday", 3, 3, "A fox.", (3,), _AT)


def _drafts() -> list[Draft]:
    return [Draft(message, 5, "test") for message in _SAID]


def _once() -> Once:
    return Once(key=key_of("k", _SAID), at=_AT)


def _write(path: Path) -> None:
    with closing(SQLStore(f"sqlite:///{path}")) as store:
        store.append_once("monday", _drafts(), _once(), "ana")
        store.put_records("facts", [_FACT])
        store.open_vectors("v", 0, "m")
        store.put_vectors("v", [_VECTOR], worded(["fox"]))
        store.secure_erase()


def test_a_database_of_this_release_opens(tmp_path: Path) -> None:
    """Wrong: after an upgrade nobody finds what was said before, or writes it twice."""
    path = tmp_path / "memory.db"
    shutil.copy(FILE, path)
    with closing(SQLStore(f"sqlite:///{path}")) as store:
        entries = store.read("monday")
        assert [one.message.content for one in entries] == [one.content for one in _SAID]
        assert entries[0].message.to_dict() == _SAID[0].to_dict()
        head = stored(store, "monday")
        assert (head.user_id, head.end, head.system) == ("ana", 3, _SAID[0])
        assert store.records("facts", "user:ana") == [_FACT]
        assert [one for some, _ in store.all_vectors("v") for one in some] == [_VECTOR]
        (hit,) = store.search_vectors("v", "user:ana", for_words("fox"), 9)
        assert hit.record == _VECTOR
        assert store.append_once("monday", _drafts(), _once(), "ana").places == ()
        assert store.append("monday", _drafts()[1:2]).end == 4


if __name__ == "__main__":
    _write(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
