"""Statements about a life, one after the other, and the facts that follow from them.

The expected facts are derived from the statements alone, by a definition that shares no code with
`agent_memory.facts` and no answer of a model.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

BEGINNING = datetime.min.replace(tzinfo=UTC)
END = datetime.max.replace(tzinfo=UTC)
TICK = timedelta(microseconds=1)
WEIGHTS = {"assistant": 1, "user": 2}

Kind = Literal["value", "end", "denial"]


@dataclass(frozen=True)
class Statement:
    """One statement."""

    number: int
    text: str
    category: str
    thing: str
    stretch: int
    kind: Kind
    at: datetime
    since: str | None
    until: str | None
    begin: datetime
    end: datetime
    corrects: bool = False
    again: int | None = None
    role: str = "user"
    session: str = ""
    seq: int = 0

    @property
    def root(self) -> int:
        """The number of the first statement that says the same."""
        return self.number if self.again is None else self.again

    @property
    def weight(self) -> int:
        return WEIGHTS[self.role]


def around(moments: Collection[datetime]) -> list[datetime]:
    return sorted({at + shift for at in moments for shift in (-TICK, timedelta(), TICK)})


@dataclass(frozen=True)
class Expected:
    """The facts that must hold: statements, each with its derived begin and end."""

    standing: tuple[tuple[Statement, datetime, datetime], ...]

    def at(self, moment: datetime) -> list[str]:
        """Return the texts of the facts that held at a moment, sorted."""
        return sorted(one.text for one in self.in_force(moment))

    def in_force(self, moment: datetime) -> Iterator[Statement]:
        """Yield the facts that held: of each thing the latest, from the role of most weight."""
        best: dict[str, tuple[tuple[int, datetime, int], Statement, datetime]] = {}
        for one, begin, cut in self.standing:
            if begin <= moment < one.end:
                key = (one.weight, begin, one.number)
                thing = f"denial {one.number}" if one.kind == "denial" else one.thing
                if thing not in best or best[thing][0] < key:
                    best[thing] = (key, one, cut)
        for _, one, cut in best.values():
            if moment < cut:
                yield one


def expected(statements: Sequence[Statement]) -> Expected:
    """Return the facts that follow from statements that were not taken back."""
    groups: dict[int, list[Statement]] = {}
    for one in statements:
        groups.setdefault(one.root, []).append(one)
    spoken = [max(group, key=lambda one: (one.weight, -one.number)) for group in groups.values()]
    said = {one.number: groups[one.root] for one in spoken}
    right = [one for one in spoken if not any(_corrects(other, one) for other in spoken)]
    values = [one for one in right if one.kind == "value"]
    ends = [one for one in right if one.kind == "end"]

    def ends_it(end: Statement, value: Statement) -> bool:
        if (end.thing, end.stretch) != (value.thing, value.stretch):
            return False
        versions = [value]
        if value.corrects:
            versions += [one for one in spoken if _corrects(value, one)]
        return any(told.number < end.number for one in versions for told in said[one.number])

    standing: list[tuple[Statement, datetime, datetime]] = []
    for one in right:
        begin, cut = one.begin, one.end
        if one.kind == "end":
            begun = [v for v in values if ends_it(one, v) and v.begin < one.end]
            begin = max(begun, key=lambda v: (v.weight, v.number)).begin if begun else BEGINNING
        elif one.kind == "value" and begin > BEGINNING:
            cuts = [e.end for e in ends if ends_it(e, one) and begin < e.end]
            cut = min([cut, *cuts])
        standing.append((one, begin, cut))
    return Expected(tuple(standing))


def _corrects(later: Statement, earlier: Statement) -> bool:
    """Return whether a statement says that an earlier one was never true."""
    if (later.thing, later.stretch) != (earlier.thing, earlier.stretch):
        return False
    if later.number <= earlier.number or later.weight < earlier.weight:
        return False
    if later.kind == "denial":
        return earlier.kind != "denial"
    return later.corrects and later.kind == earlier.kind
