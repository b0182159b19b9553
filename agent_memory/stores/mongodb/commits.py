"""Writes of many records that take effect at once, and only while a lease is held.

MongoDB promises atomicity for one document. So a write first tags each record it is about with its
`next` state, which nobody takes for the record yet; then one change of one document, the session
whose lease it is done under, commits it (`ops.<name>`), and that change is refused once the lease
is another's. From then on the next states hold, and whoever meets a tag puts them in place: the
writer, or after its death any reader. In the end the session forgets the write.

A tag belongs to one write by name, and is put in place, or taken off, only where it still stands.
So a writer or helper that stalls at any step repeats nothing that others have moved past.

A write without a lease is committed in a document of the namespace's own, in the same way. Whoever
finds records tagged by a write that does not come to an end refuses it (`refused.<name>`) first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agent_memory.core.records import Lease
from agent_memory.errors import LeaseLost, StoreError, StoreUnavailable
from agent_memory.stores.log import LOST
from agent_memory.stores.mongodb.connection import Table
from agent_memory.stores.mongodb.documents import NO_TAIL, key_of, token

Doc = dict[str, Any]

_PATIENCE_SECONDS = 0.3
_PAUSE_SECONDS = 0.01
_TRIES = 20
_TAG: Doc = {"next": 1}  # what a record was is not needed, and may be large


@dataclass(frozen=True, slots=True)
class Write:
    """A write under way.

    Attributes:
        name: Its own.
        at: Key of the document that commits it.
        owner: The lease's owner, if there is a lease.
        block: Key of the block whose records it is about.
    """

    name: str
    at: str
    owner: str | None
    block: str

    def tag(self, **state: Any) -> Doc:
        """What a record says of it."""
        return {
            "op": self.name, "at": self.at, "owner": self.owner, "block": self.block, **state
        }  # fmt: skip


class Commits:
    """Commits writes to one collection of records.

    Args:
        namespace: Whose records and leases they are.
        sessions: The collection of sessions.
        records: The collection of records.
    """

    def __init__(self, namespace: str, sessions: Table, records: Table) -> None:
        self._namespace = namespace
        self._sessions = sessions
        self._records = records
        self._unleased = f"commits.{key_of(namespace)}"

    def write(self, block: str, lease: Lease | None, stage: Callable[[Write], bool]) -> None:
        """Have records tagged by `stage`, and commit that; `stage` tells whether there were any.

        Raises:
            LeaseLost: The lease is not held any more; nothing was written.
        """
        at = self._unleased if lease is None else key_of(self._namespace, lease.session_id)
        for _ in range(_TRIES):
            write = Write(token(), at, None if lease is None else lease.owner, block)
            try:
                if not stage(write):
                    self.guard(lease)
                    return
                done = self._commit(write)
            except StoreUnavailable:  # unknown; whoever meets the tags finds out
                raise
            except BaseException:
                self._take_off(write.name)
                raise
            if done:
                self.put_in_place(write.name)
                self._sessions.update({"_id": at}, {"$unset": {f"ops.{write.name}": ""}})
                return
            self._take_off(write.name)
            self._sessions.update({"_id": at}, {"$unset": {f"refused.{write.name}": ""}})
            self.guard(lease)
        raise StoreError("Other writers kept changing the same records. Try again.")

    def guard(self, lease: Lease | None) -> None:
        """Refuse a lease that is not held any more."""
        if lease is not None:
            key = key_of(self._namespace, lease.session_id)
            if self._sessions.one({"_id": key, "lease_owner": lease.owner}, fields=NO_TAIL) is None:
                raise LeaseLost(LOST.format(lease.session_id))

    def put(self, write: Write, docs: Sequence[Doc], *, late: bool = False) -> None:
        """Tag records, new ones or those there are, with what they are to be.

        Args:
            write: The write.
            docs: The records' documents.
            late: Whether they lead to others: they are put in place after these.
        """
        more = {"late": 1} if late else {}
        waiting = {doc["_id"]: doc for doc in docs}
        while waiting:
            fresh = [
                {"_id": key, "live": 0, "next": write.tag(gone=0, record=_record(doc), **more)}
                for key, doc in waiting.items()
            ]
            taken = [fresh[place] for place in sorted(self._records.insert(fresh))]
            free: Doc = {"next": {"$exists": False}}
            self._records.update_each(
                [({"_id": doc["_id"], **free}, {"$set": {"next": doc["next"]}}) for doc in taken]
            )
            keys = [doc["_id"] for doc in taken]
            held = self._in(keys, {"next.op": write.name}) if keys else []
            waiting = {key: waiting[key] for key in set(keys) - {doc["_id"] for doc in held}}
            if waiting:
                self._resolve(self._in(list(waiting), {"next.op": {"$exists": True}}), force=True)

    def remove(self, write: Write, which: Doc) -> bool:
        """Tag the records that match as gone; whether there were any."""
        self.settle(write.block)
        which = {"block": write.block, "live": 1, **which}
        free, foreign = {"$exists": False}, {"$exists": True, "$ne": write.name}
        tag = {"$set": {"next": write.tag(gone=1)}}
        while True:
            self._records.update_all({**which, "next": free}, tag)
            held = self._records.all({**which, "next.op": foreign}, fields=_TAG)
            if not held:
                # not by the count of what was changed: that may have been sent twice
                return bool(self._records.all({"next.op": write.name}, fields=_TAG, limit=1))
            self._resolve(held, force=True)

    def settle(self, block: str) -> bool:
        """Put in place what was committed, take off what never will be; whether none is left."""
        return self._resolve(self._records.all({"next.block": block}, fields=_TAG), force=False)

    def put_in_place(self, name: str) -> None:
        """Make a committed write's states those of its records; what leads to others comes last."""
        tagged = self._records.all({"next.op": name}, fields=_TAG)
        for late in (False, True):
            some = [doc for doc in tagged if ("late" in doc["next"]) is late]
            puts = [doc for doc in some if not doc["next"]["gone"]]
            if len(puts) < len(some):
                which = {"next.op": name, "next.gone": 1, "next.late": {"$exists": late}}
                self._records.delete_all(which)
            self._records.update_each(
                [
                    (
                        {"_id": doc["_id"], "next.op": name},
                        {"$set": {**doc["next"]["record"], "live": 1}, "$unset": {"next": ""}},
                    )
                    for doc in puts
                ]
            )

    def _in(self, keys: Sequence[str], which: Doc) -> list[Doc]:
        return [
            doc
            for at in range(0, len(keys), 1000)
            for doc in self._records.all(
                {"_id": {"$in": list(keys[at : at + 1000])}, **which}, fields=_TAG
            )
        ]

    def _commit(self, write: Write) -> bool:
        which: Doc = {"_id": write.at, f"refused.{write.name}": {"$exists": False}}
        if write.owner is not None:
            which["lease_owner"] = write.owner
        change = {"$set": {f"ops.{write.name}": 1}}
        # sent once: a second one might be refused where the first was not, and the answer got lost
        if self._sessions.update(which, change, again=False):
            return True
        if write.owner is None and self._sessions.one({"_id": write.at}) is None:
            self._sessions.insert([{"_id": write.at, "ops": {}, "refused": {}}])
            return self._sessions.update(which, change, again=False)
        return False

    def _resolve(self, docs: Iterable[Doc], *, force: bool) -> bool:
        """Bring the writes that tagged these documents to an end; whether all were.

        Those that may still be committed are left alone, or with `force` refused after a while.
        """
        ended = True
        for name, tag in {doc["next"]["op"]: doc["next"] for doc in docs}.items():
            ended = self._end(name, tag, force) and ended
        return ended

    def _end(self, name: str, tag: Doc, force: bool) -> bool:
        patience = time.monotonic() + _PATIENCE_SECONDS
        while True:
            found = self._sessions.one({"_id": tag["at"]}, fields=NO_TAIL)
            at = {"ops": {}, "refused": {}} if found is None else found
            if name in at["ops"]:
                self.put_in_place(name)
                self._sessions.update({"_id": tag["at"]}, {"$unset": {f"ops.{name}": ""}})
                return True
            lost = tag["owner"] is not None and at.get("lease_owner") != tag["owner"]
            if lost or name in at["refused"]:
                self._take_off(name)
                return True
            if not force:
                return False
            if not self._records.all({"next.op": name}, fields={"_id": 1}, limit=1):
                return True
            if time.monotonic() < patience:
                time.sleep(_PAUSE_SECONDS)
                continue
            which = {"_id": tag["at"], f"ops.{name}": {"$exists": False}}
            self._sessions.update(which, {"$set": {f"refused.{name}": 1}})

    def _take_off(self, name: str) -> None:
        self._records.delete_all({"next.op": name, "live": 0})
        self._records.update_all({"next.op": name}, {"$unset": {"next": ""}})


def _record(doc: Doc) -> Doc:
    return {key: value for key, value in doc.items() if key != "_id"}
