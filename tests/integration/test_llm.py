"""The language model through litellm's HTTP client, against a scripted server."""

import logging
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from agent_memory.errors import ContextTooLong, ModelError, ModelRefused, ModelUnavailable
from agent_memory.models.llm import LLM, Charges, Ledger, Usage
from agent_memory.testing import FakeLLM
from agent_memory.testing.contract import together
from tests.kit import note_waits

KEY = "sk-test-canary"
HELLO = [{"role": "user", "content": "Say hello to me"}]


class Fact(BaseModel):
    """A form for structured answers."""

    name: str
    age: int


SARAH = Fact(name="Sarah", age=30)


def open_llm(
    fake: FakeLLM, model: str = "openai/test-model", *, initial_wait: float = 0.01,
    max_wait: float = 0.05, key: str = KEY, **fields: Any,
) -> LLM:  # fmt: skip
    fields = {"attempts": 4, "timeout": 30.0, "charges": Charges(), **fields}
    llm = LLM(model, api_base=fake.api_base, api_key=SecretStr(key), **fields)
    llm.initial_wait, llm.max_wait = initial_wait, max_wait
    return llm


def streamed(llm: LLM) -> Iterator[str]:
    """Yield the parts of an answer's text as they arrive."""
    for chunk in llm.chunks(HELLO):
        if chunk.choices and (text := chunk.choices[0].delta.content):
            yield text


def test_complete_sends_the_messages_and_returns_the_text(fake: FakeLLM) -> None:
    """Wrong: the request changes the messages, or loses `max_tokens`. Or it loses the speaker's
    name, because the provider has no field for it."""
    open_llm(fake, "mistral/any").complete([{**HELLO[0], "name": "Sam"}])
    assert fake.requests.pop()["messages"] == [{"role": "user", "content": "Sam: Say hello to me"}]
    fake.reply("Hello, Sarah.")
    assert open_llm(fake).complete(HELLO, max_tokens=7) == "Hello, Sarah."
    [request] = fake.requests
    assert request["messages"] == HELLO
    assert request["max_tokens"] == 7
    assert request["path"] == "/v1/chat/completions"


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_temporary_failures_are_retried(fake: FakeLLM, status: int) -> None:
    """Wrong: a temporary failure is not retried, or litellm and openai retry within each retry."""
    fake.fail(status, times=2)
    fake.reply("at last")
    llm = open_llm(fake)
    assert llm.complete(HELLO) == "at last"
    assert len(fake.requests) == 3
    assert (llm.charges.ledger.snapshot().calls, llm.charges.ledger.snapshot().failures) == (3, 2)


@pytest.mark.parametrize(
    ("status", "error", "calls"),
    [(429, ModelUnavailable, 3), (500, ModelUnavailable, 3)]
    + [(status, ModelRefused, 1) for status in (400, 401, 403, 404, 422)],
)
def test_attempts_bound_calls(
    fake: FakeLLM, status: int, error: type[ModelError], calls: int
) -> None:
    """Wrong: more requests are made than `attempts`, or a refused request is retried."""
    fake.fail(status, times=50)
    llm = open_llm(fake, attempts=3)
    with pytest.raises(error, match="openai/test-model"):
        llm.complete(HELLO)
    assert len(fake.requests) == calls
    assert llm.charges.ledger.snapshot() == Usage(calls=calls, failures=calls)


