"""The facts of a `MongoDBStore`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

from agent_memory.core.records import Lease, Record
from agent_memory.stores.coding import record_body, record_of, to_micros
from agent_memory.stores.damage import undamaged
from agent_memory.stores.mongodb.blocks import Blocks
from agent_memory.stores.mongodb.commits import Commits, Write
from agent_memory.stores.mongodb.connection import Deployment, Table
from agent_memory.stores.mongodb.documents import key_of

Doc = dict[str, Any]

_PAGE = 200


class AnotherCameFirst(Exception):
    """A record is not the one that was to be followed; what was tagged is let go."""


class MongoDBRecords:
    """Facts in MongoDB."""

    def __init__(self, deployment: Deployment, namespace: str) -> None:
        self._namespace = namespace
        self._sessions = sessions = deployment.table("agent_memory_sessions")
        self._facts = deployment.table("agent_memory_facts")
        self._fact_writes = Commits(namespace, sessions, self._facts)
        self._blocks = Blocks(namespace, deployment.table("agent_memory_blocks"))

    def put_records(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        key = key_of(self._namespace, block)
        docs = documents_of(key, records)
        self._blocks.note(block)

        def stage(write: Write) -> bool:
            found = bool(docs)
            self._fact_writes.put(write, docs)
            if replacing is not None:
                sid, first, last = replacing
                span = {"session_id": sid, "first": {"$lte": last}, "last": {"$gte": first}}
                found = self._fact_writes.remove(write, span) or found
            return found

        self._fact_writes.write(key, lease, stage)

    def swap_record(self, block: str, record: Record, last: int | None) -> bool:
        key = key_of(self._namespace, block)
        docs = documents_of(key, [record])
        self._blocks.note(block)

        def stage(write: Write) -> bool:
            self._fact_writes.put(write, docs)  # nobody else changes what is tagged
            stored = self._facts.one({"_id": docs[0]["_id"], "live": 1})
            if (None if stored is None else stored["last"]) != last:
                raise AnotherCameFirst
            return True

        try:
            self._fact_writes.write(key, None, stage)
        except AnotherCameFirst:
            return False
        return True

    def records(self, block: str, owner: str) -> list[Record]:
        key = key_of(self._namespace, block)
        self._fact_writes.settle(key)
        docs = self._facts.all({"block": key, "owner": owner, "live": 1})
        found = undamaged(docs, lambda doc: record_from(doc, "fact", block))
        return sorted(found, key=lambda record: (record.created_at, record.id))

    def record(self, block: str, record_id: str) -> Record | None:
        key = key_of(self._namespace, block)
        self._fact_writes.settle(key)
        doc = self._facts.one({"_id": key_of(key, record_id), "live": 1})
        return None if doc is None else record_from(doc, "fact", block)

    def owners(self, block: str, beginning: str) -> list[str]:
        key = key_of(self._namespace, block)
        self._fact_writes.settle(key)
        names = self._facts.distinct(
            "owner", {"block": key, "owner": {"$gte": beginning}, "live": 1}
        )
        return sorted(name for name in names if name.startswith(beginning))

    def all_records(self) -> Iterator[tuple[str, Record]]:
        for block in self._blocks.names():
            key = key_of(self._namespace, block)
            self._fact_writes.settle(key)
            for docs in _pages(self._facts, {"block": key, "live": 1}):
                found = undamaged(docs, partial(record_from, kind="fact", block=block))
                yield from ((block, record) for record in found)

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
        key = key_of(self._namespace, block)
        place = None if record_id is None else key_of(key, record_id)
        which = matching(after, _id=place, owner=owner, session_id=session_id)
        writes = self._fact_writes
        writes.write(key, lease, lambda write: writes.remove(write, which))

    def _finish_writes(self, session: Doc) -> None:
        """Put in place what was committed under a session's leases."""
        for name in session["ops"]:
            self._fact_writes.put_in_place(name)
            self._sessions.update({"_id": session["_id"]}, {"$unset": {f"ops.{name}": ""}})

    def _guard(self, lease: Lease | None) -> None:
        self._fact_writes.guard(lease)


def _pages(table: Table, which: Doc) -> Iterator[list[Doc]]:
    """The documents that match, some at a time."""
    keys = [doc["_id"] for doc in table.all(which, fields={"_id": 1})]
    for at in range(0, len(keys), _PAGE):
        if docs := table.all({**which, "_id": {"$in": keys[at : at + _PAGE]}}):
            yield docs


def documents_of(block: str, records: Sequence[Record]) -> list[Doc]:
    """The documents of records; of several with one id the last counts."""
    return list(
        {
            record.id: {
                "_id": key_of(block, record.id),
                "block": block,
                "id": record.id,
                "owner": record.owner,
                "session_id": record.session_id,
                "first": record.first,
                "last": record.last,
                "created_at": to_micros(record.created_at),
                "body": record_body(record),
            }
            for record in records
        }.values()
    )


def record_from(doc: Doc, kind: Literal["fact", "vector"], block: str) -> Record:
    """The record of a document.

    Raises:
        Damaged: It is not what was written.
    """
    return record_of(SimpleNamespace(**{**doc, "_id": None}), kind, block)


def matching(after: int, **conditions: str | None) -> Doc:
    """What records are to match: all that is given."""
    given: Doc = {name: value for name, value in conditions.items() if value is not None}
    if not given:
        raise ValueError("Name an owner, a session or a record.")
    return {**given, "last": {"$gt": after}} if after else given
