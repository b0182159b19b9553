"""`Stats`, `Progress`, and metrics that the processes of a service share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from random import random
from time import sleep
from typing import Any

from agent_memory.core.processes import begin_anew_in_child, checked_lock
from agent_memory.core.records import Record
from agent_memory.core.system_collections import METRICS
from agent_memory.core.threads import repeated
from agent_memory.core.usage import Purpose, Usage
from agent_memory.engine.spending import Today
from agent_memory.errors import StoreError
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import RecordStore


@dataclass(frozen=True, slots=True)
class BlockStats:
    """The state of a long-term block.

    Attributes:
        lag: The number of messages in all logs that the block has not absorbed yet.
        error: The newest error that keeps the block from absorbing. None if there is none.
        dead_letters: The number of message ranges that the block could not absorb after several
            attempts. See `operations.dead_letters`.
    """

    lag: int
    error: str | None
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class PromptStats:
    """Counts for prompt caches: how much of a context repeats the session's previous context.

    Attributes:
        contexts: The number of contexts in this process that were not the first of their session.
        tokens: The tokens of these contexts.
        cacheable_tokens: The tokens among them that a prompt cache can reuse. See
            `MemoryContext.cacheable_tokens`.
    """

    contexts: int = 0
    tokens: int = 0
    cacheable_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RecallStats:
    """Counts of queries: searches, and contexts whose question is not small talk.

    Attributes:
        queries: The number of queries.
        empty: The number of queries for which no relevant record was recalled. Records that are
            shown for every question do not count.
    """

    queries: int = 0
    empty: int = 0


@dataclass(frozen=True, slots=True)
class Counted:
    """The metrics of a process. `usage` is by purpose. See `Stats` for the other fields."""

    usage: dict[Purpose, Usage]
    prompts: PromptStats
    recalls: RecallStats


@dataclass(frozen=True, slots=True)
class Stats:
    """The state of a memory.

    Attributes:
        sessions: The number of sessions in the namespace.
        entries: The number of messages in their logs.
        blocks: The absorbing blocks, by name.
        usage: Model calls of this process, with their tokens and cost.
        prompts: Counts of contexts of this process, and of the part that prompt caches can reuse.
        usage_by_purpose: `usage`, by the purpose of the calls.
        spending: The spending of all processes today. None if `spending_limits` has no `total`.
        recalls: Counts of queries of this process, and of queries without results.
    """

    sessions: int
    entries: int
    blocks: dict[str, BlockStats]
    usage: Usage
    prompts: PromptStats
    usage_by_purpose: dict[Purpose, Usage] = field(default_factory=dict)
    spending: Today | None = None
    recalls: RecallStats = RecallStats()

    @property
    def dead_letters(self) -> int:
        """The number of dead letters of all blocks."""
        return sum(block.dead_letters for block in self.blocks.values())


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a replay or of a flush, after a session.

    Attributes:
        block: The block that is rebuilt. None means a flush.
        session_id: The session that was just processed.
        done: The number of sessions processed so far.
        total: The number of all sessions, which may grow during the call.
        error: The error of this session, or None.
    """

    block: str | None
    session_id: str
    done: int
    total: int
    error: str | None


logger = logging.getLogger(__name__)

_PLACE = METRICS.name
_NAME = record_id(_PLACE, "all")
_ADD_SECONDS = 15.0
_TRIES = 100
_PAUSE_SECONDS = 0.002
_STORED = {"cacheable_tokens": "kept_tokens", "queries": "asked"}  # names in the store
_FIELDS = {name: field for field, name in _STORED.items()}

Metrics = dict[str, Any]


class SharedMetrics:
    """The sum of all processes' metrics, which the store keeps."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._added: Metrics = {}
        self._let_go()
        begin_anew_in_child(self, SharedMetrics._let_go)

    def _let_go(self) -> None:
        # a fork must not wait for this lock, which is held during store calls
        self._lock = checked_lock()

    def add(self, counted: Counted) -> bool:
        """Add the metrics since the last call that returned True. Return whether this worked."""
        with self._lock:
            now = asdict(counted, dict_factory=partial(_renamed, _STORED))
            try:
                done = now == self._added or self._changed(_sum(now, self._added, -1))
            except StoreError as error:
                logger.warning("metrics are not added up yet: %s", type(error).__name__)
                return False
            if done:
                self._added = now
            return done

    @contextmanager
    def reporting(self, counted: Callable[[], Counted]) -> Iterator[None]:
        """Add the metrics of this process every 15 seconds in the `with` block, and at its end."""

        def add() -> bool:
            self.add(counted())
            return True

        try:
            with repeated("figures", _ADD_SECONDS, add):
                yield
        finally:
            add()

    def read(self) -> Counted:
        stored = _metrics(self._store.record(_PLACE, _NAME))
        usage = {purpose: Usage(**fields) for purpose, fields in stored["usage"].items()}
        names = ("prompts", "recalls")
        prompts, recalls = (_renamed(_FIELDS, stored[name].items()) for name in names)
        return Counted(usage, PromptStats(**prompts), RecallStats(**recalls))

    def _changed(self, more: Metrics) -> bool:
        for attempt in range(_TRIES):
            before = self._store.record(_PLACE, _NAME)
            last = None if before is None else before.last
            metadata = {"metrics": _sum(_metrics(before), more)}
            record = Record(_NAME, _PLACE, last=(last or 0) + 1, metadata=metadata)
            if self._store.swap_record(_PLACE, record, last):
                return True
            sleep(_PAUSE_SECONDS * random() * min(attempt + 1, 10))
        return False


def _metrics(record: Record | None) -> Metrics:
    """Return the metrics in a record, in the form of `Counted` as nested dicts."""
    stored: Metrics = {} if record is None else record.metadata["metrics"]
    return {"usage": {}, "prompts": {}, "recalls": {}, **stored}


def _renamed(names: Mapping[str, str], pairs: Iterable[tuple[str, Any]]) -> Metrics:
    return {names.get(name, name): value for name, value in pairs}


def _sum(first: Metrics, second: Metrics, sign: int = 1) -> Metrics:
    """Return the sums of the numbers in nested dicts. `sign` -1 subtracts the second dict."""
    total = dict(first)
    for name, value in second.items():
        if isinstance(value, dict):
            total[name] = _sum(first.get(name, {}), value, sign)
        else:
            total[name] = (first.get(name) or 0) + sign * (value or 0)
    return total
