"""Opens stores by URL. A database's driver is imported when its store is opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily
from agent_memory.errors import UnknownStore
from agent_memory.stores.base import (
    Counts,
    Durability,
    RecordStore,
    SessionStore,
    Store,
    VectorStore,
)
from agent_memory.stores.redis import REDIS, redis_options

if TYPE_CHECKING:
    from agent_memory.stores.encrypted.keys import Keys
    from agent_memory.stores.encrypted.store import EncryptedStore
    from agent_memory.stores.mongodb.kernel import MongoDBStore
    from agent_memory.stores.redis.kernel import RedisStore
    from agent_memory.stores.split import SplitStore
    from agent_memory.stores.sql.store import MemoryStore, SQLStore

__all__ = [
    "Counts",
    "Durability",
    "EncryptedStore",
    "Keys",
    "MemoryStore",
    "MongoDBStore",
    "RecordStore",
    "RedisStore",
    "SQLStore",
    "SessionStore",
    "SplitStore",
    "Store",
    "VectorStore",
    "check_url",
    "open_store",
    "url_of",
]

_SERVED = (
    "Use memory:// (lost when the process ends), sqlite:///path.db, folder:///path, postgresql://, "
    "mysql://, mongodb:// or redis://."
)
_SERVICE = 'For a service, pass only its address, in Python: AgentMemory("https://...").'
_MONGODB = ("mongodb", "mongodb+srv")
_SQL_SERVERS = (
    *("postgresql", "postgres", "postgresql+psycopg"),
    *("mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql"),
)


def check_url(url: str) -> None:
    """Raise `UnknownStore` for a malformed URL or an unknown scheme, without loading a driver."""
    scheme, mark, rest = url.partition("://")
    if mark and scheme in ("sqlite", "folder"):
        _check_path(scheme, rest)
    elif mark and scheme in REDIS:
        redis_options(url)
    elif mark and scheme in (*_SQL_SERVERS, *_MONGODB):
        if not rest:
            raise UnknownStore(f"{scheme}:// needs a host: {scheme}://user:password@host/database.")
    elif not mark or scheme != "memory":
        # the message shows only the scheme, because the URL may contain a password
        named = f"No store serves {scheme}://." if mark else "A store is named by a URL."
        service = f" {_SERVICE}" if mark and scheme in ("http", "https") else ""
        raise UnknownStore(f"{named} {_SERVED}{service}")
    elif rest:
        raise UnknownStore("A memory:// URL ends after the slashes. Write memory://.")


def serves(url: str) -> bool:
    """Return whether a store serves a URL's scheme. Only the scheme is checked."""
    schemes = ("memory", "sqlite", "folder", *REDIS, *_SQL_SERVERS, *_MONGODB)
    return url.partition("://")[0] in schemes and "://" in url


def url_of(place: str | Path) -> str:
    """Return the URL of the SQLite file with this path. A URL is returned unchanged."""
    return place if isinstance(place, str) and "://" in place else f"sqlite:///{place}"


def _check_path(scheme: str, rest: str) -> None:
    path = rest.removeprefix("/")
    name = "memory.db" if scheme == "sqlite" else "memories"
    if path in ("", ":memory:"):
        raise UnknownStore(
            f"{scheme}:// needs a path, such as {scheme}:///{name}. For a store without a path, "
            "use memory://."
        )
    if not rest.startswith("/"):
        raise UnknownStore(
            f"A {scheme}:// URL has three slashes before a relative path and four before an "
            f"absolute one: {scheme}:///{name}, {scheme}:////var/lib/{name}."
        )
    if (scheme == "sqlite" and path.startswith("file:")) or "?" in path or "\0" in path:
        raise UnknownStore(
            f"A {scheme}:// URL takes a plain path without options, such as {scheme}:///{name}."
        )


def open_store(url: str, namespace: str = "default", durability: Durability | None = None) -> Store:
    """Open the store that a URL names.

    Args:
        url: `memory://`, `sqlite:///path.db`, `folder:///path`, or the address of a server:
            `postgresql://`, `mysql://`, `mariadb://`, `mongodb://`, `redis://`, `rediss://`,
            `unix://`.
        namespace: Several namespaces can share a database. A store sees only its namespace's data.
        durability: Whether an acknowledged write survives a power loss; see `Durability`.

    Raises:
        UnknownStore: No store serves the URL.
        StoreUnavailable: The database cannot be reached or opened.
        SchemaTooNew: A newer release of agent-memory wrote the database.
    """
    check_url(url)
    if url.startswith("memory:"):
        from agent_memory.stores.sql.store import MemoryStore

        return MemoryStore(namespace)
    if url.startswith("folder:"):
        from agent_memory.stores.folder.kernel import FolderStore

        return FolderStore(url, namespace, durability)
    if url.partition("://")[0] in REDIS:
        from agent_memory.stores.redis.kernel import RedisStore

        return RedisStore(url, namespace, durability)
    if url.partition("://")[0] in _MONGODB:
        from agent_memory.stores.mongodb.kernel import MongoDBStore

        return MongoDBStore(url, namespace, durability)
    from agent_memory.stores.sql.store import SQLStore

    return SQLStore(url, namespace, durability)


if not TYPE_CHECKING:
    __getattr__, _ = lazily(
        __name__,
        {
            ".encrypted.keys": ("Keys",),
            ".encrypted.store": ("EncryptedStore",),
            ".mongodb.kernel": ("MongoDBStore",),
            ".redis.kernel": ("RedisStore",),
            ".split": ("SplitStore",),
            ".sql.store": ("MemoryStore", "SQLStore"),
        },
    )
