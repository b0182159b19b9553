"""How long tests of properties go on."""

from __future__ import annotations

from hypothesis import settings


def at_length(count: int) -> int:
    """So many where all layers are run, or the file is named; in the core a quarter of them."""
    return -(-count * settings().max_examples // 100)
