"""What a chat log would have cost under each strategy. No model is asked: the engine itself is run
over the log, with a spending limit of no call at all.

for bill in costs("chat.jsonl", "jsonl", model="openai/gpt-4o-mini", max_tokens=4_000):
    print(bill.strategy, bill.calls, bill.cost)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head, Recall, Scope
from agent_memory.core.spending import SpendingLimit, SpendingLimits
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import InvalidInput
from agent_memory.integrations.imports.chats import Said
from agent_memory.integrations.imports.files import SourceFiles
from agent_memory.integrations.imports.sources import reader
from agent_memory.ltm_blocks.base import Block
from agent_memory.ltm_blocks.vector import VectorMemory
from agent_memory.models.prices import Price, Prices
from agent_memory.strategies.base import Strategy
from agent_memory.strategies.flush import FlushToLTM
from agent_memory.strategies.summarize import PROMPT, Summarize
from agent_memory.strategies.trim import Trim

STRATEGIES = ("full history", "trim", "summarize", "flush to vector", "facts")

_USER = "user"
_NO_CALL = SpendingLimits(total=SpendingLimit(calls=0))
_FACTS_EACH = 0.5
"""Facts that a message of a user is taken to hold; an estimate, as all that is made of it."""
_FACT_TOKENS = 60  # as a model answers with it
_LISTED_TOKENS = 25  # as it is shown to a model to be compared

Chat = Sequence[tuple[str, Message]]
"""Messages in order, each with its session."""


@dataclass(frozen=True, slots=True)
class Bill:
    """What a chat log takes under one strategy.

    Attributes:
        strategy: One of `STRATEGIES`.
        calls: Answers: each is a call of the caller's own.
        prompt_tokens: What these calls are sent, as the memory's counter counts it.
        completion_tokens: What they are answered.
        memory_calls: Calls that memory makes: summaries, or facts. Where there are any, they and
            their tokens are estimates.
        memory_tokens: What these are sent and answered.
        recalled_tokens: What of the prompts is recalled. Of facts nobody can tell before.
        cost: US dollars for all of it; None where no model is named, or its price is not known.
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
        """Whether a part of it is an estimate."""
        return self.memory_calls > 0 or self.recalled_tokens is None


def read_chat(
    path: str | PathLike[str], source: str, progress: Callable[[int], object] | None = None
) -> list[tuple[str, Message]]:
    """The messages of a log, as `import_chats` reads them; what can't be read is passed over.

    Raises:
        InvalidInput: There is none.
    """
    said: list[tuple[str, Message]] = []
    for event in reader(source)(SourceFiles(Path(path), progress)):
        if isinstance(event, Said) and not event.is_again:
            try:
                said.append((event.session_id, Message.of(event.message)))
            except InvalidInput:
                continue
    if not said:
        raise InvalidInput(f"Nothing of {source} could be read in {path}.")
    return said


