"""The reads of the kernel on MongoDB. They first finish committed changes that they find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_memory.stores.kernel.coding import HEAD, KEY, head_id, now_micros
from agent_memory.stores.kernel.contract import (
    Batch,
    DocId,
    Document,
    Line,
    Outcome,
    Part,
    Scan,
    Tail,
)
from agent_memory.stores.kernel.rules import holds, in_turns, named
from agent_memory.stores.mongodb.connection import Deployment
from agent_memory.stores.mongodb.documents import (
    WITHOUT_BODIES,
    WITHOUT_LINES,
    Doc,
    chunks,
    document_of,
    free,
    place_of,
    selection,
    state_of,
)
from agent_memory.stores.mongodb.logs import STATE, Logs
from agent_memory.stores.mongodb.staging import Staging

_MOST_BYTES = 6 * 2**20  # twice in a document of 16 MiB, while it is tagged


class MongoDBReader:
    """The calls of `Kernel` that change nothing, but may finish batches of others."""

    remote = True
    spans = False
    most_bytes: int | None = _MOST_BYTES

    def __init__(self, deployment: Deployment, namespace: str) -> None:
        self._deployment = deployment
        self._namespace = namespace
        self.table = deployment.table("agent_memory_documents")
        self.messages = deployment.table("agent_memory_messages")
        self._logs = Logs(self.table, self.messages)
        self._staging = Staging(namespace, self.table)

    def documents(
        self, ids: Sequence[DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[Document | None]:
        docs = self._docs(ids, WITHOUT_LINES if bodies else WITHOUT_BODIES)
        documents = (docs.get(self._place(at)) for at in ids)
        return [
            document_of(doc, tails=tails, bodies=bodies) if doc and doc["live"] else None
            for doc in documents
        ]

    def _docs(self, ids: Sequence[DocId], fields: Doc) -> dict[str, Doc]:
        """Return documents by `_id`, after applying committed batches."""
        by_place: dict[str, Doc] = {}
        for places in chunks([self._place(at) for at in ids]):
            docs = self.table.all({"_id": {"$in": places}}, fields)
            while self._staging.resolve(docs):
                docs = self.table.all({"_id": {"$in": places}}, fields)
            by_place |= {doc["_id"]: doc for doc in docs}
        return by_place

    def scan(self, scan: Scan) -> list[Document]:
        if scan.limit == 0:
            return []
        self._settle(scan)
        order = ("first", "id") if scan.session else ("id",)
        fields = WITHOUT_LINES if scan.bodies else WITHOUT_BODIES
        if scan.names:
            fields = {"c": 1, "id": 1}
        which = selection(self._namespace, scan)
        docs = self.table.all(which, fields, by=order, limit=scan.limit or 0)
        if scan.names:
            return [Document(doc["c"], doc["id"]) for doc in docs]
        return [document_of(doc, tails=scan.tails, bodies=scan.bodies) for doc in docs]

    def _settle(self, scan: Scan) -> None:
        """Apply committed batches that a scan may concern. No batch tags a head."""
        if scan.collection == KEY and scan.session:
            self._staging.settle_head(self._place(head_id(scan.session)))
        elif scan.collection != HEAD:
            self._staging.settle(scan.collection)

    def owners(self, collection: str, beginning: str) -> list[str]:
        self._settle(Scan(collection))
        which = selection(self._namespace, Scan(collection))
        owners = self.table.distinct("owner", {**which, "owner": {"$gte": beginning}})
        return sorted(owner for owner in owners if owner and owner.startswith(beginning))

    def collections(self, beginning: str) -> list[str]:
        which = {"ns": self._namespace, "live": 1, "c": {"$gte": beginning}}
        names = self.table.distinct("c", which)
        return sorted(name for name in names if name.startswith(beginning))

    def due(self, collection: str, limit: int) -> list[Document]:
        now = now_micros()
        which: Doc = {"ns": self._namespace, "c": collection, "due": {"$lte": now}, **free(now)}
        # the turns of owners depend on all due documents
        fields: Doc = dict.fromkeys(["id", "owner", "due", "gone", "live"], 1)
        docs = self.table.all(which, fields, by=("due", "id"))
        for doc in docs:
            if "gone" in doc:
                self._finish_deletion(doc["_id"])
        live = [doc for doc in docs if doc["live"]]
        turns = in_turns(live, owner=lambda doc: str(doc.get("owner")))[:limit]
        documents = self.documents([DocId(collection, doc["id"]) for doc in turns], tails=True)
        return [document for document in documents if document is not None]

    def lines(self, parts: Sequence[Part]) -> list[Line]:
        return self._logs.read([self._place(head_id(part.session)) for part in parts], parts)

    def counts(self, collection: str) -> tuple[int, int]:
        sums = {"n": {"$sum": 1}, "ends": {"$sum": "$end"}, "gone": {"$sum": "$begin"}}
        totals = self.table.group(selection(self._namespace, Scan(collection)), sums)
        return totals.get("n", 0), totals.get("ends", 0) - totals.get("gone", 0)

    def _refusal(self, batch: Batch) -> Outcome | None:
        """Return the outcome of a batch if its conditions do not hold now."""
        ids, logs = named(batch.conditions)
        read = {*ids, *map(head_id, logs)}
        docs = self._docs(list(read), WITHOUT_LINES)
        states = {at: state_of(docs.get(self._place(at))) for at in ids}
        tails = {session: self._tail(docs, session) for session in logs}
        now = now_micros()
        if all(holds(one, states, tails, now) for one in batch.conditions):
            return None
        by_id = {at: docs.get(self._place(at)) for at in ids}
        documents = {
            at: document_of(doc) if doc and doc["live"] else None for at, doc in by_id.items()
        }
        return Outcome(False, documents, tails)

    def _tail(self, docs: Mapping[str, Doc], session: str) -> Tail:
        head = docs.get(self._place(head_id(session)))
        return Tail(head["end"], head["total"]) if head and head["live"] else Tail()

    def _finish_deletion(self, place: str) -> None:
        gone = {"_id": place, "gone": 1}
        head = self.table.one(gone, STATE)
        if head is None:
            return
        self._staging.settle_head(place)  # its committed batches must be applied
        self._logs.drop(head["log"])
        which = selection(self._namespace, Scan(KEY, session=head["id"]))
        keys = self.table.all(which, {"version": 1})
        if self.table.one({**gone, "log": head["log"]}, {"_id": 1}) is None:
            return  # the keys may belong to a session that began since
        for some in chunks(keys):
            ids, versions = ([one[name] for one in some] for name in ("_id", "version"))
            self.table.delete_all({"_id": {"$in": ids}, "version": {"$in": versions}})
        self.table.delete({**gone, "log": head["log"]})

    def _place(self, at: DocId) -> str:
        return place_of(self._namespace, at)
