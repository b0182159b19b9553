"""Messages of any provider in any order give contexts that each provider accepts."""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from anthropic.types import MessageParam
from botocore.session import get_session
from botocore.validate import ParamValidator
from google.genai.types import Content
from langchain_core.messages import SystemMessage, convert_to_messages
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

from agent_memory import AgentMemory, StaticMemory, Trim
from agent_memory.core import rendering
from agent_memory.core.cache import Cache
from agent_memory.core.formats.exact import read
from agent_memory.core.formats.registry import ANTHROPIC, CHAT, CONVERSE, GOOGLE, RESPONSES
from agent_memory.errors import InvalidContext, InvalidMessage
from agent_memory.testing import check_context
from tests.histories import call, result
from tests.integration.checked_contexts import checked, sdk_object
from tests.provider_logs import PNG, SHAPES, Logs

Json = dict[str, Any]

BIG = 1_000_000
LOGS = int(os.environ.get("AGENT_MEMORY_LOGS", "200")) // 8


def of(*messages: Any, form: str | None = None, **settings: Any) -> list[Any]:
    return arguments(*messages, form=form, **settings)[0]


def arguments(*messages: Any, form: str | None = None, **settings: Any) -> tuple[list[Any], Json]:
    with AgentMemory(store="memory://", blocks=[], **settings) as memory:
        for message in messages:
            memory.update("s", message)
        context = memory.get("s", format=form)
        given = context.to_arguments()
        name = next(iter(given))
        assert given.pop(name) == context.to_messages()
        return context.to_messages(), given


@pytest.mark.parametrize("part", range(8))
def test_every_log_gives_a_context_that_each_provider_accepts(part: int) -> None:
    """Wrong: a real log is refused, or its context would be refused by the provider."""
    failures: Counter[str] = Counter()
    kinds: list[Json] = [
        {"blocks": []},
        {"blocks": [StaticMemory(facts=["The shop opens at nine."])], "memory_role": "user"},
        {"blocks": [StaticMemory(facts=["The shop opens at nine."])], "max_tokens": 900},
    ]
    with AgentMemory(store="memory://", **kinds[part % 3]) as memory:
        for seed in range(part * LOGS, (part + 1) * LOGS):
            checked(seed, memory, Logs(seed, objects=sdk_object), failures)
    assert not failures


VOID = ("tool_calls", None)
"""The SDK's `model_dump()` returns this field. OpenAI refuses it."""


@pytest.mark.parametrize("shape", SHAPES)
def test_a_message_is_unchanged_in_a_context_of_its_own_format(shape: str) -> None:
    """Wrong: a field, a signature or an id is lost in the log or in the context."""
    for seed in range(12):
        said = Logs(seed).orderly(shape)
        with AgentMemory(store="memory://", blocks=[], max_tokens=BIG) as memory:
            for message in said:
                memory.update("s", message)
            sent = memory.get("s", format=shape).to_messages()
            assert sent == [
                {**one, "role": "user"}
                if one.get("role") == "function"
                else {key: value for key, value in one.items() if (key, value) != VOID}
                for one in said
            ]
            logged = [entry.message for entry in memory.history("s")]
            assert [read(one.raw) if one.raw else one.to_dict() for one in logged] == said


def converse_takes(messages: list[Any]) -> None:
    model = get_session().get_service_model("bedrock-runtime")
    shape = model.operation_model("Converse").input_shape
    report = ParamValidator().validate({"modelId": "any", "messages": messages}, shape)
    assert not report.has_errors(), report.generate_report()


TAKES: dict[str, Callable[[list[Any]], Any]] = {
    "openai.chat": TypeAdapter(list[ChatCompletionMessageParam]).validate_python,
    "openai.responses": TypeAdapter(list[ResponseInputItemParam]).validate_python,
    "anthropic.messages": TypeAdapter(list[MessageParam]).validate_python,
    "google.contents": TypeAdapter(list[Content]).validate_python,
    "bedrock.converse": converse_takes,
    "langchain": convert_to_messages,
}


@pytest.mark.parametrize("form", SHAPES)
def test_contexts_fit_the_types_of_the_providers_sdks(form: str) -> None:
    """Wrong: a context has the right order but does not fit the types of the provider's SDK."""
    for shape in SHAPES:
        for seed in range(4):
            said = without_unknown(Logs(seed).orderly(shape))
            TAKES[form](of(*said, form=form, max_tokens=BIG))


def without_unknown(value: Any) -> Any:
    """Remove fields that no SDK's type knows. OpenAI's API accepts `tool_calls: null`."""
    if isinstance(value, dict):
        left_out = ("x_unknown", "tool_calls" if value.get("tool_calls") is None else "")
        return {key: without_unknown(one) for key, one in value.items() if key not in left_out}
    return [without_unknown(one) for one in value] if isinstance(value, list) else value


def call_in(shape: str) -> list[Json]:
    """A picture and a question, a call, its result, and an answer."""
    said = Logs(1)
    picture = [{"kind": "image", "text": ""}, {"kind": "text", "text": "What is this?"}]
    made = [*said._said(shape, "user", picture), *said._called(shape, [("c1", "look")])]
    made += getattr(said, "_answered_" + shape.replace(".", "_"))([("c1", "look", "A cat.")], "")
    return [*made, *said._said(shape, "assistant", "It is a cat.")]


