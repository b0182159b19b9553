"""Estimates the cost of a chat log under each strategy.

The engine processes the log as usual, but a spending limit of 0 calls keeps it from calling models.

for bill in costs(read_chat("chat.jsonl", "jsonl"), model="openai/gpt-4o-mini"):
    print(bill.strategy, bill.calls, bill.cost)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head, Recall, Scope
from agent_memory.core.token_counter import TokenCounter
from agent_memory.core.usage import SpendingLimit, SpendingLimits
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import InvalidInput
from agent_memory.integrations.imports import reader
from agent_memory.integrations.imports.conversations import SourceMessage
from agent_memory.integrations.imports.files import SourceFiles
from agent_memory.ltm_blocks.vector import VectorMemory
from agent_memory.models.usage import Price, Prices
from agent_memory.strategies.base import Strategy
from agent_memory.strategies.bounded import FlushToLTM, Trim
from agent_memory.strategies.summarize import PROMPT, Summarize

STRATEGIES = ("full history", "trim", "summarize", "flush to vector", "facts")

_USER = "user"
_NO_CALL = SpendingLimits(total=SpendingLimit(calls=0))
_FACTS_EACH = 0.5  # assumed number of facts in a user's message
_FACT_TOKENS = 60  # assumed tokens of a fact in a model's answer
_LISTED_TOKENS = 25  # assumed tokens of a fact in a prompt, where it is compared

Chat = Sequence[tuple[str, Message]]
"""Messages in order, each with the id of its session."""


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of a chat log under one strategy.

    Attributes:
        calls: Number of the chat's own model calls, one for each answer.
        prompt_tokens: Prompt tokens of the chat's calls, by the memory's counter.
        completion_tokens: Answer tokens of the chat's calls.
        memory_calls: Estimated number of the memory's own calls, for summaries or facts.
        memory_tokens: Estimated prompt and answer tokens of the memory's calls.
        recalled_tokens: Tokens of recalls in the prompts. None for the strategy "facts", whose
            recalls cannot be predicted.
        cost: Total in US dollars; None if no model is named or its price is unknown.
    """

    strategy: str
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    memory_calls: int = 0
    memory_tokens: int = 0
    recalled_tokens: int | None = 0
    cost: float | None = None

    @property
    def is_estimated(self) -> bool:
        """Whether a part of the bill is an estimate."""
        return self.memory_calls > 0 or self.recalled_tokens is None


def read_chat(
    path: str | PathLike[str], source: str, progress: Callable[[int], object] | None = None
) -> list[tuple[str, Message]]:
    """Return the messages of a log, in a format of `import_chats`. Skip unreadable messages.

    Raises:
        InvalidInput: The log has no readable messages.
    """
    messages: list[tuple[str, Message]] = []
    for event in reader(source)(SourceFiles(Path(path), progress)):
        if isinstance(event, SourceMessage) and not event.is_again:
            try:
                messages.append((event.session_id, Message.of(event.message)))
            except InvalidInput:
                continue
    if not messages:
        raise InvalidInput(f"{path} contains no readable message in the format {source}.")
    return messages


