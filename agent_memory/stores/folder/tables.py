"""The documents, lines and vectors of a folder's files, in memory."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_memory.core.records import Record
from agent_memory.stores.damage import noted
from agent_memory.stores.feature_bytes import blobs_of, features_of, undamaged_places
from agent_memory.stores.folder.lines import (
    Fields,
    State,
    blob_of,
    line_of,
    line_of_record,
    opened_of,
    record_of,
    text_of,
)
from agent_memory.stores.kernel.catalogs import ENCRYPTED, Catalog, Part, grouped
from agent_memory.stores.kernel.coding import HEAD, LOCK, record_document, record_from
from agent_memory.stores.kernel.contract import Batch, DeleteWhere, Document, Put, Scan
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.stores.memory import MemoryDatabase
from agent_memory.stores.sql.database import DOCUMENTS
from agent_memory.stores.sql.kernel import SQLKernel

if TYPE_CHECKING:
    from agent_memory.stores.encrypted.kernel import Cipher


class Tables(SQLKernel):
    """A kernel in memory whose due times and holders are saved and restored."""

    def __init__(self) -> None:
        super().__init__(MemoryDatabase(), "default")

    def state(self) -> State:
        select = f"SELECT id, first, due, holder, held_until FROM {DOCUMENTS} WHERE collection = ?"
        heads = self._database.read(lambda it: it.rows(select, [HEAD]))
        locks = self._database.read(lambda it: it.rows(select, [LOCK]))
        return State(
            {name: (begun, due, holder, until) for name, begun, due, holder, until in heads},
            {name: (holder, until) for name, _, _, holder, until in locks},
        )

    def restore(self, state: State) -> None:
        """Set the stored due times, leases and locks. Sessions created later stay unchanged."""
        update = (
            f"UPDATE {DOCUMENTS} SET due = ?, holder = ?, held_until = ? "
            "WHERE collection = ? AND id = ? AND first = ?"
        )
        locks = [Put(Document(LOCK, name)) for name in state.locks]
        self.commit(Batch([], [DeleteWhere(Scan(LOCK)), *locks]))
        held = [(None, *lease, LOCK, name, 0) for name, lease in state.locks.items()]
        heads = [(*times, HEAD, name, begun) for name, (begun, *times) in state.sessions.items()]
        self._database.write(lambda it: it.run_each(update, [*held, *heads]))


class Vectors(KernelStore):
    """Converts features: in files they are in each record, in tables they are in segments."""

    def __init__(self, tables: Tables, cipher: Cipher | None) -> None:
        super().__init__(tables)
        self._tables = tables
        self._cipher = cipher
        self._lines: dict[str, dict[str, tuple[Document, str]]] = {}

    def forget(self, block: str) -> None:
        self._lines.pop(block, None)
        self.clear_vectors(block)

    def load(self, block: str, first: Fields, rest: Sequence[tuple[str, Fields]]) -> None:
        """Load a file's lines. Records with unchanged lines are not replaced."""
        opened = opened_of(first)
        read = [(*record_of(fields), text) for text, fields in rest]
        if self.vector_blocks().get(block, opened) != opened:
            self.forget(block)
        self.open_vectors(block, *opened)
        texts = {record.id: text for record, _, text in read}
        before = self._lines.get(block, {})
        gone = [document for name, (document, text) in before.items() if texts.get(name) != text]
        unchanged = before.keys() - {document.id for document in gone}
        records = {record.id: record for record, _, _ in read if record.id not in unchanged}
        blobs = {
            record.id: blob_of(value, block, record, self._cipher)
            for record, value, _ in read
            if record.id in records
        }
        names = [*blobs]
        sound = [names[place] for place in undamaged_places([*blobs.values()], opened[0])]
        features = features_of([blobs[name] for name in sound]) if sound else None
        groups = grouped([records[name] for name in sound], features) if features else {}
        self._change(block, gone, groups, [], None)
        for name in set(names) - set(sound):
            self._put_lacking(block, records[name], blobs[name].startswith(ENCRYPTED))
        documents = self._tables.scan(Scan(f"vector:{block}"))
        self._lines[block] = {document.id: (document, texts[document.id]) for document in documents}

    def _put_lacking(self, block: str, record: Record, is_encrypted: bool) -> None:
        """Store a record with unreadable features. With damaged features, a search finds the record
        by its words. With encrypted features and without keys, a search fails."""
        at = Document(f"catalog:{block}", record.owner, record.owner)
        (stored,) = self._tables.documents([at.key])
        catalog = Catalog() if stored is None else Catalog.of(stored.body)
        number = catalog.next
        part = Part(secrets.randbits(62), number, number, 1, 0)
        after = replace(catalog, next=number + 1, parts=(*catalog.parts, part))
        puts = [
            Put(record_document(f"vector:{block}", record, number)),
            Put(at._replace(version=secrets.randbits(62), body=after.text)),
        ]
        if is_encrypted:
            segment = f"segment:{block}", f"{part.name:x}:{record.owner}", record.owner
            puts.append(Put(Document(*segment, data=ENCRYPTED)))
        self._tables.commit(Batch([], puts))

    def lines(self, block: str) -> Iterator[str]:
        """Yield a file's lines. An unchanged record keeps its line, even with damaged features."""
        opened = self.vector_blocks().get(block)
        if opened is None:
            self._lines.pop(block, None)
            return
        yield line_of({"block": block, "dimension": opened[0], "model": opened[1]})
        documents = self._tables.scan(Scan(f"vector:{block}"))
        before = self._lines.get(block, {})
        lines = {doc.id: before[doc.id] for doc in documents if before.get(doc.id, [0])[0] == doc}
        new: dict[str, list[Document]] = {}
        for doc in documents:
            if doc.id not in lines:
                new.setdefault(doc.owner, []).append(doc)
        features: dict[str, str] = {}
        with noted():
            for owner, own in new.items():
                for records, some in self._walk(block, owner, own):
                    blobs = zip(records, blobs_of(records, some), strict=True)
                    features |= {
                        it.id: text_of(blob, block, it, self._cipher) for it, blob in blobs
                    }
        for doc in (doc for own in new.values() for doc in own):
            record = record_from(doc, "vector", block)
            lines[doc.id] = doc, line_of_record(record, features.get(doc.id))
        self._lines[block] = lines
        for doc in in_order(documents):
            yield lines[doc.id][1]


def in_order(documents: Sequence[Document]) -> list[Document]:
    return sorted(documents, key=lambda document: (int(document.about), document.id))
