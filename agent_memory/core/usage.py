"""The cost of model calls: requests, tokens, money."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

Purpose = Literal["summary", "extraction", "comparison", "embedding", "completion", "other"]
"""The purpose of a model call. "other" is a call of your own block or strategy out of turn."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Totals of model calls.

    Attributes:
        calls: Requests to a language model, retries included.
        failures: Requests, of either kind, that failed.
        prompt_tokens: Tokens sent to a language model, as the provider counts them.
        completion_tokens: Tokens that it answered with.
        cost: US dollars, by the setting `prices` or litellm's table; None where the price of a
            call is not known.
        embedding_calls: Requests to an embedding model, retries included.
        embedding_tokens: Tokens sent to an embedding model.
        estimated: Requests whose tokens are an estimate: their provider did not say.
    """

    calls: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0
    embedding_calls: int = 0
    embedding_tokens: int = 0
    estimated: int = 0

    def __add__(self, other: Usage) -> Usage:
        added = {
            one.name: getattr(self, one.name) + getattr(other, one.name)
            for one in fields(self)
            if one.name != "cost"
        }
        known = self.cost is not None and other.cost is not None
        return Usage(cost=(self.cost or 0.0) + (other.cost or 0.0) if known else None, **added)
