"""The prefix that prompts share, and our token counts compared with litellm's."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings

from agent_memory import AgentMemory, Message, StaticMemory, Summarize, Trim, VectorMemory
from agent_memory.core.token_counter import TokenCounter
from tests.histories import call, histories, result
from tests.kit import at_length, user

WORDS = ["boat", "river", "lamp", "violin", "harvest", "engine", "pepper", "glacier", "orchard"]
COUNTER = TokenCounter()


def random_text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(3, 40)))


def alike(before: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> int:
    """Return the tokens of the messages that two prompts share at their beginning."""
    tokens = 0
    for one, other in zip(before, now, strict=False):
        if one != other:
            break
        tokens += COUNTER.chat(one)
    return tokens


@pytest.mark.parametrize("role", ["system", "user", "leading"])
@pytest.mark.parametrize("seed", range(4))
def test_cacheable_tokens_measure_the_shared_prefix_of_two_prompts(seed: int, role: Any) -> None:
    """Wrong: `cacheable_tokens` is larger than the prefix that two prompts share."""
    rng = random.Random(seed)
    blocks = rng.choice([[], [VectorMemory(embedding=None)], [StaticMemory(facts=["Ana sails."])]])
    strategy = rng.choice([Trim(), Summarize(max_summary_tokens=100)])
    total = 0
    fields: dict[str, Any] = {"overflow": strategy, "max_tokens": 700, "min_relevance": 0}
    with AgentMemory("memory://", blocks=blocks, memory_role=role, **fields) as memory:
        memory.update("s", {"role": "system", "content": "Be short."}, user_id="ana")
        before = None
        for _ in range(20):
            question = random_text(rng)
            context = memory.get("s", question, user_id="ana")
            now = context.to_messages()
            if before is None:
                assert context.cacheable_tokens is None
            else:
                reused = context.cacheable_tokens or 0
                assert 0 <= alike(before, now) - reused <= 8  # for the element's tags
                total += reused
            before = now
            memory.update("s", {"role": "user", "content": question}, user_id="ana")
            memory.update("s", {"role": "assistant", "content": random_text(rng)}, user_id="ana")
            memory.flush()
        prompts = memory.stats().prompts
    assert prompts.contexts == 19
    assert prompts.cacheable_tokens == total > (0 if role == "leading" else 0.3) * prompts.tokens


def test_cacheable_tokens_exclude_an_edited_message() -> None:
    """Wrong: `cacheable_tokens` counts a message that was edited without a change of its number."""
    with AgentMemory("memory://", blocks=[]) as memory:
        memory.update("s", {"role": "user", "content": "My code is 1234"})
        memory.update("s", {"role": "assistant", "content": "Noted."})
        whole = memory.get("s").tokens
        again = memory.get("s")
        assert again.cacheable_tokens == whole - COUNTER.overhead
        memory.edit("s", lambda entries: [{"role": "user", "content": "My code is ####"}])
        assert memory.get("s").cacheable_tokens == 0


def test_cacheable_tokens_include_the_rounds_of_tools_in_a_turn() -> None:
    """Wrong: `cacheable_tokens` ignores the rounds of tools within a turn."""
    with AgentMemory("memory://", blocks=[]) as memory:
        memory.update("s", {"role": "user", "content": "one two three"})
        memory.update("s", {"role": "assistant", "content": "four"})
        turn = memory.before_turn("s", {"role": "user", "content": "What time is it?"})
        first = turn.context
        done = [user("What time is it?"), call(["c"], "now"), result("c", "noon")]
        second = memory.before_turn("s", done).context
        assert second.cacheable_tokens == first.tokens - COUNTER.overhead


def test_cacheable_tokens_are_measured_for_each_session() -> None:
    """Wrong: `cacheable_tokens` is 0 when two sessions alternate."""
    with AgentMemory("memory://", blocks=[]) as memory:
        for name in ("a", "b", "a", "b"):
            memory.update(name, {"role": "user", "content": f"hello from {name}"})
            context = memory.get(name)
        assert context.cacheable_tokens
    assert context.cacheable_tokens < context.tokens


UNKNOWN_TO_LITELLM = ("input_audio", "from_the_future")


@pytest.fixture(scope="module")
def litellm() -> Any:
    """litellm, without its request for newer prices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        import litellm as module
    return module


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4", "claude-sonnet-4-5"])
@settings(max_examples=at_length(30))
@given(messages=histories())
def test_no_less_than_litellm(litellm: Any, model: str, messages: list[dict[str, Any]]) -> None:
    """Wrong: a context within our budget exceeds it by litellm's count."""
    chat = [view for m in messages for view in Message.of(m).views()]
    for message in chat:
        if isinstance(message.get("content"), list):
            known = [p for p in message["content"] if p["type"] not in UNKNOWN_TO_LITELLM]
            message["content"] = known
    theirs = litellm.token_counter(
        model=model, messages=_encodable(chat), use_default_image_token_count=True
    )
    assert TokenCounter(model).context(chat) >= theirs


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {key: _encodable(item) for key, item in value.items()}
    return value