@pytest.mark.parametrize("form", [CHAT, RESPONSES, ANTHROPIC, GOOGLE, CONVERSE])
def test_the_arguments_of_a_tool_call_may_be_a_dict(form: str) -> None:
    """Wrong: a call of Transformers' chat templates goes out as a dict, which OpenAI refuses."""
    function = {"name": "look", "arguments": {"city": "Lisbon"}}
    asked = {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]}
    sent = of("How is it?", asked, {"role": "tool", "name": "look", "content": "Sunny"}, form=form)
    check_context(form, sent)
    assert "Lisbon" in str(sent)


@pytest.mark.parametrize("form", [ANTHROPIC, CONVERSE])
def test_text_before_tool_results_is_moved_after_them(form: str) -> None:
    """Wrong: text stands before results in one message, which Claude refuses."""
    made: list[Json] = call_in(form)
    place = next(at for at, one in enumerate(made) if "esult" in str(one["content"]))
    result = made[place]["content"][0]
    text = {"type": "text", "text": "Be quick."} if form == ANTHROPIC else {"text": "Be quick."}
    made[place] = {**made[place], "content": [text, result]}
    sent = of(*made, form=form)
    check_context(form, sent)
    assert sent[place]["content"] == [result, text]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", SHAPES)
def test_text_images_calls_and_results_survive_a_provider_change(shape: str, form: str) -> None:
    """Wrong: a conversation that continues with another provider loses a part."""
    sent = of(*call_in(shape), form=form, max_tokens=BIG)
    check_context(form, sent)
    with AgentMemory(store="memory://", blocks=[], max_tokens=BIG) as memory:
        memory.update("s", sent)
        chat = memory.get("s").to_messages()
    picture = chat[0]["content"][0]
    expected = "iVBOR" if shape != CONVERSE else "iVBO"
    assert picture["image_url"]["url"].startswith(f"data:image/png;base64,{expected}")
    assert chat[0]["content"][1] == {"type": "text", "text": "What is this?"}
    calls = [call for one in chat for call in one.get("tool_calls") or ()]
    assert [call["function"]["name"] for call in calls] == ["look"]
    (result,) = [one for one in chat if one["role"] == "tool"]
    assert result["content"] in ("A cat.", '{"r": "A cat."}')
    assert chat[-1]["content"] == "It is a cat."


@pytest.mark.parametrize("shape", SHAPES)
def test_gemini_3_accepts_the_calls_of_other_models(shape: str) -> None:
    """Wrong: Gemini 3 answers 400 to a call without a signature, or a signature is replaced."""
    said, log = Logs(1), ["go"]
    for ids in (("c1", "c2"), ("c3",)):
        log += said._called(shape, [(one, "look") for one in ids])
        results = [(one, "look", "A cat.") for one in ids]
        log += getattr(said, "_answered_" + shape.replace(".", "_"))(results, "")
    sent = of(*log, form=GOOGLE)
    check_context(GOOGLE, sent)
    answers = [one for one in sent if one["role"] == "model"]
    steps = [[part for part in one["parts"] if "functionCall" in part] for one in answers]
    if shape == GOOGLE:
        assert answers == [log[1], log[3]]
    else:
        assert [len(step) for step in steps] in ([2, 1], [1, 1, 1])
        for first, *others in steps:
            assert first["thoughtSignature"] == "skip_thought_signature_validator"
            assert not any("thoughtSignature" in part for part in others)


def test_an_unsupported_part_becomes_a_text_mark() -> None:
    """Wrong: a part that the provider refuses is sent, or is dropped without a mark."""
    sound = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    file = {"type": "file", "file": {"filename": "form.pdf", "file_id": "file-1"}}
    said = {"role": "user", "content": [sound, file, {"type": "hologram", "n": 1}]}
    texts = ("[audio]", "[file form.pdf]", "[hologram]")
    marks = [{"type": "text", "text": text} for text in texts]
    assert of(said, form=ANTHROPIC)[0]["content"] == marks
    assert of(said)[0] == said


@pytest.mark.parametrize("form", [RESPONSES, ANTHROPIC, GOOGLE, CONVERSE, "ai_sdk", "pydantic_ai"])
def test_a_user_is_named_in_the_text_if_a_format_has_no_names(form: str) -> None:
    """Wrong: in a group chat, some providers do not see who said what, or refuse a name."""
    picture = [{"type": "image_url", "image_url": {"url": PNG}}]
    contents = ("I bring it.", [{"type": "text", "text": "This one."}, *picture], picture, "When?")
    said = [{"role": "user", "name": "Jo\nLee", "content": content} for content in contents]
    facts = StaticMemory(facts=["The shop opens at nine."])
    with AgentMemory("memory://", blocks=[facts], memory_role="user") as memory:
        memory.update("s", said)
        sent = str(memory.get("s", format=form).to_messages())
    texts = ("Jo Lee: I bring it.", "Jo Lee: This one.", r"</memory>\n\nJo Lee: When?")
    assert [text for text in texts if text not in sent] == []
    assert sent.count("Jo Lee:") == 4
    assert [of(said[0], form=name)[0]["name"] for name in (CHAT, "langchain")] == ["Jo_Lee"] * 2


LOOKS = {"toolCallId": "c1", "toolName": "look", "input": {"n": 1}}
GIVES = {"type": "tool-result", "toolCallId": "c1", "toolName": "look"}
UI_TOOL = {"toolCallId": "c1", "input": {"n": 1}, "state": "output-available", "output": {"n": 4}}
UI_STEPS = [
    {"type": "step-start"},
    {"type": "reasoning", "text": "hm"},
    {"type": "text", "text": "I look."},
    {"type": "tool-look", **UI_TOOL},
    {"type": "step-start"},
    {"type": "text", "text": "It is 4."},
]
MODEL_STEPS = [
    {"role": "assistant", "content": [{"type": "text", "text": "I look."},
                                      {"type": "tool-call", **LOOKS}]},
    {"role": "tool", "content": [{**GIVES, "output": {"type": "json", "value": {"n": 4}}}]},
    {"role": "assistant", "content": [{"type": "text", "text": "It is 4."}]},
]  # fmt: skip