def costs(
    chat: Chat,
    *,
    model: str | None = None,
    max_tokens: int = 4_000,
    prices: Mapping[str, Price] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Bill]:
    """What a log takes under each strategy, one after the other.

    Args:
        chat: The log.
        model: What would be asked; it also picks the tokenizer.
        max_tokens: The budget of a context.
        prices: As the setting.
        progress: Told of each message that was looked at: `len(chat)` for each strategy.
    """
    table = Prices(prices or {})
    counter = TokenCounter(model)
    tell = progress or (lambda count: None)

    def priced(bill: Bill, sent: int, answered: int) -> Bill:
        sent, answered = sent + bill.prompt_tokens, answered + bill.completion_tokens
        cost = None if model is None else table.of_tokens(model, sent, answered)
        return replace(bill, cost=cost)

    yield priced(_full_history(chat, counter, tell), 0, 0)
    yield priced(_run("trim", chat, Trim(), model, max_tokens, tell, []), 0, 0)
    summaries: list[tuple[int, int]] = []
    rolling = Summarize(max_summary_tokens=min(500, max_tokens // 4))
    bill = _run("summarize", chat, rolling, model, max_tokens, tell, summaries)
    yield priced(*_with_own(bill, _summaries(summaries, counter)))
    vector = FlushToLTM(blocks=[VectorMemory()])
    yield priced(_run("flush to vector", chat, vector, model, max_tokens, tell, []), 0, 0)
    batches = _Batches()
    bill = _run("facts", chat, FlushToLTM(blocks=[batches]), model, max_tokens, tell, [])
    bill = replace(bill, recalled_tokens=None)
    yield priced(*_with_own(bill, _extractions(batches.taken, counter)))


class _Batches(Block):
    """Takes what a block of facts would be fed, and notes how much that is."""

    kind: str = "batches"

    _taken: list[tuple[int, int]] = PrivateAttr(default_factory=list)

    @property
    def taken(self) -> list[tuple[int, int]]:
        """Of each batch, its tokens, and how many messages of users it has."""
        return self._taken

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        users = sum(entry.message.role == "user" for entry in entries)
        self._taken.append((sum(entry.tokens for entry in entries), users))

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return []

    def delete(self, scope: Scope) -> None:
        """Nothing is kept."""

    def bind(self, resources: Any) -> Any:
        bound = super().bind(resources)
        bound._taken = self._taken
        return bound


def _full_history(chat: Chat, counter: TokenCounter, tell: Callable[[int], object]) -> Bill:
    """Without a memory: each call is sent all that was said before."""
    bill, said = Bill(STRATEGIES[0]), dict[str, int]()
    for session, message in chat:
        tokens = counter.message(message)
        if message.role == "assistant":
            sent = bill.prompt_tokens + said.get(session, 0) + counter.overhead
            answered = bill.completion_tokens + tokens
            bill = replace(
                bill, calls=bill.calls + 1, prompt_tokens=sent, completion_tokens=answered
            )
        said[session] = said.get(session, 0) + tokens
        tell(1)
    return bill


def _run(
    name: str,
    chat: Chat,
    strategy: Strategy,
    model: str | None,
    max_tokens: int,
    tell: Callable[[int], object],
    summaries: list[tuple[int, int]],
) -> Bill:
    """Live through the log with a strategy. Notes the tokens that each summary is made of, and its
    own."""
    bill = Bill(name)
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
        counter = memory.components.services.resources.counter
        for session, message in chat:
            if message.role == "assistant":
                bill = _answered(bill, memory, session, message, counter)
            head = memory.update(session, message, user_id=_USER)
            before = heads.get(session)
            if before is not None and head.start > before.start and head.summary is not None:
                left = head.start_total - before.start_total
                earlier = before.summary.tokens if before.summary is not None else 0
                summaries.append((left + earlier, head.summary.tokens))
            heads[session] = head
            tell(1)
        if strategy.ltm_blocks:
            memory.flush()
    return bill


def _answered(
    bill: Bill, memory: AgentMemory, session: str, message: Message, counter: TokenCounter
) -> Bill:
    context = memory.get(session, user_id=_USER)
    recalled = sum(counter.text(one.text) for one in context.recalls)
    return replace(
        bill,
        calls=bill.calls + 1,
        prompt_tokens=bill.prompt_tokens + context.tokens,
        completion_tokens=bill.completion_tokens + counter.message(message),
        recalled_tokens=(bill.recalled_tokens or 0) + recalled,
    )


def _summaries(made: Iterable[tuple[int, int]], counter: TokenCounter) -> list[tuple[int, int]]:
    """What calls for summaries are sent and answer."""
    prompt = counter.text(PROMPT)
    return [(prompt + left, tokens) for left, tokens in made]


def _extractions(
    batches: Iterable[tuple[int, int]], counter: TokenCounter
) -> list[tuple[int, int]]:
    """What calls for facts are sent and answer: one that finds them, one that compares them."""
    from agent_memory.ltm_blocks.extractive import ExtractiveMemory
    from agent_memory.ltm_blocks.extractive.reconciling import PROMPT as COMPARING

    finding, comparing = counter.text(ExtractiveMemory()._chosen().prompt), counter.text(COMPARING)
    calls: list[tuple[int, int]] = []
    for tokens, users in batches:
        facts = users * _FACTS_EACH
        calls.append((finding + tokens, int(facts * _FACT_TOKENS)))
        calls.append((comparing + int(facts * 2 * _LISTED_TOKENS), int(facts * _LISTED_TOKENS)))
    return calls


def _with_own(bill: Bill, calls: Sequence[tuple[int, int]]) -> tuple[Bill, int, int]:
    """A bill with what memory itself asks, and what is sent and answered in that."""
    sent, answered = sum(one[0] for one in calls), sum(one[1] for one in calls)
    return replace(bill, memory_calls=len(calls), memory_tokens=sent + answered), sent, answered
