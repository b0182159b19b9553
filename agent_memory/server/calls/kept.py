"""What is kept for the user outright: notes, files, skills, and what was observed at places."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from agent_memory.core.versions import version_of
from agent_memory.server.operation import At, Form, SessionId, operation
from agent_memory.server.paging import MOST, Paged, page_of
from agent_memory.server.problems import not_found
from agent_memory.server.views import stored
from agent_memory.server.views.showing import Done, shown

Name = Annotated[str, Field(min_length=1, max_length=400)]
Path = Annotated[str, Field(min_length=1, max_length=1_000, description="As /memories/plan.md.")]
Position = Annotated[
    list[float], Field(min_length=2, max_length=3, description="x and y, or x, y and z.")
]


class Write(Form):
    """A note."""

    text: str = Field(min_length=1, description="Best one fact, in a whole sentence.")
    session_id: SessionId | None = Field(None, description="Where it was said; it goes with it.")
    at: AwareDatetime | None = Field(None, description="When it was said to hold; null for now.")


class OneNote(Form):
    """A note."""

    note_id: Name


class Rewrite(OneNote):
    """What a note is to say."""

    text: str = Field(min_length=1)


class OneFile(Form):
    """A file."""

    path: Path


class WriteFile(OneFile):
    """What a file is to say."""

    text: str


class OneSkill(Form):
    """A skill."""

    name: Name


class SaveSkill(OneSkill):
    """A procedure."""

    description: str = Field(min_length=1, description="What it does, and when to use it.")
    steps: list[str] = Field(default=[], description="What to do, in order.")
    tags: list[str] = Field(default=[], description="Words to find it by.")
    body: str = Field("", description="Markdown beyond the steps.")


class Observe(Form):
    """Something that was observed at a place."""

    text: str = Field(min_length=1)
    position: Position
    at: AwareDatetime | None = Field(None, description="When; null for now.")
    confidence: float = Field(1.0, ge=0, le=1, description="How sure it is.")
    metadata: dict[str, Any] | None = Field(None, description="Your own.")


class Look(Form):
    """Where to look."""

    position: Position
    radius: float | None = Field(None, gt=0, description="Only what is within this distance.")
    limit: int = Field(10, ge=1, le=MOST, description="At most so many.")
    query: str | None = Field(None, max_length=20_000, description="What it should be about.")
    at: AwareDatetime | None = Field(None, description="As of this moment; null for now.")


class OneObservation(Form):
    """An observation."""

    observation_id: Name


@operation("GET", "/notes", "read")
def list_notes(at: At, asked: Paged) -> stored.Notes:
    """List the user's notes, oldest first."""
    found = at.user.notes().all()
    page, more = page_of(found, asked, lambda note: note.id)
    return stored.Notes([note_view(one) for one in page], len(found), more)


@operation("POST", "/notes", "write", once=True)
def write_note(at: At, asked: Write) -> stored.Note:
    """Write a note. One that says the same in the same words is not written twice."""
    session_id = None if asked.session_id is None else at.to_write(asked.session_id)
    note = at.memory.remember(
        asked.text, user_id=at.user_id, session_id=session_id, at=asked.at, key=at.key
    )
    return note_view(note)


@operation("GET", "/notes/{note_id}", "read")
def read_note(at: At, asked: OneNote) -> stored.Note:
    """Read a note."""
    note = at.user.notes().get(asked.note_id)
    if note is None:
        raise not_found()
    return note_view(note)


@operation("PUT", "/notes/{note_id}", "write", versioned=True)
def change_note(at: At, asked: Rewrite) -> stored.Note:
    """Have a note say something else."""
    notes = at.user.notes()
    if notes.get(asked.note_id) is None:
        raise not_found()
    return note_view(notes.update(asked.note_id, asked.text, expected=at.version))


@operation("DELETE", "/notes/{note_id}", "delete", versioned=True)
def delete_note(at: At, asked: OneNote) -> Done:
    """Forget a note."""
    if not at.user.notes().delete(asked.note_id, expected=at.version):
        raise not_found()
    return Done()


