"""Typical mistakes raise an error that says what to do, without pydantic's terms."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from agent_memory import AgentMemory, AgentMemoryConfig, AsyncAgentMemory, Redactor, VectorMemory
from agent_memory.errors import AgentMemoryError, ConfigError, InvalidSetting
from agent_memory.strategies import Chain, Summarize, Trim

JARGON = re.compile(
    r"Input should be|Extra inputs|value_error|validation error|errors\.pydantic\.dev|"
    r"\[type=|Value error|function-|positional argument"
)
Act = Callable[[AgentMemory], Any]


def opened(**fields: Any) -> Act:
    return lambda memory: AgentMemory(store="memory://", **fields)


MISTAKES: dict[str, tuple[Act, str]] = {
    "no key": (lambda it: it.completion("s", "Hi", model="openai/gpt-4o-mini"),
        "Set OPENAI_API_KEY in the environment, or pass `api_key`."),
    "a model without its provider": (lambda it: it.completion("s", "Hi", model="gpt-99"),
        "The model 'gpt-99' names no provider that litellm knows. Name it as provider/model"),
    "no model": (lambda it: it.completion("s", "Hi"),
        'Configure one, such as AgentMemory(model="openai/gpt-4o-mini")'),
    "a negative budget": (opened(max_tokens=-5), "max_tokens is -5; a context needs at least 64"),
    "a negative budget of a call": (lambda it: it.get("s", "Hi", max_tokens=-5),
        "max_tokens is -5. Give a number of tokens above 0."),
    "a word as a budget": (opened(max_tokens="lots"),
        "`max_tokens` of AgentMemory must be a whole number."),
    "a word as a budget of a call": (lambda it: it.get("s", "Hi", max_tokens="lots"),
        "max_tokens is 'lots'. Give a number of tokens above 0."),
    "a misspelt setting": (opened(max_token=8_000),
        "AgentMemory has no setting `max_token`. Did you mean `max_tokens`?"),
    "a misspelt argument": (lambda it: it.get("s", "Hi", max_token=5),
        "get() has no argument `max_token`. Did you mean `max_tokens`?"),
    "an argument of a handle": (lambda it: it.session("s", "u").get("Hi", max_token=5),
        "get() has no argument `max_token`. Did you mean `max_tokens`?"),
    "a user by another name": (lambda it: it.update("s", "Hi", user="ana"),
        "update() has no argument `user`. Did you mean `user_id`?"),
    "a user by position": (lambda it: it.update("s", "Hi", "ana"),
        "update() takes `session_id` and `message` by position. Pass other arguments by name, "
        "such as user_id=..."),
    "a user by position in async code": (lambda it: asyncio.run(
        AsyncAgentMemory(it).update("s", "Hi", "ana")),  # type: ignore[call-arg]
        "Pass other arguments by name"),
    "a user of a search by position": (lambda it: it.search("Hi", "ana"),
        "search() takes `query` by position. Pass other arguments by name, such as user_id=..."),
    "a budget by position": (lambda it: AgentMemory(None, 8000),
        "AgentMemory() takes `config` by position. Pass other arguments by name."),
    "a user in the settings": (opened(user_id="ana"),
        "AgentMemory has no setting `user_id`. Pass it to each call."),
    "no message": (lambda it: it.update("s"), "update() needs `message`."),
    "an unknown block": (opened(blocks=["vectors"]), "Did you mean 'vector'?"),
    "an unknown strategy": (opened(overflow="summarise"), "Did you mean 'summarize'?"),
    "one block without a list": (opened(blocks=VectorMemory()),
        "`blocks` of AgentMemory must be a list."),
    "a block's class": (opened(blocks=[VectorMemory]), "VectorMemory is a class. Call it"),
    "a strategy's class": (opened(overflow=Trim), "Trim is a class. Call it"),
    "a strategy as a block": (opened(blocks=[Trim()]),
        "`blocks.0` of AgentMemory must be a Block."),
    "a misspelt setting of a block": (lambda it: VectorMemory(max_token=5),
        "VectorMemory has no setting `max_token`. Did you mean `max_tokens`?"),
    "a wrong setting of a nested mapping": (opened(redact={"email": True}),
        "`redact` has no setting `email`. Did you mean `emails`?"),
    "a misspelt setting of a kind": (
        opened(overflow={"kind": "summarize", "max_summary_token": 300}),
        "`overflow` has no setting `max_summary_token`. Did you mean `max_summary_tokens`?"),
    "a misspelt setting of a member of a chain": (
        opened(overflow={"kind": "chain", "members": [{"kind": "trim", "keep_message": 3}]}),
        "`overflow.members.0` has no setting `keep_message`. Did you mean `keep_messages`?"),
    "a setting of another kind": (opened(blocks=[{"kind": "notes", "facts": ["Hi"]}]),
        "`blocks.0` has no setting `facts`. Remove it."),
    "settings as one mapping": (lambda it: AgentMemory({"max_tokens": 5_000}),
        "Pass settings by name: AgentMemory(**settings)."),
    "no strategies in a chain": (lambda it: Chain([]), "`members` of Chain"),
    "a wrong setting of a redactor": (lambda it: Redactor(emails="perhaps"),
        "`emails` of Redactor must be true or false."),
    "an unknown mode": (opened(overflow_mode="later"),
        "`overflow_mode` of AgentMemory must be 'inline' or 'background'."),
    "a changed setting": (lambda it: setattr(it.config, "max_tokens", 5),
        "`max_tokens` of AgentMemory cannot be changed. Create another AgentMemory with "
        "the new value."),
    "a number as a store": (lambda it: AgentMemory(store=5),
        "`store` of AgentMemory must be text or a KernelStore"),
}  # fmt: skip


@pytest.mark.parametrize(("act", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_the_error_names_a_remedy(act: Act, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    refused = pytest.raises((AgentMemoryError, TypeError))
    with AgentMemory(store="memory://") as memory, refused as caught:
        act(memory)

    assert sentence in str(caught.value)
    assert not JARGON.search(str(caught.value))


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [("BLOCKS", "vector", "AGENT_MEMORY_BLOCKS is not valid JSON. Set it to JSON."),
     ("MAX_TOKEN", "9000", "AGENT_MEMORY_MAX_TOKEN is not a setting. Did you mean "
      "AGENT_MEMORY_MAX_TOKENS?"),
     ("OVERFLOW__KEEP_MESAGES", "3", "`overflow` has no setting `keep_mesages`. Did you mean "
      "`keep_messages`?")],
)  # fmt: skip
def test_an_invalid_environment_variable_raises_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv("AGENT_MEMORY_OVERFLOW__KIND", "trim")
    monkeypatch.setenv(f"AGENT_MEMORY_{name}", value)
    with pytest.raises(InvalidSetting) as caught:
        AgentMemory(store="memory://")

    assert sentence in str(caught.value)
    assert value not in str(caught.value)


def test_errors_of_the_callers_functions_are_raised_unchanged() -> None:
    """Wrong: an error of the caller's function is replaced, or an invalid value is shown."""

    def broken(text: str) -> str:
        raise TypeError("of the caller's function")

    with AgentMemory("memory://", redact=broken) as memory, pytest.raises(TypeError) as caught:
        memory.update("s", "Hi")

    assert str(caught.value) == "of the caller's function"
    with pytest.raises(InvalidSetting) as caught:
        AgentMemoryConfig(max_tokens="sk-secret", models="sk-secret")  # type: ignore[call-arg, arg-type]

    assert isinstance(caught.value, ConfigError)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "sk-secret" not in str(caught.value)
    with AgentMemory(
        store="memory://", model="openai/gpt-4o-mini", blocks=["vector"], overflow="summarize"
    ) as memory:
        assert [type(block) for block in memory.config.blocks] == [VectorMemory]
        assert isinstance(memory.config.strategy, Summarize)
