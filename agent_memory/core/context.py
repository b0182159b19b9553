"""`MemoryContext`: what a model is to see, within the budget. Packing and rendering are pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from agent_memory.core.fusion import select
from agent_memory.core.messages import Message
from agent_memory.core.passages import excerpt, joined
from agent_memory.core.records import Entry, Head, Recall, Summary
from agent_memory.core.text import escape
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.core.window import fit, visible

MemoryRole = Literal["system", "user"]

_LEAST_ASKED = 50
_TOKENS_EACH = 40  # of short messages
_LEAST_RECALLS = 4
"""So many fit, however long they are: what is longer is cut."""


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """What rendering needs to know of a block."""

    kind: str
    max_tokens: int | None


@dataclass(frozen=True, slots=True)
class MemoryContext:
    """The window, and what the blocks recalled.

    Attributes:
        messages: System message, summary, newest turns.
        recalls: All that was recalled and fits, merged, best first.
        tokens: What `to_messages()` costs, as the configured tokenizer counts it.
        max_tokens: The budget; `tokens` never passes it.
        warnings: Blocks that failed or were too slow, and other trouble; nothing of it is raised.
        head: The session's head; None for a session that does not exist yet.
        blocks: For each block, what it is, in the configured order.
        memory_role: Under which role recalls are placed.
        question: The message that the context was asked for, where `to_messages()` adds it at the
            end: a user's message that fits and is not the newest of `messages` already.
    """

    messages: list[Message]
    recalls: list[Recall]
    tokens: int
    max_tokens: int
    warnings: list[str]
    head: Head | None
    blocks: Mapping[str, BlockInfo]
    memory_role: MemoryRole = "system"
    question: Message | None = None

    @property
    def static_facts(self) -> list[Recall]:
        """Recalls of static blocks."""
        return self._of("static")

    @property
    def extracted_facts(self) -> list[Recall]:
        """Recalls of extractive blocks."""
        return self._of("extractive")

    @property
    def vector_matches(self) -> list[Recall]:
        """Recalls of vector blocks."""
        return self._of("vector")

    def _of(self, kind: str) -> list[Recall]:
        return [recall for recall in self.recalls if self.blocks[recall.block].kind == kind]

    def to_messages(self) -> list[dict[str, Any]]:
        """OpenAI chat dicts for any chat API, with the question at their end.

        A question that the window ends with already stands there once. Recalls stand in one
        `<memory>` element right before the newest user message (role "system"), or at the
        beginning of that message (role "user"), so that all before it stays the same from turn to
        turn and prompt caches stay warm.
        """
        memory = render_memory(self.recalls, list(self.blocks))
        leading = leading_count(self.messages, self.head)
        chat = _chat(_ending(self.messages, self.question))
        return place_memory(chat, memory, self.memory_role, leading)


def leading_count(messages: Sequence[Message], head: Head | None) -> int:
    """How many of a context's messages stand before its turns: the system message, the summary."""
    count = 1 if messages and messages[0].is_system else 0
    if head is None or head.summary is None or len(messages) == count:
        return count
    summary = summary_message(head.summary, "user").content
    return count + 1 if messages[count].content == summary else count


def summary_message(summary: Summary, role: MemoryRole) -> Message:
    """The one message that stands for all that left, marked as a summary."""
    return Message(
        role=role,
        content=f"<summary>\n{escape(summary.text)}\n</summary>",
        metadata={"kind": "summary", "upto": summary.upto, "by": summary.by},
    )


def render_line(recall: Recall) -> str:
    """One recall as an item of a list: its day where known, and its text, escaped."""
    day = f"[{recall.created_at:%Y-%m-%d}] " if recall.created_at else ""
    return "- " + day + escape(recall.text).replace("\n", "\n  ")


