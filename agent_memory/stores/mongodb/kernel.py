"""The store on MongoDB and its kernel, without transactions: a standalone server is enough.

`stores/kernel/contract.py` defines documents, lines, batches and conditions.

- The head document of a session also has the end of the session's log and its newest lines. A batch
  that writes only a head and its log is one atomic update of the head (see `logs.py`).
- A batch that concerns only one other document is also one atomic update.
- A batch over several documents first writes a tag with the new content into each of them. One
  atomic update of one document then commits the batch. A call that reads a tag of a committed batch
  applies the batch first (see `staging.py`).
- A batch may have a condition on a document that it does not write, such as the registered
  embedding of a block. This condition is checked after all written documents are tagged. A later
  call that removes the registration also deletes the block's collections, and refuses each
  uncommitted batch that has tagged a document in these collections (see `_sweep`).
- Each change adds its random name to the document's `marks`. If the answer to a change was lost,
  the name shows that the change succeeded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from agent_memory.errors import SchemaTooNew, StoreError, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.coding import now_micros
from agent_memory.stores.kernel.rules import chunks, holds, in_turns, named, selects
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.stores.mongodb import documents as mongo
from agent_memory.stores.mongodb.connection import Deployment
from agent_memory.stores.mongodb.documents import Doc, Effects
from agent_memory.stores.mongodb.logs import STATE, Logs
from agent_memory.stores.mongodb.staging import Staging

_LAYOUT = 1
_DOCUMENTS = (("ns", "c", "id"), ("ns", "c", "owner", "id"), ("ns", "c", "session", "first", "id"))
_SPARSE = (("due",), ("op",), ("tagged",), ("cut.below",))
_MESSAGES = (("log", "seq"),)
_MOST_OPS = 32
_TRIES = 50
_AFTER: Doc = {**STATE, "ops": 1, "oldest_key": 1}


class MongoDBKernel(k.Kernel):
    """The kernel on MongoDB; see `Kernel`. A read first applies the committed batches it finds."""

    remote = True
    spans = False

    def __init__(self, deployment: Deployment, namespace: str) -> None:
        self._deployment = deployment
        self._namespace = namespace
        self.table = deployment.table("agent_memory_documents")
        self.messages = deployment.table("agent_memory_messages")
        self._logs = Logs(self.table, self.messages)
        self._staging = Staging(namespace, self.table)

    def documents(
        self, ids: Sequence[k.DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[k.Document | None]:
        docs = self._docs(ids, mongo.WITHOUT_LINES if bodies else mongo.WITHOUT_BODIES)
        documents = (docs.get(self._place(at)) for at in ids)
        return [
            mongo.document_of(doc, tails=tails, bodies=bodies) if doc and doc["live"] else None
            for doc in documents
        ]

    def _docs(self, ids: Sequence[k.DocId], fields: Doc) -> dict[str, Doc]:
        """Return the existing documents by `_id`, after applying committed batches."""
        by_place: dict[str, Doc] = {}
        for places in chunks([self._place(at) for at in ids]):
            docs = self.table.all({"_id": {"$in": places}}, fields)
            while self._staging.resolve(docs):
                docs = self.table.all({"_id": {"$in": places}}, fields)
            by_place |= {doc["_id"]: doc for doc in docs}
        return by_place

    def scan(self, scan: k.Scan) -> list[k.Document]:
        if scan.limit == 0:
            return []
        self._settle(scan)
        order = ("first", "id") if scan.session else ("id",)
        fields = mongo.WITHOUT_LINES if scan.bodies else mongo.WITHOUT_BODIES
        if scan.names:
            fields = {"c": 1, "id": 1}
        which = mongo.selection(self._namespace, scan)
        docs = self.table.all(which, fields, by=order, limit=scan.limit or 0)
        if scan.names:
            return [k.Document(doc["c"], doc["id"]) for doc in docs]
        return [mongo.document_of(doc, tails=scan.tails, bodies=scan.bodies) for doc in docs]

    def _settle(self, scan: k.Scan) -> None:
        """Apply committed batches whose documents the scan may select. Heads are never tagged."""
        if scan.collection == k.KEY and scan.session:
            self._staging.settle_head(self._place(k.head_id(scan.session)))
        elif scan.collection != k.HEAD:
            self._staging.settle(scan.collection)

    def owners(self, collection: str, beginning: str) -> list[str]:
        self._settle(k.Scan(collection))
        which = mongo.selection(self._namespace, k.Scan(collection))
        owners = self.table.distinct("owner", {**which, "owner": {"$gte": beginning}})
        return sorted(owner for owner in owners if owner and owner.startswith(beginning))

    def collections(self, beginning: str) -> list[str]:
        stored: Doc = {"ns": self._namespace, "live": 1, "c": {"$gte": beginning}}
        committed: Doc = {"ns": self._namespace, "tagged": {"$gt": ""}, "put": {"$exists": True}}
        names = {*self.table.distinct("c", stored), *self.table.distinct("c", committed)}
        return sorted(name for name in names if name.startswith(beginning))

    def due(self, collection: str, limit: int) -> list[k.Document]:
        now = now_micros()
        which: Doc = {
            "ns": self._namespace,
            "c": collection,
            "due": {"$lte": now},
            **mongo.free(now),
        }
        # all due documents are needed, because their owners take turns
        fields: Doc = dict.fromkeys(["id", "owner", "due", "gone", "live"], 1)
        docs = self.table.all(which, fields, by=("due", "id"))
        for doc in docs:
            if "gone" in doc:
                self._finish_deletion(doc["_id"])
        live = [doc for doc in docs if doc["live"]]
        turns = in_turns(live, owner=lambda doc: str(doc.get("owner")))[:limit]
        documents = self.documents([k.DocId(collection, doc["id"]) for doc in turns], tails=True)
        return [document for document in documents if document is not None]

    def lines(self, parts: Sequence[k.Part]) -> list[k.Line]:
        return self._logs.read([self._place(k.head_id(part.session)) for part in parts], parts)

    def counts(self, collection: str) -> tuple[int, int]:
        sums = {"n": {"$sum": 1}, "ends": {"$sum": "$end"}, "gone": {"$sum": "$begin"}}
        totals = self.table.group(mongo.selection(self._namespace, k.Scan(collection)), sums)
        return totals.get("n", 0), totals.get("ends", 0) - totals.get("gone", 0)

    def _refusal(self, batch: k.Batch) -> k.Outcome | None:
        """Return the outcome of a refused batch, or None if the batch's conditions hold now."""
        ids, logs = named(batch.conditions)
        docs = self._docs([*{*ids, *map(k.head_id, logs)}], mongo.WITHOUT_LINES)
        if self._all_hold(batch.conditions, docs):
            return None
        by_id = {at: docs.get(self._place(at)) for at in ids}
        documents = {
            at: mongo.document_of(doc) if doc and doc["live"] else None for at, doc in by_id.items()
        }
        return k.Outcome(False, documents, {session: self._tail(docs, session) for session in logs})

    def _all_hold(self, conditions: Sequence[k.Condition], docs: Mapping[str, Doc]) -> bool:
        ids, logs = named(conditions)
        states = {at: mongo.state_of(docs.get(self._place(at))) for at in ids}
        tails = {session: self._tail(docs, session) for session in logs}
        return all(holds(condition, states, tails, now_micros()) for condition in conditions)

    def _tail(self, docs: Mapping[str, Doc], session: str) -> k.Tail:
        head = docs.get(self._place(k.head_id(session)))
        return k.Tail(head["end"], head["total"]) if head and head["live"] else k.Tail()

    def _finish_deletion(self, place: str) -> None:
        gone = {"_id": place, "gone": 1}
        head = self.table.find_one(gone, STATE)
        if head is None:
            return
        self._staging.settle_head(place)  # apply the head's committed batches first
        self._logs.drop(head["log"])
        which = mongo.selection(self._namespace, k.Scan(k.KEY, session=head["id"]))
        keys = self.table.all(which, {"version": 1})
        if self.table.find_one({**gone, "log": head["log"]}, {"_id": 1}) is None:
            return  # a new session may have begun since, and the keys may belong to it
        for some in chunks(keys):
            ids, versions = ([key[name] for key in some] for name in ("_id", "version"))
            self.table.delete_all({"_id": {"$in": ids}, "version": {"$in": versions}})
        self.table.delete({**gone, "log": head["log"]})

    def _place(self, at: k.DocId) -> str:
        return mongo.place_of(self._namespace, at)

    def commit(self, batch: k.Batch) -> k.Outcome:
        wakes = [write for write in batch.writes if isinstance(write, k.Wake)]
        if not batch.conditions and len(wakes) == len(batch.writes):
            for ids, micros in wakes:
                due = {"$min": {"due": now_micros() + micros}}
                for some in chunks([self._place(at) for at in ids]):
                    self.table.update_all({"_id": {"$in": some}, "live": 1}, due)
            return k.DONE
        scans = [write.scan for write in batch.writes if isinstance(write, k.DeleteWhere)]
        if any(scan.owner is None and scan.session is None for scan in scans):
            self._sweep(batch)
            return k.DONE
        head = mongo.head_of(batch)
        for _ in range(_TRIES):
            if (outcome := self._try(batch, head)) is not None:
                return outcome
        raise StoreUnavailable(
            "Other writers kept changing the same documents in MongoDB. Try again."
        )

    def _try(self, batch: k.Batch, head: k.DocId | None) -> k.Outcome | None:
        """Try to commit a batch. Return its outcome, or None if it has to be tried again."""
        op = mongo.token()
        if not batch.writes:
            return self._refusal(batch) or k.DONE
        deleted = [at for write in batch.writes if isinstance(write, k.Delete) for at in write.ids]
        if head is not None and head in deleted:
            return self._delete_session(batch, head, op)
        effects, selected = self._effects(batch, head)
        if head is not None and not effects:
            return self._change_head(batch, head, op)
        target = None if selected else mongo.target_of(batch, effects)
        if target is not None:
            return self._change_one(batch, target, op)
        if not effects:
            return self._refusal(batch) or k.DONE
        return self._change_several(batch, head, op, effects, selected)

    def _change_several(
        self,
        batch: k.Batch,
        head: k.DocId | None,
        op: str,
        effects: Effects,
        selected: Mapping[str, k.Scan],
    ) -> k.Outcome | None:
        primary = head or list(effects.values())[-1][0]
        at = self._place(primary)
        begins = mongo.begins_session(batch, head)
        try:
            tagged = self._staging.tag(op, primary, effects, begins=begins)
            is_free = tagged is None or len(tagged) == len(effects)
            outcome = None
            if is_free and self._holds(batch, head, effects, selected, tagged or {}):
                if head is not None:
                    outcome = self._change_head(batch, head, op, lists=True)
                elif self._staging.commit(op, at):
                    outcome = k.DONE
        except StoreUnavailable:
            raise  # another call that finds the tags will apply or refuse the batch
        except BaseException:
            self._staging.take_off(op)
            raise
        if outcome is not None and outcome.done:
            if any(name.collection != k.KEY or not document for name, document in effects.values()):
                with suppress(StoreError):  # if this fails, a call that finds the tags applies them
                    self._staging.apply([op], at, effects)
                    if head is not None:
                        self._staging.forget([op], at)
            return outcome
        self._staging.take_off(op)
        if head is not None:
            self.table.update({"_id": at, f"refused.{op}": 1}, {"$unset": {f"refused.{op}": ""}})
        if not is_free:
            busy = self.table.all({"_id": {"$in": list(effects)}}, {"op": 1, "at": 1, "begins": 1})
            self._staging.resolve(busy, force=True)
            return None
        return outcome or self._refusal(batch)

    def _holds(
        self,
        batch: k.Batch,
        head: k.DocId | None,
        effects: Effects,
        selected: Mapping[str, k.Scan],
        tagged: Mapping[str, Doc],
    ) -> bool:
        """Return whether the conditions hold, except those on `head`, which are not checked here.

        The documents in `selected` must also still match their scans.
        """
        for place, scan in selected.items():
            doc = tagged.get(place)
            if doc is None or not doc["live"] or not selects(scan, mongo.document_of(doc)):
                return False
        conditions = [
            it for it in batch.conditions if head is None or mongo.session_of(it) != head.id
        ]
        others = [at for at in named(conditions)[0] if self._place(at) not in effects]
        docs = {**tagged, **(self._docs(others, mongo.WITHOUT_BODIES) if others else {})}
        return self._all_hold(conditions, docs)

    def _effects(
        self, batch: k.Batch, head: k.DocId | None
    ) -> tuple[dict[str, tuple[k.DocId, k.Document | None]], dict[str, k.Scan]]:
        """Return a batch's changed documents without the head, and the scans that select documents
        for deletion. The keys of both are `_id`s."""
        effects: dict[str, tuple[k.DocId, k.Document | None]] = {}
        selected: dict[str, k.Scan] = {}
        for write in batch.writes:
            changed: list[tuple[k.DocId, k.Document | None]] = []
            match write:
                case k.Put(document) if document.key != head:
                    changed = [(document.key, document)]
                case k.Delete(ids):
                    changed = [(at, None) for at in ids]
                case k.DeleteWhere(scan) if not (head and mongo.is_upkeep(scan)):
                    changed = [(hit.key, None) for hit in self.scan(scan._replace(names=True))]
                    selected |= {self._place(at): scan for at, _ in changed}
            for at, then in changed:
                effects.pop(self._place(at), None)  # only the last write of a document counts
                effects[self._place(at)] = at, then
        return effects, selected

    def _change_head(
        self, batch: k.Batch, head: k.DocId, op: str, *, lists: bool = False
    ) -> k.Outcome | None:
        """Write a head and its log. With `lists`, commit the batch by adding it to `ops`."""
        if not lists and not self._holds(batch, head, {}, {}, {}):
            return self._refusal(batch)
        place, now = self._place(head), now_micros()
        change = mongo.HeadChange(batch, head, op, now)
        which: Doc = {"_id": place}
        if lists:
            which[f"refused.{op}"] = {"$exists": False}
            change.set["ops" if change.begins else f"ops.{op}"] = {op: 1} if change.begins else 1
        if change.cut_at is not None:
            before = self.table.find_one({"_id": place, "live": 1})
            if before is None:
                return self._refusal(batch)
            if "cut" in before:
                self._logs.clear_cut(before)  # after the change, this could remove new lines
            which |= {name: before[name] for name in ("log", "g", "end", "begin", "spilled")}
            change.truncate(before)
        log, generation = change.log, change.generation
        if change.is_heavy:
            if log is None:
                now_there = self.table.find_one({"_id": place}, STATE) or {}
                log, generation = now_there.get("log", ""), now_there.get("g", 0)
                which |= {"log": log, "g": generation}
            change.rows = self._logs.stage(log, head.id, generation, change.rows)
        after = self._written(place, which, change, upsert=not lists)
        if after is None:
            if change.is_heavy:
                self._logs.unstage(log or "", change.rows)
            return self._refusal(batch)
        self._tidy(after, change.since)
        tails = {batch.tail: k.Tail(after["end"], after["total"])} if batch.tail else {}
        return k.Outcome(True, {}, tails)

    def _written(
        self, place: str, which: Doc, change: mongo.HeadChange, *, upsert: bool
    ) -> Doc | None:
        """Create or update a head. Return its new state, or None if it does not match `which`."""
        if not change.begins:
            return self._swap({**which, **change.which}, change.update(), change.op)
        which |= {"live": 0, "gone": {"$exists": False}}
        fields = {"ns": self._namespace, "c": change.head.collection, "id": change.head.id}
        new = {"$set": change.first_state(), "$setOnInsert": fields}
        if not self.table.update(which, new, upsert=upsert):
            head = self.table.find_one({"_id": place}, {**_AFTER, "gone": 1, "marks": 1}) or {}
            if "gone" in head:
                self._finish_deletion(place)
            return head if change.op in head.get("marks", ()) else None
        return {"_id": place, "id": change.head.id, "ops": {}, **change.first_state()}

    def _swap(self, which: Doc, change: Doc, op: str) -> Doc | None:
        after = self.table.swap(which, change, _AFTER)
        # the reply may have been lost, as in `Table.update_idempotent`
        return after or self.table.find_one({"_id": which["_id"], "live": 1, "marks": op}, _AFTER)

    def _tidy(self, head: Doc, since: int | None = None) -> None:
        """Clean up after a change of a head. Errors are ignored: a later call cleans up again."""
        place = head["_id"]
        with suppress(StoreError):
            self._logs.tidy(head)
            if len(head.get("ops", ())) > _MOST_OPS:
                self._staging.settle_head(place)
            if since is not None and head.get("oldest_key", since) < since:
                self._staging.settle_head(place)
                scan = k.Scan(k.KEY, session=head["id"], first_below=since)
                old = mongo.selection(self._namespace, scan)
                self.table.delete_all({**old, "op": {"$exists": False}})
                same = {"_id": place, "log": head["log"], "oldest_key": head["oldest_key"]}
                self.table.update(same, {"$set": {"oldest_key": since}})

    def _delete_session(self, batch: k.Batch, head: k.DocId, op: str) -> k.Outcome | None:
        """Mark a session as gone, then delete its data. `due` continues an interrupted deletion."""
        place, now = self._place(head), now_micros()
        if not self._holds(batch, head, {}, {}, {}):
            return self._refusal(batch)
        change = mongo.HeadChange(k.Batch(batch.conditions, []), head, op, now)
        gone = {"$set": {"live": 0, "gone": 1, "due": now}, **mongo.marked(op)}
        if not self.table.update_idempotent({"_id": place, **change.which}, gone, op):
            return self._refusal(batch)
        self._finish_deletion(place)
        return k.DONE

    def _change_one(self, batch: k.Batch, at: k.DocId, op: str) -> k.Outcome | None:
        place, now = self._place(at), now_micros()
        which = {"_id": place, "op": {"$exists": False}, **mongo.filter_of(batch.conditions, now)}
        values: Doc = {}
        upsert = all(isinstance(condition, k.Missing | k.Free) for condition in batch.conditions)
        is_put = False
        for write in batch.writes:
            match write:
                case k.Put(document):
                    values |= {"live": 1, **mongo.values_of(document)}
                    is_put = True
                case k.Delete([_]):
                    done = self.table.delete(which) or not batch.conditions
                    return k.DONE if done else self._again(batch, place)
                case _:
                    values |= mongo.timing_of(write, now)
        missing = mongo.empty(self._namespace, at)
        new = {name: value for name, value in missing.items() if name not in values}
        change = {"$set": values, **mongo.marked(op), "$setOnInsert": new}
        if self.table.update_idempotent(which, change, op, upsert=upsert and is_put):
            return k.DONE
        return self._again(batch, place)

    def _again(self, batch: k.Batch, place: str) -> k.Outcome | None:
        """Return the outcome of a change that did not match, or None if it may be tried again."""
        document = self.table.find_one({"_id": place}, {"op": 1, "at": 1, "begins": 1})
        if document is not None and "op" in document:
            self._staging.resolve([document], force=True)
        return self._refusal(batch)

    def _sweep(self, batch: k.Batch) -> None:
        """Delete whole collections, and refuse uncommitted batches that write to them."""
        for write in batch.writes:
            match write:
                case k.Delete(ids) if not batch.conditions:
                    for at in ids:
                        self.table.delete({"_id": self._place(at)})
                case k.DeleteWhere(scan) if not batch.conditions:
                    self._staging.settle(scan.collection, force=True)
                    self.table.delete_all(mongo.selection(self._namespace, scan))
                case _:
                    raise StoreError(
                        "A batch in MongoDB that deletes whole collections cannot have conditions "
                        "or other writes."
                    )

    def erase(self) -> None:
        """Finish interrupted truncations and batches.

        MongoDB overwrites the space of deleted documents in time. The method cannot erase data from
        the server's files, journal, oplog and backups.
        """
        self._staging.settle_all()
        for head in self.table.all({"cut.below": {"$gt": 0}}, {**_AFTER, "ns": 1}):
            if head["ns"] == self._namespace and head["live"]:
                self._logs.tidy(head)

    def close(self) -> None:
        self._deployment.close()


