"""The report of `User.surplus`: near-duplicates and old records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from agent_memory.core.fusion import doubles
from agent_memory.core.limits import quoted
from agent_memory.core.records import Entry, Recall, Scope, Surplus
from agent_memory.core.timestamps import BEGINNING
from agent_memory.core.transcript import full_text
from agent_memory.engine.paging import all_heads, entries_of
from agent_memory.engine.recall.contexts import existing
from agent_memory.engine.recall.merged_search import LOG
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.base import Block, FactBlock
from agent_memory.stores.base import SessionStore

_SPOKEN = ("user", "assistant")


def recalls_in(values: object) -> list[Recall]:
    """Return the recalls in the results of a search or in a report."""
    recalls = []
    for value in values if isinstance(values, Iterable) else (values,):
        recall = value.recall if isinstance(value, Surplus) else value
        if not isinstance(recall, Recall):
            raise InvalidInput(
                f"{quoted(recall)} cannot be forgotten. Give results of search() or surplus()."
            )
        recalls.append(recall)
    return recalls


def surplus(
    store: SessionStore,
    blocks: Iterable[Block],
    scope: Scope,
    older_than: timedelta | None,
    messages: bool,
) -> list[Surplus]:
    report: list[Surplus] = []
    for block in blocks:
        recalls = existing(store, {block.name: [*block.all_kept(scope)]})[block.name]
        if isinstance(block, FactBlock):
            report += _of_facts(block, scope, recalls)
            report += _aged(recalls, older_than, {item.recall.id for item in report})
        else:
            report += _of(recalls, older_than)
    if messages:
        report += _of([_recall(entry) for entry in _messages(store, scope)], older_than)
    return report


def _of(recalls: Sequence[Recall], older_than: timedelta | None) -> list[Surplus]:
    """Return the old records, and other records that are near-duplicates of a newer record."""
    aged = _aged(recalls, older_than)
    old = {item.recall.id for item in aged}
    fresh = [recall for recall in recalls if recall.id not in old][::-1]
    twice = doubles([recall.text for recall in fresh])
    same = [Surplus(fresh[at], "duplicate", fresh[of]) for at, of in sorted(twice.items())]
    return aged + same[::-1]


def _aged(
    recalls: Iterable[Recall], older_than: timedelta | None, skip: Iterable[str] = ()
) -> list[Surplus]:
    if older_than is None:
        return []
    now = datetime.now(UTC)
    since, skipped = now - min(older_than, now - BEGINNING), frozenset(skip)
    return [
        Surplus(recall, "old")
        for recall in recalls
        if recall.created_at is not None and recall.created_at < since and recall.id not in skipped
    ]


def _of_facts(block: FactBlock, scope: Scope, recalls: Sequence[Recall]) -> list[Surplus]:
    by_id = {recall.id: recall for recall in recalls}
    return [
        Surplus(
            by_id[stale.fact.id],
            stale.why,
            by_id.get(stale.of.id) if stale.of is not None else None,
        )
        for stale in block.stale(scope)
        if stale.fact.id in by_id
    ]


def _messages(store: SessionStore, scope: Scope) -> Iterator[Entry]:
    """Yield the messages of all of a user's sessions, or of a session without a user."""
    heads = [store.head(scope.session_id or "")] if scope.user_id is None else (
        all_heads(store, scope.user_id)
    )  # fmt: skip
    for head in heads:
        for entry in entries_of(store, head) if head is not None and not head.deleting else ():
            if entry.message.role in _SPOKEN and full_text(entry.message):
                yield entry


def _recall(entry: Entry) -> Recall:
    at = (entry.session_id, entry.seq)
    name = f"{entry.session_id}#{entry.seq}"
    return Recall(LOG, name, full_text(entry.message), created_at=entry.created_at, sources=(at,))
