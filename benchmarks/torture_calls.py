"""What a run of random calls does: a table of operations over all calls of `AgentMemory`.

Each takes its choices from one generator, and says nothing that does not hold its user's word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import StringIO
from random import Random
from typing import Any, Literal

from agent_memory import AgentMemory, Skill

Kind = Literal["own", "alone", "everyone", "trespass", "read", "write"]
"""Whose words an operation may give back. "own": its user's; "alone": the same, and nobody else
calls for the user meanwhile. "everyone": of each part those of whom it belongs to. "trespass":
none, since it is to be refused. "read" and "write": what was said in a shared namespace, if the
user has that access, and else none."""

NOT_CALLED = {
    "close": "it ends the run",
}
"""Public calls that are in no operation, each with the reason."""

_WORDS = ["boat", "garden", "recipe", "train", "violin", "winter", "paper", "orange", "window"]
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Act:
    """One operation: who, where, and with which choices.

    Attributes:
        memory: The memory.
        user: Who acts.
        word: What stands in all that is said.
        session_id: The session at hand.
        lone: Whether that belongs to nobody.
        victim: A session of another user.
        team: A shared namespace, to which the user has access, or not.
        team_word: What stands in all that the user says there.
        chance: The choices.
    """

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
        """Of the session."""
        return None if self.lone else self.user

    @property
    def whose(self) -> dict[str, Any]:
        """For calls that want a user, or else a session."""
        return {"session_id": self.session_id} if self.lone else {"user_id": self.user}

    def text(self, most: int = 9, word: str | None = None) -> str:
        """Something to say."""
        words = self.chance.choices(_WORDS, k=self.chance.randint(1, most))
        words.insert(self.chance.randint(0, len(words)), word or self.word)
        return " ".join(words)

    def says(self, role: str = "user", **more: Any) -> dict[str, Any]:
        """A message."""
        return {"role": role, "content": self.text(), **more}

    def update(self, *messages: Any) -> Any:
        """Say so."""
        given = messages[0] if len(messages) == 1 else list(messages)
        return self.memory.update(self.session_id, given, user_id=self.user_id)


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the table.

    Attributes:
        name: What it is called in the report.
        weight: How often, in proportion.
        calls: The calls of `AgentMemory` that it makes.
        kind: Whose words it may give back.
        run: Does it; gives back all that the calls did, for "everyone" in pairs of a session's id,
            or an empty one, and a part.
    """

    name: str
    weight: float
    calls: tuple[str, ...]
    kind: Kind
    run: Callable[[Act], Any]


OPERATIONS: dict[str, Operation] = {}


def operation(
    weight: float, *calls: str, kind: Kind = "own"
) -> Callable[[Callable[[Act], Any]], Callable[[Act], Any]]:
    """Enter a function in the table."""

    def enter(run: Callable[[Act], Any]) -> Callable[[Act], Any]:
        OPERATIONS[run.__name__] = Operation(run.__name__, weight, calls, kind, run)
        return run

    return enter


# --- conversations --------------------------------------------------------------------------------


@operation(6, "update")
def say(act: Act) -> Any:
    """One message."""
    return act.update(act.says(act.chance.choice(["user", "user", "assistant"]), name=act.word))


@operation(1, "update")
def say_all(act: Act) -> Any:
    """A few at once."""
    return act.update(
        *[act.says(role) for role in ("user", "assistant") * act.chance.randint(1, 3)]
    )


@operation(0.5, "update")
def say_with_tools(act: Act) -> Any:
    """A turn in which a tool was called."""
    name = f"call-{act.chance.randrange(10**9)}"
    function = {"name": "look_up", "arguments": f'{{"what": "{act.text()}"}}'}
    calls = [{"id": name, "type": "function", "function": function}]
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    result = act.says("tool", tool_call_id=name)
    return act.update(act.says(), asked, result, act.says("assistant"))


@operation(1, "update")
def instruct(act: Act) -> Any:
    """A system message."""
    return act.update({"role": "system", "content": act.text(3)})


@operation(0.2, "update")
def show(act: Act) -> Any:
    """An image, with a text."""
    image = {"url": f"https://example.com/{act.word}.png", "detail": "low"}
    parts = [{"type": "text", "text": act.text()}, {"type": "image_url", "image_url": image}]
    return act.update({"role": "user", "content": parts, "provider_field": act.text()})


@operation(3, "get")
def get(act: Act) -> Any:
    """The context."""
    question = act.chance.choice([None, act.text(), act.says()])
    context = act.memory.get(act.session_id, question, user_id=act.user_id)
    return context, context.to_messages()


