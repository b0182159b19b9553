"""A store on a Redis server. This module parses Redis URLs, without the driver."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from agent_memory.errors import UnknownStore

REDIS = ("redis", "rediss", "unix")

_PORT = 6379
_FORM = (
    "Write redis://host:6379/0, with a percent-encoded user:password@ before the host if the "
    "server needs them; rediss:// for TLS, with ?ssl_ca_certs=/path/to/ca.pem if your own CA "
    "signed the certificate; or unix:///path/to/redis.sock?db=0."
)
_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")


def redis_place(url: str) -> str:
    """Return the server and the database of a URL, without user and password."""
    options = redis_options(url)
    where = options.get("path") or f"{options['host']}:{options['port']}"
    return f"{where}, database {options['db']}"


def redis_options(url: str) -> dict[str, Any]:
    """Return a connection's options: host and port (or path), db, and all others in the URL."""
    try:
        parts = urlsplit(url)
        options = _options(parts, dict(parse_qsl(parts.query, strict_parsing=bool(parts.query))))
    except ValueError:  # not raised again: its text may repeat a part of the password
        options = None
    if options is None:
        raise UnknownStore(f"The setting `store` holds a Redis URL that cannot be read. {_FORM}")
    return options


def _options(parts: SplitResult, query: dict[str, str]) -> dict[str, Any] | None:
    options: dict[str, Any] = {}
    if parts.scheme == "unix":
        options["path"], database = unquote(parts.path), query.pop("db", "0")
        if parts.path in ("", "/") or parts.hostname:
            return None
    else:
        if not parts.hostname:
            return None
        options["host"], options["port"] = unquote(parts.hostname), parts.port or _PORT
        database = parts.path.removeprefix("/") or "0"
    if not database.isdecimal() or parts.fragment or parts.scheme not in REDIS:
        return None
    options["db"] = int(database)
    if parts.username:
        options["username"] = unquote(parts.username)
    if parts.password:
        options["password"] = unquote(parts.password)
    if parts.scheme == "rediss":
        options |= {name: query.pop(name) for name in _FILES if name in query}
    return None if query else options
