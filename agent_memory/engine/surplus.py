"""What is kept twice, or has grown old, of anything: a report. `User.forget_all` takes it away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from agent_memory.core.doubles import doubles
from agent_memory.core.limits import quoted
from agent_memory.core.records import Entry, Recall, Scope, Surplus
from agent_memory.core.transcript import told
from agent_memory.engine.paging import all_heads, read_of
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.base import Block, FactBlock
from agent_memory.stores.base import SessionStore

LOG = "log"
"""In whose name messages are reported."""

_SPOKEN = ("user", "assistant")
_PAGE = 1_000


def recalls_in(found: object) -> list[Recall]:
    """What a search or a report found, as what it is.

    Raises:
        InvalidInput: Something of it is neither.
    """
    recalls = []
    for one in found if isinstance(found, Iterable) else (found,):
        recall = one.recall if isinstance(one, Surplus) else one
        if not isinstance(recall, Recall):
            raise InvalidInput(
                f"{quoted(recall)} is nothing to forget. Give what search() or surplus() gave."
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
    """See `User.surplus`."""
    found: list[Surplus] = []
    for block in blocks:
        kept = block.all_kept(scope)
        if isinstance(block, FactBlock):
            found += _of_facts(block, scope, kept)
            found += _aged(kept, older_than, {one.recall.id for one in found})
        else:
            found += _of(kept, older_than)
    if messages:
        found += _of([_recall(entry) for entry in _said(store, scope)], older_than)
    return found


def _of(kept: Sequence[Recall], older_than: timedelta | None) -> list[Surplus]:
    """What is old; and of the rest what another says too, of which the newest stays."""
    aged = _aged(kept, older_than)
    old = {one.recall.id for one in aged}
    fresh = [one for one in kept if one.id not in old][::-1]
    twice = doubles([one.text for one in fresh])
    same = [Surplus(fresh[at], "duplicate", fresh[of]) for at, of in sorted(twice.items())]
    return aged + same[::-1]


def _aged(
    kept: Iterable[Recall], older_than: timedelta | None, known: Iterable[str] = ()
) -> list[Surplus]:
    if older_than is None:
        return []
    since, told_of = datetime.now(UTC) - older_than, frozenset(known)
    return [
        Surplus(one, "old")
        for one in kept
        if one.created_at is not None and one.created_at < since and one.id not in told_of
    ]


def _of_facts(block: FactBlock, scope: Scope, kept: Sequence[Recall]) -> list[Surplus]:
    """What the block itself takes for stale: it knows when facts hold."""
    known = {one.id: one for one in kept}
    return [
        Surplus(known[one.fact.id], one.why, known.get(one.of.id) if one.of is not None else None)
        for one in block.stale(scope)
        if one.fact.id in known
    ]


def _said(store: SessionStore, scope: Scope) -> Iterator[Entry]:
    """What was said in all of a user's sessions, or in the one that belongs to nobody."""
    heads = [store.head(scope.session_id or "")] if scope.user_id is None else (
        all_heads(store, scope.user_id)
    )  # fmt: skip
    for head in heads:
        after = head.expired if head is not None and not head.deleting else None
        while head is not None and after is not None:
            page = read_of(store, head, after=after, limit=_PAGE)
            yield from (one for one in page if one.message.role in _SPOKEN and told(one.message))
            after = page[-1].seq if page else None


def _recall(entry: Entry) -> Recall:
    place = (entry.session_id, entry.seq)
    name = f"{entry.session_id}#{entry.seq}"
    return Recall(LOG, name, told(entry.message), created_at=entry.created_at, sources=(place,))
