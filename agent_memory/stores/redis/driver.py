"""The driver, or what to install."""

from __future__ import annotations

from agent_memory.errors import MissingExtra

try:
    from redis import exceptions
    from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
    from redis.crc import key_slot
except ImportError as error:
    raise MissingExtra("A Redis store", "redis") from error

__all__ = ["Connection", "SSLConnection", "UnixDomainSocketConnection", "exceptions", "key_slot"]
