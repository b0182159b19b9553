"""One skill file: its bytes as a `Skill`, or what is wrong with them and where; and back. Pure.

    ---
    name: deploy
    description: Roll a release out. Use when someone asks to ship.
    tags: [ops]
    steps:
    - Run the tests.
    - Tag the release.
    ---

    What else there is to say, as Markdown.

Anthropic's Agent Skills (SKILL.md) are such files. Without `steps` the numbered list at the top of
the Markdown counts as steps; only headings may stand before it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace

from agent_memory.core.limits import quoted
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.skills.front_matter import FrontMatter, Unreadable, as_yaml
from agent_memory.ltm_blocks.skills.skill import BrokenSkill, Skill

_FENCE = "---"
_KEYS = ("name", "description", "tags", "steps")
_NAMED = "up to 64 of a-z, 0-9 and -, with no - first, and not a device's name, such as con"
# a device of Windows is one with any ending
_NAME = re.compile(r"(?!(?:con|prn|aux|nul|com[0-9]|lpt[0-9])\Z)[a-z0-9][a-z0-9-]{0,63}")
_ITEM = re.compile(r"[0-9]{1,9}[.)][ \t]+(?=\S)")
_OTHER_BLOCK = re.compile(r"[#>`~*+-]")
_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")


def parse(data: bytes, file: str) -> Skill | BrokenSkill:
    """What a file says.

    Args:
        data: Its bytes.
        file: What it is called, should it be broken.
    """
    try:
        return _parsed(_decoded(data))
    except Unreadable as error:
        return BrokenSkill(file, error.line, str(error))


def render(skill: Skill) -> bytes:
    """A skill that is `checked` as a file, which `parse` reads as the same skill."""
    said = {
        "name": skill.name,
        "description": skill.description,
        "tags": list(skill.tags),
        "steps": list(skill.steps),
    }
    body = f"\n{skill.body}\n" if skill.body else ""
    text = f"{_FENCE}\n{as_yaml({**said, **skill.extra})}{_FENCE}\n{body}"
    return text.encode("utf-8", "surrogatepass")


def checked(skill: Skill, max_bytes: int) -> Skill:
    """A skill as a file gives it back: without blanks around its texts, and without empty ones.

    Raises:
        InvalidInput: No file of that length can say it.
    """
    if not isinstance(skill, Skill):
        raise InvalidInput(f"The skill is {quoted(skill)}. Give a Skill.")
    if isinstance(skill.steps, str) or isinstance(skill.tags, str):
        raise InvalidInput('Steps and tags are lists of texts, such as ["Run the tests."].')
    if not isinstance(skill.name, str) or not _NAME.fullmatch(skill.name):
        raise InvalidInput(f"{quoted(skill.name)} is no name for a skill: it has to be {_NAMED}.")
    skill = _tidy(skill)
    if not skill.description:
        raise InvalidInput("A skill needs a description: what it does, and when to use it.")
    data = render(skill)
    if len(data) > max_bytes:
        raise InvalidInput(
            f"The skill {skill.name!r} takes {len(data)} bytes; at most {max_bytes} are kept. "
            "Shorten it, or make several of it."
        )
    read = parse(data, skill.name)
    if isinstance(read, BrokenSkill):
        raise InvalidInput(f"The skill {skill.name!r} cannot be saved. {read.problem}")
    if read != skill:
        raise InvalidInput(
            f"The skill {skill.name!r} cannot be saved: a file would not give it back as it is. "
            "Give texts; and as `extra` texts, numbers, lists and dicts by keys of their own."
        )
    return skill


def _parsed(text: str) -> Skill:
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        raise Unreadable(
            1, "The file has to begin with a line ---, then `name` and `description`, then ---."
        )
    end = next((n for n, line in enumerate(lines) if n and line.rstrip() == _FENCE), None)
    if end is None:
        raise Unreadable(1, "The front matter does not end. Put a line --- below its last key.")
    front = FrontMatter("".join(f"{line}\n" for line in lines[1:end]), 1)
    name, description = front.text("name"), front.text("description")
    if not _NAME.fullmatch(name):
        raise Unreadable(front.line("name"), f"`name` has to be {_NAMED}.")
    body, steps = "\n".join(lines[end + 1 :]), front.texts("steps")
    if steps is None:
        steps, body = _numbered(body)
    tags, extra = front.texts("tags") or (), front.others(_KEYS)
    return _tidy(Skill(name, description, steps, tags, body, extra))


def _decoded(data: bytes) -> str:
    try:
        return _unix(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = 1 + _unix(data[: error.start].decode("utf-8", "replace")).count("\n")
        raise Unreadable(line, "This is not UTF-8. Save the file as UTF-8.") from None


def _numbered(body: str) -> tuple[tuple[str, ...], str]:
    """The items of the numbered list at the top of a text, and the text without it."""
    lines = body.split("\n")
    first = next((n for n, line in enumerate(lines) if line.strip() and line[0] != "#"), len(lines))
    items: list[list[str]] = []
    end = first
    for line in lines[first:]:
        item = _ITEM.match(line)
        if item:
            items.append([line[item.end() :]])
        elif items and (not line.strip() or line[0] in " \t" or _goes_on(items[-1][-1], line)):
            items[-1].append(line)
        else:
            break
        end += 1
    if not items:
        return (), body
    steps = tuple(f"{item[0]}\n{textwrap.dedent(_text(item[1:]))}" for item in items)
    return steps, _text([*lines[:first], *lines[end:]])


def _goes_on(before: str, line: str) -> bool:
    """Whether a line that is not indented belongs to the paragraph before it."""
    return bool(before.strip()) and not _OTHER_BLOCK.match(line)


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines)


def _tidy(skill: Skill) -> Skill:
    return replace(
        skill,
        description=_unix(skill.description).strip(),
        steps=_tidied(skill.steps),
        tags=_tidied(skill.tags),
        body=_BLANK_LINES.sub("", _unix(skill.body)).rstrip(),
    )


def _tidied(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(text for one in texts if (text := _unix(one).strip()))


def _unix(text: str) -> str:
    """A text with the ends of lines that YAML and Markdown take alike."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
