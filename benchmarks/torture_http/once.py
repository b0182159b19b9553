"""Writes that are cut off and sent again, to servers that are killed: none is lost or doubled."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from math import inf
from random import Random
from time import monotonic, sleep
from uuid import uuid4

from agent_memory.server.calls import OPERATIONS
from benchmarks.torture_http.calls import Call, Request, of_the_table
from benchmarks.torture_http.forms import IDS, Given
from benchmarks.torture_http.site import Answer, Server, Site

MOST_RETRIES = 5
USERS = ("una", "vera")
SHARE = "together"

_LEFT_OUT = ("expected_end", "at", "metadata")
_RARE = {"take_turn": 0.01, "stream_turn": 0.01}
"""A server that was just started takes seconds before its model can be asked."""
_NOT_YET = (502, 503, 504)
_TOKEN = re.compile(r"w[0-9]{7}x")
_KEPT = ("message", "note", "observation")
_PAUSE = 0.05
_PATIENCE = 10.0


@dataclass(slots=True)
class Report:
    """What came of it.

    Attributes:
        writes: Acknowledged writes, by call.
        sent: Requests, by how they ended.
        kills: How often a server was killed.
        found: What is wrong.
    """

    writes: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    found: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Write:
    """A write that was acknowledged.

    Attributes:
        token: Stands in each text of it.
        texts: In how many.
        place: Where it stands.
    """

    token: str
    texts: int
    place: str


class Killer:
    """Kills one server after the other, and starts it anew; one at a time, so that one is there.

    Args:
        servers: The servers.
        chance: When, and which.
    """

    def __init__(self, servers: Sequence[Server], chance: Random) -> None:
        self._servers = servers
        self._chance = chance
        self._over = threading.Event()
        self._quiet = threading.RLock()
        self.kills = 0

    def run(self) -> None:
        """Until it is over."""
        while not self._over.wait(self._chance.uniform(0.2, 1.5)):
            with self._quiet:
                self._kill()

    def _kill(self) -> None:
        server = self._chance.choice(self._servers)
        server.kill()
        self.kills += 1
        sleep(self._chance.uniform(0.0, 0.3))
        server.start()

    @contextmanager
    def held_off(self) -> Iterator[None]:
        """Let the servers live meanwhile: else a write that takes long would never be done."""
        with self._quiet:
            yield

    def end(self) -> None:
        """Kill no more."""
        self._over.set()


def _is_new(call: Call) -> bool:
    """Whether a call names nothing that has to be there already, but a session or a namespace."""
    return not ({*IDS} - {"session_id", "share"}) & {*call.fields}


class Writer:
    """Makes writes, each until it is acknowledged, and sends some again after that.

    Args:
        number: Of how many there are.
        site: The servers.
        keys: A key of each user.
        killer: Kills the servers meanwhile.
        report: Where it is noted.
        seed: Decides what is written.
    """

    def __init__(
        self,
        number: int,
        site: Site,
        keys: dict[str, str],
        killer: Killer,
        report: Report,
        seed: int,
    ) -> None:
        self._number = number
        self._site = site
        self._keys = keys
        self._killer = killer
        self._report = report
        self._chance = Random(f"{seed}/writer/{number}")
        once = {one.name for one in OPERATIONS if one.once}
        self._calls = [one for one in of_the_table() if one.name in once and _is_new(one)]
        self._weights = [_RARE.get(one.name, 1.0) for one in self._calls]
        self.done: list[Write] = []

    def run(self, numbers: Iterator[int], most: int, advance: Callable[[], object]) -> None:
        """Make writes, until there are so many of all writers together."""
        for number in numbers:
            if number >= most:
                return
            self._write(f"w{number:07}x")
            advance()

    def _write(self, token: str) -> None:
        chance = self._chance
        call = chance.choices(self._calls, self._weights)[0]
        user = chance.choice(USERS)
        session = chance.choice(sessions_of(user, [self._number]))
        named = {"session_id": session, "share": SHARE}
        schema = {
            **call.schema,
            "properties": {k: one for k, one in call.fields.items() if k not in _LEFT_OUT},
        }
        form = Given(chance, token, lambda name: named[name]).form(schema)
        request = call.request(form)
        request = Request(
            request.method,
            request.path,
            {**request.headers, "Idempotency-Key": str(uuid4())},
            request.body,
        )
        for _ in range(chance.randint(0, MOST_RETRIES)):
            self._cut(request, self._keys[user])
        if not self._acknowledged(call, request, self._keys[user]):
            return
        for _ in range(chance.randint(0, MOST_RETRIES)):
            self._again(call, request, self._keys[user])
        assert request.body is not None
        place = SHARE if call.in_share else session if "session_id" in call.in_path else user
        self.done.append(Write(token, request.body.decode().count(token), place))
        self._report.writes[call.name] += 1

    def _cut(self, request: Request, key: str) -> None:
        """Send it, or a part of it, and go away."""
        chance, server = self._chance, self._chance.choice(self._site.servers)
        headers = {**request.headers, "Authorization": f"Bearer {key}", "Host": "x"}
        assert request.body is not None
        headers["Content-Length"] = str(len(request.body))
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        sent = f"{request.method} {request.path} HTTP/1.1\r\n{head}\r\n".encode() + request.body
        how = chance.choice(("half", "sent", "waited", "heard"))
        with suppress(OSError), socket.create_connection(("127.0.0.1", server.port), 5) as peer:
            if chance.random() < 0.5:  # no goodbye, as of a machine that is gone
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.sendall(sent[: chance.randrange(len(sent))] if how == "half" else sent)
            if how == "waited":
                sleep(chance.uniform(0, _PAUSE))
            if how == "heard":
                peer.settimeout(5)
                peer.recv(chance.randint(1, 200))
        self._report.sent[f"cut off: {how}"] += 1

    def _acknowledged(self, call: Call, request: Request, key: str) -> bool:
        """Send it until it is; false where that is refused."""
        gives_up = monotonic() + _PATIENCE
        with ExitStack() as quiet:
            while True:
                answer = self._sent(request, key)
                if answer is None or answer.status in _NOT_YET:
                    sleep(_PAUSE)
                elif answer.status != 200:
                    self._refused(call, answer)
                    return False
                elif call.name != "stream_turn" or b"event: stored" in answer.body:
                    self._report.sent["acknowledged"] += 1
                    return True
                if monotonic() > gives_up:
                    quiet.enter_context(self._killer.held_off())
                    gives_up = inf

    def _again(self, call: Call, request: Request, key: str) -> None:
        answer = self._sent(request, key)
        if answer is not None and answer.status not in (200, *_NOT_YET):
            self._refused(call, answer)
        self._report.sent["sent again"] += 1

    def _sent(self, request: Request, key: str) -> Answer | None:
        server = self._chance.randrange(len(self._site.servers))
        try:
            return request.made(self._site.caller, server, key)
        except (OSError, HTTPException):
            self._report.sent["not answered"] += 1
            return None

    def _refused(self, call: Call, answer: Answer) -> None:
        told = f"{call.name} was answered {answer.status}: {answer.body[:300]!r}"
        self._report.found.append(told)


def sessions_of(user: str, writers: Iterable[int]) -> list[str]:
    """The sessions, a user's or of the namespace, that writers write for a user."""
    return [f"{user}-of-all", *(f"{user}-of-{number}" for number in writers)]


