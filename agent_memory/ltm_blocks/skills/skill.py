"""The skill value: a reusable procedure. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Skill:
    """A reusable procedure.

    Attributes:
        name: Its name: up to 64 of a-z, 0-9 and -.
        description: Its purpose, and when to use it. Searches match it.
        steps: The steps, in order.
        tags: Words that searches match.
        body: Markdown beyond the steps.
        extra: Other keys of the front matter ("license", "metadata"), which are preserved.
        path: The file it was read from.
        shared: Whether everybody sees it, rather than one user or session.
    """

    name: str
    description: str
    steps: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    body: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    path: Path | None = field(default=None, compare=False)
    shared: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class BrokenSkill:
    """A file that is not a valid skill.

    Attributes:
        file: The path within the folder.
        line: The line to fix, counted from 1.
        problem: The problem and its remedy.
    """

    file: str
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.problem}"


def rendered(skill: Skill) -> str:
    """Return a skill as text for a model."""
    lines = [f"{skill.name}: {skill.description}"]
    for number, step in enumerate(skill.steps, 1):
        mark = f"{number}. "
        lines.append(mark + step.replace("\n", "\n" + " " * len(mark)))
    return "\n".join(lines) + (f"\n\n{skill.body}" if skill.body else "")


def found_by(skill: Skill) -> str:
    """Return the text that searches match."""
    return " ".join([f"{skill.name.replace('-', ' ')}:", skill.description, *skill.tags])