@operation("GET", "/files", "read")
def list_files(at: At, asked: Paged) -> stored.Files:
    """List the paths of the files that a model keeps for the user."""
    paths = at.user.files().paths()
    page, more = page_of(paths, asked, str)
    return stored.Files(page, len(paths), more)


@operation("GET", "/file", "read")
def read_file(at: At, asked: OneFile) -> stored.File:
    """Read a file."""
    files = at.user.files()
    if asked.path not in files.paths():
        raise not_found()
    return file_view(asked.path, files.read(asked.path))


@operation("PUT", "/file", "write", versioned=True)
def write_file(at: At, asked: WriteFile) -> stored.File:
    """Write a file, in place of what it says."""
    at.user.files().write(asked.path, asked.text, expected=at.version)
    return file_view(asked.path, asked.text)


@operation("DELETE", "/file", "delete", versioned=True)
def delete_file(at: At, asked: OneFile) -> Done:
    """Delete a file."""
    files = at.user.files()
    if asked.path not in files.paths():
        raise not_found()
    files.delete(asked.path, expected=at.version)
    return Done()


@operation("GET", "/skills", "read")
def list_skills(at: At, asked: Paged) -> stored.Skills:
    """List procedures: the user's own, and everybody's."""
    found = at.user.skills().all()
    page, more = page_of(found, asked, lambda skill: skill.name)
    return stored.Skills([skill_view(one) for one in page], len(found), more)


@operation("GET", "/skills/{name}", "read")
def read_skill(at: At, asked: OneSkill) -> stored.Skill:
    """Read a skill."""
    skill = at.user.skills().load(asked.name)
    if skill is None:
        raise not_found()
    return skill_view(skill)


@operation("PUT", "/skills/{name}", "write")
def save_skill(at: At, asked: SaveSkill) -> stored.Skill:
    """Write a skill of the user's own, in place of the one of its name."""
    return skill_view(at.user.skills().write(**asked.model_dump()))


@operation("DELETE", "/skills/{name}", "delete")
def delete_skill(at: At, asked: OneSkill) -> Done:
    """Remove a skill of the user's own."""
    if not at.user.skills().delete(asked.name):
        raise not_found()
    return Done()


@operation("GET", "/places", "read")
def list_observations(at: At, asked: Paged) -> stored.Observations:
    """List what was observed for the user, and where, oldest first."""
    found = at.user.spatial().all()
    page, more = page_of(found, asked, lambda one: one.id)
    return stored.Observations([observation_view(one) for one in page], len(found), more)


@operation("POST", "/places", "write", once=True)
def observe(at: At, asked: Observe) -> stored.Observation:
    """Write down what was observed at a place."""
    return observation_view(at.user.spatial().observe(**asked.model_dump(), key=at.key))


@operation("POST", "/places/near", "read")
def look_near(at: At, asked: Look) -> stored.NearBy:
    """Give what is near a place, best first."""
    found = at.user.spatial().near(
        asked.position, asked.radius, asked.limit, query=asked.query, at=asked.at
    )
    return stored.NearBy(
        [shown(stored.Near, one, observation=observation_view(one.observation)) for one in found]
    )


@operation("DELETE", "/places/{observation_id}", "delete")
def delete_observation(at: At, asked: OneObservation) -> Done:
    """Erase an observation."""
    if not at.user.spatial().delete(asked.observation_id):
        raise not_found()
    return Done()


def note_view(note: Any) -> stored.Note:
    """A note, as the service tells it."""
    return shown(stored.Note, note)


def file_view(path: str, text: str) -> stored.File:
    """A file, as the service tells it."""
    return stored.File(path, text, version_of(text))


def skill_view(skill: Any) -> stored.Skill:
    """A skill, as the service tells it."""
    return shown(stored.Skill, skill, steps=list(skill.steps), tags=list(skill.tags))


def observation_view(one: Any) -> stored.Observation:
    """An observation, as the service tells it."""
    return shown(stored.Observation, one, position=list(one.position))