def render_memory(recalls: Sequence[Recall], order: Sequence[str]) -> str:
    """The `<memory>` element with a child per block; empty for no recalls."""
    parts: list[str] = []
    for block in order:
        lines = [render_line(recall) for recall in recalls if recall.block == block]
        if lines:
            parts += [f"<{block}_memory>", *lines, f"</{block}_memory>"]
    return "\n".join(["<memory>", *parts, "</memory>"]) if parts else ""


def place_memory(
    chat: list[dict[str, Any]], memory: str, role: MemoryRole, leading: int = 0
) -> list[dict[str, Any]]:
    """Put the memory element where the newest user message is; without one, before the turns.

    Args:
        chat: The window as OpenAI chat dicts.
        memory: The rendered element; nothing is placed where it is empty.
        role: See `MemoryContext.memory_role`.
        leading: How many messages stand before the turns.
    """
    if not memory:
        return chat
    users = (i for i, m in enumerate(chat) if i >= leading and m["role"] == "user")
    newest = max(users, default=None)
    if newest is None:
        return [*chat[:leading], {"role": role, "content": memory}, *chat[leading:]]
    if role == "system":
        return [*chat[:newest], {"role": "system", "content": memory}, *chat[newest:]]
    return [*chat[:newest], _with_memory(chat[newest], memory), *chat[newest + 1 :]]


def _chat(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [view for message in messages if (view := message.to_openai()) is not None]


def _is_to_add(question: Message, shown: Sequence[Entry]) -> bool:
    """Whether a question is to stand behind the turns: results of tools belong to their calls."""
    view = question.to_openai()
    if view is None or view.get("role") != "user":
        return False
    newest = (shown[-1].message.to_openai() or {}) if shown else {}
    return (newest.get("role"), newest.get("content")) != ("user", view.get("content"))


def _ending(messages: Sequence[Message], question: Message | None) -> list[Message]:
    return [*messages] if question is None else [*messages, question]


def _with_memory(message: dict[str, Any], memory: str) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [{"type": "text", "text": memory}, *content]}
    return {**message, "content": f"{memory}\n\n{content or ''}"}


