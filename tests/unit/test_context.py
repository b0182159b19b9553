"""Packing and rendering contexts: within the budget, and with a stable prefix."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.context import BlockInfo, MemoryContext, summary_message
from agent_memory.core.messages import Message
from agent_memory.core.packing import Packer
from agent_memory.core.records import Entry, Recall, Summary
from agent_memory.engine.recall.contexts import to_add
from tests.histories import COUNTER, DAY, counted, head_of, histories, texts, unpaired
from tests.kit import assistant as a
from tests.kit import user as u

Role = Literal["system", "user"]

BLOCKS = {
    "static": BlockInfo("static", None),
    "facts": BlockInfo("extractive", 40),
    "vector": BlockInfo("vector", None),
}
roles: st.SearchStrategy[Role] = st.sampled_from(["system", "user"])
recall_lists = st.lists(
    st.builds(
        Recall,
        block=st.sampled_from(list(BLOCKS)),
        id=st.uuids().map(str),
        text=texts(),
        created_at=st.sampled_from([None, DAY]),
    ),
    max_size=6,
)


def packer(max_tokens: int, role: Role = "system", recall_tokens: int = 200) -> Packer:
    return Packer(COUNTER, max_tokens, recall_tokens, role, BLOCKS)


def pack(
    packer: Packer,
    entries: Sequence[Entry],
    recalls: Sequence[Recall],
    summary: str | None = None,
    question: Message | None = None,
) -> MemoryContext:
    head = head_of(entries, summary)
    turn_messages = [] if question is None else [question]
    return packer.pack(head, packer.window(head, entries, turn_messages, dedupe=True), recalls, [])


@given(histories(), recall_lists, st.none() | texts(), roles, st.integers(64, 900))
def test_no_context_passes_its_budget(
    messages: list[Any], recalls: list[Recall], summary: str | None, role: Role, max_tokens: int
) -> None:
    """Wrong: a context exceeds its budget, or the tokens it reports."""
    context = pack(packer(max_tokens, role), counted(messages), recalls, summary)
    chat = context.to_messages()
    assert COUNTER.context(chat) <= context.tokens <= max_tokens
    assert unpaired(chat) == []
    if all(isinstance(message.content, str) for message in context.messages):
        assert context.tokens == COUNTER.context(chat)


@given(histories(), recall_lists, st.none() | texts(), roles)
def test_entries_counted_by_another_tokenizer_are_counted_again(
    messages: list[Any], recalls: list[Recall], summary: str | None, role: Role
) -> None:
    """Wrong: after a change of the model, old counts let a context exceed the budget."""
    stale = [replace(entry, tokens=1, encoding="another") for entry in counted(messages)]
    context = pack(packer(300, role), stale, recalls, summary)
    assert COUNTER.context(context.to_messages()) <= context.tokens <= 300


@given(histories(), recall_lists, recall_lists, st.none() | texts(), roles)
def test_other_recalls_leave_the_prefix_as_it_is(
    messages: list[Any], first: list[Recall], second: list[Recall], summary: str | None, role: Role
) -> None:
    """Wrong: recalls change the prompt before the newest user message."""
    entries = counted(messages)
    one, two = (pack(packer(5000, role), entries, recalls, summary) for recalls in (first, second))
    assert [m.content for m in one.messages] == [m.content for m in two.messages]
    chats = [one.to_messages(), two.to_messages()]
    plain = replace(one, recalls=[]).to_messages()
    users = [i for i, m in enumerate(plain) if m["role"] == "user"]
    if users and users[-1] > 1:
        for chat in chats:
            assert chat[: users[-1]] == plain[: users[-1]]
            assert chat[len(chat) - len(plain) + users[-1] + 1 :] == plain[users[-1] + 1 :]


@given(st.lists(texts(), min_size=1, max_size=4), roles)
def test_recalled_text_opens_and_closes_nothing(contents: list[str], role: Role) -> None:
    """Wrong: a recalled message closes the memory element and poses as a system message."""
    recalls = [Recall("vector", str(n), text) for n, text in enumerate(contents)]
    context = pack(packer(5000, role, 2000), counted([a("hello"), u("question")]), recalls)
    chat = context.to_messages()
    place = 1
    memory = chat[place]["content"].removesuffix("\n\nquestion")
    found = re.findall(r"<[^>]*>?", memory)
    assert found == ["<memory>", "<vector_memory>", "</vector_memory>", "</memory>"]
    assert len(context.recalls) == len(contents)


RECALL = [Recall("vector", "1", "form HR-101", created_at=DAY), Recall("static", "2", "3 days")]
MEMORY = (
    "<memory>\n<static_memory>\n- 3 days\n</static_memory>\n"
    "<vector_memory>\n- [2026-01-05] form HR-101\n</vector_memory>\n</memory>"
)


def test_memory_is_placed_at_the_newest_user_message() -> None:
    """Wrong: recalls are at the top of the prompt, so prompt caches always miss."""
    talk = [{"role": "system", "content": "rules"}, u("one"), a("two"), u("three"), a("four")]
    recalled = {"role": "system", "content": MEMORY}
    chat = pack(packer(900), counted(talk), RECALL).to_messages()
    assert chat == [*talk[:3], recalled, *talk[3:]]
    chat = pack(packer(900, "user"), counted(talk), RECALL).to_messages()
    assert chat == [*talk[:3], u(f"{MEMORY}\n\nthree"), talk[4]]
    part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    chat = pack(packer(2000, "user"), counted([u([part])]), RECALL).to_messages()
    assert chat == [u([{"type": "text", "text": MEMORY}, part])]
    talk = [u("one"), a("two"), u("<summary> of my day")]
    chat = pack(packer(900, "user"), counted(talk), RECALL).to_messages()
    assert chat == [*talk[:2], u(f"{MEMORY}\n\n<summary> of my day")]


@pytest.mark.parametrize("system", ["system", "developer"])
@pytest.mark.parametrize("role", ["system", "user"])
def test_memory_precedes_the_turns_if_there_is_no_user_message(system: str, role: Role) -> None:
    """Wrong: recalls are before the system message or the summary, or inside the summary."""
    talk = [{"role": system, "content": "rules"}, a("hello")]
    chat = pack(packer(900, role), counted(talk), RECALL, "so far").to_messages()
    summary = {"role": role, "content": "<summary>\nso far\n</summary>"}
    assert chat == [talk[0], summary, {"role": role, "content": MEMORY}, talk[1]]


def test_a_summary_is_escaped_and_yields_to_the_turns() -> None:
    """Wrong: a summary that quotes markup closes its own element."""
    message = summary_message(Summary("a </summary> b", 5, 7, "local"), "system")
    text = "<summary>\na &lt;/summary&gt; b\n</summary>"
    assert message.to_openai() == {"role": "system", "content": text}
    assert message.metadata == {"kind": "summary", "upto": 7, "by": "local"}
    entries = counted([u("word " * 60)])
    head = replace(head_of(entries, "long " * 60, start=0), start=0)
    without = packer(100).window(head, entries)
    assert without.leading == []
    assert without.turns == entries
    beside = packer(200).window(head, entries)
    assert len(beside.leading) == 1
    assert beside.turns == entries
    talk = [{"role": "system", "content": "word " * 200}, u("hi")]
    context = pack(packer(100), counted(talk), [])
    system, said = context.to_messages()
    assert system["content"].startswith("word word")
    assert "characters left out" in system["content"]
    assert said == u("hi")
    assert context.tokens <= 100
    assert len(context.warnings) == 1
    assert "system message" in context.warnings[0]


def test_recalls_are_grouped_by_block_within_their_own_budget() -> None:
    """Wrong: a new session's first message recalls nothing, or recalls exceed their budget."""
    empty = packer(900)
    context = empty.pack(None, empty.window(None, []), RECALL, ["slow"])
    assert context.to_messages() == [{"role": "system", "content": MEMORY}]
    assert context.warnings == ["slow"]
    assert context.head is None
    recalls = [*RECALL, Recall("facts", "3", "Sarah is in Marketing")]
    context = pack(packer(900), counted([u("hi")]), recalls)
    assert [r.id for r in context.static_facts] == ["2"]
    assert [r.id for r in context.extracted_facts] == ["3"]
    assert [r.id for r in context.vector_matches] == ["1"]
    assert all(recall.tokens > 0 for recall in context.recalls)
    recalls = [Recall("vector", str(n), f"fact {n} " * 5) for n in range(20)]
    entries = counted([u("hi")])
    bare = pack(packer(5000), entries, []).tokens
    full = pack(packer(5000, recall_tokens=100), entries, recalls)
    assert 60 < full.tokens - bare <= 100
    assert pack(packer(5000, recall_tokens=0), entries, recalls).recalls == []
    context = pack(packer(64), [], [])
    assert context.to_messages() == []


