"""Clearing of old tool results: a window shows stubs (one-line notes) in their place. Pure.

The log is not changed. The stubs depend only on the window and the settings. The tokens of the
window's messages are added up in order. Each time the sum exceeds the limit, stubs replace the old
results. If the sum still exceeds the limit, old steps (a call with its results) are merged into one
step, and the reasoning before their calls is left out. A replacement or a merge that would free too
few tokens is skipped. Between two clearings, the beginning of the context stays the same, and
prompt caches can serve it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from agent_memory.core.cache import continues
from agent_memory.core.formats.registry import form_of
from agent_memory.core.messages import Message, content_text
from agent_memory.core.records import Entry
from agent_memory.core.shapes import leads, role_of, shape_of
from agent_memory.core.shortening import format_in
from agent_memory.core.token_counter import TokenCounter
from agent_memory.core.tools import READ_MESSAGE
from agent_memory.core.transcript import full_text
from agent_memory.core.window import units

_KEEP, _AT_LEAST = 5, 10
"""Default shares of the limit: 1/5 for `keep_tokens`, 1/10 for `at_least`."""
_CHARS = 80
_CLEARED = "cleared"
_LISTED = "[Old result, listed above]"
_IS_ERROR = re.compile(
    r"\W*(\w*error|\w*exception|traceback|fatal|panic|failed|failure)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Clearing:
    """Settings of the clearing.

    Attributes:
        keep_tokens: The newest results stay whole, as long as they and their calls take at most
            this number of tokens. None means a fifth of the window's limit.
        at_least: If clearing would free fewer tokens than this number, all results stay whole. None
            means a tenth of the window's limit.
    """

    keep_tokens: int | None = None
    at_least: int | None = None

    def clear(
        self,
        entries: Sequence[Entry],
        limit: int,
        counter: TokenCounter,
        pinned: frozenset[int] = frozenset(),
        before: Cleared | None = None,
    ) -> Cleared:
        """Return the window with stubs in place of old tool results.

        The newest result stays whole. A result also stays whole if it begins like an error, or if
        no message of the assistant comes after it yet. A message larger than half of the limit
        counts as half of the limit, because contexts shorten it.

        Args:
            limit: Tokens that the window may take.
            pinned: Seqs of messages that stay whole.
            before: The last return value for this window. Only entries added since are processed.
        """
        cleared = Cleared(entries, counter, pinned, before)
        keep = limit // _KEEP if self.keep_tokens is None else self.keep_tokens
        at_least = limit // _AT_LEAST if self.at_least is None else self.at_least
        cleared._advance(limit, keep, at_least)
        return cleared


class Cleared:
    """A window whose old tool results are cleared."""

    def __init__(
        self,
        window: Sequence[Entry],
        counter: TokenCounter,
        pinned: frozenset[int],
        before: Cleared | None,
    ) -> None:
        self._window, self._counter, self._pinned = window, counter, pinned
        last = before
        if last is not None and not (last._pinned == pinned and continues(window, last._window)):
            last = None
        # None stands for an entry that was merged into another entry.
        self._shown: list[Entry | None] = last._shown.copy() if last else []
        self._costs: list[int] = last._costs.copy() if last else []
        self._tokens: int = last._tokens if last else 0
        # Indexes of the assistant's newest message, of the results, and of stubs of merged steps.
        self._read: int = last._read if last else 0
        self._results: list[int] = last._results.copy() if last else []
        self._notes: frozenset[int] = last._notes if last else frozenset()
        self._cache: dict[int, Entry | None] = last._cache if last else {}

    @property
    def entries(self) -> list[Entry]:
        return [entry for entry in self._shown if entry is not None]

    @cached_property
    def _steps(self) -> list[list[int]]:
        """Return the indexes of each step, the call first, then its results."""
        places = {entry.seq: place for place, entry in enumerate(self._window)}
        steps = [[places[entry.seq] for entry in unit] for unit in units(self._window)]
        return [step for step in steps if len(step) > 1]

    @cached_property
    def _calls(self) -> dict[int, int]:
        """Map the index of each step's first result to the index of its call."""
        return {step[1]: step[0] for step in self._steps}

    def _advance(self, limit: int, keep: int, least: int) -> None:
        for place in range(len(self._shown), len(self._window)):
            self._add(place, limit // 2)
            if self._tokens > limit:
                old = self._old_places(keep)
                for shorter in (self._stubs, self._joined):
                    if self._tokens > limit:
                        self._change(shorter(old), least)

    def _add(self, place: int, most: int) -> None:
        entry = self._window[place]
        self._shown.append(entry)
        self._costs.append(min(entry.counted, most))
        self._tokens += self._costs[place]
        if role_of(entry.message) == "assistant":
            self._read = place
        elif _is_clearable(entry):
            self._results.append(place)

    def _old_places(self, keep: int) -> list[int]:
        """Return the indexes of the clearable results that lie before the newest `keep` tokens."""
        places: list[int] = []
        for place in reversed(self._results):
            keep -= self._costs[place]
            if (call := self._calls.get(place)) is not None:
                keep -= self._costs[call]
            is_old = keep < 0 and place < self._read and place != self._results[-1]
            if is_old and self._window[place].seq not in self._pinned:
                places.append(place)
        return places

    def _stubs(self, old: Sequence[int]) -> dict[int, Entry | None]:
        unchanged = [place for place in old if self._shown[place] is self._window[place]]
        new = [place for place in unchanged if place not in self._cache]
        self._cache = {
            **self._cache,
            **dict.fromkeys(new),
            **_stubs_of(self._window, new, self._counter),
        }
        return {place: stub for place in unchanged if (stub := self._cache[place])}

    def _joined(self, old: Sequence[int]) -> dict[int, Entry | None]:
        """Merge old steps into one step, whose result lists all their results."""
        candidates = set(old) - self._notes
        steps = [
            (call, results)
            for call, *results in self._steps
            if candidates.issuperset(results) and self._window[call].seq not in self._pinned
        ]
        # A call without one of its results may not be shown, so its step can't stay.
        whole = [
            step
            for step in steps
            if self._count(step) >= len(shape_of(self._window[step[0]].message).calls)
        ]
        if len(steps) < 2 or not whole:
            return {}
        stays = min(whole, key=self._count)
        changes: dict[int, Entry | None] = {}
        for step in steps:
            if step is not stays:
                changes |= {step[0]: self._words(step[0]), **dict.fromkeys(step[1])}
        changes |= dict.fromkeys(self._thoughts(changes))
        last, results = stays[1][-1], [place for _, results in steps for place in results]
        return {**changes, last: _note(self._window, results, last, self._counter)}

    def _thoughts(self, changes: Mapping[int, Entry | None]) -> list[int]:
        """Return the indexes of the items, such as reasoning, that lead only to merged calls."""
        thoughts: list[int] = []
        is_call, is_merged = False, True  # of the calls between this index and the next result
        for place in reversed(range(len(self._shown))):
            message = self._window[place].message
            if shape_of(message).calls:
                is_call = True
                is_merged = is_merged and changes.get(place, self._shown[place]) is None
            elif not leads(message):
                is_call, is_merged = False, True
            elif is_call and is_merged and self._shown[place] is not None:
                thoughts.append(place)
        return thoughts

    def _count(self, step: tuple[int, list[int]]) -> int:
        """Return the number of results of a step."""
        return sum(len(self._window[place].message.views()) for place in step[1])

    def _words(self, place: int) -> Entry | None:
        call = self._window[place]
        text = call.message.text() if shape_of(call.message).speaks else ""
        return _standing_for(call, [text], self._counter) if text else None

    def _change(self, changes: Mapping[int, Entry | None], least: int) -> None:
        costs = {place: entry.tokens if entry else 0 for place, entry in changes.items()}
        freed = sum(self._costs[place] - cost for place, cost in costs.items())
        if not changes or freed < least:
            return
        for place, entry in changes.items():
            self._shown[place], self._costs[place] = entry, costs[place]
        self._tokens -= freed
        gone = {place for place, entry in changes.items() if entry is None}
        self._results = [place for place in self._results if place not in gone]
        if gone:
            self._notes |= changes.keys() - gone


def is_stub(entry: Entry) -> bool:
    return entry.message.metadata.get("kind") == _CLEARED


def with_stubs(entries: Sequence[Entry], counter: TokenCounter) -> list[Entry]:
    """Replace all tool results by stubs, except errors and short results."""
    results = [place for place, entry in enumerate(entries) if _is_clearable(entry)]
    stubs = _stubs_of(entries, results, counter)
    return [stubs.get(place, entry) for place, entry in enumerate(entries)]


def _stubs_of(
    entries: Sequence[Entry], results: Sequence[int], counter: TokenCounter
) -> dict[int, Entry]:
    """Return the stubs that are shorter than their results."""
    stubs = {place: _stub_of(entries, place, counter) for place in results}
    return {place: stub for place, stub in stubs.items() if stub.tokens < entries[place].tokens}


def _stub_of(entries: Sequence[Entry], place: int, counter: TokenCounter) -> Entry:
    entry = entries[place]
    views = entry.message.views()
    texts: list[str] = []
    for view in views:
        result = entry.message if len(views) == 1 else Message(**view)
        tokens = entry.tokens if len(views) == 1 else counter.message(result)
        tool, arguments = _call_of(entries, place, view)
        first = next(filter(None, map(str.strip, full_text(result).splitlines())), "")
        texts.append(
            f"[Old result of {tool}{arguments}, {tokens:,} tokens: {_clipped(first)} "
            f"- {READ_MESSAGE}(seq={entry.seq}) returns it in full]"
        )
    return _standing_for(entry, texts, counter)


def _note(
    entries: Sequence[Entry], results: Sequence[int], place: int, counter: TokenCounter
) -> Entry:
    """Return the stub that replaces the result at `place`, and lists all `results` by seq."""
    tools: dict[str, dict[str, None]] = {}
    count = 0
    for result in results:
        for view in entries[result].message.views():
            tool, count = _call_of(entries, result, view)[0], count + 1
            tools.setdefault(tool, {})[str(entries[result].seq)] = None
    listed = "; ".join(f"{tool} {', '.join(seqs)}" for tool, seqs in tools.items())
    text = (
        f"[Old results of {count} calls, by seq: {listed} "
        f"- {READ_MESSAGE}(seq={entries[results[0]].seq}) returns the first in full]"
    )
    more = [_LISTED] * (len(entries[place].message.views()) - 1)
    return _standing_for(entries[place], [text, *more], counter)


def _standing_for(entry: Entry, texts: Sequence[str], counter: TokenCounter) -> Entry:
    """Return an entry with one text in place of the content of each chat message."""
    original = entry.message
    fields: dict[str, Any]
    if len(texts) == 1:
        view = original.to_openai() or {}
        ids = {key: view[key] for key in ("tool_call_id", "name") if view.get(key) is not None}
        fields = {"role": view["role"], "content": texts[0], **ids}
    else:
        fields = {"raw": _with_texts(original, texts)}
    message = Message(
        created_at=original.created_at,
        metadata={**original.metadata, "kind": _CLEARED},
        **fields,
        **format_in(original),
    )
    return replace(entry, message=message, tokens=counter.message(message))


def _with_texts(message: Message, texts: Sequence[str]) -> dict[str, Any] | None:
    """Return an item with these texts as its results. None if its format has no such item."""
    form = form_of(message.format)
    if form.from_chat is None:
        return None
    views = [{**view, "content": text} for view, text in zip(message.views(), texts, strict=True)]
    items = form.merged([item for view in views for item in form.from_chat(view)])
    return items[0] if len(items) == 1 else None


def _is_clearable(entry: Entry) -> bool:
    """Return whether the entry only has tool results, and none of them is an error."""
    if role_of(entry.message) not in ("tool", "function"):
        return False
    views = entry.message.views()
    if any(_IS_ERROR.match(content_text(view.get("content"))[:200]) for view in views):
        return False
    if len(views) == 1:
        return True
    are_results = all(view.get("role") == "tool" for view in views)
    return are_results and _with_texts(entry.message, [_LISTED] * len(views)) is not None


def _call_of(entries: Sequence[Entry], place: int, view: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name of a result's tool, and the beginning of the call's arguments in brackets."""
    for before in range(place - 1, -1, -1):
        for view_before in entries[before].message.views():
            for call in view_before.get("tool_calls") or ():
                if isinstance(call, dict) and call.get("id") == view.get("tool_call_id"):
                    function = call.get("function")
                    if isinstance(function, dict):
                        arguments = _clipped(str(function.get("arguments") or ""))
                        return str(function.get("name")), f"({arguments})"
    return str(view.get("name") or "a tool"), ""


def _clipped(text: str) -> str:
    return text if len(text) <= _CHARS else f"{text[:_CHARS]}..."
