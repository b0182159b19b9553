"""Lists of sessions and users, and the report of `User.surplus`.

Each listed head has the time of the session's newest message, and its metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import nlargest
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from agent_memory.core.fusion import doubles
from agent_memory.core.limits import MOST, check_id, how_many, marker, quoted, share_of, text_of
from agent_memory.core.records import Entry, Head, Recall, Scope, Surplus
from agent_memory.core.timestamps import BEGINNING
from agent_memory.core.transcript import full_text
from agent_memory.engine.paging import (
    all_heads,
    entries_of,
    is_listed,
    listed_heads,
    still_exists,
)
from agent_memory.engine.recall.contexts import existing
from agent_memory.engine.recall.merged_search import LOG, NOBODY
from agent_memory.engine.values.items import END
from agent_memory.errors import Damaged, InvalidInput
from agent_memory.ltm_blocks.base import FactBlock
from agent_memory.stores.base import SessionStore
from agent_memory.stores.damage import leave_out

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components

_NAME = "metadata"
_BATCH = 500


@dataclass(frozen=True, slots=True)
class UserSize:
    """The number of sessions and messages of a user.

    Attributes:
        user_id: The user.
        sessions: The number of the user's sessions.
        messages: The number of messages in these sessions, even if `retention` removed them.
    """

    user_id: str
    sessions: int
    messages: int


def users_of(heads: Iterable[Head], owners: Iterable[str]) -> list[UserSize]:
    """Return the users of sessions and records by id, without shared namespaces."""
    users = {owner.removeprefix(Scope("").owner).partition(END)[0] for owner in owners}
    sizes: dict[str, list[int]] = {user: [] for user in users if share_of(user) is None}
    for head in heads:
        if head.user_id is not None and is_listed(head):
            sizes.setdefault(head.user_id, []).append(head.end)
    return [UserSize(user, len(ends), sum(ends)) for user, ends in sorted(sizes.items())]


class Listing:
    def __init__(self, parts: Components) -> None:
        self._store = parts.store
        self._values = partial(parts.values_of, of_session=True)

    def completed(self, heads: Sequence[Head]) -> list[Head]:
        """Return the heads with `updated_at` and `metadata`.

        If a session was deleted meanwhile, its head gets the creation time and no metadata.
        """
        newest = self._newest_of(heads)
        return [self._completed(head, newest.get(head.session_id)) for head in heads]

    def _completed(self, head: Head, newest: Entry | None) -> Head:
        metadata = self._metadata(head.session_id)
        grown = newest is not None and (newest.seq, newest.total) != (head.end, head.total)
        if (grown or metadata) and not still_exists(self._store, head):
            newest, metadata = None, {}  # these may be of a new session with the same id
        return replace(head, updated_at=_time_of(head, newest), metadata=metadata)

    def page(
        self, user_id: str | None, limit: int, after: str | None, prefix: str | None, newest: bool
    ) -> list[Head]:
        limit, after = how_many("limit", limit), marker(after)
        if prefix:
            check_id("prefix", prefix)
        prefix = "" if prefix is None else text_of("prefix", prefix)
        if newest:
            return self._newest(user_id, limit, after, prefix)
        return self.completed(list(islice(self._listed(user_id, limit, after, prefix), limit)))

    def describe(self, session_id: str, scope: Scope, metadata: dict[str, Any]) -> None:
        if not isinstance(metadata, dict):
            raise InvalidInput("The metadata is not a dict. Give a dict of plain JSON.")
        self._values(replace(scope, session_id=session_id)).put((), _NAME, metadata)

    def _newest_of(self, heads: Sequence[Head]) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for at in range(0, len(heads), _BATCH):
            ids = [head.session_id for head in heads[at : at + _BATCH]]
            newest = self._store.tails(NOBODY, ids, before=0, limit=1)
            entries.update((entry.session_id, entry) for entry in newest)
        return entries

    def _metadata(self, session_id: str) -> dict[str, Any]:
        try:
            item = self._values(Scope(None, session_id)).get((), _NAME)
        except Damaged as error:  # one session's lost key must not hide the others
            leave_out(error)
            return {}
        value = None if item is None else item.value
        return value if isinstance(value, dict) else {}  # a caller may store another value

    def _listed(
        self, user_id: str | None, limit: int, after: str | None, prefix: str
    ) -> Iterator[Head]:
        if prefix and (after is None or after < prefix):
            first = self._store.head(prefix)
            if first is not None and user_id in (None, first.user_id) and is_listed(first):
                yield first
            after = prefix
        heads = listed_heads(self._store, user_id, after, limit)
        yield from takewhile(lambda head: head.session_id.startswith(prefix), heads)

    def _newest(
        self, user_id: str | None, limit: int, after: str | None, prefix: str
    ) -> list[Head]:
        heads = list(self._listed(user_id, MOST, None, prefix))
        newest = self._newest_of(heads)

        def age(head: Head) -> tuple[datetime, str]:
            return _time_of(head, newest.get(head.session_id)), head.session_id

        last = next((age(head) for head in heads if head.session_id == after), None)
        if after is not None and last is None:
            raise InvalidInput(
                "No session in this list has the id `after`. Begin again without `after`."
            )
        older = [head for head in heads if last is None or age(head) < last]
        return self.completed(nlargest(limit, older, key=age))


def _time_of(head: Head, newest: Entry | None) -> datetime:
    return head.created_at if newest is None else newest.created_at


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
    parts: Components, scope: Scope, older_than: timedelta | None, messages: bool
) -> list[Surplus]:
    report: list[Surplus] = []
    for block in parts.all_blocks.values():
        recalls = existing(parts.store, {block.name: [*block.stored_records(scope)]})[block.name]
        if isinstance(block, FactBlock):
            stale = _of_facts(block, scope, recalls)
            reported = {item.recall.id for item in stale}
            others = [recall for recall in recalls if recall.id not in reported]
            report += stale + _aged(others, older_than)
        else:
            report += _of(recalls, older_than)
    if messages:
        report += _of([_recall(entry) for entry in _messages(parts.store, scope)], older_than)
    return report


def _of(recalls: Sequence[Recall], older_than: timedelta | None) -> list[Surplus]:
    """Return the old records, and other records that are near-duplicates of a newer record."""
    aged = _aged(recalls, older_than)
    old = {item.recall.id for item in aged}
    fresh = [recall for recall in recalls if recall.id not in old][::-1]
    twice = doubles([recall.text.removeprefix(f"{recall.id}: ") for recall in fresh])
    same = [Surplus(fresh[at], "duplicate", fresh[of]) for at, of in sorted(twice.items())]
    return aged + same[::-1]


def _aged(recalls: Iterable[Recall], older_than: timedelta | None) -> list[Surplus]:
    if older_than is None:
        return []
    now = datetime.now(UTC)
    since = now - min(older_than, now - BEGINNING)
    return [
        Surplus(recall, "old")
        for recall in recalls
        if recall.created_at is not None and recall.created_at < since
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
