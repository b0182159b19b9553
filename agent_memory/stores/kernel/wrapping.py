"""`KernelWrapper`, the base of kernels that encode data before another kernel stores it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agent_memory.stores.kernel import contract as k


class KernelWrapper(k.Kernel):
    """Passes all calls to another kernel. Subclasses override the hooks that encode and decode.

    A hook that cannot decode a body replaces the body by an `Unreadable`. The error then affects
    only this document or line. The kernels `more` store a part of the data.
    """

    def __init__(self, inner: k.Kernel, more: Collection[k.Kernel] = ()) -> None:
        self.inner = inner
        self._all = [*{id(kernel): kernel for kernel in (inner, *more)}.values()]
        self.spans = inner.spans and not more
        self.remote = any(kernel.remote for kernel in self._all)

    def encoded(self, document: k.Document) -> k.Document:
        """Return a document as it is stored."""
        return document

    def encoded_line(self, line: k.Line) -> k.Line:
        """Return a line as it is stored."""
        return line

    def decoded(self, documents: Sequence[k.Document | None]) -> list[k.Document | None]:
        """Return stored documents as they were written."""
        return [*documents]

    def decoded_lines(self, lines: Sequence[k.Line]) -> list[k.Line]:
        """Return stored lines as they were written."""
        return [*lines]

    def commit(self, batch: k.Batch) -> k.Outcome:
        encoded = batch._replace(writes=[*map(self._encoded, batch.writes)])
        return self._outcome(self.inner.commit(encoded))

    def _encoded(self, write: k.Write) -> k.Write:
        match write:
            case k.Put(document):
                return k.Put(self.encoded(document))
            case k.Append(lines):
                return k.Append([self.encoded_line(line) for line in lines])
        return write

    def _outcome(self, outcome: k.Outcome) -> k.Outcome:
        if not outcome.documents:
            return outcome
        documents = self.decoded([*outcome.documents.values()])
        return outcome._replace(documents=dict(zip(outcome.documents, documents, strict=True)))

    def extend(self, head: k.DocId, version: int, line: k.Line, micros: int) -> bool:
        return self.inner.extend(head, version, self.encoded_line(line), micros)

    def documents(
        self, ids: Sequence[k.DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[k.Document | None]:
        documents = self.inner.documents(ids, tails=tails, bodies=bodies)
        return self.decoded(documents) if bodies else documents

    def scan(self, scan: k.Scan) -> list[k.Document]:
        documents = self.inner.scan(scan)
        return documents if scan.names or not scan.bodies else self._decoded(documents)

    def owners(self, collection: str, beginning: str) -> list[str]:
        return self.inner.owners(collection, beginning)

    def collections(self, beginning: str) -> list[str]:
        return self.inner.collections(beginning)

    def due(self, collection: str, limit: int) -> list[k.Document]:
        return self._decoded(self.inner.due(collection, limit))

    def _decoded(self, documents: Sequence[k.Document]) -> list[k.Document]:
        return [document for document in self.decoded(documents) if document is not None]

    def lines(self, parts: Sequence[k.Part]) -> list[k.Line]:
        return self.decoded_lines(self.inner.lines(parts))

    def counts(self, collection: str) -> tuple[int, int]:
        return self.inner.counts(collection)

    def erase(self) -> str | None:
        return next(filter(None, [kernel.erase() for kernel in self._all]), None)

    def sync(self) -> None:
        for kernel in self._all:
            kernel.sync()

    def close(self) -> None:
        self.inner.close()
