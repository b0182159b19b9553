"""Which memory a session is written to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from agent_memory.core.records import Head
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import ConfigError, InvalidInput

Rule = Callable[[str, str | None], str]
"""Names the memory of a session, by its id and its user."""


class Routing:
    """Finds a session's memory, its home.

    Args:
        memories: All of them, by name.
        rule: The rule, or the name itself where all sessions go the same way.

    Raises:
        ConfigError: The name that is given is not that of a memory.
    """

    def __init__(self, memories: Mapping[str, AgentMemory], rule: str | Rule) -> None:
        self._memories = memories
        self._rule: Rule = rule if callable(rule) else lambda session_id, user_id: rule
        self._same = None if callable(rule) else self._checked(rule)

    def home(self, session_id: str, user_id: str | None) -> str:
        """The name of a session's home.

        Without a user, that of whoever the session belongs to already: a rule that goes by users is
        to find it again.

        Raises:
            ConfigError: The rule names what is no memory.
            InvalidInput: An id is not usable; or sessions of two users have that id.
            StoreError: Without a user: a memory could not be asked whether it has the session.
        """
        next(iter(self._memories.values())).components.guard.check(session_id, user_id)
        if self._same is not None:
            return self._same
        if user_id is None:
            return self._of_nobody(session_id)
        return self._ruled(session_id, user_id)

    def homed(self, name: str, user_id: str | None, after: str | None, page: int) -> Iterator[Head]:
        """The sessions whose home a memory is, in order of their ids, those after `after`."""
        memory = self._memories[name]
        while heads := memory.sessions(user_id=user_id, after=after, limit=page):
            for head in heads:
                if self._ruled(head.session_id, head.user_id) == name:
                    yield head
            after = heads[-1].session_id

    def _of_nobody(self, session_id: str) -> str:
        first = self._ruled(session_id, None)
        homes: dict[str, str | None] = {}
        for name in dict.fromkeys([first, *self._memories]):
            head = self._memories[name].components.guard.owned(session_id, None)
            if head is not None and self._ruled(session_id, head.user_id) == name:
                homes[name] = head.user_id
                if name == first:
                    break
        if len(homes) > 1:
            raise InvalidInput(
                f"Sessions of {len(homes)} users have the id {session_id!r}. Give each session an "
                "id of its own, or say whose is meant: user_id=..."
            )
        return next(iter(homes), first)

    def _ruled(self, session_id: str, user_id: str | None) -> str:
        return self._checked(self._rule(session_id, user_id))

    def _checked(self, name: str) -> str:
        if not isinstance(name, str) or name not in self._memories:
            raise ConfigError(
                f"`route` gives {name!r}. Have it name one of these memories: "
                f"{', '.join(self._memories)}. Nothing was stored."
            )
        return name
