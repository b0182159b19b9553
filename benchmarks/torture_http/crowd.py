"""Random requests of many users with credentials of all kinds, and a look at every answer."""

from __future__ import annotations

import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from random import Random
from time import monotonic
from typing import Any

from agent_memory.server.answers import encoded
from agent_memory.server.credentials import unauthenticated
from agent_memory.server.problems import other_user, problem_of
from benchmarks.torture_canaries import Aviary, words_in
from benchmarks.torture_http.calls import DELETING, Call
from benchmarks.torture_http.forms import IDS, Given
from benchmarks.torture_http.harvest import harvested
from benchmarks.torture_http.people import Credential, People, Person
from benchmarks.torture_http.site import Answer, Site

TEAMS = ("team-a", "team-b", "team-c")
"""Shared namespaces whose grants stay as they are."""

CASES = {"own": 60, "dead": 10, "unable": 8, "other": 8, "foreign": 12, "rotate": 0.3}
"""What is asked, and how often in proportion: of what is one's own; with a credential that opens
nothing; without the right; for another user; of another's things by their names. "rotate": a key is
revoked meanwhile."""

UNKNOWN = encoded(problem_of(unauthenticated()).body())
OTHER = encoded(other_user().problem.body())
_MAY_FAIL = (501, 502)
_NOT_NOW = (503, 504)
_SECRET = re.compile(rb'am_[0-9a-f]{12}_[A-Za-z0-9_-]{43}|eyJ[A-Za-z0-9_-]{20}|"u[0-9]{3}"')
_MOST_SHOWN = 1_000
_SESSIONS = 4


@dataclass(frozen=True, slots=True)
class Leak:
    """Something that should not have been.

    Attributes:
        number: The request's.
        case: What was tried.
        name: The call.
        kind: The credential.
        user: Who asked, and in which life.
        told: What is wrong.
    """

    number: int
    case: str
    name: str
    kind: str
    user: str
    told: str


@dataclass(slots=True)
class Report:
    """What came of a run.

    Attributes:
        asked: Requests, by what was tried.
        calls: Requests, by call.
        kinds: Requests, by credential.
        statuses: Answers, by status.
        took: Seconds until the answers, by call.
        words: Canaries that were looked at.
        leaks: What is wrong.
        seconds: How long it took.
    """

    asked: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    took: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    words: int = 0
    leaks: list[Leak] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(slots=True)
class _Step:
    number: int
    case: str
    call: Call
    name: str
    person: Person
    chance: Random
    credential: Credential
    user: str | None = None
    word: str = ""
    victim: Person | None = None