@pytest.mark.parametrize("form", SHAPES)
@pytest.mark.parametrize(
    "steps",
    [MODEL_STEPS, [{"id": "m1", "role": "assistant", "parts": UI_STEPS}],
     [{"id": "m1", "role": "assistant", "parts": [one for one in UI_STEPS if len(one) > 1]}],
     [{"role": "assistant", "parts": [*UI_STEPS[:3], {**UI_TOOL, "type": "dynamic-tool",
                                      "toolName": "look"}, UI_STEPS[5]]}],
     [{"role": "assistant", "parts": [UI_STEPS[2], {"type": "tool-invocation",
       "toolInvocation": {"state": "result", "toolCallId": "c1", "toolName": "look",
                          "args": {"n": 1}, "result": {"n": 4}}}, UI_STEPS[5]]}]],
)  # fmt: skip
def test_ai_sdk_calls_become_tool_calls(steps: list[Json], form: str) -> None:
    """Wrong: a call or its result is shown as text or a mark, so no model sees the result."""
    with AgentMemory(store="memory://", blocks=[]) as memory:
        for one in ("go", *steps, *[one for one in steps if "id" in one], "Thanks"):
            memory.update("s", one)
        check_context(form, memory.get("s", format=form).to_arguments())
        stored = [one.message.to_dict() for one in memory.history("s")][1:-1]
        ids = [{"id": one["id"]} if "id" in one else {} for one in stored]
        assert [one.get("raw", one) | two for one, two in zip(stored, ids, strict=True)] == steps
        if form != CHAT:
            return
        _, asked, told, said, _ = memory.get("s").to_messages()
    assert asked["content"] == "I look."
    (call,) = asked["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("c1", "look")
    assert call["function"]["arguments"] == '{"n": 1}'
    assert (told["role"], told["tool_call_id"], told["content"]) == ("tool", "c1", '{"n": 4}')
    assert "It is 4." in str(said["content"])


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"state": "input-available"}, None),
        ({"state": "approval-requested"}, None),
        ({"state": "output-error", "errorText": "timed out"}, "timed out"),
        ({"state": "output-denied"}, "[denied]"),
        ({"state": "output-available", "output": "four"}, "four"),
    ],
)
def test_the_state_of_an_ai_sdk_call_determines_its_result(part: Json, told: str | None) -> None:
    """Wrong: a running call has a result, or an error is lost."""
    tool = {"type": "tool-look", "toolCallId": "c1", "input": {}, **part}
    sent = of("go", {"role": "assistant", "parts": [tool]})
    assert [one["content"] for one in sent if one["role"] == "tool"] == [told] * (told is not None)


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ({"type": "text", "value": "four"}, "four"),
        ({"type": "error-text", "value": "timed out"}, "timed out"),
        ({"type": "content", "value": [{"type": "text", "text": "four"}]}, "four"),
        ({"type": "execution-denied", "reason": "no"}, "no"),
    ],
)
def test_ai_sdk_results_become_text(output: Json, told: str) -> None:
    """Wrong: a result is shown with its envelope."""
    log = ["go", *MODEL_STEPS[:1], {"role": "tool", "content": [{**GIVES, "output": output}]}]
    assert of(*log)[-1]["content"] == told


def test_ai_sdk_images_and_files_are_converted() -> None:
    """Wrong: a user's picture is lost, or a file is shown as a picture."""
    file = {"type": "file", "mediaType": "application/pdf", "filename": "a.pdf"}
    url = "data:application/pdf;base64,JVBERi0xLjQK"
    read = {"parts": [{**file, "url": url}]}, {"content": [{**file, "data": "JVBERi0xLjQK"}]}
    for given in read:
        (part,) = of({"role": "user", **given})[0]["content"]
        assert part == {"type": "file", "file": {"file_data": url, "filename": "a.pdf"}}
    (part,) = of({"role": "user", "content": [{"type": "image", "image": PNG}]})[0]["content"]
    assert part == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


def test_ai_sdk_contexts_contain_every_part() -> None:
    """Wrong: the SDK refuses a message, or a picture, a file, a call or reasoning is lost."""
    link = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}
    pdf = {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0="}}
    thinks = {"role": "assistant", "content": [{"type": "reasoning", "text": "hm"},
                                               {"type": "text", "text": "So."}]}  # fmt: skip
    log = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [link, pdf, {"type": "input_audio", "input_audio": {}}]},
        call(["c1"], "look", '{"n": 1}'),
        {**result("c1", "4"), "name": "look"},
        thinks,
        {"role": "assistant", "parts": UI_STEPS},
        "Thanks",
    ]
    messages, rest = arguments(*log, form="ai_sdk")
    text: Json = {"type": "text", "value": "4"}
    called: Json = {"toolCallId": "c1", "toolName": "look"}
    assert rest == {"system": "Be brief."}
    assert messages[:4] == [
        {"role": "user", "content": [
            {"type": "file", "mediaType": "image/*", "data": "https://x.test/a.png"},
            {"type": "file", "mediaType": "application/pdf", "data": "JVBERi0="},
            {"type": "text", "text": "[audio]"},
        ]},
        {"role": "assistant", "content": [{"type": "tool-call", **called, "input": {"n": 1}}]},
        {"role": "tool", "content": [{"type": "tool-result", **called, "output": text}]},
        thinks,
    ]  # fmt: skip
    assert [one["role"] for one in messages[4:]] == ["assistant", "tool", "assistant", "user"]
    assert messages[-2:] == [
        {"role": "assistant", "content": "It is 4."}, {"role": "user", "content": "Thanks"}
    ]  # fmt: skip


