"""The service's log, its metrics for Prometheus, and the detection of blocks that do not absorb.

The log has one JSON object per line, without the content of requests or records. In the metrics,
the label `route` is a template, and no label names a user or a session.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic, time
from typing import Any, TextIO

from agent_memory.aio import AsyncAgentMemory
from agent_memory.core.threads import repeated
from agent_memory.core.tracing import ids
from agent_memory.engine.assembly import Components
from agent_memory.engine.stats import Counted, SharedMetrics, Stats
from agent_memory.errors import AgentMemoryError, MissingExtra, StoreError

logger = logging.getLogger(__name__)

_OWN = ("agent_memory.server", "agent_memory.listening")
_FIELDS = "fields"
_FRAMES = 12
_PLACEHOLDER = re.compile(r"%[.0-9]*[a-z]")


class JsonLines(logging.Formatter):
    """Formats a record as a JSON line.

    Arguments and error messages may repeat user data. Records of loggers outside the service are
    therefore written without texts: of their arguments, numbers and classes of errors are shown.
    """

    def format(self, record: logging.LogRecord) -> str:
        own = record.name.startswith(_OWN)
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage() if own else _without_texts(record),
            **getattr(record, _FIELDS, {}),
        }
        traced = ids()
        if traced is not None:
            line["trace_id"], line["span_id"] = traced
        if record.exc_info and record.exc_info[0] is not None:
            kind, _, trace = record.exc_info
            line["error"] = f"{kind.__module__}.{kind.__qualname__}"
            frames = traceback.extract_tb(trace)[-_FRAMES:]
            line["at"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line, ensure_ascii=True)


def _without_texts(record: logging.LogRecord) -> str:
    args = iter(record.args if isinstance(record.args, tuple) else ())

    def shown(_: re.Match[str]) -> str:
        value = next(args, None)
        if isinstance(value, BaseException):
            return type(value).__name__
        return str(value) if isinstance(value, int | float) else "..."

    return _PLACEHOLDER.sub(shown, str(record.msg))


class Lines(logging.StreamHandler[TextIO]):
    """Writes log lines to stderr. All lines of one iteration of the event loop are one write.

    Each write releases the interpreter lock, and worker threads may then keep it for a while.
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._waiting: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record: a warning or an error immediately, any other with the next flush."""
        try:
            self._waiting.append(self.format(record) + self.terminator)
            if record.levelno > logging.INFO:
                self.flush()
            elif len(self._waiting) == 1:
                asyncio.get_running_loop().call_soon(self.flush)
        except RuntimeError:  # this thread has no event loop
            self.flush()
        except Exception:  # noqa: BLE001 - as in the standard library: logging never fails a request
            self.handleError(record)

    def flush(self) -> None:
        with self.lock or nullcontext():
            waiting, self._waiting = self._waiting, []
            with suppress(OSError):  # stderr is closed
                self.stream.write("".join(waiting))
                super().flush()


def log_as_json() -> None:
    """Log to stderr as JSON lines: the service's requests, and warnings of all other loggers."""
    # do not look up attributes that no line uses (see "Optimization" in the docs of logging)
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = Lines()
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    package = logging.getLogger("agent_memory")
    package.handlers.clear()
    package.propagate = True
    logging.getLogger("agent_memory.server").setLevel(logging.INFO)


def fields(**values: object) -> dict[str, Any]:
    """Return the `extra` argument that adds these fields to a log line."""
    return {_FIELDS: values}


LOOK_SECONDS = 60.0
LONG_SECONDS = 900.0

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_CACHE_SECONDS = 10.0
_SHARE = 20
"""A lookup reads all sessions. A result is cached for 20 times the duration of the lookup, and at
least for `_CACHE_SECONDS`."""
_WAIT_SECONDS = 5.0
_SOME = 32
_NO_WORKER = "no worker runs"
_FAILS = "every batch fails"


@dataclass(frozen=True, slots=True)
class Stalled:
    """A block that absorbs nothing although messages are pending."""

    block: str
    why: str  # `_NO_WORKER` or `_FAILS`
    seconds: float  # how long the block has absorbed nothing