def kept(site: Site, keys: dict[str, str], writers: int) -> dict[str, list[str]]:
    """The tokens in all that is kept, in order, by where they stand."""
    found: dict[str, list[str]] = {}
    for user, key in keys.items():
        answer = Request("GET", "/v1/user/export", {}, None).made(site.caller, 0, key)
        lines = [json.loads(line) for line in answer.body.splitlines()]
        assert lines[-1]["kind"] == "end", "the export was cut short"
        for line in lines:
            if line["kind"] in _KEPT:
                one = line[line["kind"]]
                place = one["session_id"] if line["kind"] == "message" else user
                found.setdefault(place, []).extend(_TOKEN.findall(json.dumps(one)))
    for session in (one for user in keys for one in sessions_of(user, range(writers))):
        after = ""
        while True:
            path = f"/v1/shares/{SHARE}/sessions/{session}/messages?limit=500{after}"
            answer = Request("GET", path, {}, None).made(site.caller, 0, keys[USERS[0]])
            page = answer.json
            assert answer.status == 200, page
            for one in page["messages"]:
                found.setdefault(SHARE, []).extend(_TOKEN.findall(json.dumps(one["message"])))
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
    return found


def held_against(writes: Sequence[Write], kept: dict[str, list[str]]) -> Iterator[str]:
    """What is wrong with what is kept of acknowledged writes. Pure."""
    counts = Counter((place, token) for place, tokens in kept.items() for token in tokens)
    for write in writes:
        there = counts.pop((write.place, write.token), 0)
        if there < write.texts:
            yield f"lost: {write.token} in {write.place}: {there} of {write.texts} texts"
        elif there > write.texts:
            yield f"doubled: {write.token} in {write.place}: {there} for {write.texts} texts"
    for (place, token), count in counts.items():
        yield f"never acknowledged, or elsewhere: {token} in {place}, {count} times"
