"""`MemoryContext`: the input of a model. `Explanation`: the reasons for its contents. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Any

from agent_memory.core.formats.neutral import summary_element
from agent_memory.core.formats.registry import CHAT, format_of
from agent_memory.core.messages import SYSTEM_ROLES, Message
from agent_memory.core.records import DeadLetter, Entry, Head, LeftOut, Recall, Source, Summary
from agent_memory.core.rendering import Rendered, arguments_of, joined, rendered
from agent_memory.core.settings_model import MemoryRole
from agent_memory.core.shapes import newest_user, shape_of
from agent_memory.core.text import listed_text, ranges
from agent_memory.core.usage import Usage
from agent_memory.errors import InvalidMessage


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """The properties of a block that contexts use; see `Block`."""

    kind: str
    max_tokens: int | None
    selective: bool = False


@dataclass(frozen=True, slots=True)
class MemoryContext:
    """The input of a model: the window, and the recalls of the blocks.

    Attributes:
        shown: The messages that `messages` copies. Other contexts share these objects: do not
            change them.
        recalls: The merged recalls that fit the budget, best first. If the question asks for all
            things of a kind, oldest first.
        tokens: Tokens of `to_messages()`, as the configured tokenizer counts them.
        max_tokens: The budget, which `tokens` never exceeds.
        warnings: Problems that raise no error. Examples are a block that failed or was too slow,
            and messages of the newest turn that were shortened or left out.
        head: The session's head. None for a session that does not exist yet.
        blocks: The properties of each block, in the configured order.
        memory_role: The place of the recalls; see `to_messages`.
        format: The format of `to_messages()`. None for OpenAI's chat.
        turn_messages: The current turn, which `to_messages()` adds at the end: the message that
            was passed to `get`. Empty if the window already ends with this message.
        cacheable_tokens: Tokens of the messages with which both this context and the session's
            previous context begin. A provider's prompt cache can serve these messages. None for
            the session's first context in this process.
        usage: Model calls for this context, such as embedding the query with a paid embedder.
    """

    shown: Sequence[Message]
    recalls: list[Recall]
    tokens: int
    max_tokens: int
    warnings: list[str]
    head: Head | None
    blocks: Mapping[str, BlockInfo]
    memory_role: MemoryRole = "system"
    format: str | None = None
    turn_messages: Sequence[Message] = ()
    cacheable_tokens: int | None = field(default=None, compare=False)
    usage: Usage = field(default=Usage(), compare=False)

    @property
    def messages(self) -> list[Message]:
        """Return copies of the system message, the summary and the newest turns.

        If `memory_role` is "leading", the system message and the summary are one message. Messages
        that are too long for the budget are shortened.
        """
        return [message.detached() for message in self.shown]

    @property
    def cost(self) -> float | None:
        """Return the cost in US dollars. None if the price of a model is not known."""
        return self.usage.cost

    @property
    def question(self) -> Message | None:
        """Return the newest user message of `turn_messages`, or None."""
        return newest_user(reversed(self.turn_messages))

    @property
    def static_facts(self) -> list[Recall]:
        """Return the recalls of static blocks."""
        return self._of("static")

    @property
    def extracted_facts(self) -> list[Recall]:
        """Return the recalls of extractive blocks."""
        return self._of("extractive")

    @property
    def vector_matches(self) -> list[Recall]:
        """Return the recalls of vector blocks."""
        return self._of("vector")

    def _of(self, kind: str) -> list[Recall]:
        return [recall for recall in self.recalls if self.blocks[recall.block].kind == kind]

    def to_messages(self) -> list[dict[str, Any]]:
        """Return the messages as OpenAI chat dicts, or in the context's `format`.

        If the format's provider takes the system text separately, the messages do not contain it;
        see `to_arguments`.

        Tool results follow right after their calls. Messages between a call and its results are
        moved behind the results. Calls without a result and empty messages are left out. A question
        that already ends the window is not repeated.

        Recalls stand in one `<memory>` element. Its place depends on `memory_role`:

        - "system": right before the newest user message.
        - "user": at the beginning of the newest user message.
        - "leading": at the end of the single system message at the top.

        With "system" and "user", the messages before the element are the same in each turn, and a
        provider's prompt cache can serve them. With "leading", the cache cannot serve the messages
        after the element. Some providers and chat templates accept only "leading".
        """
        return self._rendered().messages

    def to_arguments(self) -> dict[str, Any]:
        """Return the arguments for a call of the provider's SDK: the messages, and the system text.

        The system text is an argument only if the provider takes it separately.

            client.messages.create(model=..., max_tokens=..., **context.to_arguments())
        """
        return arguments_of(self._rendered(), format_of(self.format or CHAT))

    def _rendered(self) -> Rendered:
        memory = render_memory(self.recalls, list(self.blocks))
        leading = leading_count(self.shown)
        messages = [*self.shown, *self.turn_messages]

        form = format_of(self.format or CHAT)
        return rendered(messages, form, leading, memory, self.memory_role)


def leading_count(messages: Sequence[Message]) -> int:
    """Count the messages before the turns of a context: the system message and the summary."""
    count = 1 if messages and messages[0].is_system else 0
    for message in messages[count : count + 1]:
        is_summary = message.metadata.get("kind") == "summary"
        count += is_summary and str(message.content).startswith(_SUMMARY[0])
    return count


def summary_message(summary: Summary, role: MemoryRole) -> Message:
    """Return the message that holds the summary. Its metadata has the kind "summary"."""
    return Message(
        role="user" if role == "user" else "system",
        content=summary_element(summary.text),
        metadata={"kind": "summary", "upto": summary.upto, "by": summary.by},
    )


def folded(messages: Sequence[Message]) -> list[Message]:
    if len(messages) < 2 or (view := messages[0].to_openai()) is None:
        return list(messages)
    summary = messages[1].text()
    return [Message(role=view["role"], content=joined(view.get("content"), summary))]


def render_line(recall: Recall) -> str:
    """Render a recall as an escaped list item for a model, with the recall's time if known."""
    text = str(recall)
    before = len(text) - len(recall.text)
    return listed_text(text, [before + at for at in recall.turns])


