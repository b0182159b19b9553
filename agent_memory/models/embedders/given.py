"""Embedders from your own functions or objects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator

from agent_memory.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

_DOCUMENTS = ("embed_documents", "get_text_embedding_batch")
_QUERIES = ("embed_query", "get_query_embedding")


class GivenEmbedder:
    """An embedder that calls your functions. `CachedEmbedder` scales the vectors to length 1.

    Args:
        embed: Returns a vector for each text.
        query: Returns the vector of a question; None if questions are embedded like texts.
    """

    def __init__(
        self,
        name: str,
        embed: Callable[[list[str]], Any],
        dimension: int | None = None,
        query: Callable[[str], Any] | None = None,
    ) -> None:
        self.name = name
        self._embed = embed
        self._dimension = dimension
        if query is not None:
            self.embed_query = lambda text: self._called(query, text)

    def __repr__(self) -> str:
        return f"GivenEmbedder({self.name!r})"

    @property
    def dimension(self) -> int:
        """Length of a vector. If no length was given, the first access embeds a word."""
        if self._dimension is None:
            from agent_memory.models.embedders.vectors import unit_rows

            rows = self._called(self._embed, ["dimension"])
            self._dimension = unit_rows(rows, f"The embedder {self.name!r}").shape[1]
        return self._dimension

    def load(self) -> None:
        """Do nothing."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return the function's result unchecked; `CachedEmbedder` validates it."""
        return self._called(self._embed, list(texts))

    def _called(self, function: Callable[[Any], Any], argument: Any) -> np.ndarray:
        import numpy as np

        from agent_memory.models.embedders.vectors import answered

        def array(value: Any) -> np.ndarray:
            return np.asarray(function(value), np.float64)

        return answered(self.name, array, argument)


def check_embedding(value: object) -> object:
    """Return a value that names an embedder or can be used as one. Refuse other values."""
    usable = value is None or isinstance(value, str) or hasattr(value, "embed")
    if usable or any(hasattr(value, name) for name in _DOCUMENTS) or callable(value):
        return value
    raise ConfigError(
        f"embedding is a {type(value).__name__}. Give the name of a model, a function that takes "
        "a list of texts and returns a vector for each, or an object with embed_documents and "
        "embed_query, or with get_text_embedding_batch and get_query_embedding."
    )


EmbeddingField = Annotated[Any, AfterValidator(check_embedding)]
"""A setting that names an embedder, or is a function or an object to use as one."""


def embedder_of(value: Any) -> Any:
    """Return an embedder that calls a function or the methods of an object.

    A function takes a list of texts and returns a vector for each. An object may be an `Embedder`,
    have only `embed`, or have the methods of LangChain's or LlamaIndex's embeddings.
    """
    check_embedding(value)
    if hasattr(value, "embed"):
        if all(hasattr(value, name) for name in ("name", "dimension", "load")):
            return value  # a complete `Embedder`, perhaps with `encode`
        own = getattr(value, "name", None)
        name = own if isinstance(own, str) else _name_of(value)
        return GivenEmbedder(name, value.embed, getattr(value, "dimension", None))
    documents = next((name for name in _DOCUMENTS if hasattr(value, name)), None)
    if documents is None:
        return GivenEmbedder(_name_of(value), value)
    query = next((name for name in _QUERIES if hasattr(value, name)), None)
    return GivenEmbedder(
        _name_of(value), getattr(value, documents), None, getattr(value, query) if query else None
    )


def _name_of(value: Any) -> str:
    """Return a name for a function or an object, including the name of its model if known."""
    of = value if inspect.isroutine(value) or inspect.isclass(value) else type(value)
    names = (getattr(value, name, None) for name in ("model_name", "model"))
    model = next((candidate for candidate in names if isinstance(candidate, str)), "")
    name = f"{of.__module__}.{of.__qualname__}"
    return f"{name}:{model}" if model else name
