"""Items and whole replies of providers: stored unchanged, and continued with any other."""

import threading
from collections.abc import Callable, Mapping
from itertools import pairwise, product
from typing import Any

import pytest
from anthropic.types import MessageParam
from google.genai.types import Content
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import convert_to_messages
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import ConfigDict, TypeAdapter

from agent_memory import AgentMemory, InvalidInput, NullMemory, StaticMemory
from agent_memory.core.formats import registry
from agent_memory.core.formats.registry import RESPONSES, Format, format_of, register
from agent_memory.core.rendering import OPENING
from agent_memory.testing import check_context
from tests.histories import histories, unpaired
from tests.integration.test_provider_contexts import converse_takes
from tests.kit import user
from tests.provider_logs import SHAPES

ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {"type": "message", "role": "assistant", "id": "msg_1",
     "content": [{"type": "output_text", "text": "At nine.", "annotations": []}]},
]  # fmt: skip
ANSWER = {"object": "response", "id": "resp_1", "metadata": None, "output": ITEMS}
ASKED = {"role": "user", "content": "When does it open?"}


def test_a_response_of_the_responses_api_is_stored_as_its_items() -> None:
    """Wrong: a response is refused, or its items are changed in the log."""
    with AgentMemory(store="memory://") as memory:
        memory.update("s", [ASKED, ANSWER], user_id="ada")
        memory.after_turn(memory.before_turn("t", ASKED), ANSWER)
        memory.share("team").grant("ann", "write")
        memory.share("team").agent("ann").update("s", [ASKED, ANSWER])
        logs = [memory.history("s"), memory.history("t")]
        logs.append(memory.share("team").agent("ann").history("s"))
        for log in logs:
            assert [entry.message.raw for entry in log] == [None, *ITEMS]
        shown = memory.get("s").to_messages()
        assert [one["role"] for one in shown] == ["user", "assistant"]
        assert shown[1]["content"] == [{"type": "text", "text": "At nine."}]
    NullMemory().update("s", ANSWER)


def raw(item: dict[str, Any], format: str = RESPONSES) -> dict[str, Any]:
    return {"raw": item, "format": format}


SEALED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAB" * 40}
OUTPUT = {"type": "message", "role": "assistant", "id": "m",
          "content": [{"type": "output_text", "text": "Bought.", "annotations": []}]}  # fmt: skip
CALL = {"type": "function_call", "call_id": "c1", "name": "buy", "arguments": "{}", "id": "fc_1"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "done"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
TALK = [
    {"role": "system", "content": "Be brief."},
    user("I like plums."), {"role": "assistant", "content": "Noted."}, user("Buy some."),
    raw(SEALED), raw(THOUGHT), raw(CALL), raw(RESULT), raw(OUTPUT), user("And pears."),
]  # fmt: skip


def test_a_compaction_replaces_earlier_messages_for_its_provider() -> None:
    """Wrong: the provider is sent messages that its own compaction item replaces."""
    with AgentMemory(store="memory://", blocks=[]) as memory:
        memory.update("s", TALK)
        context = memory.get("s", format=RESPONSES)
        system = {"role": "system", "content": "Be brief."}
        asked = {"role": "user", "content": "And pears."}
        assert context.to_messages() == [system, SEALED, THOUGHT, CALL, RESULT, OUTPUT, asked]
        assert context.tokens <= context.max_tokens
        assert context.head == memory.get("s").head
        asked["content"] = "Why?"
        assert memory.session("s").get("Why?", format=RESPONSES).to_messages()[-1] == asked
        log = [entry.message.to_dict() for entry in memory.history("s")]
        assert log == TALK


def test_another_provider_gets_the_log_instead_of_a_compaction() -> None:
    """Wrong: another provider is sent a compaction item, or not the messages that it replaces."""
    with AgentMemory(store="memory://", blocks=[]) as memory:
        memory.update("s", TALK)
        chat = memory.get("s").to_messages()
        said = [one["role"] for one in chat]
        assert said == [
            "system", "user", "assistant", "user", "assistant", "tool", "assistant", "user",
        ]  # fmt: skip
        assert "gAAA" not in str(chat)
        assert "plums" in str(chat)
        for name in "xai.responses", "anthropic.messages":
            told = memory.get("s", format=name).to_messages()
            assert "gAAA" not in str(told)
            assert "plums" in str(told)
        given = memory.get("s", format="anthropic.messages").to_arguments()
        assert given["system"] == "Be brief."
        assert given["messages"][3:5] == [
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "c1", "name": "buy", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "done"}]},
        ]  # fmt: skip


