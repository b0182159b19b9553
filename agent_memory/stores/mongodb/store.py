"""`MongoDBStore`: all data in a MongoDB database."""

from __future__ import annotations

from agent_memory.errors import SchemaTooNew
from agent_memory.stores.base import Durability
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.stores.mongodb.connection import Deployment
from agent_memory.stores.mongodb.kernel import MongoDBKernel

_LAYOUT = 1
_DOCUMENTS = (("ns", "c", "id"), ("ns", "c", "owner", "id"), ("ns", "c", "session", "first", "id"))
_SPARSE = (("due",), ("op",), ("tagged",), ("cut.below",))
_MESSAGES = (("log", "seq"),)


class MongoDBStore(KernelStore):
    """A store in a MongoDB database.

    Args:
        url: `mongodb://user:password@host:27017/database` or `mongodb+srv://...`. The default
            database is "agent_memory".
        namespace: The namespace. Stores of different namespaces are independent.
        durability: Each write waits for a majority of the deployment's members. With "power" or
            None, the write also waits for their journals. With "process", the server's settings
            decide about the journals.

    Raises:
        StoreUnavailable: The deployment cannot be reached, or refuses the user.
        SchemaTooNew: A newer release wrote the database.
    """

    def __init__(
        self, url: str, namespace: str = "default", durability: Durability | None = None
    ) -> None:
        deployment = Deployment(url, durability)
        kernel = MongoDBKernel(deployment, namespace)
        super().__init__(kernel)
        try:
            self._prepare(deployment, kernel)
        except BaseException:
            deployment.close()
            raise

    def _prepare(self, deployment: Deployment, kernel: MongoDBKernel) -> None:
        meta = deployment.table("agent_memory_meta")
        stored = meta.find_one({"_id": "layout"})
        if stored is None:
            kernel.table.index(_DOCUMENTS)
            kernel.table.index(_SPARSE, sparse=True)
            kernel.messages.index(_MESSAGES)
            meta.insert([{"_id": "layout", "version": _LAYOUT}])
        elif stored["version"] != _LAYOUT:
            raise SchemaTooNew(
                "The MongoDB database was written by a newer release of agent-memory (layout "
                f"{stored['version']}; this release knows {_LAYOUT}). Install a newer agent-memory."
            )