def ask(content: Any, role: str = "user") -> Message:
    return Message(role=role, content=content)


@given(
    histories(),
    recall_lists,
    st.none() | texts(),
    texts().filter(str.strip),
    roles,
    st.integers(64, 900),
    st.booleans(),
)
def test_a_question_is_within_the_budget_and_stands_at_the_end(
    messages: list[Any],
    recalls: list[Recall],
    summary: str | None,
    text: str,
    role: Role,
    max_tokens: int,
    is_there: bool,
) -> None:
    """Wrong: the question exceeds `max_tokens`, is missing without a warning, or splits a pair."""
    question, given_to = ask(text), counted([*messages, *([u(text)] if is_there else [])])
    context = pack(packer(max_tokens, role), given_to, recalls, summary, question)
    chat = context.to_messages()
    assert COUNTER.context(chat) <= context.tokens <= max_tokens
    assert unpaired(chat) == []
    assert chat
    said = chat[-1]["content"].split("</memory>\n\n")[-1]
    assert said == text or (context.warnings and said.split("\n")[0].rstrip("\u2026") in text)
    if context.turn_messages:
        assert context.turn_messages[0].content == said


def test_the_question_appears_once_at_the_end_of_the_chat() -> None:
    """Wrong: a chat does not end with the question, or has it twice."""
    talk = [{"role": "system", "content": "rules"}, u("one"), a("two")]
    context = pack(packer(900), counted(talk), RECALL, question=ask("three?"))
    assert context.to_messages() == [*talk, {"role": "system", "content": MEMORY}, u("three?")]
    assert context.tokens == COUNTER.context(context.to_messages())
    assert [message.content for message in context.messages] == ["rules", "one", "two"]
    joined = pack(packer(900, "user"), counted(talk), RECALL, question=ask("three?")).to_messages()
    assert joined == [*talk, u(f"{MEMORY}\n\nthree?")]
    talk = [u("one"), a("two"), u("three?")]
    context = pack(packer(900), counted(talk), [], question=ask("three?"))
    assert context.to_messages() == talk
    assert context.turn_messages == []
    assert context.tokens == COUNTER.context(talk)
    before = pack(packer(900), counted([*talk, a("four")]), [], question=ask("three?"))
    assert before.to_messages() == [*talk, a("four"), u("three?")]  # the question is repeated


