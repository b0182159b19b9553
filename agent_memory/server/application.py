"""The service as an ASGI application: what comes of a request, step by step.

Who asks is known before a byte of the body is read; whose memory it is, before anything is looked
for; and whatever goes wrong is answered as a problem.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from agent_memory.core.tracing import Span, arriving, is_on, span
from agent_memory.errors import AgentMemoryError
from agent_memory.listening.bearer import shown_in
from agent_memory.server.answers import JSON, answer_of, encoded, headers_of, line_of, told
from agent_memory.server.calls import OPERATIONS
from agent_memory.server.credentials import unauthenticated
from agent_memory.server.exchange import Exchange
from agent_memory.server.figures import MemoryFigures
from agent_memory.server.limits import Buckets, Limits
from agent_memory.server.logs import fields
from agent_memory.server.openapi import document
from agent_memory.server.operation import At, Form, Operation, Run, RunAll
from agent_memory.server.problems import (
    BROKEN,
    INVALID,
    NOT_CONFIGURED,
    TOO_MANY,
    WRONG_METHOD,
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
from agent_memory.server.routing import PREFIX, Match, Routes
from agent_memory.server.static import File, page_files
from agent_memory.server.together import Together

if TYPE_CHECKING:
    from agent_memory.aio.memory import AsyncAgentMemory
    from agent_memory.listening.asgi import App, Receive, Scope, Send
    from agent_memory.server.credentials import Credentials
    from agent_memory.server.metrics import Metrics
    from agent_memory.server.rights import Principal

_Remembered: TypeAlias = "tuple[str, Principal]"
_Job: TypeAlias = "tuple[_Remembered | None, At, Form]"

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)

OPENAPI = f"{PREFIX}/openapi.json"
MCP = "/mcp"

_HEALTH = "/health"
_GONE = 499
_READY_SECONDS = 2.0
_BRIEF_BYTES = 16_384
_REMOTE_TURNS = 4


class Application:
    """The service.

    Args:
        memory: The memory; it stays open.
        credentials: Knows who asks.
        metrics: Counts.
        limits: What is refused, whoever asks.
        operations: What it does.
        mcp: Answers MCP clients, at `/mcp`, whose requests are marked with whose they are; None
            where it is not served.

    Attributes:
        figures: What `/metrics` tells of the memory.
    """

    def __init__(
        self,
        memory: AsyncAgentMemory,
        credentials: Credentials,
        metrics: Metrics,
        limits: Limits | None = None,
        operations: Iterable[Operation] = OPERATIONS,
        mcp: App | None = None,
    ) -> None:
        from agent_memory import __version__

        table = list(operations)
        self._memory = memory
        self._credentials = credentials
        self._metrics = metrics
        self._limits = Limits() if limits is None else limits
        self._mcp = mcp
        self._buckets = Buckets(self._limits)
        self._routes = Routes(table)
        self._together = self._turns_of(table)
        self._document = encoded(document(table, __version__))
        self._ready = (False, -_READY_SECONDS)
        self.figures = MemoryFigures(memory)
        self._open: Mapping[bytes, Callable[[Exchange], Any]] = {
            f"{_HEALTH}/live".encode(): self._live,
            f"{_HEALTH}/ready".encode(): self._is_ready,
            b"/metrics": self._figures,
            OPENAPI.encode(): self._described,
            **{path: partial(self._page, file) for path, file in page_files().items()},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            if self._mcp is None:
                await _begin_and_end(receive, send)
            else:
                await self._mcp(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send)
        self._metrics.begun()
        asked = {"http.request.method": exchange.method, "url.scheme": scope.get("scheme", "http")}
        with span(exchange.method, asked, "server", arriving(exchange.headers)) as traced:
            try:
                await self._answer(exchange)
            except Disconnected:
                exchange.status = exchange.status or _GONE
            except Exception as error:  # noqa: BLE001 - the client is told its kind, the log its place
                await self._fail(exchange, error)
            finally:
                self._note(exchange, traced)

    async def _answer(self, exchange: Exchange) -> None:
        public = self._open.get(exchange.path)
        if public is not None and exchange.method == "GET":
            exchange.route = exchange.path.decode()
            await public(exchange)
            return
        if self._mcp is not None and exchange.path == MCP.encode():
            await self._converse(exchange, self._mcp)
            return
        match = self._routes.match(exchange.method, exchange.path)
        operation = match.operation
        exchange.route = f"{PREFIX}{operation.path}"
        shown = _shown_in(exchange)
        remembered = self._credentials.remembered(shown)
        try:
            at, form = await self._asked(exchange, match, shown, remembered)
        except Refused:
            if remembered is not None:  # whose credential is over is told nothing else
                await self._made(self._credentials.principal_of, shown)
            raise
        turns = self._together.get(operation.name)
        looked = None if remembered is None else (shown, remembered)
        if turns is not None and exchange.body_bytes <= _BRIEF_BYTES and not is_on():
            answer = await turns.made((looked, at, form))
        else:
            answer = await self._made(self._called, operation.run, (looked, at, form))
        if operation.streams:
            pieces = self._pieces(answer, operation)
            await exchange.stream(pieces, headers_of(operation.streams))
        else:
            await exchange.answer(200, *answer_of(answer))

    async def _asked(
        self, exchange: Exchange, match: Match, shown: str, remembered: Principal | None
    ) -> tuple[At, Form]:
        """Who asks for what.

        Raises:
            Refused: Nobody who may; or it is not what the call takes.
        """
        operation = match.operation
        principal = await self._admitted(exchange, shown, remembered)
        named, query = query_of(exchange.query)
        user_id = _user_of(operation, principal, named)
        if operation.needs is not None:
            principal.require(operation.needs)
        headers, most = exchange.headers, self._limits.body_bytes
        body = await body_of(headers, exchange.receive, most) if operation.has_body else b""
        exchange.body_bytes = len(body)
        form = form_of(operation, match.path, query, body)
        known = key_of(headers), version_of(headers)
        return At(self._memory.memory, user_id, principal, *known), form

    async def _converse(self, exchange: Exchange, mcp: App) -> None:
        """Answer an MCP client: what it asks stands in the body, in the protocol's own form."""
        exchange.route = MCP
        if exchange.method != "POST":  # there are no streams to open and no sessions to end
            raise Refused(WRONG_METHOD, Allow="POST")
        principal = await self._admitted(exchange, _shown_in(exchange))
        named, rest = query_of(exchange.query)
        user_id = principal.user(named)
        if rest:
            raise Refused(INVALID, "The query has other fields than user_id. Leave them out.")
        body = await body_of(exchange.headers, exchange.receive, self._limits.body_bytes)
        passing = exchange.pass_on(mcp, body, user_id, principal.rights)
        await asyncio.wait_for(passing, self._limits.call_seconds)

    async def _admitted(
        self, exchange: Exchange, shown: str, remembered: Principal | None = None
    ) -> Principal:
        """Who asks.

        Raises:
            Refused: Nobody who may, or too often.
        """
        principal = remembered
        if principal is None:
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

    def _turns_of(self, table: Iterable[Operation]) -> dict[str, Together[_Job]]:
        """What has the calls made that are made together, by their names."""
        memory = self._memory.memory
        if memory.config.overflow_mode != "background":
            return {}  # room is made before an update returns, which may ask a model
        turns = _REMOTE_TURNS if memory.components.store.remote else 1
        return {
            one.name: Together(
                self._memory.run,
                partial(self._all_called, one.together),
                turns,
                self._limits.call_seconds,
            )
            for one in table
            if one.together is not None
        }

    def _called(self, run: Run, job: _Job) -> Any:
        looked, at, form = job
        refusal = self._refusal(looked)
        if refusal is not None:
            raise refusal
        return run(at, form)

    def _all_called(self, run_all: RunAll, jobs: Sequence[_Job]) -> list[Any]:
        refusals = {looked: self._refusal(looked) for looked in {job[0] for job in jobs}}
        admitted = [(at, form) for looked, at, form in jobs if refusals[looked] is None]
        answers = iter(run_all(admitted) if admitted else ())
        return [refusals[looked] or next(answers) for looked, _, _ in jobs]

    def _refusal(self, remembered: _Remembered | None) -> Exception | None:
        """Why somebody who was remembered is not let in any more, if so.

        The credential is looked at on the thread of the call: a thread only for that would cost
        more than the call.
        """
        if remembered is None:  # it was looked at for this request
            return None
        shown, principal = remembered
        try:
            is_same = self._credentials.principal_of(shown) == principal
        except Exception as error:  # noqa: BLE001 - raised to whoever asked
            return error
        return None if is_same else unauthenticated()

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

    def _note(self, exchange: Exchange, traced: Span | None) -> None:
        seconds = exchange.seconds
        if traced is not None:
            traced.called(f"{exchange.method} {exchange.route}")
            told = {"http.route": exchange.route, "http.response.status_code": exchange.status}
            traced.told(told)
            if exchange.status >= 500:
                traced.failed(str(exchange.status))
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
        principal = await self._admitted(exchange, _shown_in(exchange))
        principal.require("admin")
        body = self._metrics.text(await self.figures.told())
        await exchange.answer(200, body, headers_of(self._metrics.media_type, len(body)))

    async def _page(self, file: File, exchange: Exchange) -> None:
        await exchange.answer(*file.answer(exchange.headers))

    async def _described(self, exchange: Exchange) -> None:
        await exchange.answer(200, self._document, headers_of(JSON, len(self._document)))


def _shown_in(exchange: Exchange) -> str:
    """The credential that a request shows.

    Raises:
        Refused: It shows none.
    """
    shown = shown_in(exchange.headers)
    if shown is None:
        raise unauthenticated()
    return shown


def _user_of(operation: Operation, principal: Principal, named: str | None) -> str:
    """For which user a call is; nobody's name for one that is about the whole service."""
    if operation.anyones and named is None and "admin" in principal.rights:
        return ""
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
