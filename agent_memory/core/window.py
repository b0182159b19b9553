"""The entries of a window that are shown, and the places where a window may be cut. Pure.

Two rules hold everywhere. A tool call and its results form a *group* and are cut together. After a
cut, a window starts at its first user message, or at an earlier call whose results came after that
message. If the cut must fall inside a turn, the turn's user message is pinned: it stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, NamedTuple

from agent_memory.core.cache import Cache, continues
from agent_memory.core.messages import SYSTEM_ROLES, Message
from agent_memory.core.records import Draft, Entry, Head
from agent_memory.core.shapes import Shape, are_final, leads, pairs, shape_of, shapes_of


@dataclass(frozen=True, slots=True)
class Cut:
    """The entries of a window: those after seq `start`, and the earlier `pinned` seqs."""

    start: int
    pinned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Layout:
    """For each entry, whether it may be shown, and the index of its group's first entry."""

    shown: list[bool]
    group: list[int]
    first_open: int | None
    """Index of the first entry with a call that waits for its result, if any; see `_laid_out`."""
    pending: int = 0
    orphans: int = 0
    leading: frozenset[int] = frozenset()
    """Indexes of the items, such as reasoning, that must be sent with the item after them."""

    def with_more(self, more: _Layout) -> _Layout:
        """Return this layout, extended by `more`. All calls of this layout must have results."""
        count = len(self.shown)
        return _Layout(
            self.shown + more.shown,
            self.group + [count + place for place in more.group],
            None if more.first_open is None else count + more.first_open,
            more.pending,
            more.orphans,
            self.leading.union([count + place for place in more.leading]),
        )

    def cuttable(self) -> list[bool]:
        """Return for each entry whether the window may be cut right after it."""
        is_plain = self.first_open is None and not self.leading
        if is_plain and self.group == list(range(len(self.shown))):
            return [True] * len(self.shown)
        last_of_group = {call: i for i, call in enumerate(self.group) if self.shown[i]}
        reach, result = -1, []
        for i, shown in enumerate(self.shown):
            if shown:
                reach = max(reach, last_of_group[self.group[i]])
            is_closed = reach <= i and (self.first_open is None or i < self.first_open)
            result.append(is_closed and i not in self.leading)
        return result


class _CachedLayout(NamedTuple):
    entries: Sequence[Entry]
    layout: _Layout
    # The first of the entries, up to a user message. Later entries do not change their layout.
    settled: Sequence[Entry]
    before: _Layout  # the layout of `settled`


_LAYOUTS: Cache[tuple[object, ...], _CachedLayout] = Cache(64)


def is_user(entry: Entry) -> bool:
    shape = shape_of(entry.message)
    return shape.role == "user" and shape.speaks


def visible(entries: Sequence[Entry], *, was_cut: bool) -> list[Entry]:
    """Return the entries that a context may show, in order.

    System messages are left out, because a context shows them at the top. Calls without results,
    results without calls, empty messages, and raw items without a chat form are left out too. If a
    message has text and calls without results, its text is shown. If only some of a message's calls
    have results, these calls are shown only after the conversation has continued.

    Args:
        was_cut: Whether earlier entries have left the window. If so, entries before the first user
            message are left out too, except calls whose results came after this message.
    """
    layout = _layout(entries)
    if not was_cut:
        return [*compress(entries, layout.shown)]
    places = [place for place, ok in enumerate(layout.shown) if ok]
    first = next((place for place in places if is_user(entries[place])), 0)
    groups = {layout.group[place] for place in places if place >= first}
    return [entries[place] for place in places if layout.group[place] in groups]


def choose_cut(
    entries: Sequence[Entry], keep_tokens: int, keep_messages: int | None = None
) -> Cut | None:
    """Return the cut that keeps as many of the newest turns as the bounds allow.

    A cut between two turns is preferred. If the remaining window would use less than half of the
    bounds, because the next older turn is long, the cut falls inside that turn, between groups. The
    turn's user message is then pinned. A call that waits for its result is never cut away.

    Returns:
        The cut. None if no legal cut removes anything. The newest group always stays, with the user
        message of its turn, even if it exceeds the bounds.
    """
    least: _Candidate | None = None
    boundary: _Candidate | None = None
    inside: _Candidate | None = None
    for candidate in _candidates(entries, keep_tokens):
        least = least or candidate
        if candidate.use(keep_tokens, keep_messages) > 1:
            continue
        if candidate.at_turn:
            boundary = candidate
        else:
            inside = candidate
    half_empty = boundary is not None and boundary.use(keep_tokens, keep_messages) < 0.5
    if boundary and inside and half_empty and inside.start < boundary.start:
        boundary = None
    chosen = boundary or inside or least
    return Cut(chosen.start, chosen.pinned) if chosen else None


def guarded(entries: Sequence[Entry], cut: Cut) -> Cut:
    """Reduce a cut so that the newest group stays, with the user message that opened its turn."""
    layout = _layout(entries)
    newest = max((i for i, ok in enumerate(layout.shown) if ok), default=None)
    if newest is None:
        return cut
    group = layout.group[newest]
    start = min(cut.start, entries[group].seq - 1)
    anchor = next(filter(is_user, reversed(entries[: group + 1])), None)
    if anchor is None or anchor.seq > start or anchor.seq in cut.pinned:
        return Cut(start, cut.pinned)
    return Cut(start, (*cut.pinned, anchor.seq))


