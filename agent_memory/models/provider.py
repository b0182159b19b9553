"""Requests to a model through litellm, with retries, charges and this library's errors.

Only this module retries. Retries by litellm and by the provider's SDK are off: nested retries
would multiply the calls, and hide the provider's Retry-After header.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import SecretStr

from agent_memory.core.formats.chat import with_name_in_text
from agent_memory.core.threads import is_unwanted, off_main_thread
from agent_memory.core.tracing import current, leaving
from agent_memory.errors import (
    ContextTooLong,
    ModelError,
    ModelForbidden,
    ModelRefused,
    ModelUnavailable,
)
from agent_memory.models.loading import load_litellm
from agent_memory.models.tracing import answered, traced
from agent_memory.models.usage import Account, Call, Charges, Kind, current_account

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")

logger = logging.getLogger(__name__)

_TRY_AGAIN = {408, 409, 425, 429}
_KEY_REFUSED = {401, 403}
# litellm reports a missing key as a server error.
_NO_KEY = re.compile("Missing credentials|api_key client option must be set")
_WITHOUT_NAMES = {
    *("anthropic", "bedrock", "bedrock_converse", "cohere", "cohere_chat", "gemini", "mistral"),
    *("vertex_ai", "vertex_ai_beta"),
}
"""Providers whose requests have no field for a speaker's name."""
_NO_PROVIDER = "LLM Provider NOT provided"
_SECRETS = re.compile(r"(?i)((?:api[-_]?key|key|token|bearer|authorization)[=: ]+)\S+|\bsk-[\w-]+")


class _NoRetries(int):
    """A truthy 0. litellm's embedding call treats a plain 0 as "not set", and retries."""

    def __bool__(self) -> bool:
        return True


def _forget_clients() -> None:
    """In a forked child, replace the inherited connections, which the parent still uses."""
    litellm: Any = sys.modules.get("litellm")
    if litellm is not None:
        # keep a reference, because garbage collection would close the connections
        _parents.append(litellm.in_memory_llm_clients_cache)
        litellm.in_memory_llm_clients_cache = type(_parents[-1])()


_parents: list[Any] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_clients)