@operation(14, "history")
def history(act: Act) -> Any:
    """The log."""
    return act.memory.history(act.session_id, after=act.chance.randint(0, 9), limit=20)


@operation(2, "pop")
def pop(act: Act) -> Any:
    """The newest, taken back."""
    return act.memory.pop(act.session_id, act.chance.randint(1, 4))


@operation(0.4, "delete")
def delete(act: Act) -> Any:
    """A session, unless others try to get into it."""
    if not act.session_id.endswith("-0"):
        act.memory.delete(act.session_id)


@operation(0.1, "delete_user", kind="alone")
def delete_user(act: Act) -> Any:
    """All that a user has."""
    act.memory.delete_user(act.user)
    act.memory.delete(f"{act.user}-lone")


@operation(0.2, "end")
def end(act: Act) -> Any:
    """A session, for now."""
    return act.memory.end(act.session_id, user_id=act.user_id)


@operation(0.2, "flush")
def flush(act: Act) -> Any:
    """What waits in a session."""
    return act.memory.flush(act.session_id)


@operation(4, "sessions")
def own_sessions(act: Act) -> Any:
    """A user's."""
    return act.memory.sessions(user_id=act.user)


@operation(2, "session")
def bound(act: Act) -> Any:
    """The same calls with the ids bound."""
    session = act.memory.session(act.session_id, act.user_id)
    match act.chance.randint(0, 6):
        case 0:
            return session.update(act.says())
        case 1:
            return session.get(act.text()).to_messages()
        case 2:
            return session.search(act.text())
        case 3:
            return session.facts(), session.stale(), session.audit()
        case 4:
            return session.notes().all(), session.working().all(), session.files().paths()
        case 5:
            return session.call_tool("memory_read", {"query": act.text()}), session.tools()
        case _:
            return session.history(), session.pop()


@operation(0.3, "export_session", "delete", "import_session")
def move(act: Act) -> Any:
    """A session, out and in again."""
    file = StringIO()
    done = act.memory.export_session(act.session_id, file)
    delete(act)
    return done, file.getvalue(), act.memory.import_session(StringIO(file.getvalue()))


# --- turns ----------------------------------------------------------------------------------------


@operation(0.4, "before_turn", "after_turn")
def turn(act: Act) -> Any:
    """A loop of the caller's own."""
    begun = act.memory.before_turn(act.session_id, act.text(), user_id=act.user_id)
    return begun, act.memory.after_turn(begun, act.text())


@operation(0.1, "regenerate", "after_turn")
def ask_again(act: Act) -> Any:
    """Another answer to the same question."""
    begun = act.memory.regenerate(act.session_id, user_id=act.user_id)
    return begun, act.memory.after_turn(begun, act.text())


@operation(0.05, "completion")
def complete(act: Act) -> Any:
    """The loop in one call; the model tells all that it was sent."""
    tools = act.memory.tools(act.session_id, user_id=act.user_id)
    given: dict[str, Any] = {"user_id": act.user_id, "tools": act.chance.choice([None, tools])}
    if act.chance.random() < 0.5:
        return act.memory.completion(act.session_id, act.text(), **given)
    return list(act.memory.completion(act.session_id, act.text(), stream=True, **given))


# --- what is known --------------------------------------------------------------------------------


@operation(2.5, "search")
def search(act: Act) -> Any:
    """What a user's blocks hold."""
    return act.memory.search(act.text(), **act.whose, limit=act.chance.randint(1, 30))


@operation(0.5, "search")
def search_session(act: Act) -> Any:
    """What comes from one session."""
    return act.memory.search(act.text(), user_id=act.user_id, session_id=act.session_id)


@operation(8, "facts")
def facts(act: Act) -> Any:
    """What holds, or held."""
    then = act.chance.choice([None, _NOW, _NOW + timedelta(days=act.chance.randint(1, 900))])
    return act.memory.facts(**act.whose, as_of=then)


@operation(1, "profile")
def profile(act: Act) -> Any:
    """Field by field."""
    return act.memory.profile(**act.whose)


@operation(0.5, "audit", "stale")
def audit(act: Act) -> Any:
    """How it came to be known, and what is not worth recalling."""
    return act.memory.audit(**act.whose), act.memory.stale(**act.whose)


@operation(0.4, "forget", "facts")
def forget(act: Act) -> Any:
    """A fact, or what comes from some messages."""
    known = act.memory.facts(**act.whose)
    if known and act.chance.random() < 0.5:
        fact = act.chance.choice(known).id
        return known, act.memory.forget(fact, **act.whose, why=act.text())
    source = (act.session_id, 1, act.chance.randint(1, 9))
    return known, act.memory.forget(source=source, user_id=act.user_id, why=act.text())