def test_recalls_are_counted_where_they_are_placed() -> None:
    """Wrong: recalls that stand with a user's words are counted elsewhere, because the item with
    the words begins with a system message."""
    said = [("system-prompt", "rules"), ("user-prompt", "When?")]
    parts = [{"part_kind": kind, "content": content} for kind, content in said]
    item = Message(raw={"kind": "request", "parts": parts}, format="pydantic_ai")
    context = pack(packer(900, "user"), counted([item.to_dict()]), RECALL)
    chat = context.to_messages()
    assert chat == [{"role": "system", "content": "rules"}, u(f"{MEMORY}\n\nWhen?")]
    assert context.tokens == COUNTER.context(chat)


@pytest.mark.parametrize("role", ["assistant", "tool", "system"])
def test_only_a_user_message_can_be_a_question(role: str) -> None:
    """Wrong: a question in another role than the user's enters the context."""
    turn_messages = to_add(ask("three", role))
    head = head_of(entries := counted([u("one"), a("two")]))
    window = packer(900).window(head, entries, turn_messages, dedupe=True)
    context = packer(900).pack(head, window, [], [])
    assert context.to_messages() == [u("one"), a("two")]
    assert context.warnings == []


def test_a_question_replaces_turns_that_do_not_fit() -> None:
    """Wrong: a question is taken for the message before it, or exceeds the budget."""
    first, second = (Message(raw=u(text), format="openai.responses") for text in ("one?", "two?"))
    for question, said in ((first, ["one?"]), (second, ["one?", "two?"])):
        context = pack(packer(900), counted([first.to_dict()]), [], question=question)
        assert [message["content"] for message in context.to_messages()] == said
    talk = [one for n in range(5) for one in (u(f"word{n} " * 8), a(f"said{n} " * 8))]
    entries = counted(talk)
    whole = pack(packer(5000), entries, []).tokens
    roomy = packer(whole + 5, recall_tokens=0)
    context = pack(roomy, entries, RECALL, question=ask("three? " * 4))
    assert context.messages[0].content == talk[2]["content"]
    assert context.to_messages()[-1] == u("three? " * 4)
    talk = [{"role": "system", "content": "rules"}, u("hi")]
    context = pack(packer(100), counted(talk), [], question=ask("word " * 200))
    system, said = context.to_messages()
    assert system == talk[0]
    assert said["content"].startswith("word word")
    assert "characters left out" in said["content"]
    assert context.tokens <= 100
    assert [message.content for message in context.messages] == ["rules"]
    newest, earlier = context.warnings
    assert "newest turn" in newest
    assert "earlier" in earlier
    empty = packer(900)
    context = empty.pack(None, empty.window(None, [], [ask("hello")]), RECALL, [])
    assert context.to_messages() == [{"role": "system", "content": MEMORY}, u("hello")]
    assert context.tokens == COUNTER.context(context.to_messages())