def use(*ids: str) -> Json:
    blocks = [{"type": "tool_use", "id": one, "name": "f", "input": {}} for one in ids]
    return {"role": "assistant", "content": blocks}


@pytest.mark.parametrize("form", SHAPES)
def test_cached_conversions_equal_fresh_ones(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a context reuses parts that were converted for another one."""
    cached, fresh = rendering._SETTLED, Cache[Any, Any](64)
    marked = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    for seed in range(30):
        log = Logs(seed).log(30)
        with AgentMemory(store="memory://", blocks=[], max_tokens=2_000) as memory:
            for at, message in enumerate(log):
                extra = [{"role": "user", "content": [marked]}] if at % 7 == 6 else []
                memory.update("s", [*message, *extra] if isinstance(message, list) else message)
                context = memory.get("s", "And now?" if at % 3 else None, format=form)
                sent = context.to_arguments()
                monkeypatch.setattr(rendering, "_SETTLED", fresh)
                fresh.clear()
                assert context.to_arguments() == sent
                monkeypatch.setattr(rendering, "_SETTLED", cached)
                messages = next(iter(sent.values()))
                for one in messages:
                    one.clear()
                assert context.to_messages() != messages or not messages


HELLO = [{"text": "hello"}]


@pytest.mark.parametrize(
    ("given", "role"),
    [("hello", "user"), ({"role": "human", "content": "hello"}, "user"),
     ({"role": "USER", "content": "hello"}, "user"),
     ({"role": "ai", "content": "hello"}, "assistant"),
     ({"role": "model", "content": "hello"}, "assistant"),
     ({"role": "model", "parts": [{"text": "hello"}]}, "assistant"),
     ({"parts": [{"text": "hello"}]}, "user"),
     ({"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}, "user"),
     ({"role": "user", "content": [{"text": "hello"}]}, "user"),
     ({"type": "human", "content": "hello"}, "user"),
     ({"type": "ai", "data": {"content": "hello"}}, "assistant"),
     ({"role": "user", "content": [{"type": "input_text", "text": "hello"}]}, "user"),
     ({"candidates": [{"content": {"role": "model", "parts": HELLO}}]}, "assistant"),
     ({"output": {"message": {"role": "assistant", "content": HELLO}}}, "assistant"),
     ({"role": "user", "additional_kwargs": {}, "blocks": [{"block_type": "text", **HELLO[0]}]},
      "user"),
     ({"choices": [{"message": {"role": "assistant", "content": "hello"}}]}, "assistant")],
)  # fmt: skip
def test_a_message_is_known_by_its_shape(given: Any, role: str) -> None:
    """Wrong: a message in a provider's or framework's format is refused, or loses its text."""
    (shown,) = of(given)
    assert shown["role"] == role
    assert "hello" in str(shown["content"])


@pytest.mark.parametrize(
    "given",
    [{}, {"content": "x"}, {"type": "mystery"}, {"type": ["x"]}, {"role": {}, "parts": []}, 3,
     None],
)  # fmt: skip
def test_an_unknown_shape_is_refused_with_a_clear_error(given: Any) -> None:
    """Wrong: an unknown shape raises a bare Python error, or an unclear one."""
    with AgentMemory(store="memory://", blocks=[]) as memory:
        with pytest.raises(InvalidMessage, match=r"\.$"):
            memory.update("s", given)
        assert memory.history("s") == []


def test_changes_to_returned_messages_do_not_change_the_context() -> None:
    """Wrong: a caller who changes a context's messages changes them for others."""
    said = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
    with AgentMemory(store="memory://", blocks=[]) as memory:
        memory.update("s", [said, CALL, TOOL])
        for _ in range(2):
            context = memory.get("s")
            chat = context.to_messages()
            assert chat == [said, CALL, TOOL]
            chat[0]["content"].clear()
            chat[1]["tool_calls"][0]["function"]["name"] = "g"
            content = context.messages[0].content
            content.clear()
            assert context.to_messages() == [said, CALL, TOOL]


def test_bytes_are_returned_as_bytes() -> None:
    """Wrong: a picture given as bytes, for Gemini, comes back as text."""
    blob = {"inline_data": {"mime_type": "image/png", "data": b"\x89PNG"}}
    content = {"role": "user", "parts": [blob, {"text": "What is it?"}]}
    assert of(content, form=GOOGLE) == [content]
    assert of(content)[0]["content"][0]["image_url"]["url"] == "data:image/png;base64,iVBORw=="


@pytest.mark.parametrize("role", ["ai", "assistant"])
def test_langchain_calls_in_a_chat_message_are_recognized(role: str) -> None:
    """Wrong: a LangChain call in a chat message loses its arguments, or makes contexts fail."""
    calls = [{"name": "w", "args": {"n": n}, "id": f"c{n}", "type": "tool_call"} for n in (1, 2)]
    log = ["go", {"role": role, "content": "", "tool_calls": calls}]
    log += [{"role": "tool", "tool_call_id": "c1", "content": "4"}, "wait"]
    log += [{"role": "tool", "tool_call_id": "c2", "content": "5"}]
    for form in SHAPES:
        check_context(form, of(*log, form=form))
        check_context(form, of(*log[:4], form=form))
    blocks = of(*log, form=ANTHROPIC)[1]["content"]
    assert [block["input"] for block in blocks] == [{"n": 1}, {"n": 2}]
    assert of(*log, form="langchain")[1]["tool_calls"] == calls


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("dump", [dict, SystemMessage.model_validate])
def test_a_langchain_system_message_becomes_the_system_text(dump: Any, role: str) -> None:
    """Wrong: a system text is lost, sent as a message that the API refuses, or leaves a window."""
    more = {"__openai_role__": role}
    given = {"type": "system", "content": "Be brief.", "additional_kwargs": more}
    for first in ({"role": role, "content": "Be brief."}, dump(given)):
        log = [first, {"type": "human", "content": "hello"}]
        assert arguments(*log, form=ANTHROPIC)[1] == {"system": "Be brief."}
        assert arguments(*log, form=CONVERSE)[1] == {"system": [{"text": "Be brief."}]}
        assert arguments(*log, form=GOOGLE)[1] == {"config": {"system_instruction": "Be brief."}}
        assert arguments(*log, form=CHAT)[1] == {}
    log += [{"type": "human", "content": f"word {n} " * 5} for n in range(30)]
    for form in ("openai.chat", "langchain"):
        sent = of(*log, form=form, max_tokens=120)
        assert sent[0]["content"] == "Be brief."
        assert len(sent) < 20
    sent = of(*log, form="langchain")[0]
    assert {key: sent[key] for key in given} == given


def test_a_refusal_is_shown() -> None:
    """Wrong: a context omits the model's refusal, although the user asks about it."""
    refusal = {"role": "assistant", "content": None, "refusal": "I cannot do that."}
    log = ["go", refusal, "why?"]
    assert of(*log)[1] == refusal
    for form in SHAPES:
        sent = of(*log, form=form)
        check_context(form, sent)
        assert len(sent) == 3
        assert "I cannot do that." in str(sent[1])
    assert of(*log, form=ANTHROPIC)[1] == {"role": "assistant", "content": "I cannot do that."}


def pdf(title: str | None) -> Json:
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"}
    return {"type": "document", **({"title": title} if title else {}), "source": source}


def test_bedrock_documents_get_valid_names_and_a_text() -> None:
    """Wrong: one invalid document name makes Bedrock refuse every later request."""
    log: list[Any] = []
    for title in ("Q3: report", "a.pdf", "a.pdf", None, None, "年\u30002026"):
        log += [{"role": "user", "content": [pdf(title), {"type": "text", "text": "x"}]}, "y"]
    sent = of(*log, form=CONVERSE)
    check_context(CONVERSE, sent)
    names = [block["document"]["name"] for block in sent[0]["content"] if "document" in block]
    assert names == ["Q3 report", "a pdf", "a pdf 2", "document", "document 2", "2026"]
    own = {"document": {"format": "pdf", "name": "R", "source": {"bytes": b"%PDF"}}}
    log = [{"role": "user", "content": [own, {"text": " "}]}]
    sent = of(*log, form=CONVERSE)
    assert sent == [{"role": "user", "content": [own, {"text": "[document]"}]}]
    result = {"toolUseId": "c", "content": [own, own], "status": "success"}
    log += [USED, {"role": "user", "content": [{"toolResult": result}]}]
    check_context(CONVERSE, of(*log, form=CONVERSE))


def test_shortened_messages_are_converted_too() -> None:
    """Wrong: a shortened message keeps a name or a picture that OpenAI refuses."""
    long = {"r": "long " * 5_000}
    call = {"functionCall": {"name": "fs.read" + "y" * 70, "args": long}}
    log: list[Any] = ["go", {"role": "model", "parts": [call]}]
    answer = {"name": call["functionCall"]["name"], "response": long}
    log += [{"role": "user", "parts": [{"functionResponse": answer}]}]
    sent = of(*log, max_tokens=2_000)
    check_context("openai.chat", sent)
    (one,) = sent[1]["tool_calls"]
    assert one["function"]["name"] == ("fs_read" + "y" * 70)[:64]
    image = {"image": {"format": "png", "source": {"bytes": b"abc"}}}
    result = {"toolUseId": "c", "content": [{"text": "word " * 5_000}, image]}
    log = ["go", USED, {"role": "user", "content": [{"toolResult": result}]}]
    told = of(*log, max_tokens=2_000)[-1]
    assert told["role"] == "tool"
    assert told["content"].endswith("[image]")


def test_only_the_last_four_cache_marks_are_sent() -> None:
    """Wrong: a request has more than four cache marks, and is refused."""

    def marked(text: str) -> Json:
        return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}

    result = {"type": "tool_result", "tool_use_id": "t1", "content": [marked("4")]}
    data = use("t1")
    data["content"][0]["input"] = {"cache_control": "of the caller"}
    log: list[Any] = [{"role": "system", "content": [marked("Be brief.")]}, "go", data]
    log.append({"role": "user", "content": [{**result, "cache_control": {"type": "ephemeral"}}]})
    said = [{"role": "user", "content": [marked(f"q{n}")]} for n in range(6)]
    for count, expected in ((1, 4), (2, 4), (3, 4), (6, 4)):
        sent, rest = arguments(*log, *said[:count], form=ANTHROPIC)
        check_context(ANTHROPIC, {"messages": sent, **rest})
        marks = str([sent, rest]).count("'cache_control': {")
        assert marks == expected
    assert sent[-4:] == said[-4:]
    assert sent[-5:-4] == [{"role": "user", "content": [{"type": "text", "text": "q1"}]}]
    assert sent[1] == data
    assert arguments(*log, form=ANTHROPIC)[1] == {"system": log[0]["content"]}


