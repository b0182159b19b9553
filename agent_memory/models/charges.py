"""Charging model calls: may this one be made, what did it take, and on whose account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.core.usage import Purpose, Usage
from agent_memory.models.prices import Prices
from agent_memory.models.usage import Account, Hold, Ledger, Meter

Kind = Literal["completion", "embedding"]

LONG_ANSWER = 2_000
"""Tokens that are set aside for an answer whose length nobody bounds. Facts of a batch, and
summaries, are shorter; what passes it is counted afterwards."""


@dataclass(slots=True)
class Call:
    """A request to a model, which may be made several times.

    Attributes:
        kind: Of model.
        model: Its name.
        account: Whose it is.
        sent: OpenAI-style messages, or texts to embed.
        answer: Most tokens that it may answer with; None where nobody bounds them.
        hold: What is set aside for the attempt under way.
    """

    kind: Kind
    model: str
    account: Account
    sent: Sequence[Any]
    answer: int | None
    hold: Hold | None = field(default=None)

    @property
    def purpose(self) -> Purpose:
        """What for."""
        if self.kind == "embedding":
            return "embedding"
        return self.account.purpose


class Charges:
    """Where the calls of a memory's models are charged.

    Args:
        ledger: Adds up all of it.
        meter: Says whether a call may be made; None lets all be made.
        prices: What models cost.
        counter: Counts what no provider has counted; by default an estimate.

    Attributes:
        ledger: As given.
    """

    def __init__(
        self,
        ledger: Ledger | None = None,
        meter: Meter | None = None,
        prices: Prices | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self.ledger = Ledger() if ledger is None else ledger
        self._meter = meter
        self._prices = Prices() if prices is None else prices
        self._given_counter = counter

    def begin(self, call: Call) -> None:
        """An attempt is about to be made.

        Raises:
            SpendingLimitReached: It must not be.
        """
        if self._meter is not None:
            prompt = self._count(call) if self._meter.measures else 0
            answer = LONG_ANSWER if call.answer is None else call.answer
            call.hold = self._meter.hold(call.account, call.model, prompt, answer)
        one = Usage(embedding_calls=1) if call.kind == "embedding" else Usage(calls=1)
        self._add(call, one)

    def failed(self, call: Call, may_be_billed: bool) -> None:
        """The attempt failed; what may be billed all the same stays set aside."""
        hold, call.hold = call.hold, None
        if hold is not None and not may_be_billed:
            hold.settle(0, 0.0)
        self._add(call, Usage(failures=1))

    def done(self, call: Call, usage: Any, response: Any, *, estimated: bool = False) -> Usage:
        """The attempt was answered; what it took.

        Args:
            call: The call.
            usage: What the provider says that it took, if it does.
            response: The answer.
            estimated: That `usage` is litellm's own count.
        """
        asked = getattr(usage, "prompt_tokens", None) or 0
        told = getattr(usage, "completion_tokens", None) or 0
        if not asked and not told:
            asked, told, estimated = self._count(call), self._said(response), True
            cost = self._prices.of_tokens(call.model, asked, told)
        else:
            cost = self._prices.of_response(call.model, response, asked, told)
        hold, call.hold = call.hold, None
        if hold is not None:
            hold.settle(asked + told, cost)
        if call.kind == "embedding":
            took = Usage(embedding_tokens=asked, cost=cost, estimated=int(estimated))
        else:
            took = Usage(
                prompt_tokens=asked, completion_tokens=told, cost=cost, estimated=int(estimated)
            )
        self._add(call, took)
        return took

    def left(self, call: Call, said: str) -> None:
        """Nobody reads on: it took what was sent and said so far, and may be billed for more."""
        asked, told = self._count(call), self._counter.text(said)
        cost = self._prices.of_tokens(call.model, asked, told)
        self._add(
            call,
            Usage(prompt_tokens=asked, completion_tokens=told, cost=cost, estimated=1),
        )

    @cached_property
    def _counter(self) -> TokenCounter:
        return self._given_counter or TokenCounter(None, "approximate")

    def _count(self, call: Call) -> int:
        """Tokens that are sent, as we count them."""
        if call.kind == "embedding":
            return sum(self._counter.text(text) for text in call.sent)
        return self._counter.context(call.sent)

    def _said(self, response: Any) -> int:
        """Tokens of an answer, as we count them."""
        choices = getattr(response, "choices", None) or ()
        texts = (getattr(choice.message, "content", None) for choice in choices)
        return sum(self._counter.text(text) for text in texts if isinstance(text, str))

    def _add(self, call: Call, usage: Usage) -> None:
        self.ledger.add(usage, call.purpose)
        call.account.add(usage, call.purpose)