def passes(entries: Sequence[Entry], max_messages: int | None) -> bool:
    """Return whether there are more than `max_messages` entries. None is no limit."""
    return max_messages is not None and len(entries) > max_messages


def begun_anew(head: Head, first: Entry | None) -> Head:
    """Return the head without a summary. Its window begins with `first`, the log's first entry."""
    head = replace(head, start=head.expired, start_total=first.before if first else 0)
    return replace(head, pinned=(), pinned_tokens=0, summary=None)


def ruled(head: Head, entries: Sequence[Entry | Draft]) -> Head:
    """Return the head with the system message of these entries, or without any."""
    system, tokens = system_of(entries) or (None, 0)
    return replace(head, system=system, system_tokens=tokens)


def system_of(entries: Sequence[Entry | Draft]) -> tuple[Message, int] | None:
    """Return the last system message with its tokens. None if there is none.

    Adjacent system messages with the same role and metadata are joined.
    """
    run: list[Entry | Draft] = []
    for entry in reversed(entries):
        own, last = entry.message, run[-1].message if run else entry.message
        if own.is_system and (own.role, own.metadata) == (last.role, last.metadata):
            run.append(entry)
        elif run:
            break
    texts = [*dict.fromkeys(text for entry in reversed(run) if (text := entry.message.text()))]
    if len(texts) < 2:
        return (run[0].message, run[0].tokens) if run else None
    same: dict[str, Any] = {"metadata": run[0].message.metadata} if run[0].message.metadata else {}
    system = Message(role=run[0].message.role or "system", content="\n\n".join(texts), **same)
    return system, sum(entry.tokens for entry in run)


def apply(entries: Sequence[Entry], cut: Cut) -> list[Entry]:
    return [entry for entry in entries if entry.seq > cut.start or entry.seq in cut.pinned]


def snap(entries: Sequence[Entry], start: int) -> int:
    """Return the last legal cut at or before seq `start`. 0 if there is none."""
    layout = _layout(entries)
    legal = (entry.seq for entry, ok in zip(entries, layout.cuttable(), strict=True) if ok)
    return max((seq for seq in legal if seq <= start), default=0)


