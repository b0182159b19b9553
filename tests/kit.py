"""Helpers that tests of several folders share: fixtures, messages, texts, the command line."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")


def in_core() -> bool:
    """Whether only the core runs; see `--layer` in `tests.conftest`."""
    return settings().max_examples < 100


def at_length(count: int) -> int:
    """Return `count`, or a quarter of it where only the core runs."""
    return -(-count * settings().max_examples // 100)


def every_nth(cases: Iterable[T], step: int) -> Iterable[T]:
    """Return all cases, or every `step`-th where only the core runs."""
    return islice(cases, 0, None, step if in_core() else 1)
