"""Atomic import of sessions: a session is hidden until all of it is stored."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from pydantic import ValidationError

from agent_memory.core.idempotency import KeyRecord
from agent_memory.core.limits import UNREADABLE
from agent_memory.core.records import DeadLetter, Entry, Head, Lease, Record, Scope
from agent_memory.core.system_collections import VALUES
from agent_memory.core.transcript import part_of
from agent_memory.engine.leases import Leases
from agent_memory.engine.transfer.reading import Item, Reading, Stored
from agent_memory.engine.transfer.snapshot import VectorsForm, invalid, refused
from agent_memory.errors import (
    ConfigError,
    DimensionMismatch,
    InvalidInput,
    ModelError,
    SessionExists,
    StoreError,
)
from agent_memory.ltm_blocks.base import Block, batch_id, message_id
from agent_memory.ltm_blocks.keyed_records import KeyedRecords, keyed_id
from agent_memory.ltm_blocks.registry import FORGOTTEN, register
from agent_memory.ltm_blocks.versions import new_epoch, new_version, version_of
from agent_memory.stores.base import SessionStore, VectorStore

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components
    from agent_memory.retrieval.features import Features

logger = logging.getLogger(__name__)

_PAGE = 200
_TRIES = 5
_MOST = 1.01  # maximum length of a unit vector in half precision
_HEAVIEST = 2.0  # maximum weight of a word. See `postings.weighted`


class Importer:
    def __init__(self, parts: Components) -> None:
        self._parts, self._store, self._deletion = parts, parts.store, parts.deletion

    def run(self, reading: Reading) -> Head:
        head, log = reading.head, map(self._counted, reading.entries())
        session_id = head.session_id
        self._make_way(session_id)
        pages = iter(lambda: list(islice(log, _PAGE)), [])
        first, begun = next(pages, []), True
        try:
            with import_transaction(self._store, self._parts.leases, head, first) as transaction:
                begun = transaction is not None
                if transaction is None:
                    raise _exists(session_id)
                for page in pages:
                    transaction.add(page)
                records = RecordImport(self._parts, head, transaction.lease)
                for number, item in reading.records():
                    records.take(number, item)
                # the last line was read, so the snapshot is complete
                shown = transaction.show(replace(head, cursors=records.finish()))
        except BaseException:  # it is raised again below, after the partial session is erased
            if begun:
                self._erase(session_id)
            raise
        self._parts.windows.forget(session_id)  # an earlier session with this id may be cached
        return shown

    def _make_way(self, session_id: str) -> None:
        """Finish an interrupted deletion of the session. Raise `SessionExists` if it exists."""
        head = self._store.head(session_id)
        if head is not None and head.deleting:
            self._deletion.finish(session_id)
            head = self._store.head(session_id)
        if head is not None:
            raise _exists(session_id)

    def _erase(self, session_id: str) -> None:
        try:
            self._deletion.finish(session_id)
        except StoreError:  # the original error is more useful than this error
            logger.exception(
                "the partial import of session %r was not erased; a worker or `delete` erases it",
                session_id,
            )

    def _counted(self, entry: Entry) -> Entry:
        """Return the entry. If its token count is wrong, let contexts count it again."""
        counter = self._parts.resources.counter
        if entry.encoding != counter.encoding or counter.message(entry.message) == entry.tokens:
            return entry
        return replace(entry, encoding="")


def _exists(session_id: str) -> SessionExists:
    return SessionExists(
        f"Session {session_id!r} exists already and was not changed. Delete it first, or "
        "import into another store or namespace."
    )


@dataclass(eq=False, repr=False)
class ImportTransaction:
    """A session during its import.

    Until the import is complete, the session is marked as being deleted, so no call shows or
    recalls it. If the process is killed, a worker or the next call for the session erases it.
    """

    _store: SessionStore
    _head: Head
    lease: Lease

    def add(self, entries: Sequence[Entry], after: int | None = None) -> None:
        """Append entries to the log. With `after`, replace all entries after that seq."""
        head = self._head
        end = head.end if after is None else after
        self._head = self._existing(self._store.rewrite(head, end, entries, lease=self.lease))

    def show(self, head: Head) -> Head:
        """Make the session visible with the fields of a head, and due for its blocks."""
        here = self._head
        shown = replace(head, end=here.end, total=here.total, version=here.version, deleting=False)
        arrived = self._existing(self._store.move(shown, lease=self.lease))
        self._store.schedule(arrived, 0)
        return arrived

    def _existing(self, head: Head | None) -> Head:
        if head is None:
            raise StoreError(
                f"Session {self.lease.session_id!r} was changed by another process during the "
                "import, and was not imported. Try again when no other process uses its id."
            )
        return head


@contextmanager
def import_transaction(
    store: SessionStore, leases: Leases, head: Head, first: Sequence[Entry]
) -> Iterator[ImportTransaction | None]:
    """Begin the import of a session with the first entries of its log, which may be empty.

    Call `show` after all entries are added. Without `show` the session stays marked as deleted.
    Yield None if a session with this id exists or its deletion is unfinished.
    """
    hidden = replace(head, version=0, deleting=True)
    for _ in range(_TRIES):
        begun = store.rewrite(hidden, head.expired, first[:1])
        if begun is None:
            yield None
            return
        with leases.hold(head.session_id, waiting=True) as lease:
            if lease is None:
                continue  # a worker has just erased the session
            transaction = ImportTransaction(store, begun, lease)
            # the entries are written again: before the lease was taken, a worker may have erased
            # the session, and another process may have created a session with this id
            transaction.add(first, head.expired)
            yield transaction
            return
    raise StoreError(
        f"Session {head.session_id!r} could not be locked for the import, and was not imported. "
        "Try again."
    )


def _is_bound(block: str, record: Record) -> bool:
    """Return whether a record's id derives from its owner and its place in a session's log."""
    place = (block, record.owner, record.session_id, record.first)
    number = part_of(record.metadata).number
    return record.id in (message_id(*place, number), batch_id(*place, record.last))


def _is_keyed(block: str, record: Record) -> bool:
    """Return whether a record's id derives from its owner and a key in its metadata."""
    keys = (value for value in record.metadata.values() if isinstance(value, str))
    return any(record.id == keyed_id(block, record.owner, key) for key in keys)


