"""What the owners of a block have, as documents: catalogs and segments, beside the records.

They stand in the collection of the records, each kind under a block of its own, so that one write
tags and commits them together. Whoever changes what an owner has holds the catalog, by its tag; and
it is put in place after all that it leads to.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.stores.catalogs import Catalog, changed
from agent_memory.stores.mending import catalog_of
from agent_memory.stores.mongodb.commits import Commits, Write
from agent_memory.stores.mongodb.connection import Table
from agent_memory.stores.mongodb.documents import key_of
from agent_memory.stores.seals import SegmentSeals

if TYPE_CHECKING:
    from agent_memory.retrieval.segments import Segment

Doc = dict[str, Any]

_AT_ONCE = 8  # segments, some MB each
_STATE: Doc = {"live": 1, "version": 1, "catalog": 1, "next": 1}


def blocks_of(key: str) -> list[str]:
    """Under which blocks the documents of a key are: records, catalogs, segments."""
    return [key, f"{key}/catalogs", f"{key}/segments"]


class OwnersDocuments:
    """As `catalogs.SegmentSource`.

    Args:
        vectors: The collection.
        writes: Commits the writes to it.
        key: Of the block's vectors.
        owner: Who.
        seals: Seals and opens the segments of a block, whose name is the first.
    """

    def __init__(
        self,
        vectors: Table,
        writes: Commits,
        key: str,
        owner: str,
        seals: tuple[str, SegmentSeals],
    ) -> None:
        self._block, self._seals = seals
        self._vectors = vectors
        self._writes = writes
        self._key = key
        self._owner = owner
        _, self._catalogs, self._segments = blocks_of(key)
        self.place = key_of(key, owner, "catalog")

    def catalog(self) -> tuple[int, str] | None:
        """See `SegmentSource.catalog`."""
        doc = self._vectors.one({"_id": self.place}, fields=_STATE)
        if doc is not None and "next" in doc:
            self._writes.settle(self._key)
            doc = self._vectors.one({"_id": self.place}, fields=_STATE)
        return self.state_of(doc)

    def state_of(self, doc: Doc | None) -> tuple[int, str] | None:
        """What the document of a catalog says as it stands, whatever it is to be."""
        if doc is None or not doc["live"]:
            return None
        return doc.get("version", 0), str(doc.get("catalog"))

    def segments(self, names: Sequence[int]) -> Mapping[int, bytes]:
        """See `SegmentSource.segments`."""
        found: dict[int, bytes] = {}
        for at in range(0, len(names), _AT_ONCE):
            places = [self.place_of(name) for name in names[at : at + _AT_ONCE]]
            docs = self._vectors.all({"_id": {"$in": places}}, fields={"name": 1, "body": 1})
            found |= {doc["name"]: doc["body"] for doc in docs}
        opened = self._seals.opened
        return {n: opened(self._block, self._owner, str(n), body) for n, body in found.items()}

    def names(self) -> Sequence[int]:
        """See `SegmentSource.names`."""
        return [doc["name"] for doc in self._vectors.all(self.all_segments, fields={"name": 1})]

    def numbers(self) -> Mapping[str, int]:
        """See `SegmentSource.numbers`."""
        which = {"block": self._key, "owner": self._owner, "live": 1}
        docs = self._vectors.all(which, fields={"id": 1, "at": 1})
        return {doc["id"]: doc["at"] for doc in docs}

    def place_of(self, name: int) -> str:
        """The id of a segment's document."""
        return key_of(self._key, self._owner, str(name))

    @property
    def all_segments(self) -> Doc:
        """The documents of the owner's segments."""
        return {"block": self._segments, "owner": self._owner, "live": 1}

    def new_segment(self, name: int, body: bytes) -> Doc:
        """The document of a segment."""
        of = {"block": self._segments, "owner": self._owner}
        sealed = self._seals.sealed(self._block, self._owner, str(name), body)
        return {"_id": self.place_of(name), **of, "name": name, "body": sealed}

    def new_catalog(self, text: str) -> Doc:
        """The fields of a catalog's document."""
        of = {"block": self._catalogs, "owner": self._owner}
        return {**of, "version": secrets.randbits(62), "catalog": text}