def image(**source: Any) -> Json:
    return {"role": "user", "content": [{"type": "image", "source": source}]}


@pytest.mark.parametrize(
    ("given", "mark"),
    [({"role": "user", "content": [{"image": {"format": "png", "source": {
         "s3Location": {"uri": "s3://b/a.png"}}}}]}, "[image]"),
     ({"role": "user", "content": [{"video": {"format": "mp4", "source": {"bytes": b"abc"}}}]},
      "[file video]"),
     (image(type="file", file_id="file_a"), "[image]"),
     ({"parts": [{"inlineData": {"mimeType": "image/heic", "data": "iVBORw0K"}}]}, "[image]"),
     ({"parts": [{"fileData": {"fileUri": "gs://b/a.pdf", "mimeType": "application/pdf"}}]},
      "[file]"),
     ({"type": "human", "content": [{"type": "file", "file": {"file_id": ""}}]}, "[file]")],
)  # fmt: skip
def test_media_that_openai_cannot_read_become_text(given: Json, mark: str) -> None:
    """Wrong: another provider's file reference is sent to OpenAI, which refuses it."""
    assert of(given)[0]["content"] in (mark, [{"type": "text", "text": mark}])
    sent = of(given, form=RESPONSES)[0]["content"]
    assert sent in (mark, [{"type": "input_text", "text": mark}])


