"""An index of pending entries: messages in the log that a block has not absorbed yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import log1p
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from agent_memory.core.cache import Cache, continues
from agent_memory.core.processes import begin_anew_in_child, fork_safe_lock
from agent_memory.core.records import Entry, Record
from agent_memory.stores.pending import Tail, Tails

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features, Turn
    from agent_memory.retrieval.index import SegmentIndex
    from agent_memory.retrieval.vectors import Encoding

Encode = Callable[[Sequence[str]], "Sequence[Encoding]"]
"""See `Encoder.encode`."""

MOST_BYTES = 128 * 2**20
"""Maximum size of the indexes that a block's `Waiting` caches. At least one index is cached."""

_RECORD_BYTES = 2_000  # estimated size of a record without its features


WHOLE = 500
"""Number of pending entries up to which all are indexed. If there are more, only the newest entries
and those that share words with the question are indexed."""

WHOLE_TOKENS = 50_000
"""The same limit in tokens, because a megabyte of new words takes seconds to index."""

# if there are more pending entries than `WHOLE`, the index has these:
_NEWEST = 50  # number of newest entries
_SHARING = 150  # number of entries that share the rarest words with the question
_LONGEST = 100_000  # maximum characters of each of these two groups

Encoded = tuple[list[Record], "Features"]
"""Records with their features."""

Make = Callable[[Sequence[tuple[Entry, "Turn"]]], Encoded]
"""Makes records of turns, in the form in which the block will store them."""


def are_many(tails: Tails) -> bool:
    """Return whether there are too many pending entries to index all of them."""
    tokens = sum(tail.tokens for tail in tails.read)
    return tokens > WHOLE_TOKENS or sum(tail.count for tail in tails.read) > WHOLE


class Index(NamedTuple):
    """The index of some pending entries, and the records of these entries by id."""

    traits: SegmentIndex
    records: dict[str, Record]


@dataclass(frozen=True, slots=True)
class _Session:
    tail: Tail
    whole: bool

    def is_begun_by(self, tail: Tail) -> bool:
        """Return whether `tail` begins with the entries of this session's tail."""
        own = self.tail
        return tail.lag.after == own.lag.after and continues(tail.entries, own.entries)


@dataclass(frozen=True, slots=True)
class _Built:
    sessions: dict[str, _Session]
    index: Index

    @property
    def nbytes(self) -> int:
        return self.index.traits.nbytes + _RECORD_BYTES * len(self.index.records)


class Waiting:
    """Indexes of pending entries, for recently used owners. Thread-safe."""

    def __init__(self, roles: Sequence[str]) -> None:
        self._roles = roles
        self._lock = fork_safe_lock()
        self._cache: Cache[str, _Built] = Cache(MOST_BYTES, lambda built: built.nbytes, 1)
        self._begin()
        begin_anew_in_child(self, Waiting._begin)

    def _begin(self) -> None:
        # by owner: one thread at a time builds an index
        self._turns: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()

    def index(
        self,
        tails: Tails,
        owner: str,
        question: str,
        make: Make,
        is_whole: Callable[[], bool] = lambda: True,
        reuse: Make | None = None,
    ) -> Index | None:
        """Return the index of an owner's pending entries; None if there are none.

        `is_whole` returns whether `make` could encode all texts. If not, the next question makes
        the records again. `reuse` makes the records of older turns, with cached encodings only.
        """
        if not tails.lags:
            self._cache.drop(owner)
        if not tails.read:
            return None
        if are_many(tails):
            newest, sharing = _chosen(tails.read, question, self._roles)
            return _index([make(newest), (reuse or make)(sharing)])
        with self._lock:
            turn = self._turns.setdefault(owner, threading.Lock())
        # a long document takes seconds to index: concurrent and repeated questions share the index
        with turn:
            built = self._cache.find(owner)
            after = self._built(built, tails, make, is_whole)
            if after is not built:
                self._cache.put(owner, after)
        return after.index if after.index.records else None

    def _built(
        self, before: _Built | None, tails: Tails, make: Make, is_whole: Callable[[], bool]
    ) -> _Built:
        """Return the current indexes: the object `before` if nothing changed."""
        from agent_memory.retrieval.turns import spoken

        lags = {lag.session_id: lag for lag in tails.lags}
        existing = before.sessions if before is not None else {}
        sessions = {
            name: item
            for name, item in existing.items()
            if name in lags and item.tail.stands(lags[name])
        }
        indexed = {id(item.tail) for item in sessions.values() if item.whole}
        changed = [tail for tail in tails.read if tail.entries and id(tail) not in indexed]
        if before is None or len(sessions) < len(existing) or not _only_adds(sessions, changed):
            before, sessions = None, {}
            changed = [tail for tail in tails.read if tail.entries]
        parts: list[Encoded] = []
        for tail in changed:
            was = sessions.get(tail.lag.session_id)
            first = len(was.tail.entries) if was is not None else tail.since
            if was is None or first < len(tail.entries):
                parts.append(make(spoken(tail.entries[first:], self._roles)))
                sessions[tail.lag.session_id] = _Session(tail, is_whole())
        if before is None:
            return _Built(sessions, _index(parts))
        return _Built(sessions, _extended(before.index, parts)) if parts else before


