"""`RedisStore`: everything on a Redis or Valkey server."""

from __future__ import annotations

from agent_memory.errors import DISTRIBUTION, SchemaTooNew
from agent_memory.stores.base import Durability
from agent_memory.stores.kernel.appending import KnownSession, known_session
from agent_memory.stores.kernel.contract import EMPTY
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.stores.redis.durability import durability_note, require_power
from agent_memory.stores.redis.kernel import RedisKernel, prefix_of
from agent_memory.stores.redis.scripts import LAYOUT
from agent_memory.stores.redis.server import connected


class RedisStore(KernelStore):
    """A store on a Redis server, version 6.2 or later, or one that answers like it.

    Each change is one Lua script: it happens as a whole or not at all. Leases and due times go by
    the server's clock. On a cluster, which is recognised, all of a namespace is in one hash slot.

    Args:
        url: `redis://host:6379/0`, `rediss://` for TLS, `unix:///path/to/redis.sock?db=0`.
        namespace: Stores of different namespaces see nothing of each other.
        durability: "power" wants a server with `appendonly yes` and `appendfsync always`; else it
            is as the server is set.

    Raises:
        MissingExtra: The driver is not installed.
        StoreUnavailable: The server cannot be reached, or refuses.
        ConfigError: The server is not as durable as `durability` asks for.
        SchemaTooNew: A newer release wrote it.
    """

    def __init__(
        self, url: str, namespace: str = "default", durability: Durability | None = None
    ) -> None:
        self._server = server = connected(url, prefix_of(namespace))
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

    def _unseen(self, session_id: str) -> KnownSession | None:
        return known_session(session_id, None, EMPTY)  # a refused commit is a look

    def secure_erase(self) -> None:
        """See `SessionStore.secure_erase`.

        Has the server write its files anew, without what was deleted: the append-only file where it
        keeps one, and the snapshot where one was ever made. That takes as long as the database is
        large and goes on after this call. It does not reach replicas' files, backups, and memory
        that the server has freed. A warning is logged if the server forbids it.
        """
        super().secure_erase()

    def durability_note(self) -> str:
        """Describe what an acknowledged write survives on this server, as far as it tells."""
        return durability_note(self._server.nodes()[0])