def _validated(number: int, record: Record, block: Block | None) -> Record:
    """Return a record as its block stores it, or unchanged if the block is unknown."""
    if block is None:
        return record
    try:
        return block.validate_import(record)
    except ValidationError as error:
        raise invalid(number, "its metadata's", error) from None
    except InvalidInput as error:
        raise refused(number, str(error).rstrip(".")) from None


def _features_in(lines: Sequence[tuple[int, Stored]], dimension: int) -> Features:
    """Check vectors and return their features."""
    from agent_memory.retrieval.features import Features

    parts = []
    for number, vector in lines:
        features = _features_of(vector, dimension)
        if features is None:
            raise refused(number, f"its `traits` do not have {dimension} dimensions")
        parts.append(features)
    return Features.joined(parts)


def _features_of(stored: Stored, dimension: int) -> Features | None:
    """Return the features in a vector's line. None if they are invalid."""
    import numpy as np

    from agent_memory.retrieval.index import Segment
    from agent_memory.stores.feature_bytes import bytes_of, segment_of

    ids = [stored.record.id]
    try:
        segment = segment_of(stored.traits)
        if segment.names.all() != ids or segment.dimension != dimension:
            return None
        features = segment.features()
    except UNREADABLE:
        return None
    vector, terms = features.meaning[0], features.words[0]
    if not float(np.linalg.norm(vector)) <= _MOST or len(np.unique(terms.ids)) < len(terms.ids):
        return None
    if not ((terms.weights >= 0) & (terms.weights <= _HEAVIEST)).all():
        return None
    # other bytes of the same features are not those of an export
    return features if bytes_of(Segment.of(ids, features)) == stored.traits else None


