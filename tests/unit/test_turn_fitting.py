"""Fitting a turn into a context: within the budget, whole, and with a stable prefix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agent_memory.core.context import BlockInfo, MemoryContext
from agent_memory.core.formats.registry import CHAT, format_of
from agent_memory.core.messages import Message
from agent_memory.core.packing import Packer
from agent_memory.core.records import Entry, Head, Recall
from agent_memory.core.rendering import rendered
from agent_memory.core.shapes import shape_of
from agent_memory.core.turns import (
    EARLIER,
    answer_in,
    check_complete,
    check_so_far,
    messages_of,
    open_calls,
    question_of,
)
from agent_memory.errors import InvalidMessage
from tests.histories import COUNTER, call, counted, head_of, histories, result, texts, unpaired
from tests.kit import at_length
from tests.kit import user as u

BLOCKS = {"vector": BlockInfo("vector", None), "static": BlockInfo("static", None)}

Q = {"role": "user", "content": "What is the weather in Oslo?"}
A = {"role": "assistant", "content": "It rains."}
S = {"role": "system", "content": "Be brief."}
FUNCTION_CALL = {"role": "assistant", "content": None, "function_call": {"name": "f"}}
FUNCTION = {"role": "function", "name": "f", "content": "1"}

roles: st.SearchStrategy[Literal["system", "user"]] = st.sampled_from(["system", "user"])
recall_lists = st.lists(
    st.builds(Recall, st.sampled_from(list(BLOCKS)), st.uuids().map(str), texts()), max_size=4
)


@dataclass(frozen=True)
class World:
    """The other parts of a turn's context."""

    packer: Packer
    head: Head
    entries: list[Entry]
    recalls: Sequence[Recall]

    def context(self, asked: Sequence[Message] = ()) -> MemoryContext:
        window = self.packer.window(self.head, self.entries, asked)
        return self.packer.pack(self.head, window, self.recalls, [])

    def sent(self, asked: Sequence[Message]) -> list[dict[str, Any]]:
        return self.context(asked).to_messages()

    def within(self, max_tokens: int) -> World:
        return replace(self, packer=replace(self.packer, max_tokens=max_tokens))


@dataclass(frozen=True)
class Case:
    """A session and a growing turn."""

    world: World
    asked: list[Message]
    more: list[Message]


def world_of(
    messages: Sequence[Any],
    *,
    recalls: Sequence[Recall] = (),
    summary: str | None = None,
    system: str | None = None,
    role: Literal["system", "user"] = "system",
    max_tokens: int = 100_000,
) -> World:
    entries = counted(messages)
    head = head_of(entries, summary)
    if system is not None and head.system is None:
        head = replace(head, system=Message(role="system", content=system))
    return World(Packer(COUNTER, max_tokens, 200, role, BLOCKS), head, entries, recalls)


