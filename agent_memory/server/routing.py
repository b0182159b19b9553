"""Which call a request is for. Pure.

Paths are taken as they were sent: an id that holds a slash stands there as %2F.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from agent_memory.errors import ConfigError
from agent_memory.server.operation import Operation
from agent_memory.server.problems import NO_SUCH_CALL, WRONG_METHOD, Refused

PREFIX = "/v1"

_BEGINNING = f"{PREFIX}/".encode()


@dataclass(frozen=True, slots=True)
class Match:
    """A call that a request is for.

    Attributes:
        operation: The call.
        path: What stands in the path, by its names.
    """

    operation: Operation
    path: Mapping[str, str]


class Routes:
    """The calls by their paths.

    Args:
        operations: The calls.

    Raises:
        ConfigError: Two have the same method and path.
    """

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _Node()
        for one in operations:
            node = self._root
            for part in one.path.strip("/").split("/"):
                node = node.child(None if part.startswith("{") else part)
            if node.methods.setdefault(one.method, one) is not one:
                raise ConfigError(f"Two calls are {one.method} {one.path}.")

    def match(self, method: str, raw_path: bytes) -> Match:
        """The call of a request.

        Raises:
            Refused: There is none.
        """
        parts = _parts(raw_path)
        methods, values = _found(self._root, parts, 0) or ({}, ())
        if not methods:
            raise Refused(NO_SUCH_CALL)
        found = methods.get(method)
        if found is None:
            raise Refused(WRONG_METHOD, Allow=", ".join(sorted(methods)))
        return Match(found, dict(zip(found.in_path, values, strict=True)))


@dataclass(slots=True)
class _Node:
    """What may stand at a place of a path.

    Attributes:
        after: What may follow, by what stands there: None for anything that is named.
        methods: The calls whose path ends here, by their methods.
    """

    after: dict[str | None, _Node] = field(default_factory=dict)
    methods: dict[str, Operation] = field(default_factory=dict)

    def child(self, part: str | None) -> _Node:
        return self.after.setdefault(part, _Node())


def _found(
    node: _Node, parts: Sequence[str], at: int
) -> tuple[Mapping[str, Operation], tuple[str, ...]] | None:
    """The calls of a path by their methods, and what stands in it where its parts are named."""
    if at == len(parts):
        return (node.methods, ()) if node.methods else None
    said = node.after.get(parts[at])  # what is said outright goes before what is named
    found = None if said is None else _found(said, parts, at + 1)
    named = node.after.get(None)
    if found is not None or named is None:
        return found
    found = _found(named, parts, at + 1)
    return None if found is None else (found[0], (parts[at], *found[1]))


def _parts(raw_path: bytes) -> list[str]:
    """What stands between the slashes, decoded; nothing for a path of another tree."""
    parts: list[str] = []
    if not raw_path.startswith(_BEGINNING):
        return parts
    for part in raw_path.removeprefix(_BEGINNING).split(b"/"):
        try:
            parts.append(unquote_to_bytes(part).decode())
        except UnicodeDecodeError:
            return []
    return parts if all(parts) else []
