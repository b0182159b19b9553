"""A turn fitted into a context: within the budget, whole, and with a prefix that stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agent_memory.core.context import BlockInfo, MemoryContext, Packer
from agent_memory.core.messages import Message
from agent_memory.core.records import Recall, Summary, empty_head
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.core.turns import (
    EARLIER,
    answer_in,
    check_so_far,
    check_whole,
    fitted,
    messages_of,
    open_calls,
    spare,
    tool_result,
)
from agent_memory.core.window import turns
from agent_memory.errors import InvalidMessage, MessageTooLarge
from agent_memory.testing.histories import call, histories, log_of, result, texts, unpaired

COUNTER = TokenCounter()
BLOCKS = {"vector": BlockInfo("vector", None), "static": BlockInfo("static", None)}
DAY = datetime(2026, 1, 5, tzinfo=UTC)

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
class Case:
    """A context, and a turn that grows."""

    context: MemoryContext
    asked: list[Message]
    more: list[Message]


def context_of(
    messages: Sequence[Any],
    *,
    recalls: Sequence[Recall] = (),
    summary: str | None = None,
    system: str | None = None,
    role: Literal["system", "user"] = "system",
    max_tokens: int = 100_000,
) -> MemoryContext:
    """The context that a session with these messages gives."""
    entries = log_of(messages, COUNTER.message, encoding=COUNTER.encoding)
    systems = [entry.message for entry in entries if entry.message.is_system]
    given = Message(role="system", content=system) if system is not None else None
    head = replace(
        empty_head("s", None, DAY),
        end=len(entries),
        system=systems[-1] if systems else given,
        summary=None if summary is None else Summary(summary, 0, 0, "local"),
        version=1,
    )
    packer = Packer(COUNTER, max_tokens, 200, role, BLOCKS)
    return packer.pack(head, packer.window(head, entries), recalls, [])


@st.composite
def rounds(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rounds of tools, each whole; ids are used again from round to round."""
    said: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(0, 2))):
        ids = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True))
        results = [result(one, draw(texts())) for one in draw(st.permutations(ids))]
        said += [call(ids), *results]
    return said


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Contexts with all that can be in them, and turns for which there is rarely room beside it."""
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
    whole = context_of(**fields).tokens
    turn = sum(map(COUNTER.message, asked))
    share, least = draw(st.integers(0, 20)), turn + draw(st.sampled_from([20, 20, 20, 0]))
    budget = draw(st.sampled_from([least + whole * share // 20, whole + turn * share // 20]))
    context = context_of(**fields, max_tokens=max(64, least, budget))
    return Case(context, asked, messages_of(draw(rounds()), "user"))


def own(context: MemoryContext) -> Message | None:
    """The session's system message, where the context shows it."""
    assert context.head is not None
    return context.head.system if context.head.system in context.messages else None


def sent(case: Case, asked: list[Message] | None = None) -> list[dict[str, Any]]:
    """What a model is sent; of cases that cannot fit another one is taken."""
    try:
        return fitted(case.context, case.asked if asked is None else asked, COUNTER)
    except MessageTooLarge:
        assume(False)
        raise


