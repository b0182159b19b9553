"""The default embedder: small, quick, on this machine, without a download."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_memory.core.processes import fork_safe_lock
from agent_memory.errors import MissingExtra

if TYPE_CHECKING:
    import numpy as np

_BATCH = 8

_loading = fork_safe_lock()
_model: Any = None


def is_installed() -> bool:
    """Whether the extra "local" is there."""
    return importlib.util.find_spec("wordllama") is not None


class WordLlamaEmbedder:
    """Vectors from WordLlama, whose weights come with its package (the extra "local").

    The model is loaded when the first text is embedded, once in a process. It averages vectors of
    words: good at shared vocabulary and topics, blind to word order.
    """

    def __init__(self) -> None:
        if not is_installed():
            raise MissingExtra("The local embedder", "local")

    def __repr__(self) -> str:
        return "WordLlamaEmbedder()"

    @property
    def name(self) -> str:
        """Names model and dimension."""
        return "wordllama-l2_supercat-256"

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return 256

    @property
    def unrelated(self) -> float:
        """Calibrated on long conversations: see docs/recall.md."""
        return 0.28

    def load(self) -> None:
        """Load the model."""
        _load()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """A unit vector for each text, zeros for a blank one."""
        from agent_memory.models.embedders.vectors import embed_texts

        return embed_texts(texts, self.dimension, self._embed)

    def _embed(self, texts: list[str]) -> np.ndarray:
        import numpy as np

        model = _load()
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        # like with like: a batch is padded to its longest text
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        vectors[order] = model.embed([texts[index] for index in order], batch_size=_BATCH)
        return vectors


def _load() -> Any:
    """The model, read-only: one for all embedders of the process, as it takes long and 30 MB."""
    global _model
    with _loading:
        if _model is None:
            # wordllama sets up the root logger when imported, unless it has a handler already.
            guard = logging.NullHandler()
            logging.getLogger().addHandler(guard)
            try:
                import wordllama
            finally:
                logging.getLogger().removeHandler(guard)
            _model = wordllama.WordLlama.load(
                cache_dir=Path(wordllama.__file__).parent, disable_download=True
            )
        return _model
