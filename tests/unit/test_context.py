"""Packing and rendering: within the budget, and with a prefix that stays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.context import BlockInfo, MemoryContext, summary_message
from agent_memory.core.messages import Message
from agent_memory.core.packing import Packer
from agent_memory.core.records import Entry, Head, Recall, Summary
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.engine.recall.contexts import to_add
from tests.histories import histories, log_of, texts, unpaired

Role = Literal["system", "user"]

COUNTER = TokenCounter()
BLOCKS = {
    "static": BlockInfo("static", None),
    "facts": BlockInfo("extractive", 40),
    "vector": BlockInfo("vector", None),
}
DAY = datetime(2026, 1, 5, tzinfo=UTC)
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


def log(messages: Sequence[Any]) -> list[Entry]:
    return log_of(messages, COUNTER.message, encoding=COUNTER.encoding)


def head_of(entries: Sequence[Entry], summary: str | None = None, start: int = 0) -> Head:
    systems = [entry for entry in entries if entry.message.is_system]
    return Head(
        session_id="s",
        user_id=None,
        end=len(entries),
        total=entries[-1].total if entries else 0,
        expired=0,
        start=start,
        start_total=0,
        pinned=(),
        pinned_tokens=0,
        system=systems[-1].message if systems else None,
        system_tokens=systems[-1].tokens if systems else 0,
        summary=None if summary is None else Summary(summary, 0, start, "local"),
        cursors={},
        version=1,
        deleting=False,
        created_at=DAY,
    )


def pack(
    packer: Packer,
    entries: Sequence[Entry],
    recalls: Sequence[Recall],
    summary: str | None = None,
    question: Message | None = None,
) -> MemoryContext:
    head = head_of(entries, summary)
    asked = [] if question is None else [question]
    return packer.pack(head, packer.window(head, entries, asked, once=True), recalls, [])


def u(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def a(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


@given(histories(), recall_lists, st.none() | texts(), roles, st.integers(64, 900))
def test_no_context_passes_its_budget(
    messages: list[Any], recalls: list[Recall], summary: str | None, role: Role, max_tokens: int
) -> None:
    """Wrong: a context above the budget, or one that costs more than it says."""
    context = pack(packer(max_tokens, role), log(messages), recalls, summary)
    chat = context.to_messages()
    assert COUNTER.context(chat) <= context.tokens <= max_tokens
    assert unpaired(chat) == []
    if all(isinstance(message.content, str) for message in context.messages):
        assert context.tokens == COUNTER.context(chat)


@given(histories(), recall_lists, st.none() | texts(), roles)
def test_entries_counted_by_another_tokenizer_are_counted_again(
    messages: list[Any], recalls: list[Recall], summary: str | None, role: Role
) -> None:
    """Wrong: after a change of model, the old counts let a context pass the budget."""
    stale = [replace(entry, tokens=1, encoding="another") for entry in log(messages)]
    context = pack(packer(300, role), stale, recalls, summary)
    assert COUNTER.context(context.to_messages()) <= context.tokens <= 300


@given(histories(), recall_lists, recall_lists, st.none() | texts(), roles)
def test_other_recalls_leave_the_prefix_as_it_is(
    messages: list[Any], first: list[Recall], second: list[Recall], summary: str | None, role: Role
) -> None:
    """Wrong: what is recalled changes something before the newest user message."""
    entries = log(messages)
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
    """Wrong: a remembered message ends the memory element and speaks to the model as the system."""
    recalls = [Recall("vector", str(n), text) for n, text in enumerate(contents)]
    context = pack(packer(5000, role, 2000), log([a("hello"), u("question")]), recalls)
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


def test_memory_stands_before_or_in_the_newest_user_message() -> None:
    """Wrong: recalls at the top, where they break the prompt cache at every turn."""
    talk = [{"role": "system", "content": "rules"}, u("one"), a("two"), u("three"), a("four")]
    assert pack(packer(900), log(talk), RECALL).to_messages() == [
        *talk[:3],
        {"role": "system", "content": MEMORY},
        *talk[3:],
    ]
    assert pack(packer(900, "user"), log(talk), RECALL).to_messages() == [
        *talk[:3],
        u(f"{MEMORY}\n\nthree"),
        talk[4],
    ]


def test_memory_joins_content_parts() -> None:
    """Wrong: the picture in the newest user message is lost."""
    part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    chat = pack(packer(2000, "user"), log([u([part])]), RECALL).to_messages()
    assert chat == [u([{"type": "text", "text": MEMORY}, part])]


@pytest.mark.parametrize("system", ["system", "developer"])
@pytest.mark.parametrize("role", ["system", "user"])
def test_without_a_user_message_memory_stands_before_the_turns(system: str, role: Role) -> None:
    """Wrong: memory before the system message or the summary, or inside the summary."""
    talk = [{"role": system, "content": "rules"}, a("hello")]
    chat = pack(packer(900, role), log(talk), RECALL, "so far").to_messages()
    summary = {"role": role, "content": "<summary>\nso far\n</summary>"}
    assert chat == [talk[0], summary, {"role": role, "content": MEMORY}, talk[1]]


def test_a_user_who_writes_like_a_summary_is_still_a_user() -> None:
    """Wrong: memory is put in an older message, because the newest looks like a summary."""
    talk = [u("one"), a("two"), u("<summary> of my day")]
    chat = pack(packer(900, "user"), log(talk), RECALL).to_messages()
    assert chat == [*talk[:2], u(f"{MEMORY}\n\n<summary> of my day")]


def test_the_summary_is_one_marked_and_escaped_message() -> None:
    """Wrong: a summary that quotes markup closes its own element, or cannot be told from a turn."""
    message = summary_message(Summary("a </summary> b", 5, 7, "local"), "system")
    assert message.to_openai() == {
        "role": "system",
        "content": "<summary>\na &lt;/summary&gt; b\n</summary>",
    }
    assert message.metadata == {"kind": "summary", "upto": 7, "by": "local"}


def test_turns_come_before_the_summary_when_room_is_short() -> None:
    """Wrong: the newest message gives way to a summary of older ones."""
    entries = log([u("word " * 60)])
    head = replace(head_of(entries, "long " * 60, start=0), start=0)
    without = packer(100).window(head, entries)
    assert without.leading == []
    assert without.turns == entries
    beside = packer(200).window(head, entries)
    assert len(beside.leading) == 1
    assert beside.turns == entries


def test_a_system_message_above_the_budget_is_shown_in_part() -> None:
    """Wrong: a smaller `max_tokens` than the day before makes every context pass it, the rules are
    gone, or nobody is told."""
    talk = [{"role": "system", "content": "word " * 200}, u("hi")]
    context = pack(packer(100), log(talk), [])
    system, said = context.to_messages()
    assert system["content"].startswith("word word")
    assert "characters left out" in system["content"]
    assert said == u("hi")
    assert context.tokens <= 100
    assert len(context.warnings) == 1
    assert "system message" in context.warnings[0]


def test_a_session_that_does_not_exist_yet_has_recalls_only() -> None:
    """Wrong: nothing is recalled for a user's first message of a new session."""
    empty = packer(900)
    context = empty.pack(None, empty.window(None, []), RECALL, ["slow"])
    assert context.to_messages() == [{"role": "system", "content": MEMORY}]
    assert context.warnings == ["slow"]
    assert context.head is None


