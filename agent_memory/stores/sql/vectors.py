"""The vectors of an `SQLStore`: records in rows, what they are found by in segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from agent_memory.core.records import Hit, Lease, Record
from agent_memory.errors import DimensionMismatch, StoreError
from agent_memory.stores.catalogs import grouped, packed
from agent_memory.stores.coding import mismatch, record_of
from agent_memory.stores.damage import undamaged
from agent_memory.stores.indexes import Indexes, LooseRecords, is_loose, search
from agent_memory.stores.seals import UNSEALED, SegmentSeals
from agent_memory.stores.sql.compiled import chunks, named
from agent_memory.stores.sql.database import SQLConnection, SQLDatabase
from agent_memory.stores.sql.migrations import table_name
from agent_memory.stores.sql.records import SQLRecords, conditions
from agent_memory.stores.sql.scopes import OwnersRows, Scopes, most_bytes
from agent_memory.stores.walking import Walk

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.query import Query

_PAGE = 200
_MANY = 1_000  # records that a process has put
_LOAD = 10_000  # the same, each time
_SMALL = 2**30  # bytes
_PACKED = 2_000  # records of an earlier release, at a time


class SQLVectors(SQLRecords):
    """Facts and vectors in an SQL database."""

    def __init__(self, database: SQLDatabase, namespace: str) -> None:
        super().__init__(database, namespace)
        self._opened: dict[str, tuple[int, str]] = {}
        self._put = 0
        self._indexes = Indexes()
        self._seals = UNSEALED

    def seal_segments(self, seals: SegmentSeals) -> None:
        self._seals = seals

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
        from agent_memory.stores.blobs import checked

        opened = checked(block, self._opened.get(block), features)
        ids = [record.id for record in records]
        given = grouped(records, features)

        def work(connection: SQLConnection) -> None:
            most = most_bytes(connection)
            groups = given if most is None else grouped(records, features, most)
            self._guard(connection, lease)
            self._announce(connection, block, opened)
            scopes = Scopes(connection, self._of(block), groups, seals=self._seals)
            gone = scopes.holding(lambda: scopes.of_ids(ids))
            scopes.drop(gone)
            for owner in {**groups, **gone}:
                some, segments = groups.get(owner, ([], []))
                scopes.put(owner, self._rows(block, some))
                scopes.change(owner, gone.get(owner, {}), segments)

        self._database.write(work)
        before, self._put = self._put, self._put + len(records)
        if before < _MANY <= self._put:
            self._in_postgres(_count)
        if before // _LOAD < self._put // _LOAD:
            self._in_postgres(_make_room)

    def _in_postgres(self, work: Callable[[SQLConnection], None]) -> None:
        """Have PostgreSQL do now what it would do in its own time."""

        def done(connection: SQLConnection) -> None:
            if connection.dialect == "postgresql":
                work(connection)

        with suppress(StoreError):  # what was written stands
            self._database.alone(done)

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        def work(connection: SQLConnection) -> list[Hit]:
            of = self._of(block, owner)
            source = OwnersRows(lambda work: work(connection), of, self._seals)

            def read(ids: Sequence[str]) -> dict[str, Record]:
                found = self._by_ids(connection, block, owner, ids)
                return {record.id: record for _, record in found}

            index = self._indexes.follow((block, owner), source, read, self._seals)
            return search(block, index, query, limit, read)

        try:
            return self._database.read(work)
        except LooseRecords:
            self._pack(block, owner)
        return self._database.read(work)

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        given = conditions(owner=owner, session_id=session_id)
        values = self._matching(block, given, after)

        def work(connection: SQLConnection) -> None:
            self._guard(connection, lease)
            scopes = Scopes(connection, self._of(block), seals=self._seals)
            gone = scopes.holding(lambda: connection.rows(named("numbers", tuple(given)), values))
            scopes.drop(gone)
            for each, numbers in gone.items():
                scopes.change(each, numbers)

        self._database.write(work)

    def clear_vectors(self, block: str) -> None:

        def work(connection: SQLConnection) -> None:
            # the collection first: whoever still writes its vectors holds it, see `collection`
            for what in ("collections", "scopes", "segments", "vectors"):
                connection.run(f"clear_{what}", self._of(block))

        self._database.write(work)

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        rows = self._all("blocks", {"ns": self._namespace})
        return {row.block: (row.dimension, row.model) for row in rows}

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        for owner, pages in self._owners(block, session_id):
            source = OwnersRows(self._database.read, self._of(block, owner), self._seals)
            if is_loose(source.catalog()):
                self._pack(block, owner)
            walk = Walk(block, owner, source, partial(self._read_by_ids, block, owner))
            for page in pages:
                yield from walk.page([row.id for row in page if row.owner == owner])

    def _owners(
        self, block: str, session_id: str | None
    ) -> Iterator[tuple[str, Iterator[list[Any]]]]:
        """The owners, each with rows of its records' numbers, some at a time; read when asked for.

        Of a session that several owners have, the rows are those of all.
        """
        if session_id is None:
            for scopes in self._pages("scopes_page", self._of(block), "owner", ""):
                for scope in scopes:
                    of = self._of(block, scope.owner)
                    yield scope.owner, self._pages("numbers_page", of, "at", 0)
            return
        values = self._matching(block, {"session_id": session_id}, 0)

        def pages() -> Iterator[list[Any]]:
            yield from chunks(self._all("numbers_by_session_id", values), _PAGE)

        for owner in sorted({row.owner for page in pages() for row in page}):
            yield owner, pages()

    def _by_ids(
        self, connection: SQLConnection, block: str, owner: str, ids: Sequence[str]
    ) -> list[tuple[int, Record]]:
        """An owner's records by id, those that there are, each with its number."""
        rows = [
            row
            for some in chunks(ids)
            for row in connection.rows("vectors", {**self._of(block), "ids": some})
            if row.owner == owner
        ]
        return undamaged(rows, lambda row: (row.at, record_of(row, "vector", block)))

    def _read_by_ids(self, block: str, owner: str, ids: Sequence[str]) -> list[tuple[int, Record]]:
        return self._database.read(lambda it: self._by_ids(it, block, owner, ids))

    def _pack(self, block: str, owner: str) -> None:
        """Put records that an earlier release wrote into segments, some in each transaction; and
        write a catalog anew that cannot be read."""
        while self._database.write(partial(self._pack_some, block, owner)):
            pass

    def _pack_some(self, block: str, owner: str, connection: SQLConnection) -> bool:
        """Whether there may be more."""
        of = self._of(block, owner)
        scopes = Scopes(connection, self._of(block), [owner], seals=self._seals)
        catalog = scopes.catalog(owner)
        if not catalog.loose:  # another was quicker
            return False
        rows = connection.rows("loose", {**of, "most": _PACKED})
        names, blobs = [row.id for row in rows], [row.vector for row in rows]
        ids, segments = packed(names, blobs, most_bytes(connection))
        for at, name in enumerate(ids, catalog.next):
            connection.run("number_vector", {**of, "of_id": name, "new_at": at, "none": b""})
        more = len(rows) == _PACKED
        scopes.write(owner, replace(catalog, loose=more), {}, segments, len(ids))
        return more

    def _announce(self, connection: SQLConnection, block: str, given: tuple[int, str]) -> None:
        stored = connection.row("collection", self._of(block))
        if stored is None:
            values = {"dimension": given[0], "model": given[1]}
            of = {"namespace": self._namespace, "block": block}
            connection.run("announce", {**of, **values})
        elif tuple(stored) != given:
            raise DimensionMismatch(mismatch(block, (stored.dimension, stored.model), given))


def _count(connection: SQLConnection) -> None:
    """Have the planner know of how many there are by now: it takes a table that nobody has analysed
    for small, and would walk all of a block to find some records by their ids."""
    connection.define(f"ANALYZE {table_name('vectors')}")


def _make_room(connection: SQLConnection) -> None:
    """Have what was joined into larger segments make room: until they are vacuumed it takes three
    times theirs. Of a large table it is a small part, and left to the server."""
    segments = table_name("segments")
    size = connection.value(f"SELECT pg_total_relation_size('{segments}')")
    if 0 < size < _SMALL:  # it is 0 of a table in partitions, which may be many
        connection.define(f"VACUUM (SKIP_LOCKED, TRUNCATE FALSE) {segments}")
