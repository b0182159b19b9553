"""Embedders: local by default, or any provider's, by name."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agent_memory.models.embedders.base import Embedder

if TYPE_CHECKING:
    from pydantic import SecretStr

    from agent_memory.models.charges import Charges

__all__ = ["Embedder", "is_remote", "open_embedder"]

logger = logging.getLogger(__name__)


def open_embedder(
    name: str | None,
    *,
    api_base: str | None = None,
    api_key: SecretStr | None = None,
    charges: Charges | None = None,
    timeout: float = 30.0,
) -> Embedder:
    """The embedder of a name, behind a cache. Loads no model and asks no provider yet.

    Args:
        name: "local" for the one that runs here, None for the same where it is installed, and else
            for none; "fastembed/<model>" for an ONNX model; else a litellm model, such as
            "openai/text-embedding-3-small".
        api_base: Address of the provider's API, for a litellm model.
        api_key: The provider's key, for a litellm model.
        charges: Where the usage of a litellm model is added up, and whether it may be asked.
        timeout: Seconds for one request, for a litellm model.

    Raises:
        MissingExtra: The embedder's optional package is not installed.
    """
    from agent_memory.models.embedders.cache import CachedEmbedder
    from agent_memory.models.embedders.local import WordLlamaEmbedder, is_installed

    inner: Embedder
    if name is None and not is_installed():
        from agent_memory.models.embedders.none import NoEmbedder

        logger.warning(
            "No embedder is installed or configured: recall goes by words alone. For meaning too, "
            "pip install 'agent-memory[local]', or set `embedding`."
        )
        return NoEmbedder()
    if name is None or name == "local":
        inner = WordLlamaEmbedder()
    elif name.startswith("fastembed/"):
        from agent_memory.models.embedders.onnx import FastEmbedEmbedder

        inner = FastEmbedEmbedder(name.removeprefix("fastembed/"))
    else:
        from agent_memory.models.embedders.remote import LiteLLMEmbedder

        inner = LiteLLMEmbedder(
            name, api_base=api_base, api_key=api_key, charges=charges, timeout=timeout
        )
    return CachedEmbedder(inner)


def is_remote(name: str | None) -> bool:
    """Whether the embedder of a name is asked over the network."""
    return name is not None and name != "local" and not name.startswith("fastembed/")
