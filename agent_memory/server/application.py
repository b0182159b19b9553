"""The service as an ASGI application: what comes of a request, step by step.

Who asks is known before a byte of the body is read; whose memory it is, before anything is looked
for; and whatever goes wrong is answered as a problem.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from agent_memory.errors import AgentMemoryError
from agent_memory.server.answers import JSON, answer_of, encoded, headers_of, line_of, told
from agent_memory.server.calls import OPERATIONS
from agent_memory.server.credentials import shown_in
from agent_memory.server.exchange import Exchange
from agent_memory.server.limits import Buckets, Limits
from agent_memory.server.logs import fields
from agent_memory.server.openapi import document
from agent_memory.server.operation import At, Operation
from agent_memory.server.problems import (
    BROKEN,
    INVALID,
    NOT_CONFIGURED,
    TOO_MANY,
    Refused,
    problem_of,
)
from agent_memory.server.requests import (
    Disconnected,
    body_of,
    form_of,
    key_of,
    query_of,
    version_of,
)
from agent_memory.server.routing import PREFIX, Routes

if TYPE_CHECKING:
    from agent_memory.aio.memory import AsyncAgentMemory
    from agent_memory.listening.asgi import Receive, Scope, Send
    from agent_memory.server.credentials import Credentials
    from agent_memory.server.metrics import Metrics
    from agent_memory.server.rights import Principal

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)

OPENAPI = f"{PREFIX}/openapi.json"

_HEALTH = "/health"
_GONE = 499
_READY_SECONDS = 2.0


class Application:
    """The service.

    Args:
        memory: The memory; it stays open.
        credentials: Knows who asks.
        metrics: Counts.
        limits: What is refused, whoever asks.
        operations: What it does.
    """

    def __init__(
        self,
        memory: AsyncAgentMemory,
        credentials: Credentials,
        metrics: Metrics,
        limits: Limits | None = None,
        operations: Iterable[Operation] = OPERATIONS,
    ) -> None:
        from agent_memory import __version__

        table = list(operations)
        self._memory = memory
        self._credentials = credentials
        self._metrics = metrics
        self._limits = Limits() if limits is None else limits
        self._buckets = Buckets(self._limits)
        self._routes = Routes(table)
        self._document = encoded(document(table, __version__))
        self._ready = (False, -_READY_SECONDS)
        self._open: Mapping[bytes, Callable[[Exchange], Any]] = {
            f"{_HEALTH}/live".encode(): self._live,
            f"{_HEALTH}/ready".encode(): self._is_ready,
            b"/metrics": self._figures,
            OPENAPI.encode(): self._described,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await _begin_and_end(receive, send)
            return
        exchange = Exchange(scope, receive, send)
        self._metrics.begun()
        try:
            await self._answer(exchange)
        except Disconnected:
            exchange.status = exchange.status or _GONE
        except Exception as error:  # noqa: BLE001 - the client is told its kind, the log its place
            await self._fail(exchange, error)
        finally:
            self._note(exchange)

    async def _answer(self, exchange: Exchange) -> None:
        public = self._open.get(exchange.path)
        if public is not None and exchange.method == "GET":
            exchange.route = exchange.path.decode()
            await public(exchange)
            return
        match = self._routes.match(exchange.method, exchange.path)
        operation = match.operation
        exchange.route = f"{PREFIX}{operation.path}"
        principal = await self._admitted(exchange)
        named, query = query_of(exchange.query)
        user_id = _user_of(operation, principal, named)
        principal.require(operation.needs)
        headers, most = exchange.headers, self._limits.body_bytes
        body = await body_of(headers, exchange.receive, most) if operation.has_body else b""
        form = form_of(operation, match.path, query, body)
        at = At(self._memory.memory, user_id, key_of(headers), version_of(headers))
        answer = await self._made(operation.run, at, form)
        if operation.streams:
            pieces = self._pieces(answer, operation)
            await exchange.stream(pieces, headers_of(operation.streams))
        else:
            await exchange.answer(200, *answer_of(answer))

    async def _admitted(self, exchange: Exchange) -> Principal:
        """Who asks.

        Raises:
            Refused: Nobody who may, or too often.
        """
        shown = shown_in(exchange.headers)
        principal = await self._made(self._credentials.principal_of, shown)
        exchange.asker = principal.name
        wait = self._buckets.wait(f"{principal.name} {principal.users}", monotonic())
        if wait:
            told = f"This credential asks too often. Try again in {wait} s."
            raise Refused(TOO_MANY, told, Retry_After=str(wait))
        return principal

    async def _made(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call on a thread of the memory's, and wait so long for it.

        Raises:
            TimeoutError: It takes longer. It comes to its end all the same.
        """
        running = self._memory.run(call, *args, **kwargs)
        return await asyncio.wait_for(running, self._limits.call_seconds)

    async def _pieces(self, given: Iterator[Any], operation: Operation) -> AsyncIterator[bytes]:
        """What is sent piece by piece; one that fails ends with what is told of that."""
        try:
            while (one := await self._memory.run(partial(next, given, None))) is not None:
                yield line_of(one, operation.streams)
        except AgentMemoryError as error:
            logger.warning("A stream failed: %s", type(error).__name__)
            failed = {"event": "error", "kind": "error", "problem": problem_of(error).body()}
            yield line_of(failed, operation.streams)
        finally:
            close = getattr(given, "close", None)
            if close is not None:
                close()

    async def _fail(self, exchange: Exchange, error: Exception) -> None:
        problem = problem_of(error)
        if problem.kind.status >= 500 and problem.kind is not NOT_CONFIGURED:
            level = logging.ERROR if problem.kind is BROKEN else logging.WARNING
            extra = fields(request=exchange.id, route=exchange.route)
            logger.log(level, "A call failed", exc_info=error, extra=extra)
        if not exchange.status:
            await exchange.answer(problem.kind.status, *told(problem))

    def _note(self, exchange: Exchange) -> None:
        seconds = exchange.seconds
        self._metrics.ended(exchange.route, exchange.method, exchange.status, seconds)
        quiet = exchange.route.startswith(_HEALTH) and exchange.status < 500
        logger.log(
            logging.DEBUG if quiet else logging.INFO,
            "request",
            extra=fields(
                request=exchange.id,
                method=exchange.method,
                route=exchange.route,
                status=exchange.status,
                ms=round(seconds * 1_000, 1),
                key=exchange.asker,
            ),
        )

    async def _live(self, exchange: Exchange) -> None:
        """That the process answers: nothing is asked of anything else."""
        await exchange.answer(200, *answer_of({"status": "live"}))

    async def _is_ready(self, exchange: Exchange) -> None:
        """Whether the store answers; looked up once in two seconds, whoever asks."""
        ready, at = self._ready
        if monotonic() - at >= _READY_SECONDS:
            self._ready = (ready, monotonic())
            ready = await self._answers()
            self._ready = (ready, monotonic())
        status = {"status": "ready" if ready else "the store does not answer"}
        await exchange.answer(200 if ready else 503, *answer_of(status))

    async def _answers(self) -> bool:
        parts = self._memory.memory.components
        try:
            parts.guard.check(None, None)
            await asyncio.wait_for(self._memory.run(parts.store.existing, ["-"]), _READY_SECONDS)
        except Exception as error:  # noqa: BLE001 - of whatever driver
            logger.warning("The store does not answer: %s", type(error).__name__)
            return False
        return True

    async def _figures(self, exchange: Exchange) -> None:
        principal = await self._admitted(exchange)
        principal.require("admin")
        try:
            stats = await self._made(self._memory.memory.stats)
        except (AgentMemoryError, TimeoutError):
            stats = None
        body = self._metrics.text(stats)
        await exchange.answer(200, body, headers_of(self._metrics.media_type, len(body)))

    async def _described(self, exchange: Exchange) -> None:
        await exchange.answer(200, self._document, headers_of(JSON, len(self._document)))


def _user_of(operation: Operation, principal: Principal, named: str | None) -> str:
    """For which user a call is; nobody's name for one that is about the whole service."""
    if operation.of_user:
        return principal.user(named)
    if named is not None:
        raise Refused(INVALID, "This call is about no user. Leave user_id out.")
    return ""


async def _begin_and_end(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