class RecordImport:
    def __init__(self, parts: Components, head: Head, lease: Lease) -> None:
        self._parts, self._store, self._blocks = parts, parts.store, parts.all_blocks
        self._head, self._lease = head, lease
        self._facts: dict[tuple[str, str], list[tuple[int, Record]]] = defaultdict(list)
        self._keys: list[KeyRecord] = []
        self._letters: list[DeadLetter] = []
        self._others: dict[str, list[Record]] = defaultdict(list)
        self._brought = set[str]()
        self._anew = set[str]()
        self._place: tuple[VectorsForm, VectorStore] | None = None
        self._vectors: list[tuple[int, Stored]] = []

    def take(self, number: int, item: Item) -> None:
        """Store or collect the item of a line. Refuse a record that its block cannot read."""
        if isinstance(item, KeyRecord):
            self._keys.append(item)
        elif isinstance(item, DeadLetter):
            self._letters.append(item)
        elif isinstance(item, VectorsForm):
            self._put_vectors()
            self._place = self._placed(item)
        elif isinstance(item, Stored) and item.kind == "fact":
            record = _validated(number, item.record, self._blocks.get(item.block))
            self._facts[item.block, record.owner].append((number, record))
        elif isinstance(item, Stored) and item.kind != "vector":
            self._others[item.block].append(item.record)
        elif isinstance(item, Stored) and item.block not in self._anew:
            self._vectors.append((number, item))
            if len(self._vectors) == _PAGE:
                self._put_vectors()

    def finish(self) -> dict[str, int]:
        """Store the remaining items of a complete snapshot.

        Return the cursors of the blocks with imported records. Other blocks absorb from the
        beginning.
        """
        self._put_vectors()
        self._check_ids()
        for (block, owner), facts in self._facts.items():
            if block not in self._anew:
                self._put_facts(block, owner, [record for _, record in facts])
        cursors = self._cursors()
        for letter in self._letters:
            if letter.block in cursors:
                self._parts.dead_letters.keep(letter, self._lease)
        self._store.put_keys(self._head.session_id, self._keys, lease=self._lease)
        self._store.put_records(FORGOTTEN, self._others[FORGOTTEN], lease=self._lease)
        values = self._others[VALUES.name]
        for at in range(0, len(values), _PAGE):
            page = values[at : at + _PAGE]
            versions = map(new_version, {value.owner for value in page})
            self._store.put_records(VALUES.name, [*page, *versions], lease=self._lease)
        return cursors

    def _cursors(self) -> dict[str, int]:
        head = self._head
        come = (self._brought | {block for block, _ in self._facts}) - self._anew
        for block in head.cursors.keys() - come:
            logger.info("block %r absorbs session %r from the beginning", block, head.session_id)
            if head.expired:
                logger.warning(
                    "block %r absorbs session %r from the beginning, without the first %d "
                    "messages: the log lacks them, and records of them cannot be stored here",
                    block,
                    head.session_id,
                    head.expired,
                )
        return {block: cursor for block, cursor in head.cursors.items() if block in come}

    def _check_ids(self) -> None:
        """Refuse records that would replace a record of another session.

        Most ids derive from their session. For other ids, all stored facts are read.
        """
        loose = {
            (block, record.id): number
            for (block, _), facts in self._facts.items()
            for number, record in facts
            if not _is_bound(block, record) and not _is_keyed(block, record)
        }
        for block, stored in self._store.all_records() if loose else ():
            number = loose.get((block, stored.id))
            if number is not None and stored.session_id != self._head.session_id:
                raise refused(number, f"block {block!r} already has another record with its id")

    def _put_facts(self, block: str, owner: str, records: Sequence[Record]) -> None:
        head = self._head
        if block not in head.cursors:  # a deletion of the session must know the block
            register(self._store, block)
        own = Scope(None, head.session_id).owner == owner
        scope = Scope(head.user_id, head.session_id)
        resources = self._parts.resources
        with KeyedRecords(resources, block, scope, "session" if own else "user").changing():
            present = {record.id: record.session_id for record in self._store.records(block, owner)}
            # a record that now belongs to another session is not replaced
            current = [
                record
                for record in records
                if present.get(record.id, record.session_id) == record.session_id
            ]
            is_versioned = self._is_versioned(block, owner, records)
            version = [new_version(owner), new_epoch(owner)] if is_versioned else []
            for at in range(0, len(current), _PAGE):
                page = current[at : at + _PAGE]
                self._store.put_records(block, [*page, *version], lease=self._lease)

    def _is_versioned(self, name: str, owner: str, records: Sequence[Record]) -> bool:
        """Return whether the owner's records are cached by version, now or later."""
        if version_of(self._store, name, owner) is not None:
            return True
        block = self._blocks.get(name)
        versioned = block is None or block.versioned
        return versioned and not all(_is_keyed(name, record) for record in records)

    def _placed(self, item: VectorsForm) -> tuple[VectorsForm, VectorStore] | None:
        """Return the store for a block's vectors. None if the vectors do not fit the block."""
        block, embedding = self._blocks.get(item.block), (item.dimension, item.model)
        vector_store = self._store if block is None else block.vectors
        try:
            if block is not None:
                fits = block.validate_vectors(*embedding)
            else:
                fits = vector_store.vector_blocks().get(item.block) == embedding
            if fits:
                vector_store.open_vectors(item.block, *embedding)
                self._brought.add(item.block)
                return item, vector_store
        except (ModelError, ConfigError) as error:
            logger.warning("vectors of block %r are derived again: %s", item.block, error)
        self._anew.add(item.block)
        return None

    def _put_vectors(self) -> None:
        if not self._vectors or self._place is None:
            return
        announced, vector_store = self._place
        block, session_id = announced.block, self._head.session_id
        features = _features_in(self._vectors, announced.dimension)
        records = [item.record for _, item in self._vectors]
        self._vectors = []
        try:
            if all(_is_bound(block, record) for record in records):
                vector_store.put_vectors(block, records, features, lease=self._lease)
                return
        except DimensionMismatch as error:  # a replay now rebuilds the block with another embedder
            logger.warning("vectors of block %r are derived again: %s", block, error)
        vector_store.delete_vectors(block, session_id=session_id, lease=self._lease)
        self._anew.add(block)
