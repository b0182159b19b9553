"""What a block has not absorbed yet, as an index to be searched beside what it has.

Kept from question to question: as long as nothing but new messages came, only these are added.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from agent_memory.core.processes import begin_anew_in_child, fork_safe_lock
from agent_memory.core.records import Entry, Lag, Record
from agent_memory.stores.pending import MOST, Tail, Tails

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features, Turn
    from agent_memory.retrieval.index import SegmentIndex

WHOLE = 500
"""Of more entries than these only those that share a word with the question are looked at."""

WHOLE_TOKENS = 50_000
"""The same of longer ones: of words that nobody has used before a megabyte takes seconds."""

_NEWEST = 50  # of many, these are looked at whatever they say
_SHARING = 150  # and so many of those that share most words
_LONGEST = 100_000  # characters of either

Made = tuple[list[Record], "Features"]
"""Records with their features."""

Make = Callable[[Sequence[tuple[Entry, "Turn"]]], Made]
"""Makes records of turns, as the block will keep them."""


class Index(NamedTuple):
    """What waits, and its records by id."""

    traits: SegmentIndex
    records: dict[str, Record]


@dataclass(frozen=True, slots=True)
class _Session:
    tail: Tail
    parts: tuple[Made, ...]
    whole: bool = True

    def stands(self, lag: Lag | None) -> bool:
        """Whether a session still is as it was when this was made, but for what was appended."""
        if lag is None:
            return False
        was, last = self.tail.lag, self.tail.entries[-1]
        if (was.version, was.created_at) != (lag.version, lag.created_at):
            return False
        return last.seq < lag.end or (last.seq == lag.end and last.total == lag.total)

    def is_begun_by(self, tail: Tail) -> bool:
        """Whether a tail goes on where this one ends."""
        own = self.tail.entries
        longer = tail.entries[len(own) - 1 : len(own)]
        return bool(longer) and longer[0] is own[-1] and tail.lag.after == self.tail.lag.after


@dataclass(frozen=True, slots=True)
class _Built:
    sessions: dict[str, _Session]
    index: Index


class _Turn:
    """Whose turn it is to build the index of an owner."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Waiting:
    """Indexes of what waits, of the owners asked for last. Safe to share between threads.

    Args:
        roles: Whose messages are looked at.
    """

    def __init__(self, roles: Sequence[str]) -> None:
        self._roles = roles
        self._lock = fork_safe_lock()
        self._kept: OrderedDict[str, _Built] = OrderedDict()
        self._begin()
        begin_anew_in_child(self, Waiting._begin)

    def _begin(self) -> None:
        self._turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()

    def index(
        self,
        tails: Tails,
        owner: str,
        question: str,
        make: Make,
        is_whole: Callable[[], bool] = lambda: True,
    ) -> Index | None:
        """The index of what waits of an owner; None where nothing does.

        Args:
            tails: What waits.
            owner: Whose it is.
            question: What is looked for.
            make: Makes records of turns.
            is_whole: Whether these had all their features; others are made again the next time.
        """
        if not tails.read:
            return None
        count = sum(tail.count for tail in tails.read)
        if count > WHOLE or sum(tail.tokens for tail in tails.read) > WHOLE_TOKENS:
            chosen = _chosen(tails.read, question, self._roles)
            return _index([make(chosen)])
        with self._lock:
            turn = self._turns.setdefault(owner, _Turn())
        # a document takes seconds: who asks meanwhile, or gave up and asks again, needs the same
        with turn.lock:
            with self._lock:
                built = self._kept.get(owner)
            after = _built(built, tails, make, self._roles, is_whole)
            if after is not built:
                self._keep(owner, after)
        return after.index if after.index.records else None

    def _keep(self, owner: str, built: _Built) -> None:
        with self._lock:
            self._kept[owner] = built
            self._kept.move_to_end(owner)
            size = sum(len(one.index.records) for one in self._kept.values())
            while size > MOST and len(self._kept) > 1:
                _, gone = self._kept.popitem(last=False)
                size -= len(gone.index.records)


def _built(
    before: _Built | None,
    tails: Tails,
    make: Make,
    roles: Sequence[str],
    is_whole: Callable[[], bool],
) -> _Built:
    """What is to be kept now: the same where nothing changed."""
    from agent_memory.retrieval.turns import spoken

    lags = {lag.session_id: lag for lag in tails.lags}
    known = before.sessions if before is not None else {}
    sessions = {name: one for name, one in known.items() if one.stands(lags.get(name))}
    grown = before is not None and len(sessions) == len(known)
    made: list[Made] = []
    for tail in tails.read:
        name = tail.lag.session_id
        was = sessions.get(name)
        if not tail.entries or (was is not None and was.tail is tail and was.whole):
            continue
        if was is not None and not (was.whole and was.is_begun_by(tail)):
            was, grown = None, False
        first = len(was.tail.entries) if was is not None else tail.since
        if was is None or first < len(tail.entries):
            part = make(spoken(tail.entries[first:], roles))
            made.append(part)
            grown = grown and (was is not None or name not in known)
            sessions[name] = _Session(tail, (*(was.parts if was else ()), part), is_whole())
    if before is not None and grown:
        return _Built(sessions, _extended(before.index, made)) if made else before
    return _Built(sessions, _index([part for one in sessions.values() for part in one.parts]))


def _index(parts: Sequence[Made]) -> Index:
    from agent_memory.retrieval.index import SegmentIndex

    return _extended(Index(SegmentIndex(0), {}), parts)


def _extended(index: Index, parts: Sequence[Made]) -> Index:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.index import SegmentIndex

    some = [part for part in parts if part[0]]
    if not some:
        return index
    records = {record.id: record for part, _ in some for record in part}
    features = Features.joined([part for _, part in some])
    # what was read before may have held no record, as system messages alone do: nothing told then
    # how long vectors are
    known = index.traits if index.records else SegmentIndex(features.dimension)
    return Index(
        known.extended(list(records), features, compact=True), {**index.records, **records}
    )


def _chosen(tails: Sequence[Tail], question: str, roles: Sequence[str]) -> list[tuple[Entry, Turn]]:
    """Of much those turns that share most words with a question, and the newest.

    Each stands for itself, since to look at what was said before it would take too long.
    """
    from agent_memory.retrieval.languages import languages_of
    from agent_memory.retrieval.turns import spoken
    from agent_memory.retrieval.words import roots

    waiting = [entry for tail in tails for entry in tail.entries[tail.since :]]
    turns = spoken(sorted(waiting, key=lambda entry: entry.created_at), roles)[::-1]
    wanted = set(roots(question, languages_of(question)).values())
    shared: list[tuple[int, int]] = []
    for place, (_, turn) in enumerate(turns if wanted else ()):
        text = turn.text.casefold()
        count = sum(root in text for root in wanted)
        if count:
            shared.append((-count, place))
    newest = _not_too_long(turns, range(min(len(turns), _NEWEST)))
    sharing = _not_too_long(turns, [place for _, place in sorted(shared)[:_SHARING]])
    return [turns[place] for place in dict.fromkeys([*newest, *sharing])]


def _not_too_long(turns: Sequence[tuple[Entry, Turn]], places: Iterable[int]) -> Iterator[int]:
    """The first of them, as far as there is room: one at least."""
    room = _LONGEST
    for place in places:
        if room > 0:
            yield place
        room -= len(turns[place][1].text)
