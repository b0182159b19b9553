"""A cache of text indexes by owner. An index is rebuilt only when its texts change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent_memory.core.cache import Cache
from agent_memory.ltm_blocks.versions import MOST_RECORDS
from agent_memory.models.embedders.best_effort import BestEffort

if TYPE_CHECKING:
    import numpy as np

    from agent_memory.ltm_blocks.base import Resources
    from agent_memory.retrieval.texts import TextIndex  # noqa: F401 - in the name of the base class


class TextIndexes(Cache[str, "TextIndex"]):
    """Indexes by owner, each valid while the owner's texts are the same. Thread-safe.

    The caller reads the texts from the store every time, and the cache compares them with the
    indexed texts. The cache therefore notices changes by other processes.
    """

    def __init__(self, resources: Resources) -> None:
        super().__init__(MOST_RECORDS, len)
        self._embedder = BestEffort(lambda: resources.embedders(None))

    def relevance(self, owner: str, texts: Sequence[str], question: str) -> np.ndarray:
        """Return for each of an owner's texts the probability that it is relevant to a question."""
        from agent_memory.retrieval.texts import TextIndex

        index = self.find(owner)
        if index is None or index.texts != texts:
            index = TextIndex(texts, self._embedder.encode(texts))
            # an index without vectors is not cached while the embedder is down
            if index.encoded or self._embedder.has_vectors() is False:
                self.put(owner, index)
        return index.relevance(self._embedder.query(question))
