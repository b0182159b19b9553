"""Many users make random calls over one store. No user may read another's words."""

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from agent_memory import AgentMemory, InvalidInput
from agent_memory.core.limits import Access
from agent_memory.errors import AccessDenied, ModelError, SessionDeleting, StoreUnavailable
from tests.isolation import conversation_calls, other_calls  # noqa: F401 - these fill the table
from tests.isolation.acts import OPERATIONS, Act, Operation
from tests.isolation.canaries import Aviary, words_in

REFUSED = (AccessDenied, InvalidInput)
"""What calls may raise where they are to be refused."""

EXPECTED = (InvalidInput, ModelError, SessionDeleting, StoreUnavailable)
"""What other calls may raise: a model that answers badly, a session that others work on."""

TEAMS = ("team-a", "team-b", "team-c")
"""Shared namespaces."""

_SESSIONS = 4
_MOST_SHOWN = 1_000


@dataclass(frozen=True, slots=True)
class Leak:
    """A wrong result of an operation."""

    number: int
    name: str
    user: str
    told: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Size and store of a run. On one thread, the same seed repeats it."""

    url: str
    namespace: str
    calls: int
    users: int
    threads: int
    seed: int


@dataclass(slots=True)
class Report:
    """Results of a run."""

    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    words: int = 0
    leaks: list[Leak] = field(default_factory=list)
    seconds: float = 0.0


class User:
    """A user: the word of the current life, and a lock that operations share or hold alone."""

    def __init__(self, name: str, aviary: Aviary) -> None:
        self.name = name
        self.life = 0
        self._aviary = aviary
        self._changed = threading.Condition()
        self._sharing = 0
        self._alone = False
        self.word = aviary.word(name, 0)

    def begin_anew(self) -> None:
        """Begin another life, with a new word."""
        self.word = self._aviary.word(self.name, self.life + 1)
        self.life += 1

    @contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        """Keep the user's life unchanged. With `alone`, no other operation runs for the user."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            if alone:
                self._alone = True
                self._changed.wait_for(lambda: not self._sharing)
            else:
                self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                if alone:
                    self._alone = False
                else:
                    self._sharing -= 1
                self._changed.notify_all()