def test_media_that_openai_can_read_stay() -> None:
    """Wrong: a picture by URL, or a file by id or data, becomes a mark."""
    link = "https://x.org/a"
    assert of(image(type="url", url=link))[0]["content"][0]["image_url"] == {"url": link}
    file = {"type": "input_file", "file_id": "file-1"}
    assert of({"role": "user", "content": [file]})[0]["content"][0]["file"]["file_id"] == "file-1"
    own = {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}
    assert of(own, form=RESPONSES)[0]["content"] == [file]
    (told,) = of({"role": "user", "content": [pdf("a")]})[0]["content"]
    assert told["file"]["file_data"].startswith("data:application/pdf")
    by_link = {"role": "user", "content": [{"type": "input_file", "file_url": link}]}
    assert of(by_link)[0]["content"] == [{"type": "text", "text": f"[file {link}]"}]


PDF = "data:application/pdf;base64,JVBERi0xLjQK"
V1_IMAGE = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
V0_IMAGE = {"type": "image", "source_type": "base64", "data": "iVBORw0KGgo="}
V1_FILE = {"type": "file", "base64": "JVBERi0xLjQK", "mime_type": "application/pdf"}


@pytest.mark.parametrize("speaker", [{"role": "human"}, {"role": "user"}, {"type": "human"}])
@pytest.mark.parametrize(
    ("block", "data"),
    [
        (V1_IMAGE, "iVBORw0KGgo="),
        ({**V0_IMAGE, "mime_type": "image/png"}, "iVBORw0KGgo="),
        (V1_FILE, "JVBERi0xLjQK"),
        ({"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}}, "JVBERi0xLjQK"),
    ],
)
def test_langchain_blocks_in_messages_are_recognized(speaker: Json, block: Json, data: str) -> None:
    """Wrong: OpenAI is sent a LangChain block, which it refuses, or a picture becomes a mark."""
    given = {**speaker, "content": [block]}
    kinds = {"openai.chat": ("image_url", "file"), RESPONSES: ("input_image", "input_file")}
    kinds[ANTHROPIC] = ("image", "document")
    for form, expected in kinds.items():
        (part,) = of(given, form=form)[0]["content"]
        assert part["type"] in expected
        assert data in str(part)
    assert of(given, form="langchain")[0]["content"] == [block]


SCREEN = {"type": "computer_call", "id": "cu_1", "call_id": "s", "action": {"type": "wait"}}
SHOT = {"type": "computer_call_output", "call_id": "s", "output": {"type": "computer_screenshot"}}


@pytest.mark.parametrize("hidden", [False, True])
def test_reasoning_is_not_sent_with_a_late_result_of_an_earlier_call(hidden: bool) -> None:
    """Wrong: reasoning is sent without the item that must follow it, and OpenAI refuses it."""
    first, late = (SCREEN, SHOT) if hidden else ({**FC, "call_id": "s"}, {**OUT, "call_id": "s"})
    thought = {"type": "reasoning", "id": "rs_2", "summary": []}
    sent = of("go", first, thought, late, FC, OUT, form=RESPONSES)
    check_context(RESPONSES, sent)
    assert sent[1:] == [first, late, thought, FC, OUT]
    sent = of("go", first, thought, late, "more", form=RESPONSES)
    check_context(RESPONSES, sent)
    assert sent[1:] == [first, late, {"role": "user", "content": "more"}]


@pytest.mark.parametrize("form", SHAPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_result_is_sent_although_a_parallel_result_is_missing(shape: str, form: str) -> None:
    """Wrong: one of two results never comes, and no context has the other one."""
    logs = Logs(0)
    calls = logs._called(shape, [("a", "search"), ("b", "get_policy")])
    log = [*calls, *logs._answered(shape, [("a", "search", "17 found")])]
    sent = of("Search.", *log, "And?", form=form)
    assert "17 found" in str(sent)
    assert "get_policy" not in str(sent)
    check_context(form, sent)


def test_claudes_thinking_is_kept_if_a_parallel_result_is_missing() -> None:
    """Wrong: Claude refuses results whose call lacks the thinking before it."""
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}
    text = {"type": "text", "text": "Looking."}
    blocks = [thinking, text, *use("a", "b", "c")["content"]]
    results = [{"type": "tool_result", "tool_use_id": one, "content": "4"} for one in "ac"]
    log = [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
    sent = of("go", *log, "Faster!", form=ANTHROPIC)
    assert sent[1] == {"role": "assistant", "content": [thinking, text, *use("a", "c")["content"]]}
    check_context(ANTHROPIC, sent)
    reasons = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "EqQB"}}}
    uses = [{"toolUse": {"toolUseId": one, "name": "f", "input": {}}} for one in "cd"]
    log = [{"role": "assistant", "content": [reasons, *uses]}, result_of({"text": "4"})]
    sent = of("go", *log, "Faster!", form=CONVERSE)
    assert sent[1] == {"role": "assistant", "content": [reasons, uses[0]]}