class MongoDBStore(KernelStore):
    """A store in a MongoDB database.

    Args:
        url: `mongodb://user:password@host:27017/database` or `mongodb+srv://...`. The default
            database is "agent_memory".
        namespace: The namespace. Stores of different namespaces are independent.
        durability: Each write waits for a majority of the deployment's members. With "power" or
            None, the write also waits for their journals. With "process", the server's settings
            decide about the journals.

    Raises:
        StoreUnavailable: The deployment cannot be reached, or refuses the user.
        SchemaTooNew: A newer release wrote the database.
    """

    def __init__(
        self, url: str, namespace: str = "default", durability: Durability | None = None
    ) -> None:
        deployment = Deployment(url, durability)
        kernel = MongoDBKernel(deployment, namespace)
        super().__init__(kernel)
        try:
            self._prepare(deployment, kernel)
        except BaseException:
            deployment.close()
            raise

    def _prepare(self, deployment: Deployment, kernel: MongoDBKernel) -> None:
        meta = deployment.table("agent_memory_meta")
        stored = meta.find_one({"_id": "layout"})
        if stored is None:
            kernel.table.index(_DOCUMENTS)
            kernel.table.index(_SPARSE, sparse=True)
            kernel.messages.index(_MESSAGES)
            meta.insert([{"_id": "layout", "version": _LAYOUT}])
        elif stored["version"] != _LAYOUT:
            raise SchemaTooNew(
                "The MongoDB database was written by a newer release of agent-memory (layout "
                f"{stored['version']}; this release knows {_LAYOUT}). Install a newer agent-memory."
            )
