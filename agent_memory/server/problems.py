"""Problem details (RFC 9457) for calls that were refused or failed. Pure.

The response is the same for another user's data and for data that does not exist. It never contains
the message of an internal error, which may name hosts or repeat user data.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from agent_memory import errors

if TYPE_CHECKING:
    from pydantic import ValidationError

MEDIA_TYPE = "application/problem+json"

_LONGEST_PLACE = 100
_MOST_MISTAKES = 10


class Kind(Enum):
    """A kind of problem: its name, status, title, error, and detail.

    The name of a kind never changes, so that programs can rely on it. `error` is the class of
    `agent_memory.errors` that the client raises, unless the problem names another class. `detail`
    is the usual detail of a problem of this kind. None means the message of the error.
    """

    INVALID = ("invalid-request", 422, "The request is invalid", errors.InvalidInput)
    UNREADABLE = ("unreadable-body", 400, "The body is not a JSON object", errors.InvalidInput)
    UNAUTHENTICATED = (
        "unauthenticated",
        401,
        "A valid credential is required",
        errors.AccessDenied,
        "Send `Authorization: Bearer` with a valid key. `agent-memory keys create` creates one.",
    )
    FORBIDDEN = ("forbidden", 403, "The credential lacks the right", errors.AccessDenied)
    NOT_FOUND = (
        "not-found",
        404,
        "Not found",
        errors.AccessDenied,
        "The data does not exist, or this credential has no access to it. Check the ids.",
    )
    NO_SUCH_CALL = (
        "no-such-call",
        404,
        "There is no such call",
        errors.UnsupportedOperation,
        "The calls are listed at /v1/openapi.json.",
    )
    WRONG_METHOD = (
        "wrong-method",
        405,
        "The path does not support this method",
        errors.UnsupportedOperation,
        "Use one of the methods in the `Allow` header.",
    )
    CONFLICT = ("conflict", 409, "The request conflicts with an earlier one", errors.Conflict)
    CHANGED = ("changed", 412, "The version has changed", errors.VersionConflict)
    TOO_LARGE = ("too-large", 413, "The request is too large", errors.MessageTooLarge)
    TOO_MANY = ("too-many-requests", 429, "Too many requests", errors.StoreUnavailable)
    BROKEN = (
        "internal",
        500,
        "The call failed",
        errors.AgentMemoryError,
        "The call failed because of an error in the service. The service's log has the error under "
        "the request's id.",
    )
    NOT_CONFIGURED = (
        "not-configured",
        501,
        "The service is not configured for this",
        errors.ConfigError,
    )
    MODEL_FAILED = (
        "model-failed",
        502,
        "The model failed",
        errors.ModelError,
        "The model gave no usable answer, or was not called. Nothing was stored.",
    )
    DAMAGED = (
        "damaged",
        500,
        "A record is damaged",
        errors.Damaged,
        "A stored record is damaged. On the server, run `agent-memory doctor`.",
    )
    UNAVAILABLE = (
        "unavailable",
        503,
        "The service is temporarily unavailable",
        errors.StoreUnavailable,
        "The memory is temporarily unavailable. Try again. Repeat a write with the same "
        "Idempotency-Key.",
    )
    TOO_SLOW = (
        "too-slow",
        504,
        "The call took too long",
        errors.StoreUnavailable,
        "The call did not finish in time. It may still finish. Try again. Repeat a write with the "
        "same Idempotency-Key.",
    )

    def __init__(
        self,
        name: str,
        status: int,
        title: str,
        error: type[errors.AgentMemoryError],
        detail: str | None = None,
    ) -> None:
        self.type = f"urn:agent-memory:problem:{name}"
        self.status = status
        self.title = title
        self.error = error
        self.detail = detail


_KINDS: Mapping[type[BaseException], Kind] = {
    errors.VersionConflict: Kind.CHANGED,
    errors.Conflict: Kind.CONFLICT,
    errors.SessionExists: Kind.CONFLICT,
    errors.MessageTooLarge: Kind.TOO_LARGE,
    errors.InvalidInput: Kind.INVALID,
    errors.AccessDenied: Kind.NOT_FOUND,
    errors.InvalidBudget: Kind.INVALID,
    errors.ConfigError: Kind.NOT_CONFIGURED,
    errors.UnsupportedOperation: Kind.NOT_CONFIGURED,
    errors.Damaged: Kind.DAMAGED,
    errors.StoreError: Kind.UNAVAILABLE,
    errors.MemoryClosed: Kind.UNAVAILABLE,
    errors.ModelRequired: Kind.NOT_CONFIGURED,
    errors.ModelError: Kind.MODEL_FAILED,
    TimeoutError: Kind.TOO_SLOW,
}


class Refused(errors.AgentMemoryError):
    """An error that the service answers with problem details.

    `detail` says what is wrong and what to do. `error` is the class that the client raises. If one
    of the two is None, the kind's value is used.
    """

    def __init__(
        self,
        kind: Kind,
        detail: str | None = None,
        mistakes: tuple[Mapping[str, str], ...] = (),
        error: type[BaseException] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self.detail = kind.detail or kind.title if detail is None else detail
        self.mistakes = mistakes
        self.error = error or kind.error
        self.headers = headers or {}
        super().__init__(self.detail)

    def body(self) -> dict[str, Any]:
        kind = self.kind
        fields = {"type": kind.type, "title": kind.title, "status": kind.status}
        more = {"errors": list(self.mistakes)} if self.mistakes else {}
        return {**fields, "detail": self.detail, "error": self.error.__name__, **more}


def not_found() -> Refused:
    """Return the error for data that does not exist or belongs to another user."""
    return Refused(Kind.NOT_FOUND)


def other_user() -> Refused:
    """Return the error for a user that the credential may not act for, existing or not."""
    mistake = {"field": "user_id", "problem": "this credential has no access to this user"}
    return Refused(Kind.NOT_FOUND, f"user_id: {mistake['problem']}.", (mistake,))


def problem_of(error: BaseException) -> Refused:
    if isinstance(error, Refused):
        return error
    kind = next((_KINDS[base] for base in type(error).__mro__ if base in _KINDS), Kind.BROKEN)
    # the client learns the class of this library's errors, but not why something was not found
    own = type(error).__module__ == errors.__name__ and kind is not Kind.NOT_FOUND
    detail = str(error) if kind.detail is None else kind.detail
    return Refused(kind, detail, error=type(error) if own else None)


def invalid(error: ValidationError) -> Refused:
    """Return the error for an invalid form. The error repeats no value of the form."""
    failures = error.errors(include_url=False, include_input=False, include_context=False)
    mistakes = tuple(
        {"field": ".".join(map(str, failure["loc"]))[:_LONGEST_PLACE], "problem": _problem(failure)}
        for failure in failures[:_MOST_MISTAKES]
    )
    first = mistakes[0]
    detail = f"{first['field'] or 'The request'}: {first['problem']}."
    return Refused(Kind.INVALID, detail, mistakes)


def _problem(failure: Mapping[str, Any]) -> str:
    if failure["type"] == "extra_forbidden":
        return "there is no such field"
    return str(failure["msg"]).removeprefix("Value error, ").rstrip(".")
