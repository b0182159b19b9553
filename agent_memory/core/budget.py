"""Division of a context's tokens by purpose. Pure."""

from __future__ import annotations

from typing import NamedTuple

_SPARE = 8
"""A system message is shortened so that 1/8 of the budget is left for the other messages."""
_SHARE = 4
"""A summary and the recalls may each take 1/4 of the budget if messages have to be cut."""
SUMMARY_FRAME = 24
"""Tokens of the message and the element around a summary's text."""
_LEAST_RECALL = 40
"""If fewer than 40 tokens would be reserved for recalls, no tokens are reserved."""


class Budget(NamedTuple):
    """The tokens of a context, by purpose."""

    max_tokens: int
    overhead: int  # tokens that a context has in addition to its messages
    recall_tokens: int = 0
    share: float = 1.0  # share of `max_tokens` that short-term memory may fill
    summary_tokens: int = 0  # tokens that the strategy allows for a summary; 0 without a summary

    @property
    def messages(self) -> int:
        """Return the tokens that all messages may take together."""
        return self.max_tokens - self.overhead

    @property
    def free(self) -> int:
        """Return the tokens that are reserved for recalls if messages have to be cut."""
        free = min(self.recall_tokens, self.max_tokens // _SHARE)
        return free if free >= _LEAST_RECALL else 0

    @property
    def summary(self) -> int:
        """Return the tokens that the text of a summary may take."""
        return min(self.summary_tokens, self.max_tokens // _SHARE)

    def shows_summary(self, tokens: int) -> bool:
        """Return whether a summary of `tokens` may be shown if messages have to be cut."""
        return tokens <= self.max_tokens // _SHARE + SUMMARY_FRAME

    def system(self, tokens: int) -> int:
        """Return the tokens that a system message of `tokens` may take."""
        return min(tokens, self.messages - self.messages // _SPARE)

    def turns(self, system_tokens: int) -> int:
        """Return the number of tokens above which the turns of a window are cut."""
        free = self.free if self.share >= 1 else 0
        summary = self.summary + SUMMARY_FRAME if self.summary else 0
        short_term = int(self.max_tokens * self.share) - free - self.overhead - summary
        return max(short_term - self.system(system_tokens), self.messages // _SPARE)

    def message(self, system_tokens: int) -> int:
        """Return the tokens that one message may take if messages have to be cut."""
        return max(1, self.turns(system_tokens) // 2)
