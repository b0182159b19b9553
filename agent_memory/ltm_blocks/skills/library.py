"""The folder of skill files. Shared files are at the top, and an owner's files in `users/`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from agent_memory.core.cache import Cache
from agent_memory.errors import InvalidInput, StoreUnavailable
from agent_memory.ltm_blocks.skills.files import BrokenSkill, Skill, parse, render

_OWN = "users"
_MANIFEST = "SKILL.md"
_MOST_CACHED = 2_000  # maximum number of cached files


@dataclass(frozen=True, slots=True)
class SkillSet:
    """The skills by name, and the files that are not valid skills."""

    skills: dict[str, Skill]
    broken: list[BrokenSkill]


class Library:
    """Skill files, which are parsed again when their content changes. Thread-safe.

    An `owner` is the name of a directory, or None for the shared skills.

    Args:
        max_bytes: Maximum size of a file.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._parsed: Cache[tuple[str, bytes], Skill | BrokenSkill] = Cache(_MOST_CACHED)

    def read(self, owner: str | None) -> SkillSet:
        """Return the current content of an owner's files.

        Raises:
            StoreUnavailable: The folder cannot be read.
        """
        home = self._home(owner)
        if not self._holds(home):
            return SkillSet({}, [self._outside(home)])
        result = SkillSet({}, [])
        with _usable():
            read = {path: self._read(path) for path in self._files(home)}
        for path, content in read.items():
            if isinstance(content, BrokenSkill):
                result.broken.append(content)
            elif content is not None and (other := result.skills.get(content.name)):
                assert other.path is not None
                problem = f"{self._shown(other.path)} has this `name` too. Rename one of them."
                result.broken.append(self._broken(path, problem))
            elif content is not None:
                result.skills[content.name] = replace(content, path=path, shared=owner is None)
        return result

    def shown(self, owner: str | None) -> SkillSet:
        """Return the skills that an owner sees: the shared skills and the owner's own skills.

        An owner's skill with the name of a shared skill is reported as broken.
        """
        everybodys = self.read(None)
        if owner is None:
            return everybodys
        own = self.read(owner)
        problem = "A shared skill has this `name` and takes precedence. Use another name."
        hidden = [
            self._broken(skill.path, problem)
            for name, skill in own.skills.items()
            if name in everybodys.skills and skill.path is not None
        ]
        skills = {**own.skills, **everybodys.skills}
        return SkillSet(skills, [*everybodys.broken, *own.broken, *hidden])

    def owners(self) -> list[str]:
        """Return the owners that have a directory."""
        with _usable():
            return sorted(_listed(self._folder / _OWN))

    def save(self, owner: str | None, skill: Skill) -> Skill:
        """Write a skill's file atomically, and replace the skill's former file.

        Pass the skill through `files.checked` first.

        Raises:
            InvalidInput: A file with the skill's name exists and is not this skill; nothing was
                written.
            StoreUnavailable: The folder cannot be written.
        """
        home, name = self._home(owner), skill.name
        if not self._holds(home):
            raise InvalidInput(str(self._outside(home)))
        old, path = self.read(owner).skills.get(name), home / f"{name}.md"
        if old is not None and old.path is not None:
            path = old.path
        elif os.path.lexists(path):
            raise InvalidInput(
                f"{self._shown(path)} exists and is not the skill {name!r}. Fix or remove the "
                "file, or use another name."
            )
        with _usable():
            _write(path, render(skill))
        return replace(skill, path=path, shared=owner is None)

    def drop(self, owner: str | None, name: str) -> bool:
        """Remove a skill's file, and return whether it existed."""
        skill = self.read(owner).skills.get(name)
        if skill is None or skill.path is None:
            return False
        with _usable():
            skill.path.unlink(missing_ok=True)
        return True

    def clear(self, owner: str) -> None:
        """Remove an owner's directory with everything in it. Idempotent."""
        home = self._home(owner)
        if not self._holds(home.parent):
            return
        with _usable():
            if home.is_symlink():
                home.unlink()
            elif home.exists():
                shutil.rmtree(home)

    def _home(self, owner: str | None) -> Path:
        return self._folder if owner is None else self._folder / _OWN / owner

    def _files(self, home: Path) -> Iterator[Path]:
        for name in sorted(_listed(home)):
            path = home / name
            if name.startswith("."):
                continue
            if os.path.isdir(path):
                if os.path.lexists(path / _MANIFEST):
                    yield path / _MANIFEST
            elif name.endswith(".md") and name.lower() != "readme.md":
                yield path

    def _read(self, path: Path) -> Skill | BrokenSkill | None:
        try:
            is_link = path.is_symlink() or path.parent.is_symlink()
            if is_link and not self._holds(path):
                return self._outside(path)
            if path.exists() and not path.is_file():  # opening a pipe could block
                return self._unreadable(path, "it is not a file")
            with path.open("rb") as file:
                data = file.read(self._max_bytes + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            return self._unreadable(path, str(error.strerror))
        if len(data) > self._max_bytes:
            return self._unreadable(path, f"it has more than {self._max_bytes} bytes")
        name = self._shown(path)
        return self._parsed.computed((name, data), lambda: parse(data, name))

    def _holds(self, path: Path) -> bool:
        """Return whether a path, with links resolved, is in the folder."""
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self._folder))

    def _outside(self, path: Path) -> BrokenSkill:
        problem = "This link leads out of the folder. Put the files themselves here."
        return self._broken(path, problem)

    def _unreadable(self, path: Path, why: str) -> BrokenSkill:
        return self._broken(path, f"The file cannot be read: {why}. Fix or remove the file.")

    def _broken(self, path: Path, problem: str) -> BrokenSkill:
        return BrokenSkill(self._shown(path), 1, problem)

    def _shown(self, path: Path) -> str:
        name = path.relative_to(self._folder).as_posix()
        return os.fsencode(name).decode("utf-8", "replace")


def _listed(home: Path) -> list[str]:
    try:
        return os.listdir(home)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.parent / f".{uuid4().hex}.tmp"
    try:
        with written.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


@contextmanager
def _usable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"The folder of skills could not be used: {error.strerror}. Check that this process "
            "may read and write the folder, and try again."
        ) from error
