"""Keeping to the spending limits: counters in the store, which all processes share.

A call is counted before it is made, with what it may take at most, and put right afterwards. So no
number of processes passes a limit of calls; and one that dies in between leaves its call counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from random import random
from time import monotonic, sleep
from typing import Any

from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Record
from agent_memory.core.reserved import SPENDING
from agent_memory.core.spending import (
    SpendingLimit,
    SpendingLimits,
    Spent,
    day_of,
    passed,
    seconds_left,
)
from agent_memory.errors import SpendingLimitReached, StoreError, StoreUnavailable
from agent_memory.ltm_blocks.base import record_id
from agent_memory.models.prices import Prices
from agent_memory.models.usage import Account
from agent_memory.stores.base import RecordStore

logger = logging.getLogger(__name__)

_PLACE = SPENDING.name
_TRIES = 1_000
_PAUSE_SECONDS = 0.002
_RETRY_SECONDS = 300.0
"""What calls under way have set aside may be free again by then."""
_LOOKED_FOR = 5.0
"""Seconds for which is believed what the store said of limits that are reached."""
_MOST_KNOWN = 10_000

Change = Callable[[Spent], Spent]


def now_utc() -> datetime:
    """The time."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Today:
    """What memory spent today (UTC) of its own accord, in all processes, where that is limited.

    Attributes:
        day: The day.
        spent: So much; what calls under way may take included.
        reached: Which limit lets models not be asked any more; None where none does.
    """

    day: str
    spent: Spent
    reached: str | None


