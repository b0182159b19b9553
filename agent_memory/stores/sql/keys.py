"""Keys of appends in an SQL database."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agent_memory.core.once import KeptKey, in_order
from agent_memory.stores.coding import from_micros, to_micros
from agent_memory.stores.sql.compiled import chunks
from agent_memory.stores.sql.database import SQLConnection


def read_keys(
    connection: SQLConnection, at: Mapping[str, Any], names: Collection[str] | None
) -> list[KeptKey]:
    """The keys of a session, of these names if any are given, in order of their seqs."""
    if names is None:
        rows = connection.rows("keys", at)
    else:
        rows = [
            row
            for some in chunks(names)
            for row in connection.rows("named_keys", {**at, "names": some})
        ]
    return in_order(
        KeptKey(row.name, row.digest, row.seq, row.upto, row.total, from_micros(row.created_at))
        for row in rows
    )


def write_keys(connection: SQLConnection, session: int, keys: Sequence[KeptKey]) -> None:
    """Keep keys whose names are free, of a session that nobody else writes to meanwhile."""
    connection.run_each(
        "put_key",
        [
            {
                "session": session,
                "name": one.name,
                "digest": one.digest,
                "seq": one.seq,
                "upto": one.end,
                "total": one.total,
                "created_at": to_micros(one.at),
            }
            for one in keys
        ],
    )
