"""Usage of models: prices, reservations for spending limits, totals by purpose and account."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from agent_memory.core.lazy import lazy_property
from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.settings_model import SettingsModel, Weight
from agent_memory.core.token_counter import TokenCounter
from agent_memory.core.usage import Purpose, Usage
from agent_memory.errors import SpendingLimitReached
from agent_memory.models.loading import load_litellm


class Price(SettingsModel):
    """A model's price, in US dollars for a million tokens."""

    input: Weight  # price of request tokens
    output: Weight = 0.0  # price of answer tokens


class Prices:
    """The prices of models. Your own prices override litellm's table."""

    def __init__(self, own: Mapping[str, Price] = MappingProxyType({})) -> None:
        self._own = own

    def cost(self, model: str, prompt: int, answer: int, response: Any = None) -> float | None:
        """Return the cost in US dollars; None if the model's price is unknown.

        Args:
            prompt, answer: Numbers of tokens.
            response: The model's response, if any. Its cached tokens cost less with litellm's
                prices, but not with your own.
        """
        if (price := self._own.get(model)) is not None:
            return (prompt * price.input + answer * price.output) / 1e6
        litellm = load_litellm()
        counts = {"model": model, "prompt_tokens": prompt, "completion_tokens": answer}
        try:
            if response is None:
                cost = sum(litellm.cost_per_token(**counts))
            else:
                cost = float(litellm.completion_cost(response, model=model))
        except litellm.BadRequestError:  # unknown provider
            return None
        except Exception as error:  # litellm raises a plain Exception for an unknown model
            if "isn't mapped" not in str(error):
                raise
            return None
        # for some providers litellm reports unknown models as free
        is_listed = {model, model.partition("/")[2]} & litellm.model_cost.keys()
        return cost if cost or is_listed else None


__all__ = ["Account", "Ledger", "Purpose", "Settle", "Usage", "current_account"]

T = TypeVar("T")


class Ledger:
    """Adds up usage. Safe to share between threads and models."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._by_purpose: dict[Purpose, Usage] = {}

    def add(self, usage: Usage, purpose: Purpose = "other") -> None:
        with self._lock:
            self._by_purpose[purpose] = self._by_purpose.get(purpose, Usage()) + usage

    def snapshot(self) -> Usage:
        return sum(self.by_purpose().values(), Usage())

    def by_purpose(self) -> dict[Purpose, Usage]:
        with self._lock:
            return dict(self._by_purpose)


class Account:
    """The model usage of one piece of work, with its user and purpose.

    A model call is charged to the account of its thread or asyncio task. Blocks and strategies
    therefore need not pass the account on.

    Attributes:
        user_id: The user that was passed, or else the user of the enclosing account `within`. None
            if there is no user.
    """

    def __init__(
        self, purpose: Purpose, user_id: str | None = None, within: Account | None = None
    ) -> None:
        self.purpose: Purpose = purpose
        self.user_id: str | None = within.user_id if within and user_id is None else user_id
        self.ledger = Ledger()
        self.refusal: SpendingLimitReached | None = None
        self._within = within

    @property
    def usage(self) -> Usage:
        return self.ledger.snapshot()

    def add(self, usage: Usage, purpose: Purpose) -> None:
        self.ledger.add(usage, purpose)
        if self._within is not None:
            self._within.add(usage, purpose)

    def refused(self, refusal: SpendingLimitReached) -> None:
        self.refusal = refusal
        if self._within is not None:
            self._within.refused(refusal)

    @contextmanager
    def charged(self) -> Iterator[Account]:
        """Charge the model calls of a `with` block to this account."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)

    def charging(self, call: Callable[[], T]) -> Callable[[], T]:
        """Wrap a function so that its model calls are charged to this account on any thread."""

        def charged_call() -> T:
            with self.charged():
                return call()

        return charged_call


_current: ContextVar[Account | None] = ContextVar("account", default=None)


def current_account() -> Account | None:
    """Return the account of this thread or asyncio task; None if there is none."""
    return _current.get()


Settle = Callable[[int, float | None], None]
"""Replaces a call's reservation by the tokens and the cost of the call. Never raises."""

Hold = Callable[[Account, str, Callable[[], int], int], Settle | None]
"""Reserves the maximum usage of a model call.

Its arguments are the account, the model, a function that counts the tokens of the request, and the
tokens of the answer. It returns None if there is nothing to settle. It raises
`SpendingLimitReached` if the call would exceed a limit.
"""


