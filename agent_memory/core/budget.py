"""What parts of a budget are for: the system message, the summary, turns, recalls. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_SPARE = 8
"""A system message leaves one part in so many of the budget to the conversation, or is cut."""
_SHARE = 4
"""A summary, recalls and the turns each may count on one part in so many."""
SUMMARY_FRAME = 24
"""Tokens of the message and element around a summary's text."""
_LEAST_RECALL = 40
"""Tokens below which nothing can be recalled."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A context's tokens, by what they are for.

    Attributes:
        max_tokens: Of a context.
        overhead: What a context costs beside its messages.
        recall_tokens: What recalls may take at most; 0 where nothing is recalled.
        share: Share of `max_tokens` that short-term memory may fill.
        summary_tokens: What the strategy's summary may take; 0 for a strategy without one.
    """

    max_tokens: int
    overhead: int
    recall_tokens: int = 0
    share: float = 1.0
    summary_tokens: int = 0

    @property
    def messages(self) -> int:
        """Tokens that all messages may take together."""
        return self.max_tokens - self.overhead

    @property
    def free(self) -> int:
        """What is left free for recalls, once something has to be cut."""
        free = min(self.recall_tokens, self.max_tokens // _SHARE)
        return free if free >= _LEAST_RECALL else 0

    @property
    def summary(self) -> int:
        """What the text of a summary may take."""
        return min(self.summary_tokens, self.max_tokens // _SHARE)

    def shows_summary(self, tokens: int) -> bool:
        """Whether a summary of so many tokens may stand beside turns that have to be cut."""
        return tokens <= self.max_tokens // _SHARE + SUMMARY_FRAME

    def system(self, tokens: int) -> int:
        """What a system message of so many tokens may take, once something has to be cut."""
        return min(tokens, self.messages - self.messages // _SPARE)

    def turns(self, system_tokens: int) -> int:
        """What a window's turns may take before it is cut down."""
        free = self.free if self.share >= 1 else 0
        summary = self.summary + SUMMARY_FRAME if self.summary else 0
        short_term = int(self.max_tokens * self.share) - free - self.overhead - summary
        return max(short_term - self.system(system_tokens), self.messages // _SPARE)

    def message(self, system_tokens: int) -> int:
        """What one message may take in a window that is cut: the rest of it is read on."""
        return max(1, self.turns(system_tokens) // 2)
