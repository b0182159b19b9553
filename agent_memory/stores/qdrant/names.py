"""What things are called on a Qdrant server. No I/O.

A block has a collection for each embedding, whose name says dimension and, shortened, model. Two
aliases say which of them is recalled from and which is written to.
"""

from __future__ import annotations

import hashlib
import re

_PLAIN = re.compile(r"[A-Za-z0-9-]+")
_OTHER = re.compile(r"[^A-Za-z0-9]+")
_MOST = 60
_DIGEST = 12


class Names:
    """The names of one namespace; no two of namespace and block share one.

    Args:
        namespace: As in the session store.
    """

    def __init__(self, namespace: str) -> None:
        # an underscore ends the namespace's part, so that it may hold none
        plain = _PLAIN.fullmatch(namespace)
        self._prefix = f"agent_memory_{namespace if plain else _short(namespace)}_"

    def recalled(self, block: str) -> str:
        """The alias of the collection that is in force."""
        return self._prefix + block

    def written(self, block: str) -> str:
        """The alias of the collection that is written to; during a rebuild it is another."""
        return f"{self._prefix}{block}.written"

    def claim(self, block: str) -> str:
        """The collection that decides whose embedding a new block gets."""
        return f"{self._prefix}{block}.claim"

    def vectors(self, block: str, dimension: int, model: str) -> str:
        """The collection of a block's vectors of one embedding."""
        slug = _OTHER.sub("-", model)[:_MOST]
        digest = _digest(f"{dimension}\x1f{model}")
        return f"{self._prefix}{block}.{slug}-{dimension}-{digest}"

    def in_force(self, alias: str) -> str | None:
        """The block whose collection in force an alias names; None where it names another."""
        block = alias.removeprefix(self._prefix)
        return None if block == alias or "." in block else block

    def is_of(self, block: str, collection: str) -> bool:
        """Whether a collection holds, or held, vectors of a block, of whatever embedding."""
        begun = collection.startswith(f"{self._prefix}{block}.")
        return begun and collection != self.claim(block)


def embedding(collection: str) -> tuple[int, str]:
    """Dimension and model of a collection, as its name says them."""
    slug, dimension, _ = collection.partition(".")[2].rsplit("-", 2)
    return int(dimension), slug


def _short(text: str) -> str:
    return f"{_OTHER.sub('-', text)[:_MOST]}~{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