def test_the_response_of_compact_is_stored_as_one_item() -> None:
    """Wrong: the user's message is stored twice, or is missing from the compacted item."""
    first = {"type": "message", "role": "user",
             "content": [{"type": "input_text", "text": "I like plums."}]}  # fmt: skip
    answer = {"object": "response.compaction", "id": "r", "created_at": 1741476542,
              "output": [first, SEALED]}  # fmt: skip
    with AgentMemory(store="memory://", blocks=[]) as memory:
        memory.update("s", [*TALK[:4], answer, user("And pears.")])
        assert len(memory.history("s")) == 6
        assert memory.history("s")[4].message.raw == answer
        told = memory.get("s", format=RESPONSES).to_messages()
        assert told[1:3] == [first, SEALED]
        assert [one.get("role") for one in told] == ["system", "user", None, "user"]
        assert str(memory.get("s").to_messages()).count("plums") == 1


def test_a_compaction_that_does_not_fit_replaces_no_messages() -> None:
    """Wrong: a compaction item that does not fit is left out with the messages it replaces."""
    sealed = raw({**SEALED, "encrypted_content": "x1y2z3" * 150})
    long = {"role": "assistant", "content": "word " * 250}
    with AgentMemory(store="memory://", blocks=[], max_tokens=1100) as memory:
        memory.update("s", [user("I like plums."), sealed, user("And pears.")])
        assert sealed["raw"] in memory.get("s", format=RESPONSES).to_messages()
        memory.update("s", [long, user("And figs.")])
        told = memory.get("s", format=RESPONSES)
        assert "plums" in str(told.to_messages())
        assert "x1y2z3" not in str(told.to_messages())
        assert told.tokens <= 1100


def test_claudes_compaction_becomes_a_summary_for_other_providers() -> None:
    """Wrong: Claude does not get its own compaction block back, or others no summary."""
    block = {"type": "compaction", "content": "Likes plums & <pears>.", "signature": "s", "x": [1]}
    answer = {"role": "assistant", "content": [block, {"type": "text", "text": "Hello."}]}
    failed = {"role": "assistant", "content": [{"type": "compaction", "content": None}]}
    with AgentMemory(store="memory://", blocks=[]) as memory:
        memory.update("s", [user("I like plums."), raw(answer, "anthropic.messages"), user("Buy.")])
        told = memory.get("s", format="anthropic.messages").to_messages()
        opening = {"role": "user", "content": OPENING}
        assert told == [opening, answer, {"role": "user", "content": "Buy."}]
        chat = memory.get("s").to_messages()
        assert [one["role"] for one in chat] == ["user", "assistant", "user"]
        summary = "<summary>\nLikes plums &amp; &lt;pears&gt;.\n</summary>\nHello."
        assert summary in chat[1]["content"]
        memory.update("s", raw(failed, "anthropic.messages"))
        again = memory.get("s", format="anthropic.messages").to_messages()
        assert again == [*told, failed]


def test_an_adapter_adds_a_format() -> None:
    """Wrong: items of another framework are not shown."""

    def to_chat(item: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{"role": role, "content": text} for role, text in item["said"]]

    item = {"said": [["user", "Which way?"], ["assistant", "Left."]]}
    silent = {"said": []}
    with AgentMemory(store="memory://", blocks=[]) as memory:
        memory.update("s", [raw(item, "mine"), raw(silent, "mine"), user("Sure?")])
        assert [one["content"] for one in memory.get("s").to_messages()] == ["Sure?"]
        register(Format("mine", to_chat, recognises=lambda fields: fields.keys() == {"said"}))
        memory.update("s", {"said": [["user", "Now?"]]})
        chat = memory.get("s").to_messages()
        assert [one["content"] for one in chat] == ["Which way?", "Left.", "Sure?", "Now?"]
        assert [entry.message.raw for entry in memory.history("s")][:2] == [item, silent]
        with pytest.raises(InvalidInput, match=r"anthropic\.messages, .*openai\.responses, .*xai"):
            memory.get("s", format="mine")


