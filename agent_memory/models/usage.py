"""What the use of models cost so far."""

from __future__ import annotations

from dataclasses import dataclass

from agent_memory.core.processes import fork_safe_lock


@dataclass(frozen=True, slots=True)
class Usage:
    """Totals of the model calls made.

    Attributes:
        calls: Requests to a language model, retries included.
        failures: Requests, of either kind, that failed.
        prompt_tokens: Tokens sent to a language model, as the provider counts them.
        completion_tokens: Tokens that it answered with.
        cost: US dollars, for models whose price litellm knows.
        embedding_calls: Requests to an embedding model, retries included.
        embedding_tokens: Tokens sent to an embedding model.
    """

    calls: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    embedding_calls: int = 0
    embedding_tokens: int = 0


class Ledger:
    """Adds up usage. Safe to share between threads and between models."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._usage = Usage()

    def add(
        self,
        *,
        calls: int = 0,
        failures: int = 0,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        cost: float = 0.0,
        embedding_calls: int = 0,
        embedding_tokens: int = 0,
    ) -> None:
        """Add to the totals."""
        with self._lock:
            now = self._usage
            self._usage = Usage(
                calls=now.calls + calls,
                failures=now.failures + failures,
                prompt_tokens=now.prompt_tokens + prompt_tokens,
                completion_tokens=now.completion_tokens + completion_tokens,
                cost=now.cost + cost,
                embedding_calls=now.embedding_calls + embedding_calls,
                embedding_tokens=now.embedding_tokens + embedding_tokens,
            )

    def snapshot(self) -> Usage:
        """The totals now."""
        with self._lock:
            return self._usage
