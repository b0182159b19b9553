"""What is told of a call that was refused or failed: problem details, as RFC 9457 has them. Pure.

What is another's and what does not exist are told in the same words. What failed on our side is for
the log: the sentence of a driver may name hosts, or hold what somebody said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_memory import errors

if TYPE_CHECKING:
    from pydantic import ValidationError

MEDIA_TYPE = "application/problem+json"

_PREFIX = "urn:agent-memory:problem:"
_LONGEST_PLACE = 100
_MOST_MISTAKES = 10


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem. Its name is stable; programs go by it.

    Attributes:
        name: What the problem's `type` ends with.
        status: The status of the answer.
        title: The kind, in a few words.
        error: The class of `agent_memory.errors` that the client raises where no error of the
            library's is behind it.
        detail: What is told of each; None for the error's own sentence.
    """

    name: str
    status: int
    title: str
    error: type[errors.AgentMemoryError]
    detail: str | None = None

    @property
    def type(self) -> str:
        """The `type` of its problems."""
        return f"{_PREFIX}{self.name}"


INVALID = Kind("invalid-request", 422, "The request is not usable", errors.InvalidInput)
UNREADABLE = Kind("unreadable-body", 400, "The body is no JSON object", errors.InvalidInput)
UNAUTHENTICATED = Kind(
    "unauthenticated",
    401,
    "A valid credential is needed",
    errors.AccessDenied,
    "Send `Authorization: Bearer` with a key that is valid; `agent-memory keys create` makes one.",
)
FORBIDDEN = Kind("forbidden", 403, "The credential has no such right", errors.AccessDenied)
NOT_FOUND = Kind(
    "not-found",
    404,
    "There is nothing of that name",
    errors.AccessDenied,
    "There is nothing of that name here for this credential. Look at the ids that were sent.",
)
NO_SUCH_CALL = Kind(
    "no-such-call",
    404,
    "There is no such call",
    errors.UnsupportedOperation,
    "The calls are listed at /v1/openapi.json.",
)
WRONG_METHOD = Kind(
    "wrong-method",
    405,
    "The path has no such method",
    errors.UnsupportedOperation,
    "Use one of those that `Allow` names.",
)
CONFLICT = Kind("conflict", 409, "It was said otherwise before", errors.Conflict)
CHANGED = Kind("changed", 412, "It is another version by now", errors.VersionConflict)
TOO_LARGE = Kind("too-large", 413, "The request is too large", errors.MessageTooLarge)
TOO_MANY = Kind("too-many-requests", 429, "Too many requests", errors.StoreUnavailable)
BROKEN = Kind(
    "internal",
    500,
    "The call failed",
    errors.AgentMemoryError,
    "The call failed here, not by what was sent. Whoever runs the service finds it in its log by "
    "the request's id.",
)
NOT_CONFIGURED = Kind(
    "not-configured", 501, "The service is not set up for that", errors.ConfigError
)
MODEL_FAILED = Kind(
    "model-failed",
    502,
    "The model failed",
    errors.ModelError,
    "The model could not answer. Nothing was stored.",
)
DAMAGED = Kind(
    "damaged",
    500,
    "A record is damaged",
    errors.Damaged,
    "One record is not what was written there. Whoever runs the service can look: agent-memory "
    "doctor.",
)
UNAVAILABLE = Kind(
    "unavailable",
    503,
    "The service cannot do that right now",
    errors.StoreUnavailable,
    "The memory cannot do that right now. Try again; a write with the same Idempotency-Key.",
)
TOO_SLOW = Kind(
    "too-slow",
    504,
    "The call took too long",
    errors.StoreUnavailable,
    "The call was not done in time, and may be done yet. Try again; a write with the same "
    "Idempotency-Key.",
)

_KINDS: Mapping[type[BaseException], Kind] = {
    errors.VersionConflict: CHANGED,
    errors.Conflict: CONFLICT,
    errors.SessionExists: CONFLICT,
    errors.MessageTooLarge: TOO_LARGE,
    errors.InvalidInput: INVALID,
    errors.AccessDenied: NOT_FOUND,
    errors.InvalidBudget: INVALID,
    errors.ConfigError: NOT_CONFIGURED,
    errors.UnsupportedOperation: NOT_CONFIGURED,
    errors.Damaged: DAMAGED,
    errors.StoreError: UNAVAILABLE,
    errors.MemoryClosed: UNAVAILABLE,
    errors.ModelRequired: NOT_CONFIGURED,
    errors.ModelError: MODEL_FAILED,
    TimeoutError: TOO_SLOW,
}
KINDS = (
    *dict.fromkeys([UNREADABLE, UNAUTHENTICATED, FORBIDDEN, NO_SUCH_CALL, WRONG_METHOD]),
    *dict.fromkeys([*_KINDS.values(), TOO_MANY, BROKEN]),
)
"""All kinds there are."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is told of one call.

    Attributes:
        kind: Which kind of problem.
        detail: A sentence that says what to do.
        mistakes: Of a form, where it is wrong and how.
        error: The library's error that is told; None for the kind's.
        headers: What the answer's headers have to say.
    """

    kind: Kind
    detail: str
    mistakes: tuple[Mapping[str, str], ...] = ()
    error: type[BaseException] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The answer's body."""
        kind = self.kind
        told = {"type": kind.type, "title": kind.title, "status": kind.status}
        more = {"errors": list(self.mistakes)} if self.mistakes else {}
        named = (self.error or kind.error).__name__
        return {**told, "detail": self.detail, "error": named, **more}


class Refused(errors.AgentMemoryError):
    """A request that is answered with a problem.

    Args:
        kind: Which kind of problem.
        detail: A sentence that says what to do; else that of the kind.
        headers: What the answer's headers have to say.
    """

    def __init__(self, kind: Kind, detail: str | None = None, **headers: str) -> None:
        told = kind.detail or kind.title if detail is None else detail
        super().__init__(told)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.problem = Problem(kind, told, headers=named)


def not_found() -> Refused:
    """What is told of all that does not exist for whoever asks."""
    return Refused(NOT_FOUND)


def problem_of(error: BaseException) -> Problem:
    """What is told of an error."""
    if isinstance(error, Refused):
        return error.problem
    kinds = (_KINDS[one] for one in type(error).__mro__ if one in _KINDS)
    kind = next(kinds, BROKEN)
    # what is another's is no other kind of "not found", and an error of others has no name here
    own = type(error).__module__ == errors.__name__ and kind is not NOT_FOUND
    told = str(error) if kind.detail is None else kind.detail
    return Problem(kind, told, error=type(error) if own else None)


def mistakes_in(error: ValidationError) -> Problem:
    """What is told of a form that is not what the call takes; no value of it is repeated."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    told = tuple(
        {"field": _place(one["loc"]), "problem": _problem(one)} for one in found[:_MOST_MISTAKES]
    )
    first = told[0]
    detail = f"{first['field'] or 'The request'}: {first['problem']}."
    return Problem(INVALID, detail, told)


def _problem(found: Mapping[str, Any]) -> str:
    if found["type"] == "extra_forbidden":
        return "there is no such field"
    return str(found["msg"]).removeprefix("Value error, ").rstrip(".")


def _place(parts: Iterable[object]) -> str:
    return ".".join(map(str, parts))[:_LONGEST_PLACE]
