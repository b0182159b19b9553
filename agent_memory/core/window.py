"""What a window shows and where it may be cut. Pure functions over entries.

Two rules hold everywhere. A tool call and its results stand or fall together, matched by call id
and not by place. And once anything was cut away, a window starts at a user message wherever it has
one: where a cut has to fall inside a turn, the user message that opened the turn stays pinned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a window begins: after seq `start`, with the `pinned` earlier seqs kept."""

    start: int
    pinned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Layout:
    """For each entry: may it be shown, and the place of the call it belongs to, or its own."""

    shown: list[bool]
    group: list[int]
    first_open: int | None
    """Place of the first call in the newest turn that waits for results."""

    def cuttable(self) -> list[bool]:
        """For each entry, whether the window may be cut right after it."""
        if self.first_open is None and self.group == list(range(len(self.shown))):
            return [True] * len(self.shown)
        last_of_group = {call: i for i, call in enumerate(self.group) if self.shown[i]}
        reach, found = -1, []
        for i, shown in enumerate(self.shown):
            if shown:
                reach = max(reach, last_of_group[self.group[i]])
            found.append(reach <= i and (self.first_open is None or i < self.first_open))
        return found


_CallId = tuple[str, str]
"""Kind and id of a call: an old function call goes by its name, a tool call by its id."""

_PLAIN = ("user", "assistant")
"""Roles of messages that neither call nor answer, unless they carry more than content."""

_NO_CALL = ("call without an id", "")  # nothing can answer it


def role_of(message: Message) -> str | None:
    """The role a chat would show the message under."""
    if message.role is not None:
        return message.role
    view = message.to_openai()
    return view.get("role") if view else None


def is_user(entry: Entry) -> bool:
    """Whether a user says it."""
    message = entry.message
    return message.role == "user" or (message.role is None and role_of(message) == "user")


def visible(entries: Sequence[Entry], *, was_cut: bool) -> list[Entry]:
    """The entries a context may show, in order.

    Left out are system messages (they stand at the top), calls whose results have not come, results
    without their call, and raw items that have no chat form. They stay in the log.

    Args:
        entries: A window, pinned entries first.
        was_cut: Whether earlier entries have left it; then leading entries before the first user
            message are left out too.
    """
    shown = _shown(entries)
    if was_cut:
        first = next((i for i, entry in enumerate(shown) if is_user(entry)), 0)
        if first:
            shown = _shown(shown[first:])
    return shown


def choose_cut(
    entries: Sequence[Entry], keep_tokens: int, keep_messages: int | None = None
) -> Cut | None:
    """Where to cut a window so that it keeps the newest whole turns within bounds.

    Prefers the boundary between two turns. Where that would leave more than half of `keep_tokens`
    unused, because one turn is very long, the cut falls inside that turn, between tool groups, and
    the turn's user message stays pinned. A call still waiting for its results in the newest turn is
    never cut away.

    Args:
        entries: The window, pinned entries first.
        keep_tokens: Tokens that may stay.
        keep_messages: Messages that may stay; None for any number.

    Returns:
        The cut; None where no legal cut would take anything away. If even the newest group passes
        the bounds, it alone is kept, beside the user message of its turn.
    """
    least: _Candidate | None = None
    boundary: _Candidate | None = None
    inside: _Candidate | None = None
    for one in _candidates(entries, keep_tokens):
        least = least or one
        if one.use(keep_tokens, keep_messages) > 1:
            continue
        if one.at_turn:
            boundary = one
        else:
            inside = one
    half_empty = boundary is not None and boundary.use(keep_tokens, keep_messages) < 0.5
    if boundary and inside and half_empty and inside.start < boundary.start:
        boundary = None
    chosen = boundary or inside or least
    return Cut(chosen.start, chosen.pinned) if chosen else None


def guarded(entries: Sequence[Entry], cut: Cut) -> Cut:
    """A cut that leaves the newest group, and the user message that opened its turn.

    Args:
        entries: The window, pinned entries first.
        cut: Whatever a strategy wants.
    """
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
    """Whether these are more than `max_messages`; None for any number."""
    return max_messages is not None and len(entries) > max_messages


