"""Enforces spending limits with counters in the store, which all processes share.

Before a model call, the counters are increased by one call and by the call's maximum tokens and
cost. Afterwards, the counters are corrected to the actual usage. Concurrent processes therefore
cannot exceed a limit on the number of calls. If a process dies during a call, the maximum stays
counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import date, timedelta
from functools import partial
from random import random
from time import monotonic, sleep

from agent_memory.core.cache import Cache
from agent_memory.core.records import Record
from agent_memory.core.system_collections import SPENDING
from agent_memory.core.timestamps import now_utc
from agent_memory.core.usage import (
    SpendingLimit,
    SpendingLimits,
    Spent,
    day_of,
    exceeded,
    seconds_left,
)
from agent_memory.errors import SpendingLimitReached, StoreError, StoreUnavailable
from agent_memory.ltm_blocks.base import record_id
from agent_memory.models.usage import Account, Prices, Settle
from agent_memory.stores.base import RecordStore

logger = logging.getLogger(__name__)

_PLACE = SPENDING.name
_TRIES = 1_000
_PAUSE_SECONDS = 0.002
_RETRY_SECONDS = 300.0
"""Seconds until another attempt. Running calls may end meanwhile, and use less than counted."""
_CACHE_SECONDS = 5.0
"""Seconds for which a process caches whether a limit is reached."""
_MOST_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class Today:
    """The spending of all processes today (UTC), without the calls of `completion`."""

    day: str
    spent: Spent  # the spending; a running call counts with its maximum
    reached: str | None  # the limit that forbids further model calls; None if no limit is reached


class Spending:
    """Checks each model call against the limits, except the calls of `completion`."""

    def __init__(self, store: RecordStore, limits: SpendingLimits, prices: Prices) -> None:
        self._store = store
        self._prices = prices
        self._limits = {"": limits.total}
        self._per_user = limits.per_user
        self._cached: Cache[tuple[str, str], tuple[float, str | None]] = Cache(_MOST_CACHED)
        self._begun = ""

    @property
    def is_limited(self) -> bool:
        return self._limits[""].is_set or self._per_user.is_set

    @property
    def job(self) -> str | None:
        """The name of this job for `Housekeeping`. A change of the limits makes sessions due."""
        if not self.is_limited:
            return None
        return f"spending {self._limits['']} {self._per_user}"

    def hold(
        self, account: Account, model: str, prompt: Callable[[], int], answer: int
    ) -> Settle | None:
        """Count the maximum usage of a call before it is made."""
        if account.purpose == "completion" or not self.is_limited:
            return None
        try:
            return self._held(account.user_id, model, prompt, answer)
        except SpendingLimitReached as error:
            account.refused(error)
            raise

    def reached(self, user_id: str | None) -> str | None:
        """Return a warning if a limit forbids model calls for this user. None if no limit does."""
        for owner in self._concerned(user_id):
            warning = self._cached_refusal(owner)
            if warning is not None:
                return warning
        return None

    def unaffordable(self, user_id: str | None) -> bool:
        """Return whether a limit, even one of 0 calls, forbids model calls for this user now."""
        limits = [self._limit(owner).calls for owner in self._concerned(user_id)]
        return 0 in limits or self.reached(user_id) is not None

    def today(self) -> Today | None:
        """Return today's spending of all users. None if `total` has no limit."""
        if not self._limits[""].is_set:
            return None
        day = day_of(now_utc())
        return Today(day, *_stored(self._store.record(_PLACE, _id(day, ""))))

    def _settle(
        self, day: str, owners: list[str], counted: Spent, tokens: int, cost: float | None
    ) -> None:
        """Replace the counted maximum of a call with its actual tokens and cost."""
        more = Spent(0, tokens, cost or 0.0) - replace(counted, calls=0)
        for owner in owners:
            try:
                self._change(day, owner, more, None)
            except StoreError as error:  # the estimate stays counted
                logger.warning("a model call stays counted as estimated: %s", error)

    def _held(
        self, user_id: str | None, model: str, prompt: Callable[[], int], answer: int
    ) -> Settle | None:
        concerned = self._concerned(user_id)
        for owner in concerned:
            if self._limit(owner).calls == 0:  # this needs no read of the store
                raise _refusal(owner, "0 of 0 calls", seconds_left(now_utc()))
        day = day_of(now_utc())
        measures = self._limits[""].measures or self._per_user.measures
        tokens, most = (prompt(), answer) if measures else (0, 0)
        more = Spent(1, tokens + most, self._priced(concerned, model, tokens, answer))
        counted: list[str] = []
        try:
            for owner in concerned:
                self._change(day, owner, more, self._limit(owner))
                counted.append(owner)
        except SpendingLimitReached:
            for owner in counted:
                self._change(day, owner, Spent() - more, None)
            raise
        return partial(self._settle, day, counted, more)

    def _concerned(self, user_id: str | None) -> list[str]:
        """Return the owners of a call's counters: the user, then "" for all users."""
        users = [user_id] if user_id and self._per_user.is_set else []
        return users + ([""] if self._limits[""].is_set else [])

    def _limit(self, owner: str) -> SpendingLimit:
        return self._limits.get(owner, self._per_user)

    def _priced(self, concerned: list[str], model: str, prompt: int, answer: int) -> float:
        if all(self._limit(owner).cost is None for owner in concerned):
            return 0.0
        cost = self._prices.cost(model, prompt, answer)
        if cost is None:
            raise SpendingLimitReached(
                f"There is a cost limit, but the price of {model!r} is unknown, so the model "
                f'was not called. Set prices={{"{model}": {{"input": 0.5, "output": 1.5}}}}, in '
                "dollars per million tokens. Or limit calls or tokens instead.",
                _RETRY_SECONDS,
            )
        return cost

    def _change(self, day: str, owner: str, more: Spent, limit: SpendingLimit | None) -> None:
        """Add to a counter. Raise `SpendingLimitReached` if the sum would exceed the limit."""
        name = _id(day, owner)
        for attempt in range(_TRIES):
            before = self._store.record(_PLACE, name)
            spent, reached = _stored(before)
            reason = None if limit is None else exceeded(limit, spent, more)
            refusal = None
            if limit is not None and reason is not None:
                refusal = self._refused(day, owner, reason, is_last=spent.calls == limit.calls)
                if reached is not None:  # the reason is already stored
                    raise refusal
            else:
                spent += more
            reached = reason if limit is not None else reached
            last = None if before is None else before.last
            fields = {"spent": asdict(spent), "reached": reached}
            record = Record(name, day, last=(last or 0) + 1, metadata=fields)
            if self._store.swap_record(_PLACE, record, last):
                if before is None:
                    self._clean_up(day)
                if refusal is not None:
                    raise refusal
                return
            sleep(_PAUSE_SECONDS * random() * min(attempt + 1, 10))
        raise StoreUnavailable(
            "Other processes changed the count of model calls too often. It will be tried again."
        )

    def _refused(self, day: str, owner: str, reason: str, *, is_last: bool) -> SpendingLimitReached:
        self._note(day, owner, reason)
        left = seconds_left(now_utc())
        return _refusal(owner, reason, left if is_last else min(left, _RETRY_SECONDS))

    def _cached_refusal(self, owner: str) -> str | None:
        """Return the message of a reached limit, from the store or from the cache."""
        if self._limit(owner).calls == 0:
            return None  # 0 calls are a deliberate setting, which needs no warning
        day = day_of(now_utc())
        at, reason = self._cached.get((day, owner), (-_CACHE_SECONDS, None))
        if monotonic() - at >= _CACHE_SECONDS:
            try:
                _, reason = _stored(self._store.record(_PLACE, _id(day, owner)))
            except StoreError:  # the caller's next store call raises the error
                return None
            self._note(day, owner, reason)
        return None if reason is None else str(_refusal(owner, reason, 0.0))

    def _note(self, day: str, owner: str, reason: str | None) -> None:
        self._cached.put((day, owner), (monotonic(), reason))

    def _clean_up(self, day: str) -> None:
        """Once a day, delete old counters. Yesterday's counters stay: their calls may still run."""
        if self._begun == day:
            return
        self._begun = day
        yesterday = str(date.fromisoformat(day) - timedelta(days=1))
        for owner in self._store.owners(_PLACE, ""):
            if owner < yesterday:
                self._store.delete_records(_PLACE, owner=owner)


def _refusal(owner: str, reason: str, seconds: float) -> SpendingLimitReached:
    of = "The user's spending limit" if owner else "The spending limit"
    return SpendingLimitReached(
        f"{of} of today is reached ({reason}): model calls of the memory wait until 00:00 UTC. "
        "Nothing is lost. To continue now, raise spending_limits.",
        seconds,
    )


def _id(day: str, owner: str) -> str:
    return record_id(_PLACE, day, owner)


def _stored(record: Record | None) -> tuple[Spent, str | None]:
    """Return the spending in a record, and the limit that is reached."""
    if record is None:
        return Spent(), None
    return Spent(**record.metadata["spent"]), record.metadata["reached"]
