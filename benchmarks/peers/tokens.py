"""The token counter that the peers are given: tiktoken's o200k_base, as agent-memory counts."""

from functools import cache
from typing import Any

ENDLESS = 1_000_000_000


@cache
def _encoding() -> Any:
    import tiktoken

    return tiktoken.get_encoding("o200k_base")


def tokens(text: str) -> list[int]:
    """The tokens of a text."""
    found: list[int] = _encoding().encode_ordinary(text)
    return found
