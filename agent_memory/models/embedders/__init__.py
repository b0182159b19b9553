"""Opens an embedder by name: the local embedder, or a model of any provider."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING

from agent_memory.errors import install_command
from agent_memory.models.embedders.base import CachedEmbedder, Embedder, Encoder, NoEmbedder

if TYPE_CHECKING:
    from pydantic import SecretStr

    from agent_memory.models.usage import Charges

__all__ = ["Embedder", "Encoder", "is_remote", "open_embedder"]

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
        from agent_memory.models.embedders.given import embedder_of

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
