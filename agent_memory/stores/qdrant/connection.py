"""Connections with qdrant-client, the check of addresses, and the translation of errors."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from agent_memory.errors import AgentMemoryError, ConfigError, StoreUnavailable, UnknownStore

if TYPE_CHECKING:
    from httpx import Request, Response
    from qdrant_client import QdrantClient

logger = logging.getLogger(__name__)

LOCAL = ":memory:"
_FORM = (
    'Give the address of a Qdrant server, such as "http://localhost:6333" or '
    '"https://name.example:6333"; ":memory:" for the client\'s local mode; another database\'s '
    'URL, such as "sqlite:///vectors.db"; or None for the session store\'s own database.'
)

KEY = "QDRANT_API_KEY"
_CONNECT_SECONDS = 3.0
_CALL_SECONDS = 10
_NEAR = ("localhost", "127.0.0.1", "::1")
_RIGHTS = "The key must be allowed to create and delete collections, and to write."


class Missing(StoreUnavailable):
    """The collection does not exist."""


class Taken(StoreUnavailable):
    """A collection of that name already exists."""


class Connection:
    def __init__(self, url: str) -> None:
        check_qdrant_url(url)
        from qdrant_client import QdrantClient

        self._url = url
        self._key = os.environ.get(KEY) or None
        self.local = url == LOCAL
        # the local mode is not thread-safe
        self._lock: AbstractContextManager[Any] = threading.RLock() if self.local else nullcontext()
        if self.local:
            self._client = QdrantClient(location=url)
            return
        parts = urlsplit(url)
        if self._key and parts.scheme == "http" and parts.hostname not in _NEAR:
            logger.warning("%s is sent to %s without encryption. Use https.", KEY, url)
        self._client = QdrantClient(
            url=url,
            timeout=_CALL_SECONDS,
            # The key is sent as a header. With `api_key`, the client warns even for a local server.
            metadata={"api-key": self._key} if self._key else {},
            check_compatibility=False,  # this check would call the server now
        )
        self._client.http.client.add_middleware(_bounded)

    @contextmanager
    def reached(self) -> Iterator[QdrantClient]:
        """Provide the client for a few calls.

        Raises:
            Missing: The collection does not exist.
            Taken: The collection already exists.
            ConfigError: The server refuses the key, or the key lacks rights.
            StoreUnavailable: The server cannot be reached, or failed.
        """
        from qdrant_client.common.client_exceptions import QdrantException
        from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

        try:
            with self._lock:
                yield self._client
        except UnexpectedResponse as error:
            raise self._refusal(error.status_code or 0, str(error)) from error
        except (ResponseHandlingException, QdrantException) as error:
            raise StoreUnavailable(
                f"The Qdrant server at {self._url} could not be used: {self._error_text(error)}. "
                "Check that it runs, and the address in VectorMemory(store=...)."
            ) from error
        except ValueError as error:  # the local mode raises ValueError instead of a status
            if "not found" in str(error):
                raise Missing(str(error)) from error
            if "already exists" in str(error):
                raise Taken(str(error)) from error
            raise

    def close(self) -> None:
        self._client.close()

    def _refusal(self, status: int, answer: str) -> AgentMemoryError:
        where = f"The Qdrant server at {self._url}"
        if status in (401, 403):  # the answer is not shown, because it may repeat the key
            if not self._key:
                return ConfigError(f"{where} requires a key: set {KEY}. {_RIGHTS}")
            what = "does not know the key in" if status == 401 else "does not permit this with"
            return ConfigError(f"{where} {what} {KEY} (status {status}). {_RIGHTS}")
        kind = {404: Missing, 409: Taken}.get(status, StoreUnavailable)
        return kind(
            f"{where} could not be used: {self._error_text(answer)}. Check that the address in "
            "VectorMemory(store=...) belongs to a Qdrant server, and look into the server's log."
        )

    def _error_text(self, error: object) -> str:
        text = " ".join(str(error).split()) or type(error).__name__
        return text.replace(self._key, "***") if self._key else text


def _bounded(request: Request, send: Callable[[Request], Response]) -> Response:
    """Send a request with a shorter time limit for connecting than for the whole call."""
    timeout = request.extensions.get("timeout", {})
    request.extensions["timeout"] = {**timeout, "connect": _CONNECT_SECONDS}
    return send(request)


def is_qdrant(url: str) -> bool:
    """Return whether a store's address is for Qdrant and not for another database."""
    return url == LOCAL or url.partition("://")[0] in ("http", "https")


def check_qdrant_url(url: str) -> None:
    """Raise `UnknownStore` for an address that no Qdrant server can have.

    The message does not repeat the address, because it may contain a key.
    """
    if url == LOCAL:
        return
    parts = _parts(url)
    if parts is None:
        raise UnknownStore(f"VectorMemory cannot use its setting `store`. {_FORM}")
    if parts.username is not None or parts.query or parts.fragment:
        raise UnknownStore(
            "The setting `store` of VectorMemory is more than an address. A key belongs in the "
            f"environment variable QDRANT_API_KEY. {_FORM}"
        )


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # not raised again: the error's text may repeat a part of the address
        return None
    return parts if is_address else None