@st.composite
def rounds(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Generate complete rounds of tools. Ids are reused between rounds."""
    said: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(0, 2))):
        ids = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True))
        results = [result(one, draw(texts())) for one in draw(st.permutations(ids))]
        said += [call(ids), *results]
    return said


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Generate contexts with all kinds of parts, and turns that rarely fit beside them."""
    given = draw(st.lists(st.just(S), max_size=1))
    given = [*given, {"role": "user", "content": draw(texts())}, *draw(rounds())]
    asked = messages_of(given, "user")
    fields: dict[str, Any] = {
        "messages": draw(histories(8)),
        "recalls": draw(recall_lists),
        "summary": draw(st.none() | texts()),
        "system": draw(st.none() | st.just("Be kind.")),
        "role": draw(roles),
    }
    whole = world_of(**fields).context().tokens
    turn = sum(map(COUNTER.message, asked))
    share, least = draw(st.integers(0, 20)), turn + draw(st.sampled_from([20, 20, 20, 0]))
    budget = draw(st.sampled_from([least + whole * share // 20, whole + turn * share // 20]))
    world = world_of(**fields, max_tokens=max(100, budget * draw(st.integers(5, 10)) // 10))
    return Case(world, asked, messages_of(draw(rounds()), "user"))


def shown(chat: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a chat without its memory element."""
    found = []
    for message in chat:
        content = message.get("content")
        if isinstance(content, str) and content.startswith("<memory>\n"):
            if message["role"] == "system" or "</memory>\n\n" not in content:
                continue
            message = {**message, "content": content.split("</memory>\n\n", 1)[1]}
        elif isinstance(content, list) and str(content[:1]).startswith(
            "[{'type': 'text', 'text': '<memory>"
        ):
            message = {**message, "content": content[1:]}
        found.append(message)
    return found


def chat_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return rendered(messages, format_of(CHAT)).messages


@settings(max_examples=at_length(30))
@given(cases())
def test_no_request_passes_the_budget(case: Case) -> None:
    """Wrong: a request exceeds `max_tokens`, has a call without its result, or lacks the newest
    message. Also wrong: a turn that fits is cut."""
    context = case.world.context(case.asked)
    chat = context.to_messages()
    assert COUNTER.context(chat) <= context.tokens <= context.max_tokens
    assert unpaired(chat) == []
    turn = chat_of([message for message in case.asked if not message.is_system])
    assume(turn)
    newest = shown(chat)[-1]
    assert (newest["role"], newest.get("tool_call_id")) == (
        turn[-1]["role"],
        turn[-1].get("tool_call_id"),
    )
    if not any("In the newest turn" in warning for warning in context.warnings):
        assert shown(chat)[-len(turn) :] == turn


@settings(max_examples=at_length(30))
@given(cases(), st.integers(0, 400))
def test_a_turn_is_whole_wherever_it_fits_alone(case: Case, more: int) -> None:
    """Wrong: part of a turn is cut although earlier messages could have gone."""
    turn = [message for message in case.asked if not message.is_system]
    system = [message for message in case.asked if message.is_system][-1:]
    above = system or ([case.world.head.system] if case.world.head.system is not None else [])
    alone = COUNTER.overhead + sum(map(COUNTER.message, [*turn, *above]))
    budget = max(100, alone + alone // 5 + more)
    with_summary = case.world.within(budget)
    assume(case.world.head.summary is None)
    said = chat_of(turn)
    # calls after an empty message belong to the question before it, which stays with them
    assume(said and said[0]["role"] == "user")
    assert shown(with_summary.sent(case.asked))[-len(said) :] == said


@pytest.mark.parametrize("role", ["system", "user"])
@pytest.mark.parametrize("question", ["How are they?", "\n \n\n\n how are they?"])
def test_smaller_budgets_remove_whole_turns(role: Literal["system", "user"], question: str) -> None:
    """Wrong: half of a turn is removed, a removed one returns with less room, or recalls are
    counted where they are not shown."""
    pets = ("parrot", "tortoise", "hamster", "goat")
    said = [one for pet in pets for one in (u(f"My {pet} eats."), call([pet]), result(pet), A)]
    recalls = [Recall("vector", pet, f"The {pet} is {n} years old.") for n, pet in enumerate(pets)]
    world = world_of(said, recalls=recalls, summary="Pets.", system="Be kind.", role=role)
    asked = messages_of([u(question), call(["a"]), result("a")], "user")
    turns: list[int] = []
    for budget in range(world.context(asked).tokens + 10, 99, -1):
        context = world.within(budget).context(asked)
        chat = context.to_messages()
        assert COUNTER.context(chat) == context.tokens <= budget
        assert unpaired(chat) == []
        assert shown(chat)[-3:] == chat_of(asked)
        turns.append(str(chat).count("eats."))
    assert turns == sorted(turns, reverse=True)
    assert {4, 2, 1, 0} <= set(turns)


@settings(max_examples=at_length(20))
@given(cases())
def test_the_prefix_stays_while_a_turn_grows(case: Case) -> None:
    """Wrong: each round of tools changes the beginning of the request, so prompt caches miss."""
    roomy = case.world.within(100_000)
    first = roomy.sent(case.asked)
    second = roomy.sent([*case.asked, *case.more])
    assert second[: len(first)] == first
    assert second[len(first) :] == chat_of(case.more)


@settings(max_examples=at_length(20))
@given(cases())
def test_what_went_stays_away_while_a_turn_grows(case: Case) -> None:
    """Wrong: a longer turn shows an earlier one that a shorter turn had no room for."""
    world = case.world
    before = world.packer.window(world.head, world.entries, case.asked)
    after = world.packer.window(world.head, world.entries, [*case.asked, *case.more])
    assert {one.seq for one in after.turns} <= {one.seq for one in before.turns}


def test_a_request_has_one_system_message_and_memory_at_the_question() -> None:
    """Wrong: the model gets two system messages, or recalls at another place than the question."""
    world = world_of([{"role": "system", "content": "Be long."}, Q, A])
    chat = world.sent(messages_of([S, Q], "user"))
    assert [m["content"] for m in chat] == ["Be brief.", Q["content"], "It rains.", Q["content"]]
    world = world_of([Q, A], recalls=[Recall("vector", "1", "Lives in Oslo.")])
    turn = [Q, call(["a"]), result("a")]
    chat = world.sent(messages_of(turn, "user"))
    assert [m["role"] for m in chat] == ["user", "assistant", "system", *[m["role"] for m in turn]]
    assert "Lives in Oslo." in chat[2]["content"]


def test_a_turn_may_contain_messages_and_responses_of_any_form() -> None:
    """Wrong: a form that `update` accepts is refused."""
    asked = messages_of("Hello", "user")
    assert [(m.role, m.content) for m in asked] == [("user", "Hello")]
    assert messages_of("Hi", "assistant")[0].role == "assistant"
    assert messages_of(asked[0], "user") == asked
    assert [m.role for m in messages_of([Q, call(["a"]), result("a")], "user")] == [
        "user", "assistant", "tool",
    ]  # fmt: skip
    for wrong in (None, 3, {"content": "no role"}, [None]):
        with pytest.raises(InvalidMessage):
            messages_of(wrong, "user")
    body = {"choices": [{"message": call(["b"])}], EARLIER: [call(["a"]), result("a")]}
    as_object = SimpleNamespace(**body, model_dump=lambda: body)
    for response in (body, as_object):
        said = messages_of([Q, response, result("b")], "user")
        assert [m.role for m in said] == ["user", "assistant", "tool", "assistant", "tool"]
        check_so_far(said)
    assert len(messages_of({**Q, EARLIER: [A]}, "user")) == 1
    assert len(messages_of({**Q, EARLIER: [A], "choices": [1]}, "user")) == 1
    void = {"refusal": None, "provider_specific_fields": {"refusal": None}, "tool_calls": []}
    kept = {"reasoning_content": "because", "extra": {"signature": "x", "n": 0, "none": None}}
    body = {"choices": [{"message": {"role": "assistant", "content": None, **void, **kept}}]}
    assert answer_in(body).to_dict() == {"role": "assistant", "content": None, **kept}


def reuses_id(said: Sequence[Message]) -> bool:
    """Return whether the newest message reuses the id of a pending call."""
    calls = {one["id"] for one in said[-1].tool_calls or ()} if said else set()
    return not calls.isdisjoint(one["id"] for one in open_calls(said[:-1]))


def ids_called(view: dict[str, Any]) -> list[str]:
    old = [f"function {view['function_call']['name']}"] if view.get("function_call") else []
    return [str(one.get("id")) for one in view.get("tool_calls") or ()] + old


def ids_answered(view: dict[str, Any]) -> str:
    return str(view.get("tool_call_id", f"function {view.get('name')}"))


@given(histories())
def test_a_turn_is_refused_just_where_a_call_or_result_is_alone(messages: list[Any]) -> None:
    """Wrong: half a pair or a blank question is accepted, or a whole turn is refused."""
    said = messages_of(messages, "user")
    plain = [m for m in said if not m.is_system and m.to_openai() is not None]
    assume(plain)
    views = [view for message in plain for view in message.views()]
    calls = Counter(call_id for view in views for call_id in ids_called(view))
    results = Counter(ids_answered(view) for view in views if view["role"] in ("tool", "function"))
    asked = [shape_of(message) for message in question_of(plain)]
    is_blank = not any(one.speaks or one.calls or one.answers for one in asked)
    if calls != results or is_blank:
        with pytest.raises(InvalidMessage):
            check_so_far(said)
    elif not unpaired(views) and not any(reuses_id(said[:end]) for end in range(len(said) + 1)):
        check_so_far(said)


@pytest.mark.parametrize(
    "said",
    [
        [Q, A],
        [S, Q, A],
        [Q, call(["a", "b"]), result("b"), result("a"), A],
        [Q, call(["a"]), result("a"), call(["a"]), result("a"), A],
        [Q, FUNCTION_CALL, FUNCTION, A],
        [Q, {"raw": {"type": "reasoning", "summary": []}, "format": "openai.responses"}, A],
    ],
)
def test_a_complete_turn_is_accepted(said: list[Any]) -> None:
    """Wrong: a whole turn with reused ids, old function calls or raw items is refused."""
    check_complete(messages_of(said, "user"))


def test_calls_without_a_result_are_listed() -> None:
    """Wrong: a pending call is not listed, or a finished one is."""
    said = messages_of([Q, call(["a", "b"]), result("b"), call(["a", "c"])], "user")
    assert [one["id"] for one in open_calls(said)] == ["a", "c"]
    with pytest.raises(InvalidMessage, match="no result: 'a'"):
        check_so_far(said)
    some = messages_of([Q, call(["a", "b"])], "user")
    check_so_far(some, open_calls(some))
    with pytest.raises(InvalidMessage, match="no result: 'b'"):
        check_so_far(some, open_calls(some)[:1])
