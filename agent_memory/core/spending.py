"""Spending limits: what they are, and whether a call may be made. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel, ConfigDict, Field


class SpendingLimit(BaseModel):
    """What may be spent in a day (UTC), retries included. None limits nothing, 0 allows nothing.

    Attributes:
        calls: Requests to language models and to embedding models over the network.
        tokens: Tokens sent to them and answered by them.
        cost: US dollars. The price of each model must be known: see the setting `prices`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    calls: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @property
    def is_set(self) -> bool:
        """Whether it limits anything."""
        return self.measures or self.calls is not None

    @property
    def measures(self) -> bool:
        """Whether it limits what is known only after a call."""
        return self.tokens is not None or self.cost is not None


class SpendingLimits(BaseModel):
    """What memory may spend on models of its own accord, by day.

    Attributes:
        total: All of it, over all users and processes.
        per_user: What is done for one user. A session that belongs to nobody counts in `total`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    total: SpendingLimit = SpendingLimit()
    per_user: SpendingLimit = SpendingLimit()


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent in a day, calls that are under way included with what they may take.

    Attributes:
        calls: Requests.
        tokens: Tokens sent and answered.
        cost: US dollars, as far as prices are known.
    """

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.calls + other.calls, self.tokens + other.tokens, self.cost + other.cost)

    def __sub__(self, other: Spent) -> Spent:
        return self + Spent(-other.calls, -other.tokens, -other.cost)


def passed(limit: SpendingLimit, spent: Spent, more: Spent) -> str | None:
    """Which limit a call would pass, in words; None where it may be made.

    Args:
        limit: The limit.
        spent: What was spent before.
        more: What the call may take.
    """
    after = spent + more
    if limit.calls is not None and after.calls > limit.calls:
        return f"{spent.calls:,} of {limit.calls:,} calls"
    if limit.tokens is not None and after.tokens > limit.tokens:
        asked = f", and the next call may take {more.tokens:,}"
        return f"{spent.tokens:,} of {limit.tokens:,} tokens{asked}"
    if limit.cost is not None and after.cost > limit.cost:
        asked = f", and the next call may cost ${more.cost:.4f}"
        return f"${spent.cost:.4f} of ${limit.cost:.4f}{asked}"
    return None


def day_of(now: datetime) -> str:
    """The day (UTC) that a moment counts for."""
    return now.astimezone(UTC).date().isoformat()


def seconds_left(now: datetime) -> float:
    """Seconds until the next day (UTC) begins."""
    begun = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (begun + timedelta(days=1) - now).total_seconds()
