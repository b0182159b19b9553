"""`RoutedStore` stores the records of some blocks in separate databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_memory.core.records import Record
from agent_memory.stores.base import Store
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.stores.kernel.wrapping import KernelWrapper, take_keys


class RoutedStore(KernelStore):
    """Stores the records and vectors of some blocks in separate databases.

        facts = open_store("sqlite:///facts.db")
        store = RoutedStore(open_store("sqlite:///memory.db"), {"extractive": facts})

    All other data and the leases are in the common database. The common database may also have
    records that were stored before their block was routed. A deletion of the block's records also
    deletes these records. A lease is checked before a write to another database. If the lease is
    lost during the write, the engine reverts the write.

    Args:
        inner: The common store. `close` closes only this store.
        routes: The store of each routed block, by the block's name.
    """

    def __init__(self, inner: Store, routes: Mapping[str, Store]) -> None:
        kernels = {block: store.kernel for block, store in routes.items()}
        super().__init__(RoutedKernel(inner.kernel, kernels))
        self._common = KernelStore(inner.kernel)
        self._routes = kernels
        take_keys(self, inner)

    def delete_vectors(self, block: str, **which: Any) -> None:
        if block in self._routes:
            self._common.delete_vectors(block, **which)
        super().delete_vectors(block, **which)

    def all_records(self) -> Iterator[tuple[str, Record]]:
        yield from super().all_records()
        earlier = self._common.all_records()
        yield from ((block, record) for block, record in earlier if block in self._routes)


class RoutedKernel(KernelWrapper):
    """Routes the documents of blocks to other kernels."""

    def __init__(self, inner: k.Kernel, routes: Mapping[str, k.Kernel]) -> None:
        super().__init__(inner, routes.values())
        self._routes = routes

    def _of(self, at: k.DocId) -> k.Kernel:
        block = at.id if at.collection == k.BLOCKS else at.collection.partition(":")[2]
        return self._routes.get(block, self.inner)

    def commit(self, batch: k.Batch) -> k.Outcome:
        """Commit a batch in parts, one per kernel. The common kernel, with the leases, is first."""
        done = k.DONE
        for kernel in self._all:
            conditions = [
                check
                for check in batch.conditions
                if kernel is (self.inner if isinstance(check, k.LogEndsAt) else self._of(check.id))
            ]
            writes = [part for write in batch.writes for part in self._part(write, kernel)]
            if conditions or writes:
                tail = batch.tail if kernel is self.inner else ""
                outcome = kernel.commit(k.Batch(conditions, writes, tail))
                if not outcome.done:
                    return outcome
                done = outcome if tail else done
        return done

    def _part(self, write: k.Write, kernel: k.Kernel) -> Iterator[k.Write]:
        """Yield the part of a write for a kernel. The common kernel gets all deletions of facts."""
        match write:
            case k.Put(document):
                if self._of(document.key) is kernel:
                    yield write
            case k.Due(at) | k.Hold(at):
                if self._of(at) is kernel:
                    yield write
            case k.Wake(ids) | k.Delete(ids):
                own = [at for at in ids if self._is_in(at, kernel)]
                if own or (not ids and kernel is self.inner):
                    yield write._replace(ids=own)
            case k.DeleteWhere(scan):
                if self._is_in(k.DocId(scan.collection, ""), kernel):
                    yield write
            case _:
                if kernel is self.inner:
                    yield write

    def _is_in(self, at: k.DocId, kernel: k.Kernel) -> bool:
        earlier = kernel is self.inner and at.collection.startswith(k.FACT)
        return earlier or self._of(at) is kernel

    def documents(
        self, ids: Sequence[k.DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[k.Document | None]:
        by_id: dict[k.DocId, k.Document | None] = {}
        for kernel in self._all:
            own = [at for at in ids if self._of(at) is kernel]
            if own:
                documents = kernel.documents(own, tails=tails, bodies=bodies)
                by_id.update(zip(own, documents, strict=True))
        return [by_id[at] for at in ids]

    def scan(self, scan: k.Scan) -> list[k.Document]:
        if scan.collection != k.BLOCKS:
            return self._of(k.DocId(scan.collection, "")).scan(scan)
        scanned = [(document, kernel) for kernel in self._all for document in kernel.scan(scan)]
        return [document for document, kernel in scanned if self._of(document.key) is kernel]

    def owners(self, collection: str, beginning: str) -> list[str]:
        return self._of(k.DocId(collection, "")).owners(collection, beginning)

    def collections(self, beginning: str) -> list[str]:
        return sorted({name for kernel in self._all for name in kernel.collections(beginning)})
