"""`NoteMemory`: single notes that a model or a person writes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, Self
from uuid import uuid4

from pydantic import Field, PrivateAttr

from agent_memory.core.forms import Form, Name, Plain
from agent_memory.core.fusion import with_pinned
from agent_memory.core.idempotency import check_version, version_of
from agent_memory.core.limits import quoted, text_of
from agent_memory.core.messages import Message
from agent_memory.core.records import Recall, Record, Scope, Span
from agent_memory.core.settings_model import Positive
from agent_memory.core.timestamps import check_moment
from agent_memory.core.tracing import of_id, of_record, traced
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.base import NoteBlock, QueryThread, Resources, record_id
from agent_memory.ltm_blocks.keyed_records import Collection, CollectionBlock
from agent_memory.models.embedders.best_effort import BestEffort, TextIndexes


@dataclass(frozen=True, slots=True)
class Note:
    """A note.

    Attributes:
        created_at: The `at` that `add` received, or else the time of the write (UTC). `update` sets
            it to the current time.
        session_id: The session of the last write; empty if the write named no session.
        metadata: The writer's own metadata.
    """

    id: str
    text: str
    created_at: datetime
    session_id: str
    metadata: dict[str, Any]

    @property
    def version(self) -> str:
        """The note's version, for the argument `expected`. Every write changes it."""
        at = self.created_at.isoformat()
        return version_of(self.id, self.text, at, self.session_id, self.metadata)


class _StoredForm(Form):
    """The metadata of a note's record."""

    id: Name
    metadata: Plain = Field(default_factory=dict)


class NoteMemory(CollectionBlock, NoteBlock):
    """Notes of a user. A model writes them with a tool, a program with `User.notes`.

    A note is deleted with its user, or earlier with the session in which it was last written.

    Attributes:
        max_notes: Maximum number of notes of a user.
        max_chars: Maximum characters of a note's text, and of its metadata as JSON.
    """

    selective = True
    _stored_form = _StoredForm

    kind: Literal["notes"] = "notes"
    max_notes: Positive = 1_000
    max_chars: Positive = 4_000

    _indexes: TextIndexes = PrivateAttr()

    @property
    def query_thread(self) -> QueryThread:
        is_local = self.store is None and self.resources.is_local
        return "shared" if is_local else "own"

    def bind(self, resources: Resources) -> Self:
        bound = super().bind(resources)
        bound._indexes = TextIndexes(BestEffort(lambda: resources.embedders(None)))
        return bound

    def open(self, scope: Scope) -> Notes:
        """Return the notes of a user, or of a session without a user."""
        return Notes(self._keyed(scope), self)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        """Return the notes relevant to the message, best first.

        Without a message, return the newest notes.
        """
        if not scope.is_somebodys:
            return []
        notes = self.open(scope).all()
        question = message.text().strip() if message else ""
        if not notes:
            self._indexes.drop(scope.owner)
        if not notes or not question:
            return [self._recall(scope, note, 1.0) for note in notes[::-1][:limit]]
        texts, in_context = [note.text for note in notes], scope.in_context
        scores = self._indexes.relevance(scope.owner, texts, question, is_message=in_context)
        least = scope.floor * self.resources.min_relevance
        best = sorted(range(len(notes)), key=lambda at: (-scores[at], -at))
        every = [self._recall(scope, notes[at], float(scores[at])) for at in best]
        near = [recall for recall in every if recall.score > 0 and recall.score >= least]
        return with_pinned(near, every, scope, limit)

    def stored_records(self, scope: Scope) -> list[Recall]:
        return [self._recall(scope, note, 0.0) for note in self.open(scope).all()]

    def _recall(self, scope: Scope, note: Note, score: float) -> Recall:
        at = self.resources.local(scope, note.created_at)
        return Recall(self.name, note.id, note.text, score, created_at=at, relevance=score)

    def forget(self, scope: Scope, what: str | Span, why: str) -> list[str]:
        """Forget a note by its id. Spans have no effect: notes come from no messages."""
        return [what] if isinstance(what, str) and self.open(scope).delete(what) else []

    def drop_caches(self, scope: Scope) -> None:
        self._indexes.drop(scope.owner)


def _namespace(notes: Notes) -> str:
    return notes._limits.resources.namespace


class Notes(Collection[NoteMemory]):
    """A handle on the notes of one user, from `User.notes`."""

    _item = "note"
    _advice = ("Write one fact as a whole sentence.", "Shorten it, or write several notes.")

    def all(self) -> list[Note]:
        """Return all notes, oldest first."""
        return [_note(record) for record in self._keyed.all()]

    def get(self, note_id: str) -> Note | None:
        """Return a note by its id; None if there is none."""
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
        """Write a note. If a note has the same text, return that note.

        Args:
            metadata: The writer's own metadata, as plain JSON.
            at: When the note was stated: a datetime with a time zone, or a date. None means
                now.
            key: Idempotency key for retries.

        Raises:
            InvalidInput: The note is empty or too long, the user has too many notes, or `at` has no
                time zone. Nothing was stored.
            Conflict: The key was used for a note with another text. Nothing was stored.
        """
        name = uuid4().hex if key is None else record_id("key", text_of("key", key))
        most = self._limits.max_chars
        zone = self._keyed.resources.zones.of(self._keyed.scope.user_id)
        text, moment = self._text(text, most), check_moment("at", at, zone)
        checked = self._metadata(metadata, most)
        with self._keyed.changing():
            notes = self.all()
            if any(note.id == name and note.text != text for note in notes):
                raise self._reused(key)
            for note in notes:
                if note.text == text:
                    return note
            self._check_count(len(notes), self._limits.max_notes)
            return self._put(name, text, checked, moment)

    @traced("update_memory", _namespace, of_record)
    def update(self, note_id: str, text: str, *, expected: str | None = None) -> Note:
        """Replace a note's text.

        Args:
            expected: The `version` that you read. The note changes only if it still has this
                version.

        Raises:
            InvalidInput: The note does not exist, or the text is empty or too long; nothing
                changed.
            VersionConflict: The note has another version by now; nothing changed.
        """
        text = self._text(text, self._limits.max_chars)
        with self._keyed.changing():
            note = self.get(note_id)
            if note is None:
                raise InvalidInput(f"There is no note with the id {quoted(note_id)}.")
            check_version(expected, note.version)
            return self._put(note_id, text, note.metadata)

    @traced("delete_memory", _namespace, of_id)
    def delete(self, note_id: str, *, expected: str | None = None) -> bool:
        """Delete a note, and return whether it existed. Idempotent.

        Args:
            expected: See `update`.

        Raises:
            VersionConflict: The note has another version by now; nothing changed.
        """
        with self._keyed.changing():
            note = self.get(note_id)
            if note is not None:
                check_version(expected, note.version)
                self._keyed.drop(note_id)
            return note is not None

    def _put(
        self, note_id: str, text: str, metadata: dict[str, Any], at: datetime | None = None
    ) -> Note:
        fields = {"id": note_id, **({"metadata": metadata} if metadata else {})}
        return _note(self._keyed.put(note_id, text, fields, at=at))


def _note(record: Record) -> Note:
    name, metadata = record.metadata["id"], record.metadata.get("metadata", {})
    return Note(name, record.text, record.created_at, record.session_id, metadata)
