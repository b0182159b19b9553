"""Requests to a service, with authentication, retries, and the library's errors."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_random_exponential

from agent_memory import errors
from agent_memory.client.calls import EXACT
from agent_memory.core.limits import how_many, quoted
from agent_memory.core.processes import begin_anew_in_child, fork_safe_lock
from agent_memory.core.tracing import leaving
from agent_memory.errors import AgentMemoryError, ConfigError, MemoryClosed, StoreUnavailable

if TYPE_CHECKING:
    import httpx

KEY = "AGENT_MEMORY_SERVICE_KEY"
"""The environment variable with the service's key. `AGENT_MEMORY_API_KEY` has the model's key."""

MARK = "am_"
"""The prefix of a service's keys."""

_PREFIX = "/v1"
_NOT_FOUND = "urn:agent-memory:problem:not-found"
_CONNECT_SECONDS = 10.0
_LONGEST_WAIT = 30.0
_PARTS_OF_A_JWT = 3
_BUSY = (429, 503)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a service. `again` allows a retry even if the request may have taken effect."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    again: bool = True


class Service:
    """A client of a service, for `RemoteMemory`. Thread-safe, and safe to use after a fork."""

    def __init__(
        self, url: str, api_key: str | None, timeout: float, attempts: int, plain_http: bool
    ) -> None:
        self.url = _address(url, plain_http)
        self._key = _checked_key(os.environ.get(KEY) if api_key is None else api_key)
        if not isinstance(timeout, int | float) or not timeout > 0:
            raise ConfigError(f"timeout is {quoted(timeout)}. Give a number of seconds above 0.")
        self._timeout = timeout
        self._attempts = how_many("attempts", attempts, 1)
        self._open: httpx.Client | None = None
        self._closed = False
        self._opening = fork_safe_lock(own=True)
        begin_anew_in_child(self, Service._begin)  # processes cannot share a connection

    def __repr__(self) -> str:
        return f"Service({self.url!r})"

    def ask(self, request: Request) -> Any:
        """Make a request. Return the answer's value, or raise the error that the answer names."""

        def attempt() -> Any:
            with self._response(request) as response:
                return _read(response.read(), self.url)["value"]

        return self._tries(request.again)(attempt)

    def events(self, request: Request) -> Generator[Any, None, Any]:
        """Make a request. Yield the values of streamed events, and return the last value."""
        with ExitStack() as opened, _unreachable(self.url):

            def attempt() -> httpx.Response:
                return opened.enter_context(self._response(request))

            response = self._tries(request.again)(attempt)
            event = ""
            for line in response.iter_lines():
                name, _, text = line.partition(": ")
                if name == "event":
                    event = text
                elif name == "data":
                    data = _read(text, self.url)
                    if event == "error":
                        raise _error_of(data["problem"])
                    if event == "end":
                        return data["value"]
                    yield data["value"]
        raise StoreUnavailable(f"The answer of {self.url} was cut off. Try again.")

    def close(self) -> None:
        with self._opening:
            self._closed = True
            client, self._open = self._open, None
        if client is not None:
            client.close()

    @contextmanager
    def _response(self, request: Request) -> Iterator[httpx.Response]:
        headers = {**request.headers, **leaving()}
        content = None
        if request.body is not None:  # ASCII, so that lone surrogates are escaped
            content = json.dumps(request.body, separators=(",", ":")).encode()
            headers["Content-Type"] = "application/json"
        with (
            _unreachable(self.url, request.again),
            self._client().stream(
                request.method,
                f"{_PREFIX}{request.path}",
                content=content,
                params=request.query,
                headers=headers,
            ) as response,
        ):
            if response.status_code != 200:
                raise _problem_in(response, self.url)
            yield response

    def _client(self) -> httpx.Client:
        with self._opening:
            if self._closed:
                raise MemoryClosed("This memory was closed. Open a new one.")
            if self._open is None:
                self._open = self._opened()
            return self._open

    def _opened(self) -> httpx.Client:
        import httpx

        shown = {"Authorization": f"Bearer {self._key}", "Accept": EXACT}
        return httpx.Client(
            base_url=self.url,
            headers=shown,
            timeout=httpx.Timeout(self._timeout, connect=_CONNECT_SECONDS),
            follow_redirects=False,  # the key must not be sent to another address
            # plain HTTP needs no certificates, which are slow to load
            verify=self.url.startswith("https:"),
        )

    def _begin(self) -> None:
        self._open = None

    def _tries(self, again: bool) -> Retrying:
        def is_worth_it(error: BaseException) -> bool:
            if isinstance(error, _Unreached):
                return again or not error.may_be_done
            return getattr(error, "status", 0) in (_BUSY if again else _BUSY[:1])

        stop, retry = stop_after_attempt(self._attempts), retry_if_exception(is_worth_it)
        return Retrying(stop=stop, wait=_wait, retry=retry, reraise=True)