def _only_adds(sessions: Mapping[str, _Session], tails: Sequence[Tail]) -> bool:
    """Return whether tails only add entries to the indexed ones."""
    was = [(sessions.get(tail.lag.session_id), tail) for tail in tails]
    return all(item is None or (item.whole and item.is_begun_by(tail)) for item, tail in was)


def _index(parts: Sequence[Encoded]) -> Index:
    from agent_memory.retrieval.index import SegmentIndex

    return _extended(Index(SegmentIndex(0), {}), parts)


def _extended(index: Index, parts: Sequence[Encoded]) -> Index:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.index import SegmentIndex

    some = [part for part in parts if part[0]]
    if not some:
        return index
    records = {record.id: record for part, _ in some for record in part}
    features = Features.joined([part for _, part in some])
    # if only system messages are indexed, the index is empty, and its dimension is unknown
    traits = index.traits if index.records else SegmentIndex(features.dimension)
    traits = traits.extended(list(records), features, compact=True)
    return Index(traits, {**index.records, **records})


def _chosen(
    tails: Sequence[Tail], question: str, roles: Sequence[str]
) -> tuple[list[tuple[Entry, Turn]], list[tuple[Entry, Turn]]]:
    """Return the newest of many turns, and older turns that share the rarest words with a question.

    The neighbours of these older turns are left out, because indexing them would take too long.
    """
    from agent_memory.retrieval.languages import languages_of
    from agent_memory.retrieval.turns import spoken
    from agent_memory.retrieval.words import roots

    entries = sorted(
        (entry for tail in tails for entry in tail.entries[tail.since :]),
        key=lambda entry: entry.created_at,
        reverse=True,
    )
    wanted = set(roots(question, languages_of(question)).values())
    texts = [entry.message.text().casefold() for entry in entries] if wanted else []
    holding = {root: [at for at, text in enumerate(texts) if root in text] for root in wanted}
    worth = {root: log1p(len(entries) / len(places)) for root, places in holding.items() if places}

    def shared(text: str) -> float:
        folded = text.casefold()
        return sum(value for root, value in worth.items() if root in folded)

    candidates = {place for places in holding.values() for place in places}
    best = nlargest(_SHARING, candidates, key=lambda at: (shared(texts[at]), -at))
    sharing = spoken([entries[place] for place in best], roles)
    newest = _not_too_long(spoken(entries[:_NEWEST], roles)[::-1])
    keys = {(entry.session_id, entry.seq, turn.part.number) for entry, turn in newest}
    return newest, [
        (entry, turn)
        for entry, turn in _not_too_long(sorted(sharing, key=lambda pair: -shared(pair[1].text)))
        if (entry.session_id, entry.seq, turn.part.number) not in keys
    ]


def _not_too_long(turns: Iterable[tuple[Entry, Turn]]) -> list[tuple[Entry, Turn]]:
    """Return the first turns until they exceed `_LONGEST`, at least one turn."""
    room, chosen = _LONGEST, list[tuple[Entry, "Turn"]]()
    for entry, turn in turns:
        if room <= 0:
            break
        chosen.append((entry, turn))
        room -= len(turn.text)
    return chosen
