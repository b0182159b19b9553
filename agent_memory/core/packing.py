"""`Packer` assembles the context of a model call within the budget. Pure.

A context shows the whole window and the whole current turn if both fit the budget. Otherwise,
`core/fitting.py` selects and shortens messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from agent_memory.core.budget import Budget
from agent_memory.core.clearing import is_stub
from agent_memory.core.context import (
    BlockInfo,
    MemoryContext,
    chat_of,
    folded,
    from_newest_user,
    summary_message,
)
from agent_memory.core.fitting import Fitted, Fitting, Placed, cost_of
from agent_memory.core.limits import quoted
from agent_memory.core.messages import Message
from agent_memory.core.query_text import asks, asks_for_all
from agent_memory.core.records import Draft, Entry, Head, Recall, Source
from agent_memory.core.settings_model import MemoryRole
from agent_memory.core.shapes import shape_of
from agent_memory.core.shortening import Shortener
from agent_memory.core.timestamps import BEGINNING
from agent_memory.core.token_counter import TokenCounter
from agent_memory.core.transcript import full_text
from agent_memory.core.window import is_user, late_results, passes, system_of, unshown, visible
from agent_memory.errors import InvalidMessage

_LEAST_CANDIDATES = 30
_LEAST_SHARE, _LEAST_SHARE_STATEMENT = 0.7, 0.91
_TOKENS_EACH = 60  # tokens of a short message
_SHORT = 8  # a question of at most 1/8 of the budget is short

_LATE = "[The result of a tool call that is no longer shown:]\n"


@dataclass(frozen=True, slots=True)
class Shown:
    """The messages of a session and of the current turn that a context shows."""

    leading: list[Message]  # the system message and the summary, if there are any
    leading_tokens: list[int]
    turns: list[Entry]
    drafts: list[Entry]  # the messages of the current turn; they end the context
    tokens: int
    cut: frozenset[int] = frozenset()  # seqs of the shortened entries
    warnings: tuple[str, ...] = ()
    # further sources that count as shown: the messages of the session's window, if the context
    # shows the caller's messages instead of the window
    held: frozenset[Source] = frozenset()

    @property
    def turn_messages(self) -> list[Message]:
        return [draft.message for draft in self.drafts]

    @property
    def sources(self) -> frozenset[Source]:
        """Return the messages that are shown whole, and `held`."""
        cut = self.cut
        complete = (entry for entry in self.turns if entry.seq not in cut and not is_stub(entry))
        shown = [(entry.session_id, entry.seq) for entry in complete]
        return self.held.union(shown)


class _Leading(NamedTuple):
    messages: list[Message]
    costs: list[int]
    warnings: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(self.costs)


@dataclass(frozen=True, slots=True)
class Packer:
    counter: TokenCounter
    max_tokens: int
    max_recall_tokens: int
    role: MemoryRole
    blocks: Mapping[str, BlockInfo]
    # The most messages that a context's turns may have. None for any number.
    max_messages: int | None = None
    share: float = 1.0  # share of the budget that short-term memory may fill
    summary_tokens: int = 0  # tokens that the strategy allows for a summary; 0 without a summary
    # whether to leave out recalls that score much less than the best recall of their block
    cuts: bool = True
    # whether a tool can read messages of the current turn before they are stored
    reads_turn: bool = False
    reserve: int = 0  # tokens that a provider's format adds to the messages

    @property
    def candidates(self) -> int:
        """Return the number of recalls to request from each block."""
        room = min(self.max_recall_tokens, self.max_tokens)
        return max(_LEAST_CANDIDATES, room // _TOKENS_EACH)

    def floors(self, question: str) -> dict[str, float]:
        """Map each block that is `selective` to the least weight of its recalls; see `merge`.

        The weight is higher for a statement than for a question. If a question asks for all things
        of a kind, the mapping is empty.
        """
        if not self.cuts or asks_for_all(question):
            return {}
        least = _LEAST_SHARE if asks(question) else _LEAST_SHARE_STATEMENT
        return {name: least for name, info in self.blocks.items() if info.selective}

    def lowered(self, max_tokens: int | None) -> Packer:
        """Return the packer with a smaller budget, or itself if the budget is not smaller."""
        if max_tokens is None or max_tokens >= self.max_tokens:
            return self
        return replace(self, max_tokens=max_tokens)

    def window(
        self,
        head: Head | None,
        entries: Sequence[Entry],
        turn: Sequence[Message] = (),
        *,
        dedupe: bool = False,
    ) -> Shown:
        """Return the messages of a context, without recalls, within the budget.

        Args:
            turn: The current turn. A system message in the turn replaces the session's.
            dedupe: Whether to leave out the turn if the window already ends with its question.
        """
        encoding, count = self.counter.encoding, self.counter.message
        own = [
            entry if entry.encoding == encoding else replace(entry, tokens=count(entry.message))
            for entry in entries
        ]
        was_cut = head is not None and head.start > 0
        messages = [message for message in turn if not message.is_system]
        end = max(head.end if head is not None else 0, own[-1].seq if own else 0)
        drafts = self._entries(messages, end)
        every = [*own, *drafts] if drafts else own
        if was_cut and (late := late_results(every)):
            every = [self._as_plain(each, _LATE) if each.seq in late else each for each in every]
        shown = visible(every, was_cut=was_cut)
        early = len(visible(every, was_cut=False)) - len(shown) if was_cut else 0
        if dedupe and drafts and _ends_with_question(shown, drafts):
            shown, drafts = [entry for entry in shown if entry.seq < drafts[0].seq], []
        unpaired = _unpaired(every)
        most = self.max_messages and self.max_messages + len(drafts)
        own_system = system_of([Draft(message, 0, "") for message in turn])
        system = own_system[0] if own_system else head.system if head is not None else None
        if system is not None and not shape_of(system).speaks:
            system = None
        leading = self._leading(head, system)
        total = self._overhead + leading.tokens + cost_of(shown)
        if total <= self.max_tokens and not passes(shown, most):
            window = Shown(leading.messages, leading.costs, *_split(shown, drafts), total)
        else:
            window = self._in_part(head, system, shown, drafts, most)
        if early:
            warning = f"Before the user's first message, {_many(early, 'message')} left out."
            window = replace(window, warnings=(*window.warnings, warning))
        return replace(window, warnings=(*window.warnings, *unpaired)) if unpaired else window

    def pack(
        self,
        head: Head | None,
        window: Shown,
        recalls: Sequence[Recall],
        warnings: list[str],
        question: str = "",
    ) -> MemoryContext:
        """Return the context: the window, and the recalls that `Placed.choose` selects."""
        messages = [*window.leading, *[entry.message for entry in window.turns]]
        used, extra, chosen = window.tokens, 0, list[Recall]()
        if recalls:
            placed = Placed(self.counter, self.role, self.blocks, len(window.leading))
            room = min(self.max_recall_tokens, self.max_tokens - used)
            # Recalls do not change the cost of messages before the newest user message.
            near = from_newest_user([*messages[len(window.leading) :], *window.turn_messages])
            chat = chat_of([*window.leading, *near])
            chosen, extra = placed.choose(recalls, room, chat, question)
            if asks_for_all(question):
                chosen.sort(key=lambda recall: recall.created_at or BEGINNING)
        return MemoryContext(
            shown=messages,
            recalls=chosen,
            tokens=used + extra,
            max_tokens=self.max_tokens,
            warnings=[*warnings, *window.warnings],
            head=head,
            blocks=self.blocks,
            memory_role=self.role,
            turn_messages=window.turn_messages,
        )

    def _in_part(
        self,
        head: Head | None,
        system: Message | None,
        shown: Sequence[Entry],
        drafts: Sequence[Entry],
        most: int | None,
    ) -> Shown:
        question = next((entry for entry in reversed(shown) if is_user(entry)), None)
        end = head.end if head is not None else 0
        readable = drafts[-1].seq if drafts and self.reads_turn else end
        text = question.message.text() if question is not None else ""
        shortener = Shortener(self.counter, text, readable)
        budget, fallback = self._budget, None
        for leading in self._choices(head, system, shortener):
            room = budget.messages - leading.tokens
            message = min(budget.message(leading.tokens), room // 2)
            fitted = Fitting(shortener, room, budget.free, max(1, message), most).fit(shown)
            if fitted is None:
                continue
            is_short = question is not None and question.tokens <= self.max_tokens // _SHORT
            if not (question and is_short and question.seq in fitted.cut):
                return self._shown(leading, fitted, drafts)
            # A short question must stay whole, if any smaller choice of leading messages allows it.
            fallback = fallback or (leading, fitted)
        if fallback:
            return self._shown(*fallback, drafts)
        return self._as_text(shown, drafts, shortener)

    def _choices(
        self, head: Head | None, system: Message | None, shortener: Shortener
    ) -> Iterator[_Leading]:
        """Yield choices of leading messages for a context that must be cut, largest first."""
        budget = self._budget
        tokens = self.counter.message(system) if system is not None else 0
        most = budget.system(tokens)
        above = self._cut_system(system, most, shortener)
        summary = self._leading(head, None)
        left_out: tuple[str, ...] = ()
        if summary.messages:
            why = "The summary of the messages before the window does not fit and is left out."
            left_out = (why,)
            if budget.shows_summary(summary.tokens):
                stacked = self._stacked([*above.messages, *summary.messages])
                yield stacked._replace(warnings=above.warnings)
        for room in (most, most // 2, 0):
            shorter = self._cut_system(system, room, shortener)
            yield shorter._replace(warnings=(*shorter.warnings, *left_out))

    def _cut_system(self, system: Message | None, room: int, shortener: Shortener) -> _Leading:
        if system is None:
            return _Leading([], [])
        if (tokens := self.counter.message(system)) <= room:
            return _Leading([system], [tokens])
        cut = shortener.message(system, room)
        how = "left out" if cut is None else "shortened"
        takes = f"The system message takes {tokens} of max_tokens={self.max_tokens}"
        messages = [] if cut is None else [cut]
        costs = list(map(self.counter.message, messages))
        return _Leading(messages, costs, (f"{takes}, and is {how}.",))

    def _leading(self, head: Head | None, system: Message | None) -> _Leading:
        messages = [] if system is None else [system]
        if head is not None and head.summary is not None:
            messages.append(summary_message(head.summary, self.role))
        return self._stacked(messages)

    def _stacked(self, messages: list[Message]) -> _Leading:
        """Return the leading messages, merged into one if recalls belong to the system message."""
        if self.role == "leading":
            messages = folded(messages)
        return _Leading(messages, list(map(self.counter.message, messages)))

    def _shown(self, leading: _Leading, fitted: Fitted, drafts: Sequence[Entry]) -> Shown:
        parts = _split(fitted.entries, drafts)
        total = self._overhead + leading.tokens + cost_of(fitted.entries)
        warnings = (*leading.warnings, *_left_out(fitted))
        return Shown(leading.messages, leading.costs, *parts, total, fitted.cut, warnings)

    def _as_text(
        self, shown: Sequence[Entry], drafts: Sequence[Entry], shortener: Shortener
    ) -> Shown:
        """Return the question, and the newest message as text without calls.

        This is the last resort if the budget is too small even for the ids of the message's calls.
        """
        room = self._budget.messages
        left: list[Entry] = []
        question = next((entry for entry in reversed(shown) if is_user(entry)), None)
        if question is not None:
            left += shortener.unit([question], room // 3) or []
        # `shown` may be empty, because even an empty context may exceed the budget.
        newest = shown[-1] if shown else None
        if newest is not None and not (is_user(newest) and left):
            cut = shortener.entry(self._as_plain(newest), room - cost_of(left))
            left += [cut] if cut is not None else []
        missing = len(shown) - len(left)
        fitted = Fitted(left, frozenset(entry.seq for entry in left), len(left), missing)
        as_text = self._shown(_Leading([], []), fitted, drafts)
        if left:
            return as_text
        return replace(as_text, tokens=min(as_text.tokens, self.max_tokens))

    def _as_plain(self, entry: Entry, note: str = "") -> Entry:
        """Return an entry with its message as plain text, such as a result without its call."""
        role: Literal["user", "assistant"] = "user" if is_user(entry) else "assistant"
        text = Message(role=role, content=note + full_text(entry.message))
        return replace(entry, message=text, tokens=self.counter.message(text))

    def entries(self, messages: Sequence[Any]) -> list[Entry]:
        """Convert a caller's messages, in any form, to entries that belong to no session."""
        if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
            raise InvalidMessage(f"window is {quoted(messages)}. Give a list of messages.")
        own = [message for value in messages for message in Message.all_of(value)]
        return self._entries(own, 0)

    def _entries(self, messages: Sequence[Message], end: int) -> list[Entry]:
        count, encoding = self.counter.message, self.counter.encoding
        return [
            Entry("", seq, message, count(message), 0, encoding, message.created_at)
            for seq, message in enumerate(messages, end + 1)
        ]

    @property
    def _budget(self) -> Budget:
        recalls = self.max_recall_tokens if self.blocks else 0
        return Budget(self.max_tokens, self._overhead, recalls, self.share, self.summary_tokens)

    @property
    def _overhead(self) -> int:
        return self.counter.overhead + self.reserve


