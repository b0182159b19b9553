"""Metrics for Prometheus. Routes are templates, and no label names a user or a session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from agent_memory.errors import MissingExtra

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram
    from prometheus_client.core import Metric

    from agent_memory.engine.stats import Counted, Stats
    from agent_memory.server.figures import Stalled

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass(frozen=True, slots=True)
class Told:
    """A reading of the memory's metrics.

    Attributes:
        up: Whether the store answers; None if no lookup has finished yet.
        stats: The memory's statistics, some seconds old; None if the lookup failed.
        counted: The counters of all processes; None if the store does not answer.
    """

    up: bool | None
    stats: Stats | None = None
    counted: Counted | None = None
    stalled: Sequence[Stalled] = ()


class Metrics:
    """Counts requests, and writes them and the memory's metrics in Prometheus' text format.

    Args:
        shared: The folder in which processes that share a socket add up their counters; None for a
            single process. `PROMETHEUS_MULTIPROC_DIR` must name it before anything is counted.

    Raises:
        MissingExtra: The extra `server` is not installed.
    """

    def __init__(self, shared: str | None = None) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError:
            raise MissingExtra("The service", "server") from None
        prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]  # an unused second metric for each
        self.media_type = prometheus.CONTENT_TYPE_LATEST
        self._prometheus = prometheus
        self._shared = shared
        self._registry = registry = prometheus.CollectorRegistry()
        labels = ("route", "method", "status")
        self._counts: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._requests = prometheus.Counter(
            "agent_memory_requests", "Requests.", labels, registry=registry
        )
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
            multiprocess_mode="livesum",
        )

    def begun(self) -> None:
        """Count a request that has started."""
        self._in_flight.inc()

    def ended(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that has ended."""
        self._in_flight.dec()
        counts = self._counts.get((route, method, status))
        if counts is None:  # looking these up takes longer than counting
            counts = (
                self._requests.labels(route, method, str(status)),
                self._seconds.labels(route, method),
            )
            self._counts[route, method, status] = counts
        requests, taken = counts
        requests.inc()
        taken.observe(seconds)

    def text(self, told: Told) -> bytes:
        """Return all metrics in Prometheus' text format."""
        registry = self._registry
        if self._shared is not None:
            from prometheus_client.multiprocess import MultiProcessCollector

            registry = self._prometheus.CollectorRegistry()
            MultiProcessCollector(registry, self._shared)  # type: ignore[no-untyped-call]
        memory = self._prometheus.CollectorRegistry()
        memory.register(_Collector(told))
        latest = self._prometheus.generate_latest
        return latest(registry) + latest(memory)


class _Collector:
    def __init__(self, told: Told) -> None:
        self._told = told

    def collect(self) -> Iterator[Metric]:
        told = self._told
        up = [] if told.up is None else [((), float(told.up))]
        yield _gauge("up", "Whether the store answers.", up)
        stalled = [((one.block, one.why), one.seconds) for one in told.stalled]
        yield _gauge(
            "not_absorbing_seconds",
            "Seconds for which a block absorbed nothing although messages are pending.",
            stalled,
            "block",
            "why",
        )
        if told.stats is not None:
            yield from _of_stats(told.stats)
        if told.counted is not None:
            yield from _of_counted(told.counted)


_Samples = Iterable[tuple[tuple[str, ...], float]]


def _metric(kind: str, name: str, what: str, samples: _Samples, *labels: str) -> Metric:
    from prometheus_client.core import Metric

    metric = Metric(f"agent_memory_{name}", what, kind)
    sample_name = f"{metric.name}_total" if kind == "counter" else metric.name
    for values, value in samples:
        metric.add_sample(sample_name, dict(zip(labels, values, strict=True)), value)
    return metric


_gauge, _counter = partial(_metric, "gauge"), partial(_metric, "counter")


def _of_stats(stats: Stats) -> Iterator[Metric]:
    yield _gauge("sessions", "Sessions.", [((), stats.sessions)])
    yield _gauge("messages", "Messages in the logs of all sessions.", [((), stats.entries)])
    blocks = stats.blocks.items()
    lag = [((name,), block.lag) for name, block in blocks]
    yield _gauge("lag_messages", "Messages that a block has not absorbed.", lag, "block")
    dead = [((name,), block.dead_letters) for name, block in blocks]
    yield _gauge("dead_letters", "Batches that a block gave up.", dead, "block")
    failing = [((name,), float(block.error is not None)) for name, block in blocks]
    yield _gauge("block_failing", "Whether a block's last batch failed.", failing, "block")
    today = stats.spending
    if today is not None:
        reached = [((), float(today.reached is not None))]
        yield _gauge("spending_limit_reached", "Whether a spending limit is reached.", reached)


def _of_counted(counted: Counted) -> Iterator[Metric]:
    usage = counted.usage.items()
    calls = [((purpose, "language"), one.calls) for purpose, one in usage]
    calls += [((purpose, "embedding"), one.embedding_calls) for purpose, one in usage]
    what = "Requests to models, retries included."
    yield _counter("model_calls", what, calls, "purpose", "kind")
    failures = [((purpose,), one.failures) for purpose, one in usage]
    yield _counter("model_failures", "Failed requests to models.", failures, "purpose")
    tokens = [((purpose, "prompt"), one.prompt_tokens) for purpose, one in usage]
    tokens += [((purpose, "completion"), one.completion_tokens) for purpose, one in usage]
    tokens += [((purpose, "embedding"), one.embedding_tokens) for purpose, one in usage]
    yield _counter("model_tokens", "Tokens of requests to models.", tokens, "purpose", "kind")
    cost = [((purpose,), one.cost or 0.0) for purpose, one in usage]
    what = "Cost of requests to models whose price is known."
    yield _counter("model_cost_dollars", what, cost, "purpose")
    prompts, recalls = counted.prompts, counted.recalls
    what = "Tokens of contexts that follow another of the same session."
    yield _counter("prompt_tokens", what, [((), prompts.tokens)])
    what = "Tokens at their beginning that are the same as in the context before."
    yield _counter("prompt_kept_tokens", what, [((), prompts.kept_tokens)])
    yield _counter("recalls", "Recalls.", [((), recalls.asked)])
    yield _counter("recalls_empty", "Recalls that found nothing.", [((), recalls.empty)])
