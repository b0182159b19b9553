"""The cost of model calls, and daily limits on them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from agent_memory.core.limits import MOST
from agent_memory.core.settings_model import Amount, Range, SettingsModel

Purpose = Literal["summary", "extraction", "comparison", "embedding", "completion", "other"]
"""The purpose of a model call. "other" is any other call, such as one for a recall."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Totals of model calls.

    Attributes:
        calls: Requests to language models, retries included.
        failures: Failed requests to language models and embedding models.
        prompt_tokens: Tokens sent to language models, as the providers count them.
        completion_tokens: Tokens in the answers of language models.
        cost: US dollars, by the setting `prices` or litellm's table. None if the price of a model
            is not known.
        embedding_calls: Requests to embedding models, retries included.
        embedding_tokens: Tokens sent to embedding models.
        estimated: Requests with estimated tokens, because the provider did not report them.
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
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
            if field.name != "cost"
        }
        has_cost = self.cost is not None and other.cost is not None
        return Usage(cost=(self.cost or 0.0) + (other.cost or 0.0) if has_cost else None, **added)


class SpendingLimit(SettingsModel):
    """The limits of a day (UTC). Retries count. None is no limit, and 0 allows nothing.

    Attributes:
        calls: Requests to language models, and to embedding models over the network.
        tokens: Tokens that are sent to these models, and tokens of their answers.
        cost: US dollars. The price of each model must be known; see the setting `prices`.
    """

    calls: Amount | None = None
    tokens: Amount | None = None
    cost: Annotated[float, Range(0, MOST)] | None = None

    @property
    def is_set(self) -> bool:
        return self.measures or self.calls is not None

    @property
    def measures(self) -> bool:
        """Return whether a limit depends on tokens or cost, which are known only after a call."""
        return self.tokens is not None or self.cost is not None


class SpendingLimits(SettingsModel):
    """Daily limits on the model calls that the memory makes on its own.

    Attributes:
        total: The limit for all users and processes together.
        per_user: The limit for each user. A session without an owner counts only in `total`.
    """

    total: SpendingLimit = SpendingLimit()
    per_user: SpendingLimit = SpendingLimit()


@dataclass(frozen=True, slots=True)
class Spent:
    """The spending of a day, including estimates for running calls.

    `cost` is in US dollars, for calls with a known price.
    """

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.calls + other.calls, self.tokens + other.tokens, self.cost + other.cost)

    def __sub__(self, other: Spent) -> Spent:
        return self + Spent(-other.calls, -other.tokens, -other.cost)


def exceeded(limit: SpendingLimit, spent: Spent, more: Spent) -> str | None:
    """Describe the limit that a call would exceed. None if the call may be made."""
    after = spent + more
    if limit.calls is not None and after.calls > limit.calls:
        return f"{spent.calls:,} of {limit.calls:,} calls"
    if limit.tokens is not None and after.tokens > limit.tokens:
        next_call = f", and the next call may take {more.tokens:,}"
        return f"{spent.tokens:,} of {limit.tokens:,} tokens{next_call}"
    if limit.cost is not None and after.cost > limit.cost:
        next_call = f", and the next call may cost ${more.cost:.4f}"
        return f"${spent.cost:.4f} of ${limit.cost:.4f}{next_call}"
    return None


def day_of(now: datetime) -> str:
    return now.astimezone(UTC).date().isoformat()


def seconds_left(now: datetime) -> float:
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (midnight + timedelta(days=1) - now).total_seconds()
