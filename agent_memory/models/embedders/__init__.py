"""Opens an embedder: the local one, a model of any provider, or your own function or object."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator

from agent_memory.errors import ConfigError, install_command
from agent_memory.models.embedders.base import CachedEmbedder, Embedder, Encoder, NoEmbedder

if TYPE_CHECKING:
    from pydantic import SecretStr

    from agent_memory.models.usage import Charges

logger = logging.getLogger(__name__)


def open_embedder(
    value: object,
    *,
    api_base: str | None = None,
    api_key: SecretStr | None = None,
    charges: Charges | None = None,
    timeout: float = 30.0,
    threads: int = 1,
) -> Encoder:
    """Return a cached embedder for a name, a function or an object.

    The call loads no model and sends no request.

    Args:
        value: "local" is the embedder on this machine. None is the local embedder if it is
            installed, otherwise `NoEmbedder`. "fastembed/<model>" is an ONNX model. Any other
            string names a litellm model, such as "openai/text-embedding-3-small". For functions
            and objects see `embedder_of`.
    """
    from agent_memory.models.embedders.local import FastEmbedEmbedder, MiniLMEmbedder, is_installed

    inner: Embedder
    if value is None and not is_installed():
        _warn()
        return NoEmbedder()
    if value is None or value == "local":
        inner = MiniLMEmbedder(threads)
    elif not isinstance(value, str):
        inner = embedder_of(value)
    elif value.startswith("fastembed/"):
        inner = FastEmbedEmbedder(value.removeprefix("fastembed/"), threads=threads)
    else:
        from agent_memory.models.embedders.remote import LiteLLMEmbedder

        inner = LiteLLMEmbedder(
            value, api_base=api_base, api_key=api_key, charges=charges, timeout=timeout
        )
    return CachedEmbedder(inner)


@cache  # one warning for each process
def _warn() -> None:
    logger.warning(
        "No embedder is installed or configured, so recall matches words only. To match meaning, "
        "set `embedding`, or run: %s",
        install_command("local"),
    )


def is_remote(value: object) -> bool:
    """Return whether a value names an embedder that this library calls over the network."""
    return isinstance(value, str) and value != "local" and not value.startswith("fastembed/")


_DOCUMENTS = ("embed_documents", "get_text_embedding_batch")
_QUERIES = ("embed_query", "get_query_embedding")


class CustomEmbedder:
    """An embedder that calls your functions. `CachedEmbedder` scales the vectors to length 1.

    Without `query`, questions are embedded like texts.
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
            self.embed_query = query

    def __repr__(self) -> str:
        return f"CustomEmbedder({self.name!r})"

    @property
    def dimension(self) -> int:
        """Length of a vector. If no length was given, the first access embeds a word."""
        if self._dimension is None:
            from agent_memory.models.embedders.vectors import answered, unit_rows

            rows = answered(self.name, self.embed, ["dimension"])
            self._dimension = unit_rows(rows, f"The embedder {self.name!r}").shape[1]
        return self._dimension

    def load(self) -> None:
        """Do nothing."""

    def embed(self, texts: Sequence[str]) -> Any:
        """Return the function's result unchecked; `CachedEmbedder` validates it."""
        return self._embed(list(texts))


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
        return CustomEmbedder(name, value.embed, getattr(value, "dimension", None))
    documents = next((name for name in _DOCUMENTS if hasattr(value, name)), None)
    if documents is None:
        return CustomEmbedder(_name_of(value), value)
    query = next((name for name in _QUERIES if hasattr(value, name)), None)
    return CustomEmbedder(
        _name_of(value), getattr(value, documents), None, getattr(value, query) if query else None
    )


def _name_of(value: Any) -> str:
    """Return a name for a function or an object, including the name of its model if known."""
    of = value if inspect.isroutine(value) or inspect.isclass(value) else type(value)
    names = (getattr(value, name, None) for name in ("model_name", "model"))
    model = next((candidate for candidate in names if isinstance(candidate, str)), "")
    name = f"{of.__module__}.{of.__qualname__}"
    return f"{name}:{model}" if model else name
