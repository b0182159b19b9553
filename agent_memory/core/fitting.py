"""What of a conversation is shown within a room. Pure.

All of it, if it fits. Else the newest turn, and of the older ones the newest: long messages in
them are shown in part. A turn that does not fit alone is shown in part itself: the user message
that opened it, its newest step, and of the steps between as much as there is room for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from agent_memory.core.records import Entry
from agent_memory.core.shortening import Shortener
from agent_memory.core.window import apply, choose_cut, is_user, passes, turns, units, visible

_STEPS = 8
"""A long question is given its share in so many steps, so that it stays as it is for a while."""
_LOW_WATER = 0.7
_STUB = 60
_STUBS = 50
"""What an old step of a long turn is cut down to: `_STUB` tokens a message, or one part in so many
of the room."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """What is shown.

    Attributes:
        entries: The entries, in order, some of them in part.
        cut: Seqs of those that are shown in part.
        shortened: How many of the newest turn are shown in part.
        missing: How many of the newest turn are not shown.
        earlier: How many of the turns before it are not shown.
    """

    entries: list[Entry]
    cut: frozenset[int] = field(default=frozenset())
    shortened: int = 0
    missing: int = 0
    earlier: int = 0


@dataclass(frozen=True, slots=True)
class Fitting:
    """Fits entries into a room.

    Attributes:
        shortener: Shows messages in part.
        room: Tokens that may be shown.
        free: What of them is left to recalls, once something has to go.
        message: What a message of an older turn may take, once something has to go.
        max_messages: Messages that may be shown; None for any number.
    """

    shortener: Shortener
    room: int
    free: int
    message: int
    max_messages: int | None = None

    def fit(self, entries: Sequence[Entry]) -> Fitted | None:
        """What of the visible entries is shown; None where the newest step cannot be, even in part.

        Where the newest group alone has more than `max_messages`, it stays, beside the user message
        of its turn.
        """
        if not entries:
            return Fitted([]) if self.room >= 0 else None
        if cost_of(entries) <= self.room and not passes(entries, self.max_messages):
            return Fitted(list(entries))
        newest = turns(entries)[-1]
        if cost_of(newest) > self.room or passes(newest, self.max_messages):
            return self._in_part(newest, len(entries) - len(newest))
        return self._with_older(entries, newest)

    def _with_older(self, entries: Sequence[Entry], newest: Sequence[Entry]) -> Fitted:
        """The newest turn whole, and what fits of those before it."""
        first = newest[0].seq
        keep = max(cost_of(newest), self.room - self.free)
        priced = [self._priced(one) if one.seq < first else one for one in entries]
        fits = cost_of(priced) <= keep and not passes(priced, self.max_messages)
        cut = None if fits else choose_cut(priced, keep, self.max_messages)
        kept = visible(apply(priced, cut), was_cut=True) if cut else priced
        stays = {one.seq for one in kept}
        if cost_of(kept) > keep or passes(kept, self.max_messages) or first not in stays:
            stays = {one.seq for one in newest}
        older: list[Entry] = []
        for unit in units([one for one in entries if one.seq in stays and one.seq < first]):
            room = sum(self._priced(one).tokens for one in unit)
            older += self.shortener.unit(unit, room) or []
        shown = sorted([*older, *newest], key=_seq)
        there = {one.seq for one in shown}  # of a group of many calls some may be gone
        shown = visible(shown, was_cut=any(one.seq not in there for one in entries))
        return _told(entries, shown, newest)

    def _priced(self, entry: Entry) -> Entry:
        """An entry of an older turn with what it may take."""
        if entry.tokens <= self.message:
            return entry
        most = max(self.message, self.shortener.least(entry.message))
        return replace(entry, tokens=min(entry.tokens, most))

    def _in_part(self, turn: Sequence[Entry], earlier: int) -> Fitted | None:
        """The newest turn, in part."""
        steps = [list(unit) for unit in units(turn)]
        newest = next(unit for unit in steps if turn[-1] is unit[-1])
        asking = self._asking(turn, newest)
        asked = {one.seq for one in asking}
        steps = [unit for unit in steps if unit is not newest and unit[0].seq not in asked]
        room = self.room - self.free
        least = [self.shortener.least(one.message) for one in asking]
        for most in (room, self.room):
            shown = self._parts(asking, least, steps, newest, most)
            if shown is not None:
                return replace(_told(turn, shown, turn), earlier=earlier)
        return None

    def _parts(
        self,
        asking: Sequence[Entry],
        least: Sequence[int],
        steps: Sequence[Sequence[Entry]],
        newest: Sequence[Entry],
        room: int,
    ) -> list[Entry] | None:
        """The question, steps, and the newest one, within a room."""
        needed = self._needed(newest)
        if sum(least) + needed > room:
            return None
        others = sum(min(cost_of(step), room // 2) for step in [*steps, newest])
        asked = max(sum(least), min(self._asked(cost_of(asking), others, room), room - needed))
        shown = self.shortener.unit(asking, asked) if asking else []
        if shown is None:
            return None
        left = room - asked
        kept = list(self._steps(steps, newest, needed, left, len(asking)))
        for step, most in kept:
            shown += self.shortener.unit(step, most) or []
        left -= sum(most for _, most in kept)
        last = self.shortener.unit(newest, left)
        return None if last is None else sorted([*shown, *last], key=_seq)

    def _asked(self, tokens: int, others: int, room: int) -> int:
        """What the question may take: half of the room, or more in steps where it is not needed."""
        if tokens <= room - others:
            return tokens
        step = max(1, room // _STEPS)
        spare = (room - others) // step * step
        return min(tokens, max(room // 2, spare))

    def _steps(
        self,
        steps: Sequence[Sequence[Entry]],
        newest: Sequence[Entry],
        needed: int,
        room: int,
        asking: int,
    ) -> Iterator[tuple[Sequence[Entry], int]]:
        """The steps before the newest one that are shown, each with the tokens it may take.

        They are gone through as they came. Whenever they pass the room, the oldest are cut down to
        stubs, then left out, until a part of it is free again: so a turn that grows changes what
        it showed before now and then, and not with each step.
        """
        half, stub = room // 2, max(_STUB, room // _STUBS)
        taken: list[int] = []
        total = begun = whole = count = 0
        for place, step in enumerate([*steps, newest]):
            is_newest = place == len(steps)
            taken.append(min(cost_of(step), max(half, needed) if is_newest else half))
            total, count = total + taken[-1], count + len(step)
            low = max(int(room * _LOW_WATER), taken[-1])
            if total > room:
                for old in range(max(whole, begun), place):
                    if total <= low:
                        break
                    less = min(taken[old], sum(min(one.tokens, stub) for one in steps[old]))
                    total, taken[old], whole = total - taken[old] + less, less, old + 1
            if total > room:
                while begun < place and total > low:
                    total, count, begun = total - taken[begun], count - len(steps[begun]), begun + 1
            while begun < place and self._too_many(count + asking):
                total, count, begun = total - taken[begun], count - len(steps[begun]), begun + 1
        return ((steps[place], taken[place]) for place in range(begun, len(steps)))

    def _too_many(self, count: int) -> bool:
        return self.max_messages is not None and count > self.max_messages

    def _asking(self, turn: Sequence[Entry], newest: Sequence[Entry]) -> list[Entry]:
        """The user message that opened a turn, and the newest before its newest step."""
        held = {one.seq for one in newest}
        users = [one for one in turn if is_user(one) and one.seq not in held]
        return users if len(users) < 2 else [users[0], users[-1]]

    def _needed(self, unit: Sequence[Entry]) -> int:
        """Tokens of the least that can be shown of a unit: of a call with many results, one."""
        return min(cost_of(unit), self.shortener.fewest(unit))


def cost_of(entries: Sequence[Entry]) -> int:
    """Tokens of entries."""
    return sum([entry.tokens for entry in entries])


def _told(had: Sequence[Entry], shown: Sequence[Entry], newest: Sequence[Entry]) -> Fitted:
    """What is shown, with what became of the rest."""
    whole = {id(one) for one in had}
    cut = frozenset(one.seq for one in shown if id(one) not in whole)
    seqs = {one.seq for one in shown}
    of_newest = {one.seq for one in newest}
    return Fitted(
        list(shown),
        cut,
        shortened=len(cut & of_newest),
        missing=len(of_newest - seqs),
        earlier=sum(one.seq not in seqs and one.seq not in of_newest for one in had),
    )


def _seq(entry: Entry) -> int:
    return entry.seq