class Provider:
    """Base of models and embedders: one model with its address and key. Thread-safe.

    Calls wait and retry after a rate limit, a timeout, a lost connection or a server error.
    """

    initial_wait = 0.5
    """Seconds before the second attempt. The wait doubles with each attempt, plus jitter."""
    max_wait = 20.0
    """Maximum seconds between two attempts, even if Retry-After is longer."""

    def __init__(
        self,
        model: str,
        *,
        api_base: str | None = None,
        api_key: SecretStr | None = None,
        timeout: float = 30.0,
        attempts: int = 4,
        charges: Charges | None = None,
    ) -> None:
        self.model = model
        self.api_base = api_base
        self.charges = Charges() if charges is None else charges
        self._account: Account | None = None
        self._api_key = api_key
        self._timeout = timeout
        self._attempts = attempts

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    def charged_to(self, account: Account) -> Self:
        """Return a copy whose calls are all charged to one account."""
        other = copy(self)
        other._account = account
        return other

    def begin(self, kind: Kind, request: Sequence[Any], answer: int | None = None) -> Call:
        """Return a new call, to pass to `retried`. See `Call` for the arguments."""
        account = self._account or current_account() or Account("other")
        return Call(kind, self.model, account, request, answer)

    @off_main_thread
    def send(self, kind: Kind, *, timeout: float | None = None, **fields: Any) -> Any:
        """Send one request, without retries. Call this method within `retried`.

        Parameters that the model does not support are left out. The headers of a trace are sent
        only if `api_base` is set, because a public provider should not get them.
        """
        litellm = load_litellm()
        if kind == "completion":
            # Without this option, litellm may use an MCP handler that needs packages of its proxy.
            call = partial(litellm.completion, _skip_mcp_handler=True)
            fields["messages"] = self._named(fields["messages"])
        else:
            call = litellm.embedding
        headers = {} if self.api_base is None else leaving()
        if headers:
            fields["extra_headers"] = {**headers, **(fields.get("extra_headers") or {})}
        return call(
            model=self.model,
            api_base=self.api_base,
            api_key=None if self._api_key is None else self._api_key.get_secret_value(),
            timeout=self._timeout if timeout is None else timeout,
            num_retries=0,
            max_retries=_NoRetries(0),
            drop_params=True,
            **_readable(fields),
        )

    def _named(self, messages: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Return messages with users' names in the texts, if litellm would drop the names."""
        named = [with_name_in_text(message) for message in messages]
        if named != messages:
            _, provider, *_ = load_litellm().get_llm_provider(self.model, api_base=self.api_base)
            return named if provider in _WITHOUT_NAMES else messages
        return messages

    def answered(
        self,
        kind: Kind,
        request: Sequence[Any],
        fields: dict[str, Any],
        limit: int | None = None,
        check: Callable[[Any], object] = bool,
    ) -> Any:
        """Send a request, and return the response. The request is traced, retried and charged.

        `check` raises if the response is unusable; the trace then shows the error.
        """
        call = self.begin(kind, request, limit)
        with traced(call, self.api_base, fields) as span:
            with current(span):
                response = self.retried(call, lambda: self.send(kind, **fields))
            usage = getattr(response, "usage", None)
            answered(span, response, self.charges.done(call, usage, response))
            check(response)
        return response

    def retried(self, call: Call, work: Callable[[], T]) -> T:
        """Call `work`. Repeat it after failures that look temporary.

        Raises:
            SpendingLimitReached: A spending limit allows no further attempt.
            ModelUnavailable: All attempts failed.
            ModelRefused: The provider refused; no further attempt was made.
        """
        import tenacity  # slow to import

        first = self.initial_wait
        backoff = tenacity.wait_exponential(first) + tenacity.wait_random(0, first)

        def wait(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome is not None else None
            return min(self.max_wait, max(backoff(state), _retry_after(error)))

        retrying = tenacity.Retrying(
            stop=lambda state: is_unwanted() or state.attempt_number >= self._attempts,
            wait=wait,
            retry=tenacity.retry_if_exception(_is_temporary),
            before_sleep=partial(self._note, call),
            reraise=True,
        )

        def attempt() -> T:
            self.charges.begin(call)
            return work()

        with self.translated(call):
            result: T = retrying(attempt)
            return result

    @contextmanager
    def translated(self, call: Call, *, midway: bool = False) -> Iterator[None]:
        """Replace the provider's errors by errors of this library.

        The errors are not chained, because the provider's error may quote the API key. An answer
        of which a part has arrived (`midway`) is not retried.
        """
        # this imports openai under a lock, because two threads must not import it at the same time
        load_litellm()
        from openai import OpenAIError  # the base class of litellm's errors

        try:
            yield
        except OpenAIError as error:
            self.charges.failed(call, _may_be_billed(error, midway))
            raise self._translate(error, midway) from None

    def check_complete(self, call: Call, stream: Any) -> None:
        """Raise ModelUnavailable if a stream ended without a finish reason.

        litellm treats a connection that was closed early as the end of the answer.
        """
        if not (stream.received_finish_reason or stream.intermittent_finish_reason):
            self.charges.failed(call, may_be_billed=True)
            raise self._broke_off("the connection was closed")

    def _note(self, call: Call, state: RetryCallState) -> None:
        """Record and log a failed attempt before the next one."""
        error = state.outcome.exception() if state.outcome is not None else None
        self.charges.failed(call, _may_be_billed(error))
        logger.info(
            "%s: attempt %d of %d failed (%s); trying again in %.1f s",
            self.model,
            state.attempt_number,
            self._attempts,
            type(error).__name__,
            state.upcoming_sleep,
        )

    def _broke_off(self, reason: str) -> ModelUnavailable:
        return ModelUnavailable(
            f"{self.model} broke off in the middle of its answer: {reason}. Try again."
        )

    def _translate(self, error: Exception, midway: bool) -> ModelError:
        too_long = isinstance(error, load_litellm().ContextWindowExceededError)
        if too_long or getattr(error, "code", None) == "context_length_exceeded":
            return ContextTooLong(
                f"The request exceeds the context window of {self.model}. "
                "Send less, or use a model with a larger window."
            )
        reason = self._reason(error)
        if midway:
            return self._broke_off(reason)
        if _is_temporary(error):
            return ModelUnavailable(
                f"{self.model} could not be reached in {self._attempts} attempts: {reason}. "
                "Try again later. Check the provider's status, `api_base` and the timeout."
            )
        if getattr(error, "status_code", None) in _KEY_REFUSED or _NO_KEY.search(str(error)):
            return ModelForbidden(
                f"{self.model} refused the API key or received none. {self._key_hint()}"
            )
        if _NO_PROVIDER in str(error):
            return ModelForbidden(
                f"The model {self.model!r} names no provider that litellm knows. Name it as "
                "provider/model, such as openai/gpt-4o-mini."
            )
        refused = ModelForbidden if getattr(error, "status_code", None) == 404 else ModelRefused
        remedy = "Check the model's name and settings."
        filtered = isinstance(error, load_litellm().ContentPolicyViolationError)
        if filtered or getattr(error, "code", None) == "content_filter":
            remedy = "Relax the content filter, or use another model."
        return refused(f"{self.model} refused the request: {reason}. {remedy}")

    def _key_hint(self) -> str:
        missing = load_litellm().validate_environment(self.model)["missing_keys"]
        if missing and self._api_key is None:
            return f"Set {' and '.join(missing)} in the environment, or pass `api_key`."
        return "Check `api_key`, or the environment variable that the provider reads it from."

    def _reason(self, error: Exception) -> str:
        """Return the provider's error text as one short line, with keys masked."""
        text = " ".join(str(error).split())
        if self._api_key is not None and self._api_key.get_secret_value():
            text = text.replace(self._api_key.get_secret_value(), "***")
        return _SECRETS.sub(r"\1***", text)[:300].rstrip(". ")


def _readable(value: Any) -> Any:
    """Replace lone surrogates by "?". Stored messages may contain them, but requests cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_readable(item) for item in value]
    if isinstance(value, dict):
        return {key: _readable(item) for key, item in value.items()}
    return value


def _is_temporary(error: BaseException) -> bool:
    """Return whether an error may be temporary, such as a rate limit or a lost connection."""
    from openai import APIConnectionError, OpenAIError  # timeouts are connection errors, too

    if not isinstance(error, OpenAIError) or _NO_KEY.search(str(error)):
        return False
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return status in _TRY_AGAIN or status >= 500
    return isinstance(error, APIConnectionError)


def _may_be_billed(error: BaseException | None, midway: bool = False) -> bool:
    """Return whether the provider may bill an answer that failed or arrived only in part."""
    from openai import APITimeoutError

    return midway or isinstance(error, APITimeoutError)


def _retry_after(error: BaseException | None) -> float:
    """Return the seconds in the provider's Retry-After header, or 0."""
    for headers in (
        getattr(getattr(error, "response", None), "headers", None),
        getattr(error, "litellm_response_headers", None),
    ):
        value = (headers or {}).get("retry-after", "")
        if re.fullmatch(r"\d+(\.\d+)?", value):
            return float(value)
    return 0.0
