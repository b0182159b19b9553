"""What is another's beside what does not exist: the same request for both: status, body and time.

Three requests make a round, in any order: for something of another user's, for something that
nobody has, and for another such thing. How the second and the third differ is what chance does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from random import Random
from statistics import NormalDist, median
from time import perf_counter
from typing import Any

from benchmarks.torture_http.calls import Call, Request
from benchmarks.torture_http.crowd import TEAMS, access_of
from benchmarks.torture_http.forms import IDS, Given
from benchmarks.torture_http.people import People, Person
from benchmarks.torture_http.site import Answer, Site

_READING = ("search_memories", "get_context", "memory_read_message", "skills_load")
_BEGINNING = ("replace_log",)
_MORE_TRIES = 2
_SHOWN = 150
_EXACT = re.compile(rb"\d\.\d{6,}")
"""How sure something is, or how near: that changes as time goes by."""
_ALONE = ("x-request-id", "content-length", "date")


@dataclass(slots=True)
class Held:
    """A call whose answers were held against each other.

    Attributes:
        name: The call, and the field that names something.
        foreign: Seconds until the answers about another's.
        absent: Those about nothing.
        control: Those about nothing, once more.
        differ: What differed each time.
    """

    name: str
    foreign: list[float] = field(default_factory=list)
    absent: list[float] = field(default_factory=list)
    control: list[float] = field(default_factory=list)
    differ: list[str] = field(default_factory=list)

    @property
    def apart(self) -> float:
        """How much longer the answer about another's takes, in the middle."""
        return median(_differences(self.foreign, self.absent))

    @property
    def chance(self) -> float:
        """How often chance alone would part the two so far."""
        return signed_rank(_differences(self.foreign, self.absent))

    @property
    def chance_of_control(self) -> float:
        """The same of two that are about nothing."""
        return signed_rank(_differences(self.control, self.absent))


def signed_rank(differences: Sequence[float]) -> float:
    """How often chance alone would give such differences or greater ones: Wilcoxon's test of signed
    ranks, two-sided, by the normal distribution.
    """
    told = sorted((one for one in differences if one), key=abs)
    count = len(told)
    if not count:
        return 1.0
    above = sum(rank for rank, one in enumerate(told, 1) if one > 0)
    mean, spread = count * (count + 1) / 4, (count * (count + 1) * (2 * count + 1) / 24) ** 0.5
    return 2 * NormalDist().cdf(-abs(above - mean) / spread)


def _differences(these: Sequence[float], those: Sequence[float]) -> list[float]:
    return [one - other for one, other in zip(these, those, strict=True)]


