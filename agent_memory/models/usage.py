"""Adding up what models cost: in all, by purpose, and on whose account."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.usage import Purpose, Usage
from agent_memory.errors import SpendingLimitReached

__all__ = ["Account", "Hold", "Ledger", "Meter", "Purpose", "Usage", "current_account"]

T = TypeVar("T")


class Ledger:
    """Adds up usage. Safe to share between threads and between models."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._by_purpose: dict[Purpose, Usage] = {}

    def add(self, usage: Usage, purpose: Purpose = "other") -> None:
        """Add to the totals."""
        with self._lock:
            self._by_purpose[purpose] = self._by_purpose.get(purpose, Usage()) + usage

    def snapshot(self) -> Usage:
        """The totals now."""
        return sum(self.by_purpose().values(), Usage())

    def by_purpose(self) -> dict[Purpose, Usage]:
        """The totals now of each purpose for which a model was asked."""
        with self._lock:
            return dict(self._by_purpose)


class Account:
    """What one piece of work asks of models: for whom, what for, and what it took.

    A call of a model finds the account of its thread, or of the asyncio task that it runs in: so
    blocks and strategies, third parties' too, need not hand it on.

    Args:
        purpose: What models are asked for.
        user_id: For whom; None where it is nobody's.
        within: The account of the work that this is a part of.

    Attributes:
        purpose: As given.
        user_id: As given; or that of the account around it.
        ledger: What it took.
        refusal: That a spending limit let a model not be asked, the last time it was so.
    """

    def __init__(
        self, purpose: Purpose, user_id: str | None = None, within: Account | None = None
    ) -> None:
        self.purpose: Purpose = purpose
        self.user_id: str | None = user_id
        if user_id is None and within is not None:
            self.user_id = within.user_id
        self.ledger = Ledger()
        self.refusal: SpendingLimitReached | None = None
        self._within = within

    @property
    def usage(self) -> Usage:
        """What it took so far."""
        return self.ledger.snapshot()

    def add(self, usage: Usage, purpose: Purpose) -> None:
        """Something was taken."""
        self.ledger.add(usage, purpose)
        if self._within is not None:
            self._within.add(usage, purpose)

    def refused(self, refusal: SpendingLimitReached) -> None:
        """A model was not to be asked."""
        self.refusal = refusal
        if self._within is not None:
            self._within.refused(refusal)

    @contextmanager
    def charged(self) -> Iterator[Account]:
        """Have the calls of models in this block charged to it."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)

    def charging(self, call: Callable[[], T]) -> Callable[[], T]:
        """The call, to be made on another thread, charged to it."""

        def made() -> T:
            with self.charged():
                return call()

        return made


_current: ContextVar[Account | None] = ContextVar("account", default=None)


def current_account() -> Account | None:
    """The account that calls are charged to here, if any is."""
    return _current.get()


class Hold(Protocol):
    """What was set aside for a call that is about to be made."""

    def settle(self, tokens: int, cost: float | None) -> None:
        """Put right what was set aside: the call took so much. Never raises."""
        ...


class Meter(Protocol):
    """Says whether a model may be asked."""

    def hold(self, account: Account, model: str, prompt: int, answer: int) -> Hold | None:
        """Set aside what a call may take; None where nothing limits it.

        Args:
            account: Who asks.
            model: The model.
            prompt: Tokens that are sent.
            answer: Tokens of a long answer.

        Raises:
            SpendingLimitReached: A limit would be passed. The call must not be made.
        """
        ...

    @property
    def measures(self) -> bool:
        """Whether it asks for tokens at all."""
        ...