def is_missing(error: BaseException) -> bool:
    """Return whether the answer is "not found", which may also mean that the key has no access."""
    return type(error) is errors.AccessDenied and getattr(error, "is_missing", False)


class _Unreached(StoreUnavailable):
    """The service could not be reached, or its answer did not arrive."""

    may_be_done = True


def _wait(state: RetryCallState) -> float:
    seconds = getattr(state.outcome and state.outcome.exception(), "retry_after", None)
    return _GROWING(state) if seconds is None else min(float(seconds), _LONGEST_WAIT)


_GROWING = wait_random_exponential(multiplier=0.2, max=5.0)


@contextmanager
def _unreachable(url: str, again: bool = True) -> Iterator[None]:
    """Translate connection errors of httpx. The new errors lack the request and its key."""
    import httpx

    try:
        yield
    except httpx.TransportError as error:
        advice = "A write may be repeated with the same `key`."
        if not again:
            advice = "The call may have taken effect: read the data before you repeat it."
        may_be_done = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
        # before a connection, the reason names no header: a host, or what is wrong with TLS
        reason = type(error).__name__ if may_be_done else f"{type(error).__name__}: {error}"
        failure = _Unreached(
            f"The service at {url} does not answer: {reason}. Check that it runs "
            f"(/health/live). {advice}"
        )
        failure.may_be_done = may_be_done
        raise failure from None
    except httpx.StreamError as error:
        raise StoreUnavailable(f"The answer of {url} was cut off. Try again.") from error


def _problem_in(response: httpx.Response, url: str) -> AgentMemoryError:
    status = response.status_code
    if response.is_redirect:
        return ConfigError(
            f"{url} redirects ({status}), and the key is only sent to the given address. Pass the "
            "final address."
        )
    try:
        error = _error_of(json.loads(response.read()))
    except (ValueError, KeyError, TypeError, AttributeError):
        error = _not_a_service(url, status)
    error.status = status  # type: ignore[attr-defined]
    after = response.headers.get("retry-after", "")
    error.retry_after = int(after) if after.isdigit() else None  # type: ignore[attr-defined]
    return error


def _error_of(problem: Mapping[str, Any]) -> AgentMemoryError:
    """Return the error that a problem document names, or `AgentMemoryError` for an unknown name."""
    kind = getattr(errors, str(problem["error"]), AgentMemoryError)
    if not (isinstance(kind, type) and issubclass(kind, AgentMemoryError)):
        kind = AgentMemoryError
    error: AgentMemoryError = kind.__new__(kind)
    is_thing = problem.get("type") == _NOT_FOUND and "errors" not in problem
    error.is_missing = is_thing  # type: ignore[attr-defined]
    Exception.__init__(error, str(problem["detail"]))
    return error


def _read(text: bytes | str, url: str) -> Mapping[str, Any]:
    with suppress(ValueError):
        data = json.loads(text)
        if isinstance(data, dict) and data.keys() & {"value", "problem"}:
            return data
    raise _not_a_service(url, 200)


def _not_a_service(url: str, status: int) -> AgentMemoryError:
    return StoreUnavailable(
        f"{url} answers {status}, but is not an agent-memory service. Check the address and any "
        "proxy."
    )


def _address(url: str, plain_http: bool) -> str:
    import httpx

    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        raise ConfigError(
            "The service's address is not a URL. Use one such as https://memory.example.com."
        ) from None
    if parts.userinfo or parts.query or parts.fragment or not parts.host:
        raise ConfigError(
            "The service's address must have no user, query or fragment. Use one such as "
            "https://memory.example.com, and pass the key as api_key."
        )
    if parts.scheme == "http" and not plain_http and not _is_loopback(parts.host):
        raise ConfigError(
            f"The key would be sent unencrypted to {parts.host}. Use https://, or set "
            "plain_http=True in a private network."
        )
    return str(parts).rstrip("/").removesuffix(_PREFIX)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _checked_key(key: str | None) -> str:
    """Validate an API key or a JWT. Any other text may be another secret, and is not sent."""
    key = (key or "").strip()
    is_jwt = key.count(".") == _PARTS_OF_A_JWT - 1
    if not key.startswith(MARK) and not (is_jwt and key.isascii()):
        raise ConfigError(
            f"{'This is not a key of the service' if key else 'The service needs a key'}. Pass a "
            f"key as api_key, or in {KEY}. `agent-memory keys create` creates keys: am_..."
        )
    return key
