"""Operations of a run of random calls on facts, files, shared namespaces and other users' data."""

from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

from agent_memory import operations
from agent_memory.ltm_blocks.skills import Skill
from tests.isolation.acts import WORDS, Act, operation


@operation(9, "notes", "remember")
def notes(act: Act) -> Any:
    book = act.owner.notes()
    kept = book.all()
    one = act.chance.choice(kept).id if kept else "none"
    match act.chance.randint(0, 4):
        case 0 if len(kept) < 20:
            return kept, book.add(act.text(), {"why": act.text()})
        case 4 if len(kept) < 20:
            return kept, act.memory.remember(act.text(), user_id=act.user)
        case 1 if kept:
            return kept, book.update(one, act.text())
        case 2:
            return book.get(one)
        case _:
            return kept, book.delete(one)


@operation(10, "working")
def working(act: Act) -> Any:
    pad = act.memory.session(act.session_id, act.user_id).working()
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


@operation(8, "values")
def values(act: Act) -> Any:
    kept = act.owner.values() if act.lone else act.memory.values(act.user)
    place = ("state", act.chance.choice(WORDS[:3]))
    match act.chance.randint(0, 6):
        case 0 | 1:
            return kept.put(place, act.word, {"text": act.text()}, texts=[act.text()])
        case 2:
            return kept.get(place, act.word)
        case 3:
            return kept.search(("state",), query=act.text(), limit=5)
        case 4:
            return kept.search(place, where={"text": {"$gte": ""}}), kept.namespaces()
        case 5:
            return kept.delete(place, act.word)
        case _:
            return kept.clear(place)


@operation(8, "files")
def files(act: Act) -> Any:
    shelf = act.owner.files()
    path = f"/memories/{act.chance.choice(WORDS[:4])}-{act.word}.txt"
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
    seen = act.owner.spatial()
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
    known = act.owner.skills()
    name = f"{act.chance.choice(WORDS[:3])}-{act.word}"
    match act.chance.randint(0, 3):
        case 0:
            return known.save(Skill(name, act.text(), steps=(act.text(),)))
        case 1:
            return known.all(), known.broken()
        case 2:
            return known.search(act.text()), known.load(name)
        case _:
            return known.delete(name)


@operation(0.3, "tools")
def tools(act: Act) -> Any:
    return act.memory.tools(act.session_id, user_id=act.user_id)


@operation(9, "call_tool")
def call_tool(act: Act) -> Any:
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


@operation(0.3, "sessions", kind="everyone")
def all_sessions(act: Act) -> Iterator[tuple[str, Any]]:
    yield from ((head.session_id, head) for head in act.memory.sessions(limit=50))


@operation(0.03, "stats", kind="everyone")
def stats(act: Act) -> Iterator[tuple[str, Any]]:
    yield "", act.memory.stats()


@operation(0.1, "dead_letters", "retry", kind="everyone")
def dead_letters(act: Act) -> Iterator[tuple[str, Any]]:
    yield from ((one.session_id, one) for one in operations.dead_letters(act.memory))
    if act.chance.random() < 0.2:
        yield from ((one.session_id, one) for one in operations.retry(act.memory))


@operation(0.003, "damaged", kind="everyone")
def damaged(act: Act) -> Iterator[tuple[str, Any]]:
    yield "", operations.damaged(act.memory)


@operation(0.003, "flush", kind="everyone")
def flush_all(act: Act) -> Iterator[tuple[str, Any]]:
    yield from ((one.session_id, one) for one in act.memory.flush())


@operation(0.001, "replay", kind="everyone")
def replay(act: Act) -> Iterator[tuple[str, Any]]:
    yield from ((step.session_id, step) for step in act.memory.replay("vector"))


@operation(0.3, "search", "open", "share", "shares", kind="everyone")
def read_without_user(act: Act) -> Iterator[tuple[str, Any]]:
    yield "", act.memory.search(act.victim)
    yield "", act.memory.open("skills").all()
    yield "", [act.memory.share(name).agents() for name in operations.shares(act.memory)]


@operation(5, "share", kind="read")
def read_shared(act: Act) -> Any:
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


_TRESPASSES: dict[str, Callable[[Act], Any]] = {
    "update": lambda act: act.memory.update(act.victim, act.says(), user_id=act.user),
    "get": lambda act: act.memory.get(act.victim, act.text(), user_id=act.user),
    "search": lambda act: act.memory.search(
        act.text(), user_id=act.user, session_id=act.victim, limit=30
    ),
    "facts": lambda act: act.memory.user(act.user).facts(session_id=act.victim),
    "forget": lambda act: act.memory.user(act.user).forget(source=act.victim),
    "end": lambda act: act.memory.end(act.victim, user_id=act.user),
    "before_turn": lambda act: act.memory.before_turn(act.victim, act.text(), user_id=act.user),
    "regenerate": lambda act: act.memory.regenerate(act.victim, user_id=act.user),
    "completion": lambda act: act.memory.completion(act.victim, act.text(), user_id=act.user),
    "working": lambda act: act.memory.session(act.victim, act.user).working(),
    "tools": lambda act: act.memory.tools(act.victim, user_id=act.user),
    "call_tool": lambda act: act.memory.call_tool(
        act.victim, "memory_read", {"query": act.text()}, user_id=act.user
    ),
    "session": lambda act: act.memory.session(act.victim, act.user).get(act.text()),
    "owner": lambda act: act.memory.session(act.victim, act.user).owner(),
    "export": lambda act: act.memory.session(act.victim, act.user).export(StringIO()),
    "history": lambda act: act.memory.history(act.victim, user_id=act.user),
    "pop": lambda act: act.memory.pop(act.victim, user_id=act.user),
    "flush": lambda act: act.memory.flush(act.victim, user_id=act.user),
    "delete": lambda act: act.memory.delete(act.victim, user_id=act.user),
}


@operation(12, "user", *_TRESPASSES, kind="trespass")
def trespass(act: Act) -> Any:
    name = act.chance.choice(list(_TRESPASSES))
    return name, _TRESPASSES[name](act)
