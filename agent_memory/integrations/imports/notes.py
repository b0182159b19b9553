"""Writing what another memory keeps of users, as their notes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent_memory.errors import Conflict, InvalidInput
from agent_memory.integrations.imports.chats import Noted, usable

if TYPE_CHECKING:
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.integrations.imports.imported import Imported

_LONGEST = 3_500  # characters of what is said of a note, as JSON


class NoteWriting:
    """Writes notes of users, each once.

    Args:
        memory: Where to.
        source: The name of the source.
        done: What became of the import so far.
    """

    def __init__(self, memory: AgentMemory, source: str, done: Imported) -> None:
        self._memory = memory
        self._source = source
        self._done = done
        self._texts: dict[str, set[str]] = {}

    def write(self, noted: Noted, user_id: str | None) -> None:
        """Write one.

        Args:
            noted: What the source keeps.
            user_id: Whose it is, whatever the source says.
        """
        user_id = user_id or (None if noted.user_id is None else usable(noted.user_id))
        if user_id is None:
            told = "the source does not say whose it is. Name a user: --user ID, or user_id"
            self._done.fail(noted.where, told)
            return
        notes = self._memory.user(user_id).notes()
        texts = self._texts.get(user_id)
        if texts is None:
            texts = self._texts[user_id] = {note.text for note in notes.all()}
        text = noted.text.strip()
        if text in texts:
            return
        about: dict[str, Any] = {"id": noted.id, "source": self._source}
        if noted.about and len(json.dumps(noted.about)) <= _LONGEST:
            about |= noted.about
        elif noted.about:
            self._done.left_out["what is said of notes, where it is long"] += 1
        try:
            notes.add(text, about, at=noted.at, key=f"import {self._source} {noted.id}")
        except Conflict:
            told = "it was imported before, and says something else now; what was is kept"
            self._done.fail(noted.where, told)
        except InvalidInput as error:
            self._done.fail(noted.where, str(error))
        else:
            texts.add(text)
            self._done.new_notes += 1
