"""Lives of users, and conversations that tell them in another order."""

import random
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from tests.integration.statements import BEGINNING, END, Kind, Statement, around

ATTRIBUTES = {
    "home": (
        "Lives in {}.",
        "Lima Oslo Rome Cairo Paris Delhi Quito Seoul Tunis Hanoi Kyiv Bern Doha",
    ),
    "work": (
        "Works at {}.",
        "Acme Globex Initech Umbra Hooli Vandelay Stark Wonka Cyber Tyrell Aviato Soylent Oscorp",
    ),
    "diet": (
        "Eats {} food.",
        "vegan kosher halal raw spicy mild whole plain rich light sour sweet fried",
    ),
    "partner": ("Loves {}.", "Ada Ben Cleo Dan Eva Finn Gus Hana Ivo Jule Kim Leo Mia"),
}
SESSIONS = ("s1", "s2", "s3")
_JOURNEY, _PLACES = "Travels to {}.", ("Bali", "Malta", "Tokyo")
_FIRST, _LAST_TOLD, _DAY = date(2012, 1, 1), date(2025, 6, 1), timedelta(days=1)


@dataclass(frozen=True)
class Stretch:
    """A part of a thing's true timeline."""

    thing: str
    number: int
    value: str
    first: date
    end: date | None
    stays: bool = False


@dataclass(frozen=True)
class History:
    """Statements of a user, in order."""

    statements: tuple[Statement, ...]
    batches: tuple[tuple[str, tuple[tuple[Statement, ...], ...]], ...]
    truth: tuple[Stretch, ...]

    def moments(self) -> list[datetime]:
        """Return each begin and end, with the moments just before and after it."""
        days = {one.begin for one in self.statements} | {one.end for one in self.statements}
        return around(days - {BEGINNING, END})

    def times(self) -> list[datetime]:
        return sorted({one.at for one in self.statements})


def history(seed: int) -> History:
    """Return a user's life, and how it is told."""
    return _HistoryBuilder(random.Random(seed)).build()


