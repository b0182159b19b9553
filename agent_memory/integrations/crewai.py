"""CrewAI's memory over a memory of ours.

Memory(storage=AgentMemoryStorage(memory, user_id="ana"))
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from agent_memory.core.limits import MOST
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.values.items import Put
from agent_memory.errors import MissingExtra
from agent_memory.ltm_blocks.base import record_id
from agent_memory.standalone.vector_index import VectorIndex
from agent_memory.standalone.vector_items import Item, Match

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
    """Records of CrewAI's `Memory`, durable, in the database of a memory.

    A record is a value, and its embedding an item of a `VectorIndex`: what a search finds is there
    for every process from then on. A scope holds what is in it and below it.

    Args:
        memory: The memory. Its blocks see none of this.
        user_id: Whose records: `memory.delete_user` erases them. None for nobody's, where scopes
            alone tell users apart.
    """

    def __init__(self, memory: AgentMemory, *, user_id: str | None = None) -> None:
        self._memory = memory
        self._user_id = user_id
        self._values = memory.values(user_id)
        self._indexes: dict[int, VectorIndex] = {}
        self._lock = Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> AgentMemoryStorage:
        """Itself: a crew that is copied shares the database."""
        return self

    def save(self, records: list[MemoryRecord]) -> None:
        """Keep records, each in place of the one that had its id.

        Raises:
            EmbeddingDimensionMismatchError: An embedding has another length than those kept, or
                than the others. Nothing was kept.
            TypeError: Metadata is no JSON. Nothing was kept.
        """
        for one in records:
            json.dumps(one.metadata)  # what pydantic would make of a set would not come back as one
        with self._changing():
            length = self._length([one.embedding for one in records if one.embedding])
            puts = [Put(_RECORDS, one.id, _kept(one)) for one in records]
            if length:
                puts.append(Put(_ABOUT, _LENGTH, length))
            # first the records: of what is found by meaning there is always one
            self._values.put_many(puts)
            items = [
                Item(one.id, None, one.embedding, _told(one))
                for one in records
                if any(one.embedding or ())  # zeros point nowhere: what has them is listed alone
            ]
            if items:
                self._index(length).store(items, user_id=self._user_id)

    def update(self, record: MemoryRecord) -> None:
        """Keep a record in place of the one that has its id. Without an embedding it keeps that
        one's.

        Raises:
            EmbeddingDimensionMismatchError: As for `save`.
            TypeError: As for `save`.
        """
        vector = record.embedding or self._vector(record.id)
        self.save([record.model_copy(update={"embedding": vector})])

    def touch_records(self, record_ids: list[str]) -> None:
        """Note that records were recalled just now."""
        now = datetime.now(UTC).replace(tzinfo=None).isoformat()
        found = (self._values.get(_RECORDS, one) for one in record_ids)
        self._values.put_many(
            Put(_RECORDS, one.key, {**one.value, "last_accessed": now})
            for one in found
            if one is not None
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
        """Records that meet all conditions, each with its cosine, best first. Zeros find none.

        Raises:
            EmbeddingDimensionMismatchError: The query's embedding has another length than those
                kept.
        """
        if not self._kept_length():
            return []
        length = self._length([query_embedding])
        if not any(query_embedding):
            return []
        found: list[tuple[MemoryRecord, float]] = []
        for match in self._nearest(length, query_embedding, limit):
            if len(found) >= limit or match.score < min_score:
                break
            if _meets(match.metadata, scope_prefix, categories, metadata_filter):
                record = self._values.get(_RECORDS, match.id)
                if record is not None:
                    found.append((MemoryRecord.model_validate(record.value), match.score))
        return found

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Delete the records that meet all conditions, all of them without one; how many."""
        wanted = None if record_ids is None else set(record_ids)
        gone = [
            one["id"]
            for one in self._in(scope_prefix)
            if (wanted is None or one["id"] in wanted)
            and (older_than is None or _made(one) < _utc(older_than))
            and _meets(one, None, categories, metadata_filter)
        ]
        self._forget(gone)
        return len(gone)

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """A record with its embedding, in the precision of an index; or None."""
        found = self._values.get(_RECORDS, record_id)
        if found is None:
            return None
        return MemoryRecord(**{**found.value, "embedding": self._vector(record_id)})

    def list_records(
        self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0
    ) -> list[MemoryRecord]:
        """Records of a scope without their embeddings, newest first; none before the first."""
        if offset < 0:
            return []
        found = sorted(self._in(scope_prefix), key=_made, reverse=True)
        page = found[offset : offset + max(0, limit)]
        return [MemoryRecord.model_validate(one) for one in page]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """What a scope holds."""
        found = list(map(MemoryRecord.model_validate, self._in(scope)))
        times = sorted((one.created_at for one in found), key=_utc)
        return ScopeInfo(
            path=_path(scope),
            record_count=len(found),
            categories=sorted({name for one in found for name in one.categories}),
            oldest_record=times[0] if times else None,
            newest_record=times[-1] if times else None,
            child_scopes=self.list_scopes(scope),
        )

    def list_scopes(self, parent: str = _ROOT) -> list[str]:
        """The scopes right below one."""
        above = _path(parent).rstrip("/") + "/"
        names = {_path(one["scope"]).removeprefix(above).split("/")[0] for one in self._in(parent)}
        return sorted(above + name for name in names if name)

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """How many records of a scope each category has."""
        return dict(Counter(name for one in self._in(scope_prefix) for name in one["categories"]))

    def count(self, scope_prefix: str | None = None) -> int:
        """How many records a scope holds."""
        return len(self._in(scope_prefix))

    def reset(self, scope_prefix: str | None = None) -> None:
        """Delete all records of a scope; of all scopes by default, after which embeddings may have
        another length."""
        with self._changing():
            self._forget([one["id"] for one in self._in(scope_prefix)])
            if _path(scope_prefix) == _ROOT:
                self._values.delete(_ABOUT, _LENGTH)

    async def asave(self, records: list[MemoryRecord]) -> None:
        """As `save`, on a thread."""
        await asyncio.to_thread(self.save, records)

    async def asearch(
        self, query_embedding: list[float], *args: Any, **kwargs: Any
    ) -> list[tuple[MemoryRecord, float]]:
        """As `search`, on a thread."""
        return await asyncio.to_thread(self.search, query_embedding, *args, **kwargs)

    async def adelete(self, *args: Any, **kwargs: Any) -> int:
        """As `delete`, on a thread."""
        return await asyncio.to_thread(self.delete, *args, **kwargs)

    def _in(self, scope: str | None) -> list[Json]:
        """The records of a scope, as they are kept."""
        found = self._values.search(_RECORDS, limit=MOST)
        return [one.value for one in found if _within(one.value["scope"], scope)]

    def _forget(self, ids: Sequence[str]) -> None:
        length = self._kept_length()
        if length and ids:
            self._index(length).delete(ids, user_id=self._user_id)
        for one in ids:
            self._values.delete(_RECORDS, one)

    def _changing(self) -> AbstractContextManager[None]:
        """While records come or all go: how long embeddings are stays true of those kept."""
        whose = record_id("crewai", self._user_id or "")
        return self._memory.components.services.resources.locked(whose)

    def _kept_length(self) -> int:
        """How long the embeddings are that are kept; 0 where none are."""
        found = self._values.get(_ABOUT, _LENGTH)
        return 0 if found is None else int(found.value)

    def _length(self, given: Sequence[Sequence[float]]) -> int:
        """How long given embeddings are, which is as those kept are; 0 where none are given.

        Raises:
            EmbeddingDimensionMismatchError: They are not.
        """
        if not given:
            return 0
        wanted = self._kept_length() or len(given[0])
        for one in given:
            if len(one) != wanted:
                raise EmbeddingDimensionMismatchError(wanted, len(one))
        return wanted

    def _index(self, length: int) -> VectorIndex:
        with self._lock:
            if length not in self._indexes:
                self._indexes[length] = VectorIndex(
                    self._memory.components.store, name=f"crewai_{length}", dimension=length
                )
            return self._indexes[length]

    def _vector(self, record_id: str) -> list[float] | None:
        length = self._kept_length()
        if not length:
            return None
        found = self._index(length).get(record_id, user_id=self._user_id)
        if not found or found[0].vector is None:
            return None
        vector = list(map(float, found[0].vector))
        kept = self._values.get(_RECORDS, record_id)
        norm = 1.0 if kept is None else kept.value.get(_NORM, 1.0)
        factor = norm / (math.hypot(*vector) or 1.0)
        return [factor * one for one in vector]

    def _nearest(self, length: int, wanted: Sequence[float], limit: int) -> Iterator[Match]:
        """All there are, the nearest first; more are looked for as they are asked for."""
        index, told, depth = self._index(length), 0, max(1, 2 * limit)
        while True:
            found = index.search(wanted, top_k=depth, user_id=self._user_id)
            yield from found[told:]
            if len(found) < depth:
                return
            told, depth = len(found), 4 * depth


