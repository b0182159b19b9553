"""Code that kernels share: conditions, leases, the order of due documents, erasures, wrappers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from agent_memory.core.processes import begin_anew_in_child, checked_lock
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.coding import latest_micros

T = TypeVar("T")

WITHIN_HANDLER = (
    "A signal handler cannot write to the store while the interrupted code uses it. Set a flag in "
    "the handler, and write after the handler has returned."
)


class State(NamedTuple):
    """The part of a stored document that conditions and `due` read."""

    version: int
    holder: str = ""  # the worker that has the lease of the document; empty for none
    held_until: int = 0  # the end of the lease, in microseconds since 1970
    # the time from which a worker should process the document, in microseconds since 1970; None for
    # never
    due: int | None = None

    def is_free(self, now: int) -> bool:
        return not self.holder or not now < self.held_until <= latest_micros(now)

    def is_due(self, now: int) -> bool:
        return self.due is not None and self.due <= now and self.is_free(now)


def chunks(items: Sequence[T], most: int = 500) -> Iterator[Sequence[T]]:
    """Yield the items in parts of at most `most` items."""
    for start in range(0, len(items), most):
        yield items[start : start + most]


def named(conditions: Iterable[k.Condition]) -> tuple[set[k.DocId], set[str]]:
    """Return the ids of the documents, and the sessions of the logs, that conditions name."""
    documents: set[k.DocId] = set()
    logs: set[str] = set()
    for condition in conditions:
        if isinstance(condition, k.LogEndsAt):
            logs.add(condition.session)
        else:
            documents.add(condition.id)
    return documents, logs


def written(write: k.Write) -> Sequence[k.DocId]:
    """Return the ids of the documents that a write names."""
    match write:
        case k.Put(document):
            return (document.key,)
        case k.Wake(ids, _) | k.Delete(ids):
            return ids
        case k.Due(at, _) | k.Hold(at, _, _):
            return (at,)
    return ()


def holds(
    condition: k.Condition,
    states: Mapping[k.DocId, State | None],
    tails: Mapping[str, k.Tail],
    now: int,
) -> bool:
    """Return whether a condition holds at the time `now`, in microseconds since 1970.

    The state of a missing document is None.
    """
    if isinstance(condition, k.LogEndsAt):
        return tails[condition.session].seq == condition.seq
    state = states[condition.id]
    match condition:
        case k.Missing():
            return state is None
        case k.Exists():
            return state is not None
        case k.VersionIs(_, version):
            return state is not None and state.version == version
        case k.HeldBy(_, holder):
            return state is not None and state.holder == holder
        case k.Free(_, holder):
            return state is None or state.holder == holder or state.is_free(now)


def selects(scan: k.Scan, document: k.Document) -> bool:
    return (
        document.collection == scan.collection
        and document.id > scan.after
        and (scan.owner is None or document.owner == scan.owner)
        and (scan.session is None or document.session == scan.session)
        and (scan.first_below is None or document.first < scan.first_below)
        and (scan.last_above is None or document.last > scan.last_above)
    )


def in_turns(longest_due_first: Iterable[T], owner: Callable[[T], str]) -> list[T]:
    """Return documents in turns: each owner's first, then each owner's second, and so on."""
    counts: Counter[str] = Counter()
    turns: list[tuple[int, T]] = []
    for document in longest_due_first:
        turns.append((counts[owner(document)], document))
        counts[owner(document)] += 1
    return [document for _, document in sorted(turns, key=lambda turn: turn[0])]


class Erasures:
    """Runs one erasure at a time. All threads that wait meanwhile share the next erasure.

    A signal handler that interrupts `share` may also call `share`.
    """

    def __init__(self) -> None:
        self._begun = self._ended = 0
        self._pending: str | None = None
        self._turn = checked_lock()
        begin_anew_in_child(self, Erasures._let_go)

    def share(self, erase: Callable[[], str | None]) -> str | None:
        """Erase, or wait for an erasure that another thread begins after this call.

        Return the result of the erasure: the reason if it is unfinished.
        An error is raised only in the thread that ran the erasure.
        """
        before = self._begun
        with self._turn:
            if self._ended > before:
                return self._pending
            number = self._begun = self._begun + 1
            self._pending = pending = erase()
            self._ended = max(self._ended, number)
            return pending

    def _let_go(self) -> None:
        self._turn = checked_lock()


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
