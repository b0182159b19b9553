"""The facts and vectors of an `SQLStore`."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    and_,
    bindparam,
    delete,
    insert,
    literal,
    select,
)

from agent_memory.errors import DimensionMismatch, LeaseLost
from agent_memory.records import Lease, Record
from agent_memory.stores.coding import mismatch, record_body, record_of, to_micros
from agent_memory.stores.log import LOST
from agent_memory.stores.sql_engine import Database
from agent_memory.stores.sql_tables import COLLECTIONS, FACTS, SCOPES, SESSIONS, VECTORS

if TYPE_CHECKING:
    import numpy as np

_CACHE_BYTES = 64 * 2**20
_CHUNK = 500


def _of_owner(table: Table) -> ColumnElement[bool]:
    return and_(_of_block(table), table.c.owner == bindparam("of_owner"))


def _of_block(table: Table) -> ColumnElement[bool]:
    return and_(table.c.namespace == bindparam("ns"), table.c.block == bindparam("of_block"))


def _columns(table: Table) -> list[Any]:
    names = ("id", "owner", "session_id", "first", "last", "created_at", "body")
    return [table.c[name] for name in names]


_BY_ID = {
    table: delete(table).where(_of_block(table), table.c.id == bindparam("of_id"))
    for table in (FACTS, VECTORS)
}
_FACTS = select(*_columns(FACTS)).where(_of_owner(FACTS)).order_by(FACTS.c.created_at, FACTS.c.id)
_REPLACED = delete(FACTS).where(
    _of_block(FACTS),
    FACTS.c.session_id == bindparam("sid"),
    FACTS.c.first <= bindparam("until"),
    FACTS.c.last >= bindparam("since"),
)

_COLLECTION = select(COLLECTIONS.c.dimension, COLLECTIONS.c.model).where(_of_block(COLLECTIONS))
_VERSION = select(SCOPES.c.version).where(_of_owner(SCOPES))
_LOAD = (  # one statement, so that the version is the one of these very vectors
    select(SCOPES.c.version, VECTORS.c.id, VECTORS.c.vector)
    .join_from(
        SCOPES,
        VECTORS,
        and_(
            VECTORS.c.namespace == SCOPES.c.namespace,
            VECTORS.c.block == SCOPES.c.block,
            VECTORS.c.owner == SCOPES.c.owner,
        ),
    )
    .where(_of_owner(SCOPES))
)
_RECORDS = select(*_columns(VECTORS)).where(
    # with the owner in it, SQLite would walk all of the owner's records
    _of_block(VECTORS),
    VECTORS.c.id.in_(bindparam("ids", expanding=True)),
)
_OWNERS = (
    select(VECTORS.c.owner)
    .where(_of_block(VECTORS), VECTORS.c.id.in_(bindparam("ids", expanding=True)))
    .distinct()
)
_FORGET_SCOPE = delete(SCOPES).where(_of_owner(SCOPES))
_RENEW_SCOPE = insert(SCOPES).from_select(
    ["namespace", "block", "owner", "version"],
    select(
        VECTORS.c.namespace,
        VECTORS.c.block,
        VECTORS.c.owner,
        bindparam("version", type_=SCOPES.c.version.type),
    )
    .where(_of_owner(VECTORS))
    .limit(literal(1, literal_execute=True)),
)
_HELD = select(SESSIONS.c.key).where(
    SESSIONS.c.namespace == bindparam("ns"),
    SESSIONS.c.session_id == bindparam("sid"),
    SESSIONS.c.lease_owner == bindparam("owner"),
)
_CLEAR = tuple(delete(table).where(_of_block(table)) for table in (VECTORS, SCOPES, COLLECTIONS))


class SQLRecords:
    """Facts and vectors in an SQL database."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace
        self._opened: dict[str, tuple[int, str]] = {}
        self._cache = _MatrixCache()

    def put_facts(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        """See `FactStore.put_facts`."""
        rows = self._rows(block, records)

        def work(connection: Connection) -> None:
            self._guard(connection, lease)
            if replacing is not None:
                sid, since, until = replacing
                values = {**self._of(block), "sid": sid, "since": since, "until": until}
                connection.execute(_REPLACED, values)
            self._overwrite(connection, FACTS, block, rows)

        self._database.write(work)

    def facts(self, block: str, owner: str) -> list[Record]:
        """See `FactStore.facts`."""
        values = self._of(block, owner)
        rows = self._database.read(lambda connection: connection.execute(_FACTS, values).all())
        return [record_of(row) for row in rows]

    def delete_facts(
        self,
        block: str,
        *,
        record_id: str | None = None,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        """See `FactStore.delete_facts`."""
        which = _matching(FACTS, owner, session_id, after, record_id)
        values = self._of(block)

        def work(connection: Connection) -> None:
            self._guard(connection, lease)
            connection.execute(delete(FACTS).where(which), values)

        self._database.write(work)

    def open_vectors(self, block: str, dimension: int, model: str) -> None:
        """See `VectorStore.open_vectors`."""
        given = (dimension, model)
        self._database.write(lambda connection: self._announce(connection, block, given))
        self._opened[block] = given

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        vectors: np.ndarray,
        *,
        lease: Lease | None = None,
    ) -> None:
        """See `VectorStore.put_vectors`."""
        import numpy as np

        matrix = np.ascontiguousarray(vectors, dtype="<f4")
        if not records:
            return
        if matrix.ndim != 2 or len(matrix) != len(records):
            raise ValueError("Give one vector for each record.")
        width = int(matrix.shape[1])
        opened = self._opened.get(block)
        if opened is None or opened[0] != width:
            known = opened or (0, "no embedder")
            raise DimensionMismatch(mismatch(block, known, (width, "unnamed")))
        blobs = [row.tobytes() for row in matrix]
        rows = self._rows(block, records, blobs)

        def work(connection: Connection) -> None:
            self._guard(connection, lease)
            self._announce(connection, block, opened)
            owners = {row["owner"] for row in rows}
            ids = [row["id"] for row in rows]
            for start in range(0, len(ids), _CHUNK):
                values = {**self._of(block), "ids": ids[start : start + _CHUNK]}
                owners.update(connection.scalars(_OWNERS, values))
            self._overwrite(connection, VECTORS, block, rows)
            self._renew(connection, block, owners)

        self._database.write(work)

    def search_vectors(
        self, block: str, owner: str, vector: np.ndarray, limit: int
    ) -> list[tuple[Record, float]]:
        """See `VectorStore.search_vectors`."""
        from agent_memory.stores.nearest import nearest

        values = self._of(block, owner)

        def work(connection: Connection) -> list[tuple[Record, float]]:
            version = connection.scalar(_VERSION, values)
            found = self._cache.get((block, owner), version)
            if found is None:
                loaded = connection.execute(_LOAD, values).all()
                found = self._cache.put((block, owner), loaded)
            ids, matrix = found
            if ids and matrix.shape[1] != len(vector):
                stored = (int(matrix.shape[1]), "the stored model")
                raise DimensionMismatch(mismatch(block, stored, (len(vector), "unnamed")))
            best = nearest(ids, matrix, vector, limit)
            records: dict[str, Record] = {}
            for start in range(0, len(best), _CHUNK):
                names = [name for name, _ in best[start : start + _CHUNK]]
                rows = connection.execute(_RECORDS, {**self._of(block), "ids": names})
                records.update((row.id, record_of(row)) for row in rows if row.owner == owner)
            # one that was deleted or given away since the search is left out
            return [(records[name], score) for name, score in best if name in records]

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
        """See `VectorStore.delete_vectors`."""
        which = _matching(VECTORS, owner, session_id, after)
        values = self._of(block)
        owners = select(VECTORS.c.owner).where(which).distinct()

        def work(connection: Connection) -> None:
            self._guard(connection, lease)
            changed = set(connection.scalars(owners, values))
            connection.execute(delete(VECTORS).where(which), values)
            self._renew(connection, block, changed)

        self._database.write(work)

    def clear_vectors(self, block: str) -> None:
        """See `VectorStore.clear_vectors`."""

        def work(connection: Connection) -> None:
            for statement in _CLEAR:
                connection.execute(statement, self._of(block))

        self._database.write(work)

    def _guard(self, connection: Connection, lease: Lease | None) -> None:
        if lease is not None:
            values = {"ns": self._namespace, "sid": lease.session_id, "owner": lease.owner}
            if connection.execute(_HELD, values).first() is None:
                raise LeaseLost(LOST.format(lease.session_id))

    def _of(self, block: str, owner: str | None = None) -> dict[str, Any]:
        values: dict[str, Any] = {"ns": self._namespace, "of_block": block}
        if owner is not None:
            values["of_owner"] = owner
        return values

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
        self, connection: Connection, table: Table, block: str, rows: list[dict[str, Any]]
    ) -> None:
        if rows:
            of = self._of(block)
            connection.execute(_BY_ID[table], [{**of, "of_id": row["id"]} for row in rows])
            connection.execute(insert(table), rows)

    def _announce(self, connection: Connection, block: str, given: tuple[int, str]) -> None:
        stored = connection.execute(_COLLECTION, self._of(block)).first()
        if stored is None:
            values = {"dimension": given[0], "model": given[1]}
            of = {"namespace": self._namespace, "block": block}
            connection.execute(insert(COLLECTIONS), {**of, **values})
        elif tuple(stored) != given:
            raise DimensionMismatch(mismatch(block, (stored.dimension, stored.model), given))

    def _renew(self, connection: Connection, block: str, owners: set[str]) -> None:
        for owner in sorted(owners):
            of = self._of(block, owner)
            connection.execute(_FORGET_SCOPE, of)
            connection.execute(_RENEW_SCOPE, {**of, "version": secrets.randbits(62)})