class Scopes:
    """What owners have, within a write that changes it: nobody else does meanwhile.

    Args:
        vectors: The collection.
        writes: Commits the write.
        write: The write.
        block: The block's name.
        owners: Those that are to be changed in any case.
        seals: Seals and opens the segments.
    """

    def __init__(
        self,
        vectors: Table,
        writes: Commits,
        write: Write,
        block: str,
        owners: Iterable[str],
        seals: SegmentSeals,
    ) -> None:
        self._seals = seals
        self._vectors = vectors
        self._writes = writes
        self._write = write
        self._block = block
        self._held: dict[str, tuple[OwnersDocuments, bool]] = {}
        self._catalogs: dict[str, Catalog] = {}
        self.hold(owners)

    def hold(self, owners: Iterable[str]) -> None:
        """Have nobody else change what these have, until the write comes to an end."""
        vectors, writes, key = self._vectors, self._writes, self._write.block
        seals = self._block, self._seals
        sources = {
            owner: OwnersDocuments(vectors, writes, key, owner, seals)
            for owner in sorted({*owners} - self._held.keys())
        }
        tagged = [{"_id": source.place} for source in sources.values()]
        self._writes.put(self._write, tagged, late=True)
        for owner, source in sources.items():
            doc = self._vectors.one({"_id": source.place}, fields=_STATE)
            self._held[owner] = source, doc is not None and bool(doc["live"])
            state = source.state_of(doc)
            self._catalogs[owner] = catalog_of(self._block, owner, source, state)

    def catalog(self, owner: str) -> Catalog:
        """What an owner has, who is held."""
        return self._catalogs[owner]

    def removed(self) -> dict[str, dict[str, int]]:
        """The numbers of the records that the write removes or writes over, by id, for each owner;
        all of these are held then."""
        which = {"block": self._write.block, "live": 1, "next.op": self._write.name}
        found: dict[str, dict[str, int]] = {}
        for doc in self._vectors.all(which, fields={"id": 1, "owner": 1, "at": 1}):
            found.setdefault(doc["owner"], {})[doc["id"]] = doc["at"]
        self.hold(found)
        return found

    def change(self, owner: str, gone: Mapping[str, int], added: Sequence[Segment] = ()) -> None:
        """Write what comes of it that records were removed, and others put.

        Args:
            owner: Who is held.
            gone: Numbers by id.
            added: What the others are found by.
        """
        # whatever its catalog says: deleting reads nothing that may be damaged
        others = {"live": 1, "next.op": {"$ne": self._write.name}}
        of = {"block": self._write.block, "owner": owner}
        if not added and self._vectors.one({**of, **others}, fields={"_id": 1}) is None:
            source, _ = self._held.pop(owner)
            self._writes.remove(self._write, source.all_segments)
            self._state(source, {"next.gone": 1})
            return
        self.write(owner, self.catalog(owner), {at: name for name, at in gone.items()}, added)

    def write(
        self,
        owner: str,
        catalog: Catalog,
        gone: Mapping[int, str],
        added: Sequence[Segment],
    ) -> None:
        """Write what comes of a change to a catalog; see `catalogs.changed`."""
        source, _ = self._held.pop(owner)
        change = changed(catalog, gone, added, source.segments)
        tag = self._write.tag(gone=0, record={})
        self._vectors.insert(
            [
                {**source.new_segment(name, body), "live": 0, "next": tag}
                for name, body in change.written.items()
            ]
        )
        if change.dropped:
            places = [source.place_of(name) for name in change.dropped]
            self._writes.remove(self._write, {**source.all_segments, "_id": {"$in": places}})
        self._state(source, {"next.record": source.new_catalog(change.catalog.text)})

    def finish(self) -> None:
        """Leave as they are those that are held and were not changed."""
        for source, is_there in self._held.values():
            if not is_there:
                self._state(source, {"next.gone": 1})

    def _state(self, source: OwnersDocuments, state: Doc) -> None:
        which = {"_id": source.place, "next.op": self._write.name}
        self._vectors.update(which, {"$set": state})
