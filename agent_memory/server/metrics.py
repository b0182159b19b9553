"""Figures for Prometheus: routes as templates, and no label that names a user or a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.errors import MissingExtra

if TYPE_CHECKING:
    from agent_memory.engine.stats import Stats

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """What is counted of this process, and what the memory tells when it is asked.

    Raises:
        MissingExtra: The extra `server` is not installed.
    """

    def __init__(self) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError:
            raise MissingExtra("The service", "server") from None
        prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]  # a second figure for each, which nobody reads
        self.media_type = prometheus.CONTENT_TYPE_LATEST
        self._registry = registry = prometheus.CollectorRegistry()
        self._latest = prometheus.generate_latest
        labels = ("route", "method", "status")
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

        def gauge(name: str, told: str, *labels: str) -> prometheus.Gauge:
            return prometheus.Gauge(f"agent_memory_{name}", told, labels, registry=registry)

        self._up = gauge("up", "Whether the store answers.")
        self._in_flight = gauge("requests_in_flight", "Requests that are being answered.")
        self._sessions = gauge("sessions", "Sessions.")
        self._messages = gauge("messages", "Messages in their logs.")
        self._lag = gauge("lag_messages", "Messages that a block has not absorbed.", "block")
        self._dead = gauge("dead_letters", "Batches that a block gave up.", "block")
        self._failing = gauge("block_failing", "Whether a block failed the last time.", "block")
        self._calls = gauge("model_calls_total", "Model calls of this process.", "kind")
        self._failures = gauge("model_failures_total", "Those that failed.")
        self._tokens = gauge("model_tokens_total", "Tokens of model calls.", "kind")
        self._cost = gauge("model_cost_dollars_total", "What model calls cost.")

    def begun(self) -> None:
        """A request is being answered."""
        self._in_flight.inc()

    def ended(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._in_flight.dec()
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route, method).observe(seconds)

    def text(self, stats: Stats | None) -> bytes:
        """All figures.

        Args:
            stats: How the memory stands; None where the store does not answer.
        """
        self._up.set(0 if stats is None else 1)
        if stats is not None:
            self._take(stats)
        return self._latest(self._registry)

    def _take(self, stats: Stats) -> None:
        self._sessions.set(stats.sessions)
        self._messages.set(stats.entries)
        for name, block in stats.blocks.items():
            self._lag.labels(name).set(block.lag)
            self._dead.labels(name).set(block.dead_letters)
            self._failing.labels(name).set(block.error is not None)
        usage = stats.usage
        self._calls.labels("language").set(usage.calls)
        self._calls.labels("embedding").set(usage.embedding_calls)
        self._failures.set(usage.failures)
        self._tokens.labels("prompt").set(usage.prompt_tokens)
        self._tokens.labels("completion").set(usage.completion_tokens)
        self._tokens.labels("embedding").set(usage.embedding_tokens)
        if usage.cost is not None:  # of some model the price is not known
            self._cost.set(usage.cost)
