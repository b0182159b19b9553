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
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.base import Block, FactBlock
from agent_memory.stores.base import SessionStore

LOG = "log"
"""The block name of reported messages."""

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
    found: list[Surplus] = []
    for block in blocks:
        recalls = block.all_kept(scope)
        if isinstance(block, FactBlock):
            found += _of_facts(block, scope, recalls)
            found += _aged(recalls, older_than, {one.recall.id for one in found})
        else:
            found += _of(recalls, older_than)
    if messages:
        found += _of([_recall(entry) for entry in _messages(store, scope)], older_than)
    return found


def _of(recalls: Sequence[Recall], older_than: timedelta | None) -> list[Surplus]:
    """Return the old records, and the other records that are near-duplicates of a newer one."""
    aged = _aged(recalls, older_than)
    old = {one.recall.id for one in aged}
    fresh = [one for one in recalls if one.id not in old][::-1]
    twice = doubles([one.text for one in fresh])
    same = [Surplus(fresh[at], "duplicate", fresh[of]) for at, of in sorted(twice.items())]
    return aged + same[::-1]


def _aged(
    recalls: Iterable[Recall], older_than: timedelta | None, known: Iterable[str] = ()
) -> list[Surplus]:
    if older_than is None:
        return []
    now = datetime.now(UTC)
    since, known_ids = now - min(older_than, now - BEGINNING), frozenset(known)
    return [
        Surplus(one, "old")
        for one in recalls
        if one.created_at is not None and one.created_at < since and one.id not in known_ids
    ]


def _of_facts(block: FactBlock, scope: Scope, recalls: Sequence[Recall]) -> list[Surplus]:
    known = {one.id: one for one in recalls}
    return [
        Surplus(known[one.fact.id], one.why, known.get(one.of.id) if one.of is not None else None)
        for one in block.stale(scope)
        if one.fact.id in known
    ]


def _messages(store: SessionStore, scope: Scope) -> Iterator[Entry]:
    """Yield the messages of all of a user's sessions, or of a session without a user."""
    heads = [store.head(scope.session_id or "")] if scope.user_id is None else (
        all_heads(store, scope.user_id)
    )  # fmt: skip
    for head in heads:
        for one in entries_of(store, head) if head is not None and not head.deleting else ():
            if one.message.role in _SPOKEN and full_text(one.message):
                yield one


def _recall(entry: Entry) -> Recall:
    place = (entry.session_id, entry.seq)
    name = f"{entry.session_id}#{entry.seq}"
    return Recall(
        LOG, name, full_text(entry.message), created_at=entry.created_at, sources=(place,)
    )