def shown(chat: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A chat without its memory element, wherever that stands."""
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
    return [view for message in messages if (view := message.to_openai()) is not None]


# --- fitting --------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(cases())
def test_no_request_passes_the_budget(case: Case) -> None:
    """Wrong: what is sent costs more than `max_tokens`, or a call stands there without its result.

    Of all that the turn says nothing is missing, and it stands at the end.
    """
    chat = sent(case)
    assert COUNTER.context(chat) <= case.context.max_tokens
    assert unpaired(chat) == []
    turn = [message for message in case.asked if not message.is_system]
    assert shown(chat)[-len(turn) :] == chat_of(turn)


@settings(max_examples=40)
@given(cases())
def test_a_turn_is_refused_only_if_it_cannot_fit_alone(case: Case) -> None:
    """Wrong: a question is refused for what stands beside it and could have gone."""
    system = next((m for m in reversed(case.asked) if m.is_system), own(case.context))
    turn = [message for message in case.asked if not message.is_system]
    alone = COUNTER.overhead + sum(map(COUNTER.message, [*turn, *([system] if system else [])]))
    assert spare(case.context, case.asked, COUNTER) == case.context.max_tokens - alone
    if alone > case.context.max_tokens:
        with pytest.raises(MessageTooLarge, match=f"{alone} tokens"):
            fitted(case.context, case.asked, COUNTER)
    else:
        fitted(case.context, case.asked, COUNTER)


def by_trial(context: MemoryContext, asked: Sequence[Message]) -> list[dict[str, Any]] | None:
    """The first chat that fits, of all that give way in the order that is promised."""
    given_above = [message for message in [own(context)] if message is not None]
    system = [message for message in asked if message.is_system] or given_above
    begun = context.messages[len(given_above) :]
    summary = [m for m in begun[:1] if m.metadata.get("by") == "local"]
    window = log_of(begun[len(summary) :], lambda _: 0)
    turn = [message for message in asked if not message.is_system]
    older = [[entry.message for entry in one] for one in turns(window)]
    ways = [(len(context.recalls) - gone, 0, summary) for gone in range(len(context.recalls))]
    ways += [(0, gone, summary) for gone in range(len(older) + 1)]
    ways.append((0, len(older), []))
    for recalls, gone, summed in ways:
        kept = [message for one in older[gone:] for message in one]
        messages = [*system, *summed, *kept, *turn]
        given = replace(context, recalls=context.recalls[:recalls], messages=messages)
        chat = given.to_messages()
        if COUNTER.context(chat) <= context.max_tokens:
            return chat
    return None


@settings(max_examples=40)
@given(cases())
def test_recalls_go_first_then_the_oldest_turns_then_the_summary(case: Case) -> None:
    """Wrong: turns go while recalls stay, the best recall or the newest turn goes first, half of a
    turn goes, or more than has to."""
    assume(all(message.role is not None for message in case.context.messages))
    expected = by_trial(case.context, case.asked)
    if expected is None:
        with pytest.raises(MessageTooLarge):
            fitted(case.context, case.asked, COUNTER)
    else:
        assert fitted(case.context, case.asked, COUNTER) == expected


@pytest.mark.parametrize("role", ["system", "user"])
@pytest.mark.parametrize("question", ["How are they?", "\n \n\n\n how are they?"])
def test_with_each_token_less_the_next_thing_goes(
    role: Literal["system", "user"], question: str
) -> None:
    """Wrong: as above; or what recalls cost is counted where they no longer stand."""
    pets = ("parrot", "tortoise", "hamster", "goat")
    said = [one for pet in pets for one in (u(f"My {pet} eats."), call([pet]), result(pet), A)]
    recalls = [Recall("vector", pet, f"The {pet} is {n} years old.") for n, pet in enumerate(pets)]
    context = context_of(said, recalls=recalls, summary="Pets.", system="Be kind.", role=role)
    asked = messages_of([u(question), call(["a"]), result("a")], "user")
    seen: list[str] = []
    for budget in range(context.tokens + 60, 0, -1):
        small = replace(context, max_tokens=budget)
        expected = by_trial(small, asked)
        if expected is None:
            with pytest.raises(MessageTooLarge):
                fitted(small, asked, COUNTER)
            break
        chat = str(fitted(small, asked, COUNTER))
        assert chat == str(expected)
        if chat not in seen:
            seen.append(chat)
    assert len(seen) == 1 + len(recalls) + len(pets) + 1  # all, less and less, and no summary


def u(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@settings(max_examples=40)
@given(cases())
def test_the_prefix_stays_while_a_turn_grows(case: Case) -> None:
    """Wrong: with each round of tools the request begins anew, and providers' caches are cold."""
    roomy = replace(case.context, max_tokens=100_000)
    first = fitted(roomy, case.asked, COUNTER)
    second = fitted(roomy, [*case.asked, *case.more], COUNTER)
    assert second[: len(first)] == first
    assert second[len(first) :] == chat_of(case.more)


@settings(max_examples=40)
@given(cases())
def test_what_went_stays_away_while_a_turn_grows(case: Case) -> None:
    """Wrong: a longer turn leaves room for what a shorter one had none for."""
    before = shown(sent(case))[: -len(chat_of([m for m in case.asked if not m.is_system]))]
    asked = [*case.asked, *case.more]
    after = shown(sent(case, asked))[: -len(chat_of([m for m in asked if not m.is_system]))]
    assert len(after) <= len(before)
    assert all(message in before for message in after)


def test_a_system_message_of_the_turn_stands_for_the_sessions() -> None:
    """Wrong: the model is sent two, or the new one behind what it is about."""
    context = context_of([{"role": "system", "content": "Be long."}, Q, A])
    chat = fitted(context, messages_of([S, Q], "user"), COUNTER)
    assert [m["content"] for m in chat] == ["Be brief.", Q["content"], "It rains.", Q["content"]]


def test_the_memory_stands_at_the_question() -> None:
    """Wrong: it stands behind calls of tools, and changes place with each round."""
    context = context_of([Q, A], recalls=[Recall("vector", "1", "Lives in Oslo.")])
    turn = [Q, call(["a"]), result("a")]
    chat = fitted(context, messages_of(turn, "user"), COUNTER)
    assert [m["role"] for m in chat] == ["user", "assistant", "system", *[m["role"] for m in turn]]
    assert "Lives in Oslo." in chat[2]["content"]


# --- results --------------------------------------------------------------------------------------


@given(texts(), st.integers(-5, 400))
def test_a_result_takes_no_more_than_its_share(text: str, most: int) -> None:
    """Wrong: a long result passes its share, or a short one is cut."""
    made = tool_result("call_1", text, most, COUNTER)
    whole = Message(role="tool", tool_call_id="call_1", content=text)
    if COUNTER.message(whole) <= most:
        assert made.content == text
    else:
        least = COUNTER.message(tool_result("call_1", text, 0, COUNTER))
        assert COUNTER.message(made) <= max(most, least)
        kept, _, mark = str(made.content).rpartition("\n[")
        assert text.startswith(kept)
        assert mark.startswith(f"{len(text):,} characters")


def test_a_long_result_fills_its_share() -> None:
    """Wrong: of a long result much less is left than there is room for."""
    made = tool_result("call_1", "The river rose again. " * 100_000, 1_000, COUNTER)
    assert 900 < COUNTER.message(made) <= 1_000


# --- what is a turn -------------------------------------------------------------------------------


def test_messages_may_be_given_in_any_form() -> None:
    """Wrong: a form that `update` takes is refused, or the speaker of a bare text is guessed."""
    asked = messages_of("Hello", "user")
    assert [(m.role, m.content) for m in asked] == [("user", "Hello")]
    assert messages_of("Hi", "assistant")[0].role == "assistant"
    assert messages_of(asked[0], "user") == asked
    assert [m.role for m in messages_of([Q, call(["a"]), result("a")], "user")] == [
        "user", "assistant", "tool",
    ]  # fmt: skip
    for wrong in (None, 3, ["a text in a list"], {"content": "no role"}, [None]):
        with pytest.raises(InvalidMessage):
            messages_of(wrong, "user")


def test_a_response_stands_for_the_rounds_before_it() -> None:
    """Wrong: what was said since the question is lost when the caller runs a tool."""
    body = {"choices": [{"message": call(["b"])}], EARLIER: [call(["a"]), result("a")]}
    as_object = SimpleNamespace(**body, model_dump=lambda: body)
    for response in (body, as_object):
        said = messages_of([Q, response, result("b")], "user")
        assert [m.role for m in said] == ["user", "assistant", "tool", "assistant", "tool"]
        check_so_far(said)


def test_a_message_with_such_a_field_stands_for_itself() -> None:
    """Wrong: an unknown field of a message makes messages of its own."""
    assert len(messages_of({**Q, EARLIER: [A]}, "user")) == 1
    assert len(messages_of({**Q, EARLIER: [A], "choices": [1]}, "user")) == 1


def test_an_answer_has_no_void_fields() -> None:
    """Wrong: a provider is sent another one's `null`s, for which it refuses the request."""
    void = {"refusal": None, "provider_specific_fields": {"refusal": None}, "tool_calls": []}
    kept = {"reasoning_content": "because", "extra": {"signature": "x", "n": 0, "none": None}}
    body = {"choices": [{"message": {"role": "assistant", "content": None, **void, **kept}}]}
    assert answer_in(body).to_dict() == {"role": "assistant", "content": None, **kept}


def asked_twice(said: Sequence[Message]) -> bool:
    """Whether the newest message calls under an id that waits for a result already."""
    calls = {one["id"] for one in said[-1].tool_calls or ()} if said else set()
    return not calls.isdisjoint(one["id"] for one in open_calls(said[:-1]))


@given(histories())
def test_a_turn_is_refused_just_where_a_call_or_result_is_alone(messages: list[Any]) -> None:
    """Wrong: half a pair is stored, and shown to no model; or a whole turn is refused."""
    said = messages_of(messages, "user")
    plain = [m for m in said if not m.is_system and m.to_openai() is not None]
    assume(plain)
    if unpaired(chat_of(plain)):
        with pytest.raises(InvalidMessage):
            check_so_far(said)
    elif not any(asked_twice(said[:end]) for end in range(len(said) + 1)):
        check_so_far(said)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([], "Nothing is asked"),
        ([S], "Nothing is asked"),
        ([Q], "role 'user'"),
        ([Q, A, S], "role 'system'"),
        ([Q, call(["a", "b"])], "no result: 'a'"),
        ([Q, call(["a", "b"]), result("a"), A], "no result: 'b'"),
        ([Q, call(["a"]), result("a")], "role 'tool'"),
        ([Q, call(["a"]), result("b"), A], "no result: 'a'"),
        ([Q, result("a"), A], "'a' answers no call"),
        ([Q, result("a"), call(["a"]), A], "'a' answers no call"),
        ([Q, call(["a"]), result("a"), result("a"), A], "'a' answers no call"),
        ([Q, FUNCTION_CALL, A], "function_call"),
        ([Q, FUNCTION, A], "'f' answers no call"),
    ],
)
def test_half_a_turn_is_refused(said: list[Any], told: str) -> None:
    """Wrong: it is taken for a whole one, or the caller is not told what is missing."""
    with pytest.raises(InvalidMessage, match=told):
        check_whole(messages_of(said, "user"))


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
def test_a_whole_turn_is_taken(said: list[Any]) -> None:
    """Wrong: ids that are used again, old function calls, or raw items are taken for a half."""
    check_whole(messages_of(said, "user"))


def test_open_calls() -> None:
    """Wrong: a call is run twice, or never."""
    said = messages_of([Q, call(["a", "b"]), result("b"), call(["a", "c"])], "user")
    assert [one["id"] for one in open_calls(said)] == ["a", "c"]
    with pytest.raises(InvalidMessage, match="no result: 'a'"):
        check_so_far(said)
    some = messages_of([Q, call(["a", "b"])], "user")
    check_so_far(some, open_calls(some))
    with pytest.raises(InvalidMessage, match="no result: 'b'"):
        check_so_far(some, open_calls(some)[:1])
