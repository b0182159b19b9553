"""SQL statements as a driver takes them: text, and the names of parameters and columns."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar

from agent_memory.core.lazy import made_once

V = TypeVar("V")


@dataclass(frozen=True)
class Statement:
    """One statement of a dialect.

    Attributes:
        text: With a mark for each parameter, and `[name]` in place of the marks of one that is a
            list.
        names: Its parameters, in order.
        columns: Of its rows; none where it returns none.
        list_name: The parameter that is a list, if there is one.
        mark: What stands for a parameter.
    """

    text: str
    names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    list_name: str | None = None
    mark: str = "?"

    def filled(self, values: Mapping[str, Any]) -> tuple[str, Sequence[Any]]:
        """Text and parameters for these values."""
        if self.list_name is None:
            return self.text, self._taken(values)
        marks = ", ".join([self.mark] * len(values[self.list_name]))
        parameters: list[Any] = []
        for name in self.names:
            if name == self.list_name:
                parameters += values[name]
            else:
                parameters.append(values[name])
        return self.text.replace(f"[{self.list_name}]", marks), parameters

    @made_once
    def _taken(self) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
        """Takes the parameters out of values."""
        if len(self.names) > 1:
            return itemgetter(*self.names)
        return lambda values: [values[name] for name in self.names]

    @made_once
    def row(self) -> Callable[[Iterable[Any]], Any]:
        """Makes a row with named columns."""
        kind: Any = namedtuple("Row", self.columns)  # type: ignore[misc]
        make: Callable[[Iterable[Any]], Any] = kind._make
        return make


@dataclass(frozen=True)
class Words:
    """All that a dialect needs.

    Attributes:
        dialect: Its name.
        schema: What makes all tables and indexes, in order.
        statements: By name.
    """

    dialect: str
    schema: Sequence[str]
    statements: Mapping[str, Statement]


_CHUNK = 500


def chunks(values: Collection[V], each: int = _CHUNK) -> Iterator[list[V]]:
    """Values in lists that are not too long for one statement."""
    all_of_them = list(values)
    for start in range(0, len(all_of_them), each):
        yield all_of_them[start : start + each]


def named(what: str, given: Sequence[str]) -> str:
    """Name of a statement of which there is one for each choice of conditions."""
    return "_by_".join((what, *given))