def test_a_format_added_while_others_load_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a thread that loads the built-in formats drops a format that was added meanwhile."""
    begun, goes_on = threading.Event(), threading.Event()
    loading = threading.Thread(target=lambda: registry.is_registered(None))
    made = registry._build

    def slow(*args: Any, **more: Any) -> Format:
        if threading.current_thread() is loading:
            begun.set()
            goes_on.wait(10)
        return made(*args, **more)

    monkeypatch.setattr(registry, "_build", slow)
    registry._formats.cache_clear()
    loading.start()
    assert begun.wait(10)
    register(Format("added meanwhile", lambda item: []))
    goes_on.set()
    loading.join()
    assert registry.is_registered("added meanwhile")


def test_recalls_are_added_to_the_providers_items() -> None:
    """Wrong: recalls are lost in a provider's format, or an item is sent twice."""
    facts = [StaticMemory(facts=["The shop opens at nine."])]
    asked = {"type": "message", "role": "user",
             "content": [{"type": "input_text", "text": "When?"}]}  # fmt: skip
    for role in "system", "user", "leading":
        with AgentMemory(store="memory://", blocks=facts, memory_role=role) as memory:
            memory.update("s", [user("Hello."), raw(OUTPUT), raw(asked)])
            told = memory.get("s", format=RESPONSES).to_messages()
            assert str(told).count("opens at nine") == str(told).count("When?") == 1
            assert (asked in told) == (role != "user")
            assert OUTPUT in told


def a_long_run() -> list[dict[str, Any]]:
    """Reasoning before each call, with calls that a chat can show and calls that it cannot."""
    items: list[dict[str, Any]] = [user("Book it.")]
    for at in range(8):
        items += [
            {"type": "reasoning", "id": f"rs_{at}", "summary": [], "encrypted_content": "g" * 150},
            {"type": "function_call", "call_id": f"c{at}", "name": "f", "id": f"fc_{at}",
             "arguments": '{"for": "%s"}' % ("anybody " * 90)},
            {"type": "function_call_output", "call_id": f"c{at}", "output": "found " * 90},
            {"type": "reasoning", "id": f"rq_{at}", "summary": [], "encrypted_content": "g" * 150},
            {"type": "computer_call", "call_id": f"k{at}", "id": f"cu_{at}",
             "action": {"type": "click", "x": at}},
            {"type": "computer_call_output", "call_id": f"k{at}",
             "output": {"type": "computer_screenshot", "image_url": "data:," + "x" * 400}},
            {"type": "mcp_approval_request", "id": f"ap_{at}", "name": "pay", "arguments": "{}"},
            {"type": "mcp_approval_response", "approval_request_id": f"ap_{at}", "approve": True},
        ]  # fmt: skip
    return items


def test_paired_items_are_sent_or_left_out_together() -> None:
    """Wrong: an item is changed, or a shortened or cleared run has half of a pair or reasoning."""
    run = a_long_run()
    follower = {one["id"]: then for one, then in pairwise(run) if one.get("type") == "reasoning"}
    given = [raw(item) for item in run]
    lengths = set[int | None]()
    for budget, window in product(range(200, 6_000, 200), (given, None)):
        with AgentMemory(store="memory://", blocks=[], max_tokens=budget) as memory:
            memory.update("s", given)
            context = memory.get("s", window=window, format=RESPONSES)
            sent = context.to_messages()
            assert context.tokens <= budget
            lengths.add(None if sent == run else len(sent))
            for at, item in enumerate(sent):
                before, after = sent[at - 1], sent[at + 1 : at + 2]
                match item.get("type"):
                    case "reasoning":
                        assert after == [follower[item["id"]]]
                    case "function_call" if "id" in item:
                        assert before.get("id") == item["id"].replace("fc", "rs")
                    case "computer_call":
                        assert before.get("id") == item["id"].replace("cu", "rq")
                        assert after[0]["call_id"] == item["call_id"]
                    case "computer_call_output":
                        assert before["call_id"] == item["call_id"]
                    case "mcp_approval_request":
                        assert after[0]["approval_request_id"] == item["id"]
                    case "mcp_approval_response":
                        assert before["id"] == item["approval_request_id"]
    assert None in lengths
    assert len(lengths) > 5


