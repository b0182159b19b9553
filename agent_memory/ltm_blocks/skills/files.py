"""`Skill`, and functions that parse and write skill files (YAML front matter, Markdown). Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from agent_memory.core.limits import is_encodable, quoted, text_of
from agent_memory.errors import InvalidInput

_MAX_DEPTH = 20
_OTHER_BREAK = re.compile("[\x85\u2028\u2029]")
_QUOTES = "Put a text in quotes if it contains ': ' or ' #', or begins with a sign such as - or @."


@dataclass(frozen=True, slots=True)
class Skill:
    """A reusable procedure.

    Attributes:
        name: The name: up to 64 of a-z, 0-9 and -.
        description: The purpose of the skill, and when to use it. Searches match it.
        tags: Words that searches match.
        body: Markdown text of the file, without the steps.
        extra: Other keys of the front matter ("license", "metadata"), which are preserved.
        path: The file of the skill; None if it was not read from a file.
        shared: Whether all users see the skill, rather than one user or session.
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


def search_text(skill: Skill) -> str:
    """Return the text that searches match."""
    return " ".join([f"{skill.name.replace('-', ' ')}:", skill.description, *skill.tags])


class Unreadable(InvalidInput):
    """A file is not a valid skill."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def front_matter(text: str) -> dict[str, yaml.Node]:
    """Return the values of a front matter by key. Its text begins in line 2 of the file.

    Raises:
        Unreadable: The text is not a YAML mapping, or uses anchors, tags or deep nesting.
    """
    try:
        _check_plain(text)
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error) from None
    except yaml.reader.ReaderError as error:
        line = 2 + text.count("\n", 0, error.position)
        raise Unreadable(line, "This line contains a control character. Remove it.") from None
    nodes: dict[str, yaml.Node] = {}
    if root is not None and not isinstance(root, yaml.MappingNode):
        raise _refused(root, "This line does not have the form `name: value`. Change it.")
    for key, node in root.value if root is not None else ():
        if not isinstance(key, yaml.ScalarNode):
            raise _refused(key, "This key is not a word. Use a word.")
        if key.value in nodes:
            raise _refused(key, f"`{key.value}` is repeated here. Keep one of them.")
        nodes[key.value] = node
    return nodes


def _check_plain(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if getattr(event, "anchor", None) is not None:
            problem = "Anchors and aliases (& and *) are not supported. Write the value out."
        elif getattr(event, "tag", None) is not None:
            problem = "Tags (!) are not supported. Remove the tag, or put the text in quotes."
        elif depth > _MAX_DEPTH:
            problem = f"This value is nested more than {_MAX_DEPTH} deep. Flatten it."
        elif isinstance(event, yaml.ScalarEvent) and not is_encodable(event.value):
            problem = "This text contains half of a surrogate pair. Write the whole character."
        else:
            continue
        raise _refused(event, problem)


def _text(nodes: Mapping[str, yaml.Node], key: str) -> str:
    """Return the text of a key as written, even if YAML reads it as another type (yes, 1)."""
    node = nodes.get(key)
    if node is None:
        raise Unreadable(1, f"`{key}` is missing. Add a line `{key}: ...` below this one.")
    if not isinstance(node, yaml.ScalarNode):
        raise _refused(node, f"`{key}` is not a text. {_QUOTES}")
    if not node.value.strip():
        raise _refused(node, f"`{key}` is empty. Write a text after the colon.")
    return str(node.value)


def _texts(nodes: Mapping[str, yaml.Node], key: str) -> tuple[str, ...] | None:
    """Return the list of texts of a key; None if the key is missing."""
    node = nodes.get(key)
    if node is None:
        return None
    if isinstance(node, yaml.ScalarNode) and not node.value:
        return ()
    if not isinstance(node, yaml.SequenceNode):
        raise _refused(node, f"`{key}` is not a list. Put each item on its own line, after a dash.")
    for item in node.value:
        if not isinstance(item, yaml.ScalarNode):
            raise _refused(item, f"This item of `{key}` is not a text. {_QUOTES}")
    return tuple(str(item.value) for item in node.value)


def _value(node: yaml.Node) -> Any:
    try:
        return yaml.SafeLoader("").construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error) from None
    except (ValueError, OverflowError):  # the value is a date or number that does not exist
        raise _refused(node, "This value is not valid YAML. Put it in quotes.") from None


def _not_yaml(error: yaml.MarkedYAMLError) -> Unreadable:
    line, since = _line(error.problem_mark or error.context_mark), ""
    if error.context_mark is not None and (begun := _line(error.context_mark)) != line:
        since = f", in the part that begins in line {begun}"
    return Unreadable(line, f"This is not YAML: {error.problem}{since}. {_QUOTES}")


def _refused(place: yaml.Node | yaml.Event, problem: str) -> Unreadable:
    return Unreadable(_line(place.start_mark), problem)


def _line(mark: Any) -> int:
    """Return the line in the file. YAML counts more characters as line ends than editors do."""
    return 1 if mark is None else 2 + mark.buffer.count("\n", 0, mark.index)


def as_yaml(values: Mapping[str, Any]) -> str:
    """Return keys and values as readable YAML."""
    try:
        return yaml.dump(
            dict(values),
            Dumper=_Dumper,
            default_flow_style=False,
            allow_unicode=True,
            sort_keys=False,
            width=float("inf"),
        )
    except yaml.representer.RepresenterError as error:
        raise InvalidInput(
            f"YAML cannot represent {error.args[1]!r}. Use texts, numbers, lists and dicts."
        ) from None


class _Dumper(yaml.SafeDumper):
    """A `yaml.SafeDumper` without aliases, and with block style for texts of several lines."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if _OTHER_BREAK.search(text):  # unless they are escaped, YAML reads these breaks as blanks
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text_node)