class Crowd(logging.Handler):
    """Run operations, and check their answers and the log lines."""

    def __init__(self, plan: Plan, report: Report) -> None:
        super().__init__()
        self._plan = plan
        self._report = report
        self._noting = threading.Lock()
        self._aviary = Aviary(plan.seed)
        self._users = {
            name: User(name, self._aviary) for name in (f"u{n:03}" for n in range(plan.users))
        }
        self._names = list(self._users)
        self._rows = list(OPERATIONS.values())
        self._weights = [row.weight for row in self._rows]
        self._here = threading.local() if plan.threads > 1 else SimpleNamespace()

    def begin(self, memory: AgentMemory) -> None:
        """Begin a permanent session for each user."""
        for user in self._users.values():
            self._settle(memory, user)

    def operate(self, number: int, memories: Sequence[AgentMemory]) -> None:
        chance = Random(f"{self._plan.seed}/{number}")
        row = chance.choices(self._rows, self._weights)[0]
        name, other = chance.sample(self._names, 2)
        memory = chance.choice(memories)
        place = chance.randrange(2 * _SESSIONS)
        lone = place == 2 * _SESSIONS - 1
        session_id = f"{name}-lone" if lone else f"{name}-{place % _SESSIONS}"
        user, victim, team = self._users[name], self._users[other], chance.choice(TEAMS)
        with ExitStack() as stack:
            if row.kind == "alone":
                stack.enter_context(user.held(alone=True))
            elif row.kind != "everyone":
                taking = sorted({name, other} if row.kind == "trespass" else {name})
                for one in taking:  # in one order, which prevents deadlocks
                    stack.enter_context(self._users[one].held(alone=False))
            act = Act(
                memory,
                name,
                user.word,
                session_id,
                lone,
                f"{victim.name}-0",
                team,
                self._aviary.word(f"{team}/{name}", user.life),
                chance,
            )
            is_own = row.kind in ("own", "alone", "trespass")
            self._here.allowed = {(name, user.life)} if is_own else None
            self._here.act = (number, row.name, name)
            if row.kind == "everyone":
                self._by_parts(row, act)
            elif row.kind in ("read", "write"):
                self._shared(row, act)
            else:
                self._alone(row, act, user)
            if row.kind == "alone":
                user.begin_anew()
                self._settle(memory, user)
        with self._noting:
            self._report.done[row.name] += 1

    def _alone(self, row: Operation, act: Act, user: User) -> None:
        try:
            given: Any = row.run(act)
        except Exception as error:  # noqa: BLE001 - it is looked at, whatever it is
            given = error
        self._error(row.name, given, to_be_refused=row.kind == "trespass")
        self._look(given, {(user.name, user.life)})

    def _shared(self, row: Operation, act: Act) -> None:
        lives = self._lives()
        try:
            given: Any = row.run(act)
        except Exception as error:  # noqa: BLE001 - it is looked at, whatever it is
            given = error
        may = self._access(act.user, act.team)
        refused = may is None or (row.kind == "write" and may == "read")
        self._error(row.name, given, to_be_refused=refused)
        now = self._lives()
        self._look(
            given,
            {
                (f"{act.team}/{name}", life)
                for name in self._names
                for life in range(lives[name], now[name] + 1)
                if not refused
            },
        )

    def _by_parts(self, row: Operation, act: Act) -> None:
        before = self._lives()
        parts: list[tuple[str, Any]] = []
        try:
            parts += row.run(act)
        except Exception as error:  # noqa: BLE001 - it is looked at, whatever it is
            self._error(row.name, error)
            parts.append(("", error))
        for session_id, part in parts:
            owner = self._users.get(session_id.partition("-")[0])
            lives = range(before[owner.name], owner.life + 1) if owner else range(0)
            self._look(part, {(owner.name, life) for life in lives} if owner else set())

    def _lives(self) -> dict[str, int]:
        return {name: user.life for name, user in self._users.items()}

    def _access(self, name: str, team: str) -> Access | None:
        """Let every fourth user write in a team, and the next one only read."""
        rest = (self._names.index(name) - TEAMS.index(team)) % 4
        return "write" if rest == 0 else "read" if rest == 1 else None

    def _settle(self, memory: AgentMemory, user: User) -> None:
        hello = {"role": "user", "content": f"I am {user.word}"}
        memory.update(f"{user.name}-0", hello, user_id=user.name)
        for team in TEAMS:
            access = self._access(user.name, team)
            if access is not None:
                memory.share(team).grant(user.name, access)

    def _look(self, given: object, allowed: Iterable[tuple[str, int]]) -> None:
        words = words_in(given)
        with self._noting:
            self._report.words += len(words)
        for word in words:
            whose = self._aviary.whose(word)
            if (whose.user, whose.life) not in allowed:
                self._note(f"gave back {whose} in {given!r:.300}")

    def _error(self, name: str, given: object, *, to_be_refused: bool = False) -> None:
        if to_be_refused and not isinstance(given, REFUSED):
            self._note(f"was not refused: {given!r:.300}")
        elif isinstance(given, Exception):
            told = type(given).__name__
            with self._noting:
                if to_be_refused:
                    self._report.refused[told] += 1
                else:
                    self._report.errors[f"{name}: {told}"] += 1
            if not to_be_refused and not isinstance(given, EXPECTED):
                self._note(f"raised {given!r:.300}")

    def sent(self, words: set[str]) -> None:
        """Check that a request to the model has words of only one life of one user."""
        with self._noting:
            self._report.requests += 1
        self._of_one(words, "the model was sent")

    def emit(self, record: logging.LogRecord) -> None:
        """Check that a log line or a warning has only words of the user of its call."""
        words = words_in([record.getMessage(), record.exc_info])
        allowed = getattr(self._here, "allowed", None)
        if allowed is None:  # for operators, or from one of the memory's own threads
            self._of_one(words, f"a log line says {record.getMessage()[:200]}:")
        else:
            self._look(record.getMessage(), allowed)
            self._look(record.exc_info, allowed)

    def _of_one(self, words: set[str], told: str) -> None:
        whose = {self._aviary.whose(word) for word in words}
        teams = {one.user.partition("/")[0] for one in whose}
        if len(teams) > 1 or (len(whose) > 1 and teams.isdisjoint(TEAMS)):
            self._note(f"{told} words of {sorted(map(str, whose))}")

    def _note(self, told: str) -> None:
        number, name, user = getattr(self._here, "act", (0, "", ""))
        with self._noting:
            if len(self._report.leaks) < _MOST_SHOWN:
                self._report.leaks.append(Leak(number, name, user, told))

    def end(self, memory: AgentMemory, files: Iterable[Path]) -> None:
        """Delete all users. Then no call finds anything, and the store's files have no words."""
        for user in self._users.values():
            memory.delete_user(user.name)
            memory.delete(f"{user.name}-lone")
        for team in TEAMS:
            memory.share(team).delete()
        self._here.act = (self._plan.calls, "the end", "everybody")
        self._look(memory.sessions(limit=10_000), ())
        for file in files:
            self._look(file.read_bytes(), ())
