"""A skill: a procedure that is done the same way each time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Skill:
    """A reusable procedure.

    Attributes:
        name: What it is called: up to 64 of a-z, 0-9 and -.
        description: What it does, and when to use it. It is found by this.
        steps: What to do, in order.
        tags: Words to find it by.
        body: Markdown beyond the steps.
        extra: Other keys of the front matter ("license", "metadata"), which are kept.
        path: The file it was read from.
        shared: Whether it is everybody's, rather than a user's or session's own.
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
    """A file that is no skill, as it stands.

    Attributes:
        file: The file, from the folder on.
        line: The line that is to be mended, counted from 1.
        problem: What is wrong with it, and what to do.
    """

    file: str
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.problem}"


def rendered(skill: Skill) -> str:
    """A skill as a model is to read it."""
    lines = [f"{skill.name}: {skill.description}"]
    for number, step in enumerate(skill.steps, 1):
        mark = f"{number}. "
        lines.append(mark + step.replace("\n", "\n" + " " * len(mark)))
    return "\n".join(lines) + (f"\n\n{skill.body}" if skill.body else "")


def found_by(skill: Skill) -> str:
    """What a skill is found by."""
    return " ".join([f"{skill.name.replace('-', ' ')}:", skill.description, *skill.tags])