def _split(shown: list[Entry], drafts: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    if not drafts:
        return shown, []
    first = drafts[0].seq
    current = [entry for entry in shown if entry.seq >= first]
    return [entry for entry in shown if entry.seq < first], current


def _ends_with_question(shown: Sequence[Entry], drafts: Sequence[Entry]) -> bool:
    first = drafts[0].seq
    newest = next((entry for entry in reversed(shown) if entry.seq < first), None)
    if newest is None or not is_user(newest):
        return False
    new, stored = shape_of(drafts[-1].message).views, shape_of(newest.message).views
    return [view.get("content") for view in new] == [view.get("content") for view in stored]


def _unpaired(entries: Sequence[Entry]) -> tuple[str, ...]:
    pending, orphans = unshown(entries)
    warnings: list[str] = []
    if pending:
        warnings.append(f"{_many(pending, 'tool call', ' without a result')} left out.")
    if orphans:
        results = _many(orphans, "tool result", " without a call in the window")
        warnings.append(f"{results} left out.")
    return tuple(warnings)


def _left_out(fitted: Fitted) -> tuple[str, ...]:
    warnings: list[str] = []
    parts = [(fitted.shortened, "shortened"), (fitted.missing, "left out")]
    if parts_changed := [f"{_many(count, 'message')} {how}" for count, how in parts if count]:
        warnings.append(f"In the newest turn, {' and '.join(parts_changed)}, to fit the budget.")
    if fitted.earlier:
        earlier = _many(fitted.earlier, "earlier message", " of the window")
        warnings.append(f"{earlier} left out to keep the newest turn.")
    return tuple(warnings)


def _many(count: int, what: str, more: str = "") -> str:
    return f"{count} {what}{more} is" if count == 1 else f"{count} {what}s{more} are"
