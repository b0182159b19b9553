"""`RecordStore`: the methods of a store for facts and other records, built on `Kernel`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from agent_memory.core.records import Lease, Record
from agent_memory.stores.damage import undamaged_records
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.coding import record_document, record_from
from agent_memory.stores.kernel.rules import selects
from agent_memory.stores.kernel.sessions import SessionStore, held


class RecordStore(SessionStore):
    """A store of short texts that blocks derive and list, such as extracted facts."""

    def put_records(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        """Insert or overwrite records by id, in one transaction.

        Args:
            replacing: `(session_id, first, last)`, a range of entries. The block's records that
                derive from these entries are deleted first, so that a repeated extraction leaves no
                duplicates.
            lease: Write only while this lease is held.

        Raises:
            LeaseLost: The lease is no longer held; nothing was written.
        """
        name, writes = f"{k.FACT}{block}", list[k.Write]()
        if replacing is not None:
            session, first, last = replacing
            overlap = k.Scan(name, session=session, first_below=last + 1, last_above=first - 1)
            writes.append(k.DeleteWhere(overlap))
        unique = {record.id: record for record in records}.values()
        writes += [k.Put(record_document(name, record, record.last)) for record in unique]
        self._write(lease, k.Batch(held(lease), writes))

    def swap_record(self, block: str, record: Record, last: int | None) -> bool:
        """Compare-and-swap: write a record if the stored record of this id still has this `last`.

        Only one of several concurrent writers succeeds, even in different processes.

        Args:
            record: The record to store, with another `last`.
            last: The `last` of the stored record; None if there is none.

        Returns:
            Whether the record was written. If the connection broke during the call, False can
            also be returned for a written record.
        """
        at = k.DocId(f"{k.FACT}{block}", record.id)
        condition: k.Condition = k.Missing(at) if last is None else k.VersionIs(at, last)
        put = k.Put(record_document(at.collection, record, record.last))
        return self._kernel.commit(k.Batch([condition], [put])).done

    def records(self, block: str, owner: str) -> list[Record]:
        """Return all records of one owner, oldest first (by created_at, then id)."""
        docs = self._kernel.scan(k.Scan(f"{k.FACT}{block}", owner))
        records = undamaged_records(docs, lambda doc: record_from(doc, "fact", block))
        return sorted(records, key=lambda record: (record.created_at, record.id))

    def record(self, block: str, record_id: str) -> Record | None:
        """Return a record by its id; None if it does not exist."""
        (document,) = self._kernel.documents([k.DocId(f"{k.FACT}{block}", record_id)])
        return None if document is None else record_from(document, "fact", block)

    def owners(self, block: str, beginning: str) -> list[str]:
        """Return the record owners of a block that start with `beginning`, in code point order."""
        return self._kernel.owners(f"{k.FACT}{block}", beginning)

    def all_records(self) -> Iterator[tuple[str, Record]]:
        """Yield each record with the name of its block, in no particular order.

        Records that are written during the iteration may be missing.
        """
        for name in self._kernel.collections(k.FACT):
            block = name.removeprefix(k.FACT)
            decode = partial(record_from, kind="fact", block=block)
            for page in self._pages(k.Scan(name)):
                yield from ((block, record) for record in undamaged_records(page, decode))

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
        """Delete the records that match all arguments. `after` matches each higher `last`.

        At least one of `record_id`, `owner` and `session_id` is required.

        Raises:
            LeaseLost: The lease is no longer held; nothing was deleted.
        """
        if record_id is None and owner is None and session_id is None:
            raise ValueError("Name an owner, a session or a record.")
        scan = k.Scan(f"{k.FACT}{block}", owner, session_id, last_above=after or None)
        writes: list[k.Write] = [k.DeleteWhere(scan)]
        if record_id is not None:
            at = k.DocId(scan.collection, record_id)
            writes = [k.Delete([at])]
            if scan != k.Scan(scan.collection):
                (document,) = self._kernel.documents([at], bodies=False)
                writes = writes if document and selects(scan, document) else []
        self._write(lease, k.Batch(held(lease), writes))
