"""Which of the merged recalls stand in a context, and what they cost where they stand. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_memory.core.context import (
    BlockInfo,
    MemoryRole,
    place_memory,
    render_line,
    render_memory,
)
from agent_memory.core.fusion import select
from agent_memory.core.passages import excerpt, joined
from agent_memory.core.records import Recall
from agent_memory.core.text import escape
from agent_memory.core.tokens.counter import TokenCounter

_OF_MESSAGES = ("vector", "log")
_LEAST_RECALLS = 4
"""So many fit, however long they are: what is longer is cut."""

_USUAL_RECALLS = 12
"""So many fit where there is room enough for what most messages say."""

_USUAL_TOKENS = 150


@dataclass(frozen=True, slots=True)
class Placed:
    """Recalls at their place in a chat.

    Attributes:
        counter: The configured token counter.
        role: Where they stand.
        blocks: The blocks, in order.
        leading: How many messages stand before the turns.
    """

    counter: TokenCounter
    role: MemoryRole
    blocks: Mapping[str, BlockInfo]
    leading: int

    def choose(
        self, recalls: Sequence[Recall], room: int, chat: list[dict[str, Any]], question: str
    ) -> tuple[list[Recall], int]:
        """What is worth most for its tokens, and what it costs.

        A recall that would take more than a twelfth of the room, or of a small one more than a
        quarter, is cut to the part that bears most on the question. Neighbouring messages become
        one passage.

        Args:
            recalls: The merged recalls, best first.
            room: Tokens that they may take.
            chat: What they are placed in.
            question: What was asked.
        """
        most = min(room // _LEAST_RECALLS, max(room // _USUAL_RECALLS, _USUAL_TOKENS))
        priced = [self._cut(self._priced(recall), question, most) for recall in recalls]
        limits = {name: info.max_tokens for name, info in self.blocks.items()}
        of_messages = [name for name, info in self.blocks.items() if info.kind in _OF_MESSAGES]

        def cost(passages: Sequence[Recall]) -> int:
            return self._cost(chat, passages) if passages else 0

        chosen = select(priced, room, limits)
        if len(chosen) < len(priced):  # what joining saves is room for more
            saved = sum(recall.tokens for recall in chosen) - cost(joined(chosen, of_messages))
            chosen = select(priced, room + max(0, saved), limits)
        # The element's own tags cost too, and text joined to a message may be counted anew.
        while (extra := cost(passages := joined(chosen, of_messages))) > room:
            chosen = select(chosen, sum(r.tokens for r in chosen) - max(1, extra - room), limits)
        return [self._priced(passage) for passage in passages], extra

    def _priced(self, recall: Recall) -> Recall:
        return replace(recall, tokens=self.counter.text(render_line(recall)) + 1)

    def _cut(self, recall: Recall, question: str, most: int) -> Recall:
        if recall.tokens <= most:
            return recall
        limit = most - self.counter.text(render_line(replace(recall, text=""))) - 1
        text = excerpt(recall.text, question, self._escaped_cost, max(1, limit))
        return self._priced(replace(recall, text=text))

    def _escaped_cost(self, text: str) -> int:
        return self.counter.text(escape(text).replace("\n", "\n  "))

    def _cost(self, chat: list[dict[str, Any]], recalls: Sequence[Recall]) -> int:
        memory = render_memory(recalls, list(self.blocks))
        placed = place_memory(chat, memory, self.role, self.leading)
        if len(placed) > len(chat):
            own = "user" if self.role == "user" else "system"
            return self.counter.chat({"role": own, "content": memory})
        pairs = zip(placed, chat, strict=True)
        return sum(
            self.counter.chat(new) - self.counter.chat(old) for new, old in pairs if new is not old
        )