Kind = Literal["completion", "embedding"]

LONG_ANSWER = 2_000
"""Tokens to reserve for an answer without a length limit. Extracted facts and summaries are
shorter. A longer answer is charged in full afterwards."""


@dataclass(slots=True)
class Call:
    """A request to a model, which may take several attempts."""

    kind: Kind
    model: str
    account: Account
    request: Sequence[Any]  # the request: OpenAI-style messages, or texts to embed
    answer: int | None  # maximum tokens of the answer; None for no limit
    # settles the reservation for the current attempt; None if there is none
    settle: Settle | None = None

    @property
    def purpose(self) -> Purpose:
        return "embedding" if self.kind == "embedding" else self.account.purpose


class Charges:
    """Charges the model calls of a memory.

    Args:
        hold: Reserves tokens before each attempt; None if there are no spending limits.
        counter: Counts tokens if the provider reports none. None to estimate the tokens.
    """

    def __init__(
        self,
        ledger: Ledger | None = None,
        hold: Hold | None = None,
        prices: Prices | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self.ledger = Ledger() if ledger is None else ledger
        self._hold = hold
        self._prices = Prices() if prices is None else prices
        self._own_counter = counter

    def begin(self, call: Call) -> None:
        """Reserve tokens for an attempt. Raise SpendingLimitReached if it would exceed a limit."""
        if self._hold is not None:
            answer = LONG_ANSWER if call.answer is None else call.answer
            prompt = partial(self._count, call)  # deferred, because counting may be slow
            call.settle = self._hold(call.account, call.model, prompt, answer)
        usage = Usage(embedding_calls=1) if call.kind == "embedding" else Usage(calls=1)
        self._add(call, usage)

    def failed(self, call: Call, may_be_billed: bool) -> None:
        """Record a failed attempt. If the provider cannot bill it, release its reservation."""
        settle, call.settle = call.settle, None
        if settle is not None and not may_be_billed:
            settle(0, 0.0)
        self._add(call, Usage(failures=1))

    def done(self, call: Call, usage: Any, response: Any, *, estimated: bool = False) -> Usage:
        """Record an answered attempt, and return its usage.

        If the response's `usage` has no token counts, tokens are counted here. `estimated` means
        that litellm estimated `usage`.
        """
        prompt = getattr(usage, "prompt_tokens", None) or 0
        answer = getattr(usage, "completion_tokens", None) or 0
        if not prompt and not answer:
            prompt, answer, estimated = self._count(call), self._count_answer(response), True
            cost = self._prices.cost(call.model, prompt, answer)
        else:
            cost = self._prices.cost(call.model, prompt, answer, response)
        settle, call.settle = call.settle, None
        if settle is not None:
            settle(prompt + answer, cost)
        if call.kind == "embedding":
            total = Usage(embedding_tokens=prompt, cost=cost, estimated=int(estimated))
        else:
            total = Usage(
                prompt_tokens=prompt, completion_tokens=answer, cost=cost, estimated=int(estimated)
            )
        self._add(call, total)
        return total

    def left(self, call: Call, text: str) -> None:
        """Record an abandoned stream: charge the request and the text that arrived.

        The reservation stays, because the provider may bill more text than arrived.
        """
        prompt, answer = self._count(call), self._counter.text(text)
        cost = self._prices.cost(call.model, prompt, answer)
        total = Usage(prompt_tokens=prompt, completion_tokens=answer, cost=cost, estimated=1)
        self._add(call, total)

    @lazy_property
    def _counter(self) -> TokenCounter:
        return self._own_counter or TokenCounter(None, "approximate")

    def _count(self, call: Call) -> int:
        if call.kind == "embedding":
            return sum(self._counter.text(text) for text in call.request)
        return self._counter.context(call.request)

    def _count_answer(self, response: Any) -> int:
        choices = getattr(response, "choices", None) or ()
        texts = (getattr(choice.message, "content", None) for choice in choices)
        return sum(self._counter.text(text) for text in texts if isinstance(text, str))

    def _add(self, call: Call, usage: Usage) -> None:
        self.ledger.add(usage, call.purpose)
        call.account.add(usage, call.purpose)