class _HistoryBuilder:
    """Makes a timeline, then statements about it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._plain = chance.random() < 0.25  # no statement is wrong, so any order will do
        self._two_roles = not self._plain and chance.random() < 0.3
        self._said: list[dict[str, Any]] = []
        self._full: list[Stretch] = []

    def build(self) -> History:
        for thing in self._chance.sample(sorted(ATTRIBUTES), self._chance.randint(1, 3)):
            self._attribute(thing)
        for number in range(self._chance.choice([0, 1, 1, 2])):
            self._journey(number)
        said = sorted(self._said, key=lambda one: one["at"])
        places = {one["key"]: number for number, one in enumerate(said)}
        statements = [
            Statement(
                number,
                **{
                    **{name: value for name, value in one.items() if name != "key"},
                    "again": None if one["again"] is None else places[one["again"]],
                },
            )
            for number, one in enumerate(said)
        ]
        return self._batched(statements)

    # --- the timeline -------------------------------------------------------------------------

    def _attribute(self, thing: str) -> None:
        chance = self._chance
        values = ATTRIBUTES[thing][1].split()
        chance.shuffle(values)
        day, base = _FIRST + _DAY * chance.randint(0, 900), []
        for number in range(chance.randint(1, 4)):
            value = base[0].value if number == 2 and chance.random() < 0.3 else values.pop()
            length = chance.randint(120, 1500)
            base.append(Stretch(thing, number, value, day, self._rounded(day + _DAY * length)))
            assert base[-1].end is not None
            day = base[-1].end
        base[-1] = replace(base[-1], end=None)
        stays = []
        for one in base:
            if chance.random() < 0.3:
                room = ((one.end or one.first + _DAY * 700) - one.first).days
                first = one.first + _DAY * chance.randint(5, room // 2)
                end = first + _DAY * chance.randint(3, room // 2 - 10)
                stays.append(Stretch(thing, 10 + one.number, values.pop(), first, end, stays=True))
        whole = True
        late = len(base) > 1 and not self._plain and chance.random() < 0.2
        for one in base[late:]:
            whole &= self._base(one, values)
        if late:
            self._late(base[0])
            whole = False
        for one in stays:
            whole &= self._value(one, until=True)
        if whole:
            self._full += [*base, *stays]
        if self._two_roles:
            self._assistant(thing, base, values)

    def _journey(self, number: int) -> None:
        first = _FIRST + _DAY * self._chance.randint(0, 4500)
        end = first + _DAY * self._chance.randint(1, 30)
        place = self._chance.choice(_PLACES)
        self._value(Stretch(f"journey {number}", 20, place, first, end, stays=True), until=True)

    def _rounded(self, day: date) -> date:
        """Return the day, often moved to the start of a month or year."""
        kind = self._chance.random()
        if kind < 0.25:
            return day.replace(day=1)
        return date(day.year + 1, 1, 1) if kind < 0.3 else day

    # --- the statements -----------------------------------------------------------------------

    def _base(self, one: Stretch, values: list[str]) -> bool:
        """Tell of a stretch, and return whether all of it was told."""
        chance = self._chance
        until = one.end is not None and chance.random() < 0.15
        wrong = None if self._plain or chance.random() < 0.7 else values.pop()
        said = len(self._said)
        if not self._value(one, until=until, wrong=wrong):
            return False
        if one.end is None or self._plain or until or chance.random() < 0.7:
            return True
        self._ended(one, max(late["at"] for late in self._said[said:]))
        return False

    def _value(self, one: Stretch, *, until: bool, wrong: str | None = None) -> bool:
        chance = self._chance
        at, since = self._when(one)
        if at.date() > _LAST_TOLD:
            return False
        between = [late["at"] for late in self._statements_of(one.thing, 1)]
        if one.number == 2 and (self._plain or not between or min(between) > at):
            # a repeated value without a change between means that nothing changed
            at, since = self._moment(one.first + _DAY * chance.randint(1, 900)), one.first
        end = one.end if until else None
        first = self._say(one, at, since, end, value=self._text(one, wrong))
        if wrong is not None and since is not None and chance.random() < 0.5:  # the day was wrong
            self._said.pop()
            shifted = since + _DAY * chance.choice([-40, -9, 6, 35])
            if end is not None:
                shifted = min(shifted, end - _DAY)
            first = self._say(one, at, shifted, end)
        if wrong is not None:
            if chance.random() < 0.3 and end is None:  # the correction is wrong too
                at = self._later(at)
                self._say(one, at, one.first + _DAY * chance.randint(1, 30), end, corrects=True)
            first = self._say(one, self._later(at), one.first, end, corrects=True)
            at = first["at"]
        if chance.random() < 0.2:
            again = self._later(at, 200)
            self._say(
                one, again, chance.choice([None, one.first]) if not until else one.first, end,
                again=first["key"], corrects=first["corrects"], value=first["text"],
            )  # fmt: skip
        other, own = self._statements_of(one.thing, 0), self._statements_of(one.thing, one.number)
        if other and 0 < one.number < 10 and not self._plain and chance.random() < 0.1:
            last = max(late["at"] for late in [*other, *own])
            self._say(one, self._later(last), None, None, kind="denial")
            return False
        return True

    def _when(self, one: Stretch) -> tuple[datetime, date | None]:
        """Return when it is said, and its start as said. None means that day."""
        way = self._chance.random()
        if way < 0.35:
            return self._moment(one.first), None
        if way < 0.8:
            return self._moment(one.first + _DAY * self._chance.randint(1, 1500)), one.first
        return self._moment(one.first - _DAY * self._chance.randint(1, 300)), one.first

    def _late(self, one: Stretch) -> None:
        """Tell of a stretch only afterwards: only that it ended."""
        assert one.end is not None
        known = self._statements_of(one.thing, 1)
        if len(known) == 1:
            at = max(known[0]["at"], self._moment(one.end))
            self._say(one, self._later(at), None, one.end)

    def _statements_of(self, thing: str, stretch: int) -> list[dict[str, Any]]:
        return [one for one in self._said if (one["thing"], one["stretch"]) == (thing, stretch)]

    def _ended(self, one: Stretch, told: datetime) -> None:
        assert one.end is not None
        at = max(self._later(told, 100), self._moment(one.end + _DAY * self._chance.randint(1, 60)))
        if self._chance.random() < 0.75:
            self._say(one, at, None, one.end, kind="end")
            return
        wrong = min(one.end + _DAY * self._chance.choice([-20, -5]), one.end)
        if wrong <= one.first + _DAY * 50:
            return
        self._say(one, at, None, wrong, kind="end")
        self._say(one, self._later(at), None, one.end, kind="end", corrects=True)

    def _assistant(self, thing: str, base: list[Stretch], values: list[str]) -> None:
        """Have the assistant say something, which counts less than what the user says."""
        chance = self._chance
        first = _FIRST + _DAY * chance.randint(100, 4000)
        own = Stretch(thing, 30, values.pop(), first, None)
        at = self._moment(first + _DAY * chance.randint(1, 400))
        said = self._say(own, at, chance.choice([None, first]), None, role="assistant")
        if chance.random() < 0.4:
            self._say(own, self._later(at), None, None, again=said["key"], value=said["text"])
        told = [one for one in self._said if one["thing"] == thing and one["kind"] == "value"]
        about = chance.choice(base)
        of_it = [one for one in told if one["stretch"] == about.number]
        ended = [one for one in self._said if one["thing"] == thing and one["kind"] == "end"]
        if of_it and not ended and chance.random() < 0.5:
            at = self._later(max(one["at"] for one in of_it))
            self._say(
                about, at, about.first, None, value=self._text(about, values.pop()),
                role="assistant", corrects=True,
            )  # fmt: skip

    def _say(
        self,
        one: Stretch,
        at: datetime,
        since: date | None,
        end: date | None,
        *,
        kind: Kind = "value",
        value: str | None = None,
        role: str = "user",
        corrects: bool = False,
        again: int | None = None,
    ) -> dict[str, Any]:
        day = at.replace(hour=0, minute=0, second=0, microsecond=0)
        begin = day if since is None else _start(since)
        if kind == "end" or (since is None and end is not None and end <= at.date()):
            begin = BEGINNING
        last = None if end is None else end - _DAY
        text = value or self._text(one)
        if kind == "end":
            text = f"{text[:-1]} no more since {end}."
        elif kind == "denial":
            text = f"Never {text[0].lower()}{text[1:]}"
        said = {
            "key": len(self._said), "text": text, "category": one.thing.split()[0],
            "thing": one.thing, "stretch": one.number, "kind": kind, "at": at,
            "since": since and self._date(since, first=True),
            "until": last and self._date(last, first=False),
            "begin": begin, "end": END if end is None else _start(end), "corrects": corrects,
            "again": again, "role": role,
        }  # fmt: skip
        self._said.append(said)
        return said

    def _text(self, one: Stretch, value: str | None = None) -> str:
        template = _JOURNEY if one.thing not in ATTRIBUTES else ATTRIBUTES[one.thing][0]
        return template.format(value or one.value)

    def _date(self, day: date, *, first: bool) -> str:
        """Return a day as a model may write it: as a month or a year if that says the same."""
        edge = day if first else day + _DAY
        if (edge.month, edge.day) == (1, 1) and self._chance.random() < 0.5:
            return f"{day:%Y}"
        if edge.day == 1 and self._chance.random() < 0.5:
            return f"{day:%Y-%m}"
        return day.isoformat()

    def _later(self, at: datetime, most: int = 400) -> datetime:
        return self._moment(at.date() + _DAY * self._chance.randint(1, most))

    def _moment(self, day: date) -> datetime:
        """Return a moment of a day at which nothing else was said."""
        seconds = self._chance.randint(0, 86_000) + len(self._said) / 1000
        return _start(day) + timedelta(seconds=seconds)

    def _batched(self, statements: list[Statement]) -> History:
        """Group statements into messages of one or two, in batches of sessions."""
        chance = self._chance
        seqs = dict.fromkeys(SESSIONS, 0)
        told: list[Statement] = []
        batches: list[tuple[str, tuple[tuple[Statement, ...], ...]]] = []
        rest = list(statements)
        while rest:
            session = chance.choice(SESSIONS)
            messages = []
            for _ in range(chance.choice([1, 1, 2, 3])):
                if not rest:
                    break
                seqs[session] += 1
                together = 2 if chance.random() < 0.4 and _fit(*rest[:2]) else 1
                message = [
                    replace(one, session=session, seq=seqs[session], at=rest[0].at)
                    for one in rest[:together]
                ]
                del rest[:together]
                told += message
                messages.append(tuple(message))
            batches.append((session, tuple(messages)))
        if self._plain:
            chance.shuffle(batches)
        return History(tuple(told), tuple(batches), tuple(self._full))


def _fit(one: Statement, *others: Statement) -> bool:
    """Return whether these statements can share a message."""
    return all(
        (one.role, other.kind) == (other.role, "value") and other.since and one.text != other.text
        for other in others
    )


def _start(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
