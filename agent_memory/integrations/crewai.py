"""Storage of CrewAI's `Memory` in the database of an `AgentMemory`.

Memory(storage=AgentMemoryStorage(memory, user_id="ana"))
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from agent_memory.core.limits import MOST
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.values.items import Put
from agent_memory.errors import MissingExtra
from agent_memory.integrations.adapting import locked, threaded
from agent_memory.standalone.indexes import VectorIndex
from agent_memory.standalone.item_index import Item, Match

try:
    from crewai.memory.storage.backend import EmbeddingDimensionMismatchError
    from crewai.memory.types import MemoryRecord, ScopeInfo
except ImportError as error:
    raise MissingExtra("CrewAI's storage", "crewai") from error

__all__ = ["AgentMemoryStorage"]

_RECORDS = ("crewai", "records")
_ABOUT = ("crewai", "about")
_LENGTH = "length of embeddings"
_NORM = "norm"
_ROOT = "/"
Json = dict[str, Any]


class AgentMemoryStorage:
    """Stores the records of CrewAI's `Memory`.

    A record is stored as a value, and its embedding as an item of a `VectorIndex`. All processes
    find both immediately. A scope includes the scopes below it.

    Args:
        memory: The memory. Its blocks do not absorb the records.
        user_id: The user of the records; `memory.delete_user` erases the records. Without a user,
            only scopes separate the records of users.
    """

    def __init__(self, memory: AgentMemory, *, user_id: str | None = None) -> None:
        self._memory = memory
        self._user_id = user_id
        self._values = memory.values(user_id)
        self._indexes: dict[int, VectorIndex] = {}
        self._lock = Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> AgentMemoryStorage:
        """Return this object, because a copied crew shares the database."""
        return self

    def save(self, records: list[MemoryRecord]) -> None:
        """Store records. Each replaces the record with the same id.

        Raises:
            EmbeddingDimensionMismatchError: The embeddings of the list and of the store do not all
                have the same length. Nothing was stored.
            TypeError: Metadata is not JSON. Nothing was stored.
        """
        for record in records:
            json.dumps(record.metadata)  # refuses a set, which pydantic would turn into a list
        with locked(self._memory, "crewai", self._user_id or ""):
            length = self._length([record.embedding for record in records if record.embedding])
            puts = [Put(_RECORDS, record.id, _to_json(record)) for record in records]
            if length:
                puts.append(Put(_ABOUT, _LENGTH, length))
            # records are stored first, so that every indexed embedding has a record
            self._values.put_many(puts)
            # a zero vector has no direction, so searches do not find its record
            items = [
                Item(record.id, None, record.embedding, _filter_fields(record))
                for record in records
                if any(record.embedding or ())
            ]
            if items:
                self._index(length).store(items, user_id=self._user_id)

    def update(self, record: MemoryRecord) -> None:
        """Replace the record with the same id. Without a new embedding, the old embedding stays."""
        vector = record.embedding or self._vector(record.id)
        self.save([record.model_copy(update={"embedding": vector})])

    def touch_records(self, record_ids: list[str]) -> None:
        """Set the time of the records' last access to now."""
        now = datetime.now(UTC).replace(tzinfo=None).isoformat()
        items = filter(None, (self._values.get(_RECORDS, record_id) for record_id in record_ids))
        self._values.put_many(
            Put(_RECORDS, item.key, {**item.value, "last_accessed": now}) for item in items
        )

    def search(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """Return records that meet all conditions, each with its cosine similarity, best first.

        A query of zeros finds no record.

        Raises:
            EmbeddingDimensionMismatchError: The query and the stored embeddings differ in length.
        """
        if not self._stored_length():
            return []
        length = self._length([query_embedding])
        if not any(query_embedding):
            return []
        matches: list[tuple[MemoryRecord, float]] = []
        for match in self._nearest(length, query_embedding, limit):
            if len(matches) >= limit or match.score < min_score:
                break
            if _meets(match.metadata, scope_prefix, categories, metadata_filter):
                record = self._values.get(_RECORDS, match.id)
                if record is not None:
                    matches.append((MemoryRecord.model_validate(record.value), match.score))
        return matches

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Delete the records that meet all conditions, by default all, and return their number."""
        wanted = None if record_ids is None else set(record_ids)
        gone = [
            record["id"]
            for record in self._in(scope_prefix)
            if (wanted is None or record["id"] in wanted)
            and (older_than is None or _created_at(record) < _utc(older_than))
            and _meets(record, None, categories, metadata_filter)
        ]
        self._forget(gone)
        return len(gone)

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """Return a record; None if it does not exist. The embedding is rounded as in the index."""
        item = self._values.get(_RECORDS, record_id)
        if item is None:
            return None
        return MemoryRecord(**{**item.value, "embedding": self._vector(record_id)})

    def list_records(
        self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0
    ) -> list[MemoryRecord]:
        """Return records of a scope without embeddings, newest first; [] for a negative offset."""
        if offset < 0:
            return []
        records = sorted(self._in(scope_prefix), key=_created_at, reverse=True)
        page = records[offset : offset + max(0, limit)]
        return [MemoryRecord.model_validate(record) for record in page]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        records = list(map(MemoryRecord.model_validate, self._in(scope)))
        times = sorted((record.created_at for record in records), key=_utc)
        return ScopeInfo(
            path=_path(scope),
            record_count=len(records),
            categories=sorted({name for record in records for name in record.categories}),
            oldest_record=times[0] if times else None,
            newest_record=times[-1] if times else None,
            child_scopes=self.list_scopes(scope),
        )

    def list_scopes(self, parent: str = _ROOT) -> list[str]:
        """Return the scopes directly below a scope."""
        above = _path(parent).rstrip("/") + "/"
        names = {_path(row["scope"]).removeprefix(above).split("/")[0] for row in self._in(parent)}
        return sorted(above + name for name in names if name)

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        return dict(Counter(name for row in self._in(scope_prefix) for name in row["categories"]))

    def count(self, scope_prefix: str | None = None) -> int:
        return len(self._in(scope_prefix))

    def reset(self, scope_prefix: str | None = None) -> None:
        """Delete all records of a scope, by default of all scopes.

        After a reset of all scopes, new embeddings may have another length.
        """
        with locked(self._memory, "crewai", self._user_id or ""):
            self._forget([record["id"] for record in self._in(scope_prefix)])
            if _path(scope_prefix) == _ROOT:
                self._values.delete(_ABOUT, _LENGTH)

    asave = threaded(save)
    asearch = threaded(search)
    adelete = threaded(delete)

    def _in(self, scope: str | None) -> list[Json]:
        items = self._values.search(_RECORDS, limit=MOST)
        return [item.value for item in items if _within(item.value["scope"], scope)]

    def _forget(self, ids: Sequence[str]) -> None:
        length = self._stored_length()
        if length and ids:
            self._index(length).delete(ids, user_id=self._user_id)
        for record_id in ids:
            self._values.delete(_RECORDS, record_id)

    def _stored_length(self) -> int:
        item = self._values.get(_ABOUT, _LENGTH)
        return 0 if item is None else int(item.value)

    def _length(self, vectors: Sequence[Sequence[float]]) -> int:
        """Return the length of the given embeddings; 0 if there are none."""
        if not vectors:
            return 0
        wanted = self._stored_length() or len(vectors[0])
        for vector in vectors:
            if len(vector) != wanted:
                raise EmbeddingDimensionMismatchError(wanted, len(vector))
        return wanted

    def _index(self, length: int) -> VectorIndex:
        with self._lock:
            if length not in self._indexes:
                store, name = self._memory.components.store, f"crewai_{length}"
                self._indexes[length] = VectorIndex(store, name=name, dimension=length)
            return self._indexes[length]

    def _vector(self, record_id: str) -> list[float] | None:
        length = self._stored_length()
        if not length:
            return None
        items = self._index(length).get(record_id, user_id=self._user_id)
        if not items or items[0].vector is None:
            return None
        vector = list(map(float, items[0].vector))
        stored = self._values.get(_RECORDS, record_id)
        norm = 1.0 if stored is None else stored.value.get(_NORM, 1.0)
        factor = norm / (math.hypot(*vector) or 1.0)
        return [factor * value for value in vector]

    def _nearest(self, length: int, wanted: Sequence[float], limit: int) -> Iterator[Match]:
        """Yield all matches, nearest first. The next page is loaded when the caller needs it."""
        index, count, depth = self._index(length), 0, max(1, 2 * limit)
        while True:
            matches = index.search(wanted, top_k=depth, user_id=self._user_id)
            yield from matches[count:]
            if len(matches) < depth:
                return
            count, depth = len(matches), 4 * depth


def _to_json(record: MemoryRecord) -> Json:
    """Return a record as JSON, with its embedding's norm, which indexes do not store."""
    row: Json = record.model_dump(mode="json")
    return {**row, _NORM: math.hypot(*record.embedding)} if any(record.embedding or ()) else row


def _filter_fields(record: MemoryRecord) -> Json:
    fields: Json = record.model_dump(mode="json", include={"scope", "categories", "metadata"})
    return fields


def _meets(
    fields: Json, scope: str | None, categories: list[str] | None, metadata: Json | None
) -> bool:
    return (
        _within(fields["scope"], scope)
        and (not categories or not set(categories).isdisjoint(fields["categories"]))
        and all(fields["metadata"].get(name) == value for name, value in (metadata or {}).items())
    )


def _path(scope: str | None) -> str:
    """Return a scope as a path with a leading slash, and without a trailing slash."""
    return _ROOT + (scope or "").strip("/")


def _within(scope: str, other: str | None) -> bool:
    return f"{_path(scope)}/".startswith(f"{_path(other).rstrip('/')}/")


def _utc(at: datetime) -> datetime:
    """Return a time with its time zone. CrewAI's times without a zone are UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def _created_at(record: Json) -> datetime:
    return _utc(datetime.fromisoformat(record["created_at"]))
