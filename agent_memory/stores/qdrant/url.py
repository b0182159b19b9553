"""Validation of a Qdrant server's address, without a driver."""

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
    """Return whether an address is for Qdrant, and not for another database."""
    return url == LOCAL or url.partition("://")[0] in ("http", "https")


def check_qdrant_url(url: str) -> None:
    """Refuse an address that is not one of a Qdrant server.

    No message repeats the address, because it may hold a key.

    Raises:
        UnknownStore: A required part is missing, or a part would be ignored.
    """
    if url == LOCAL:
        return
    parts = _parts(url)
    if parts is None:
        raise UnknownStore(f"VectorMemory cannot use its setting `store`. {_FORM}")
    if parts.username is not None or parts.query or parts.fragment:
        raise UnknownStore(
            "The setting `store` of VectorMemory holds more than an address. A key belongs in the "
            f"environment variable QDRANT_API_KEY. {_FORM}"
        )


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # its text may repeat a part of the address
        return None
    return parts if is_address else None