def _kept(record: MemoryRecord) -> Json:
    """A record as a value, with the length of its embedding: an index keeps its direction alone."""
    told: Json = record.model_dump(mode="json")
    return {**told, _NORM: math.hypot(*record.embedding)} if any(record.embedding or ()) else told


def _told(record: MemoryRecord) -> Json:
    """What of a record a search has conditions on."""
    told: Json = record.model_dump(mode="json", include={"scope", "categories", "metadata"})
    return told


def _meets(
    told: Json, scope: str | None, categories: list[str] | None, metadata: Json | None
) -> bool:
    return (
        _within(told["scope"], scope)
        and (not categories or not set(categories).isdisjoint(told["categories"]))
        and all(told["metadata"].get(name) == one for name, one in (metadata or {}).items())
    )


def _path(scope: str | None) -> str:
    """A scope as a path: one slash at its beginning, none at its end."""
    return _ROOT + (scope or "").strip("/")


def _within(scope: str, other: str | None) -> bool:
    """Whether a scope is another, or below it."""
    return f"{_path(scope)}/".startswith(f"{_path(other).rstrip('/')}/")


def _utc(at: datetime) -> datetime:
    """A time as CrewAI means it: without a zone it is UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def _made(record: Json) -> datetime:
    """When a record was made."""
    return _utc(datetime.fromisoformat(record["created_at"]))
