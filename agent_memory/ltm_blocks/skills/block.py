"""`SkillMemory`: reusable procedures in Markdown files, which people can edit and version."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, PrivateAttr, field_validator

from agent_memory.core.limits import how_many, quoted, text_of
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Recall, Scope, Span
from agent_memory.core.settings_model import Positive
from agent_memory.core.text import last_break
from agent_memory.core.tools import tool
from agent_memory.errors import ConfigError, InvalidInput, ToolRefused
from agent_memory.ltm_blocks.base import ManualBlock, Resources, record_id
from agent_memory.ltm_blocks.skills.files import BrokenSkill, Skill, checked, rendered, search_text
from agent_memory.ltm_blocks.skills.library import Library, SkillSet
from agent_memory.models.embedders.best_effort import BestEffort, TextIndexes

_RECALLED = 4_000
_READABLE = 24
_SEARCHED = 0.2  # share of `min_relevance` that a search of skills requires


class SkillMemory(ManualBlock):
    """Shared skills, which people put into a folder, and users' own skills.

    A model and `User.skills` write only the user's own skills. A user's own skills are deleted with
    the user. The skills of a session without a user are deleted with the session.

    Attributes:
        folder: The folder of the skill files. The first save creates it.
        max_skills: Maximum number of a user's own skills.
        max_bytes: Maximum size of a skill file.
    """

    selective = True

    kind: Literal["skills"] = "skills"
    folder: str | Path
    max_skills: Positive = 200
    max_bytes: Positive = 100_000

    _library: Library | None = PrivateAttr(default=None)
    _indexes: TextIndexes = PrivateAttr()

    @field_validator("folder")
    @classmethod
    def _at_home(cls, value: str | Path) -> Path:
        try:
            return Path(value).expanduser()
        except RuntimeError as error:
            raise ConfigError(f"{value}: {error} Give the folder's full path.") from None

    @property
    def library(self) -> Library:
        """The files in the folder."""
        if self._library is None:
            self._library = Library(Path(self.folder).absolute(), self.max_bytes)
        return self._library

    def bind(self, resources: Resources) -> Self:
        """Bind the block; see `Block.bind`.

        Raises:
            ConfigError: `folder` is a file.
        """
        if os.path.isfile(self.folder):
            raise ConfigError(f"{self.folder} is a file. Give a folder; it need not exist.")
        bound = super().bind(resources)
        bound._library = Library(Path(self.folder).absolute(), self.max_bytes)
        bound._indexes = TextIndexes(BestEffort(lambda: resources.embedders(None)))
        return bound

    def open(self, scope: Scope) -> Skills:
        """Return the shared skills and those of a user, or of a session without a user."""
        return Skills(self, scope)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        """Return the skills relevant to the message, best first. Without a message, return none."""
        question = message.text().strip() if message else ""
        ranked = self.ranked(self.owner(scope), self.open(scope).all(), question)
        near = (match for match in ranked if match[1] >= self.resources.min_relevance)
        return [self._recall(*match) for match in islice(near, limit)]

    def ranked(
        self, owner: str | None, skills: Sequence[Skill], question: str
    ) -> list[tuple[Skill, float]]:
        """Return the skills that match a question, each with its score, best first."""
        if not skills:
            self._indexes.drop(owner or "")
        if not skills or not question:
            return []
        texts = [search_text(skill) for skill in skills]
        scores = self._indexes.relevance(owner or "", texts, question).tolist()
        least = _SEARCHED * self.resources.min_relevance
        pairs = zip(skills, scores, strict=True)
        matches = [(skill, score) for skill, score in pairs if score > 0 and score >= least]
        return sorted(matches, key=lambda match: (-match[1], match[0].name))

    def stored_records(self, scope: Scope) -> list[Recall]:
        own = [item for item in self.open(scope).all() if not item.shared and item.path is not None]
        return [replace(self._recall(skill, 0.0), created_at=_changed_at(skill)) for skill in own]

    def forget(self, scope: Scope, what: str | Span, why: str) -> Sequence[str]:
        """Forget a user's own skill by its name. Spans have no effect: skills come from no
        messages.
        """
        names = {recall.id for recall in self.stored_records(scope)}
        if not isinstance(what, str) or what not in names:
            return []
        self.open(scope).delete(what)
        return [what]

    def delete(self, scope: Scope) -> None:
        """Delete the skills that a user, or a session without a user, owns. Shared skills stay."""
        if scope.session_id is not None:
            scope = Scope(None, scope.session_id, scope.after)
        owner = self.owner(scope)
        if owner is not None and not scope.after:
            self._indexes.drop(owner)
            with self.changing(owner):  # a concurrent save could write a deleted skill again
                self.library.clear(owner)

    def problems(self, resources: Resources) -> Sequence[str]:
        """Return the problems of all broken files, both shared and users' own."""
        owners = [None, *self.library.owners()]
        problems = (str(broken) for owner in owners for broken in self.library.shown(owner).broken)
        return list(dict.fromkeys(problems))

    def owner(self, scope: Scope) -> str | None:
        """Return the name of a scope's directory in the library; None for the shared skills."""
        if not scope.is_somebodys:
            return None
        readable = re.sub(r"[^a-z0-9]+", "-", str(scope.user_id or scope.session_id).lower())
        digest = record_id(self.resources.namespace, scope.owner)
        return f"{readable[:_READABLE]}-{digest}".lstrip("-")

    def changing(self, owner: str | None) -> AbstractContextManager[None]:
        """Return the lock on an owner's skills, as a context manager."""
        return self.resources.locked(record_id("skills", self.name, owner))

    @tool(
        "{name}_find",
        "Look for a skill: how a task is done, step by step, as it was written down. Use it before "
        "a task of several steps, and when the user asks how something is done.",
        ("read",),
    )
    def _find(
        self,
        scope: Scope,
        query: str = Field(min_length=1, max_length=2_000, description="The task, in words."),
    ) -> str:
        skills = self.open(scope).search(query)
        if not skills:
            return "No skill is relevant to this."
        return compact_json(
            [
                {"name": skill.name, "description": skill.description, "tags": list(skill.tags)}
                for skill in skills
            ]
        )

    @tool("{name}_load", "Read a whole skill, by the name that {name}_find gave.", ("read",))
    def _load(
        self,
        scope: Scope,
        name: str = Field(min_length=1, max_length=64, description="The skill's name."),
    ) -> str:
        skill = self.open(scope).load(name)
        if skill is None:
            raise ToolRefused(
                f"There is no skill {quoted(name)}. Find names with {self.name}_find."
            )
        return rendered(skill)

    @tool(
        "{name}_save",
        "Write down how a task is done, so that it is done the same way again. Use it when a "
        "task that will come again has succeeded, or when the user says how a task is to be done "
        "from now on; a wish about your answers is not a task. A skill that you saved under the "
        "same name is replaced.",
        ("write",),
    )
    def _save(
        self,
        scope: Scope,
        name: str = Field(
            min_length=1,
            max_length=64,
            description="A short name of a-z, 0-9 and -, such as send-invoice.",
        ),
        description: str = Field(
            min_length=1, max_length=1_024, description="What the skill does, and when to use it."
        ),
        steps: list[str] = Field(min_length=1, description="What to do, in order."),
        tags: list[str] | None = Field(
            default=None,
            description="Words by which it is found. By default, a replaced skill keeps its words.",
        ),
    ) -> str:
        if not scope.is_somebodys:  # only people write shared skills
            raise ToolRefused("The skill would have no owner: there is no user and no session.")
        skills = self.open(scope)
        old = skills.load(name) or Skill(name, "")
        tags = list(old.tags) if tags is None else tags
        skills.save(replace(old, description=description, steps=tuple(steps), tags=tuple(tags)))
        return f"Saved under the name {name}."

    def _recall(self, skill: Skill, score: float) -> Recall:
        text = rendered(skill)
        if len(text) > _RECALLED:
            text = text[: last_break(text, _RECALLED)].rstrip()
            text += f"\n[It goes on: {self.name}_load gives the whole.]"
        metadata = {"tags": list(skill.tags), "shared": skill.shared}
        return Recall(self.name, skill.name, text, score, metadata=metadata)