def begun_anew(head: Head, first: Entry | None) -> Head:
    """The head of a window that begins with its log, without a summary.

    Args:
        head: The head.
        first: What the log begins with; None for an empty one.
    """
    return replace(
        head,
        start=head.expired,
        start_total=first.before if first else 0,
        pinned=(),
        pinned_tokens=0,
        summary=None,
    )


def ruled(head: Head, said: Sequence[Entry | Draft]) -> Head:
    """The head whose system message is the last one of what is said; none where there is none."""
    last = next((one for one in reversed(said) if one.message.is_system), None)
    if last is None:
        return replace(head, system=None, system_tokens=0)
    return replace(head, system=last.message, system_tokens=last.tokens)


def apply(entries: Sequence[Entry], cut: Cut) -> list[Entry]:
    """The entries that stay after a cut."""
    return [entry for entry in entries if entry.seq > cut.start or entry.seq in cut.pinned]


def snap(entries: Sequence[Entry], start: int) -> int:
    """The last legal place to cut at or before seq `start`; 0 where there is none."""
    layout = _layout(entries)
    legal = (e.seq for e, ok in zip(entries, layout.cuttable(), strict=True) if ok)
    return max((seq for seq in legal if seq <= start), default=0)


def turns(entries: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    """Visible entries as turns: a user message with all that follows until the next one.

    What precedes the first user message is a turn of its own. A tool group that spans two user
    messages joins their turns into one.
    """
    layout = _layout(entries)
    cuttable = layout.cuttable()
    done: list[tuple[Entry, ...]] = []
    current: list[Entry] = []
    previous_cuttable = True
    for i, entry in enumerate(entries):
        if current and is_user(entry) and previous_cuttable:
            done.append(tuple(current))
            current = []
        if layout.shown[i]:
            current.append(entry)
        previous_cuttable = cuttable[i]
    return [*done, tuple(current)] if current else done


def units(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Visible entries as what stands or falls together: a call with its results, or one message.

    In the order in which they begin.
    """
    found: dict[int, list[Entry]] = {}
    for entry, group in zip(entries, _layout(entries).group, strict=True):
        found.setdefault(group, []).append(entry)
    return list(found.values())


def unshown(entries: Sequence[Entry], shown: Sequence[Entry]) -> tuple[int, int]:
    """How many calls are not shown since they wait for results, and results since nothing calls.

    Args:
        entries: A window.
        shown: What of it is visible.
    """
    seqs = {entry.seq for entry in shown}
    waiting = orphans = 0
    called: set[_CallId] = set()
    for entry in entries:
        if entry.seq in seqs or entry.message.is_system:
            continue
        views = entry.message.views()
        calls = {call for view in views for call in _calls(view)}
        called |= calls
        waiting += bool(calls)
        orphans += any(answer not in called for answer in filter(None, map(_answer, views)))
    return waiting, orphans


class _Candidate(NamedTuple):  # a tuple, since there is one for nearly every entry
    start: int
    pinned: tuple[int, ...]
    tokens: int
    messages: int
    at_turn: bool

    def use(self, keep_tokens: int, keep_messages: int | None) -> float:
        """The share of the bounds that is kept; above 1 it does not fit."""
        use = self.tokens / keep_tokens if keep_tokens > 0 else 2.0
        return max(use, self.messages / keep_messages) if keep_messages else use


def _candidates(entries: Sequence[Entry], keep_tokens: int) -> Iterator[_Candidate]:
    """Legal cuts with what they would keep, from the one that keeps least to the most.

    Left out are those that keep more than `keep_tokens`, but for the one that keeps least.
    """
    tokens = messages = 0
    next_shown: Entry | None = None
    any_found = at_turn = user_after = False
    layout = _layout(entries)
    shown, cuttable, anchors = layout.shown, layout.cuttable(), _anchors(entries)
    first = entries[0].seq if entries else 0
    for i in range(len(entries) - 1, -1, -1):
        entry = entries[i]
        if next_shown is not None and cuttable[i]:
            start, anchor = entry.seq, anchors[i]
            if not at_turn and anchor is not None:
                if anchor.seq != first or start > first:
                    cost = tokens + anchor.tokens
                    yield _Candidate(start, (anchor.seq,), cost, messages + 1, False)
                    any_found = True
            elif at_turn or not user_after:
                yield _Candidate(start, (), tokens, messages, at_turn)
                any_found = True
        if shown[i]:
            next_shown, messages = entry, messages + 1
            at_turn = is_user(entry)
            user_after = user_after or at_turn
        tokens += entry.counted
        if any_found and tokens > keep_tokens:
            return


def _anchors(entries: Sequence[Entry]) -> list[Entry | None]:
    """For each entry, the newest user message up to and with it."""
    anchors: list[Entry | None] = []
    newest: Entry | None = None
    for entry in entries:
        newest = entry if is_user(entry) else newest
        anchors.append(newest)
    return anchors


def _shown(entries: Sequence[Entry]) -> list[Entry]:
    if _are_plain(entries):
        return list(entries)
    return [entry for entry, ok in zip(entries, _layout(entries).shown, strict=True) if ok]


def _are_plain(entries: Sequence[Entry]) -> bool:
    """Whether all of them are; nearly always they are, and each context asks."""
    for entry in entries:
        message = entry.message
        if message.role not in _PLAIN or message.tool_calls or message.__pydantic_extra__:
            return False
    return True


def _is_plain(message: Message) -> bool:
    """Whether it can neither call nor answer, and is shown."""
    return message.role in _PLAIN and not message.tool_calls and not message.__pydantic_extra__


def _layout(entries: Sequence[Entry]) -> _Layout:
    """Pair calls with results, newest unanswered call first where an id is used again."""
    group = list(range(len(entries)))
    shown = [True] * len(entries)
    if _are_plain(entries):
        return _Layout(shown, group, None)
    waiting: dict[_CallId, int] = {}
    missing: dict[int, set[_CallId]] = {}
    last_user = -1
    for i, entry in enumerate(entries):
        message = entry.message
        role = message.role
        if not _is_plain(message):
            views = message.views()
            shown[i] = bool(views) and not message.is_system
            role = role_of(message)
            calls = [call for view in views for call in _calls(view)]
            if calls:
                missing[i] = set(calls)
                waiting |= dict.fromkeys(calls, i)
            for answer in filter(None, map(_answer, views)):
                call = waiting.pop(answer, None)
                if call is None:
                    shown[i] = False
                else:
                    _join(group, group[call], i)
                    missing[call].discard(answer)
        if role == "user":
            last_user = i
    waits = [i for i, ids in missing.items() if ids]
    if waits:
        unanswered = {group[i] for i in waits}
        shown = [ok and group[i] not in unanswered for i, ok in enumerate(shown)]
    return _Layout(shown, group, min((i for i in waits if i > last_user), default=None))


def _join(group: list[int], call: int, answer: int) -> None:
    """Put an answer into its call's group; what answers several calls makes these one group."""
    first, second = sorted((call, group[answer]))
    group[answer] = first
    if second not in (first, answer):
        group[second:answer] = [first if at == second else at for at in group[second:answer]]


def _calls(view: dict[str, object]) -> list[_CallId]:
    calls = view.get("tool_calls")
    ids = [_call_id(call.get("id")) for call in calls] if isinstance(calls, list) else []
    function = view.get("function_call")
    if isinstance(function, dict):
        ids.append(("function", str(function.get("name"))))
    return ids


def _answer(view: dict[str, object]) -> _CallId | None:
    """Id of the call that a message answers; None for a message that is no answer."""
    if view.get("role") == "tool":
        found = _call_id(view.get("tool_call_id"))
        return found if found != _NO_CALL else ("orphan", "")
    if view.get("role") == "function":
        return "function", str(view.get("name"))
    return None


def _call_id(value: object) -> _CallId:
    return ("tool", value) if isinstance(value, str) else _NO_CALL
