"""What the owners of a block have, as rows: catalogs, segments, and numbers of records."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from agent_memory.stores.catalogs import Catalog, changed
from agent_memory.stores.mending import catalog_of
from agent_memory.stores.seals import UNSEALED, SegmentSeals
from agent_memory.stores.sql.compiled import chunks
from agent_memory.stores.sql.database import SQLConnection

if TYPE_CHECKING:
    from agent_memory.retrieval.segments import Segment

T = TypeVar("T")

_AT_ONCE = 8  # segments, some MB each: drivers hold what comes twice
Run = Callable[[Callable[[SQLConnection], T]], T]


class OwnersRows:
    """As `catalogs.SegmentSource`.

    Args:
        run: Runs what is to be done on a connection.
        of: The namespace, the block and the owner.
        seals: Opens the segments.
    """

    def __init__(
        self, run: Run[Any], of: Mapping[str, Any], seals: SegmentSeals = UNSEALED
    ) -> None:
        self._run = run
        self._of = of
        self._seals = seals

    def catalog(self) -> tuple[int, str | None] | None:
        """See `SegmentSource.catalog`."""
        row = self._run(lambda connection: connection.row("scope", self._of))
        return None if row is None else (row.version, row.catalog)

    def segments(self, names: Sequence[int]) -> Mapping[int, bytes]:
        """See `SegmentSource.segments`."""
        block, owner = self._of["of_block"], self._of["of_owner"]
        found: dict[int, bytes] = self._run(lambda it: segments_of(it, self._of, names))
        return {
            name: self._seals.opened(block, owner, str(name), body) for name, body in found.items()
        }

    def names(self) -> Sequence[int]:
        """See `SegmentSource.names`."""
        return [row.name for row in self._run(lambda it: it.rows("segment_names", self._of))]

    def numbers(self) -> Mapping[str, int]:
        """See `SegmentSource.numbers`."""
        return {row.id: row.at for row in self._run(lambda it: it.rows("numbers", self._of))}


def segments_of(
    connection: SQLConnection, of: Mapping[str, Any], names: Sequence[int]
) -> dict[int, bytes]:
    """An owner's segments by their names, those that there are."""
    return {
        row.name: row.body
        for some in chunks(names, _AT_ONCE)
        for row in connection.rows("segments", {**of, "names": some})
    }


def most_bytes(connection: SQLConnection) -> int | None:
    """How large a segment may be for a statement, in which a byte may take two; None where any
    can be written."""
    if connection.most_text is None:
        return None
    from agent_memory.retrieval.segments import MOST_BYTES

    most = 2 * connection.most_text
    return most if most < MOST_BYTES else None


class Scopes:
    """What owners have, within a transaction that changes it: nobody else does meanwhile.

    Args:
        connection: In the transaction.
        of: The namespace and the block.
        owners: Those that are to be changed in any case.
        seals: Seals and opens the segments.
    """

    def __init__(
        self,
        connection: SQLConnection,
        of: Mapping[str, Any],
        owners: Iterable[str] = (),
        *,
        seals: SegmentSeals = UNSEALED,
    ) -> None:
        self._seals = seals
        self._connection = connection
        self._given = of
        self._held: dict[str, tuple[int, str | None] | None] = {}
        self._catalogs: dict[str, Catalog] = {}
        self._hold(owners)

    def _hold(self, owners: Iterable[str]) -> None:
        for owner in sorted(owners):  # in one order: no two wait for each other
            held = self._connection.row("held_scope", self._of(owner))
            self._held[owner] = None if held is None else (held.version, held.catalog)
            self._catalogs[owner] = self._catalog(owner)

    def _of(self, owner: str) -> dict[str, Any]:
        return {**self._given, "of_owner": owner}

    def holding(self, read: Callable[[], Sequence[Any]]) -> dict[str, dict[str, int]]:
        """The numbers of records by id, for each owner; all of these are held then.

        Args:
            read: Reads rows of `id, owner, at`.
        """
        while True:
            rows = read()
            more = {row.owner for row in rows} - self._held.keys()
            if not more:
                break
            self._hold(more)
        found: dict[str, dict[str, int]] = {}
        for row in rows:
            found.setdefault(row.owner, {})[row.id] = row.at
        return found

    def of_ids(self, ids: Sequence[str]) -> list[Any]:
        """The rows of records, for `holding`."""
        return [
            row
            for some in chunks(ids)
            for row in self._connection.rows("numbers_of_ids", {**self._given, "ids": some})
        ]

    def catalog(self, owner: str) -> Catalog:
        """What an owner has, who is held."""
        return self._catalogs[owner]

    def _catalog(self, owner: str) -> Catalog:
        source = self._source(owner)
        return catalog_of(self._given["of_block"], owner, source, self._held[owner])

    def _source(self, owner: str) -> OwnersRows:
        connection = self._connection
        return OwnersRows(lambda work: work(connection), self._of(owner), self._seals)

    def put(self, owner: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write records, with the numbers that `change` gives them next."""
        if rows:
            first = self.catalog(owner).next
            numbered = [{**row, "at": at, "vector": b""} for at, row in enumerate(rows, first)]
            self._connection.run_each("put_vectors", numbered)

    def drop(self, gone: Mapping[str, Mapping[str, int]]) -> None:
        """Remove records, whose owners are to be changed then."""
        for some in chunks([name for numbers in gone.values() for name in numbers]):
            self._connection.run("drop_vectors", {**self._given, "ids": some})

    def change(self, owner: str, gone: Mapping[str, int], added: Sequence[Segment] = ()) -> None:
        """Write what comes of it that records were removed, and others put.

        Args:
            owner: Who is held.
            gone: Numbers by id.
            added: What the others are found by.
        """
        of = self._of(owner)
        # whatever its catalog says: deleting reads nothing that may be damaged
        if not added and self._connection.row("any_of_owner", of) is None:
            self._connection.run("forget_segments", of)
            self._connection.run("forget_scope", of)
            return
        self.write(owner, self.catalog(owner), {at: name for name, at in gone.items() if at}, added)

    def write(
        self,
        owner: str,
        catalog: Catalog,
        gone: Mapping[int, str],
        added: Sequence[Segment],
        count: int = 0,
    ) -> None:
        """Write what comes of a change to a catalog; see `catalogs.changed`."""
        of, connection, read = self._of(owner), self._connection, self._source(owner).segments
        most = most_bytes(connection)
        change = changed(catalog, gone, added, read, count=count, most_bytes=most)
        for some in chunks(change.dropped):
            connection.run("drop_segments", {**of, "names": some})
        place = {"namespace": of["ns"], "block": of["of_block"], "owner": owner}
        block, sealed = of["of_block"], self._seals.sealed
        new = [
            {**place, "name": name, "body": sealed(block, owner, str(name), body)}
            for name, body in change.written.items()
        ]
        if new:
            connection.run_each("put_segments", new)
        values = {"version": secrets.randbits(62), "catalog": change.catalog.text}
        if self._held[owner] is None:
            connection.run("begin_scope", {**place, **values})
        else:
            connection.run("change_scope", {**of, **values})
