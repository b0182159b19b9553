"""What a call of the service is: an entry of the table. And what one has at hand while it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from inspect import getdoc
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from agent_memory.core.ids import MAX_ID
from agent_memory.errors import Damaged
from agent_memory.server.problems import not_found
from agent_memory.server.rights import Right

if TYPE_CHECKING:
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.user import User

Method = Literal["GET", "POST", "PUT", "DELETE"]
Streamed = Literal["", "application/x-ndjson", "text/event-stream"]
Whose = Literal["own", "deleting", "another's", "nobody's"]
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
        user_id: For whom it is, as the credential says; empty for calls about the whole service.
        key: The request's Idempotency-Key.
        version: What If-Match says; None without.
    """

    memory: AgentMemory
    user_id: str
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

    def _whose(self, session_id: str) -> Whose:
        """Whose a session is. What belongs to nobody is the library's, and so another's: whoever
        named it first would take it over.

        Raises:
            Damaged: It is the user's, and cannot be read.
        """
        self.memory.components.guard.check_session(session_id, self.user_id)
        try:
            head = self.memory.components.store.head(session_id)
        except Damaged as error:  # that it is damaged says that it is there
            known = error.damage.head if error.damage is not None else None
            if known is not None and known.user_id == self.user_id:
                raise
            return "another's"
        if head is None:
            return "nobody's"
        if head.user_id != self.user_id:
            return "another's"
        return "deleting" if head.deleting else "own"


Run = Callable[[At, Any], Any]


@dataclass(frozen=True)
class Operation:
    """A call of the service.

    Attributes:
        method: Its method.
        path: Its path below /v1, with the names of what stands in it.
        needs: The right that it needs. "admin" is for what is about no user.
        run: Does it, on a thread; named and described for the OpenAPI document.
        once: Whether an Idempotency-Key makes it safe to repeat. Else it is so by itself.
        versioned: Whether it takes If-Match.
        streams: As what the answer is sent piece by piece; empty for one answer in JSON.
    """

    method: Method
    path: str
    needs: Right
    run: Run
    once: bool = False
    versioned: bool = False
    streams: Streamed = ""

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
        return self.needs != "admin"

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
    needs: Right,
    *,
    once: bool = False,
    versioned: bool = False,
    streams: Streamed = "",
) -> Callable[[Run], Operation]:
    """Make an entry of the table out of a function from `At` and a form to an answer."""

    def entry(run: Run) -> Operation:
        return Operation(method, path, needs, run, once, versioned, streams)

    return entry


def operations_of(module: object) -> Iterator[Operation]:
    """The entries that a module has."""
    return (one for one in vars(module).values() if isinstance(one, Operation))
