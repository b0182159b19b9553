"""Queries of several blocks in parallel, with time limits. A failed block becomes a warning."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Event
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from agent_memory.core.fusion import marked
from agent_memory.core.messages import Message
from agent_memory.core.notices import error_text, noticed
from agent_memory.core.processes import begin_anew_in_child, fork_safe_lock
from agent_memory.core.query_text import asks_about_user, query_message
from agent_memory.core.records import Recall, Scope, Source
from agent_memory.core.threads import Handover, off_main_thread
from agent_memory.core.tracing import describe_search, operation
from agent_memory.engine.recall.runner import Backoff, TimeLimited, resolve
from agent_memory.errors import SpendingLimitReached
from agent_memory.ltm_blocks.base import Block, QueryThread
from agent_memory.models.usage import Account, current_account

T = TypeVar("T")

LOAD_SECONDS = 10.0
"""Maximum seconds to wait for a block to load before its first query."""


class Target(NamedTuple):
    """A block to query, the name for its recalls, and the scope of the query.

    `recall(message, limit)` queries the block, and returns at most `limit` recalls.
    """

    name: str
    block: Block
    scope: Scope
    recall: Callable[[Message | None, int], list[Recall]]

    @classmethod
    def of(cls, block: Block, name: str, scope: Scope) -> Target:
        return cls(name, block, scope, partial(ask_block, block, name, scope))


class FanOut:
    """Queries blocks in parallel, each with a time limit. A failure becomes a warning.

    After a failure, a circuit breaker admits only one query of the block at a time, and only after
    growing pauses. After a successful query, the circuit breaker admits all queries again. A local
    block that is too slow has not failed.
    """

    def __init__(
        self,
        timeout: float,
        timeouts: Mapping[str, float] = MappingProxyType({}),
        blocks: Sequence[Block] = (),
        store_id: str | None = None,
    ) -> None:
        self.blocks = blocks
        self._store_id = store_id
        self._timeout = timeout
        self._timeouts = timeouts
        self._threads: dict[str, QueryThread] = {block.name: block.query_thread for block in blocks}
        self._limited = TimeLimited()
        self._lock = fork_safe_lock()
        self._backoff = Backoff()
        self._loaded: set[str] = set()
        self._loading: dict[str, Event] = {}
        begin_anew_in_child(self, lambda fan_out: fan_out._loading.clear())

    def targets(self, scope: Scope) -> list[Target]:
        """Return all blocks, to be queried for a scope."""
        return [Target.of(block, block.name, scope) for block in self.blocks]

    def recall(
        self, scope: Scope, targets: Sequence[Target], message: Message | None, limit: int
    ) -> tuple[dict[str, list[Recall]], list[str]]:
        """Return the recalls by name, and a warning for each block that failed or was too slow."""
        message = message and query_message(message)
        if message is not None and asks_about_user(message.text()):
            message = None  # this question is equally near to all facts
        targets = [target for target in targets if concerns(target.block, target.scope)]
        account = Account("other", scope.user_id, within=current_account())
        with operation("search_memory", self._store_id, scope.session_id) as span:
            for target in targets if message is not None else ():
                self.load(target.name, target.block)
            recalls_of = {each.name: partial(each.recall, message, limit) for each in targets}
            calls = {name: partial(noticed, call) for name, call in recalls_of.items()}
            with account.charged():
                answers, warnings = self.ask(scope.owner, calls)
            by_block = {name: recalls for name, (recalls, _) in answers.items()}
            describe_search(span, message, (hit for hits in by_block.values() for hit in hits))
        warnings += [
            f"The block {name!r}: {text}"
            for name, (_, notices) in answers.items()
            for text in notices
        ]
        return by_block, warnings

    def load(self, name: str, block: Block) -> None:
        """Load a block before its first query: the query's time limit must not include the loading.

        Wait at most `LOAD_SECONDS`. After a failure, the block is queried nevertheless, and the
        query reports the failure.
        """
        if name not in self._loaded and type(block).load is not Block.load:
            self._load(name, block)

    @off_main_thread
    def _load(self, name: str, block: Block) -> None:
        with self._lock:
            first = name not in self._loading
            loaded = self._loading.setdefault(name, Event())

        def load() -> None:
            try:
                block.load()
            finally:
                loaded.set()

        if first:
            Handover(f"load-{name}", load)
        loaded.wait(LOAD_SECONDS)
        self._loaded.add(name)

    def marked(
        self, targets: Sequence[Target], by_block: Mapping[str, list[Recall]]
    ) -> dict[str, list[Recall]]:
        """Return the recalls. Mark the recalls that another block reports as outdated."""
        calls = {
            target.name: partial(target.block.outdated, target.scope, sources)
            for target in targets
            if type(target.block).outdated is not Block.outdated
            and (sources := _sources(by_block, besides=target.name))
        }
        if not calls:
            return dict(by_block)
        outdated, _ = self.ask(targets[0].scope.owner, calls)
        return {name: marked(name, recalls, outdated) for name, recalls in by_block.items()}

    def ask(
        self, owner: str, calls: Mapping[str, Callable[[], T]]
    ) -> tuple[dict[str, T], list[str]]:
        """Return the result of each call, and a warning for each that failed or was too slow.

        A block that fails for an owner pauses for this owner only, and not for other owners.
        """
        account = current_account()
        admitted = {
            name: call if account is None else account.charging(call)
            for name, call in calls.items()
            if self._admits((name, owner))
        }
        limits = self._timeout, self._timeouts
        outcomes, slow = self._limited.run_all(admitted, *limits, self._threads)
        warnings = [
            f"The block {name!r} failed before, and is asked again later."
            for name in calls
            if name not in admitted
        ]
        for name in slow:
            # pauses of local blocks would hide the memory for minutes on a busy machine
            self._note((name, owner), worked=self._threads.get(name) == "shared")
            seconds = self._timeouts.get(name, self._timeout)
            warnings.append(f"The block {name!r} did not answer within {seconds:g} s.")
        results: dict[str, T] = {}
        for name, outcome in outcomes.items():
            refused = isinstance(outcome, SpendingLimitReached)  # a refusal is not a failure
            self._note((name, owner), worked=refused or not isinstance(outcome, Exception))
            if refused:
                warnings.append(f"The block {name!r} was not asked. {outcome}")
            elif isinstance(outcome, Exception):
                warnings.append(f"The block {name!r} failed: {error_text(outcome)}")
            else:
                results[name] = outcome
        return results, warnings

    def _admits(self, query: Hashable) -> bool:
        """Return whether a query may be made now. If so, the caller must call `_note` later.

        A query is a block and an owner.
        """
        with self._lock:
            if self._backoff.idle(query):
                return True
            if not self._backoff.ready(query):
                return False
            self._backoff.failed(query)  # other callers are refused until the result is known
            return True

    def _note(self, query: Hashable, *, worked: bool) -> None:
        """Record the outcome of a query. Failures of concurrent queries count as one."""
        with self._lock:
            if worked:
                self._backoff.succeeded(query)
            elif self._backoff.idle(query):
                self._backoff.failed(query)


def _sources(by_block: Mapping[str, Sequence[Recall]], besides: str) -> set[Source]:
    return {
        source
        for name, recalls in by_block.items()
        if name != besides
        for recall in recalls
        for source in recall.sources
    }


def concerns(block: Block, scope: Scope) -> bool:
    """Return whether to query a block. Without a user or session, absorbing blocks have no data."""
    return scope.is_somebodys or not block.absorbs


def ask_block(
    block: Block, name: str, scope: Scope, message: Message | None, limit: int
) -> list[Recall]:
    """Return a block's recalls under the given name, awaited if necessary."""
    return [_named(recall, name) for recall in resolve(block.get(scope, message, limit))]


def _named(recall: Recall, name: str) -> Recall:
    """Return a recall with the block's name and a float score."""
    if not isinstance(recall.text, str):
        raise TypeError(f"The text of recall {recall.id!r} is {recall.text!r}, not a string.")
    if recall.block == name and type(recall.score) is float:
        return recall
    return replace(recall, block=name, score=float(recall.score))
