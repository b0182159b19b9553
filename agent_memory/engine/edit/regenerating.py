"""Asking a question anew: the session as it was before it, without what came of the old answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head, Recall, Span
from agent_memory.core.window import role_of
from agent_memory.engine.edit.rewinding import Rewinding
from agent_memory.engine.edit.undoing import Place
from agent_memory.engine.processing.compaction import Compaction
from agent_memory.engine.windows import Windows
from agent_memory.errors import InvalidInput
from agent_memory.stores.base import SessionStore

_PAGE = 64


class Regeneration:
    """Looks at sessions as if their newest question had just been asked.

    Args:
        store: The log.
        windows: What was read of it.
        overflow: Says what a window would be.
        rewinding: Says what derives from an answer.
    """

    def __init__(
        self, store: SessionStore, windows: Windows, overflow: Compaction, rewinding: Rewinding
    ) -> None:
        self._store = store
        self._windows = windows
        self._overflow = overflow
        self._rewinding = rewinding

    def question(self, head: Head) -> Entry | None:
        """The newest message of the user; None where the log has none."""
        end = head.end
        while end > head.expired:
            after = max(head.expired, end - _PAGE)
            for entry in reversed(
                self._store.read(head.session_id, after=after, limit=end - after)
            ):
                if role_of(entry.message) == "user":
                    return entry
            end = after
        return None

    def before(self, head: Head, question: Entry) -> tuple[Head, list[Entry]]:
        """The head and the window without the question and all that followed it."""
        if head.start < question.seq:
            shown = [entry for entry in self._windows.of(head) if entry.seq < question.seq]
        else:  # the window, and the summary, begin past it
            head = self._overflow.shortened(head, question.seq - 1, ())
            count = question.seq - 1 - head.start
            shown = self._store.read(head.session_id, after=head.start, limit=count)
        return replace(head, end=question.seq - 1, total=question.total - question.tokens), shown

    def without(
        self, head: Head, question: Entry, found: Mapping[str, Sequence[Recall]]
    ) -> dict[str, list[Recall]]:
        """Recalls without those that derive from the question, or from what followed it."""
        kept: dict[str, list[Recall]] = {}
        for block, recalls in found.items():
            last = min(self._rewinding.reach(block, head, question.seq), question.seq - 1)
            kept[block] = [
                recall
                for recall in recalls
                if not any(name == head.session_id and seq > last for name, seq in recall.sources)
            ]
        return kept

    def place(self, part: Span, asked: Message) -> Place:
        """Where the new answer goes: right after the question, should it still be the newest.

        Args:
            part: From the question to the newest message, when it was asked again.
            asked: The question.
        """

        def place(head: Head) -> int:
            still = self._store.pick(part.session_id, [part.first])
            if head.end != part.last or [entry.message for entry in still] != [asked]:
                raise InvalidInput(
                    f"Session {part.session_id!r} went on while its question was asked again. "
                    "Nothing was replaced; call regenerate() anew."
                )
            return part.first

        return place