def test_a_shortened_result_leaves_its_call_unchanged() -> None:
    """Wrong: a call without an id loses its signature when its result is shortened."""
    call = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}
    answer = {"functionResponse": {"name": "f", "response": {"output": "word " * 900}}}
    log = [{"role": "model", "parts": [call]}, {"role": "user", "parts": [answer]}]
    with AgentMemory(store="memory://", blocks=[], max_tokens=500) as memory:
        memory.update("s", [user("Go."), *log])
        assert log[0] in memory.get("s", format="google.contents").to_messages()


@pytest.mark.parametrize("call_id", [{}, {"id": ""}, {"id": "a"}])
def test_a_call_with_any_id_is_left_out_without_its_result(call_id: dict[str, str]) -> None:
    text = {"type": "text", "text": "I look."}
    reply = {"role": "assistant", "content": [text, {"type": "tool_use", "name": "f", "input": {}}]}
    reply["content"][1] |= call_id  # type: ignore[index]
    with AgentMemory(store="memory://") as memory:
        memory.update("s", [ASKED, reply, user("And?")])
        shown = memory.get("s", format="anthropic.messages").to_messages()
        assert [one["content"] for one in shown] == [ASKED["content"], [text], "And?"]


def test_a_callers_metadata_does_not_affect_the_pairing_of_items() -> None:
    """Wrong: a caller's metadata is taken for ours, and its message is left out."""
    given = {**raw(OUTPUT), "metadata": {"pair": "x", "hidden_item": True}}
    with AgentMemory(store="memory://", blocks=[]) as memory:
        memory.update("s", [user("Buy."), given])
        assert memory.get("s", format=RESPONSES).to_messages()[1] == OUTPUT


Json = dict[str, Any]

USAGE = {"input_tokens": 3, "output_tokens": 2}
ENDS = {"stop_reason": "end_turn", "stop_sequence": None, "usage": USAGE, "container": None}


def of_claude(content: Any) -> Json:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude"}
    return {**head, "content": content, **ENDS}


TEXT = {"type": "text", "text": "It is nine.", "citations": None}
THINKING = {"type": "thinking", "thinking": "hm"}
SAID = {
    "role": "assistant", "content": "It is nine.", "refusal": None, "annotations": [],
    "audio": None, "function_call": None, "tool_calls": None,
}  # fmt: skip
CHOICE = {"index": 0, "message": SAID, "finish_reason": "stop", "logprobs": None}
SPOKEN = {"type": "output_text", "text": "It is nine.", "annotations": [], "logprobs": []}
ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
ITEM |= {"content": [SPOKEN]}
PARTS = {"role": "model", "parts": [{"text": "It is nine.", "thoughtSignature": "c2ln"}]}
CANDIDATE = {"content": PARTS, "finishReason": "STOP", "index": 0, "avgLogprobs": -0.1}
BLOCKS = {"role": "assistant", "content": [{"text": "It is nine."}]}

REPLIES: dict[str, Json] = {
    "anthropic": of_claude([TEXT]),
    "anthropic, text alone": of_claude("It is nine."),
    "anthropic, thinking": of_claude([{**THINKING, "signature": "s"}, TEXT]),
    "openai.chat": {
        **{"id": "c", "object": "chat.completion", "created": 1, "model": "gpt"},
        **{"choices": [CHOICE], "usage": {"total_tokens": 5}, "service_tier": "default"},
    },
    "openai.chat, a choice": CHOICE,
    "openai.chat, a message": SAID,
    "openai.chat, parsed": {**SAID, "tool_calls": []},
    "openai.responses": {
        **{"id": "resp_1", "object": "response", "created_at": 1_700_000_000, "model": "gpt"},
        **{"status": "completed", "output": [ITEM], "usage": USAGE, "tools": []},
    },
    "openai.responses, an item": ITEM,
    "google": {
        **{"candidates": [CANDIDATE], "usageMetadata": {"totalTokenCount": 5}},
        **{"modelVersion": "gemini", "responseId": "r"},
    },
    "google, a candidate": CANDIDATE,
    "bedrock": {
        **{"output": {"message": BLOCKS}, "stopReason": "end_turn", "usage": {"inputTokens": 3}},
        **{"metrics": {"latencyMs": 1}, "ResponseMetadata": {"HTTPStatusCode": 200}},
    },
    "langchain": {
        **{"type": "ai", "content": "It is nine.", "additional_kwargs": {"refusal": None}},
        **{"response_metadata": {"model_name": "gpt"}, "id": "run--1", "name": None},
        **{"tool_calls": [], "invalid_tool_calls": [], "usage_metadata": USAGE},
    },
    "ollama": {
        **{"model": "llama", "created_at": "2026-01-01T00:00:00Z", "done": True},
        **{"message": {"role": "assistant", "content": "It is nine."}, "done_reason": "stop"},
    },
}


