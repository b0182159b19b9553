"""Names of collections and aliases on a Qdrant server. No I/O.

A block has a collection for each embedding. Its name contains the dimension and a short form of
the model. Two aliases name the collections for search and for writes.
"""

from __future__ import annotations

import hashlib
import re

_PLAIN = re.compile(r"[A-Za-z0-9-]+")
_OTHER = re.compile(r"[^A-Za-z0-9]+")
_MOST = 60
_DIGEST = 12


class Names:
    """The names of one namespace, unique for each namespace and block.

    Args:
        namespace: The namespace, as in the session store.
    """

    def __init__(self, namespace: str) -> None:
        # an underscore ends the namespace's part, which therefore contains none
        plain = _PLAIN.fullmatch(namespace)
        self._prefix = f"agent_memory_{namespace if plain else _short(namespace)}_"

    def recalled(self, block: str) -> str:
        """Return the alias of the active collection."""
        return self._prefix + block

    def written(self, block: str) -> str:
        """Return the alias of the collection for writes, which differs during a rebuild."""
        return f"{self._prefix}{block}.written"

    def claim(self, block: str) -> str:
        """Return the collection that decides the embedding of a new block."""
        return f"{self._prefix}{block}.claim"

    def vectors(self, block: str, dimension: int, model: str) -> str:
        """Return the collection of a block's vectors of one embedding."""
        slug = _OTHER.sub("-", model)[:_MOST]
        digest = _digest(f"{dimension}\x1f{model}")
        return f"{self._prefix}{block}.{slug}-{dimension}-{digest}"

    def in_force(self, alias: str) -> str | None:
        """Return the block of an alias for an active collection; None for other aliases."""
        block = alias.removeprefix(self._prefix)
        return None if block == alias or "." in block else block

    def is_of(self, block: str, collection: str) -> bool:
        """Return whether a collection belongs to a block, with any embedding."""
        has_prefix = collection.startswith(f"{self._prefix}{block}.")
        return has_prefix and collection != self.claim(block)


def embedding(collection: str) -> tuple[int, str]:
    """Return the dimension and the short model name from a collection's name."""
    slug, dimension, _ = collection.partition(".")[2].rsplit("-", 2)
    return int(dimension), slug


def _short(text: str) -> str:
    return f"{_OTHER.sub('-', text)[:_MOST]}~{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
