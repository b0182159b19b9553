"""Checks contexts of random logs by the providers' rules: `python -m benchmarks.contexts`.

Every message is stored, and after each update the context is checked in a random format, at the end
in all of them. With `--speed` it times contexts of 1,000 messages instead.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections import Counter
from random import Random
from statistics import median
from time import perf_counter, process_time
from typing import Any

from agent_memory import AgentMemory, StaticMemory
from agent_memory.core.formats.exact import as_json
from agent_memory.errors import AgentMemoryError, InvalidContext
from agent_memory.testing import check_context
from benchmarks.provider_logs import SHAPES, Logs, as_text


def checked(seed: int, memory: AgentMemory, logs: Logs, failures: Counter[str]) -> int:
    """Store one log, and check its contexts.

    Args:
        seed: Names the session, and chooses formats and budgets.
        memory: The memory.
        logs: Makes the log.
        failures: What was refused, counted by why; the first of each is printed.

    Returns:
        How many contexts were checked.
    """
    random, session, count = Random(seed), f"s-{seed}", 0
    given = logs.log()
    said: list[Any] = []
    for at, message in enumerate(given):
        said.append(message)
        try:
            memory.update(session, message)
        except AgentMemoryError as error:
            _failed(failures, "update", str(error), seed, [message])
            continue
        last = at == len(given) - 1
        for form in SHAPES if last else random.sample(SHAPES, 1):
            budget = random.choice((None, None, 200, 400))
            question = random.choice((None, None, "And now?"))
            context = memory.get(session, question, format=form, max_tokens=budget)
            count += 1
            try:
                check_context(form, context.to_arguments())
                assert context.tokens <= context.max_tokens
            except (InvalidContext, AssertionError) as error:
                _failed(failures, form, str(error), seed, said)
    memory.delete(session)
    return count


def _failed(failures: Counter[str], form: str, why: str, seed: int, said: list[Any]) -> None:
    kind = f"{form}: {why}"[:110]
    failures[kind] += 1
    if failures[kind] == 1 and len(failures) < 30:
        print(f"seed {seed}: {kind}\n  " + "\n  ".join(as_text(one) for one in said[-8:]))


def speed(shape: str, result: str) -> str:
    """How many times as long a context of 1,000 messages with tool calls takes as decoding these
    messages from JSON, in processor time: when nothing changed, and after each update.

    Args:
        shape: The shape of the messages, and the format of the context.
        result: What every tool gives.
    """
    said = [one for seed in range(40) for one in Logs(seed).orderly(shape, result=result)][:1_000]
    text = json.dumps(as_json(said))
    times: dict[str, list[float]] = {"decoding": [], "again": [], "updated": []}
    with AgentMemory(store="memory://", blocks=[], max_tokens=1_000_000) as memory:
        memory.update("s", said[:-40])
        for message in said[-40:]:
            memory.update("s", message)
            for name, call in (
                ("decoding", lambda: json.loads(text)),
                ("updated", lambda: memory.get("s", format=shape).to_arguments()),
                ("again", lambda: memory.get("s", format=shape).to_arguments()),
            ):
                gc.collect()
                began = process_time()
                call()
                times[name].append(process_time() - began)
    decoding, again, updated = map(median, times.values())
    return f"{again / decoding:.2f}, after an update {updated / decoding:.2f}"


def main() -> int:
    """Check so many logs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--speed", action="store_true")
    given = parser.parse_args()
    if given.speed:
        for result in (
            "4 found",
            "A row of 60 letters, as a search or a file would give it....\n" * 10,
        ):
            for shape in SHAPES:
                print(f"{shape}, results of {len(result)} letters: {speed(shape, result)}")
        return 0
    failures: Counter[str] = Counter()
    began, contexts = perf_counter(), 0
    kinds: list[dict[str, Any]] = [
        {"blocks": []},
        {"blocks": [StaticMemory(facts=["The shop opens at nine."])]},
        {"blocks": [StaticMemory(facts=["The shop opens."])], "memory_role": "user"},
        {"blocks": [StaticMemory(facts=["The shop opens."])], "memory_role": "leading"},
        {"blocks": [], "max_tokens": 700},
    ]
    memories = [AgentMemory(store="memory://", **kind) for kind in kinds]
    for number in range(given.logs):
        seed = given.seed + number
        memory = memories[seed % len(memories)]
        contexts += checked(seed, memory, Logs(seed, objects=sdk_object), failures)
    for memory in memories:
        memory.close()
    refused = sum(failures.values())
    print(
        f"{given.logs} logs, {contexts} contexts, {refused} refused, {perf_counter() - began:.0f} s"
    )
    for kind, times in failures.most_common(30):
        print(f"{times:6} {kind}")
    return int(refused > 0)


def sdk_object(shape: str, message: dict[str, Any]) -> Any:
    """The message as an object of its SDK, where that takes it; None else."""
    from anthropic.types import Message as ClaudeMessage
    from google.genai.types import Content
    from langchain_core.messages import convert_to_messages
    from openai.types.chat import ChatCompletionMessage
    from openai.types.responses import ResponseFunctionToolCall, ResponseReasoningItem

    role, kind, content = message.get("role"), message.get("type"), message.get("content")
    if "x_unknown" in str(message):
        return None
    if shape == "openai.chat" and role == "assistant" and isinstance(content, str | None):
        return ChatCompletionMessage.model_validate(message)
    if shape == "openai.responses" and kind == "function_call":
        return ResponseFunctionToolCall.model_validate(message)
    if shape == "openai.responses" and kind == "reasoning":
        return ResponseReasoningItem.model_validate(message)
    if shape == "anthropic.messages" and role == "assistant" and isinstance(content, list):
        usage = {"input_tokens": 1, "output_tokens": 1}
        whole = {**message, "id": "msg_1", "type": "message", "model": "any"}
        ends = {"stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
        return ClaudeMessage.model_validate({**whole, **ends})
    if shape == "google.contents":
        return Content.model_validate(message)
    return convert_to_messages([message])[0] if shape == "langchain" else None


if __name__ == "__main__":
    sys.exit(main())
