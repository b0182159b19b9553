"""Asking a question anew: the session as it was before it, without what came of the old answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head, Recall
from agent_memory.core.window import role_of
from agent_memory.engine.edit.edit import Editor
from agent_memory.engine.edit.plans import window_before
from agent_memory.engine.paging import read_of
from agent_memory.engine.windows import Windows
from agent_memory.stores.base import SessionStore

_PAGE = 64


class Regeneration:
    """Looks at sessions as if their newest question had just been asked.

    Args:
        store: The log.
        windows: What was read of it.
        editor: Says what derives from an answer.
    """

    def __init__(self, store: SessionStore, windows: Windows, editor: Editor) -> None:
        self._store = store
        self._windows = windows
        self._editor = editor

    def question(self, head: Head) -> Entry | None:
        """The newest message of the user; None where the log has none."""
        end = head.end
        while end > head.expired:
            after = max(head.expired, end - _PAGE)
            for entry in reversed(self._read(head, after, end)):
                if role_of(entry.message) == "user":
                    return entry
            end = after
        return None

    def before(self, head: Head, question: Entry) -> tuple[Head, list[Entry]]:
        """The head and the window without the question and all that followed it."""
        end = question.seq - 1
        if head.start <= end:
            shown = [entry for entry in self._windows.of(head) if entry.seq <= end]
        else:  # the window, and the summary, begin past it
            head = window_before(head, end, lambda after, upto: self._read(head, after, upto))
            shown = self._read(head, head.start, end)
        return replace(head, end=end, total=question.total - question.tokens), shown

    def without(
        self, head: Head, question: Entry, found: Mapping[str, Sequence[Recall]]
    ) -> dict[str, list[Recall]]:
        """Recalls without those that derive from the question, or from what followed it."""
        kept: dict[str, list[Recall]] = {}
        for block, recalls in found.items():
            last = min(self._editor.reach(block, head, question.seq), question.seq - 1)
            kept[block] = [
                recall
                for recall in recalls
                if not any(name == head.session_id and seq > last for name, seq in recall.sources)
            ]
        return kept

    def said(self, head: Head, after: int) -> list[Message]:
        """The messages after a seq."""
        return [entry.message for entry in self._read(head, after, head.end)]

    def _read(self, head: Head, after: int, upto: int) -> list[Entry]:
        return read_of(self._store, head, after=after, limit=upto - after)