def test_recalls_are_sorted_by_what_their_block_is() -> None:
    """Wrong: a block that has a name of its own is missing from the context's lists."""
    recalls = [*RECALL, Recall("facts", "3", "Sarah is in Marketing")]
    context = pack(packer(900), log([u("hi")]), recalls)
    assert [r.id for r in context.static_facts] == ["2"]
    assert [r.id for r in context.extracted_facts] == ["3"]
    assert [r.id for r in context.vector_matches] == ["1"]
    assert all(recall.tokens > 0 for recall in context.recalls)


def test_recalls_keep_to_their_own_budget() -> None:
    """Wrong: recalls take what the budget has left, whatever `max_recall_tokens` says."""
    recalls = [Recall("vector", str(n), f"fact {n} " * 5) for n in range(20)]
    entries = log([u("hi")])
    bare = pack(packer(5000), entries, []).tokens
    full = pack(packer(5000, recall_tokens=100), entries, recalls)
    assert 60 < full.tokens - bare <= 100
    assert pack(packer(5000, recall_tokens=0), entries, recalls).recalls == []


def test_a_context_without_entries_and_messages() -> None:
    """Wrong: a view of nothing raises."""
    context = pack(packer(64), [], [])
    assert context.to_messages() == []


# --- the message that was asked about -------------------------------------------------------------


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
    """Wrong: the question comes on top of `max_tokens`, is missing without a word, or splits a call
    from its result."""
    question, given_to = ask(text), log([*messages, *([u(text)] if is_there else [])])
    context = pack(packer(max_tokens, role), given_to, recalls, summary, question)
    chat = context.to_messages()
    assert COUNTER.context(chat) <= context.tokens <= max_tokens
    assert unpaired(chat) == []
    assert chat
    said = chat[-1]["content"].split("</memory>\n\n")[-1]
    assert said == text or (context.warnings and said.split("\n")[0].rstrip("\u2026") in text)
    if context.asked:
        assert context.asked[0].content == said


