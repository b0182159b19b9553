"""The table of what the service does."""

from agent_memory.server.calls import (
    kept,
    knowledge,
    library,
    library_logs,
    service,
    sessions,
    shares,
    turns,
    users,
)
from agent_memory.server.operation import Operation, operations_of

OPERATIONS: tuple[Operation, ...] = (
    *(
        one
        for module in (sessions, turns, knowledge, kept, shares, users, service)
        for one in operations_of(module)
    ),
    *library.OPERATIONS,
    *operations_of(library_logs),
)
"""Every call of the service, in the order of the document."""
