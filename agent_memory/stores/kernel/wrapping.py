"""`KernelWrapper`, the base of kernels that encode data before another kernel stores it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agent_memory.stores.kernel.contract import (
    Append,
    Batch,
    DocId,
    Document,
    Kernel,
    Line,
    Outcome,
    Part,
    Put,
    Scan,
    Write,
)


def take_keys(store: object, inner: object) -> None:
    """Copy the attributes with which an encrypted store signs receipts and encrypts vectors."""
    for name in ("signing_keys", "vectors_of"):
        if hasattr(inner, name):
            setattr(store, name, getattr(inner, name))


class KernelWrapper(Kernel):
    """Passes all calls to another kernel. Subclasses override the hooks that encode and decode.

    A hook that cannot decode a body replaces the body by an `Unreadable`. The error then affects
    only this document or line. The kernels `more` store a part of the data.
    """

    def __init__(self, inner: Kernel, more: Collection[Kernel] = ()) -> None:
        self.inner = inner
        self._all = [*{id(kernel): kernel for kernel in (inner, *more)}.values()]
        self.spans = inner.spans and not more
        self.remote = any(kernel.remote for kernel in self._all)

    def encoded(self, document: Document) -> Document:
        """Return a document as it is stored."""
        return document

    def encoded_line(self, line: Line) -> Line:
        """Return a line as it is stored."""
        return line

    def decoded(self, documents: Sequence[Document | None]) -> list[Document | None]:
        """Return stored documents as they were written."""
        return [*documents]

    def decoded_lines(self, lines: Sequence[Line]) -> list[Line]:
        """Return stored lines as they were written."""
        return [*lines]

    def commit(self, batch: Batch) -> Outcome:
        encoded = batch._replace(writes=[*map(self._encoded, batch.writes)])
        return self._outcome(self.inner.commit(encoded))

    def _encoded(self, write: Write) -> Write:
        match write:
            case Put(document):
                return Put(self.encoded(document))
            case Append(lines):
                return Append([self.encoded_line(line) for line in lines])
        return write

    def _outcome(self, outcome: Outcome) -> Outcome:
        if not outcome.documents:
            return outcome
        documents = self.decoded([*outcome.documents.values()])
        return outcome._replace(documents=dict(zip(outcome.documents, documents, strict=True)))

    def extend(self, head: DocId, version: int, line: Line, micros: int) -> bool:
        return self.inner.extend(head, version, self.encoded_line(line), micros)

    def documents(
        self, ids: Sequence[DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[Document | None]:
        documents = self.inner.documents(ids, tails=tails, bodies=bodies)
        return self.decoded(documents) if bodies else documents

    def scan(self, scan: Scan) -> list[Document]:
        documents = self.inner.scan(scan)
        return documents if scan.names or not scan.bodies else self._decoded(documents)

    def owners(self, collection: str, beginning: str) -> list[str]:
        return self.inner.owners(collection, beginning)

    def collections(self, beginning: str) -> list[str]:
        return self.inner.collections(beginning)

    def due(self, collection: str, limit: int) -> list[Document]:
        return self._decoded(self.inner.due(collection, limit))

    def _decoded(self, documents: Sequence[Document]) -> list[Document]:
        return [document for document in self.decoded(documents) if document is not None]

    def lines(self, parts: Sequence[Part]) -> list[Line]:
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
