"""The tables that a folder's files are read into: documents, lines, and the vectors of blocks."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

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
from agent_memory.stores.memory import MemoryKernel

if TYPE_CHECKING:
    from agent_memory.stores.encrypted.kernel import Cipher


class Tables(MemoryKernel):
    """A kernel in memory whose due times and holders are saved and restored."""

    def state(self) -> State:
        sessions = {
            row.document.id: (row.document.first, row.due, row.holder, row.held_until)
            for row in self._view().selected(Scan(HEAD))
        }
        held = self._view().selected(Scan(LOCK))
        return State(sessions, {row.document.id: (row.holder, row.held_until) for row in held})

    def restore(self, state: State) -> None:
        """Set the stored due times, leases and locks, except of sessions that began anew since."""
        view = self._view()
        for row in view.selected(Scan(HEAD)):
            begun, due, holder, until = state.sessions.get(row.document.id, (None, None, "", 0))
            if begun == row.document.first:
                self._state[row.document.key] = row._replace(
                    due=due, holder=holder, held_until=until
                )
        locks = [Put(Document(LOCK, name)) for name in state.locks]
        self.commit([Batch([], [DeleteWhere(Scan(LOCK)), *locks])])
        for row in self._view().selected(Scan(LOCK)):
            holder, until = state.locks[row.document.id]
            self._state[row.document.key] = row._replace(holder=holder, held_until=until)


class _Line(NamedTuple):
    """A record, its line, and the features in the line."""

    document: Document
    text: str
    features: Any


class Vectors(KernelStore):
    """Converts between files, where each record has its features, and tables of segments."""

    def __init__(self, tables: Tables, cipher: Cipher | None) -> None:
        super().__init__(tables)
        self._tables = tables
        self._cipher = cipher
        self._lines: dict[str, dict[str, _Line]] = {}

    def forget(self, block: str) -> None:
        self._lines.pop(block, None)
        self.clear_vectors(block)

    def load(self, block: str, first: Fields, rest: Sequence[tuple[str, Fields]]) -> None:
        """Load the lines of a file. Records with unchanged lines are not replaced."""
        opened = opened_of(first)
        records_with_texts = [(record_of(fields), text) for text, fields in rest]
        if self.vector_blocks().get(block, opened) != opened:
            self.forget(block)
        self.open_vectors(block, *opened)
        lines = self._lines.get(block, {})
        old_texts = {one.text for one in lines.values()}
        new = {
            record.id: (record, features, text)
            for (record, features), text in records_with_texts
            if text not in old_texts
        }
        texts = {text for _, text in records_with_texts}
        remaining = {
            name: one for name, one in lines.items() if one.text in texts and name not in new
        }
        gone = [one.document for name, one in lines.items() if name not in remaining]
        blobs = {
            name: blob_of(features, block, record, self._cipher)
            for name, (record, features, _) in new.items()
        }
        names = [*blobs]
        sound = [names[place] for place in undamaged_places([*blobs.values()])]
        records = [new[name][0] for name in sound]
        groups = grouped(records, features_of([blobs[name] for name in sound])) if sound else {}
        self._change(block, gone, groups, [], None)
        for name in set(names) - set(sound):
            self._put_lacking(block, new[name][0], blobs[name].startswith(ENCRYPTED))
        for one in self._tables.scan(Scan(f"vector:{block}")):
            if one.id in new:
                _, features, text = new[one.id]
                remaining[one.id] = _Line(one, text, features)
        self._lines[block] = remaining

    def _put_lacking(self, block: str, record: Record, is_encrypted: bool) -> None:
        """Put a record with unreadable features. A search finds it by its words, if they are
        damaged, and fails if they are encrypted."""
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
        self._tables.commit([Batch([], puts)])

    def lines(self, block: str) -> Iterator[str]:
        """Yield a file's lines. Unchanged records keep theirs, even with unreadable features."""
        opened = self.vector_blocks().get(block)
        if opened is None:
            self._lines.pop(block, None)
            return
        yield line_of({"block": block, "dimension": opened[0], "model": opened[1]})
        before, lines = self._lines.get(block, {}), dict[str, _Line]()
        new: dict[str, list[Document]] = {}
        documents = self._tables.scan(Scan(f"vector:{block}"))
        for document in documents:
            if document.id in before and before[document.id].document is document:
                lines[document.id] = before[document.id]
            else:
                new.setdefault(document.owner, []).append(document)
        texts: dict[str, str] = {}
        with noted():
            for owner, documents_of_owner in new.items():
                for records, features in self._walk(block, owner, documents_of_owner):
                    for record, blob in zip(records, blobs_of(records, features), strict=True):
                        texts[record.id] = text_of(blob, block, record, self._cipher)
        for documents_of_owner in new.values():
            for document in documents_of_owner:
                text = line_of_record(
                    record_from(document, "vector", block), texts.get(document.id)
                )
                lines[document.id] = _Line(document, text, texts.get(document.id))
        self._lines[block] = lines
        for document in in_order(documents):
            yield lines[document.id].text


def in_order(documents: Sequence[Document]) -> list[Document]:
    """Return records in the order of their file."""
    return sorted(documents, key=lambda one: (int(one.about), one.id))
