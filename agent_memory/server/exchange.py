"""One request and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set
from contextlib import suppress
from random import getrandbits
from time import perf_counter

from agent_memory.listening.asgi import App, Event, Receive, Scope, Send, marked
from agent_memory.server.answers import ALWAYS, Headers
from agent_memory.server.requests import Disconnected

_UNKNOWN = "unknown"


class Exchange:
    """A request that is being answered, and what is to be told of it.

    Args:
        scope: The request.
        receive: Gives its body.
        send: Takes the answer.

    Attributes:
        id: Names it in the log, and in the answer.
        method: The request's method.
        path: Its path, as it was sent.
        headers: Its headers.
        query: Its query, as it was sent.
        route: The template of the path, once that is known.
        asker: Who asks, once that is known.
        status: The status of the answer, once it has begun.
        body_bytes: How long the request's body is, once it was read.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.id = f"{getrandbits(64):016x}"  # no secret, and without a call of the system
        self.method: str = scope["method"]
        self.path: bytes = scope["raw_path"]
        self.headers: Headers = list(scope["headers"])
        self.query: bytes = scope["query_string"]
        self.route = _UNKNOWN
        self.asker = ""
        self.status = 0
        self.body_bytes = 0
        self.receive = receive
        self._scope = scope
        self._send = send
        self._began = perf_counter()

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return perf_counter() - self._began

    async def answer(self, status: int, body: bytes, headers: Headers) -> None:
        """Answer, all at once."""
        await self._start(status, headers)
        await self._send({"type": "http.response.body", "body": body})

    async def pass_on(self, app: App, body: bytes, user_id: str, rights: Set[str]) -> None:
        """Have another application answer, whose requests are marked with whose they are.

        Args:
            app: The application.
            body: The request's body, which was read.
            user_id: For whom the request is.
            rights: What may be done for them.

        Raises:
            Disconnected: Nobody waits for the answer any more.
        """
        coming = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Event:
            return coming.pop() if coming else await self.receive()

        async def send(event: Event) -> None:
            if event["type"] == "http.response.start":
                own = {name for name, _ in ALWAYS}
                theirs = [one for one in event["headers"] if one[0].lower() not in own]
                await self._start(event["status"], [*theirs, *ALWAYS])
            else:
                await self._send(event)

        await app(marked(self._scope, user_id, rights), receive, send)
        if not self.status:
            raise Disconnected

    async def stream(self, pieces: AsyncIterator[bytes], headers: Headers) -> None:
        """Answer piece by piece, as long as somebody listens.

        Raises:
            Disconnected: Nobody does any more.
        """
        await self._start(200, headers)
        writing = asyncio.ensure_future(self._write(pieces))
        leaving = asyncio.ensure_future(self._left())
        try:
            await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                raise Disconnected
            writing.result()
        finally:
            for task in (writing, leaving):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _start(self, status: int, headers: Headers) -> None:
        self.status = status
        named = (b"x-request-id", self.id.encode())
        start = {"type": "http.response.start", "status": status, "headers": [*headers, named]}
        await self._send(start)

    async def _write(self, pieces: AsyncIterator[bytes]) -> None:
        async for piece in pieces:
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})

    async def _left(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
