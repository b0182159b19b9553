"""Which recalls a search is to give: by block, by the messages they come from, by score."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime

from agent_memory.core.filters import Where, check_where, matches
from agent_memory.core.limits import quoted, score_of
from agent_memory.core.moments import check_moment
from agent_memory.core.records import Entry, Recall
from agent_memory.core.window import role_of
from agent_memory.engine.paging import picked_of
from agent_memory.errors import InvalidInput
from agent_memory.stores.base import SessionStore


@dataclass(frozen=True, slots=True)
class Filter:
    """What a search is to give.

    What comes from several messages is given where one of them meets all that is said of them. What
    comes from none has its own time, and no role and metadata.

    Attributes:
        blocks: Only what these blocks recall; None for all.
        roles: Only what comes from messages of these roles.
        since: Only what was said at this time or later.
        until: Only what was said before this time.
        where: What the messages' metadata must have; see `filters.matches`.
        least: Only what has this score at least. With one, what bears little on the query counts
            too: none is left out for that.
        entries: Whether each recall is to have the messages that it comes from.
    """

    blocks: frozenset[str] | None = None
    roles: frozenset[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
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
        """The same, checked.

        Raises:
            InvalidInput: One of them is not usable.
        """
        return cls(
            _names("blocks", blocks), _names("roles", roles),
            check_moment("since", since), check_moment("until", until),
            None if where is None else check_where(where), score_of("least", least), bool(entries),
        )  # fmt: skip

    @property
    def is_of_messages(self) -> bool:
        """Whether the messages have to be looked at."""
        return self.roles is not None or bool(self.where) or self.is_of_times

    @property
    def is_of_times(self) -> bool:
        """Whether a time matters."""
        return self.since is not None or self.until is not None

    @property
    def narrows(self) -> bool:
        """Whether some of what blocks recall may not be wanted."""
        return self.is_of_messages or bool(self.least)

    def kept(
        self, recalls: Iterable[Recall], store: SessionStore, user_id: str | None
    ) -> list[Recall]:
        """The recalls that are wanted, each with its messages where these are, and the user's."""
        found = [one for one in recalls if not self.least or one.score >= self.least]
        if not (self.is_of_messages or self.entries):
            return found
        entries = _entries(found, store, user_id)
        kept = []
        for one in found:
            said = tuple(entries[source] for source in one.sources if source in entries)
            if self._meets(one, said):
                kept.append(replace(one, entries=said) if self.entries else one)
        return kept

    def _meets(self, recall: Recall, said: Sequence[Entry]) -> bool:
        if not self.is_of_messages:
            return True
        if said:
            return any(self._is_met_by(entry) for entry in said)
        bare = self.roles is None and not self.where
        return bare and recall.created_at is not None and self._holds(recall.created_at)

    def _is_met_by(self, entry: Entry) -> bool:
        message = entry.message
        return (
            (self.roles is None or role_of(message) in self.roles)
            and self._holds(entry.created_at)
            and matches(message.metadata, self.where or {})
        )

    def _holds(self, at: datetime) -> bool:
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


def _entries(
    recalls: Sequence[Recall], store: SessionStore, user_id: str | None
) -> Mapping[tuple[str, int], Entry]:
    wanted: dict[str, set[int]] = defaultdict(set)
    for one in recalls:
        for session, seq in one.sources:
            wanted[session].add(seq)
    return {
        (session, entry.seq): entry
        for session, seqs in wanted.items()
        if (head := store.head(session)) is not None and head.user_id == user_id
        for entry in picked_of(store, head, sorted(seqs))
    }


def _names(what: str, given: Iterable[str] | None) -> frozenset[str] | None:
    if given is None:
        return None
    names = (
        [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else None
    )
    if names is None or not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"{what} is {quoted(given)}. Give names, such as ['user'].")
    return frozenset(names)