class Spending:
    """Says of each call that memory makes of its own accord whether the limits have room for it.

    What `completion` is asked for is the caller's own, and is not limited.

    Args:
        store: Where the counters are.
        limits: What may be spent.
        prices: What models cost.
    """

    def __init__(self, store: RecordStore, limits: SpendingLimits, prices: Prices) -> None:
        self._store = store
        self._prices = prices
        self._limits = {"": limits.total}
        self._per_user = limits.per_user
        self._lock = fork_safe_lock()
        self._known: dict[tuple[str, str], tuple[float, str | None]] = {}
        self._begun = ""

    @property
    def is_limited(self) -> bool:
        """Whether there is any limit."""
        return self._limits[""].is_set or self._per_user.is_set

    @property
    def job(self) -> str | None:
        """Names the limits: where they change, whatever waits for them is looked at again."""
        if not self.is_limited:
            return None
        return f"spending {self._limits['']} {self._per_user}"

    @property
    def is_by_user(self) -> bool:
        """Whether it matters for whom a call is made."""
        return self._per_user.is_set

    @property
    def measures(self) -> bool:
        """Whether tokens or money are limited."""
        return self._limits[""].measures or self._per_user.measures

    def hold(self, account: Account, model: str, prompt: int, answer: int) -> Held | None:
        """Count a call; see `Meter.hold`."""
        if account.purpose == "completion" or not self.is_limited:
            return None
        try:
            return self._held(account.user_id, model, prompt, answer)
        except SpendingLimitReached as error:
            account.refused(error)
            raise

    def reached(self, user_id: str | None) -> str | None:
        """What to warn of: a limit that lets models not be asked for this user."""
        for whose in self._concerned(user_id):
            with_found = self._looked_up(whose)
            if with_found is not None:
                return with_found
        return None

    def unaffordable(self, user_id: str | None) -> bool:
        """Whether it is no use to ask a model for this user now."""
        limits = [self._limit(whose).calls for whose in self._concerned(user_id)]
        return 0 in limits or self.reached(user_id) is not None

    def today(self) -> Today | None:
        """What was spent today in all; None where that is not limited."""
        if not self._limits[""].is_set:
            return None
        day = day_of(now_utc())
        record = self._store.record(_PLACE, _id(day, ""))
        return Today(day, _spent(record), None if record is None else record.metadata["reached"])

    def settle(self, held: Held, tokens: int, cost: float | None) -> None:
        """Put right what was counted for a call; see `Hold.settle`."""
        more = Spent(0, tokens, cost or 0.0) - replace(held.counted, calls=0)
        for whose in held.whose:
            try:
                self._change(held.day, whose, more, None)
            except StoreError as error:  # then it stays counted as it was set aside
                logger.warning("what a model call took is counted as estimated: %s", error)

    def _held(self, user_id: str | None, model: str, prompt: int, answer: int) -> Held | None:
        concerned = self._concerned(user_id)
        for whose in concerned:
            if self._limit(whose).calls == 0:  # then nothing need be read
                raise _refusal(whose, "0 of 0 calls", seconds_left(now_utc()))
        day = day_of(now_utc())
        more = Spent(1, prompt + answer, self._priced(concerned, model, prompt, answer))
        counted: list[str] = []
        try:
            for whose in concerned:
                self._change(day, whose, more, self._limit(whose))
                counted.append(whose)
        except SpendingLimitReached:
            for whose in counted:
                self._change(day, whose, Spent() - more, None)
            raise
        return Held(self, day, tuple(counted), more)

    def _concerned(self, user_id: str | None) -> list[str]:
        """Whose counters a call for a user concerns, that of all last: it is asked most."""
        users = [user_id] if user_id and self._per_user.is_set else []
        return users + ([""] if self._limits[""].is_set else [])

    def _limit(self, whose: str) -> SpendingLimit:
        return self._limits.get(whose, self._per_user)

    def _priced(self, concerned: list[str], model: str, prompt: int, answer: int) -> float:
        if all(self._limit(whose).cost is None for whose in concerned):
            return 0.0
        cost = self._prices.of_tokens(model, prompt, answer)
        if cost is None:
            raise SpendingLimitReached(
                f"Money is limited, and the price of {model!r} is not known, so it is not asked. "
                f'Say it: prices={{"{model}": {{"input": 0.5, "output": 1.5}}}}, in dollars for a '
                "million tokens; or limit calls or tokens instead.",
                _RETRY_SECONDS,
            )
        return cost

    def _change(self, day: str, whose: str, more: Spent, limit: SpendingLimit | None) -> None:
        """Add to a counter, unless that passes a limit.

        Raises:
            SpendingLimitReached: It would.
            StoreUnavailable: Others kept changing it.
        """
        name = _id(day, whose)
        for tried in range(_TRIES):
            before = self._store.record(_PLACE, name)
            spent, reached = _spent(before), _reached(before)
            told = None if limit is None else passed(limit, spent, more)
            refusal = None
            if limit is not None and told is not None:
                refusal = self._refused(day, whose, told, is_last=spent.calls == limit.calls)
                if reached is not None:  # all know it
                    raise refusal
            else:
                spent += more
            reached = told if limit is not None else reached
            last = None if before is None else before.last
            kept = _record(name, day, (last or 0) + 1, spent, reached)
            if self._store.swap_record(_PLACE, kept, last):
                if before is None:
                    self._clean_up(day)
                if refusal is not None:
                    raise refusal
                return
            sleep(_PAUSE_SECONDS * random() * min(tried + 1, 10))
        raise StoreUnavailable("Others kept counting model calls. It is tried again later.")

    def _refused(self, day: str, whose: str, told: str, *, is_last: bool) -> SpendingLimitReached:
        """What to raise; where all calls are made, it is no use to try again today."""
        self._note(day, whose, told)
        left = seconds_left(now_utc())
        return _refusal(whose, told, left if is_last else min(left, _RETRY_SECONDS))

    def _looked_up(self, whose: str) -> str | None:
        """What to say of a limit, as the store has it, or had it some seconds ago."""
        if self._limit(whose).calls == 0:
            return None  # that is no trouble, but what was asked for
        day = day_of(now_utc())
        at, told = self._known.get((day, whose), (-_LOOKED_FOR, None))
        if monotonic() - at >= _LOOKED_FOR:
            try:
                told = _reached(self._store.record(_PLACE, _id(day, whose)))
            except StoreError:  # the caller meets it too, and says so
                return None
            self._note(day, whose, told)
        return None if told is None else str(_refusal(whose, told, 0.0))

    def _note(self, day: str, whose: str, told: str | None) -> None:
        with self._lock:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[day, whose] = monotonic(), told

    def _clean_up(self, day: str) -> None:
        """Forget other days, once in each: calls of yesterday may still be under way."""
        if self._begun == day:
            return
        self._begun = day
        yesterday = str(date.fromisoformat(day) - timedelta(days=1))
        for owner in self._store.owners(_PLACE, ""):
            if owner < yesterday:
                self._store.delete_records(_PLACE, owner=owner)


@dataclass(frozen=True, slots=True)
class Held:
    """A call that was counted before it was made.

    Attributes:
        spending: Where.
        day: On which day.
        whose: In which counters.
        counted: As what.
    """

    spending: Spending
    day: str
    whose: tuple[str, ...]
    counted: Spent

    def settle(self, tokens: int, cost: float | None) -> None:
        """See `Hold.settle`."""
        if self.spending.measures:
            self.spending.settle(self, tokens, cost)


def _refusal(whose: str, told: str, seconds: float) -> SpendingLimitReached:
    of = "The user's spending limit" if whose else "The spending limit"
    return SpendingLimitReached(
        f"{of} of today is reached ({told}): what memory asks models for waits until 00:00 UTC. "
        "Nothing is lost. To go on now, raise spending_limits.",
        seconds,
    )


def _id(day: str, whose: str) -> str:
    return record_id(_PLACE, day, whose)


def _spent(record: Record | None) -> Spent:
    if record is None:
        return Spent()
    told: dict[str, Any] = record.metadata["spent"]
    return Spent(**told)


def _reached(record: Record | None) -> str | None:
    told: str | None = None if record is None else record.metadata["reached"]
    return told


def _record(name: str, day: str, version: int, spent: Spent, reached: str | None) -> Record:
    told = {"spent": asdict(spent), "reached": reached}
    return Record(name, day, "", 0, version, "", (), now_utc(), told)
