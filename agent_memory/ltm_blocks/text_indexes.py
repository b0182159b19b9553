"""The texts of owners asked for last, ready to be searched: made anew where they changed only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent_memory.ltm_blocks.versions import Remembering
from agent_memory.models.embedders.best_effort import BestEffort

if TYPE_CHECKING:
    from agent_memory.retrieval.texts import TextIndex


class TextIndexes:
    """Indexes by owner, each as long as its owner has the same texts. Safe to share.

    What is kept says nothing of what is so: who asks reads the texts themselves, every time. So no
    version is needed, and no process can be behind another.

    Args:
        embedder: Says what texts mean.
    """

    def __init__(self, embedder: BestEffort) -> None:
        self._embedder = embedder
        self._kept: Remembering[TextIndex] = Remembering(len)

    def of(self, owner: str, texts: Sequence[str]) -> TextIndex:
        """Return the index of an owner's texts."""
        from agent_memory.retrieval.texts import TextIndex

        before = self._kept.last(owner)
        if before is not None and before.texts == texts:
            return before
        index = TextIndex(texts, self._embedder.encode(texts))
        if not texts:
            self.drop(owner)
        elif index.encoded or self._embedder.has_vectors() is False:  # else it is down
            self._kept.keep(owner, "", index)
        return index

    def drop(self, owner: str) -> None:
        """Let go of an owner's."""
        self._kept.drop(owner)
