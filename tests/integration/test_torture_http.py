"""A short attack on the service, over sockets, and that it would notice what is wrong.
`python -m benchmarks.torture_http --requests 1000000` is the long one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

import pytest

from agent_memory.server.calls import OPERATIONS
from agent_memory.server.operation import Operation
from benchmarks.torture_canaries import Aviary
from benchmarks.torture_http.alike import pairs, signed_rank, told_of
from benchmarks.torture_http.calls import of_the_table
from benchmarks.torture_http.crowd import OTHER, UNKNOWN, Crowd, Report
from benchmarks.torture_http.forms import Given
from benchmarks.torture_http.issuer import issuing
from benchmarks.torture_http.once import Write, held_against
from benchmarks.torture_http.people import People
from benchmarks.torture_http.run import Plan, attack, write
from benchmarks.torture_http.site import Answer, Server, Site

ANOTHERS = Aviary(0).word("another", 0)


@pytest.mark.timeout(900)
def test_a_crowd_with_credentials_of_all_kinds() -> None:
    """Wrong: an answer, a log or a file holds what another user said, or one who was deleted; a
    credential that is over opens something; or another's id is told from one that nobody has."""
    plan = Plan(requests=500, rounds=1, writes=0, users=6, threads=3, seed=3)
    report, held = attack(plan, lambda: None, lambda: None)
    assert report.leaks == []
    assert report.asked.total() == 500
    assert report.words > 50
    assert report.statuses[401] > 10
    assert [one.differ for one in held if one.differ] == []
    assert {one.name for one in held} >= {"read_note note_id", "delete_memory id"}


@pytest.mark.timeout(900)
def test_writes_that_are_cut_off_among_servers_that_are_killed() -> None:
    """Wrong: a write that was acknowledged is gone, or one that was sent again is there twice."""
    plan = Plan(requests=0, rounds=0, writes=20, users=4, threads=2)
    report = write(plan, lambda: None)
    assert report.found == []
    assert report.writes.total() == 20
    assert report.sent["sent again"] > 5


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_each_call_is_asked_as_it_wants_to_be(operation: Operation) -> None:
    """Else: a call that is new is asked for nothing but what it refuses, and so is not tried."""
    call = next(one for one in of_the_table() if one.name == operation.name)
    for seed in range(20):
        given = Given(Random(seed), ANOTHERS, lambda name: f"some-{name}")
        operation.form.model_validate(given.form(call.schema))


@contextmanager
def answering(status: int, body: bytes) -> Iterator[int]:
    """A server that says the same to everybody; its port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *given: object) -> None: ...

    for method in ("GET", "POST", "PUT", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.answer)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


EVERYTHING = {"own", "dead", "unable", "other", "foreign"}
PLANTED = {
    "another's words": (200, ANOTHERS.encode(), EVERYTHING),
    "let in": (200, b"{}", {"dead", "unable", "other"}),
    "not found": (404, OTHER, {"dead"}),
    "told that it is not theirs": (404, b"not yours", {"dead", "other"}),
    "not known": (401, UNKNOWN, {"unable", "other"}),
    "broken": (500, b"{}", EVERYTHING),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_the_crowd_notices(fault: str, tmp_path: Path) -> None:
    """Else: an attack finds everything good, whatever is answered."""
    status, body, cases = PLANTED[fault]
    report, aviary = Report(), Aviary(0)
    aviary.word("another", 0)
    with answering(status, body) as port, issuing() as issuer:
        server = Server(tmp_path, "s", [])
        server.port = port
        site = Site(tmp_path, "memory://", "n", [server])
        people = People(4, site.ring, issuer, aviary)
        calls = [one for one in of_the_table() if one.of_user and one.name != "delete_user"]
        crowd = Crowd(site, people, aviary, calls, 0, report)
        for number in range(120):
            crowd.step(number)
        site.close()
    assert {leak.case for leak in report.leaks} == cases


def test_what_is_kept_is_held_against_what_was_acknowledged() -> None:
    """Else: a write that is lost, doubled, or somewhere else passes."""
    writes = [Write("a", 1, "s"), Write("b", 2, "s"), Write("c", 1, "t")]
    assert [*held_against(writes, {"s": ["a", "b", "b"], "t": ["c"]})] == []
    for kept, wrong in (
        ({"s": ["b", "b"], "t": ["c"]}, ["lost: a"]),
        ({"s": ["a", "b"], "t": ["c"]}, ["lost: b"]),
        ({"s": ["a", "a", "b", "b"], "t": ["c"]}, ["doubled: a"]),
        ({"s": ["a", "b", "b", "c"]}, ["lost: c", "never acknowledged"]),
        ({"s": ["a", "b", "b"], "t": ["c", "d"]}, ["never acknowledged"]),
    ):
        found = [*held_against(writes, kept)]
        assert len(found) == len(wrong)
        assert all(map(str.startswith, found, wrong)), found


def test_what_is_compared() -> None:
    """Else: a call that takes another's id is left out of the comparison with what nobody has."""
    found = {(call.name, name) for call, name in pairs(of_the_table())}
    for one in OPERATIONS:
        for name in ("note_id", "fact_id", "observation_id"):
            if name in one.form.model_fields:
                assert (one.name, name) in found
    assert ("read_session", "session_id") in found
    assert ("append_shared", "share") in found
    assert ("append_messages", "session_id") not in found  # who names a new session begins it


def test_what_answers_tell() -> None:
    """Else: two answers differ by the name in the question, or by what it is a part of."""

    def told(id: str, body: str) -> object:
        return told_of(Answer(200, {}, body.encode()), id)

    mine = '"skill-u046-0"'
    assert told("u046-0", f'{{"id": "u046-0"}} {mine}') == told("u9", f'{{"id": "u9"}} {mine}')
    assert told("u046-0", '"u046-0"') != told("u9", '"u046-0"')


def test_signed_ranks() -> None:
    """Else: two that are alike are told apart, or two that are not are not."""
    chance = Random(1)
    assert signed_rank([]) == 1
    assert signed_rank([0.0, 0.0]) == 1
    assert signed_rank([chance.gauss(0, 1) for _ in range(200)]) > 0.01
    assert signed_rank([chance.gauss(1, 1) for _ in range(200)]) < 1e-6
    assert signed_rank([chance.gauss(-1, 1) for _ in range(200)]) < 1e-6
    # of nine differences, the one that is below nought is the least: 2 * Phi(-2.55)
    assert signed_rank([-1, 2, 3, 4, 5, 6, 7, 8, 9]) == pytest.approx(0.0108, abs=1e-3)
