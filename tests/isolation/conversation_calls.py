"""Operations of a run of random calls on conversations and recalls.

Each operation takes its choices from one generator, and writes only texts with its user's word.
`other_calls` has the others.
"""

from contextlib import suppress
from datetime import timedelta
from io import StringIO
from typing import Any

from agent_memory import InvalidInput, operations
from tests.isolation.acts import NOW, Act, operation


@operation(6, "update")
def add_message(act: Act) -> Any:
    return act.update(act.says(act.chance.choice(["user", "user", "assistant"]), name=act.word))


@operation(1, "update")
def say_all(act: Act) -> Any:
    roles = ("user", "assistant") * act.chance.randint(1, 3)
    return act.update(*map(act.says, roles))


@operation(0.5, "update")
def say_with_tools(act: Act) -> Any:
    name = f"call-{act.chance.randrange(10**9)}"
    function = {"name": "look_up", "arguments": f'{{"what": "{act.text()}"}}'}
    calls = [{"id": name, "type": "function", "function": function}]
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    result = act.says("tool", tool_call_id=name)
    return act.update(act.says(), asked, result, act.says("assistant"))


@operation(1, "update")
def instruct(act: Act) -> Any:
    return act.update({"role": "system", "content": act.text(3)})


@operation(0.2, "update")
def show(act: Act) -> Any:
    image = {"url": f"https://example.com/{act.word}.png", "detail": "low"}
    parts = [{"type": "text", "text": act.text()}, {"type": "image_url", "image_url": image}]
    return act.update({"role": "user", "content": parts, "provider_field": act.text()})


@operation(3, "get")
def get(act: Act) -> Any:
    question = act.chance.choice([None, act.text(), act.says()])
    context = act.memory.get(act.session_id, question, user_id=act.user_id)
    return context, context.to_messages()


@operation(14, "history")
def history(act: Act) -> Any:
    return act.memory.history(act.session_id, after=act.chance.randint(0, 9), limit=20)


@operation(0.5, "edit")
def edit(act: Act) -> Any:
    place = act.chance.randint(0, 3)
    return act.memory.edit(
        act.session_id, lambda log: [*log[:place], *log[place + 1 :]], user_id=act.user_id
    )


@operation(2, "head", "describe")
def head(act: Act) -> Any:
    if act.chance.random() < 0.3:
        act.memory.describe(act.session_id, {"title": act.text()}, user_id=act.user_id)
    return act.memory.head(act.session_id, user_id=act.user_id)


@operation(2, "pop")
def pop(act: Act) -> Any:
    return act.memory.pop(act.session_id, act.chance.randint(1, 4))


@operation(0.4, "delete")
def delete(act: Act) -> Any:
    if not act.session_id.endswith("-0"):
        return act.memory.delete(act.session_id)
    return None


@operation(0.1, "delete_user", kind="alone")
def delete_user(act: Act) -> Any:
    return act.memory.delete_user(act.user), act.memory.delete(f"{act.user}-lone")


@operation(0.2, "end")
def end(act: Act) -> Any:
    return act.memory.end(act.session_id, user_id=act.user_id)


@operation(0.2, "flush")
def flush(act: Act) -> Any:
    return act.memory.flush(act.session_id)


@operation(4, "sessions")
def own_sessions(act: Act) -> Any:
    return act.memory.sessions(user_id=act.user)


@operation(2, "session")
def bound(act: Act) -> Any:
    session = act.memory.session(act.session_id, act.user_id)
    match act.chance.randint(0, 6):
        case 0:
            return session.update(act.says())
        case 1:
            return session.get(act.text()).to_messages()
        case 2:
            return session.search(act.text())
        case 3:
            return session.owner().facts(), session.owner().stale(), session.owner().audit()
        case 4:
            return (
                session.owner().notes().all(),
                session.working().all(),
                session.owner().files().paths(),
            )
        case 5:
            return session.call_tool("memory_read", {"query": act.text()}), session.tools()
        case _:
            return session.history(), session.pop()


