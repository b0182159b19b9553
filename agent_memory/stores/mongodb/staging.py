"""Batches over several documents, on a database that changes one document at a time.

Each document that a batch writes is first tagged with its new content. One change of one document,
the primary, commits the batch. If the batch changes a head, or has a condition on a head or its
log, this head is the primary, and the change adds the batch to the head's `ops`. Otherwise the last
of the batch's documents is the primary, and the change sets the primary's field `done`. Then the
tags are applied, the primary's tag last.

A process that finds a tag reads the primary. If the batch is committed, the process applies it. If
the batch is not committed in time, the process refuses it at the primary and removes its tags. A
refused batch can never be committed. Each tag has the name of its batch, and is applied or removed
only if it still exists. A stalled process therefore cannot change later states.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from agent_memory.stores.kernel import contract as k
from agent_memory.stores.mongodb import documents as mongo
from agent_memory.stores.mongodb.connection import Table
from agent_memory.stores.mongodb.documents import Doc, Effects

_PATIENCE_SECONDS = 0.3
_PAUSE_SECONDS = 0.01
_TAG: Doc = dict.fromkeys(("op", "at", "begins", "tagged", "put", "gone", "done"), "")
_NAMES: Doc = dict.fromkeys(("op", "at", "begins"), 1)
_OF: Doc = dict.fromkeys(
    ("c", "id", "live", "owner", "session", "first", "last", "version", "holder", "until", "op"), 1
)
_PRIMARY: Doc = dict.fromkeys(("op", "done", "ops", "refused"), 1)


class Staging:
    """Tags documents, and applies or removes the tags."""

    def __init__(self, namespace: str, documents: Table) -> None:
        self._namespace = namespace
        self._documents = documents

    def tag(
        self, op: str, at: k.DocId, effects: Effects, *, begins: bool = False
    ) -> dict[str, Doc] | None:
        """Tag documents for the batch `op` with the primary `at`, which it creates if it `begins`.

        Return the tagged documents without their bodies, by `_id`; None if no document existed
        before. Documents that another batch has tagged are left out.
        """
        first = mongo.place_of(self._namespace, at)
        changes: list[tuple[Doc, Doc]] = []
        if begins:
            changes.append(({"_id": first}, {"$setOnInsert": self.stub(at)}))
        # the primary is tagged first
        for place in sorted(effects, key=lambda place: (place != first, place)):
            name, document = effects[place]
            tag: Doc = {"op": op, "at": first, "tagged": self._group(name.collection)}
            tag |= {"begins": 1} if begins else {}
            tag |= {"gone": 1} if document is None else {"put": mongo.values_of(document)}
            which = {"_id": place, "op": {"$exists": False}}
            new = mongo.empty(self._namespace, name)
            changes.append((which, {"$set": tag, "$setOnInsert": new}))
        inserted = self._documents.update_each(changes, upsert=True)
        if inserted.issuperset(effects):
            return None
        return {doc["_id"]: doc for doc in self._documents.all({"op": op}, _OF)}

    def commit(self, op: str, at: str) -> bool:
        """Commit a batch whose primary is not a head. Return False if it was refused."""
        done = {"$set": {"done": 1}, **mongo.marked(op)}
        which = {"_id": at, "op": op, "done": {"$exists": False}}
        return self._documents.update_idempotent(which, done, op)

    def apply(self, ops: Sequence[str], at: str, effects: Effects | None = None) -> None:
        """Apply the tags of committed batches with the primary `at`.

        Pass the `effects` of a single batch, so that its tags are not read again.
        """
        every: Doc = {"op": {"$in": list(ops)} if len(ops) > 1 else ops[0]}
        if effects is None:
            tagged = self._documents.all(every, {"op": 1, "put": 1})
            puts = {doc["_id"]: (doc["op"], doc["put"]) for doc in tagged if "put" in doc}
        else:
            tagged = []
            puts = {it: (ops[0], mongo.values_of(put)) for it, (_, put) in effects.items() if put}
        changes = [
            ({"_id": place, "op": op}, {"$set": {**values, "live": 1}, "$unset": _TAG})
            for place, (op, values) in sorted(puts.items(), key=lambda put: put[0] == at)
        ]
        if len(puts) == len(tagged if effects is None else effects):
            self._documents.update_each(changes)
            return
        self._documents.update_each(changes, delete={**every, "gone": 1, "_id": {"$ne": at}})
        if at not in puts:
            self._documents.delete({**every, "_id": at, "gone": 1})

    def forget(self, ops: Sequence[str], at: str) -> None:
        self._documents.update({"_id": at}, {"$unset": {f"ops.{op}": "" for op in ops}})

    def settle_head(self, at: str) -> None:
        head = self._documents.find_one({"_id": at}, {"ops": 1})
        ops = list((head or {}).get("ops", {}))
        if ops:
            self.apply(ops, at)
            self.forget(ops, at)

    def take_off(self, op: str) -> None:
        """Remove the tags of a refused batch, and the documents that it would have created."""
        self._documents.delete_all({"op": op, "live": 0})
        self._documents.update_all({"op": op}, {"$unset": _TAG})

    def settle(self, collection: str, *, force: bool = False) -> bool:
        """Resolve all tags in a collection; see `resolve`."""
        tagged = {"tagged": self._group(collection)}
        return self.resolve(self._documents.all(tagged, _NAMES), force=force)

    def settle_all(self) -> None:
        """Resolve all tags in the namespace with `force`; see `resolve`."""
        tagged = {"ns": self._namespace, "tagged": {"$gt": ""}}
        self.resolve(self._documents.all(tagged, _NAMES), force=True)

    def resolve(self, docs: Sequence[Doc], *, force: bool = False) -> bool:
        """End the batches that tagged `docs`: apply committed batches, remove the tags of others.

        A batch that may still be committed is left alone. With `force`, wait 0.3 seconds for such a
        batch, then refuse it. Return whether a batch was ended, here or by another process.
        """
        ops = {doc["op"]: doc for doc in docs if "op" in doc}
        changed = False
        for op, doc in ops.items():
            changed = self._end(op, doc["at"], "begins" in doc, force=force) or changed
        return changed

    def _end(self, op: str, at: str, begins: bool, *, force: bool) -> bool:
        patience = time.monotonic() + _PATIENCE_SECONDS
        of_head = at.startswith(self._group(k.HEAD))
        while True:
            primary: Any = self._documents.find_one({"_id": at}, _PRIMARY) or {}
            if op in primary.get("ops", {}) or (primary.get("op") == op and "done" in primary):
                self.apply([op], at)
                if of_head:
                    self.forget([op], at)
                return True
            # The batch cannot be committed any more if its primary is missing or another batch
            # tagged the primary first.
            is_open = (bool(primary) or begins) if of_head else primary.get("op") == op
            if op in primary.get("refused", {}) or not is_open:
                self.take_off(op)
                return True
            if self._documents.find_one({"op": op}, {"_id": 1}) is None:
                return True  # the batch ended meanwhile
            if not force:
                return False
            if time.monotonic() < patience:
                time.sleep(_PAUSE_SECONDS)
            else:
                self._refuse(op, at, of_head=of_head)

    def _refuse(self, op: str, at: str, *, of_head: bool) -> None:
        """Ensure that a batch is never committed, unless it is committed already."""
        if of_head:
            which: Doc = {"_id": at, f"ops.{op}": {"$exists": False}}
            new = self.stub(k.DocId(k.HEAD, at.removeprefix(self._group(k.HEAD))))
            change = {"$set": {f"refused.{op}": 1}, "$setOnInsert": new}
            self._documents.update(which, change, upsert=True)
            return
        which = {"_id": at, "op": op, "done": {"$exists": False}}
        if not self._documents.delete({**which, "live": 0}):
            self._documents.update(which, {"$unset": _TAG})

    def stub(self, at: k.DocId) -> Doc:
        """Return the fields of a placeholder for a missing head, in which batches are refused."""
        return {**mongo.empty(self._namespace, at), "ops": {}, "log": mongo.token()}

    def _group(self, collection: str) -> str:
        return mongo.place_of(self._namespace, k.DocId(collection, ""))
