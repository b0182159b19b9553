"""The facts of an `SQLStore`, and what its vectors have in common with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from agent_memory.core.records import Lease, Record
from agent_memory.errors import LeaseLost
from agent_memory.stores.coding import record_body, record_of, to_micros
from agent_memory.stores.damage import undamaged
from agent_memory.stores.log import LOST
from agent_memory.stores.sql.compiled import chunks, named
from agent_memory.stores.sql.database import SQLConnection, SQLDatabase

_PAGE = 200


class SQLRecords:
    """Facts in an SQL database."""

    def __init__(self, database: SQLDatabase, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    def put_records(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        rows = self._rows(block, records)

        def work(connection: SQLConnection) -> None:
            self._guard(connection, lease)
            if replacing is not None:
                sid, since, until = replacing
                values = {**self._of(block), "sid": sid, "since": since, "until": until}
                connection.run("replace_facts", values)
            self._overwrite(connection, "facts", block, rows)

        self._database.write(work)

    def swap_record(self, block: str, record: Record, last: int | None) -> bool:
        (row,) = self._rows(block, [record])
        values = {f"new_{name}": value for name, value in row.items()}
        if last is None:
            return self._database.write(lambda connection: connection.run("begin_fact", values)) > 0
        values |= {**self._of(block), "of_id": record.id, "of_last": last}
        return self._database.write(lambda connection: connection.run("swap_fact", values)) > 0

    def records(self, block: str, owner: str) -> list[Record]:
        values = self._of(block, owner)
        rows = self._database.read(lambda connection: connection.rows("facts", values))
        return undamaged(rows, lambda row: record_of(row, "fact", block))

    def record(self, block: str, record_id: str) -> Record | None:
        values = {**self._of(block), "of_id": record_id}
        row = self._database.read(lambda connection: connection.row("fact", values))
        return None if row is None else record_of(row, "fact", block)

    def owners(self, block: str, beginning: str) -> list[str]:
        def work(connection: SQLConnection) -> list[str]:
            found: list[str] = []
            at = {**self._of(block), "since": beginning}
            while row := connection.row("next_owner", at):
                if not row.owner.startswith(beginning):
                    break
                found.append(row.owner)
                at["since"] = row.owner + "\1"  # the least that may follow
            return found

        return self._database.read(work)

    def all_records(self) -> Iterator[tuple[str, Record]]:
        block = self._next_block("")
        while block:
            decode = partial(record_of, kind="fact", block=block)
            for rows in self._pages("facts_page", self._of(block)):
                yield from ((block, record) for record in undamaged(rows, decode))
            block = self._next_block(block)

    def _next_block(self, block: str) -> str:
        """The name of the block with facts that comes after one; empty after the last."""
        of = self._of(block)
        row = self._database.read(lambda connection: connection.row("next_block", of))
        return "" if row is None else str(row.block)

    def delete_records(
        self,
        block: str,
        *,
        record_id: str | None = None,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        given = conditions(id=record_id, owner=owner, session_id=session_id)
        values = self._matching(block, given, after)

        def work(connection: SQLConnection) -> None:
            self._guard(connection, lease)
            connection.run(named("forget_facts", tuple(given)), values)

        self._database.write(work)

    def _pages(
        self, name: str, of: dict[str, Any], column: str = "id", after: Any = ""
    ) -> Iterator[list[Any]]:
        """The rows of a statement that gives those after a value of a column, some at a time."""
        while rows := self._all(name, {**of, "after": after, "most": _PAGE}):
            yield rows
            after = getattr(rows[-1], column)

    def _all(self, name: str, values: dict[str, Any]) -> list[Any]:
        return self._database.read(lambda connection: connection.rows(name, values))

    def _guard(self, connection: SQLConnection, lease: Lease | None) -> None:
        if lease is not None:
            values = {"ns": self._namespace, "sid": lease.session_id, "owner": lease.owner}
            if connection.row("held", values) is None:
                raise LeaseLost(LOST.format(lease.session_id))

    def _of(self, block: str, owner: str | None = None) -> dict[str, Any]:
        return {"ns": self._namespace, "of_block": block, "of_owner": owner}

    def _matching(self, block: str, given: dict[str, str], after: int) -> dict[str, Any]:
        which = {f"of_{name}": value for name, value in given.items()}
        return {**self._of(block), **which, "after": after or -1}  # notes derive from no entry

    def _rows(self, block: str, records: Sequence[Record]) -> list[dict[str, Any]]:
        return [
            {
                "namespace": self._namespace,
                "block": block,
                "id": record.id,
                "owner": record.owner,
                "session_id": record.session_id,
                "first": record.first,
                "last": record.last,
                "created_at": to_micros(record.created_at),
                "body": record_body(record),
            }
            for record in {record.id: record for record in records}.values()
        ]

    def _overwrite(
        self, connection: SQLConnection, what: str, block: str, rows: list[dict[str, Any]]
    ) -> None:
        for ids in chunks([row["id"] for row in rows]):
            connection.run(f"drop_{what}", {**self._of(block), "ids": ids})
        connection.run_each(f"put_{what}", rows)


def conditions(**which: str | None) -> dict[str, str]:
    """Those of the conditions that are given.

    Raises:
        ValueError: None is.
    """
    given = {name: value for name, value in which.items() if value is not None}
    if not given:
        raise ValueError("Name an owner, a session or a record.")
    return given