_FENCE = "---"
_KEYS = ("name", "description", "tags", "steps")
_NAMED = "up to 64 of a-z, 0-9 and -, with no - first, and no name of a Windows device such as con"
# Windows device names are reserved with any extension
_NAME = re.compile(r"(?!(?:con|prn|aux|nul|com[0-9]|lpt[0-9])\Z)[a-z0-9][a-z0-9-]{0,63}")
_ITEM = re.compile(r"[0-9]{1,9}[.)][ \t]+(?=\S)")
_OTHER_BLOCK = re.compile(r"[#>`~*+-]")
_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")


def parse(data: bytes, file: str) -> Skill | BrokenSkill:
    """Return the skill in a file's content, or its problem. `file` is the name to report."""
    try:
        return _parsed(_decoded(data))
    except Unreadable as error:
        return BrokenSkill(file, error.line, str(error))


def render(skill: Skill) -> bytes:
    """Return a skill as the content of a file. `parse` restores a skill that `checked` returned."""
    fields = {
        "name": skill.name,
        "description": skill.description,
        "tags": list(skill.tags),
        "steps": list(skill.steps),
    }
    body = f"\n{skill.body}\n" if skill.body else ""
    text = f"{_FENCE}\n{as_yaml({**fields, **skill.extra})}{_FENCE}\n{body}"
    return text.encode("utf-8", "surrogatepass")


def checked(skill: Skill, max_bytes: int) -> Skill:
    """Validate a skill, and return it as `parse` would return it from a file.

    Its texts are stripped, and empty steps and tags are dropped.
    """
    if not isinstance(skill, Skill):
        raise InvalidInput(f"The skill is {quoted(skill)}. Give a Skill.")
    for texts, what in ((skill.steps, "steps"), (skill.tags, "tags")):
        if not isinstance(texts, list | tuple) or not all(isinstance(x, str) for x in texts):
            raise InvalidInput(f"{what} is {quoted(texts)}. Give a list of texts.")
    for text, what in ((skill.description, "description"), (skill.body, "body")):
        text_of(what, text)
    if not isinstance(skill.name, str) or not _NAME.fullmatch(skill.name):
        raise InvalidInput(f"{quoted(skill.name)} is not a skill name. Use {_NAMED}.")
    skill = _tidy(skill)
    if not skill.description:
        raise InvalidInput(
            "The description is missing. Say what the skill does and when to use it."
        )
    data = render(skill)
    if len(data) > max_bytes:
        raise InvalidInput(
            f"The skill {skill.name!r} takes {len(data)} bytes; the maximum is {max_bytes}. "
            "Shorten or split it."
        )
    read = parse(data, skill.name)
    if isinstance(read, BrokenSkill):
        raise InvalidInput(f"The skill {skill.name!r} cannot be saved. {read.problem}")
    if read != skill:
        raise InvalidInput(
            f"The skill {skill.name!r} cannot be saved: a file would not restore it exactly. "
            "All fields except `extra` must be texts or lists of texts. `extra` may hold texts, "
            "numbers, lists and dicts, and no key of another field."
        )
    return skill


def _parsed(text: str) -> Skill:
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        raise Unreadable(
            1, "The file must begin with a line ---, then `name` and `description`, then ---."
        )
    end = next((n for n, line in enumerate(lines) if n and line.rstrip() == _FENCE), None)
    if end is None:
        raise Unreadable(1, "The front matter does not end. Put a line --- below its last key.")
    nodes = front_matter("".join(f"{line}\n" for line in lines[1:end]))
    name, description = _text(nodes, "name"), _text(nodes, "description")
    if not _NAME.fullmatch(name):
        raise _refused(nodes["name"], f"`name` has to be {_NAMED}.")
    body, steps = "\n".join(lines[end + 1 :]), _texts(nodes, "steps")
    if steps is None:
        steps, body = _numbered(body)
    tags = _texts(nodes, "tags") or ()
    extra = {key: _value(node) for key, node in nodes.items() if key not in _KEYS}
    return _tidy(Skill(name, description, steps, tags, body, extra))


def _decoded(data: bytes) -> str:
    try:
        return _unix(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = 1 + _unix(data[: error.start].decode("utf-8", "replace")).count("\n")
        raise Unreadable(line, "This is not UTF-8. Save the file as UTF-8.") from None


def _numbered(body: str) -> tuple[tuple[str, ...], str]:
    """Return the items of the numbered list at the top of a text, and the remaining text."""
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
    rests = (textwrap.dedent("\n".join(item[1:])) for item in items)
    steps = tuple(f"{item[0]}\n{rest}" for item, rest in zip(items, rests, strict=True))
    return steps, "\n".join([*lines[:first], *lines[end:]])


def _goes_on(before: str, line: str) -> bool:
    """Return whether an unindented line continues the paragraph before it."""
    return bool(before.strip()) and not _OTHER_BLOCK.match(line)


def _tidy(skill: Skill) -> Skill:
    return replace(
        skill,
        description=_unix(skill.description).strip(),
        steps=_tidied(skill.steps),
        tags=_tidied(skill.tags),
        body=_BLANK_LINES.sub("", _unix(skill.body)).rstrip(),
    )


def _tidied(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(text for item in texts if (text := _unix(item).strip()))


def _unix(text: str) -> str:
    """Return a text with line feeds as line ends, as YAML and Markdown both read them."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
