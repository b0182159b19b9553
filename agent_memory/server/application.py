"""The service as an ASGI application, on Starlette.

A request is authenticated before its body is read, and its user is determined before any data is
read. A failure is answered with problem details (RFC 9457). If it interrupts a stream, the stream
ends with these details.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from math import inf
from random import getrandbits
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote, unquote_to_bytes

import anyio
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router

from agent_memory import __version__
from agent_memory.aio import MODEL_THREADS, THREADS, AsyncAgentMemory
from agent_memory.client.calls import EXACT
from agent_memory.core.notices import error_text
from agent_memory.core.tracing import arriving, failed, is_on, set_attributes, span
from agent_memory.errors import AgentMemoryError, StoreUnavailable
from agent_memory.listening import App, Event, Receive, Scope, Send, marked, shown_in
from agent_memory.server import wire
from agent_memory.server.batching import Batcher
from agent_memory.server.calls import OPERATIONS
from agent_memory.server.credentials import Buckets, Credentials, Limits, Principal, unauthenticated
from agent_memory.server.monitoring import MemoryFigures, Metrics, Reading, fields
from agent_memory.server.operation import PREFIX, At, Form, Operation, Run, RunAll, document
from agent_memory.server.problems import Kind, Refused, problem_of
from agent_memory.server.static import page_routes

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_Remembered = tuple[str, Principal]
_Job = tuple[_Remembered | None, At, Form]

Authenticate = Callable[[Request], Principal | Awaitable[Principal]]
"""Returns the principal of a request, or raises an `HTTPException` or `Refused`."""

T = TypeVar("T")

logger = logging.getLogger(__name__)

OPENAPI = f"{PREFIX}/openapi.json"
MCP = "/mcp"

_HEALTH = "/health"
_GONE = 499
_READY_SECONDS = 2.0
_BRIEF_BYTES = 16_384
_REMOTE_BATCHES = 4
_LINE = "agent_memory.seen"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Other methods are counted as one: anybody can invent methods, and each would be a label."""


@dataclass(slots=True)
class _LogLine:
    """The fields of a request's log line. `status` is 0 until the response has started."""

    method: str
    route: str = "unknown"
    asker: str = ""
    status: int = 0
    id: str = field(default_factory=lambda: f"{getrandbits(64):016x}")  # the id is not secret
    began: float = field(default_factory=perf_counter)


