"""The facts and vectors of an `SQLStore`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from agent_memory.core.records import Hit, Lease, Record
from agent_memory.errors import DimensionMismatch, LeaseLost
from agent_memory.stores.coding import mismatch, record_body, record_of, to_micros
from agent_memory.stores.damage import undamaged
from agent_memory.stores.indexes import Changed, Indexes, search
from agent_memory.stores.log import LOST
from agent_memory.stores.sql.compiled import chunks, named
from agent_memory.stores.sql.database import SQLConnection, SQLDatabase

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features, Query
    from agent_memory.retrieval.index import TraitIndex

_PAGE = 200


class SQLRecords:
    """Facts and vectors in an SQL database."""

    def __init__(self, database: SQLDatabase, namespace: str) -> None:
        self._database = database
        self._namespace = namespace
        self._opened: dict[str, tuple[int, str]] = {}
        self._indexes = Indexes()

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
            for rows in self._pages("facts_page", block):
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
        given = _given(id=record_id, owner=owner, session_id=session_id)
        values = self._matching(block, given, after)

        def work(connection: SQLConnection) -> None:
            self._guard(connection, lease)
            connection.run(named("forget_facts", tuple(given)), values)

        self._database.write(work)

    def open_vectors(self, block: str, dimension: int, model: str) -> None:
        given = (dimension, model)
        self._database.write(lambda connection: self._announce(connection, block, given))
        self._opened[block] = given

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        features: Features,
        *,
        lease: Lease | None = None,
    ) -> None:
        if not records:
            return
        from agent_memory.stores.blobs import blobs_of, checked

        opened = checked(block, self._opened.get(block), features)
        rows = self._rows(block, records, blobs_of(records, features))
        names = [record.id for record in records]

        def work(connection: SQLConnection) -> Changed:
            self._guard(connection, lease)
            self._announce(connection, block, opened)
            owners = {row["owner"] for row in rows}
            for ids in chunks(names):
                found = connection.rows("owners_of_ids", {**self._of(block), "ids": ids})
                owners.update(row.owner for row in found)
            before = {owner: self._version(connection, block, owner) for owner in sorted(owners)}
            self._overwrite(connection, "vectors", block, rows)
            after = self._renew(connection, block, owners)
            return {owner: (before[owner], after[owner]) for owner in owners}

        changed = self._database.write(work)
        self._indexes.extend(block, changed, names, features)

    def search_vectors(self, block: str, owner: str, query: Query, depth: int) -> list[Hit]:
        values = self._of(block, owner)

        def work(connection: SQLConnection) -> list[Hit]:
            scope = connection.row("scope", values)
            index = self._indexes.get((block, owner), scope.version if scope else None)
            if index is None:
                index = self._load(connection, block, owner)

            def read(ids: list[str]) -> dict[str, Record]:
                records: dict[str, Record] = {}
                for names in chunks(ids):
                    rows = connection.rows("vectors", {**self._of(block), "ids": names})
                    own = [row for row in rows if row.owner == owner]
                    found = undamaged(own, lambda row: record_of(row, "vector", block))
                    records.update((record.id, record) for record in found)
                return records

            return search(block, index, query, depth, read)

        return self._database.read(work)

    def _load(self, connection: SQLConnection, block: str, owner: str) -> TraitIndex:
        rows = connection.rows("traits", self._of(block, owner))
        version = rows[0].version if rows else None
        ids, blobs = [row.id for row in rows], [row.vector for row in rows]
        return self._indexes.load((block, owner), version, ids, blobs)

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        given = _given(owner=owner, session_id=session_id)
        values = self._matching(block, given, after)

        def work(connection: SQLConnection) -> None:
            self._guard(connection, lease)
            changed = {row.owner for row in connection.rows(named("owners", tuple(given)), values)}
            connection.run(named("forget_vectors", tuple(given)), values)
            self._renew(connection, block, changed)

        self._database.write(work)

    def clear_vectors(self, block: str) -> None:

        def work(connection: SQLConnection) -> None:
            # the collection first: whoever still writes its vectors holds it, see `collection`
            for what in ("collections", "vectors", "vector_scopes"):
                connection.run(f"clear_{what}", self._of(block))

        self._database.write(work)

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        of = {"ns": self._namespace}
        rows = self._database.read(lambda connection: connection.rows("blocks", of))
        return {row.block: (row.dimension, row.model) for row in rows}

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        from agent_memory.stores.blobs import with_features

        name = "vectors_page" if session_id is None else "vectors_page_of_session"
        for rows in self._pages(name, block, sid=session_id):
            found = undamaged(rows, lambda row: (record_of(row, "vector", block), row.vector))
            yield from with_features(block, found)

    def _pages(self, name: str, block: str, **values: Any) -> Iterator[list[Any]]:
        """The rows of a statement that gives those after an id, some at a time."""
        at = {**self._of(block), **values, "after": "", "most": _PAGE}
        while rows := self._database.read(lambda connection: connection.rows(name, at)):
            yield rows
            at["after"] = rows[-1].id

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

    def _rows(
        self, block: str, records: Sequence[Record], blobs: Sequence[bytes] | None = None
    ) -> list[dict[str, Any]]:
        rows: dict[str, dict[str, Any]] = {}
        for place, record in enumerate(records):
            rows[record.id] = {
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
            if blobs is not None:
                rows[record.id]["vector"] = blobs[place]
        return list(rows.values())

    def _overwrite(
        self, connection: SQLConnection, what: str, block: str, rows: list[dict[str, Any]]
    ) -> None:
        for ids in chunks([row["id"] for row in rows]):
            connection.run(f"drop_{what}", {**self._of(block), "ids": ids})
        connection.run_each(f"put_{what}", rows)

    def _announce(self, connection: SQLConnection, block: str, given: tuple[int, str]) -> None:
        stored = connection.row("collection", self._of(block))
        if stored is None:
            values = {"dimension": given[0], "model": given[1]}
            of = {"namespace": self._namespace, "block": block}
            connection.run("announce", {**of, **values})
        elif tuple(stored) != given:
            raise DimensionMismatch(mismatch(block, (stored.dimension, stored.model), given))

    def _version(self, connection: SQLConnection, block: str, owner: str) -> int | None:
        """The version of an owner's vectors, which nobody else changes before this commits."""
        row = connection.row("held_scope", self._of(block, owner))
        return None if row is None else int(row.version)

    def _renew(self, connection: SQLConnection, block: str, owners: set[str]) -> dict[str, int]:
        versions = {owner: secrets.randbits(62) for owner in sorted(owners)}
        for owner, version in versions.items():
            of = self._of(block, owner)
            connection.run("forget_scope", of)
            connection.run("renew_scope", {**of, "version": version})
        return versions


def _given(**conditions: str | None) -> dict[str, str]:
    given = {name: value for name, value in conditions.items() if value is not None}
    if not given:
        raise ValueError("Name an owner, a session or a record.")
    return given
