"""`MemoryContext`: what a model is to see, within the budget. Rendering is pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agent_memory.core.formats.registry import format_of
from agent_memory.core.messages import Message
from agent_memory.core.native import rendered
from agent_memory.core.records import Head, Recall, Summary
from agent_memory.core.text import escape
from agent_memory.core.usage import Usage
from agent_memory.core.window import role_of

MemoryRole = Literal["system", "user", "leading"]
"""Where recalls and the summary stand: in messages of their own, of the system or before a
question; or in the one system message at the top."""


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """What contexts need to know of a block; see `Block`."""

    kind: str
    max_tokens: int | None
    selective: bool = False


@dataclass(frozen=True, slots=True)
class MemoryContext:
    """The window, and what the blocks recalled.

    Attributes:
        messages: System message, summary (one message, where recalls lead), newest turns. What is
            too long is shown in part.
        recalls: All that was recalled and fits, merged, best first.
        tokens: What `to_messages()` costs, as the configured tokenizer counts it.
        max_tokens: The budget; `tokens` never passes it.
        warnings: What of the newest turn is not shown, or only in part; blocks that failed or were
            too slow, and other trouble. Nothing of it is raised.
        head: The session's head; None for a session that does not exist yet.
        blocks: For each block, what it is, in the configured order.
        memory_role: Where recalls are placed.
        format: In which format `to_messages()` gives it; None for OpenAI's chat.
        asked: The turn so far, which `to_messages()` adds at the end: the message that the context
            was asked for, unless it is the newest of `messages` already.
        kept_tokens: How many of its first tokens are the same as in the session's context before
            it, by whole messages: what a provider's prompt cache can take. None for the first that
            this process makes.
        usage: What models were asked for it: a question is embedded where the embedder is paid.
    """

    messages: list[Message]
    recalls: list[Recall]
    tokens: int
    max_tokens: int
    warnings: list[str]
    head: Head | None
    blocks: Mapping[str, BlockInfo]
    memory_role: MemoryRole = "system"
    format: str | None = None
    asked: Sequence[Message] = ()
    kept_tokens: int | None = field(default=None, compare=False)
    usage: Usage = field(default=Usage(), compare=False)

    @property
    def cost(self) -> float | None:
        """US dollars that it took; None where the price of a model is not known."""
        return self.usage.cost

    @property
    def question(self) -> Message | None:
        """The user's message that `to_messages()` adds; None where it stands there already."""
        return next((one for one in reversed(self.asked) if role_of(one) == "user"), None)

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
        """OpenAI chat dicts for any chat API, with what was asked at their end; or the items of the
        context's `format`.

        A question that the window ends with already stands there once. Recalls stand in one
        `<memory>` element right before the newest user message (role "system"), or at the
        beginning of that message (role "user"), so that all before it stays the same from turn to
        turn and prompt caches stay warm. With "leading" they end the one system message at the top:
        the only form that some providers and chat templates take, and no cache keeps what follows.
        """
        memory = render_memory(self.recalls, list(self.blocks))
        leading = leading_count(self.messages, self.head)
        messages = [*self.messages, *self.asked]

        def place(chat: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return place_memory(chat, memory, self.memory_role, leading)

        if self.format is None:
            return place(chat_of(messages))
        return rendered(messages, format_of(self.format), place)


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
        role=_placed_as(role),
        content=f"<summary>\n{escape(summary.text)}\n</summary>",
        metadata={"kind": "summary", "upto": summary.upto, "by": summary.by},
    )


def folded(messages: Sequence[Message]) -> list[Message]:
    """The system message with the summary at its end: one message, of two or fewer."""
    if len(messages) < 2 or (view := messages[0].to_openai()) is None:
        return list(messages)
    told = messages[1].text()
    return [Message(role=view["role"], content=_joined(view.get("content"), told))]


def render_line(recall: Recall) -> str:
    """One recall as an item of a list: its time where known, and its text, escaped."""
    return "- " + escape(str(recall)).replace("\n", "\n  ")


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
    if role == "leading":
        if not leading:
            return [{"role": "system", "content": memory}, *chat]
        return [{**chat[0], "content": _joined(chat[0].get("content"), memory)}, *chat[1:]]
    users = (i for i, m in enumerate(chat) if i >= leading and m["role"] == "user")
    newest = max(users, default=None)
    if newest is None:
        return [*chat[:leading], {"role": role, "content": memory}, *chat[leading:]]
    if role == "system":
        return [*chat[:newest], {"role": "system", "content": memory}, *chat[newest:]]
    return [*chat[:newest], _with_memory(chat[newest], memory), *chat[newest + 1 :]]


def from_newest_user(messages: Sequence[Message]) -> Sequence[Message]:
    """The newest message of a user and what follows it: where `place_memory` places."""
    for place in reversed(range(len(messages))):
        one = messages[place]
        users = one.role == "user" if one.role else any(v["role"] == "user" for v in one.views())
        if users:
            return messages[place:]
    return []


def chat_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as OpenAI chat dicts, so far as they have such a form."""
    return [view for message in messages for view in message.views()]


def _placed_as(role: MemoryRole) -> Literal["system", "user"]:
    """The role that a message of the memory's own has."""
    return "user" if role == "user" else "system"


def _with_memory(message: dict[str, Any], memory: str) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [{"type": "text", "text": memory}, *content]}
    return {**message, "content": f"{memory}\n\n{content or ''}"}


def _joined(content: Any, told: str) -> Any:
    """A message's content with a text at its end."""
    if isinstance(content, list):
        return [*content, {"type": "text", "text": told}]
    return f"{content}\n\n{told}" if content else told