@operation(0.3, "export", "delete", "import_session")
def move(act: Act) -> Any:
    file = StringIO()
    done = act.memory.session(act.session_id).export(file)
    delete(act)
    brought = operations.import_session(act.memory, StringIO(file.getvalue()), deleted=True)
    return done, file.getvalue(), brought


@operation(0.2, "checkpoint", "verify")
def checkpoint(act: Act) -> Any:
    made = act.memory.checkpoint(act.session_id, user_id=act.user_id)
    return made, operations.verify(act.memory, made.to_json())


@operation(0.4, "before_turn", "after_turn")
def turn(act: Act) -> Any:
    begun = act.memory.before_turn(act.session_id, act.text(), user_id=act.user_id)
    return begun, act.memory.after_turn(begun, act.text())


@operation(0.1, "regenerate", "after_turn")
def ask_again(act: Act) -> Any:
    begun = act.memory.regenerate(act.session_id, user_id=act.user_id)
    return begun, act.memory.after_turn(begun, act.text())


@operation(0.05, "completion")
def complete(act: Act) -> Any:
    tools = act.memory.tools(act.session_id, user_id=act.user_id)
    given: dict[str, Any] = {"user_id": act.user_id, "tools": act.chance.choice([None, tools])}
    if act.chance.random() < 0.5:
        return act.memory.completion(act.session_id, act.text(), **given)
    return list(act.memory.completion(act.session_id, act.text(), stream=True, **given))


@operation(2.5, "search")
def search(act: Act) -> Any:
    return act.memory.search(act.text(), **act.whose, limit=act.chance.randint(1, 30))


@operation(0.5, "explain")
def explain(act: Act) -> Any:
    asked_in = act.chance.choice([act.session_id, act.victim])
    if act.lone:
        return str(act.memory.explain(act.text(), session_id=act.session_id))
    return str(act.memory.explain(act.text(), user_id=act.user, session_id=asked_in))


@operation(0.5, "contexts")
def contexts(act: Act) -> Any:
    named = None if act.lone else act.user
    return [one.messages for one in act.memory.contexts(act.session_id, user_id=named)]


@operation(0.5, "search")
def search_session(act: Act) -> Any:
    return act.memory.search(act.text(), user_id=act.user_id, session_id=act.session_id)


@operation(8, "facts")
def facts(act: Act) -> Any:
    then = act.chance.choice([None, NOW, NOW + timedelta(days=act.chance.randint(1, 900))])
    return act.owner.facts(as_of=then)


@operation(1, "profile")
def profile(act: Act) -> Any:
    return act.owner.profile()


@operation(0.5, "audit", "stale")
def audit(act: Act) -> Any:
    return act.owner.audit(), act.owner.stale()


@operation(0.6, "pin", "unpin")
def pins(act: Act) -> Any:
    session, kept = act.memory.session(act.session_id, act.user_id), act.owner.notes().all()
    log = session.history(last=6)
    with suppress(InvalidInput):  # it was popped meanwhile
        if log:
            session.pin(act.chance.choice(log).seq)
            session.unpin(act.chance.choice(log).seq)
    for one in kept[:2]:
        act.owner.pin(one.id)
        act.owner.unpin(act.chance.choice(kept).id)
    return log, kept


@operation(0.3, "prune")
def prune(act: Act) -> Any:
    with suppress(InvalidInput):  # there is no such session
        return act.memory.prune(act.session_id, 100, user_id=act.user_id)


@operation(0.2, "surplus", "forget_all")
def tidy(act: Act) -> Any:
    found = act.owner.surplus(messages=True)
    return found, act.owner.forget_all(found[:2], why=act.text())


@operation(0.4, "forget", "facts")
def forget(act: Act) -> Any:
    known = act.owner.facts()
    if known and act.chance.random() < 0.5:
        fact = act.chance.choice(known).id
        return known, act.owner.forget(fact, why=act.text())
    source = (act.session_id, 1, act.chance.randint(1, 9))
    return known, act.owner.forget(source=source, why=act.text())
