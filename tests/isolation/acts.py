"""Operations of a run of random calls, and the table of all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, Literal

from agent_memory import AgentMemory, User

Kind = Literal["own", "alone", "everyone", "trespass", "read", "write"]
"""Whose words an operation may give back. "own": its user's; "alone": the same, and nobody else
calls for the user meanwhile. "everyone": of each part those of whom it belongs to. "trespass":
none, since it is to be refused. "read" and "write": what was said in a shared namespace, if the
user has that access, and else none."""

NOT_CALLED = {
    "repair": "nothing is damaged in a torture run; tests/integration/test_damage.py calls it",
    "close": "it ends the run",
    "migrate": "it takes a store as a whole, and gives no words",
    "rebuild": "as migrate; it absorbs the logs anew, which replay does",
    "turns": "for the package's own faces",
    "warm_up": "it loads what takes long, and gives no words",
    "users": "it tells who there is, to whoever operates the whole, and no words",
}
"""Public calls that are in no operation, each with the reason."""

WORDS = ["boat", "garden", "recipe", "train", "violin", "winter", "paper", "orange", "window"]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Act:
    """An operation: the user's `word` and sessions, and choices by `chance`."""

    memory: AgentMemory
    user: str
    word: str
    session_id: str
    lone: bool
    victim: str
    team: str
    team_word: str
    chance: Random

    @property
    def user_id(self) -> str | None:
        return None if self.lone else self.user

    @property
    def whose(self) -> dict[str, Any]:
        """The arguments for calls that need a user or a session."""
        return {"session_id": self.session_id} if self.lone else {"user_id": self.user}

    @property
    def owner(self) -> User:
        """The memory of the user, or of a session without a user."""
        if self.lone:
            return self.memory.session(self.session_id).owner()
        return self.memory.user(self.user)

    def text(self, most: int = 9, word: str | None = None) -> str:
        words = self.chance.choices(WORDS, k=self.chance.randint(1, most))
        words.insert(self.chance.randint(0, len(words)), word or self.word)
        return " ".join(words)

    def says(self, role: str = "user", **more: Any) -> dict[str, Any]:
        return {"role": role, "content": self.text(), **more}

    def update(self, *messages: Any) -> Any:
        given = messages[0] if len(messages) == 1 else list(messages)
        return self.memory.update(self.session_id, given, user_id=self.user_id)


@dataclass(frozen=True, slots=True)
class Operation:
    """A row of the table: a function, and the calls of `AgentMemory` that it makes."""

    name: str
    weight: float
    calls: tuple[str, ...]
    kind: Kind
    run: Callable[[Act], Any]


OPERATIONS: dict[str, Operation] = {}


def operation(
    weight: float, *calls: str, kind: Kind = "own"
) -> Callable[[Callable[[Act], Any]], Callable[[Act], Any]]:
    def enter(run: Callable[[Act], Any]) -> Callable[[Act], Any]:
        OPERATIONS[run.__name__] = Operation(run.__name__, weight, calls, kind, run)
        return run

    return enter