@dataclass(frozen=True, slots=True)
class Shown:
    """What a context shows of a session.

    Attributes:
        leading: The system message and the summary, so far as there are any.
        turns: The newest entries that fit beside them.
        leading_tokens: What the context costs without its turns and recalls.
        question: The message to add at the end.
        warnings: What could not be shown.
    """

    leading: list[Message]
    turns: list[Entry]
    leading_tokens: int
    question: Message | None = None
    warnings: tuple[str, ...] = ()


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
    """

    counter: TokenCounter
    max_tokens: int
    max_recall_tokens: int
    role: MemoryRole
    blocks: Mapping[str, BlockInfo]
    max_messages: int | None = None

    @property
    def candidates(self) -> int:
        """How much to ask of each block, so that there is enough to choose from."""
        return max(_LEAST_ASKED, self.max_recall_tokens // _TOKENS_EACH)

    def window(
        self, head: Head | None, entries: Sequence[Entry], question: Message | None = None
    ) -> Shown:
        """Leading messages (system, summary), the turns that fit beside them, and the question.

        The system message comes first, then the question, the newest turns, and the summary. A
        system message that passes the budget alone (which has become smaller since) is left out,
        and so is a question that does not fit beside the system message.

        Args:
            head: The session's head; None for a session that does not exist yet.
            entries: The session's window.
            question: The message that the context is asked for, added where a user says it and it
                is not the newest of the window already.
        """
        used, warnings = self.counter.overhead, []
        leading: list[Message] = []
        if head is not None and head.system:
            if used + (cost := self.counter.message(head.system)) <= self.max_tokens:
                leading, used = [head.system], used + cost
            else:
                warnings.append("The system message alone passes max_tokens and was left out.")
        was_cut = head is not None and head.start > 0
        shown = visible([self._counted(entry) for entry in entries], was_cut=was_cut)
        if question is not None and not _is_to_add(question, shown):
            question = None
        if question is not None:
            if used + (cost := self.counter.message(question)) <= self.max_tokens:
                used += cost
            else:
                question = None
                warnings.append(
                    f"The message that was asked about takes {cost} tokens, does not fit "
                    f"max_tokens={self.max_tokens}, and was left out. Shorten it, or raise "
                    "max_tokens."
                )
        if head is not None and head.summary:
            summary = summary_message(head.summary, self.role)
            left = self.max_tokens - used - (cost := self.counter.message(summary))
            kept = fit(shown, left, self.max_messages) if left >= 0 else []
            if kept or (not shown and left >= 0):
                return Shown([*leading, summary], kept, used + cost, question, tuple(warnings))
        turns = fit(shown, self.max_tokens - used, self.max_messages)
        return Shown(leading, turns, used, question, tuple(warnings))

    def pack(
        self,
        head: Head | None,
        window: Shown,
        recalls: Sequence[Recall],
        warnings: list[str],
        question: str = "",
    ) -> MemoryContext:
        """The context: the window, and of the merged recalls what is worth most for its tokens.

        A recall that would take more than a quarter of the room is cut to the part that bears most
        on the question. Neighbouring messages become one passage.
        """
        leading, turns = window.leading, window.turns
        messages = [*leading, *[entry.message for entry in turns]]
        chat = _chat(_ending(messages, window.question)) if recalls else []
        used = window.leading_tokens + sum([entry.tokens for entry in turns])
        room = min(self.max_recall_tokens, self.max_tokens - used)
        most = room // _LEAST_RECALLS
        priced = [self._cut(self._priced(recall), question, most) for recall in recalls]
        limits = {name: info.max_tokens for name, info in self.blocks.items()}
        of_messages = [name for name, info in self.blocks.items() if info.kind == "vector"]

        def cost(passages: Sequence[Recall]) -> int:
            return self._memory_cost(chat, len(leading), passages) if passages else 0

        chosen = select(priced, room, limits)
        if len(chosen) < len(priced):  # what joining saves is room for more
            saved = sum(recall.tokens for recall in chosen) - cost(joined(chosen, of_messages))
            chosen = select(priced, room + max(0, saved), limits)
        # The element's own tags cost too, and text joined to a message may be counted anew.
        while (extra := cost(passages := joined(chosen, of_messages))) > room:
            chosen = select(chosen, sum(r.tokens for r in chosen) - max(1, extra - room), limits)
        return MemoryContext(
            messages=messages,
            recalls=[self._priced(passage) for passage in passages],
            tokens=used + extra,
            max_tokens=self.max_tokens,
            warnings=[*warnings, *window.warnings],
            head=head,
            blocks=self.blocks,
            memory_role=self.role,
            question=window.question,
        )

    def _priced(self, recall: Recall) -> Recall:
        return replace(recall, tokens=self.counter.text(render_line(recall)) + 1)

    def _cut(self, recall: Recall, question: str, most: int) -> Recall:
        if recall.tokens <= most:
            return recall
        limit = most - self.counter.text(render_line(replace(recall, text=""))) - 1
        text = excerpt(recall.text, question, self._escaped_cost, max(1, limit))
        return self._priced(replace(recall, text=text))

    def _escaped_cost(self, text: str) -> int:
        return self.counter.text(escape(text).replace("\n", "\n  "))

    def _memory_cost(
        self, chat: list[dict[str, Any]], leading: int, recalls: Sequence[Recall]
    ) -> int:
        memory = render_memory(recalls, list(self.blocks))
        placed = place_memory(chat, memory, self.role, leading)
        if len(placed) > len(chat):
            return self.counter.chat({"role": self.role, "content": memory})
        pairs = zip(placed, chat, strict=True)
        return sum(
            self.counter.chat(new) - self.counter.chat(old) for new, old in pairs if new is not old
        )

    def _counted(self, entry: Entry) -> Entry:
        """The entry with the configured tokenizer's count, should another one have counted it."""
        if entry.encoding == self.counter.encoding:
            return entry
        return replace(entry, tokens=self.counter.message(entry.message))
