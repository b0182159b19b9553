"""A store and a checkpointer for LangGraph that use an `AgentMemory`.

graph = builder.compile(store=AgentMemoryStore(memory), checkpointer=AgentMemorySaver(memory))
"""

from __future__ import annotations

import asyncio
import random
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, cast

from agent_memory.core.limits import MOST
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.values.items import KeyValue, Put
from agent_memory.engine.values.key_values import KeyValues
from agent_memory.errors import MissingExtra
from agent_memory.integrations.adapting import threaded
from agent_memory.models.embedders import CustomEmbedder

try:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        get_checkpoint_id,
        get_checkpoint_metadata,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol
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
except ImportError as error:
    raise MissingExtra("LangGraph's store and checkpointer", "langgraph") from error

__all__ = ["AgentMemorySaver", "AgentMemoryStore"]

_ITEMS = "langgraph.store"
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
            Put(_place_of(op), op.key, op.value, op.ttl and 60.0 * op.ttl, self._texts(op))
            for op in stored
        )
        for op in puts.values():
            if op.value is None:
                self._values.delete(_place_of(op), op.key)
        return results

    abatch = threaded(batch)  # pyright: ignore[reportAssignmentType]

    def sweep_ttl(self) -> int:
        """Erase expired items, which searches already ignore, and return their number."""
        return self._values.sweep()

    def _read(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            item = self._values.get(_place_of(op), op.key, refresh=op.refresh_ttl)
            return None if item is None else Item(**_fields(item))
        if isinstance(op, SearchOp):
            return [SearchItem(**_fields(item), score=item.score) for item in self._search(op)]
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        raise ValueError(f"{type(op).__name__} is not a store operation.")

    def _search(self, op: SearchOp) -> list[KeyValue]:
        query = op.query if self.index_config is not None else None
        items = self._values.search(
            (_ITEMS, *op.namespace_prefix),
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
        namespaces = self._values.namespaces(
            (_ITEMS, *first),
            suffix=last,
            depth=None if op.max_depth is None else op.max_depth + 1,
            limit=op.limit,
            offset=op.offset,
        )
        return [namespace[1:] for namespace in namespaces]

    def _texts(self, op: PutOp) -> list[str]:
        if self.index_config is None or op.index is False:
            return []
        fields = self._fields if op.index is None else op.index
        paths = (field if field == _WHOLE else tokenize_path(field) for field in fields)
        return [text for path in paths for text in get_text_at_path(op.value, path)]


def _place_of(op: GetOp | PutOp) -> tuple[str, ...]:
    return (_ITEMS, *op.namespace)


def _fields(item: KeyValue) -> dict[str, Any]:
    names = ("key", "value", "created_at", "updated_at")
    return {"namespace": item.namespace[1:], **{name: getattr(item, name) for name in names}}


_THREADS = "langgraph.checkpoints"
_EMPTY = "empty"
_LATEST = "latest"
_LONGEST = 80
Place = tuple[str, ...]


class AgentMemorySaver(BaseCheckpointSaver[str]):
    """Stores the states of graphs by thread, in the database of a memory.

    A new checkpoint, the new values of its channels and the id of the thread's newest checkpoint
    are written atomically.

    Args:
        user_id: The user of the threads; `memory.delete_user` erases the threads. None for no user.
        serde: The serializer of values; LangGraph's own by default.
    """

    def __init__(
        self,
        memory: AgentMemory,
        *,
        user_id: str | None = None,
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self._values = memory.values(user_id)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, or else the newest checkpoint of its thread.

        Return None if there is no such checkpoint.
        """
        place = _place(config)
        wanted = get_checkpoint_id(config)
        if not wanted:
            newest = self._values.get(place, _LATEST)
            wanted = newest.value if newest is not None else ""
        item = self._values.get((*place, "checkpoints"), wanted) if wanted else None
        return None if item is None else self._tuple(place, item)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first within each namespace.

        Args:
            config: The thread, namespace or checkpoint; None for all threads.
            filter: Required metadata.
            before: A config that names a checkpoint. Only older checkpoints are returned.
        """
        wanted = get_checkpoint_id(config) if config else None
        end = get_checkpoint_id(before) if before else None
        items = (
            item
            for place in self._places(config)
            for item in self._checkpoints(place)
            if (not wanted or item.key == wanted) and (not end or item.key < end)
        )
        tuples = (self._tuple(item.namespace[:-1], item) for item in items)
        matches = (
            match
            for match in tuples
            if all(match.metadata.get(name) == value for name, value in (filter or {}).items())
        )
        return islice(matches, limit if limit is None else max(0, limit))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        place, name = _place(config), checkpoint["id"]
        bare: dict[str, Any] = {**checkpoint}
        values = bare.pop("channel_values")
        record = {
            "checkpoint": self._dumped(bare),
            "metadata": self._dumped(get_checkpoint_metadata(config, metadata)),
            "parent": _configurable(config).get("checkpoint_id"),
            "ns": _configurable(config).get("checkpoint_ns", ""),
        }
        puts = [
            Put(
                (*place, "channels"),
                _channel(channel, version),
                self._dumped(values[channel]) if channel in values else [_EMPTY, ""],
            )
            for channel, version in new_versions.items()
        ]
        newest = self._values.get(place, _LATEST)
        if newest is None or newest.value <= name:
            puts.append(Put(place, _LATEST, name))
        self._values.put_many([*puts, Put((*place, "checkpoints"), name, record)])
        return _config(place, name, record["ns"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store a task's writes after a checkpoint.

        If a write at the same place exists, the earlier write stays. On LangGraph's special
        channels, such as errors and interrupts, the new write replaces the earlier write.
        """
        place = (*_place(config), "writes", _configurable(config)["checkpoint_id"])
        puts = []
        for number, (channel, value) in enumerate(writes):
            at = WRITES_IDX_MAP.get(channel, number)
            key = f"{task_id}/{at}"
            if at < 0 or self._values.get(place, key) is None:
                record = [task_path, task_id, at, channel, self._dumped(value)]
                puts.append(Put(place, key, record))
        self._values.put_many(puts)

    def delete_thread(self, thread_id: str) -> None:
        self._values.clear((_THREADS, str(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Erase the checkpoints of runs. The call scans all threads."""
        runs = set(run_ids)
        for place in self._places(None):
            every = self._checkpoints(place)
            gone = {item.key for item in every if self._metadata(item).get("run_id") in runs}
            self._drop(place, every, gone)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        items = self._values.search((_THREADS, str(source_thread_id)), limit=MOST)
        to = (_THREADS, str(target_thread_id))
        self._values.put_many(
            Put((*to, *item.namespace[len(to) :]), item.key, item.value) for item in items
        )

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Erase checkpoints of threads.

        Args:
            strategy: "delete" erases all checkpoints. "keep_latest" keeps the newest checkpoint of
                each namespace. If this checkpoint has delta channels, its ancestors stay, back to
                the last full write of each such channel.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f'strategy is {strategy!r}. Give "keep_latest" or "delete".')
        for thread in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread)
                continue
            for place in self._places({"configurable": {"thread_id": thread}}):
                every = self._checkpoints(place)
                needed = self._needed(place, every)
                self._drop(place, every, {item.key for item in every} - needed)

    aget_tuple = threaded(get_tuple)  # pyright: ignore[reportAssignmentType]
    aput = threaded(put)  # pyright: ignore[reportAssignmentType]
    aput_writes = threaded(put_writes)  # pyright: ignore[reportAssignmentType]
    adelete_thread = threaded(delete_thread)  # pyright: ignore[reportAssignmentType]
    adelete_for_runs = threaded(delete_for_runs)  # pyright: ignore[reportAssignmentType]
    acopy_thread = threaded(copy_thread)  # pyright: ignore[reportAssignmentType]
    aprune = threaded(prune)  # pyright: ignore[reportAssignmentType]

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        tuples = self.list(config, filter=filter, before=before, limit=limit)
        while (item := await asyncio.to_thread(next, tuples, None)) is not None:
            yield item

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return a channel's next version. Its random part makes versions of branches differ."""
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{random.random():016}"

    def _places(self, config: RunnableConfig | None) -> Sequence[Place]:
        """Return the places (thread and namespace) that have checkpoints."""
        fields = _configurable(config) if config else {}
        prefix = (_THREADS, str(fields["thread_id"])) if "thread_id" in fields else (_THREADS,)
        places = {
            namespace[:3]
            for namespace in self._values.namespaces(prefix, limit=MOST)
            if namespace[3:] == ("checkpoints",)
        }
        if "checkpoint_ns" in fields:
            places &= {(*prefix, _label(fields["checkpoint_ns"]))}
        return sorted(places)

    def _checkpoints(self, place: Place) -> Sequence[KeyValue]:
        items = self._values.search((*place, "checkpoints"), limit=MOST)
        return sorted(items, key=lambda item: item.key, reverse=True)

    def _tuple(self, place: Place, item: KeyValue) -> CheckpointTuple:
        checkpoint, parent = self._loaded(item.value["checkpoint"]), item.value["parent"]
        label = item.value["ns"]
        values = dict(self._channels(place, checkpoint["channel_versions"]))
        writes = self._values.search((*place, "writes", item.key), limit=MOST)
        rows = sorted((write.value for write in writes), key=lambda row: row[:3])
        return CheckpointTuple(
            config=_config(place, item.key, label),
            checkpoint=cast("Checkpoint", {**checkpoint, "channel_values": values}),
            metadata=self._metadata(item),
            parent_config=_config(place, parent, label) if parent else None,
            pending_writes=[
                (task, channel, self._loaded(value)) for _, task, _, channel, value in rows
            ],
        )

    def _channels(self, place: Place, versions: ChannelVersions) -> Iterator[tuple[str, Any]]:
        for channel, version in versions.items():
            item = self._values.get((*place, "channels"), _channel(channel, version))
            if item is not None and item.value[0] != _EMPTY:
                yield channel, self._loaded(item.value)

    def _metadata(self, item: KeyValue) -> CheckpointMetadata:
        metadata: CheckpointMetadata = self._loaded(item.value["metadata"])
        return metadata

    def _needed(self, place: Place, every: Sequence[KeyValue]) -> set[str]:
        """Return the ids of the newest checkpoint and of all checkpoints that it depends on."""
        of_name = {item.key: item for item in every}
        at = every[0].key if every else None
        needed: set[str] = set()
        missing: set[str] | None = None
        while at in of_name and missing != set():
            needed.add(at)
            item = of_name[at]
            if missing is None:
                missing = set(self._metadata(item).get("counters_since_delta_snapshot") or ())
            versions = self._loaded(item.value["checkpoint"])["channel_versions"]
            missing -= {channel for channel, _ in self._channels(place, versions)}
            at = item.value["parent"]
        return needed

    def _drop(self, place: Place, every: Sequence[KeyValue], gone: set[str]) -> None:
        if not gone:
            return
        left = [item for item in every if item.key not in gone]
        if not left:
            self._values.clear(place)
            return
        self._values.put(place, _LATEST, left[0].key)
        for name in gone:
            self._values.clear((*place, "writes", name))
            self._values.delete((*place, "checkpoints"), name)
        loaded = [self._loaded(item.value["checkpoint"]) for item in left]
        used = {_channel(*each) for item in loaded for each in item["channel_versions"].items()}
        for item in self._values.search((*place, "channels"), limit=MOST):
            if item.key not in used:
                self._values.delete(item.namespace, item.key)

    def _dumped(self, value: Any) -> Sequence[str]:
        kind, data = self.serde.dumps_typed(value)
        return [kind, b64encode(data).decode()]

    def _loaded(self, pair: Sequence[str]) -> Any:
        return self.serde.loads_typed((pair[0], b64decode(pair[1])))


def _configurable(config: RunnableConfig) -> dict[str, Any]:
    return config.get("configurable", {})


def _place(config: RunnableConfig) -> Place:
    fields = _configurable(config)
    return (_THREADS, str(fields["thread_id"]), _label(fields.get("checkpoint_ns", "")))


def _label(checkpoint_ns: str) -> str:
    """Return a label for a namespace: a non-empty text that is short enough for all stores."""
    if len(checkpoint_ns) > _LONGEST:
        return f"sha256:{sha256(checkpoint_ns.encode(errors='surrogatepass')).hexdigest()}"
    return f"ns:{checkpoint_ns}"


def _channel(channel: str, version: str | int | float) -> str:
    return f"{channel}/{version}"


def _config(place: Place, name: str, checkpoint_ns: str) -> RunnableConfig:
    fields = {"thread_id": place[1], "checkpoint_ns": checkpoint_ns, "checkpoint_id": name}
    return {"configurable": fields}