# --- what is kept outright ------------------------------------------------------------------------


@operation(9, "notes")
def notes(act: Act) -> Any:
    """Notes: made, read, changed, dropped."""
    book = act.memory.notes(**act.whose)
    kept = book.all()
    one = act.chance.choice(kept).id if kept else "none"
    match act.chance.randint(0, 3):
        case 0 if len(kept) < 20:
            return kept, book.add(act.text(), {"why": act.text()})
        case 1 if kept:
            return kept, book.update(one, act.text())
        case 2:
            return book.get(one)
        case _:
            return kept, book.delete(one)


@operation(10, "working")
def working(act: Act) -> Any:
    """A scratchpad."""
    pad = act.memory.working(act.session_id, user_id=act.user_id)
    key = act.chance.choice(["plan", "todo", "found"])
    match act.chance.randint(0, 3):
        case 0:
            return pad.set(key, {"steps": [act.text(), {act.word: 1}]})
        case 1:
            return pad.get(key)
        case 2:
            return pad.all(), pad.keys()
        case _:
            return pad.delete(key)


@operation(8, "files")
def files(act: Act) -> Any:
    """Files: made, read, changed, dropped."""
    shelf = act.memory.files(**act.whose)
    path = f"/memories/{act.chance.choice(_WORDS[:4])}-{act.word}.txt"
    match act.chance.randint(0, 5):
        case 0:
            return shelf.create(path, act.text())
        case 1:
            return shelf.paths(), [shelf.read(one) for one in shelf.paths()]
        case 2:
            return shelf.view("/memories"), shelf.view(path)
        case 3:
            return shelf.insert(path, 0, act.text())
        case 4:
            return shelf.rename(path, f"/memories/{act.word}.txt")
        case _:
            return shelf.delete(act.chance.choice([path, f"/memories/{act.word}.txt"]))


@operation(9, "spatial")
def places(act: Act) -> Any:
    """Observations."""
    seen = act.memory.spatial(**act.whose)
    here = (act.chance.uniform(0, 9), act.chance.uniform(0, 9))
    match act.chance.randint(0, 4):
        case 0 if seen.count() < 40:
            return seen.observe(act.text(), here, metadata={"how": act.text()})
        case 1:
            return seen.near(here, 5, query=act.text())
        case 2:
            return seen.nearest(here), seen.within((0, 0), (9, 9))
        case 3:
            return seen.all()
        case _:
            return [seen.delete(one.id) for one in seen.all()[:2]]


@operation(1, "skills")
def skills(act: Act) -> Any:
    """Skills, in files."""
    known = act.memory.skills(**act.whose)
    name = f"{act.chance.choice(_WORDS[:3])}-{act.word}"
    match act.chance.randint(0, 3):
        case 0:
            return known.save(Skill(name, act.text(), steps=(act.text(),)))
        case 1:
            return known.all(), known.broken()
        case 2:
            return known.search(act.text()), known.load(name)
        case _:
            return known.delete(name)


# --- what a model calls ---------------------------------------------------------------------------


@operation(0.3, "tools")
def tools(act: Act) -> Any:
    """What there is."""
    return act.memory.tools(act.session_id, user_id=act.user_id)


@operation(9, "call_tool")
def call_tool(act: Act) -> Any:
    """One of them."""
    text = act.text()
    asked: list[tuple[str, dict[str, Any]]] = [
        ("memory_read", {"query": text}),
        ("memory_write", {"text": text}),
        ("memory_forget", {"id": act.word}),
        ("working_set", {"key": "plan", "value": text}),
        ("working_get", {}),
        ("files", {"command": "view", "path": "/memories"}),
        ("files", {"command": "create", "path": f"/memories/{act.word}", "file_text": text}),
        ("spatial_near", {"position": [1, 2], "query": text}),
        ("spatial_observe", {"text": text, "position": [1, 2]}),
        ("skills_find", {"query": text}),
        ("skills_load", {"name": act.word}),
        (act.word, {"what": text}),
        ("memory_read", {"query": text, "user_id": act.victim.partition("-")[0]}),
    ]
    name, arguments = act.chance.choice(asked)
    return act.memory.call_tool(act.session_id, name, arguments, user_id=act.user_id)


# --- what operators call --------------------------------------------------------------------------


@operation(0.3, "sessions", kind="everyone")
def all_sessions(act: Act) -> Iterator[tuple[str, Any]]:
    """Everybody's."""
    yield from ((head.session_id, head) for head in act.memory.sessions(limit=50))