def test_the_chat_ends_with_the_question_and_memory_stands_at_it() -> None:
    """Wrong: the model is sent a chat that ends with its own words, or the memory stands at an
    older question, where it breaks the prompt cache."""
    talk = [{"role": "system", "content": "rules"}, u("one"), a("two")]
    context = pack(packer(900), log(talk), RECALL, question=ask("three?"))
    assert context.to_messages() == [*talk, {"role": "system", "content": MEMORY}, u("three?")]
    assert context.tokens == COUNTER.context(context.to_messages())
    assert [message.content for message in context.messages] == ["rules", "one", "two"]
    joined = pack(packer(900, "user"), log(talk), RECALL, question=ask("three?")).to_messages()
    assert joined == [*talk, u(f"{MEMORY}\n\nthree?")]


def test_a_question_that_was_appended_already_stands_there_once() -> None:
    """Wrong: whoever stores the question first sends it twice."""
    talk = [u("one"), a("two"), u("three?")]
    context = pack(packer(900), log(talk), [], question=ask("three?"))
    assert context.to_messages() == talk
    assert context.asked == []
    assert context.tokens == COUNTER.context(talk)
    before = pack(packer(900), log([*talk, a("four")]), [], question=ask("three?"))
    assert before.to_messages() == [*talk, a("four"), u("three?")]  # it is asked again


@pytest.mark.parametrize("role", ["assistant", "tool", "system"])
def test_only_what_a_user_says_is_a_question(role: str) -> None:
    """Wrong: a result of a tool stands there without its call."""
    asked = to_add(ask("three", role))
    head = head_of(entries := log([u("one"), a("two")]))
    window = packer(900).window(head, entries, asked, once=True)
    context = packer(900).pack(head, window, [], [])
    assert context.to_messages() == [u("one"), a("two")]
    assert context.warnings == []


def test_raw_items_are_told_apart_by_what_they_say() -> None:
    """Wrong: a question in another provider's form is taken for the one before it."""
    first, second = (
        Message(raw={"role": "user", "content": text}, format="openai.responses")
        for text in ("one?", "two?")
    )
    for question, said in ((first, ["one?"]), (second, ["one?", "two?"])):
        context = pack(packer(900), log([first.to_dict()]), [], question=question)
        assert [message["content"] for message in context.to_messages()] == said


def test_turns_give_way_to_the_question() -> None:
    """Wrong: an old turn keeps the question out, or half of a turn goes."""
    talk = [one for n in range(5) for one in (u(f"word{n} " * 8), a(f"said{n} " * 8))]
    entries = log(talk)
    whole = pack(packer(5000), entries, []).tokens
    roomy = packer(whole + 5, recall_tokens=0)
    context = pack(roomy, entries, RECALL, question=ask("three? " * 4))
    assert context.messages[0].content == talk[2]["content"]
    assert context.to_messages()[-1] == u("three? " * 4)


def test_a_question_that_cannot_fit_is_shown_in_part() -> None:
    """Wrong: the budget is passed, `get` fails where it only was to recall, the question is not
    asked, or nobody is told."""
    talk = [{"role": "system", "content": "rules"}, u("hi")]
    context = pack(packer(100), log(talk), [], question=ask("word " * 200))
    system, said = context.to_messages()
    assert system == talk[0]
    assert said["content"].startswith("word word")
    assert "characters left out" in said["content"]
    assert context.tokens <= 100
    assert [message.content for message in context.messages] == ["rules"]
    newest, earlier = context.warnings
    assert "newest turn" in newest
    assert "earlier" in earlier


def test_a_question_for_a_session_that_does_not_exist_yet() -> None:
    """Wrong: the first message of a conversation is not sent."""
    empty = packer(900)
    context = empty.pack(None, empty.window(None, [], [ask("hello")]), RECALL, [])
    assert context.to_messages() == [{"role": "system", "content": MEMORY}, u("hello")]
    assert context.tokens == COUNTER.context(context.to_messages())