@dataclass(frozen=True, slots=True)
class Reading:
    stats: Stats | None = None  # the memory's statistics; None if no lookup succeeded
    counted: Counted | None = None  # the counters of all processes; None if no lookup succeeded
    stalled: Sequence[Stalled] = ()


class Metrics:
    """Counts requests, and writes them and the memory's metrics in Prometheus' text format."""

    def __init__(self) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError:
            raise MissingExtra("The service", "server") from None
        prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]  # otherwise each metric gets an unused second one
        self.media_type = prometheus.CONTENT_TYPE_LATEST
        self._prometheus = prometheus
        self._registry = registry = prometheus.CollectorRegistry()
        labels = ("route", "method", "status")
        name = "agent_memory_requests"
        self._requests = prometheus.Counter(name, "Requests.", labels, registry=registry)
        self._seconds = prometheus.Histogram(
            "agent_memory_request_seconds",
            "How long requests took.",
            labels[:2],
            buckets=_SECONDS,
            registry=registry,
        )
        self._in_flight = prometheus.Gauge(
            "agent_memory_requests_in_flight",
            "Requests that are being answered.",
            registry=registry,
        )

    def begun(self) -> None:
        self._in_flight.inc()

    def ended(self, route: str, method: str, status: int, seconds: float) -> None:
        self._in_flight.dec()
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route, method).observe(seconds)

    def text(self, up: bool, reading: Reading) -> bytes:
        """Return all metrics. `up` says whether the store answers."""
        prometheus, registry = self._prometheus, self._prometheus.CollectorRegistry()
        gauges, counters = _gauges(up, reading), _counters(reading.counted)
        for kind, rows in ((prometheus.Gauge, gauges), (prometheus.Counter, counters)):
            for name, what, labels, samples in rows:
                metric = kind(f"agent_memory_{name}", what, labels, registry=registry)
                for values, value in samples:
                    (metric.labels(*values) if labels else metric).inc(value)
        return b"".join(map(prometheus.generate_latest, (self._registry, registry)))


_Row = tuple[str, str, tuple[str, ...], Iterable[tuple[tuple[str, ...], float]]]
"""A metric's name, description, labels and samples. A sample has the labels' values."""


def _gauges(up: bool, reading: Reading) -> Iterator[_Row]:
    stalled = [((stall.block, stall.why), stall.seconds) for stall in reading.stalled]
    what = "Seconds for which a block absorbed nothing although messages are pending."
    yield "up", "Whether the store answers.", (), [((), up)]
    yield "not_absorbing_seconds", what, ("block", "why"), stalled
    stats = reading.stats
    if stats is None:
        return
    yield "sessions", "Sessions.", (), [((), stats.sessions)]
    yield "messages", "Messages in the logs of all sessions.", (), [((), stats.entries)]
    blocks, by_block = stats.blocks.items(), ("block",)
    lag = [((name,), block.lag) for name, block in blocks]
    yield "lag_messages", "Messages that a block has not absorbed.", by_block, lag
    dead = [((name,), block.dead_letters) for name, block in blocks]
    yield "dead_letters", "Batches that a block gave up.", by_block, dead
    failing = [((name,), block.error is not None) for name, block in blocks]
    yield "block_failing", "Whether a block's last batch failed.", by_block, failing
    if stats.spending is not None:
        reached = stats.spending.reached is not None
        yield "spending_limit_reached", "Whether a spending limit is reached.", (), [((), reached)]


