"""Selection and shortening of turns and recalls that have to fit the budget. Pure.

A *step* of a turn is a message, or a call with its results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf
from operator import attrgetter
from typing import Any

from agent_memory.core.context import BlockInfo, render_line, render_memory
from agent_memory.core.fusion import select
from agent_memory.core.records import Entry, Recall
from agent_memory.core.rendering import led, with_memory
from agent_memory.core.settings_model import MemoryRole
from agent_memory.core.shortening import Shortener
from agent_memory.core.text import listed_text
from agent_memory.core.token_counter import TokenCounter
from agent_memory.core.transcript import excerpt, joined
from agent_memory.core.window import apply, choose_cut, is_user, passes, turns, units, visible

_STEPS = 8
"""The room for a long question is usually rounded to eighths, so that it changes rarely."""
_LOW_WATER = 0.7
_STUB = 60
_STUBS = 50
"""A shortened old step has at most 60 tokens a message, or 1/50 of the room if that is more."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The entries that a context shows."""

    entries: list[Entry]
    cut: frozenset[int] = field(default=frozenset())  # seqs of the shortened entries
    shortened: int = 0  # number of shortened messages of the newest turn
    missing: int = 0  # number of omitted messages of the newest turn
    earlier: int = 0  # number of omitted messages of earlier turns


@dataclass(frozen=True, slots=True)
class Fitting:
    """Fits entries into a number of tokens."""

    shortener: Shortener
    room: int  # tokens that the entries may take
    free: int  # tokens of `room` that stay free for recalls if not all entries fit
    message: int  # tokens that a message of an older turn may take if not all entries fit
    max_messages: int | None = None

    def fit(self, entries: Sequence[Entry]) -> Fitted | None:
        """Return the entries that fit. None if the newest step does not fit even when shortened.

        The newest step, and the first and last user message of its turn, are shown even if they
        have more than `max_messages` messages.
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
        first = newest[0].seq
        keep = max(cost_of(newest), self.room - self.free)
        priced = [self._priced(entry) if entry.seq < first else entry for entry in entries]
        fits = cost_of(priced) <= keep and not passes(priced, self.max_messages)
        cut = None if fits else choose_cut(priced, keep, self.max_messages)
        remaining = visible(apply(priced, cut), was_cut=True) if cut else priced
        stays = {entry.seq for entry in remaining}
        if cost_of(remaining) > keep or passes(remaining, self.max_messages) or first not in stays:
            stays = {entry.seq for entry in newest}
        older: list[Entry] = []
        for unit in units([entry for entry in entries if entry.seq in stays and entry.seq < first]):
            room = sum(self._priced(entry).tokens for entry in unit)
            older += self.shortener.unit(unit, room) or []
        shown = sorted([*older, *newest], key=attrgetter("seq"))
        shown_seqs = {entry.seq for entry in shown}  # without calls that `unit` left out
        shown = visible(shown, was_cut=any(entry.seq not in shown_seqs for entry in entries))
        return _fitted(entries, shown, newest)

    def _priced(self, entry: Entry) -> Entry:
        """Return the entry with `tokens` set to the tokens that it may take in an older turn."""
        if entry.tokens <= self.message:
            return entry
        most = max(self.message, self.shortener.least(entry.message))
        return replace(entry, tokens=min(entry.tokens, most))

    def _in_part(self, turn: Sequence[Entry], earlier: int) -> Fitted | None:
        newest = next(unit for unit in units(turn) if turn[-1] is unit[-1])
        steps = [unit for unit in units(turn) if unit[0].seq != newest[0].seq]
        # the first and the last user message, each with the calls whose results it holds
        from_users = [step for step in steps if any(map(is_user, step))]
        question = sorted(chain(*from_users[:1], *from_users[1:][-1:]), key=attrgetter("seq"))
        question_seqs = {entry.seq for entry in question}
        steps = [unit for unit in steps if unit[0].seq not in question_seqs]
        room = self.room - self.free
        least = [self.shortener.least(entry.message) for entry in question]
        for most in (room, self.room):
            shown = self._parts(question, least, steps, newest, most)
            if shown is not None:
                return replace(_fitted(turn, shown, turn), earlier=earlier)
        return None

    def _parts(
        self,
        question: Sequence[Entry],
        least: Sequence[int],
        steps: Sequence[Sequence[Entry]],
        newest: Sequence[Entry],
        room: int,
    ) -> list[Entry] | None:
        """Return the question and the steps within `room`. None if the newest step does not fit."""
        needed = min(cost_of(newest), self.shortener.fewest(newest))
        if sum(least) + needed > room:
            return None
        others = sum(min(cost_of(step), room // 2) for step in [*steps, newest])
        question_tokens = max(
            sum(least), min(self._question_room(cost_of(question), others, room), room - needed)
        )
        shown = self.shortener.unit(question, question_tokens) if question else []
        if shown is None:
            return None
        left = room - question_tokens
        shown_steps = list(self._steps(steps, newest, needed, left, len(question)))
        for step, most in shown_steps:
            shown += self.shortener.unit(step, most) or []
        left -= sum(most for _, most in shown_steps)
        last = self.shortener.unit(newest, left)
        return None if last is None else sorted([*shown, *last], key=attrgetter("seq"))

    def _question_room(self, tokens: int, others: int, room: int) -> int:
        """Return the question's tokens: at most half the room, or more if `others` leave more."""
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
        question_count: int,
    ) -> Iterator[tuple[Sequence[Entry], int]]:
        """Yield the steps to show before the newest one, each with the tokens that it may take.

        The steps are added in order. Whenever they exceed the room, the oldest ones are reduced to
        stubs. If that does not suffice, the oldest are left out, until only `_LOW_WATER` of the
        room is used. The beginning of a growing turn therefore does not change with each step, and
        prompt caches can serve it.
        """
        half, stub = room // 2, max(_STUB, room // _STUBS)
        taken: list[int] = []
        total = begun = reduced = count = 0
        for place, step in enumerate([*steps, newest]):
            is_newest = place == len(steps)
            taken.append(min(cost_of(step), max(half, needed) if is_newest else half))
            total, count = total + taken[-1], count + len(step)
            low = max(int(room * _LOW_WATER), taken[-1])
            if total > room:
                for old in range(max(reduced, begun), place):
                    if total <= low:
                        break
                    less = min(taken[old], sum(min(entry.tokens, stub) for entry in steps[old]))
                    total, taken[old], reduced = total - taken[old] + less, less, old + 1
            if total > room:
                while begun < place and total > low:
                    total, count, begun = total - taken[begun], count - len(steps[begun]), begun + 1
            most = inf if self.max_messages is None else self.max_messages
            while begun < place and count + question_count > most:
                total, count, begun = total - taken[begun], count - len(steps[begun]), begun + 1
        return ((steps[place], taken[place]) for place in range(begun, len(steps)))


