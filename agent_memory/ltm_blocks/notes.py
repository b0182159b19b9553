"""`NoteMemory`: what was written down outright, by a model or by people, one thing at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from hashlib import sha256
from typing import Any, Literal, Self
from uuid import uuid4

from pydantic import Field, PrivateAttr

from agent_memory.core.forms import Form, Name, Plain
from agent_memory.core.fusion import with_pinned
from agent_memory.core.limits import quoted, text_of
from agent_memory.core.memory_spans import of_id, of_record, traced
from agent_memory.core.messages import Message
from agent_memory.core.moments import check_moment
from agent_memory.core.records import Recall, Record, Scope, Span
from agent_memory.core.versions import check_version, version_of
from agent_memory.errors import Conflict, InvalidInput
from agent_memory.ltm_blocks.base import NoteBlock, Resources
from agent_memory.ltm_blocks.keyed_records import KeyedRecords, forget, plain_json
from agent_memory.ltm_blocks.text_indexes import TextIndexes
from agent_memory.models.embedders.best_effort import BestEffort


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that was written down.

    Attributes:
        id: Its id.
        text: What it says.
        created_at: When it was said to hold; else when it was written, or changed last (UTC).
        session_id: The session in which that was; empty for none.
        metadata: The writer's own.
    """

    id: str
    text: str
    created_at: datetime
    session_id: str
    metadata: dict[str, Any]

    @property
    def version(self) -> str:
        """Another one after each change: what `expected` takes."""
        at = self.created_at.isoformat()
        return version_of(self.id, self.text, at, self.session_id, self.metadata)


class _StoredForm(Form):
    """The metadata of a note's record."""

    id: Name
    metadata: Plain = Field(default_factory=dict)


class NoteMemory(NoteBlock):
    """Notes, written by tool or by `User.notes`; per user.

    A note goes with its user, and with the session in which it was written, or changed last.

    Attributes:
        max_notes: So many a user can have.
        max_chars: So many characters each can have, and its metadata as JSON too.
    """

    kind: Literal["notes"] = "notes"
    max_notes: int = Field(default=1_000, gt=0)
    max_chars: int = Field(default=4_000, gt=0)

    _embedder: BestEffort = PrivateAttr()
    _indexes: TextIndexes = PrivateAttr()

    @property
    def selective(self) -> bool:
        return True

    def bind(self, resources: Resources) -> Self:
        bound = super().bind(resources)
        bound._embedder = BestEffort(lambda: resources.embedders(None))
        bound._indexes = TextIndexes(bound._embedder)
        return bound

    def open(self, scope: Scope) -> Notes:
        """The notes of a user, or of a session without one."""
        return Notes(KeyedRecords(self.resources, self.name, scope, "user"), self)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        """The notes that bear on the message, best first; without one the newest."""
        if not scope.is_somebodys:
            return []
        notes = self.open(scope).all()
        question = message.text().strip() if message else ""
        if not notes:
            self._indexes.drop(scope.owner)
        if not notes or not question:
            return [_recall(self.name, note, 1.0) for note in notes[::-1][:limit]]
        index = self._indexes.of(scope.owner, [note.text for note in notes])
        scores = index.relevance(self._embedder.query(question))
        least = scope.floor * self.resources.min_relevance
        best = sorted(range(len(notes)), key=lambda at: (-scores[at], -at))
        every = [_recall(self.name, notes[at], float(scores[at])) for at in best]
        near = [one for one in every if one.score > 0 and one.score >= least]
        return with_pinned(near, every, scope, limit)

    def all_kept(self, scope: Scope) -> list[Recall]:
        return [_recall(self.name, note, 0.0) for note in self.open(scope).all()]

    def delete(self, scope: Scope) -> None:
        self._indexes.drop(scope.owner)
        forget(self.resources, self.name, scope)

    def forget(self, scope: Scope, what: str | Span, why: str) -> Sequence[str]:
        """Forget a note by its id; notes come from no messages."""
        is_gone = isinstance(what, str) and self.open(scope).delete(what)
        return [str(what)] if is_gone else []

    def validate_import(self, record: Record) -> Record:
        _StoredForm.model_validate(record.metadata)
        return record


def _namespace(notes: Notes) -> str:
    return notes._limits.resources.namespace