def _changed_at(skill: Skill) -> datetime | None:
    """Return when a skill's file last changed; None if the file is gone."""
    try:
        assert skill.path is not None, "it was read from a file"
        return datetime.fromtimestamp(skill.path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


class Skills:
    """A handle on the skills of one user and the shared skills, from `User.skills`.

    Without a user or session, the handle reads and writes the shared skills.

    Args:
        scope: The user or session that sees the skills.
    """

    def __init__(self, block: SkillMemory, scope: Scope) -> None:
        self._block = block
        self._scope = scope
        self._library = block.library
        self._owner = block.owner(scope)

    def all(self) -> list[Skill]:
        """Return all skills, sorted by name."""
        return [skill for _, skill in sorted(self._visible().skills.items())]

    def load(self, name: str) -> Skill | None:
        """Return a skill by its name; None if it does not exist or its file is broken."""
        return self._visible().skills.get(text_of("name", name))

    def tagged(self, *tags: str) -> list[Skill]:
        """Return the skills that have all of these tags, in any case."""
        wanted = {text_of("A tag", tag).casefold() for tag in tags}
        return [skill for skill in self.all() if wanted <= {tag.casefold() for tag in skill.tags}]

    def search(self, query: str, limit: int = 10) -> list[Skill]:
        """Return the skills that match a query best, by words and meaning, best first."""
        question, most = text_of("query", query).strip(), how_many("limit", limit)
        return [skill for skill, _ in self._block.ranked(self._owner, self.all(), question)[:most]]

    def broken(self) -> list[BrokenSkill]:
        """Return the files that are not valid skills, each with the line to fix and the remedy."""
        return self._visible().broken

    def save(self, skill: Skill) -> Skill:
        """Write a skill. It replaces a skill of the same name. The last write wins.

        Returns:
            The skill as saved: with its texts stripped, and its `path`.

        Raises:
            InvalidInput: The skill is invalid, the user has too many skills, or a shared skill has
                the same name; nothing was written.
            SessionDeleting: The session is being deleted; nothing was written.
            StoreUnavailable: The folder cannot be written.
        """
        skill = checked(skill, self._block.max_bytes)
        with self._block.changing(self._owner):
            if self._owner is not None:
                self._check(skill.name, self._owner)
                if self._session_id is not None and not self._stands():
                    # the deletion of the session then removes its skills
                    self._block.resources.store.append(self._session_id, [], None)
            return self._library.save(self._owner, skill)

    def write(
        self,
        name: str,
        description: str,
        *,
        steps: Sequence[str] = (),
        tags: Sequence[str] = (),
        body: str = "",
    ) -> Skill:
        """Save a skill from separate arguments; see `save` and `Skill`."""
        return self.save(Skill(name, description, steps, tags, body))  # type: ignore[arg-type]

    def delete(self, name: str) -> bool:
        """Remove a skill's file, and return whether it existed. Idempotent.

        Shared skills are removed only through a handle on the shared skills.
        """
        with self._block.changing(self._owner):
            return self._library.drop(self._owner, text_of("name", name))

    def _visible(self) -> SkillSet:
        return self._library.shown(self._owner if self._stands() else None)

    def _check(self, name: str, owner: str) -> None:
        if name in self._library.read(None).skills:
            raise InvalidInput(
                f"The skill {name!r} is shared, and only people change it. Use another name."
            )
        own, most = self._library.read(owner), self._block.max_skills
        if name not in own.skills and len(own.skills) + len(own.broken) >= most:
            raise InvalidInput(
                f"There are {most} skills, which is the maximum. Delete some that are no longer "
                "needed."
            )

    def _stands(self) -> bool:
        """Return whether the session of these skills still exists. True for a user's skills."""
        session_id = self._session_id
        return session_id is None or bool(self._block.resources.store.existing([session_id]))

    @property
    def _session_id(self) -> str | None:
        return self._scope.session_id if self._scope.user_id is None else None