@pytest.mark.parametrize("form", SHAPES)
def test_a_late_result_is_sent_after_its_turn_left_the_window(form: str) -> None:
    """Wrong: a result is in no context, because the user spoke while the tool ran."""
    sent = of("one", CALL, "two", TOOL, form=form, overflow=Trim(max_turns=1))
    assert "'4'" in str(sent)
    check_context(form, sent)


@pytest.mark.parametrize("form", SHAPES)
def test_a_spoken_answer_is_shown_by_its_transcript(form: str) -> None:
    """Wrong: an answer of OpenAI's audio models is in no context, or its recording is sent back."""
    audio = {"id": "audio_1", "data": "UklGR" * 900, "transcript": "At nine.", "expires_at": 1}
    spoken = {"role": "assistant", "content": None, "refusal": None, "audio": audio}
    sent = of("When do you open?", spoken, "Thanks.", form=form, max_tokens=300)
    assert "At nine." in str(sent[1])
    assert "UklGR" not in str(sent)
    check_context(form, sent)
    with AgentMemory(store="memory://") as memory:
        memory.update("s", spoken)
        assert memory.search("At nine?", session_id="s")
        assert memory.history("s")[0].message.to_dict() == spoken


@pytest.mark.parametrize("form", SHAPES)
def test_ollamas_results_without_ids_are_matched_to_their_calls(form: str) -> None:
    """Wrong: the results of Ollama's calls, which have no ids, are in no context."""
    call = {"function": {"name": "get_policy", "arguments": {"q": 1}}}
    log = [{"role": "assistant", "content": "", "tool_calls": [call]},
           {"role": "tool", "content": "30 days", "tool_name": "get_policy"}]  # fmt: skip
    sent = of("May I return it?", *log, form=form)
    assert "30 days" in str(sent)
    check_context(form, sent)


@pytest.mark.parametrize("form", SHAPES)
def test_an_unparsed_langchain_call_is_sent_with_its_result(form: str) -> None:
    """Wrong: the model does not see that its arguments were invalid, and repeats them."""
    call = {"id": "c", "name": "f", "args": "{bad", "type": "invalid_tool_call", "error": None}
    log = [{"type": "ai", "content": "", "tool_calls": [], "invalid_tool_calls": [call]},
           {"type": "tool", "tool_call_id": "c", "content": "Fix the JSON."}]  # fmt: skip
    sent = of("go", *log, form=form)
    assert "{bad" in str(sent)
    assert "Fix the JSON." in str(sent)
    check_context(form, sent)
    assert "{bad" not in str(of("go", log[0], "And?", form=form))


@pytest.mark.parametrize("kind", ["local_shell_call", "shell_call", "apply_patch_call"])
def test_long_output_of_openais_own_tools_is_shortened_in_its_format(kind: str) -> None:
    """Wrong: an output that does not fit becomes the output of a function that nobody called."""
    text = "\n".join(f"line {number} of the file" for number in range(3_000))
    output: Any = [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    output = output if kind == "shell_call" else text
    call = {"type": kind, "id": "x_1", "call_id": "c", "status": "completed"}
    done = {"type": f"{kind}_output", "call_id": "c", "output": output}
    for budget in (300, 3_000):
        sent = of("ls", REASONS, call, done, form=RESPONSES, max_tokens=budget)
        assert sent[1:3] == [REASONS, call]
        assert "characters left out" in str(sent[3])
        assert sent[3] == {**done, "output": sent[3]["output"]}
        check_context(RESPONSES, sent)
    newer = [{"role": "user", "content": "And now?"}]
    sent = of("ls", REASONS, call, done, *newer, form=RESPONSES, max_tokens=3_000)
    assert sent[-1:] == newer
    check_context(RESPONSES, sent)


def test_a_screenshot_leaves_room_for_the_conversation() -> None:
    """Wrong: a picture counts as text, and each computer call displaces all that came before."""
    shot = {
        "type": "computer_screenshot",
        "image_url": "data:image/png;base64," + PNG[:80] + "A" * 90_000,
    }
    log = [REASONS, SCREEN, {**SHOT, "output": shot}]
    sent = of("My order is 4471.", SAID, "Book it.", *log, form=RESPONSES, max_tokens=4_000)
    assert sent[0]["content"] == "My order is 4471."
    assert sent[-3:] == log
    check_context(RESPONSES, sent)


def test_fields_of_one_provider_are_not_sent_to_another() -> None:
    """Wrong: Anthropic refuses a field of OpenAI's messages, or OpenAI does not get it back."""
    log = [{"role": "user", "content": "go", "cache_control": {"type": "ephemeral"}, "extra": 1},
           {"role": "assistant", "content": "Yes.", "phase": "final_answer"}]  # fmt: skip
    bare = [{key: one[key] for key in ("role", "content")} for one in log]
    assert of(*log, form=ANTHROPIC) == bare
    assert of(*log, form=RESPONSES) == [bare[0], log[1]]
    assert of(*log) == [log[0], bare[1]]
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}  # of Mistral
    said = {"role": "assistant", "content": [thinking, {"type": "text", "text": "Yes."}]}
    assert of("go", said)[1] == said
    assert "signature" not in str(of("go", said, form=ANTHROPIC))


