"""The lines of a snapshot: JSON, each with a digest of the whole file so far.

A line's `sum` is the beginning of the SHA-256 of all bytes before it, those of its own line
included. So whatever was altered, left out or put in is told by the first line that it touches.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from agent_memory.errors import InvalidSnapshot

FORMAT = "agent-memory.session"
VERSION = 1

_DIGITS = 32
_SUM = ',"sum":"%s"}\n'
_SUMMED = re.compile(rb',"sum":"([0-9a-f]{32})"}\n\Z')


class Digest:
    """What the lines so far add up to."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def whole(self) -> str:
        """Of all lines so far."""
        return self._sha.hexdigest()

    def summed(self, body: str) -> str:
        """The next line: a JSON object with its sum."""
        begun = body[:-1]
        self._sha.update(begun.encode())
        end = _SUM % self._sha.hexdigest()[:_DIGITS]
        self._sha.update(end.encode())
        return begun + end

    def holds(self, line: bytes) -> bool:
        """Whether the next line has the sum that it should have."""
        found = _SUMMED.search(line)
        if found is None:
            return False
        self._sha.update(line[: found.start()])
        right = self._sha.hexdigest()[:_DIGITS].encode() == found[1]
        self._sha.update(line[found.start() :])
        return right


def checked(lines: Iterable[bytes]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The lines of a snapshot without their sums.

    Yields:
        A line's number, from 1; the digest of all lines before it; what it holds.

    Raises:
        InvalidSnapshot: A line is not what was written there; nothing of it was given.
    """
    digest = Digest()
    number = 0
    for number, line in enumerate(lines, 1):
        before = digest.whole()
        if number == 1:
            _check_format(line)
        if not line.endswith(b"\n"):
            raise refused(number, "the file is cut off in the middle of this line")
        if not digest.holds(line):
            raise refused(number, "it is not as it was written, or a line before it is missing")
        fields = _parsed(number, line)
        fields.pop("sum")
        yield number, before, fields
    if not number:
        raise InvalidSnapshot("line 1: the file is empty; a snapshot of a session has lines.")


def refused(number: int, why: str) -> InvalidSnapshot:
    """The error that says where a snapshot is not usable, and why."""
    return InvalidSnapshot(
        f"line {number}: {why}. Nothing was imported; use a copy of the file that is whole."
    )


def _check_format(line: bytes) -> None:
    """Tell what is no snapshot, or a later one's, from one that was altered."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    version = fields.get("version") if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise refused(1, "this is not the beginning of a session's snapshot")
    if type(version) is int and version > VERSION:
        raise InvalidSnapshot(
            f"line 1: the snapshot has version {version} of the format, and this release reads up "
            f"to {VERSION}. Nothing was imported; install a newer agent-memory."
        )


def _parsed(number: int, line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise refused(number, f"it is not plain JSON ({error})") from None
    if not isinstance(fields, dict):
        raise refused(number, "it is not a JSON object")
    return fields


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _no_constant(digits)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