@operation(0.03, "stats", kind="everyone")
def stats(act: Act) -> Iterator[tuple[str, Any]]:
    """Counts, and what failed."""
    yield "", act.memory.stats()


@operation(0.1, "dead_letters", "retry", kind="everyone")
def dead_letters(act: Act) -> Iterator[tuple[str, Any]]:
    """What was given up, and tried again."""
    yield from ((one.session_id, one) for one in act.memory.dead_letters())
    if act.chance.random() < 0.2:
        yield from ((one.session_id, one) for one in act.memory.retry())


@operation(0.003, "flush", kind="everyone")
def flush_all(act: Act) -> Iterator[tuple[str, Any]]:
    """What waits anywhere."""
    yield from ((one.session_id, one) for one in act.memory.flush())


@operation(0.001, "replay", kind="everyone")
def replay(act: Act) -> Iterator[tuple[str, Any]]:
    """A block, made anew."""
    yield from ((step.session_id, step) for step in act.memory.replay("vector"))


@operation(0.3, "search", "skills", "share", "shares", kind="everyone")
def what_holds_for_all(act: Act) -> Iterator[tuple[str, Any]]:
    """What belongs to nobody."""
    yield "", act.memory.search(act.victim)
    yield "", act.memory.skills().all()
    yield "", [act.memory.share(name).agents() for name in act.memory.shares()]


# --- what is shared -------------------------------------------------------------------------------


@operation(5, "share", kind="read")
def read_shared(act: Act) -> Any:
    """What a namespace holds."""
    agent = act.memory.share(act.team).agent(act.user)
    session_id, text = f"s{act.chance.randint(0, 2)}", act.text(word=act.team_word)
    match act.chance.randint(0, 5):
        case 0:
            return agent.get(session_id, text).to_messages()
        case 1:
            return agent.search(text)
        case 2:
            return agent.facts(), agent.profile()
        case 3:
            return agent.sessions()
        case _:
            return agent.history(session_id, limit=20)


@operation(2, "share", kind="write")
def write_shared(act: Act) -> Any:
    """Something more."""
    agent = act.memory.share(act.team).agent(act.user)
    session_id, text = f"s{act.chance.randint(0, 2)}", act.text(word=act.team_word)
    match act.chance.randint(0, 4):
        case 0:
            begun = agent.before_turn(session_id, text)
            return begun, agent.after_turn(begun, act.text(word=act.team_word))
        case 1:
            return agent.pop(session_id, 3)
        case _:
            return agent.update(session_id, {"role": "user", "content": text})


# --- what is refused ------------------------------------------------------------------------------

_TRESPASSES: dict[str, Callable[[Act], Any]] = {
    "update": lambda act: act.memory.update(act.victim, act.says(), user_id=act.user),
    "get": lambda act: act.memory.get(act.victim, act.text(), user_id=act.user),
    "search": lambda act: act.memory.search(
        act.text(), user_id=act.user, session_id=act.victim, limit=30
    ),
    "facts": lambda act: act.memory.facts(act.user, session_id=act.victim),
    "profile": lambda act: act.memory.profile(act.user, session_id=act.victim),
    "stale": lambda act: act.memory.stale(act.user, session_id=act.victim),
    "audit": lambda act: act.memory.audit(act.user, session_id=act.victim),
    "forget": lambda act: act.memory.forget(source=act.victim, user_id=act.user),
    "end": lambda act: act.memory.end(act.victim, user_id=act.user),
    "before_turn": lambda act: act.memory.before_turn(act.victim, act.text(), user_id=act.user),
    "regenerate": lambda act: act.memory.regenerate(act.victim, user_id=act.user),
    "completion": lambda act: act.memory.completion(act.victim, act.text(), user_id=act.user),
    "working": lambda act: act.memory.working(act.victim, user_id=act.user),
    "notes": lambda act: act.memory.notes(act.user, session_id=act.victim),
    "files": lambda act: act.memory.files(act.user, session_id=act.victim),
    "spatial": lambda act: act.memory.spatial(act.user, session_id=act.victim),
    "skills": lambda act: act.memory.skills(act.user, session_id=act.victim),
    "tools": lambda act: act.memory.tools(act.victim, user_id=act.user),
    "call_tool": lambda act: act.memory.call_tool(
        act.victim, "memory_read", {"query": act.text()}, user_id=act.user
    ),
    "session": lambda act: act.memory.session(act.victim, act.user).get(act.text()),
}


@operation(12, *_TRESPASSES, kind="trespass")
def trespass(act: Act) -> Any:
    """Another user's session, by its id."""
    name = act.chance.choice(list(_TRESPASSES))
    return name, _TRESPASSES[name](act)