class Notes:
    """The notes of one user; made by `User.notes`.

    Args:
        keyed: Where they are kept.
        limits: What the block allows.
    """

    def __init__(self, keyed: KeyedRecords, limits: NoteMemory) -> None:
        self._keyed = keyed
        self._limits = limits

    def all(self) -> list[Note]:
        """All notes, oldest first."""
        return [_note(record) for record in self._keyed.all()]

    def get(self, note_id: str) -> Note | None:
        """A note by its id; None where there is none."""
        text_of("note_id", note_id)
        return next((note for note in self.all() if note.id == note_id), None)

    @traced("create_memory", _namespace, of_record)
    def add(
        self,
        text: str,
        metadata: dict[str, Any] | None = None,
        *,
        at: datetime | date | None = None,
        key: str | None = None,
    ) -> Note:
        """Write a note. One that says the same in the same words is not written twice.

        Args:
            text: What to note.
            metadata: The writer's own, as plain JSON.
            at: When it was said to hold, with a time zone; None for now.
            key: Names this write, where it may be retried.

        Raises:
            InvalidInput: It is empty or too long, or there are too many, or `at` has no time zone;
                nothing was stored.
            Conflict: The key was used for a note that is there, and says something else.
        """
        name = uuid4().hex if key is None else _name_of(text_of("key", key))
        text, moment = self._checked(text), check_moment("at", at)
        if len(plain_json(metadata or {}, "The note's metadata")) > self._limits.max_chars:
            raise InvalidInput(
                f"The note's metadata has more than {self._limits.max_chars} characters as JSON. "
                "Keep it elsewhere, and note where."
            )
        with self._keyed.changing():
            notes = self.all()
            for note in notes:
                if note.id == name and note.text != text:
                    raise Conflict(
                        f"The key {quoted(key)} was used for another note. Nothing was noted; give "
                        "what is new a key of its own."
                    )
                if note.text == text:
                    return note
            if len(notes) >= self._limits.max_notes:
                raise InvalidInput(
                    f"There are {len(notes)} notes, and no more are kept. Forget some that are "
                    "not needed any more."
                )
            return self._put(name, text, metadata or {}, moment)

    @traced("update_memory", _namespace, of_record)
    def update(self, note_id: str, text: str, *, expected: str | None = None) -> Note:
        """Have a note say something else.

        Args:
            note_id: The note.
            text: What it is to say.
            expected: Its `version` as it was read: change it only if it is that yet.

        Raises:
            InvalidInput: There is no such note, or the text is empty or too long; nothing changed.
            VersionConflict: It is another version by now; nothing changed.
        """
        text = self._checked(text)
        with self._keyed.changing():
            note = self.get(note_id)
            if note is None:
                raise InvalidInput(f"There is no note with the id {quoted(note_id)}.")
            check_version(expected, note.version)
            return self._put(note_id, text, note.metadata)

    @traced("delete_memory", _namespace, of_id)
    def delete(self, note_id: str, *, expected: str | None = None) -> bool:
        """Forget a note; whether there was one. Idempotent.

        Args:
            note_id: The note.
            expected: As for `update`.

        Raises:
            VersionConflict: It is another version by now; nothing changed.
        """
        with self._keyed.changing():
            note = self.get(note_id)
            if note is not None:
                check_version(expected, note.version)
                self._keyed.drop(note_id)
            return note is not None

    def clear(self) -> None:
        """Forget all notes."""
        with self._keyed.changing():
            self._keyed.clear()

    def _put(
        self, note_id: str, text: str, metadata: dict[str, Any], at: datetime | None = None
    ) -> Note:
        kept = {"id": note_id, **({"metadata": metadata} if metadata else {})}
        return _note(self._keyed.put(note_id, text, kept, at=at or datetime.now(UTC)))

    def _checked(self, given: str) -> str:
        text = self._keyed.redacted(text_of("The note", given)).strip()
        if not text:
            raise InvalidInput("The note is empty. Write one fact, in a whole sentence.")
        if len(text) > self._limits.max_chars:
            raise InvalidInput(
                f"The note has {len(text)} characters; at most {self._limits.max_chars} are kept. "
                "Shorten it, or write several."
            )
        return text


def _name_of(key: str) -> str:
    """The id of a note that is written under a key."""
    return sha256(f"key {key}".encode(errors="surrogatepass")).hexdigest()[:32]


def _note(record: Record) -> Note:
    kept = record.metadata
    return Note(
        kept["id"], record.text, record.created_at, record.session_id, kept.get("metadata", {})
    )


def _recall(block: str, note: Note, score: float) -> Recall:
    return Recall(block, note.id, note.text, score, created_at=note.created_at, relevance=score)
