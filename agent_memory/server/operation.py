"""What a call of the service is: an entry of the table. And what one has at hand while it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import getdoc
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from agent_memory.core.ids import MAX_ID
from agent_memory.server.problems import not_found
from agent_memory.server.rights import Principal, Right

if TYPE_CHECKING:
    from agent_memory.engine.guard import Whose
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.user import User

Method = Literal["GET", "POST", "PUT", "DELETE"]
Streamed = Literal["", "application/x-ndjson", "text/event-stream"]
SessionId = Annotated[str, Field(min_length=1, max_length=MAX_ID, description="The conversation.")]

_PARAMETER = re.compile(r"\{(\w+)\}")


class Form(BaseModel):
    """What a call takes. Fields that its path names stand there; the others in the query of GET and
    DELETE, and in the JSON body of POST and PUT.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class At:
    """What a call has at hand.

    Attributes:
        memory: The memory.
        user_id: For whom it is, as the credential says; empty for calls about the whole service,
            and where an admin names nobody: then it is as beside the library, where a session's
            user need not be named.
        principal: Who asks.
        key: The request's Idempotency-Key.
        version: What If-Match says; None without.
    """

    memory: AgentMemory
    user_id: str
    principal: Principal
    key: str | None = None
    version: str | None = None

    @property
    def user(self) -> User:
        """The user."""
        return self.memory.user(self.user_id)

    def own(self, session_id: str, *, deleting: bool = False) -> str:
        """The id of a session that there is, and that is the user's.

        Args:
            session_id: The id.
            deleting: Whether one will do whose deletion has begun.

        Raises:
            Refused: There is none for this user.
        """
        if self._whose(session_id) not in (("own", "deleting") if deleting else ("own",)):
            raise not_found()
        return session_id

    def to_write(self, session_id: str) -> str:
        """The id of a session that is the user's, or is to be: there is none so far.

        Raises:
            Refused: It is another's.
        """
        if self._whose(session_id) == "another's":
            raise not_found()
        return session_id

    def to_read(self, session_id: str) -> str:
        """As `to_write`; for a session that is another's the id of one that there is not, so that
        the answer is that of a session that does not exist.
        """
        return f"none-{uuid4()}" if self._whose(session_id) == "another's" else session_id

    def length(self, session_id: str) -> tuple[int, int]:
        """After which seq a session's log begins, and where it ends; zeros for one that is not
        there by now, or another's."""
        head = self.memory.components.store.head(session_id)
        if head is None or head.user_id != self.user_id:
            return 0, 0
        return head.expired, head.end

    def _whose(self, session_id: str) -> Whose:
        return self.memory.components.guard.whose(session_id, self.user_id)


Run = Callable[[At, Any], Any]
RunAll = Callable[[Sequence[tuple[At, Any]]], Sequence[Any]]


@dataclass(frozen=True)
class Operation:
    """A call of the service.

    Attributes:
        method: Its method.
        path: Its path below /v1, with the names of what stands in it.
        needs: The right that it needs; None where any credential will do. "admin" and None are for
            what is about no user.
        run: Does it, on a thread; named and described for the OpenAPI document.
        once: Whether an Idempotency-Key makes it safe to repeat. Else it is so by itself.
        versioned: Whether it takes If-Match.
        streams: As what the answer is sent piece by piece; empty for one answer in JSON.
        together: Does it for several at once, for a call so brief that a thread of its own would
            cost more; gives an answer or an error for each.
        anyones: Whether an admin may name no user: see `At.user_id`.
    """

    method: Method
    path: str
    needs: Right | None
    run: Run
    once: bool = False
    versioned: bool = False
    streams: Streamed = ""
    together: RunAll | None = None
    anyones: bool = False

    @property
    def name(self) -> str:
        """Its id in the OpenAPI document."""
        return self.run.__name__

    @property
    def about(self) -> tuple[str, str]:
        """What it does, in a line, and what more there is to say."""
        first, _, rest = (getdoc(self.run) or "").partition("\n\n")
        return " ".join(first.split()), rest.strip()

    @property
    def of_user(self) -> bool:
        """Whether it is done for one user."""
        return self.needs not in (None, "admin")

    @property
    def has_body(self) -> bool:
        """Whether what it takes is in the body."""
        return self.method in ("POST", "PUT")

    @cached_property
    def form(self) -> type[Form]:
        """What it takes."""
        asked: type[Form] = self._hints["asked"]
        return asked

    @cached_property
    def answer(self) -> Any:
        """The type of what it answers."""
        return self._hints["return"]

    @cached_property
    def in_path(self) -> tuple[str, ...]:
        """The names of what stands in its path."""
        return tuple(_PARAMETER.findall(self.path))

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.run, include_extras=True)


def operation(
    method: Method,
    path: str,
    needs: Right | None,
    *,
    once: bool = False,
    versioned: bool = False,
    streams: Streamed = "",
    together: RunAll | None = None,
    anyones: bool = False,
) -> Callable[[Run], Operation]:
    """Make an entry of the table out of a function from `At` and a form to an answer."""

    def entry(run: Run) -> Operation:
        return Operation(method, path, needs, run, once, versioned, streams, together, anyones)

    return entry


def operations_of(module: object) -> Iterator[Operation]:
    """The entries that a module has."""
    return (one for one in vars(module).values() if isinstance(one, Operation))