class Comparison:
    """Asks for what is another's and for what is nobody's, in turn.

    Args:
        site: The servers; the first is asked.
        people: The users.
        calls: What can be asked.
        seed: Decides who asks whom.
    """

    def __init__(self, site: Site, people: People, calls: Sequence[Call], seed: int) -> None:
        self._site = site
        self._people = people
        self._calls = calls
        self._chance = Random(f"{seed}/alike")

    def run(self, rounds: int, advance: Callable[[], object]) -> list[Held]:
        """Do so many rounds of each call and field."""
        found = []
        for call, name in pairs(self._calls):
            held = Held(f"{call.name} {name}")
            for _ in range(rounds):
                self._round(call, name, held)
                advance()
            found.append(held)
        return found

    def _round(self, call: Call, name: str, held: Held) -> None:
        actor, victim = self._chance.sample(self._people.names, 2)
        person, other = self._people.all[actor], self._people.all[victim]
        foreign = self._foreign(call, name, actor, other)
        told, took = self._asked(call, name, person, foreign)
        for _ in range(_MORE_TRIES):  # what is learned meanwhile may change an answer
            if told[0] != told[1]:
                told, took = self._asked(call, name, person, foreign)
        # names of files and skills are each one's; one of a session that was deleted is free again
        is_own = name in ("path", "name") and person.user.word in str(told[0])
        if name == "path":
            files = self._told(person, "list_files", {}) or {"paths": ()}
            is_own = is_own or foreign in files["paths"]
        if name == "session_id":  # who deleted it leaves the name to whoever comes
            is_own = self._told(other, "read_session", {"session_id": foreign}) is None
        if told[0] != told[1] == told[2] and not is_own:
            held.differ.append(_difference(str(told[0]), str(told[1])))
        held.foreign.append(took[0])
        held.absent.append(took[1])
        held.control.append(took[2])

    def _asked(
        self, call: Call, name: str, person: Person, foreign: str
    ) -> tuple[list[object], list[float]]:
        """What is told of each of three, and how long each took."""
        ids = [foreign, *(self._absent(foreign) for _ in range(2))]
        state, key = self._chance.getrandbits(64), person.good[0].token
        word = person.user.word
        requests: list[Request] = []
        for one in ids:  # but for this they are the same

            def named(field: str, one: str = one) -> str:
                return one if field == name else f"t-{len(field)}"

            form = Given(Random(state), word, named).form(call.schema)
            requests.append(call.request({**form, name: one}))
        told: list[object] = [None] * len(ids)
        took = [0.0] * len(ids)
        for place in self._chance.sample(range(len(ids)), len(ids)):
            began = perf_counter()
            answer = requests[place].made(self._site.caller, 0, key)
            took[place] = perf_counter() - began
            told[place] = told_of(answer, ids[place])
        return told, took

    def _told(self, person: Person, call: str, given: dict[str, Any]) -> Any:
        """What a call gives a user; None where it is refused."""
        asked = next(one for one in self._calls if one.name == call)
        answer = asked.request(given).made(self._site.caller, 0, person.good[0].token)
        return answer.json if answer.status == 200 else None

    def _foreign(self, call: Call, name: str, actor: str, victim: Person) -> str:
        if name == "share":
            place = self._people.names.index(actor)
            return next(team for team in TEAMS if access_of(place, team) is None)
        known = victim.ids.get("note_id" if name == "id" else name)
        return known[0] if known else f"{self._chance.getrandbits(128):032x}"

    def _absent(self, like: str) -> str:
        """A name of the same shape that nobody has."""
        kinds = ("0123456789abcdef", "ghijklmnopqrstuvwxyz")
        for kind in kinds if re.fullmatch("[0-9a-f]+", like) else kinds[1:]:
            end = "".join(self._chance.choices(kind, k=6))
            return f"{like[:-6]}{end}"
        raise AssertionError


def pairs(calls: Sequence[Call]) -> Iterator[tuple[Call, str]]:
    """The calls with the fields that name something which is somebody's.

    Who writes to a session that nobody has begins it, and files and skills are written under names
    of one's own: there another's is not like nothing, as the guarantees say.
    """
    for call in calls:
        reads = call.needs in ("read", "delete") or call.name in _READING
        reads = reads and call.name not in _BEGINNING
        for name in IDS:
            told = reads or name in ("note_id", "id") or (name == "share" and call.of_user)
            if name in call.fields and call.of_user and told:
                yield call, name


def _difference(one: str, other: str) -> str:
    """Where two begin to differ."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    place = sum(1 for _ in same)
    begin, end = max(0, place - _SHOWN), place + _SHOWN
    return f"...{one[begin:end]}... and ...{other[begin:end]}..."


def told_of(answer: Answer, id: str) -> object:
    """What an answer tells, whatever the name in the question was.

    The name may be a part of others, such as that of a skill of one's own: these stay.
    """
    named = rb"(?<![\w-])" + re.escape(id.encode()) + rb"(?![\w-])"
    headers = {name: one for name, one in answer.headers.items() if name not in _ALONE}
    body = _EXACT.sub(lambda found: found[0][:6], re.sub(named, b"(id)", answer.body))
    return answer.status, body, tuple(sorted(headers.items()))