def cost_of(entries: Sequence[Entry]) -> int:
    return sum([entry.tokens for entry in entries])


def _fitted(entries: Sequence[Entry], shown: Sequence[Entry], newest: Sequence[Entry]) -> Fitted:
    unchanged = {id(entry) for entry in entries}
    cut = frozenset(entry.seq for entry in shown if id(entry) not in unchanged)
    seqs = {entry.seq for entry in shown}
    of_newest = {entry.seq for entry in newest}
    return Fitted(
        list(shown),
        cut,
        shortened=len(cut & of_newest),
        missing=len(of_newest - seqs),
        earlier=sum(entry.seq not in seqs and entry.seq not in of_newest for entry in entries),
    )


_OF_MESSAGES = ("vector", "log")
_LEAST_RECALLS = 4
"""A recall takes at most 1/4 of the room, so that at least 4 recalls fit."""

_LEAST_TOKENS = 40
"""In a small room, a recall may take 40 tokens, because a shorter text would say nothing."""

_USUAL_RECALLS = 12
"""A recall is usually cut to 1/12 of the room, or to `_USUAL_TOKENS` if this is more."""

_USUAL_TOKENS = 150


@dataclass(frozen=True, slots=True)
class Placed:
    """Chooses recalls that fit. Their cost is counted at the position where the chat shows them.

    `leading` is the number of messages before the turns.
    """

    counter: TokenCounter
    role: MemoryRole
    blocks: Mapping[str, BlockInfo]
    leading: int

    def choose(
        self, recalls: Sequence[Recall], room: int, chat: list[dict[str, Any]], question: str
    ) -> tuple[list[Recall], int]:
        """Return the recalls to show, which `select` chooses, and their tokens in total.

        A recall may take 1/12 of the room or 150 tokens, whichever is more, but at most 1/4 of the
        room. In a small room, it may take 40 tokens. A longer recall is cut to the part that is
        most relevant to the question. Recalls of neighbouring messages are joined.
        """
        most = min(room // _LEAST_RECALLS, max(room // _USUAL_RECALLS, _USUAL_TOKENS))
        most = min(room, max(most, _LEAST_TOKENS))
        priced = [self._cut(self._priced(recall), question, most) for recall in recalls]
        limits = {name: info.max_tokens for name, info in self.blocks.items()}
        of_messages = [name for name, info in self.blocks.items() if info.kind in _OF_MESSAGES]

        def cost(passages: Sequence[Recall]) -> int:
            return self._cost(chat, passages) if passages else 0

        chosen = select(priced, room, limits)
        if len(chosen) < len(priced):  # joined recalls take fewer tokens, so more recalls may fit
            saved = sum(recall.tokens for recall in chosen) - cost(joined(chosen, of_messages))
            chosen = select(priced, room + max(0, saved), limits)
        # the tags of the element take tokens too, and recalls may take more in a message than alone
        while (extra := cost(passages := joined(chosen, of_messages))) > room:
            chosen = select(chosen, sum(r.tokens for r in chosen) - max(1, extra - room), limits)
        chosen_ids = {id(recall) for recall in chosen}
        return [item if id(item) in chosen_ids else self._priced(item) for item in passages], extra

    def _priced(self, recall: Recall) -> Recall:
        return replace(recall, tokens=self.counter.text(render_line(recall)) + 1)

    def _cut(self, recall: Recall, question: str, most: int) -> Recall:
        if recall.tokens <= most:
            return recall
        limit = most - self.counter.text(render_line(replace(recall, text=""))) - 1
        who = f"{recall.metadata.get('speaker')}: "  # each part of a message shows who wrote it
        if not recall.text.startswith(who) or 2 * self.counter.text(who) > limit:
            who = ""

        def cost(text: str) -> int:
            return self.counter.text(listed_text(f"{who}{text}").removeprefix("- "))

        body = recall.text.removeprefix(who)
        text = excerpt(body, question, cost, max(1, limit), recall.sentences)
        return self._priced(replace(recall, text=f"{who}{text}"))

    def _cost(self, chat: list[dict[str, Any]], recalls: Sequence[Recall]) -> int:
        memory, count = render_memory(recalls, list(self.blocks)), self.counter.chat
        if not memory:
            return 0
        if self.role == "leading" and self.leading:
            return count(led(chat[0], memory)) - count(chat[0])
        user_messages = [message for message in chat[self.leading :] if message["role"] == "user"]
        if self.role == "user" and user_messages:
            return count(with_memory(user_messages[-1], memory)) - count(user_messages[-1])
        return count({"role": "user" if self.role == "user" else "system", "content": memory})