def _matching(
    table: Table,
    owner: str | None,
    session_id: str | None,
    after: int,
    record_id: str | None = None,
) -> ColumnElement[bool]:
    if owner is None and session_id is None and record_id is None:
        raise ValueError("Name an owner, a session or a record.")
    which = _of_block(table)
    if record_id is not None:
        which = and_(which, table.c.id == record_id)
    if owner is not None:
        which = and_(which, table.c.owner == owner)
    if session_id is not None:
        which = and_(which, table.c.session_id == session_id)
    return and_(which, table.c.last > after) if after else which


class _MatrixCache:
    """The matrices searched last, for as long as their versions stand.

    It takes no lock: each step on the dict is atomic, and a lost entry is only loaded again.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[int, list[str], np.ndarray]] = OrderedDict()

    def get(self, key: tuple[str, str], version: int | None) -> tuple[list[str], np.ndarray] | None:
        kept = self._kept.pop(key, None)
        if kept is None or kept[0] != version:
            return None
        self._kept[key] = kept
        return kept[1], kept[2]

    def put(self, key: tuple[str, str], rows: Sequence[Any]) -> tuple[list[str], np.ndarray]:
        import numpy as np

        if not rows:
            return [], np.empty((0, 0), dtype=np.float32)
        ids = [row.id for row in rows]
        matrix = np.frombuffer(b"".join(row.vector for row in rows), dtype="<f4")
        matrix = matrix.reshape(len(ids), -1)
        self._kept[key] = (rows[0].version, ids, matrix)
        while len(self._kept) > 1 and self._size() > _CACHE_BYTES:
            self._kept.popitem(last=False)
        return ids, matrix

    def _size(self) -> int:
        return sum(matrix.nbytes for _, _, matrix in list(self._kept.values()))