def _counters(counted: Counted | None) -> Iterator[_Row]:
    if counted is None:
        return
    usage, both = counted.usage.items(), ("purpose", "kind")
    calls = [((purpose, "language"), use.calls) for purpose, use in usage]
    calls += [((purpose, "embedding"), use.embedding_calls) for purpose, use in usage]
    yield "model_calls", "Requests to models, retries included.", both, calls
    failures = [((purpose,), use.failures) for purpose, use in usage]
    yield "model_failures", "Failed requests to models.", ("purpose",), failures
    tokens = [((purpose, "prompt"), use.prompt_tokens) for purpose, use in usage]
    tokens += [((purpose, "completion"), use.completion_tokens) for purpose, use in usage]
    tokens += [((purpose, "embedding"), use.embedding_tokens) for purpose, use in usage]
    yield "model_tokens", "Tokens of requests to models.", both, tokens
    cost = [((purpose,), use.cost or 0.0) for purpose, use in usage]
    what = "Cost of requests to models whose price is known."
    yield "model_cost_dollars", what, ("purpose",), cost
    prompts, recalls = counted.prompts, counted.recalls
    what = "Tokens of contexts that follow another context of the same session."
    yield "prompt_tokens", what, (), [((), prompts.tokens)]
    what = "Tokens at the beginning of contexts, unchanged from the context before."
    yield "prompt_cacheable_tokens", what, (), [((), prompts.cacheable_tokens)]
    yield "recalls", "Recalls.", (), [((), recalls.queries)]
    yield "recalls_empty", "Recalls that found nothing.", (), [((), recalls.empty)]


class MemoryFigures:
    """Reads and caches the memory's metrics. For one event loop only."""

    def __init__(self, memory: AsyncAgentMemory) -> None:
        self._memory = memory
        self._figures = SharedMetrics(memory.memory.components.store)
        self.watch = Watch(memory.memory.components)
        self._reading = Reading()
        self._until = 0.0
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """In the `with` block, add this process's counters to the store, and run the watch."""
        counted = self._memory.memory.components.counted
        with self._figures.reporting(counted), repeated("watch", LOOK_SECONDS, self.watch.look):
            yield

    async def reading(self) -> Reading:
        """Return the metrics, or the previous metrics if a lookup takes longer than 5 seconds."""
        if self._looking is None and monotonic() >= self._until:
            self._looking = asyncio.ensure_future(self._look())
            self._looking.add_done_callback(self._looked)
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=_WAIT_SECONDS)
        return self._reading

    async def _look(self) -> None:
        begun = monotonic()
        self._reading = await self._memory.run(self._read)
        cost = monotonic() - begun if self._reading.stats else 0
        self._until = monotonic() + max(_CACHE_SECONDS, _SHARE * cost)

    def _looked(self, done: asyncio.Task[None]) -> None:
        self._looking = None
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.error("The metrics could not be read", exc_info=error)

    def _read(self) -> Reading:
        try:
            self._figures.add(self._memory.memory.components.counted())
            stats = self._memory.memory.stats()
            return Reading(stats, self._figures.read(), self.watch.stalled)
        except AgentMemoryError as error:
            logger.warning("The store's metrics could not be read: %s", type(error).__name__)
            return Reading(stalled=self.watch.stalled)


class Watch:
    """Checks for stalled blocks and logs them as errors. A check reads at most 32 sessions."""

    def __init__(self, parts: Components, clock: Callable[[], float] = time) -> None:
        self._parts = parts
        self._clock = clock
        self._waiting: dict[tuple[str, str], float] = {}  # when first seen, by block and reason
        self.stalled: list[Stalled] = []

    def look(self) -> bool:
        """Check the blocks, and log an error for each stalled block. Return True, to continue."""
        try:
            self.stalled = self._find_stalls()
        except StoreError as error:
            logger.warning("Pending sessions cannot be read: %s", type(error).__name__)
            return True
        for stall in self.stalled:
            logger.error(
                "A block absorbs nothing although messages are pending",
                extra=fields(block=stall.block, why=stall.why, seconds=round(stall.seconds)),
            )
        return True

    def _find_stalls(self) -> list[Stalled]:
        now, blocks = self._clock(), self._parts.absorber.blocks
        worker, absorbed = self._parts.heartbeats.read()
        due = [head for head in self._parts.store.due(_SOME) if not head.deleting]
        last: dict[tuple[str, str], float] = {}
        for name in blocks:
            if any(head.lag(name) for head in due):
                last[name, _NO_WORKER] = worker
            if self._parts.dead_letters.newest_error(name) is not None:
                last[name, _FAILS] = absorbed.get(name, 0.0)
        self._waiting = {key: self._waiting.get(key, now) for key in last}
        stalls = [Stalled(*key, now - max(at, last[key])) for key, at in self._waiting.items()]
        return [stall for stall in stalls if stall.seconds >= LONG_SECONDS]