class Application:
    """The service.

    Args:
        memory: The memory. The application does not close it.
        credentials: A `Credentials` for keys and JWTs, or your own function that returns the
            `Principal` of a request.
        metrics: Counts requests. With None, `/metrics` does not exist.
        limits: The size, rate and time limits of requests.
        mcp: An ASGI application that answers MCP clients at `/mcp`. It finds the user and the
            rights of a request in the ASGI scope. With None, `/mcp` does not exist.

    Attributes:
        figures: The memory's metrics, for `/metrics`.
    """

    def __init__(
        self,
        memory: AsyncAgentMemory,
        credentials: Credentials | Authenticate,
        metrics: Metrics | None = None,
        limits: Limits | None = None,
        mcp: App | None = None,
    ) -> None:
        self._memory = memory
        self._credentials = credentials
        self._metrics = metrics
        self._limits = Limits() if limits is None else limits
        self._mcp = mcp
        self._buckets = Buckets(self._limits)
        self._batchers = self._open_batchers()
        self._document = wire.encoded(document(OPERATIONS, __version__))
        self._ready = (False, -_READY_SECONDS)
        self.figures = MemoryFigures(memory)
        routes = [
            *self._call_routes(),
            Route(OPENAPI, self._described),
            Route(f"{_HEALTH}/live", self._live),
            Route(f"{_HEALTH}/ready", self._is_ready),
            *page_routes(),
        ]
        if metrics is not None:
            routes.append(Route("/metrics", self._figures))
        if mcp is not None:
            route = Route(MCP, partial(self._mcp_answer, mcp))
            route.methods = None  # `_mcp_answer` refuses all but POST
            routes.append(route)
        self._router = Router(routes, redirect_slashes=False, default=_no_such_call)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await (self._mcp or self._router)(scope, receive, send)
            return
        line = _LogLine(scope["method"] if scope["method"] in _METHODS else "_OTHER")

        async def sending(event: Event) -> None:
            if event["type"] == "http.response.start":
                line.status = event["status"]
                event["headers"] = [*event["headers"], (b"x-request-id", line.id.encode())]
            await send(event)

        if self._metrics is not None:
            self._metrics.begun()
        labels = {"http.request.method": line.method, "url.scheme": scope.get("scheme", "http")}
        with span(line.method, labels, "server", arriving(list(scope["headers"]))) as traced:
            try:
                # ids may contain encoded slashes, so the route is matched before decoding
                raw = scope.get("raw_path") or quote(scope["path"]).encode()
                path = raw.decode("latin-1")
                inner = {**scope, "path": path, "app": self, _LINE: line}
                inner.pop("starlette.exception_handlers", None)  # of an enclosing application
                await self._router(inner, receive, sending)
            except ClientDisconnect:
                line.status = line.status or _GONE
            except Exception as error:  # noqa: BLE001 - answered as a problem, and logged
                problem = problem_of(_refusal_of(error))
                self._log_failure(line, error, problem.kind)
                if not line.status:
                    await wire.problem_response(problem)(scope, receive, sending)
            finally:
                self._note(line, traced)

    def _call_routes(self) -> list[Route]:
        """Return a route for each path. Literal segments have priority over parameters."""
        paths: dict[str, dict[str, Operation]] = {}
        for operation in OPERATIONS:
            paths.setdefault(operation.path, {})[operation.method] = operation
        routes = []
        for path in sorted(paths, key=_literals_first):
            answer = partial(self._answer, paths[path])
            route = Route(f"{PREFIX}{path}", answer, methods=paths[path])
            assert route.methods is not None
            route.methods.discard("HEAD")
            routes.append(route)
        return routes

    async def _answer(self, methods: Mapping[str, Operation], request: Request) -> Response:
        operation, line = methods[request.method], request.scope[_LINE]
        line.route = f"{PREFIX}{operation.path}"
        path = {name: _decoded(value) for name, value in request.path_params.items()}
        remembered = self._remembered(request)
        try:
            at, form, size = await self._read(request, operation, path, remembered)
        except Refused:
            if remembered is not None:  # if the credential is invalid by now, report that instead
                await self._run(partial(self._credentials.principal_of, remembered[0]))  # type: ignore[union-attr]
            raise
        job = remembered, at, form
        batcher = self._batchers.get(operation.name)
        if batcher is not None and size <= _BRIEF_BYTES and not is_on():
            answer = await batcher.run(job)
        else:
            call = partial(self._call, operation.run, job)
            answer = await self._run(call, threads=_threads_of(operation))
        if not operation.streams:
            return wire.answer_of(answer)
        headers = {**wire.ALWAYS, "content-type": operation.streams}
        return _Stream(self._pieces(answer, operation), headers=headers)

    async def _read(
        self,
        request: Request,
        operation: Operation,
        path: Mapping[str, str],
        remembered: _Remembered | None,
    ) -> tuple[At, Form, int]:
        """Authorize a request and validate its body. Return also the body's size in bytes."""
        principal = await self._authenticate(request, remembered)
        named, query = wire.query_of(request.scope["query_string"])
        user_id = _user_of(operation, principal, named)
        if operation.needs is not None:
            principal.require(operation.needs)
        body = await wire.body_of(request, self._limits.body_bytes) if operation.has_body else b""
        headers = request.headers
        exact = operation.exact and any(EXACT in value for value in headers.getlist("accept"))
        form = wire.form_of(operation, path, query, body, exact)
        marks = wire.key_of(headers, operation), wire.version_of(headers)
        at = At(self._memory.memory, user_id, principal, *marks, exact)
        return at, form, len(body)

    async def _mcp_answer(self, mcp: App, request: Request) -> App:
        line = request.scope[_LINE]
        line.route = MCP
        if request.method != "POST":  # the server is stateless, and has no streams or sessions
            raise Refused(Kind.WRONG_METHOD, headers={"Allow": "POST"})
        principal = await self._authenticate(request)
        named, rest = wire.query_of(request.scope["query_string"])
        user_id = principal.user(named)
        if rest:
            raise Refused(Kind.INVALID, "The query has fields besides user_id. Remove them.")
        body = await wire.body_of(request, self._limits.body_bytes)
        coming = [{"type": "http.request", "body": body, "more_body": False}]

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            async def receiving() -> Event:
                return coming.pop() if coming else await receive()

            async def sending(event: Event) -> None:
                if event["type"] == "http.response.start":
                    MutableHeaders(scope=event).update(wire.ALWAYS)
                await send(event)

            passing = mcp(marked(scope, user_id, principal.rights), receiving, sending)
            await asyncio.wait_for(passing, self._limits.call_seconds)
            if not line.status:
                raise ClientDisconnect

        return answer

    def _remembered(self, request: Request, seconds: float = 60.0) -> _Remembered | None:
        """Return a credential that was verified in the last `seconds`, and its principal."""
        if not isinstance(self._credentials, Credentials):
            return None
        shown = _shown_in(request)
        principal = self._credentials.remembered(shown, seconds)
        return None if principal is None else (shown, principal)

    async def _authenticate(
        self, request: Request, remembered: _Remembered | None = None
    ) -> Principal:
        """Authenticate a request and count it against the rate limit."""
        if remembered is not None:
            principal = remembered[1]
        elif isinstance(self._credentials, Credentials):
            principal = await self._run(partial(self._credentials.principal_of, _shown_in(request)))
        else:
            result = self._credentials(request)
            principal = await result if isawaitable(result) else result
        request.scope[_LINE].asker = principal.name
        wait = self._buckets.wait(f"{principal.name} {principal.users}", monotonic())
        if wait:
            detail = f"This credential makes too many requests. Try again in {wait} s."
            raise Refused(Kind.TOO_MANY, detail, headers={"Retry-After": str(wait)})
        return principal

    async def _run(self, call: Callable[[], T], threads: int = THREADS) -> T:
        """Run a call on one of the memory's threads, with the time limit."""
        running = self._memory._run(call, threads)
        return await asyncio.wait_for(running, self._limits.call_seconds)

    def _open_batchers(self) -> dict[str, Batcher[_Job]]:
        memory = self._memory.memory
        if memory.config.overflow_mode != "background":
            return {}  # an inline update may call a model before it returns
        parallel = _REMOTE_BATCHES if memory.components.store.remote else 1
        run, seconds = self._memory._run, self._limits.call_seconds
        return {
            each.name: Batcher(run, partial(self._call_all, each.run_all), parallel, seconds)
            for each in OPERATIONS
            if each.run_all is not None
        }

    def _call(self, run: Run, job: _Job) -> Any:
        cached, at, form = job
        refusal = self._refusal(cached)
        if refusal is not None:
            raise refusal
        return run(at, form)

    def _call_all(self, run_all: RunAll, jobs: Sequence[_Job]) -> list[Any]:
        refusals = {cached: self._refusal(cached) for cached in {job[0] for job in jobs}}
        admitted = [(at, form) for cached, at, form in jobs if refusals[cached] is None]
        answers = iter(run_all(admitted) if admitted else ())
        return [refusals[cached] or next(answers) for cached, _, _ in jobs]

    def _refusal(self, remembered: _Remembered | None) -> Exception | None:
        """Verify a cached credential again. Return an error if it is no longer valid, else None.

        The check runs on the thread of the call, because handing the check to another thread would
        cost more than the call itself.
        """
        if remembered is None:  # the credential was verified when the request arrived
            return None
        shown, principal = remembered
        try:
            is_same = self._credentials.principal_of(shown) == principal  # type: ignore[union-attr]
        except Exception as error:  # noqa: BLE001 - the caller raises it
            return error
        return None if is_same else unauthenticated()

    async def _pieces(self, items: Iterator[Any], operation: Operation) -> AsyncGenerator[bytes]:
        """Encode the items of a stream. If the stream fails, its last item has problem details."""
        step, threads = partial(next, items, None), _threads_of(operation)
        try:
            while True:
                item = None
                with anyio.CancelScope(shield=True):  # `items` cannot be closed while it runs
                    item = await self._memory._run(step, threads)
                if item is None:
                    break
                yield wire.line_of(item, operation.streams)
        except AgentMemoryError as error:
            logger.warning("A stream failed: %s", type(error).__name__)
            failed = {"event": "error", "kind": "error", "problem": problem_of(error).body()}
            yield wire.line_of(failed, operation.streams)
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    def _log_failure(self, line: _LogLine, error: Exception, kind: Kind) -> None:
        if kind.status >= 500 and kind is not Kind.NOT_CONFIGURED:
            level = logging.ERROR if kind is Kind.BROKEN else logging.WARNING
            extra = fields(request=line.id, route=line.route)
            if isinstance(error, StoreUnavailable):  # its text names the store, and no user data
                logger.warning("A call failed: %s", error, extra=extra)
            else:
                logger.log(level, "A call failed", exc_info=error, extra=extra)

    def _note(self, line: _LogLine, traced: Span | None) -> None:
        seconds = perf_counter() - line.began
        if traced is not None:
            traced.update_name(f"{line.method} {line.route}")
            about = {"http.route": line.route, "http.response.status_code": line.status}
            set_attributes(traced, about)
            if line.status >= 500:
                failed(traced, str(line.status))
        if self._metrics is not None:
            self._metrics.ended(line.route, line.method, line.status, seconds)
        quiet = line.route.startswith(_HEALTH) and line.status < 500
        logger.log(
            logging.DEBUG if quiet else logging.INFO,
            "request",
            extra=fields(
                request=line.id,
                method=line.method,
                route=line.route,
                status=line.status,
                ms=round(seconds * 1_000, 1),
                key=line.asker,
            ),
        )

    async def _live(self, request: Request) -> Response:
        """Answer that the process is alive, without any check."""
        return _named(request, wire.answer_of({"status": "live"}))

    async def _is_ready(self, request: Request) -> Response:
        ready = await self._reachable()
        status = {"status": "ready" if ready else "the store does not answer"}
        return _named(request, wire.answer_of(status, 200 if ready else 503))

    async def _reachable(self) -> bool:
        """Return whether the store answers. The store is checked at most once in 2 seconds."""
        ready, at = self._ready
        if monotonic() - at >= _READY_SECONDS:
            self._ready = (ready, monotonic())
            ready = await self._answers()
            self._ready = (ready, monotonic())
        return ready

    async def _answers(self) -> bool:
        parts = self._memory.memory.components
        try:
            parts.guard.check(None, None)
            await asyncio.wait_for(self._memory.run(parts.store.existing, ["-"]), _READY_SECONDS)
        except Exception as error:  # noqa: BLE001 - drivers raise their own errors
            logger.warning("The store does not answer: %s", error_text(error))
            return False
        return True

    async def _figures(self, request: Request) -> Response:
        assert self._metrics is not None, "without metrics there is no route"
        up = await self._reachable()
        # without the store no key can be verified, but the metrics must show the outage
        remembered = None if up else self._remembered(request, inf)
        principal = await self._authenticate(request, remembered)
        principal.require("admin")
        body = self._metrics.text(up, await self.figures.reading() if up else Reading())
        return _named(request, Response(body, 200, wire.ALWAYS, self._metrics.media_type))

    async def _described(self, request: Request) -> Response:
        return _named(request, Response(self._document, 200, wire.ALWAYS, "application/json"))


