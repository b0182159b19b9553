"""Messages that are larger than a statement of the database may be: they stand in pieces.

An entry whose message does stands for it with the number of its pieces and a digest of the whole,
in JSON that is no message's.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agent_memory.core.records import Entry
from agent_memory.stores.sql.compiled import chunks
from agent_memory.stores.sql.database import SQLConnection
from agent_memory.stores.sql.rows import entry_values

_TRIES = 20


def is_large(connection: SQLConnection, values: Mapping[str, Any]) -> bool:
    """Whether an entry's message is to stand in pieces."""
    most = connection.most_text
    return most is not None and len(values["message"]) > most


def write_entries(connection: SQLConnection, session: int, entries: Sequence[Entry]) -> None:
    """Write entries of a session that nobody else writes to meanwhile."""
    rows = [{**entry_values(entry), "session": session} for entry in entries]
    large = [row for row in rows if is_large(connection, row)]
    for row in large:
        most = connection.most_text
        assert most is not None
        text = row["message"]
        parts = [text[at : at + most] for at in range(0, len(text), most)]
        row["message"] = json.dumps([len(parts), _digest(text)])
        for part, piece in enumerate(parts):  # each by itself: two may be too much for one
            place = {"session": session, "seq": row["seq"], "part": part}
            connection.run("put_piece", {**place, "text": piece})
    connection.run_each("extend", rows)


def read_whole(
    connection: SQLConnection,
    namespace: str,
    read: Callable[[], list[Any]],
    session_id: str | None = None,
) -> list[Any]:
    """Rows of entries, with the messages that stand in pieces put together.

    Args:
        connection: What they are read with.
        namespace: Of the sessions.
        read: Reads the rows; once more where a log was changed meanwhile.
        session_id: Whose entries they are, where the rows don't say it.
    """
    rows: list[Any] = []
    texts: dict[int, Any] = {}
    for _ in range(_TRIES):
        rows = read()
        if connection.most_text is None:
            return rows
        large = [row for row in rows if not row.message.startswith("{")]
        if not large:
            return rows
        texts = _texts(connection, namespace, large, session_id)
        if len(texts) == len(large):
            break
    # they are missing for good: what stands in their place is no message, and read as damage
    return [texts.get(id(row), row) for row in rows]


def _texts(
    connection: SQLConnection, namespace: str, large: Sequence[Any], session_id: str | None
) -> dict[int, Any]:
    """The rows, by their identities, with their whole messages; without those that changed."""
    found: dict[int, Any] = {}
    for name, rows in _by_session(large, session_id):
        at = {"ns": namespace, "sid": name}
        texts: dict[int, str] = defaultdict(str)
        for seqs in chunks([row.seq for row in rows]):
            for piece in connection.rows("pieces", {**at, "seqs": seqs}):
                texts[piece.seq] += piece.text
        for row in rows:
            if row.message.endswith(f'"{_digest(texts[row.seq])}"]'):
                found[id(row)] = row._replace(message=texts[row.seq])
    return found


def _by_session(rows: Sequence[Any], session_id: str | None) -> Iterator[tuple[str, list[Any]]]:
    if session_id is not None:
        yield session_id, list(rows)
        return
    by_name: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        by_name[row.session_id].append(row)
    yield from by_name.items()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
