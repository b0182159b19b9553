"""Local embeddings from ONNX models, through fastembed (the extra "fastembed")."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.core.processes import fork_safe_lock
from agent_memory.errors import ConfigError, MissingExtra, ModelUnavailable

if TYPE_CHECKING:
    import numpy as np


class FastEmbedEmbedder:
    """Vectors from a model of fastembed's list, downloaded on first use.

    Args:
        model: A fastembed model, such as "BAAI/bge-small-en-v1.5".
        threads: Number of threads of the model; None leaves the choice to fastembed.

    Raises:
        MissingExtra: fastembed is not installed.
    """

    on_this_machine = True

    def __init__(self, model: str, threads: int | None = None) -> None:
        if importlib.util.find_spec("fastembed") is None:
            raise MissingExtra(f"The embedder fastembed/{model}", "fastembed")
        self.model = model
        self._threads = threads
        self._lock = fork_safe_lock(own=True)
        self._loaded: Any = None

    def __repr__(self) -> str:
        return f"FastEmbedEmbedder({self.model!r})"

    @property
    def name(self) -> str:
        """The model's name, without the dimension, because a model has only one dimension."""
        return f"fastembed/{self.model}"

    @property
    def dimension(self) -> int:
        """Length of a vector, from fastembed's list. Raise `ConfigError` if the list lacks it."""
        from fastembed import TextEmbedding

        for entry in TextEmbedding.list_supported_models():
            if entry["model"].lower() == self.model.lower():
                return int(entry["dim"])
        raise ConfigError(
            f"fastembed has no model {self.model!r}. "
            "TextEmbedding.list_supported_models() lists its models."
        )

    def load(self) -> None:
        """Do nothing: the model loads with the first text, because it may need a download."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        from agent_memory.models.embedders.vectors import embed_texts

        return embed_texts(texts, self.dimension, lambda filled: list(self._load().embed(filled)))

    def _load(self) -> Any:
        from fastembed import TextEmbedding

        with self._lock:
            if self._loaded is None:
                try:
                    self._loaded = TextEmbedding(self.model, threads=self._threads)
                except (ValueError, OSError) as error:
                    raise ModelUnavailable(
                        f"fastembed could not load {self.model}. Check the network."
                    ) from error
            return self._loaded