def turns(entries: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    """Group the entries that may be shown into turns.

    A turn is a user message with all entries up to the next user message. Entries before the first
    user message are a turn too. If a group reaches into the next turn, the two turns are one.
    """
    layout = _layout(entries)
    cuttable = layout.cuttable()
    finished: list[tuple[Entry, ...]] = []
    current: list[Entry] = []
    previous_cuttable = True
    for i, entry in enumerate(entries):
        if current and is_user(entry) and previous_cuttable:
            finished.append(tuple(current))
            current = []
        if layout.shown[i]:
            current.append(entry)
        previous_cuttable = cuttable[i]
    return [*finished, tuple(current)] if current else finished


def units(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Divide visible entries into units: a call with its results, or a single message."""
    units_by_call: dict[int, list[Entry]] = {}
    for entry, group in zip(entries, _layout(entries).group, strict=True):
        units_by_call.setdefault(group, []).append(entry)
    return list(units_by_call.values())


def unshown(entries: Sequence[Entry]) -> tuple[int, int]:
    """Count the calls without a result, and the results without a call."""
    layout = _layout(entries)
    return layout.pending, layout.orphans


def late_results(entries: Sequence[Entry]) -> frozenset[int]:
    """Return the seqs of the entries that only hold results of calls that have left the window."""
    if not _layout(entries).orphans:
        return frozenset()
    shapes = shapes_of([entry.message for entry in entries])
    answered = {place for place, _ in pairs(shapes)}
    called = {call.id for shape in shapes for call in shape.calls}
    return frozenset(
        entry.seq
        for place, (entry, shape) in enumerate(zip(entries, shapes, strict=True))
        if shape.answers and not (shape.speaks or shape.calls or place in answered)
        if called.isdisjoint(answer.id for answer in shape.answers)
    )


class _Candidate(NamedTuple):  # a tuple, which is fast: nearly every entry has a candidate
    start: int
    pinned: tuple[int, ...]
    tokens: int
    messages: int
    at_turn: bool

    def use(self, keep_tokens: int, keep_messages: int | None) -> float:
        """Return the share of the bounds that the window uses. A window above 1 does not fit."""
        use = self.tokens / keep_tokens if keep_tokens > 0 else 2.0
        return max(use, self.messages / keep_messages) if keep_messages else use


def _candidates(entries: Sequence[Entry], keep_tokens: int) -> Iterator[_Candidate]:
    """Yield legal cuts with the size of the remaining window, smallest first.

    Each window after the first exceeds `keep_tokens` by at most its pinned message.
    """
    tokens = messages = 0
    next_shown: Entry | None = None
    has_candidate = at_turn = user_after = False
    layout = _layout(entries)
    shown, cuttable = layout.shown, layout.cuttable()
    question: Entry | None = None
    anchors = [question := entry if is_user(entry) else question for entry in entries]
    first = entries[0].seq if entries else 0
    for i in range(len(entries) - 1, -1, -1):
        entry = entries[i]
        if next_shown is not None and cuttable[i]:
            start, anchor = entry.seq, anchors[i]
            if not at_turn and anchor is not None:
                if anchor.seq != first or start > first:
                    cost = tokens + anchor.tokens
                    yield _Candidate(start, (anchor.seq,), cost, messages + 1, False)
                    has_candidate = True
            elif at_turn or not user_after:
                yield _Candidate(start, (), tokens, messages, at_turn)
                has_candidate = True
        if shown[i]:
            next_shown, messages = entry, messages + 1
            at_turn = is_user(entry)
            user_after = user_after or at_turn
        tokens += entry.counted
        if has_candidate and tokens > keep_tokens:
            return


def _layout(entries: Sequence[Entry]) -> _Layout:
    """Return the layout of a window. The layout before the newest user message is cached."""
    if not entries:
        return _Layout([], [], None)
    key = (id(entries[0].message),)
    cached = _LAYOUTS.find(key)
    if cached and cached.entries is entries and len(cached.layout.shown) == len(entries):
        return cached.layout  # a context needs the same layout several times
    before, settled = _Layout([], [], None), entries[:0]
    if cached is not None and continues(entries, cached.settled):
        before, settled = cached.before, cached.settled
    newest = next((i for i in reversed(range(len(entries))) if is_user(entries[i])), 0)
    if newest > len(settled):
        layout = before.with_more(_laid_out(entries[len(settled) : newest]))
        # Later entries cannot complete a pair, or replace a result that precedes its call.
        is_closed = not (layout.pending or layout.orphans) and not any(
            shape_of(entries[first].message).answers for first in {*layout.group[len(settled) :]}
        )
        if is_closed and are_final(entry.message for entry in entries[len(settled) : newest]):
            before, settled = layout, entries[:newest]
    layout = before.with_more(_laid_out(entries[len(settled) :]))
    return _LAYOUTS.put(key, _CachedLayout(entries, layout, settled, before)).layout


def _laid_out(entries: Sequence[Entry]) -> _Layout:
    """Return the layout of entries that are not cached.

    A group waits if one of its calls has no result, and the conversation has not continued after
    this call. The conversation continues with a message or, after a result, with further calls and
    their results. An entry may be shown if its group does not wait, or if it has content besides
    calls and results.
    """
    shapes = shapes_of([entry.message for entry in entries])
    shown = [shape.speaks for shape in shapes]
    for place, shape in enumerate(shapes):
        if shape.role in SYSTEM_ROLES and entries[place].message.is_system:
            shown[place] = False
    leading = frozenset(
        place
        for place, shape in enumerate(shapes)
        if not shape.views and leads(entries[place].message)
    )
    group = list(range(len(entries)))
    tools = [place for place, shape in enumerate(shapes) if shape.calls or shape.answers]
    if not tools:
        return _Layout(shown, group, None, leading=leading)
    answered = pairs(shapes)
    _join(group, [(call[0], answer[0]) for answer, call in answered.items()])
    answered_calls = set(answered.values())
    pending_calls = [
        place
        for place in tools
        for number in range(len(shapes[place].calls))
        if (place, number) not in answered_calls
    ]
    open_calls: list[int] = []
    if pending_calls:
        continued = _last_continued(shapes, group, {group[place] for place in pending_calls})
        open_calls = [place for place in pending_calls if place >= continued]
    waiting = {group[place] for place in open_calls}
    for place in {place for place, _ in (*answered, *answered_calls)}:
        shown[place] = shown[place] or group[place] not in waiting
    for place in tools if waiting else ():
        if group[place] in waiting:
            group[place] = place
    orphans = sum(len(shapes[place].answers) for place in tools) - len(answered)
    first_open = open_calls[0] if open_calls else None
    return _Layout(shown, group, first_open, len(pending_calls), orphans, leading)


def _last_continued(shapes: Sequence[Shape], group: Sequence[int], incomplete: set[int]) -> int:
    """Return the last index such that calls before it do not wait for results; see `_laid_out`."""
    says = [shape.speaks and shape.role not in SYSTEM_ROLES for shape in shapes]
    last = len(shapes)
    while last := last - 1:
        if says[last]:
            break
        if shapes[last].calls and group[last] not in incomplete:
            return max((i for i in range(last) if shapes[i].answers or says[i]), default=0)
    return last


def _join(group: list[int], joined: Sequence[tuple[int, int]]) -> None:
    """Merge the groups of the entries of each pair. A group has the index of its first entry."""
    members: dict[int, list[int]] = {}
    for left, right in joined:
        first, second = group[left], group[right]
        if first == second:
            continue
        first, second = min(first, second), max(first, second)
        moved = members.pop(second, [second])
        for place in moved:
            group[place] = first
        members.setdefault(first, [first]).extend(moved)
