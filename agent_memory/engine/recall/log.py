"""Searching the log itself for what no block recalls yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, Self

from pydantic import PrivateAttr

from agent_memory.core.fusion import folded
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Recall, Scope
from agent_memory.ltm_blocks.base import ManualBlock, Resources
from agent_memory.ltm_blocks.waiting import Made, Waiting
from agent_memory.models.embedders.none import NoEmbedder
from agent_memory.stores.pending import Tails

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Turn

LOG = "log"
"""What stands for the block's name in what the log itself gives."""

_MOST = 5_000
_ROLES = ("user", "assistant")
_NOBODY = "_"  # no block can be named so: all of the log waits for it


class LogBlock(ManualBlock):
    """The engine's own, where no block recalls messages: the user and assistant messages that are
    not absorbed yet; where nothing absorbs, the newest 5,000. By their words alone.

    Attributes:
        behind: The blocks that absorb. What one of them has not absorbed yet is looked at.
    """

    kind: Literal["log"] = "log"
    behind: tuple[str, ...] = ()

    _waiting: dict[str, Waiting] = PrivateAttr()

    @property
    def selective(self) -> bool:
        return True

    def bind(self, resources: Resources) -> Self:
        """As `Block.bind`."""
        bound = super().bind(resources)
        bound._waiting = {name: Waiting(_ROLES) for name in self.behind or (_NOBODY,)}
        return bound

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        """As `Block.get`."""
        question = message.text().strip() if message else ""
        if not question or not scope.is_somebodys:
            return []
        found: dict[str, Recall] = {}
        for block, waiting in self._waiting.items():
            tails = self.resources.pending.of(block, scope, _MOST)
            for recall in self._ranked(scope, question, tails, waiting):
                found.setdefault(recall.id, recall)
        best = sorted(found.values(), key=lambda recall: -recall.score)
        return folded(best, limit)

    def delete(self, scope: Scope) -> None:
        """As `Block.delete`: nothing, since it keeps nothing."""

    def _ranked(
        self, scope: Scope, question: str, tails: Tails, waiting: Waiting
    ) -> Iterable[Recall]:
        known = waiting.index(tails, scope.owner, question, _made)
        if known is None:
            return []
        from agent_memory.retrieval.query import Query
        from agent_memory.retrieval.turns import recalls, telling
        from agent_memory.stores.indexes import hits

        query = Query.asked(question, NoEmbedder())
        found = hits(known.traits.search(query, len(known.records)), known.records)
        least = scope.floor * self.resources.min_relevance
        near = [hit for hit in found if hit.relevance >= least]
        return recalls(telling(question, near), self.name, scope)


def _made(said: Sequence[tuple[Entry, Turn]]) -> Made:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.turns import record_of_turn

    records = [record_of_turn(*one, _id(*one), "") for one in said]
    return records, Features.of_turns([turn for _, turn in said], NoEmbedder().encode)


def _id(entry: Entry, turn: Turn) -> str:
    return f"{entry.session_id}#{entry.seq}.{turn.part.number}"