def render_memory(recalls: Sequence[Recall], order: Sequence[str]) -> str:
    """Render the `<memory>` element, with a child for each block. Empty if there are no recalls."""
    parts: list[str] = []
    for block in order:
        lines = [render_line(recall) for recall in recalls if recall.block == block]
        if lines:
            parts += [f"<{block}_memory>", *lines, f"</{block}_memory>"]
    return "\n".join(["<memory>", *parts, "</memory>"]) if parts else ""


def from_newest_user(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the newest user message, and the messages after it. Empty without a user message."""

    def is_users(message: Message) -> bool:
        return any(view.get("role") == "user" for view in shape_of(message).views)

    places = reversed(range(len(messages)))
    newest = next((place for place in places if is_users(messages[place])), None)
    return [] if newest is None else messages[newest:]


def chat_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as OpenAI chat dicts. Messages without a chat form are left out."""
    return [view for message in messages for view in message.views()]


_RECALLS = ("<memory>\n<", "_memory>\n</memory>")
_SUMMARY = ("<summary>\n", "\n</summary>")


def without_context(
    messages: Sequence[Any], context: MemoryContext | None, question: Sequence[Message]
) -> Sequence[Any]:
    """If the messages begin with those of the context, return only the messages after them.

    If no message follows the context, the list is returned unchanged: it may be a new turn that
    repeats the last turn. `question` holds the context's question if the question is not stored
    yet. The returned list then begins with the question.

    Raises:
        InvalidMessage: The messages hold recalls or a summary of another context.
    """
    if context is not None and len(messages) >= len(context.shown) + len(question) > 0:
        rendered_messages = context.to_messages()
        copies = [
            (message.raw or message.to_openai()) if isinstance(message, Message) else message
            for message in messages[: len(rendered_messages)]
        ]
        if len(messages) > len(rendered_messages) and copies == rendered_messages:
            begin = len(rendered_messages) - len(question)
            # compared as chat, because the question may have metadata
            if copies[begin:] == chat_of(question):
                return messages[begin:]
            return [*question, *messages[len(rendered_messages) :]]
    for place, message in enumerate(messages):
        if _is_of_a_context(message):
            raise InvalidMessage(
                f"Message {place} of the list is a part of a context of get(), not a new message. "
                "Pass the new messages alone: update(session_id, [question, answer])."
            )
    return messages


def _is_of_a_context(message: Any) -> bool:
    if isinstance(message, Message):
        role, text = message.role, message.content
    elif isinstance(message, Mapping):
        role, text = message.get("role"), message.get("content")
    else:
        return False
    if role not in SYSTEM_ROLES or not isinstance(text, str):
        return False
    return any(text.startswith(begin) and text.endswith(end) for begin, end in (_RECALLS, _SUMMARY))


_REASONS = (
    (
        ("unread", -inf, "by its words alone, because it has no vector yet"),
        ("meaning", 0.32, "close in meaning"),
        ("meaning", 0.16, "somewhat close in meaning"),
    ),
    (
        ("coverage_around", 0.19, "it or messages next to it have all of the question's words"),
        ("coverage_around", 0.1, "it or messages next to it have most of the question's words"),
        ("coverage_around", 0.02, "it or messages next to it have some of the question's words"),
        ("words", 0.6, "has words like the question's"),
    ),
    (("meant", 1e-9, "said by the person that the question is about"),),
    (
        ("dated", 0.99, "said in the time that the question is about"),
        ("dated", 1e-9, "said in the days after the time that the question is about"),
    ),
)
"""Reasons for a recall, in groups. From each group, the first reason that holds is shown.

A reason holds if the term in `Recall.views` has at least the given value; see `retrieval.score`.
"""
_REASONS_AGAINST = (("long", "but it is long"), ("asks", "but it is itself a question"))
_LESS = -0.1


def reason(recall: Recall) -> str:
    """Return the reasons for and against a recall, or its score if it has no `relevance`.

    An example is "98 % likely: close in meaning, has words like the question's".
    """
    views = recall.views
    if recall.relevance is None:
        return f"score {recall.score:.2f}"
    reasons: list[str] = []
    for group in _REASONS:
        held = (text for name, least, text in group if name in views and views[name] >= least)
        reasons += islice(held, 1)
    reasons += [text for name, text in _REASONS_AGAINST if views.get(name, 0.0) < _LESS]
    likely = f"{min(99, round(100 * recall.relevance))} % likely"
    return f"{likely}: {', '.join(reasons)}" if reasons else likely


_LONGEST = 100


@dataclass(frozen=True, slots=True)
class Explanation:
    """The context for a question, and what was left out of it. `print` shows everything.

    Attributes:
        question: The question.
        context: The context that `get` returns for the question.
        left_out: Records similar to the question that are not in the context, each with a reason:
            below a threshold, no longer valid, no room, a near-duplicate, or shown by the window.
        dropped: Lines with the seqs of the session's messages that the context does not show whole.
            The first line has the messages that left the window. The next lines say which of these
            are in the summary, in a recall, or in neither. The last line has the messages of the
            window that are omitted, shortened, or shown as stubs.
        dead_letters: The user's messages that a block could not absorb in several attempts. The
            block has no records of these messages.
        warnings: Warnings about pending messages, failed blocks, and a session of another user.
    """

    question: str
    context: MemoryContext
    left_out: list[LeftOut]
    dropped: list[str]
    dead_letters: list[DeadLetter]
    warnings: list[str]

    @property
    def recalls(self) -> list[Recall]:
        """Return the context's recalls."""
        return self.context.recalls

    def __str__(self) -> str:
        recalled = [_line(recall, reason(recall)) for recall in self.recalls]
        left_out = [_line(item.recall, item.why) for item in self.left_out]
        return "\n".join(
            [
                f"Question: {self.question}",
                *_part("Recalled", recalled),
                *_part("Left out", left_out),
                *_part("Not shown whole, by number", self.dropped),
                *_part("Given up", map(str, self.dead_letters)),
                *_part("Warnings", self.warnings),
            ]
        )


def dropped_of(
    head: Head | None, window: Iterable[Entry], shown: Collection[Source], recalls: Iterable[Recall]
) -> list[str]:
    if head is None:
        return []
    own = {seq for session, seq in shown if session == head.session_id}
    left = [seq for seq in range(head.expired + 1, head.start + 1) if seq not in own]
    upto = head.summary.upto if head.summary is not None else 0
    sources = (source for recall in recalls for source in recall.sources)
    recalled = {seq for session, seq in sources if session == head.session_id}
    parts = {
        "left the window": left,
        "of these in the summary": [seq for seq in left if seq <= upto],
        "of these recalled": [seq for seq in left if seq in recalled],
        "of these in neither": [seq for seq in left if seq > upto and seq not in recalled],
        "in the window, but a stub, shortened or left out": [
            entry.seq for entry in window if entry.seq not in own and not entry.message.is_system
        ],
    }
    return [f"{how}: {ranges(seqs)}" for how, seqs in parts.items() if seqs]


def left_out_of(
    recalled: Iterable[Recall],
    merged: Iterable[Recall],
    relevant: Iterable[Recall],
    context: MemoryContext,
) -> list[LeftOut]:
    """Return the recalls that are not in a context, each with the reason."""
    merged_ids = {(recall.block, recall.id) for recall in merged}
    relevant_ids = {(recall.block, recall.id) for recall in relevant}
    chosen = {(recall.block, source) for recall in context.recalls for source in recall.sources}
    chosen_ids = {(recall.block, recall.id) for recall in context.recalls}
    out = []
    for recall in recalled:
        sources = {(recall.block, source) for source in recall.sources}
        if (recall.block, recall.id) in chosen_ids or (sources and sources <= chosen):
            continue
        why = "there was no room"
        if (recall.block, recall.id) not in merged_ids:
            why = "the window shows it, or another recall says the same"
        elif (recall.block, recall.id) not in relevant_ids:
            why = "the best recall of its block is much more relevant to the question"
        out.append(LeftOut(recall, why))
    return out


def _part(title: str, lines: Iterable[str]) -> list[str]:
    return [f"{title}:", *([f"  {line}" for line in lines] or ["  nothing"])]


def _line(recall: Recall, why: str) -> str:
    text = " ".join(str(recall).split())
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\u2026"
    place = ", ".join(f"{session} #{seq}" for session, seq in recall.sources)
    return f"{recall.block}: {short}" + (f" ({place})" if place else "") + f": {why}"
