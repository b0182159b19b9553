"""Search over all blocks and the log, with filters. Explanations of what a question recalls."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Literal, Self
from uuid import uuid4

from pydantic import PrivateAttr

from agent_memory.core.context import Explanation, dropped_of
from agent_memory.core.filters import Where, check_where, matches
from agent_memory.core.fusion import folded, merge
from agent_memory.core.limits import how_many, quoted, score_of, text_of
from agent_memory.core.messages import Message
from agent_memory.core.query_text import query_message
from agent_memory.core.records import DeadLetter, Entry, Recall, Scope
from agent_memory.core.shapes import role_of
from agent_memory.core.threads import off_main_thread
from agent_memory.core.timestamps import check_moment
from agent_memory.engine.guard import scope_of
from agent_memory.engine.paging import all_heads, picked_of
from agent_memory.engine.recall.contexts import BlockRecalls, View, existing, gone_from
from agent_memory.engine.recall.fan_out import FanOut, concerns
from agent_memory.errors import InvalidInput, SessionOfAnotherUser
from agent_memory.ltm_blocks.base import ManualBlock, QueryThread, Resources
from agent_memory.ltm_blocks.pending_index import Encoded, Waiting
from agent_memory.models.embedders.base import NoEmbedder
from agent_memory.stores.base import SessionStore
from agent_memory.stores.kernel.indexes import hits
from agent_memory.stores.pending import Tails

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components
    from agent_memory.retrieval.features import Turn


@dataclass(frozen=True, slots=True)
class Filter:
    """The conditions on the results of a search. `AgentMemory.search` explains each condition.

    A record from several messages matches if one of these messages meets all conditions on
    messages. A record without messages, such as a note, has its own time, but no role and no
    metadata.
    """

    blocks: frozenset[str] | None = None
    roles: frozenset[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    days: Callable[[date], bool] | None = None  # a condition on the day that a recall shows
    where: Where | None = None
    least: float | None = None
    entries: bool = False

    @classmethod
    def of(
        cls,
        blocks: Iterable[str] | None = None,
        roles: Iterable[str] | None = None,
        since: datetime | date | None = None,
        until: datetime | date | None = None,
        where: Where | None = None,
        least: float | None = None,
        entries: bool = False,
    ) -> Filter:
        """Return a filter. Raise `InvalidInput` if a condition is not valid."""
        return cls(
            _names("blocks", blocks), _names("roles", roles),
            check_moment("since", since), check_moment("until", until), None,
            None if where is None else check_where(where), score_of("least", least), bool(entries),
        )  # fmt: skip

    @property
    def is_of_messages(self) -> bool:
        """Whether conditions on messages are set."""
        times = (self.since, self.until, self.days)
        return self.roles is not None or bool(self.where) or any(times)

    @property
    def narrows(self) -> bool:
        """Whether the filter may drop some of the recalls."""
        return self.is_of_messages or bool(self.least)

    def matching(
        self, recalls: Iterable[Recall], store: SessionStore, user_id: str | None
    ) -> list[Recall]:
        """Return the recalls that match, with their source messages if `entries` is set.

        Only messages of the user's sessions are read.
        """
        candidates = [recall for recall in recalls if not self.least or recall.score >= self.least]
        if not (self.is_of_messages or self.entries):
            return candidates
        entries = _entries(candidates, store, user_id)
        matching = []
        for recall in candidates:
            messages = tuple(entries[source] for source in recall.sources if source in entries)
            if self._meets(recall, messages):
                matching.append(replace(recall, entries=messages) if self.entries else recall)
        return matching

    def _meets(self, recall: Recall, messages: Sequence[Entry]) -> bool:
        if not self.is_of_messages:
            return True
        if messages:
            return any(self._is_met_by(entry) for entry in messages)
        bare = self.roles is None and not self.where
        return bare and recall.created_at is not None and self._holds(recall.created_at)

    def _is_met_by(self, entry: Entry) -> bool:
        message = entry.message
        return (
            (self.roles is None or role_of(message) in self.roles)
            and self._holds(entry.local_time)
            and matches(message.metadata, self.where or {})
        )

    def _holds(self, at: datetime) -> bool:
        return (
            (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
            and (self.days is None or self.days(at.date()))
        )


def _entries(
    recalls: Sequence[Recall], store: SessionStore, user_id: str | None
) -> Mapping[tuple[str, int], Entry]:
    wanted: dict[str, set[int]] = defaultdict(set)
    for recall in recalls:
        for session, seq in recall.sources:
            wanted[session].add(seq)
    return {
        (session, entry.seq): entry
        for session, seqs in wanted.items()
        if (head := store.head(session)) is not None and head.user_id == user_id
        for entry in picked_of(store, head, sorted(seqs))
    }


def _names(what: str, value: Iterable[str] | None) -> frozenset[str] | None:
    if value is None:
        return None
    names = (
        [value] if isinstance(value, str) else list(value) if isinstance(value, Iterable) else None
    )
    if names is None or not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"{what} is {quoted(value)}. Give names, such as ['user'].")
    return frozenset(names)


LOG = "log"
"""The block name of recalls from the log itself."""

MOST_PENDING = 5_000
_ROLES = ("user", "assistant")
NOBODY = "_"  # no block can have this name, so the whole log is pending for it


class LogBlock(ManualBlock):
    """The engine's word search in the log, used if no block recalls pending messages.

    A message is pending for a block that has not absorbed it. For each absorbing block, the search
    covers the newest 5,000 pending messages, but only those of users and assistants. If no block
    absorbs messages, all messages are pending.
    """

    selective = True

    kind: Literal["log"] = "log"
    behind: tuple[str, ...] = ()  # the names of the absorbing blocks

    _waiting: dict[str, Waiting] = PrivateAttr()

    @property
    def query_thread(self) -> QueryThread:
        return "shared" if self.resources.is_local else "own"

    def bind(self, resources: Resources) -> Self:
        """Bind the block and create an index of pending messages for each absorbing block."""
        bound = super().bind(resources)
        bound._waiting = {name: Waiting(_ROLES) for name in self.behind or (NOBODY,)}
        return bound

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        """Return the messages whose words match best."""
        if message is None or not scope.is_somebodys:
            return []
        if not (question := message.text().strip()):
            return []
        today = self.resources.today(scope, message)
        by_id: dict[str, Recall] = {}
        for block, waiting in self._waiting.items():
            tails = self.resources.pending.of(block, scope, MOST_PENDING)
            for recall in self._ranked(scope, question, today, tails, waiting):
                by_id.setdefault(recall.id, recall)
        best = sorted(by_id.values(), key=lambda recall: -recall.score)
        return folded(best, limit)

    def delete(self, scope: Scope) -> None:
        """Do nothing: the block stores nothing."""

    def _ranked(
        self, scope: Scope, question: str, today: date, tails: Tails, waiting: Waiting
    ) -> Iterable[Recall]:
        index = waiting.index(tails, scope.owner, question, _records_of)
        if index is None:
            return []
        from agent_memory.retrieval.answers import answers
        from agent_memory.retrieval.query import Query
        from agent_memory.retrieval.statements import messages_in
        from agent_memory.retrieval.turns import recalls

        query = Query.of_question(question, NoEmbedder(), today)
        matches = messages_in(hits(index.traits.search(query, len(index.records)), index.records))
        least = scope.floor * self.resources.min_relevance
        options = {"corrects": query.period is None, "in_context": scope.in_context}
        best = answers(question, matches, least, lambda stated: [], **options)
        return recalls(best, self.name, scope)


def _records_of(turns: Sequence[tuple[Entry, Turn]]) -> Encoded:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.turns import record_of_turn

    records = [
        record_of_turn(entry, turn, f"{entry.session_id}#{entry.seq}.{turn.part.number}", "")
        for entry, turn in turns
    ]
    return records, Features.of_turns([turn for _, turn in turns], NoEmbedder().encode)


SPARE = 2
"""With several blocks, each returns `SPARE * limit` results, because some are near-duplicates."""

ELSEWHERE = 20
"""With a filter or a session, each block returns `ELSEWHERE * limit` results: many do not match."""

SEARCHED = 0.05
"""The share of `min_relevance` that a search requires. A context requires 100 %."""

logger = logging.getLogger(__name__)

_ALL = Filter()


class Search:
    def __init__(self, parts: Components) -> None:
        self._parts, self._store, self._guard = parts, parts.store, parts.guard
        self.blocks = [block for block in parts.all_blocks.values() if block.searched]
        if parts.log_block is not None:
            self.blocks.append(parts.log_block)
        limit, store_id = parts.config.recall_timeout, parts.config.namespace
        self._searcher = FanOut(limit, blocks=self.blocks, store_id=store_id)

    @off_main_thread
    def run(
        self,
        query: str,
        user_id: str | None,
        session_id: str | None,
        limit: int,
        only: Filter = _ALL,
    ) -> tuple[list[Recall], list[str]]:
        """Search like `AgentMemory.search`. Return and log a warning for each failed block."""
        self._guard.check(session_id, user_id)
        query, limit = text_of("query", query), how_many("limit", limit)
        head = self._guard.owned(session_id, user_id) if session_id is not None else None
        scope = replace(
            scope_of(head, user_id, session_id),
            only_session=session_id is not None,
            floor=SEARCHED if only.least is None else 0.0,
        )
        message = Message(role="user", content=query)
        most = limit * ELSEWHERE if only.narrows else most_of(limit, scope, len(self.blocks))
        targets = self._searcher.targets(scope)
        names = {target.name for target in targets} if only.blocks is None else only.blocks
        queried = [target for target in targets if target.name in names]
        by_block, warnings = self._searcher.recall(scope, queried, message, most)
        stored = wanted(existing(self._store, by_block), scope)
        current = self._searcher.marked(targets, stored)
        matching = {
            block: only.matching(recalls, self._store, scope.user_id)
            for block, recalls in current.items()
        }
        best = merge(matching)[:limit]
        self._parts.recalls.note(hit=bool(best))
        warnings += self._unknown(only)
        for warning in warnings:
            logger.warning("a search is incomplete: %s", warning)
        return self.priced(best), warnings

    def _unknown(self, only: Filter) -> list[str]:
        """Return a warning for each requested block that does not exist or cannot be searched."""
        names = [block.name for block in self.blocks]
        requested = only.blocks or frozenset()
        return [
            f"No block that can be searched is named {quoted(name)}. Blocks: {', '.join(names)}."
            for name in sorted(requested.difference(names, [LOG]))
        ]

    def priced(self, recalls: list[Recall]) -> list[Recall]:
        count = self._parts.resources.counter.text
        return [replace(recall, tokens=count(recall.text)) for recall in recalls]


def most_of(limit: int, scope: Scope, blocks: int) -> int:
    """Return how many results to request from each block, so that `limit` results remain."""
    if scope.only_session:
        return limit * ELSEWHERE
    return limit * SPARE if blocks > 1 else limit


def wanted(by_block: BlockRecalls, scope: Scope) -> BlockRecalls:
    """Return the recalls that the scope allows. Call this before `merge` drops near-duplicates."""
    return {
        block: [recall for recall in recalls if scope.wants(recall.sources)]
        for block, recalls in by_block.items()
    }


_MOST = 10
_OF_NOBODY = (
    "The session {!r} belongs to no user yet. Other sessions therefore do not recall its "
    "messages. Name the user: update(..., user_id=...)."
)


@off_main_thread
def explain(
    parts: Components, question: str, user_id: str | None, session_id: str | None
) -> Explanation:
    """Run the steps of `get` and collect the records that are left out."""
    contexts, notes = parts.contexts, []
    message, new = Message(role="user", content=question), uuid4().hex
    session_id = session_id or new
    try:
        session = contexts.see(session_id, [message], user_id, dedupe=True)
    except SessionOfAnotherUser as error:
        notes.append(f"{error} Nothing of that session is recalled for this user.")
        session_id = new
        session = contexts.see(session_id, [message], user_id, dedupe=True)
    head, scope = session.head, session.scope
    if head is not None and head.user_id is None and user_id is not None:
        notes.append(_OF_NOBODY.format(session_id))
    by_block, warnings = contexts.recall(scope, message)
    view = View(session, by_block, [])
    context = view.context()
    left_out = [*view.left_out(context, session.window)]
    passed_over = query_message(message)
    for block in contexts.blocks:
        if concerns(block, scope):
            left_out += block.left_out(scope, passed_over, _MOST)
    gone = gone_from(parts.store, [item.recall for item in left_out])
    left_out = [
        item for item in left_out if gone.isdisjoint(name for name, _ in item.recall.sources)
    ]
    warnings += [*notes, *parts.warnings(head), *contexts.waiting(scope, head)]
    dropped = dropped_of(head, session.entries, session.window.sources, context.recalls)
    return Explanation(question, context, left_out, dropped, _dead(parts, scope), warnings)


def _dead(parts: Components, scope: Scope) -> list[DeadLetter]:
    absorbing = [block.name for block in parts.contexts.blocks if block.absorbs]
    letters = [letter for name in absorbing for letter in parts.dead_letters.dead(name)]
    sessions = [scope.session_id]
    if letters and scope.user_id is not None:
        sessions = [head.session_id for head in all_heads(parts.store, scope.user_id)]
    return [letter for letter in letters if letter.session_id in sessions]