def costs(
    chat: Chat,
    *,
    model: str | None = None,
    max_tokens: int = 4_000,
    prices: Mapping[str, Price] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Bill]:
    """Yield the cost of a log under each strategy.

    Args:
        model: The model of the chat and of the memory. If it is None, `cost` is None.
        max_tokens: The memory's budget.
        progress: Called with the number of messages processed since the last call. The numbers of
            each strategy add up to `len(chat)`.
    """
    table = Prices(prices or {})
    counter = TokenCounter(model)
    progressed = progress or (lambda count: None)

    def priced(bill: Bill, own: Sequence[tuple[int, int]] = ()) -> Bill:
        """Add the cost, and the memory's own calls as (prompt tokens, answer tokens), to a bill."""
        prompt, completion = sum(call[0] for call in own), sum(call[1] for call in own)
        bill = replace(bill, memory_calls=len(own), memory_tokens=prompt + completion)
        prompt, completion = prompt + bill.prompt_tokens, completion + bill.completion_tokens
        cost = None if model is None else table.cost(model, prompt, completion)
        return replace(bill, cost=cost)

    run = partial(_run, chat, model, max_tokens, progressed)
    yield priced(_full_history(chat, counter, progressed))
    yield priced(run("trim", Trim())[0])
    bill, summaries = run("summarize", Summarize(max_summary_tokens=min(500, max_tokens // 4)))
    prompt = counter.text(PROMPT)
    yield priced(bill, [(prompt + left, tokens) for left, tokens in summaries])
    yield priced(run("flush to vector", FlushToLTM(blocks=[VectorMemory()]))[0])
    batches = _Batches()
    bill, _ = run("facts", FlushToLTM.model_validate({"blocks": [batches]}))
    yield priced(replace(bill, recalled_tokens=None), _fact_calls(batches.taken, counter))


class _Batches:
    """A block that records the batches that a block of facts would receive."""

    def __init__(self) -> None:
        # the tokens of each batch, and the number of user messages in it
        self.taken: list[tuple[int, int]] = []

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        users = sum(entry.message.role == "user" for entry in entries)
        self.taken.append((sum(entry.tokens for entry in entries), users))

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return []

    def delete(self, scope: Scope) -> None:
        """Do nothing."""


def _full_history(chat: Chat, counter: TokenCounter, progressed: Callable[[int], object]) -> Bill:
    """Return the bill of a chat without a memory, whose prompts contain all earlier messages."""
    bill, totals = Bill(STRATEGIES[0]), dict[str, int]()
    for session, message in chat:
        tokens = counter.message(message)
        if message.role == "assistant":
            prompt = bill.prompt_tokens + totals.get(session, 0) + counter.overhead
            output, calls = bill.completion_tokens + tokens, bill.calls + 1
            bill = replace(bill, calls=calls, prompt_tokens=prompt, completion_tokens=output)
        totals[session] = totals.get(session, 0) + tokens
        progressed(1)
    return bill


def _run(
    chat: Chat,
    model: str | None,
    max_tokens: int,
    progressed: Callable[[int], object],
    name: str,
    strategy: Strategy,
) -> tuple[Bill, list[tuple[int, int]]]:
    """Return a strategy's bill, and the tokens of each summarized text and of its summary."""
    bill, summaries = Bill(name), list[tuple[int, int]]()
    heads: dict[str, Head] = {}
    with AgentMemory(
        store="memory://",
        model=model,
        overflow=strategy,
        blocks=[],
        max_tokens=max_tokens,
        recall_timeout=60.0,
        spending_limits=_NO_CALL,
    ) as memory:
        counter = memory.components.resources.counter
        for session, message in chat:
            if message.role == "assistant":
                context = memory.get(session, user_id=_USER)
                recalled = sum(counter.text(recall.text) for recall in context.recalls)
                bill = replace(
                    bill,
                    calls=bill.calls + 1,
                    prompt_tokens=bill.prompt_tokens + context.tokens,
                    completion_tokens=bill.completion_tokens + counter.message(message),
                    recalled_tokens=(bill.recalled_tokens or 0) + recalled,
                )
            head = memory.update(session, message, user_id=_USER)
            before = heads.get(session)
            if before is not None and head.start > before.start and head.summary is not None:
                left = head.start_total - before.start_total
                earlier = before.summary.tokens if before.summary is not None else 0
                summaries.append((left + earlier, head.summary.tokens))
            heads[session] = head
            progressed(1)
        if strategy.ltm_blocks:
            memory.flush()
    return bill, summaries


def _fact_calls(batches: Iterable[tuple[int, int]], counter: TokenCounter) -> list[tuple[int, int]]:
    """Return the tokens of each batch's two calls: one finds facts, and one compares them."""
    from agent_memory.ltm_blocks.extractive import ExtractiveMemory
    from agent_memory.ltm_blocks.extractive.settling import PROMPT as COMPARING

    finding, comparing = counter.text(ExtractiveMemory()._form.prompt), counter.text(COMPARING)
    calls: list[tuple[int, int]] = []
    for tokens, users in batches:
        facts = users * _FACTS_EACH
        calls.append((finding + tokens, int(facts * _FACT_TOKENS)))
        calls.append((comparing + int(facts * 2 * _LISTED_TOKENS), int(facts * _LISTED_TOKENS)))
    return calls