class Crowd:
    """Makes requests, and looks at what is answered.

    Args:
        site: The servers.
        people: Who makes them.
        aviary: Knows whose a word is.
        calls: What can be asked.
        seed: Decides what is asked.
        report: Where it is noted.
    """

    def __init__(
        self,
        site: Site,
        people: People,
        aviary: Aviary,
        calls: Sequence[Call],
        seed: int,
        report: Report,
    ) -> None:
        self._site = site
        self._people = people
        self._aviary = aviary
        self._calls = list(calls)
        self._weights = [one.weight for one in calls]
        self._by_name = {one.name: one for one in calls}
        self._seed = seed
        self._report = report
        self._noting = threading.Lock()

    def begin(self) -> None:
        """Have each user begin something that others may want."""
        for name in self._people.names:
            self._settle(name)

    def step(self, number: int) -> None:
        """Make one request."""
        chance = Random(f"{self._seed}/{number}")
        people = self._people
        case = chance.choices(list(CASES), list(CASES.values()))[0]
        name, other = chance.sample(people.names, 2)
        person = people.all[name]
        call = chance.choices(self._calls, self._weights)[0]
        deletes = call.name in DELETING and case in ("own", "foreign")  # it names nothing
        alone = deletes or case == "rotate"
        with person.user.held(alone=alone):
            if case == "rotate":
                people.rotate(name, chance)
                case, call = "dead", self._by_name["list_sessions"]
                credential: Credential | None = people.dead[-1]
            else:
                credential = self._credential(case, call, name, chance)
            if credential is None:  # there is none of that kind for this call
                case, credential = "own", self._credential("own", call, name, chance)
                assert credential is not None
            step = _Step(number, case, call, name, person, chance, credential)
            self._prepare(step, other)
            self._make(step)
            if deletes:
                person.user.begin_anew()
                person.ids.clear()
                people.arm(name)
                self._settle(name)

    def _credential(self, case: str, call: Call, name: str, chance: Random) -> Credential | None:
        good = self._people.all[name].good
        needs = {call.needs} if call.needs else {"read", "write", "delete"}
        if case == "dead":
            return chance.choice(self._people.dead)
        if case == "unable":
            lacking = [one for one in good if call.needs and call.needs not in one.rights]
            return chance.choice(lacking) if lacking else None
        if not call.of_user:
            return self._people.admin if case == "own" else None
        able = [one for one in good if needs <= one.rights]
        if case == "other":
            able = [one for one in able if not one.several or one.kind == "a key for two"]
        return chance.choice(able)

    def _prepare(self, step: _Step, other: str) -> None:
        several = step.credential.several or step.chance.random() < 0.1
        step.user = step.name if several and step.call.of_user else None
        step.word = step.person.user.word
        if step.case == "other":
            step.user = step.chance.choice([other, "nobody-of-that-name"])
        if step.case == "foreign":
            step.victim = self._people.all[other]

    def _make(self, step: _Step) -> None:
        """Ask, look at the answer, and note what it names."""
        call, chance = step.call, step.chance
        share = chance.choice(TEAMS)
        if call.in_share and call.of_user:
            step.word = self._aviary.word(f"{share}/{step.name}", step.person.user.life)
        named = {"share": share if call.of_user else f"scratch-{chance.randrange(4)}"}
        given = Given(chance, step.word, lambda name: named.get(name) or self._named(step, name))
        form = given.form(call.schema)
        if step.case == "foreign" and not any(name in form for name in IDS if name != "share"):
            step.case = "own"
        request = call.request(form, step.user)
        server = chance.randrange(len(self._site.servers))
        began = monotonic()
        try:
            answer = request.made(self._site.caller, server, step.credential.token)
        except (OSError, HTTPException) as error:
            self._note(step, f"was not answered: {error!r:.200}")
            return
        with self._noting:
            self._report.took[call.name] += monotonic() - began
        self._look(step, share, answer)
        if step.case == "own" and call.of_user and answer.status == 200 and not call.in_share:
            for name, value in harvested(call.name, answer.json):
                if not words_in(value):  # who names such a session in a share has told it there
                    step.person.knows(name, value)

    def _named(self, step: _Step, name: str) -> str:
        """What a field names: something of the victim's, or else of one's own, or nothing."""
        whose = step.victim or step.person
        known = whose.ids.get("note_id" if name == "id" else name)
        if known and step.chance.random() < 0.9:
            return step.chance.choice(known)
        place, user = step.chance.randrange(_SESSIONS), whose.user.name
        if step.call.in_share:
            return f"t-{place}"
        made = {
            "session_id": f"{user}-{place}",
            "path": f"/memories/{user}-{place}.md",
            "name": f"skill-{user}-{place}",
        }
        return made.get(name) or f"{step.chance.getrandbits(128):032x}"

    def _look(self, step: _Step, share: str, answer: Answer) -> None:
        call, status = step.call, answer.status
        report = self._report
        with self._noting:
            report.asked[step.case] += 1
            report.calls[call.name] += 1
            report.kinds[step.credential.kind] += 1
            report.statuses[status] += 1
        access = access_of(self._people.names.index(step.name), share)
        shut = call.in_share and call.of_user and access != "write" and access != call.needs
        if status >= 500 and status not in (*_MAY_FAIL, *_NOT_NOW):
            self._note(step, f"failed: {status} {answer.body[:300]!r}")
        expected = self._expected(step, shut)
        if expected is not None and (status, answer.body) != expected:
            self._note(step, f"was answered {status} {answer.body[:300]!r}")
        if step.case == "unable" and status not in (403, 404):
            self._note(step, f"was answered {status} {answer.body[:300]!r}")
        allowed = self._allowed(step, share, shut=shut)
        for word in self._seen([dict(answer.headers), answer.body]):
            whose = self._aviary.whose(word)
            if (whose.user, whose.life) != allowed and not (
                isinstance(allowed, str) and whose.user.startswith(allowed)
            ):
                self._note(step, f"gave back {whose} in {answer.body[:300]!r}")

    def _expected(self, step: _Step, shut: bool) -> tuple[int, bytes] | None:
        if step.case == "dead":
            return 401, UNKNOWN
        if step.case == "other":
            return 404, OTHER
        return None

    def _allowed(self, step: _Step, share: str, *, shut: bool) -> tuple[str, int] | str | None:
        """Whose words may be in an answer: a user's, or all that begin so."""
        if step.case in ("dead", "unable", "other") or shut:
            return None
        if not step.call.of_user:
            return ""  # an admin's answers are about everybody
        if step.call.in_share:
            return f"{share}/"
        return step.name, step.person.user.life

    def _seen(self, value: object) -> set[str]:
        words = words_in(value)
        with self._noting:
            self._report.words += len(words)
        return words

    def _settle(self, name: str) -> None:
        """A first session, note, file, skill and observation; and the user's grants."""
        person = self._people.all[name]
        word, key = person.user.word, person.good[0].token
        # the name of a session that was deleted is free: who asked for another's may have taken it
        life = person.user.life
        session = f"{name}-0" if not life else f"{name}-0-of-{life}"
        first: Iterable[tuple[str, dict[str, Any]]] = (
            (
                "append_messages",
                {
                    "session_id": session,
                    "messages": [{"role": "user", "content": f"I am {word}."}],
                },
            ),
            ("write_note", {"text": f"Likes {word}."}),
            ("write_file", {"path": f"/memories/{name}-0.md", "text": f"About {word}."}),
            ("save_skill", {"name": f"skill-{name}-0", "description": f"Makes {word}."}),
            ("observe", {"text": f"a {word} tree", "position": [1, 2]}),
            ("list_sessions", {}),
        )
        for call, given in first:
            for named, value in harvested(call, self._must(call, given, key)):
                person.knows(named, value)
        for team in TEAMS:
            access = access_of(self._people.names.index(name), team)
            if access is not None:
                given = {"share": team, "agent_id": name, "access": access}
                self._must("grant_access", given, self._people.admin.token)
        person.knows("path", f"/memories/{name}-0.md")
        person.knows("name", f"skill-{name}-0")

    def _must(self, call: str, given: dict[str, Any], token: str) -> Any:
        answer = self._by_name[call].request(given).made(self._site.caller, 0, token)
        if answer.status != 200:
            raise RuntimeError(f"{call} was answered {answer.status}: {answer.body[:300]!r}")
        return answer.json

    def _note(self, step: _Step, what: str) -> None:
        user = f"{step.name}/{step.person.user.life}"
        leak = Leak(step.number, step.case, step.call.name, step.credential.kind, user, what)
        with self._noting:
            if len(self._report.leaks) < _MOST_SHOWN:
                self._report.leaks.append(leak)

    def end(self) -> None:
        """Delete everybody; then nothing is found in any file, and in the logs nothing ever was."""
        admin = self._people.admin.token
        for person in self._people.all.values():
            self._must("delete_user", {}, person.good[0].token)
        for team in TEAMS:
            self._must("delete_share", {"share": team}, admin)
        for server in self._site.servers:
            if server.stop():
                self._find(server.log.name, "did not end in good order")
        for file in self._site.files:
            content = file.read_bytes()
            for word in self._seen(content):
                self._find(file.name, f"holds {self._aviary.whose(word)}")
            if file.suffix == ".log":
                for secret in set(_SECRET.findall(content)):
                    self._find(file.name, f"holds {secret[:15]!r}")

    def _find(self, name: str, what: str) -> None:
        self._report.leaks.append(Leak(-1, "the end", name, "", "", what))


def access_of(place: int, team: str) -> str | None:
    """Every fourth user may write in a team, the next one only read."""
    return {0: "write", 1: "read"}.get((place - TEAMS.index(team)) % 4)