def strict(model: Any) -> Callable[[Any], Any]:
    """Validate messages by an SDK's types, and refuse unknown fields."""
    return TypeAdapter(list[model], config=ConfigDict(extra="forbid")).validate_python


TAKES: dict[str, Callable[[list[Any]], Any]] = {
    "openai.chat": strict(ChatCompletionMessageParam),
    "openai.responses": strict(ResponseInputItemParam),
    "anthropic.messages": strict(MessageParam),
    "google.contents": strict(Content),
    "bedrock.converse": converse_takes,
    "langchain": convert_to_messages,
}


@pytest.mark.parametrize("form", SHAPES)
@pytest.mark.parametrize("name", REPLIES)
def test_a_stored_reply_can_be_continued_with_any_provider(name: str, form: str) -> None:
    """Wrong: a field such as `usage` is sent to another provider, which refuses it."""
    with AgentMemory(store="memory://", blocks=[]) as memory:
        for message in ("When?", REPLIES[name], "Thanks"):
            memory.update("s", message)
        given = memory.get("s", format=form).to_arguments()
    check_context(form, given)
    messages = given[next(iter(given))]
    assert len(messages) == 3
    assert "It is nine." in str(messages[1])
    if form == "openai.chat":  # the API accepts these fields, and its SDK returns them
        messages[1].pop("annotations", None)
        if messages[1].get("tool_calls", []) is None:
            del messages[1]["tool_calls"]
    TAKES[form](messages)


FORMATS = ("openai.responses", "xai.responses", "anthropic.messages")


@pytest.mark.parametrize("name", FORMATS)
@given(
    messages=histories(),
    max_tokens=st.sampled_from([100, 300, 1_000, 8_000]),
    role=st.sampled_from(["system", "user"]),
    question=st.sampled_from([None, "When does it open?"]),
)
def test_any_conversation_in_a_providers_format(
    name: str, messages: list[Any], max_tokens: int, role: Any, question: str | None
) -> None:
    """Wrong: a context is too large, parts calls and results, or items change or go astray."""
    facts = [StaticMemory(facts=["It opens at nine."])]
    with AgentMemory("memory://", blocks=facts, max_tokens=max_tokens, memory_role=role) as memory:
        memory.update("s", messages)
        context = memory.get("s", question, format=name)
        assert context.tokens <= max_tokens
        items = context.to_messages()
        assert [entry.message.to_dict() for entry in memory.history("s")] == messages
        assert memory.get("s", question).to_messages() == memory.get("s", question).to_messages()
    form = format_of(name)
    assert unpaired([view for item in items for view in form.to_chat(item)]) == []
    others = {"openai", "xai", "anthropic"} - {name.partition(".")[0]}
    assert not [other for other in others if f"sealed by {other}" in str(items)]
    own = [one["raw"] for one in messages if one.get("format") == name]
    given_ = [item for raw in own for item in form.items(raw)]
    compact = [place for place, item in enumerate(items) if form.compacts(item)]
    for place in compact:
        assert items[place] in given_
    assert len(compact) <= sum(form.compacts(raw) for raw in own)
    for item in items:
        if item.get("type") == "reasoning":
            assert item in own
    if question is not None and question not in str(messages):
        assert question in str(items[-1])
