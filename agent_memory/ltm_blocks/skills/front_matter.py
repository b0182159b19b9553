"""The YAML at the top of a skill file, read with the lines of its keys. Pure.

Plain YAML only: no aliases, which can stand for more than any memory holds, and no tags, which can
stand for any kind of object.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import yaml

from agent_memory.errors import InvalidInput

_MAX_DEPTH = 20
_SURROGATE = re.compile("[\ud800-\udfff]")
_OTHER_BREAK = re.compile("[\x85\u2028\u2029]")
_QUOTES = "A text that holds ': ' or ' #', or begins with a sign, has to stand in quotes."


class Unreadable(InvalidInput):
    """A file is not a skill.

    Args:
        line: Where.
        problem: What is wrong, and what to do.
    """

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


class FrontMatter:
    """Keys and values, and where they stand.

    Args:
        text: The YAML.
        line: The line of the file that it follows.

    Raises:
        Unreadable: It is not a mapping in plain YAML.
    """

    def __init__(self, text: str, line: int) -> None:
        self._text = text
        self._before = line
        self._values: dict[str, yaml.Node] = {}
        self._loader: _Loader | None = None
        try:
            self._loader = _Loader(text)
            root = self._loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            raise self._refused(error) from None
        except yaml.reader.ReaderError as error:
            problem = "A character stands here that no text file has. Take it out."
            raise Unreadable(self._line(error.position), problem) from None
        if root is not None and not isinstance(root, yaml.MappingNode):
            raise Unreadable(
                self._line_of(root), "This is not a line like `name: value`. Make it one."
            )
        for key, value in root.value if root is not None else ():
            if not isinstance(key, yaml.ScalarNode):
                raise Unreadable(self._line_of(key), "A key has to be a word.")
            if key.value in self._values:
                problem = f"`{key.value}` stands here a second time. Leave one of them."
                raise Unreadable(self._line_of(key), problem)
            self._values[key.value] = value

    def text(self, key: str) -> str:
        """A text, as it is written; "2024" and "yes" are texts here.

        Raises:
            Unreadable: It is missing, or empty, or not a text.
        """
        node = self._values.get(key)
        if node is None:
            problem = f"`{key}` is missing. Add a line `{key}: ...` below this one."
            raise Unreadable(self._before, problem)
        if not isinstance(node, yaml.ScalarNode):
            raise Unreadable(self._line_of(node), f"`{key}` has to be a text. {_QUOTES}")
        if not node.value.strip():
            raise Unreadable(self._line_of(node), f"`{key}` is empty. Write it after the colon.")
        return str(node.value)

    def texts(self, key: str) -> tuple[str, ...] | None:
        """A list of texts; None where the key is missing.

        Raises:
            Unreadable: It is something else.
        """
        node = self._values.get(key)
        if node is None:
            return None
        if isinstance(node, yaml.ScalarNode) and not node.value:
            return ()
        if not isinstance(node, yaml.SequenceNode):
            problem = f"`{key}` has to be a list: each on a line of its own, after a dash."
            raise Unreadable(self._line_of(node), problem)
        for item in node.value:
            if not isinstance(item, yaml.ScalarNode):
                problem = f"Each of `{key}` has to be a text, and this is not. {_QUOTES}"
                raise Unreadable(self._line_of(item), problem)
        return tuple(str(item.value) for item in node.value)

    def others(self, known: Collection[str]) -> dict[str, Any]:
        """The values of all other keys.

        Raises:
            Unreadable: One has no value, such as 2024-02-31.
        """
        return {key: self._value(node) for key, node in self._values.items() if key not in known}

    def line(self, key: str) -> int:
        """The line of a key's value."""
        return self._line_of(self._values[key])

    def _value(self, node: yaml.Node) -> Any:
        assert self._loader is not None
        try:
            return self._loader.construct_document(node)
        except yaml.MarkedYAMLError as error:
            raise self._refused(error) from None
        except (ValueError, OverflowError):  # a date or a number that there is not
            problem = "No value is written like this. Put it in quotes."
            raise Unreadable(self._line_of(node), problem) from None

    def _refused(self, error: yaml.MarkedYAMLError) -> Unreadable:
        mark = error.problem_mark or error.context_mark
        line = self._line(mark.index) if mark is not None else self._before
        if isinstance(error, _NotPlain):
            return Unreadable(line, str(error.problem))
        since = ""
        if error.context_mark is not None and self._line(error.context_mark.index) != line:
            since = f", in what begins in line {self._line(error.context_mark.index)}"
        return Unreadable(line, f"This is not YAML: {error.problem}{since}. {_QUOTES}")

    def _line_of(self, node: yaml.Node) -> int:
        return self._line(node.start_mark.index)

    def _line(self, index: int) -> int:
        # YAML's own count takes more characters for the end of a line than editors do
        return self._before + 1 + self._text.count("\n", 0, index)


def as_yaml(values: Mapping[str, Any]) -> str:
    """Keys and values as YAML that people like to read.

    Raises:
        InvalidInput: A value is nothing that YAML knows.
    """
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
            f"{error.args[1]!r} is nothing that YAML knows. Give texts, numbers, lists and dicts."
        ) from None


class _NotPlain(yaml.MarkedYAMLError):
    """YAML that is more than texts, lists and mappings."""


class _Loader(yaml.SafeLoader):
    """As `yaml.SafeLoader`, but for plain YAML only."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        problem = _problem(event, self._depth)
        if problem is not None:
            raise _NotPlain(problem=problem, problem_mark=event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _problem(event: Any, depth: int) -> str | None:
    if event.anchor is not None:
        return "A name with & or * is not read here. Write out what it stands for."
    if event.tag is not None:
        return "A tag with ! is not read here. Leave it out, or put it in quotes."
    if depth == _MAX_DEPTH:
        return f"This is nested more than {_MAX_DEPTH} deep. Flatten it."
    if isinstance(event, yaml.ScalarEvent) and _SURROGATE.search(event.value):
        return "This text holds half of a surrogate pair. Write the whole character."
    return None


class _Dumper(yaml.SafeDumper):
    """As `yaml.SafeDumper`, but without aliases, and with texts of several lines as such."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if _OTHER_BREAK.search(text):  # written as they are, they would be read as blanks
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)
