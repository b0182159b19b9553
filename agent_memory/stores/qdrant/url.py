"""What the address of a Qdrant server says, without a driver."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from agent_memory.errors import UnknownStore

LOCAL = ":memory:"
_FORM = (
    'Give the address of a Qdrant server, such as "http://localhost:6333" or '
    '"https://name.example:6333"; ":memory:" for the client\'s local mode; another database\'s '
    'URL, such as "sqlite:///vectors.db"; or None for the session store\'s own database.'
)


def is_qdrant(url: str) -> bool:
    """Whether an address is meant for Qdrant, and not for another database."""
    return url == LOCAL or url.partition("://")[0] in ("http", "https")


def check_qdrant_url(url: str) -> None:
    """Refuse what names no Qdrant server. No message repeats the address: it may hold a key.

    Raises:
        UnknownStore: It lacks what it needs, or says what the client would pass over.
    """
    if url == LOCAL:
        return
    parts = _parts(url)
    if parts is None:
        raise UnknownStore(f"VectorMemory cannot open what its setting `store` says. {_FORM}")
    if parts.username is not None or parts.query or parts.fragment:
        raise UnknownStore(
            "The setting `store` of VectorMemory holds more than an address. A key belongs in the "
            f"environment variable QDRANT_API_KEY. {_FORM}"
        )


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # its text may repeat a part of the address
        return None
    return parts if named else None
