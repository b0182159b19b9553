"""Which call a request is for. Pure.

Paths are taken as they were sent: an id that holds a slash stands there as %2F.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from agent_memory.errors import ConfigError
from agent_memory.server.operation import Operation
from agent_memory.server.problems import NO_SUCH_CALL, WRONG_METHOD, Refused

PREFIX = "/v1"

_Shape = tuple[str | None, ...]


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
        self._shapes: dict[int, dict[_Shape, dict[str, Operation]]] = {}
        for one in operations:
            parts = one.path.strip("/").split("/")
            shape = tuple(None if part.startswith("{") else part for part in parts)
            methods = self._shapes.setdefault(len(shape), {}).setdefault(shape, {})
            if methods.setdefault(one.method, one) is not one:
                raise ConfigError(f"Two calls are {one.method} {one.path}.")
        for shapes in self._shapes.values():  # what is said outright goes before what is named
            ordered = sorted(shapes.items(), key=lambda one: [part is None for part in one[0]])
            shapes.clear()
            shapes.update(ordered)

    def match(self, method: str, raw_path: bytes) -> Match:
        """The call of a request.

        Raises:
            Refused: There is none.
        """
        parts = _parts(raw_path)
        for shape, methods in self._shapes.get(len(parts), {}).items():
            if all(wanted in (None, part) for wanted, part in zip(shape, parts, strict=True)):
                found = methods.get(method)
                if found is None:
                    raise Refused(WRONG_METHOD, Allow=", ".join(sorted(methods)))
                given = (part for wanted, part in zip(shape, parts, strict=True) if wanted is None)
                return Match(found, dict(zip(found.in_path, given, strict=True)))
        raise Refused(NO_SUCH_CALL)


def _parts(raw_path: bytes) -> list[str]:
    """What stands between the slashes, decoded; nothing for a path of another tree."""
    beginning, parts = f"{PREFIX}/".encode(), []
    if not raw_path.startswith(beginning):
        return []
    for part in raw_path.removeprefix(beginning).split(b"/"):
        try:
            parts.append(unquote_to_bytes(part).decode())
        except UnicodeDecodeError:
            return []
    return parts if all(parts) else []