def test_a_missing_key_sends_no_request(fake: FakeLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a missing key, which litellm reports as a server error, is retried."""
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    llm = LLM("openai/test-model", api_base=fake.api_base)
    with pytest.raises(ModelRefused, match="API key"):
        llm.complete(HELLO)
    assert fake.requests == []
    assert llm.charges.ledger.snapshot().calls == 1


@pytest.mark.parametrize(
    ("code", "message", "error", "text"),
    [("context_length_exceeded", "Your input is too long.", ContextTooLong, "test-model"),
     (None, "This model's maximum context length is 10 tokens.", ContextTooLong, "test-model"),
     ("content_filter", "It broke the content policy.", ModelRefused, "policy.*Relax the content")],
)  # fmt: skip
def test_the_cause_of_a_refusal_is_named(
    fake: FakeLLM, code: str | None, message: str, error: type[ModelError], text: str
) -> None:
    """Wrong: the error of a context that is too long, or of a content filter, does not say so."""
    fake.fail(400, code=code, message=message)
    with pytest.raises(error, match=text):
        open_llm(fake).complete(HELLO)
    assert len(fake.requests) == 1


def test_a_call_without_an_answer_times_out(fake: FakeLLM) -> None:
    """Wrong: a call waits longer than its timeout for an answer."""
    fake.hang(60)
    fake.hang(60)
    llm = open_llm(fake, attempts=2, timeout=30)
    with pytest.raises(ModelUnavailable, match="2 attempts"):
        llm.complete(HELLO, timeout=0.2)
    assert len(fake.requests) == 2


def test_a_body_that_is_not_json_is_retried(fake: FakeLLM) -> None:
    """Wrong: an invalid body is not retried, or a decoding error is raised."""
    fake.malformed()
    fake.reply("fine")
    assert open_llm(fake).complete(HELLO) == "fine"
    assert len(fake.requests) == 2


def test_a_stopped_server_raises_model_unavailable(fake: FakeLLM) -> None:
    """Wrong: a bare connection error is raised."""
    llm = open_llm(fake, attempts=2)
    fake.stop()
    with pytest.raises(ModelUnavailable):
        llm.complete(HELLO)
    assert llm.charges.ledger.snapshot() == Usage(calls=2, failures=2)


@pytest.mark.parametrize(("after", "wait"), [(0.0, 0.0), (3.0, 3.0), (60.0, 5.0)])
def test_a_retry_waits_for_retry_after(
    fake: FakeLLM, monkeypatch: pytest.MonkeyPatch, after: float, wait: float
) -> None:
    """Wrong: a retry comes before `Retry-After`, or waits longer than `max_wait`."""
    waits = note_waits(monkeypatch)
    fake.fail(429, retry_after=after)
    open_llm(fake, initial_wait=0.01, max_wait=5.0).complete(HELLO)
    [waited] = waits
    assert wait <= waited <= wait + 0.02


def test_waits_between_retries_grow(fake: FakeLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: waits between retries do not grow, or exceed `max_wait`."""
    waits = note_waits(monkeypatch)
    fake.fail(500, times=5)
    open_llm(fake, attempts=6, initial_wait=1, max_wait=7).complete(HELLO)
    assert len(waits) == 5
    for waited, least in zip(waits, [1, 2, 4, 7, 7], strict=True):
        assert least <= waited <= min(7, least + 1)


def test_half_a_surrogate_pair_can_be_sent(fake: FakeLLM) -> None:
    """Wrong: a message with half a surrogate pair cannot be sent."""
    text = {"type": "text", "text": "odd \ud83d end"}
    open_llm(fake).complete([{"role": "user", "content": [text]}])
    [request] = fake.requests
    assert request["messages"][0]["content"] == [{**text, "text": "odd ? end"}]


def test_a_ledger_keeps_count_across_threads() -> None:
    """Wrong: concurrent additions to the ledger are lost."""
    ledger = Ledger()

    def work() -> None:
        for _ in range(500):
            ledger.add(Usage(calls=1, cost=0.5))

    together([work] * 4)
    assert ledger.snapshot() == Usage(calls=2000, cost=1000.0)


def test_a_stream_is_retried_before_its_first_part(fake: FakeLLM) -> None:
    """Wrong: a stream that fails before its first part is not retried."""
    fake.fail(503)
    fake.reply("here it is")
    assert "".join(streamed(open_llm(fake))) == "here it is"
    assert len(fake.requests) == 2


@pytest.mark.parametrize(
    ("status", "error", "calls"), [(429, ModelUnavailable, 2), (401, ModelRefused, 1)]
)
def test_streams_can_fail(fake: FakeLLM, status: int, error: type[ModelError], calls: int) -> None:
    """Wrong: a stream raises an error of litellm, or retries a refusal."""
    fake.fail(status, times=20)
    with pytest.raises(error):
        list(streamed(open_llm(fake, attempts=2)))
    assert len(fake.requests) == calls


def test_a_model_with_schema_support_receives_the_schema(fake: FakeLLM) -> None:
    """Wrong: a model that supports schemas gets the schema as text."""
    fake.reply_json(SARAH.model_dump())
    assert open_llm(fake, "openai/gpt-4o-mini").structured(HELLO, Fact) == SARAH
    [request] = fake.requests
    assert request["messages"] == HELLO
    assert request["response_format"]["type"] == "json_schema"
    assert request["response_format"]["json_schema"]["name"] == "Fact"


@pytest.mark.parametrize(
    "messages", [HELLO, [{"role": "system", "content": "Be exact."}, *HELLO]], ids=["none", "one"]
)
def test_an_unsupported_schema_becomes_text(fake: FakeLLM, messages: list[dict[str, str]]) -> None:
    """Wrong: a model without support for schemas gets no schema, or two system messages."""
    before = [dict(message) for message in messages]
    fake.reply_json(SARAH.model_dump())
    assert open_llm(fake).structured(messages, Fact) == SARAH
    [request] = fake.requests
    assert request["response_format"] == {"type": "json_object"}
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    system = request["messages"][0]["content"]
    assert '"required": ["name", "age"]' in system
    assert ("Be exact." in system) is (len(messages) == 2)
    assert messages == before


@pytest.mark.parametrize(
    "answer",
    [
        '```json\n{"name": "Sarah", "age": 30}\n```',
        '```\n{"name": "Sarah", "age": 30}\n```',
        'Here it is:\n\n```json\n{\n  "name": "Sarah",\n  "age": 30\n}\n```\nAnything else?',
        '\n {"name": "Sarah", "age": 30} \n',
    ],
)
def test_code_fences_around_json_are_removed(fake: FakeLLM, answer: str) -> None:
    """Wrong: a valid answer within a code fence is asked for again."""
    fake.reply(answer)
    assert open_llm(fake).structured(HELLO, Fact) == SARAH
    assert len(fake.requests) == 1


def test_code_fences_inside_json_are_not_removed(fake: FakeLLM) -> None:
    """Wrong: a code fence within a value cuts the answer."""
    name = "```\ncode\n```"
    fake.reply_json({"name": name, "age": 1})
    assert open_llm(fake).structured(HELLO, Fact).name == name


def test_the_context_window_of_an_unknown_model_has_a_default(fake: FakeLLM) -> None:
    """Wrong: the window of an unknown model raises, or output tokens are taken for the window."""
    assert open_llm(fake, "openai/gpt-4o-mini").context_window() == 128_000
    assert open_llm(fake, "openai/test-model").context_window() == 8192
    assert fake.requests == []


@pytest.mark.parametrize("key", [KEY, "plain+canary/42"])
@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_errors_and_logs_do_not_show_the_key(
    fake: FakeLLM, caplog: pytest.LogCaptureFixture, status: int, key: str
) -> None:
    """Wrong: an error, a traceback or the log shows the key that the provider quoted."""
    caplog.set_level(logging.DEBUG, logger="agent_memory")
    fake.fail(status, times=9, message=f"Who is {key}? See ?key={key}, or sk-abc***xyz")
    llm = open_llm(fake, attempts=2, key=key)
    with pytest.raises(ModelError) as caught:
        llm.complete(HELLO)
    shown = "".join(traceback.format_exception(caught.value))
    for text in (repr(llm), repr(vars(llm)), str(caught.value), repr(caught.value), shown):
        assert "canary" not in text
        assert "sk-" not in text
    assert "canary" not in caplog.text
    assert repr(llm) == "LLM('openai/test-model')"


def test_litellm_logs_do_not_show_the_key(fake: FakeLLM, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: litellm's debug log shows the key."""
    caplog.set_level(logging.DEBUG)
    logging.getLogger("LiteLLM").addHandler(caplog.handler)
    try:
        open_llm(fake).complete(HELLO)
    finally:
        logging.getLogger("LiteLLM").removeHandler(caplog.handler)
    assert "test-model" in caplog.text
    assert "canary" not in caplog.text


def test_stopping_the_server_ends_hanging_requests(fake: FakeLLM) -> None:
    """Wrong: stopping the fake server leaves a client waiting for its answer."""
    fake.hang(60)
    errors: list[ModelError] = []

    def ask() -> None:
        try:
            open_llm(fake, attempts=1).complete(HELLO)
        except ModelError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while not fake.requests and thread.is_alive():
        thread.join(0.01)
    fake.stop()
    thread.join(20)
    assert not thread.is_alive()
    assert len(errors) == 1
