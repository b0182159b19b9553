"""Write another memory's items as notes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent_memory.errors import Conflict, InvalidInput
from agent_memory.integrations.imports.conversations import Noted, usable

if TYPE_CHECKING:
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.integrations.imports.imported import Imported

_LONGEST = 3_500  # characters of a note's metadata as JSON


class NoteWriting:
    """Writes notes of users, each once.

    Args:
        memory: The memory.
        source: The name of the source.
        done: The result so far.
        deleted: Whether to restore notes of users who were deleted here.
    """

    def __init__(self, memory: AgentMemory, source: str, done: Imported, *, deleted: bool) -> None:
        self._memory = memory
        self._source = source
        self._done = done
        self._deleted = deleted
        self._texts: dict[str, set[str]] = {}

    def write(self, noted: Noted, user_id: str | None) -> None:
        """Write a note.

        Args:
            noted: The source's item.
            user_id: The user; overrides the source's.
        """
        user_id = user_id or (None if noted.user_id is None else usable(noted.user_id))
        if user_id is None:
            told = "the source names no user. Give one with --user ID or user_id"
            self._done.fail(noted.where, told)
            return
        left = self._memory.components.deleted.at("user", user_id)
        if left and not self._deleted and (noted.at is None or noted.at <= left):
            self._done.deleted += 1
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
            self._done.left_out["long metadata of notes"] += 1
        try:
            notes.add(text, about, at=noted.at, key=f"import {self._source} {noted.id}")
        except Conflict:
            told = "it was imported before with other content, which stays"
            self._done.fail(noted.where, told)
        except InvalidInput as error:
            self._done.fail(noted.where, str(error))
        else:
            texts.add(text)
            self._done.new_notes += 1
