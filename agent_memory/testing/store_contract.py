"""`StoreContract`: the whole contract suite of a store, as one pytest class."""

from __future__ import annotations

from agent_memory.testing.records import RecordStoreContract
from agent_memory.testing.sessions import SessionStoreContract
from agent_memory.testing.vectors import VectorStoreContract
from agent_memory.testing.work import WorkStoreContract


class StoreContract(
    SessionStoreContract, WorkStoreContract, RecordStoreContract, VectorStoreContract
):
    """Subclass this class and define the fixture `store`; see `testing.contract`.

    Two fixtures are optional: `other`, a second store object on the same data, and `elsewhere`, a
    store object on another namespace of the database.
    """