class _Stream(StreamingResponse):
    """A stream that ends when the client disconnects."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(cast("AsyncGenerator[bytes]", self.body_iterator)):
            await super().__call__(scope, receive, send)


def _named(request: Request, response: Response) -> Response:
    """Record the path as the route of a request, for a route without parameters."""
    request.scope[_LINE].route = request.scope["path"]
    return response


def _threads_of(operation: Operation) -> int:
    return MODEL_THREADS if operation.asks_model else THREADS


def _literals_first(path: str) -> list[tuple[bool, str]]:
    return [(part.startswith("{"), part) for part in path.split("/")]


def _decoded(part: str) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise Refused(Kind.NO_SUCH_CALL) from None


async def _no_such_call(scope: Scope, receive: Receive, send: Send) -> None:
    raise Refused(Kind.NO_SUCH_CALL)


def _refusal_of(error: Exception) -> Exception:
    if not isinstance(error, HTTPException):
        return error
    headers = error.headers or {}
    if error.status_code in (401, 403):  # raised by the application's own sign-in
        kind = Kind.UNAUTHENTICATED if error.status_code == 401 else Kind.FORBIDDEN
        return Refused(kind, str(error.detail), headers=headers)
    return Refused(Kind.WRONG_METHOD if "Allow" in headers else Kind.NO_SUCH_CALL, headers=headers)


def _shown_in(request: Request) -> str:
    shown = shown_in(request.scope["headers"])
    if shown is None:
        raise unauthenticated()
    return shown


def _user_of(operation: Operation, principal: Principal, named: str | None) -> str:
    """Return the user of a request. Empty if the request concerns no single user."""
    if operation.anyones and named is None and "admin" in principal.rights:
        return ""
    if operation.of_user:
        return principal.user(named)
    if named is not None:
        raise Refused(Kind.INVALID, "This call takes no user_id. Remove it.")
    return ""
