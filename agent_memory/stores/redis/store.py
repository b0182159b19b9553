"""`RedisStore`: all data on a Redis or Valkey server."""

from __future__ import annotations

from agent_memory.errors import DISTRIBUTION, SchemaTooNew
from agent_memory.stores.base import Durability
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.stores.redis.kernel import RedisKernel, prefix_of
from agent_memory.stores.redis.scripts import LAYOUT
from agent_memory.stores.redis.server import RedisServer, durability_note, require_power


class RedisStore(KernelStore):
    """A store on a Redis server of version 6.2 or later, or on a compatible server.

    Each change is one atomic Lua script. Leases and due times use the server's clock. Clusters
    are supported: all data of a namespace is in one hash slot.

    Args:
        url: `redis://host:6379/0`, `rediss://...` for TLS, or `unix:///path/to/redis.sock?db=0`.
        namespace: The namespace. Stores of different namespaces are independent.
        durability: "power" requires a server with `appendonly yes` and `appendfsync always`.
            Otherwise the server's settings decide.

    Raises:
        MissingExtra: The driver is not installed.
        StoreUnavailable: The server cannot be reached, or refuses the user.
        ConfigError: The server is less durable than `durability` requires.
        SchemaTooNew: A newer release wrote the database.
    """

    def __init__(
        self, url: str, namespace: str = "default", durability: Durability | None = None
    ) -> None:
        self._server = server = RedisServer(url)
        kernel = RedisKernel(server, prefix_of(namespace))
        super().__init__(kernel)
        try:
            layout = server.ask("GET", kernel.layout)
            if layout not in (None, str(LAYOUT).encode()):
                raise SchemaTooNew(
                    f"The Redis server at {server.place} was written by a newer release of "
                    f"agent-memory. Upgrade: pip install -U {DISTRIBUTION}"
                )
            if durability == "power":
                for node in server.nodes():
                    require_power(node)
        except BaseException:
            server.close()
            raise

    def durability_note(self) -> str:
        """Describe, by the server's settings, which failures an acknowledged write survives."""
        return durability_note(self._server.nodes()[0])
