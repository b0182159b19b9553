"""One request to a service: who asks, what is tried again, and a problem as the library's error."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_random_exponential

from agent_memory import errors
from agent_memory.core.processes import begin_anew_in_child, fork_safe_lock
from agent_memory.core.tracing import leaving
from agent_memory.errors import AgentMemoryError, ConfigError, MemoryClosed, StoreUnavailable

if TYPE_CHECKING:
    import httpx

KEY = "AGENT_MEMORY_SERVICE_KEY"
"""The environment variable for the key. `AGENT_MEMORY_API_KEY` is another: that of the model."""

MARK = "am_"
"""How keys of a service begin."""

_PREFIX = "/v1"
_USER = "user_id"
_CONNECT_SECONDS = 10.0
_LONGEST_WAIT = 30.0
_PARTS_OF_A_JWT = 3
_BUSY = (429, 503)


class Service:
    """A service, as whoever has a key asks it. Safe to share between threads, and by forks.

    Args:
        url: Its address, without /v1.
        api_key: A key of it, or a JWT that it takes; None for what `AGENT_MEMORY_SERVICE_KEY` says.
        timeout: So many seconds an answer may let us wait.
        attempts: So often a request is made where it could not be, or is to be made later.
        plain_http: Whether the key may cross a network unencrypted.

    Attributes:
        url: As given.

    Raises:
        ConfigError: It is no such address or key, or the key would cross a network unencrypted.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        timeout: float = 70.0,
        attempts: int = 4,
        plain_http: bool = False,
    ) -> None:
        self.url = _address(url, plain_http)
        self._key = _checked_key(os.environ.get(KEY) if api_key is None else api_key)
        self._timeout = timeout
        self._attempts = attempts
        self._open: httpx.Client | None = None
        self._closed = False
        self._opening = fork_safe_lock(own=True)
        begin_anew_in_child(self, Service._begin)  # no connection has two processes

    def __repr__(self) -> str:
        return f"Service({self.url!r})"

    def ask(
        self, path: str, body: Mapping[str, Any], user_id: str | None = None, *, again: bool = True
    ) -> Any:
        """What is answered to a request.

        Args:
            path: Its path below /v1.
            body: What is asked.
            user_id: For whom, where the key is for several.
            again: Whether it may be made again where nobody knows whether it arrived.

        Raises:
            AgentMemoryError: As the service tells it; or it cannot be reached.
        """

        def once() -> Any:
            with self._sent(path, body, user_id) as response:
                return _read(response.read())["value"]

        return self._tries(again)(once)

    def lines(
        self, path: str, body: Mapping[str, Any], user_id: str | None = None, *, again: bool = True
    ) -> Generator[Any, None, Any]:
        """As `ask`, of an answer that comes piece by piece; it returns what the last line has.

        Raises:
            AgentMemoryError: As the service tells it; or it cannot be reached, or was cut short.
        """
        with ExitStack() as opened, _unreachable(self.url):

            def once() -> httpx.Response:
                return opened.enter_context(self._sent(path, body, user_id))

            response = self._tries(again)(once)
            for line in response.iter_lines():
                told = _read(line)
                if "problem" in told:
                    raise _error_of(told["problem"])
                if "end" in told:
                    return told["end"]
                yield told["value"]
        raise StoreUnavailable(f"The answer of {self.url} was cut short. Ask again.")

    def close(self) -> None:
        """Release the connections. Idempotent."""
        with self._opening:
            self._closed = True
            client, self._open = self._open, None
        if client is not None:
            client.close()

    @contextmanager
    def _sent(
        self, path: str, body: Mapping[str, Any], user_id: str | None
    ) -> Iterator[httpx.Response]:
        given = json.dumps(body, separators=(",", ":")).encode()  # ASCII: lone surrogates escaped
        params = {} if user_id is None else {_USER: user_id}
        with (
            _unreachable(self.url),
            self._client().stream(
                "POST", f"{_PREFIX}{path}", content=given, params=params, headers=leaving()
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

        shown = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        return httpx.Client(
            base_url=self.url,
            headers=shown,
            timeout=httpx.Timeout(self._timeout, connect=_CONNECT_SECONDS),
            follow_redirects=False,  # the key is for this address alone
            verify=self.url.startswith("https:"),  # certificates take a while to load
        )

    def _begin(self) -> None:
        self._open = None

    def _tries(self, again: bool) -> Retrying:
        def is_worth_it(error: BaseException) -> bool:
            if isinstance(error, _Unreached):
                return again or not error.may_be_done
            return status_of(error) in (_BUSY if again else _BUSY[:1])

        return Retrying(
            stop=stop_after_attempt(self._attempts),
            wait=_wait,
            retry=retry_if_exception(is_worth_it),
            reraise=True,
        )


def status_of(error: BaseException) -> int:
    """With which status the service told an error; 0 for one of another origin."""
    return getattr(error, "status", 0)


class _Unreached(StoreUnavailable):
    """The service was not reached, or its answer did not arrive."""

    may_be_done = True


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    told = getattr(error, "retry_after", None)
    if told is not None:
        return min(float(told), _LONGEST_WAIT)
    return _GROWING(state)


_GROWING = wait_random_exponential(multiplier=0.2, max=5.0)


@contextmanager
def _unreachable(url: str) -> Iterator[None]:
    """Tell what went wrong with a connection, without what was sent over it."""
    import httpx

    try:
        yield
    except httpx.TransportError as error:
        told = _Unreached(
            f"The service at {url} does not answer: {type(error).__name__}. Look whether it runs "
            "(/health/live). A write with the same `key` may be made again."
        )
        told.may_be_done = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
        raise told from None
    except httpx.StreamError as error:
        raise StoreUnavailable(f"The answer of {url} was cut short. Ask again.") from error


def _problem_in(response: httpx.Response, url: str) -> AgentMemoryError:
    """The error that a response tells."""
    status = response.status_code
    if response.is_redirect:
        return ConfigError(
            f"{url} sends us elsewhere ({status}), and the key is not shown to others. Give the "
            "address that it has."
        )
    try:
        error = _error_of(json.loads(response.read()))
    except (ValueError, KeyError, TypeError, AttributeError):  # no service of ours answers so
        error = StoreUnavailable(
            f"{url} answers {status}, and not as the service does. Look at the address, and at "
            "what stands between."
        )
    error.status = status  # type: ignore[attr-defined]
    after = response.headers.get("retry-after", "")
    error.retry_after = int(after) if after.isdigit() else None  # type: ignore[attr-defined]
    return error


def _error_of(problem: Mapping[str, Any]) -> AgentMemoryError:
    """The library's error that a problem names; its root for one of a later release."""
    kind = getattr(errors, str(problem["error"]), AgentMemoryError)
    if not (isinstance(kind, type) and issubclass(kind, AgentMemoryError)):
        kind = AgentMemoryError
    error: AgentMemoryError = kind.__new__(kind)
    Exception.__init__(error, str(problem["detail"]))
    return error


def _read(text: bytes | str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise StoreUnavailable("The service's answer is no JSON. Ask again.") from None


def _address(url: str, plain_http: bool) -> str:
    import httpx

    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        raise ConfigError("The service's address is no URL: https://memory.example.com.") from None
    if parts.userinfo or parts.query or parts.fragment or not parts.host:
        raise ConfigError(
            "The service's address has more than a place: give https://memory.example.com, and the "
            "key as api_key."
        )
    if parts.scheme == "http" and not plain_http and not _is_loopback(parts.host):
        raise ConfigError(
            f"The key would cross the network unencrypted, to {parts.host}. Use https://; or say "
            "plain_http=True where the network is your own."
        )
    return str(parts).rstrip("/").removesuffix(_PREFIX)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _checked_key(key: str | None) -> str:
    """A key of a service, or a JWT. Whatever else is a secret of something else, and stays here."""
    key = (key or "").strip()
    is_jwt = key.count(".") == _PARTS_OF_A_JWT - 1
    if not key.startswith(MARK) and not (is_jwt and key.isascii()):
        raise ConfigError(
            f"{'This is no key of the service' if key else 'The service needs a key'}: give one as "
            f"api_key, or in {KEY}. `agent-memory keys create` makes one; it begins with am_."
        )
    return key
