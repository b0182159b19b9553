"""Memories behind a service, for tests that open memories in this process.

One server of a test process serves every opened memory, each below its own path, over HTTP on
127.0.0.1. Closing the client closes its memory.
"""

import threading
from collections.abc import Mapping
from functools import cache
from itertools import count
from typing import Any

import uvicorn

from agent_memory import AgentMemory, AsyncAgentMemory
from agent_memory.client.memory import RemoteMemory
from agent_memory.listening.serving import listen
from agent_memory.server.application import Application
from agent_memory.server.credentials import EVERYBODY, RIGHTS, Credentials, Limits
from agent_memory.server.keys import KeyRing
from agent_memory.server.monitoring import Metrics

_WIDE = Limits(body_bytes=64 * 1024 * 1024, per_second=0)
_numbers = count(1)


class _Services:
    """The services of a process, by the first part of their paths."""

    def __init__(self) -> None:
        self.apps: dict[bytes, Application] = {}
        listener = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            self._serve, interface="asgi3", log_config=None, ws="none", lifespan="off"
        )
        server = uvicorn.Server(config)
        threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="services", daemon=True
        ).start()

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        _, name, rest = scope["raw_path"].split(b"/", 2)
        await self.apps[name]({**scope, "raw_path": b"/" + rest}, receive, send)


@cache
def services() -> _Services:
    return _Services()


def served(memory: AgentMemory, name: str, limits: Limits = _WIDE) -> tuple[str, KeyRing]:
    """Serve a memory, and return the address and the keys of the service."""
    ring = KeyRing(memory.components.store)
    app = Application(AsyncAgentMemory(memory), Credentials(ring), Metrics(), limits)
    services().apps[name.encode()] = app
    return f"{services().url}/{name}", ring


class Served(RemoteMemory):
    """Stands for `AgentMemory` in tests that run over a service. It opens and serves the memory,
    and calls the service with an admin key for all users."""

    def __init__(self, config: Any = None, **fields: Any) -> None:
        self.inside = AgentMemory(config, **fields)
        self.name = f"memory-{next(_numbers)}"
        url, ring = served(self.inside, self.name)
        key, _ = ring.create("test", [EVERYBODY], RIGHTS)
        super().__init__(url, api_key=key)

    def close(self) -> None:
        super().close()
        self.inside.close()


class AsyncServed(AsyncAgentMemory):
    """Async version of `Served`."""

    def __init__(self, config: Any = None, **fields: Any) -> None:
        given = config if isinstance(config, AgentMemory) else Served(config, **fields)
        super().__init__(given)


FACES: Mapping[type, type] = {AgentMemory: Served, AsyncAgentMemory: AsyncServed}
"""The class that stands for each class in tests over a service."""
