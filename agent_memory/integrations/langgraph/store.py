"""`AgentMemoryStore`: stores LangGraph's long-term items as values of a memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)

from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.values.items import KeyValue, Put
from agent_memory.engine.values.key_values import KeyValues
from agent_memory.integrations.adapting import threaded
from agent_memory.models.embedders import CustomEmbedder

_ROOT = "langgraph.store"
_WHOLE = "$"


class AgentMemoryStore(BaseStore):
    """Stores items by namespace and key, in the database of a memory.

    Args:
        user_id: The user of the items; `memory.delete_user` erases the items. Without a user, only
            namespaces separate the items of users.
        index: LangGraph's settings for search by meaning: `embed`, `dims` and `fields`. Without
            `embed`, the memory's embedder is used.
        ttl: LangGraph's settings `default_ttl` (minutes) and `refresh_on_read`.
    """

    supports_ttl = True

    def __init__(
        self,
        memory: AgentMemory,
        *,
        user_id: str | None = None,
        index: IndexConfig | dict[str, Any] | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        super().__init__()
        self._fields: list[str] = []
        embedder = None
        if index is not None:
            self._fields = list(index.get("fields") or [_WHOLE])
            if (embed := index.get("embed")) is not None:
                encoder = ensure_embeddings(cast("Any", embed))
                embedder = CustomEmbedder("langgraph", encoder.embed_documents, index.get("dims"))
        self._values: KeyValues = memory.values(user_id, embedder=embedder)
        self.index_config = index
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Return the result of each operation. Reads do not see the writes of the same batch."""
        batch = list(ops)
        results: list[Result] = [None if isinstance(op, PutOp) else self._read(op) for op in batch]
        puts = {(op.namespace, op.key): op for op in batch if isinstance(op, PutOp)}
        stored = [op for op in puts.values() if op.value is not None]
        self._values.put_many(
            Put((_ROOT, *op.namespace), op.key, op.value, op.ttl and 60.0 * op.ttl, self._texts(op))
            for op in stored
        )
        for op in puts.values():
            if op.value is None:
                self._values.delete((_ROOT, *op.namespace), op.key)
        return results

    abatch = threaded(batch)  # pyright: ignore[reportAssignmentType]

    def sweep_ttl(self) -> int:
        """Erase expired items, which searches already ignore, and return their number."""
        return self._values.sweep()

    def _read(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            item = self._values.get((_ROOT, *op.namespace), op.key, refresh=op.refresh_ttl)
            return None if item is None else Item(**_fields(item))
        if isinstance(op, SearchOp):
            return [SearchItem(**_fields(item), score=item.score) for item in self._search(op)]
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        raise ValueError(f"{type(op).__name__} is not a store operation.")

    def _search(self, op: SearchOp) -> list[KeyValue]:
        query = op.query if self.index_config is not None else None
        items = self._values.search(
            (_ROOT, *op.namespace_prefix),
            query=query or None,
            where=op.filter,
            limit=op.limit,
            offset=op.offset,
        )
        if op.refresh_ttl:
            for item in items:
                if item.expires_at is not None:
                    self._values.get(item.namespace, item.key, refresh=True)
        return items

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        first: Sequence[str] = ()
        last: Sequence[str] = ()
        for condition in op.match_conditions or ():
            if condition.match_type == "prefix":
                first = condition.path
            else:
                last = condition.path
        found = self._values.namespaces(
            (_ROOT, *first),
            suffix=last,
            depth=None if op.max_depth is None else op.max_depth + 1,
            limit=op.limit,
            offset=op.offset,
        )
        return [namespace[1:] for namespace in found]

    def _texts(self, op: PutOp) -> list[str]:
        if self.index_config is None or op.index is False:
            return []
        fields = self._fields if op.index is None else op.index
        paths = (field if field == _WHOLE else tokenize_path(field) for field in fields)
        return [text for path in paths for text in get_text_at_path(op.value, path)]


def _fields(item: KeyValue) -> dict[str, Any]:
    names = ("key", "value", "created_at", "updated_at")
    return {"namespace": item.namespace[1:], **{name: getattr(item, name) for name in names}}
