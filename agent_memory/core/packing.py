"""`Packer`: one way to pack contexts, for `get` and for turns under way. Pure.

All of the window and of the turn so far is shown, if it fits. Else `core/fitting.py` says what is
shown, and what only in part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from agent_memory.core.asking import asks
from agent_memory.core.budget import Budget
from agent_memory.core.context import (
    BlockInfo,
    MemoryContext,
    MemoryRole,
    chat_of,
    folded,
    from_newest_user,
    summary_message,
)
from agent_memory.core.fitting import Fitted, Fitting, cost_of
from agent_memory.core.limits import quoted
from agent_memory.core.messages import Message
from agent_memory.core.recalling import Placed
from agent_memory.core.records import Entry, Head, Recall, Source
from agent_memory.core.shortening import Shortener
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.core.transcript import told
from agent_memory.core.window import is_user, passes, unshown, visible
from agent_memory.errors import InvalidMessage

_LEAST_ASKED = 30
_LEAST_SHARE, _LEAST_SHARE_TOLD = 0.7, 0.91
_TOKENS_EACH = 60  # of short messages


@dataclass(frozen=True, slots=True)
class Shown:
    """What a context shows of a session and of a turn under way.

    Attributes:
        leading: The system message and the summary, so far as there are any.
        leading_tokens: What each of them costs.
        turns: Entries of the window, in order, some of them in part.
        drafts: The turn so far, at the end.
        tokens: What the context costs without recalls.
        cut: Seqs of the entries that are shown in part.
        warnings: What is not shown, or in part.
        held: What of the log is shown by something else.
    """

    leading: list[Message]
    leading_tokens: list[int]
    turns: list[Entry]
    drafts: list[Entry]
    tokens: int
    cut: frozenset[int] = frozenset()
    warnings: tuple[str, ...] = ()
    held: frozenset[Source] = frozenset()

    @property
    def asked(self) -> list[Message]:
        """The turn so far, as messages."""
        return [draft.message for draft in self.drafts]

    @property
    def sources(self) -> frozenset[Source]:
        """Where what is shown whole is from."""
        cut = self.cut
        shown = [(one.session_id, one.seq) for one in self.turns if one.seq not in cut]
        return self.held.union(shown)


class _Leading(NamedTuple):
    """What stands before the turns."""

    messages: list[Message]
    costs: list[int]
    warnings: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(self.costs)


@dataclass(frozen=True, slots=True)
class Packer:
    """Packs contexts: pure, but for the token counter's tables.

    Attributes:
        counter: The configured token counter.
        max_tokens: The budget.
        max_recall_tokens: What recalls may take of it at most.
        role: Where recalls and the summary stand.
        blocks: The blocks, in order.
        max_messages: How many turns' messages a context shows at most; None for any number.
        share: Share of the budget that short-term memory may fill.
        summary_tokens: What the strategy's summary may take; 0 for a strategy without one.
        cuts: Whether recalls are left out that score much less than the best of their block.
        reads_turn: Whether the turn so far can be read on, though it is not stored yet.
    """

    counter: TokenCounter
    max_tokens: int
    max_recall_tokens: int
    role: MemoryRole
    blocks: Mapping[str, BlockInfo]
    max_messages: int | None = None
    share: float = 1.0
    summary_tokens: int = 0
    cuts: bool = True
    reads_turn: bool = False

    @property
    def candidates(self) -> int:
        """How much to ask of each block, so that there is enough to choose from."""
        room = min(self.max_recall_tokens, self.max_tokens)
        return max(_LEAST_ASKED, room // _TOKENS_EACH)

    def floors(self, question: str) -> dict[str, float]:
        """For each block, the share of its best score that a recall must have in a context.

        It is higher where the message only tells something: nobody waits for an answer.
        """
        if not self.cuts:
            return {}
        least = _LEAST_SHARE if asks(question) else _LEAST_SHARE_TOLD
        return {name: least for name, info in self.blocks.items() if info.selective}

    def lowered(self, max_tokens: int | None) -> Packer:
        """The packer of a smaller budget; itself, where the other is not smaller."""
        if max_tokens is None or max_tokens >= self.max_tokens:
            return self
        return replace(self, max_tokens=max_tokens)

    def window(
        self,
        head: Head | None,
        entries: Sequence[Entry],
        asked: Sequence[Message] = (),
        *,
        once: bool = False,
    ) -> Shown:
        """Leading messages (system, summary), turns, and the turn so far, within the budget.

        Args:
            head: The session's head; None for a session that does not exist yet.
            entries: The session's window.
            asked: The turn so far. A system message in it stands for the session's.
            once: Whether what was asked is left out where the window ends with it already.
        """
        encoding = self.counter.encoding
        own = [one if one.encoding == encoding else self._counted(one) for one in entries]
        was_cut = head is not None and head.start > 0
        systems = [message for message in asked if message.is_system]
        given = [message for message in asked if not message.is_system] if systems else asked
        drafts = self._drafts(head, own, given) if given else []
        shown = visible([*own, *drafts] if drafts else own, was_cut=was_cut)
        if once and drafts and _is_said_already(shown, drafts):
            shown, drafts = [one for one in shown if one.seq < drafts[0].seq], []
        warnings = _unpaired(own, shown) if len(shown) < len(own) + len(drafts) else ()
        most = self.max_messages and self.max_messages + len(drafts)
        system = systems[-1] if systems else head.system if head is not None else None
        leading = self._leading(head, system)
        total = self.counter.overhead + leading.tokens + cost_of(shown)
        if total <= self.max_tokens and not passes(shown, most):
            turns, said = _parted(shown, drafts)
            above = leading.messages, leading.costs
            return Shown(*above, turns, said, total, warnings=warnings)
        return self._in_part(head, system, shown, drafts, most, warnings)

    def pack(
        self,
        head: Head | None,
        window: Shown,
        recalls: Sequence[Recall],
        warnings: list[str],
        question: str = "",
    ) -> MemoryContext:
        """The context: the window, and of the merged recalls what is worth most for its tokens."""
        messages = [*window.leading, *[entry.message for entry in window.turns]]
        used, extra, kept = window.tokens, 0, list[Recall]()
        if recalls:
            placed = Placed(self.counter, self.role, self.blocks, len(window.leading))
            room = min(self.max_recall_tokens, self.max_tokens - used)
            # of a long window the rest costs the same with them and without
            near = from_newest_user([*messages[len(window.leading) :], *window.asked])
            chat = chat_of([*window.leading, *near])
            kept, extra = placed.choose(recalls, room, chat, question)
        return MemoryContext(
            messages=messages,
            recalls=kept,
            tokens=used + extra,
            max_tokens=self.max_tokens,
            warnings=[*warnings, *window.warnings],
            head=head,
            blocks=self.blocks,
            memory_role=self.role,
            asked=window.asked,
        )

    def _in_part(
        self,
        head: Head | None,
        system: Message | None,
        shown: Sequence[Entry],
        drafts: Sequence[Entry],
        most: int | None,
        warnings: tuple[str, ...],
    ) -> Shown:
        """What is shown where it is too much for the budget."""
        question = next((one.message.text() for one in reversed(shown) if is_user(one)), "")
        end = head.end if head is not None else 0
        readable = drafts[-1].seq if drafts and self.reads_turn else end
        shortener = Shortener(self.counter, question, readable)
        budget = self._budget
        for leading in self._choices(head, system, shortener):
            room = budget.messages - leading.tokens
            message = min(budget.message(leading.tokens), room // 2)
            fitted = Fitting(shortener, room, budget.free, max(1, message), most).fit(shown)
            if fitted is not None:
                return self._shown(leading, fitted, drafts, warnings)
        return self._told(shown, drafts, shortener, warnings)

    def _choices(
        self, head: Head | None, system: Message | None, shortener: Shortener
    ) -> Iterator[_Leading]:
        """What may stand before turns that have to be cut: less and less."""
        budget = self._budget
        tokens = self.counter.message(system) if system is not None else 0
        most = budget.system(tokens)
        above = self._cut_system(system, most, shortener)
        whole = self._leading(head, None)
        left_out: tuple[str, ...] = ()
        if whole.messages:
            left_out = ("The summary of what left the window does not fit, and is left out.",)
            if budget.shows_summary(whole.tokens):
                stacked = self._stacked([*above.messages, *whole.messages])
                yield stacked._replace(warnings=above.warnings)
        for room in (most, most // 2, 0):
            less = self._cut_system(system, room, shortener)
            yield less._replace(warnings=(*less.warnings, *left_out))

    def _cut_system(self, system: Message | None, room: int, shortener: Shortener) -> _Leading:
        if system is None:
            return _Leading([], [])
        if (tokens := self.counter.message(system)) <= room:
            return _Leading([system], [tokens])
        cut = shortener.message(system, room)
        how = "left out" if cut is None else "shown in part"
        warning = (
            f"The system message takes {tokens} of max_tokens={self.max_tokens}, and is {how}."
        )
        if cut is None:
            return _Leading([], [], (warning,))
        return _Leading([cut], [self.counter.message(cut)], (warning,))

    def _leading(self, head: Head | None, system: Message | None) -> _Leading:
        """The system message and the session's summary, whole."""
        messages = [] if system is None else [system]
        if head is not None and head.summary is not None:
            messages.append(summary_message(head.summary, self.role))
        return self._stacked(messages)

    def _stacked(self, messages: list[Message]) -> _Leading:
        """Messages as they stand at the top: in one, where recalls lead."""
        if self.role == "leading":
            messages = folded(messages)
        return _Leading(messages, list(map(self.counter.message, messages)))

    def _shown(
        self,
        leading: _Leading,
        fitted: Fitted,
        drafts: Sequence[Entry],
        warnings: tuple[str, ...],
    ) -> Shown:
        turns, said = _parted(fitted.entries, drafts)
        return Shown(
            leading.messages,
            leading.costs,
            turns,
            said,
            self.counter.overhead + leading.tokens + cost_of(fitted.entries),
            fitted.cut,
            (*leading.warnings, *warnings, *_left_out(fitted)),
        )

    def _told(
        self,
        shown: Sequence[Entry],
        drafts: Sequence[Entry],
        shortener: Shortener,
        warnings: tuple[str, ...],
    ) -> Shown:
        """The newest message in words, beside the question, where the budget is too small even for
        the ids of its calls."""
        room = self._budget.messages
        kept: list[Entry] = []
        question = next((one for one in reversed(shown) if is_user(one)), None)
        if question is not None:
            kept += shortener.unit([question], room // 3) or []
        newest = shown[-1] if shown else None  # nothing may cost more than the budget already
        if newest is not None and not (is_user(newest) and kept):
            role = "user" if is_user(newest) else "assistant"
            text = Message(role=role, content=told(newest.message))
            cut = shortener.entry(
                replace(newest, message=text, tokens=self.counter.message(text)),
                room - cost_of(kept),
            )
            kept += [cut] if cut is not None else []
        missing = len(shown) - len(kept)
        fitted = Fitted(kept, frozenset(one.seq for one in kept), len(kept), missing)
        told_of = self._shown(_Leading([], []), fitted, drafts, warnings)
        return told_of if kept else replace(told_of, tokens=min(told_of.tokens, self.max_tokens))

    def _drafts(
        self, head: Head | None, own: Sequence[Entry], given: Sequence[Message]
    ) -> list[Entry]:
        """The turn so far as entries that follow the log."""
        end = max(head.end if head is not None else 0, own[-1].seq if own else 0)
        return self._entries(given, end)

    def entries(self, given: Sequence[Any]) -> list[Entry]:
        """Messages in any form as entries, of no log.

        Raises:
            InvalidMessage: They are no list, or one of them is no message.
        """
        if not isinstance(given, Sequence) or isinstance(given, str | bytes):
            raise InvalidMessage(f"window is {quoted(given)}. Give a list of messages.")
        return self._entries([one for each in given for one in Message.all_of(each)], 0)

    def _entries(self, messages: Sequence[Message], end: int) -> list[Entry]:
        count, encoding = self.counter.message, self.counter.encoding
        return [
            Entry("", seq, message, count(message), 0, encoding, message.created_at)
            for seq, message in enumerate(messages, end + 1)
        ]

    @property
    def _budget(self) -> Budget:
        recalls = self.max_recall_tokens if self.blocks else 0
        overhead = self.counter.overhead
        return Budget(self.max_tokens, overhead, recalls, self.share, self.summary_tokens)

    def _counted(self, entry: Entry) -> Entry:
        """The entry with the configured tokenizer's count, should another one have counted it."""
        return replace(entry, tokens=self.counter.message(entry.message))


def _parted(shown: list[Entry], drafts: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """What is shown of the log, and of the turn under way."""
    if not drafts:
        return shown, []
    first = drafts[0].seq
    said = [one for one in shown if one.seq >= first]
    return [one for one in shown if one.seq < first], said


def _is_said_already(shown: Sequence[Entry], drafts: Sequence[Entry]) -> bool:
    """Whether the newest of the turns is what is asked."""
    first = drafts[0].seq
    newest = next((one for one in reversed(shown) if one.seq < first), None)
    if newest is None or not is_user(newest):
        return False
    asked, said = drafts[-1].message, newest.message
    if asked.role is not None and said.role is not None:
        return asked.content == said.content
    return [one.get("content") for one in asked.views()] == [
        one.get("content") for one in said.views()
    ]


def _unpaired(own: Sequence[Entry], shown: Sequence[Entry]) -> tuple[str, ...]:
    waiting, orphans = unshown(own, shown)
    warnings: list[str] = []
    if waiting:
        warnings.append(
            f"{_many(waiting, 'message')} with calls of tools left out until all results are there."
        )
    if orphans:
        warnings.append(
            f"{_many(orphans, 'result')} of tools left out: no call in the window asks for it."
        )
    return tuple(warnings)


def _left_out(fitted: Fitted) -> tuple[str, ...]:
    warnings: list[str] = []
    if fitted.shortened or fitted.missing:
        shown = f"{_many(fitted.shortened, 'message')} of the newest turn shown in part"
        gone = f", {fitted.missing} left out" if fitted.missing else ""
        warnings.append(f"{shown}{gone}: they do not fit the budget.")
    if fitted.earlier:
        warnings.append(
            f"{_many(fitted.earlier, 'earlier message')} of the window left out beside the newest "
            "turn."
        )
    return tuple(warnings)


def _many(count: int, what: str) -> str:
    return f"{count} {what} is" if count == 1 else f"{count} {what}s are"