def test_tools_added_during_a_session_are_sent_only_to_openai() -> None:
    """Wrong: the search or the added tool is lost, or replaces the session's instructions."""
    search = {"type": "tool_search_call", "execution": "server", "call_id": "ts_1", "arguments": {}}
    added = {"type": "additional_tools", "role": "developer", "tools": [{"type": "function"}]}
    log = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}, REASONS]
    log += [search, FC, OUT, added, {"role": "user", "content": "on"}]
    sent = of(*log, form=RESPONSES)
    assert sent == log
    check_context(RESPONSES, sent)
    assert [one["role"] for one in of(*log)] == ["system", "user", "assistant", "tool", "user"]


def test_litellms_signed_thinking_is_sent_only_until_the_turn_is_answered() -> None:
    """Wrong: after a change of the model, another provider refuses Claude's signed thinking. Or
    Claude does not get it back with the results of its calls."""
    block = {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}
    more = {"reasoning_content": "Hm.", "provider_specific_fields": {"citations": None}}
    thinking = {"thinking_blocks": [block], **more}
    answer = {"role": "assistant", "content": "Four."}
    log = ["How many?", {**CALL, **thinking}, TOOL, {**answer, **thinking}]
    assert of(*log[:3])[1:] == [{**CALL, **thinking}, TOOL]
    assert of(*log[:3], "Well?")[1] == {**CALL, **thinking}
    assert of(*log)[1:] == log[1:]
    assert of(*log, "Sure?")[1:4] == [CALL, TOOL, answer]
    assert of(*log, "Sure?", log[1], TOOL)[5:] == [{**CALL, **thinking}, TOOL]
    unsigned = {**answer, "reasoning_content": "Hm."}  # DeepSeek wants it back in later turns
    assert of("How many?", unsigned, "Sure?")[1] == unsigned


TOOL = result("c", "4")
CALL = call(["c"], "f")
FC = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUT = {"type": "function_call_output", "call_id": "c", "output": "4"}

USED = {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]}
FAILED = {"type": "tool_result", "tool_use_id": "a", "content": "", "is_error": True}
SAID = {"type": "message", "id": "msg_1", "role": "assistant",
        "content": [{"type": "output_text", "text": "Yes.", "annotations": []}]}  # fmt: skip


AGAIN = {key: SAID[key] for key in SAID if key != "id"}
REASONS = {"type": "reasoning", "id": "rs_1", "summary": []}


def result_of(*blocks: Json) -> Json:
    return {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [*blocks]}}]}


@pytest.mark.parametrize(
    ("form", "log", "sent"),
    [
        (CONVERSE, [USED, result_of({"text": " "})], [USED, result_of({"text": "[no output]"})]),
        (CONVERSE, [USED, result_of()], [USED, result_of({"text": "[no output]"})]),
        (
            ANTHROPIC,
            [use("a"), {"role": "user", "content": [FAILED]}],
            [use("a"), {"role": "user", "content": [{**FAILED, "content": "[no output]"}]}],
        ),
        (CHAT, [CALL, {**TOOL, "content": []}], [CALL, {**TOOL, "content": ""}]),
        (RESPONSES, [FC, {**OUT, "output": []}], [FC, {**OUT, "output": ""}]),
        (RESPONSES, [SAID, SAID], [SAID, AGAIN]),
        (RESPONSES, [REASONS, SAID] * 2, [REASONS, SAID, AGAIN]),
    ],
)
def test_invalid_items_are_repaired(form: str, log: list[Json], sent: list[Json]) -> None:
    """Wrong: an empty result, or an item stored twice, makes every later request fail."""
    given = of("go", *log, form=form)
    check_context(form, given)
    assert given[1:] == sent
    with pytest.raises(InvalidContext):
        check_context(form, [*given[:1], *log])


def test_custom_tool_outputs_match_their_calls_in_the_responses_api() -> None:
    """Wrong: a custom tool's output is assigned to a function call with the same id."""
    custom = {"type": "custom_tool_call", "call_id": "c", "name": "g", "input": "x"}
    output = {**OUT, "type": "custom_tool_call_output"}
    sent = of("go", FC, custom, OUT, output, form=RESPONSES)
    kinds = {one["call_id"]: one["type"] for one in sent if "output" not in one and "type" in one}
    told = {one["call_id"]: one["type"] for one in sent if "output" in one}
    assert told == {called: f"{kind}_output" for called, kind in kinds.items()}
    assert len(told) == 2
    assert of("go", FC, output, form=RESPONSES)[1:] == [FC, OUT]
    sound = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    sent = of({"role": "user", "content": [sound]}, form=RESPONSES)
    assert sent[0]["content"] == [{"type": "input_text", "text": "[audio]"}]
