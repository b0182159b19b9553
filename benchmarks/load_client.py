"""Clients that append over HTTP, each its next message once the last is answered.

`python -m benchmarks.load_client` reads one `Job` as JSON from stdin and writes what came of it.
All clients are one thread with raw sockets, in a process of its own: what it costs is taken from
the machine of both sides alike.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
from collections import Counter
from dataclasses import dataclass
from random import Random
from statistics import quantiles
from time import perf_counter, process_time
from typing import Any

from benchmarks.messages import chats

_BODIES = 2_000
_MOST = 1 << 16
_END = b"\r\n\r\n"
_SIZE = b"content-length:"


@dataclass(frozen=True, slots=True)
class Job:
    """What the clients are to do.

    Attributes:
        ports: Where servers listen; clients are shared among them.
        clients: How many there are, each with one connection.
        sessions: How many sessions they append to; each has its own share.
        users: To how many users these belong.
        seconds: For how long; 0: until each session has had one message.
        key: The credential to show.
        seed: Of the order of the sessions.
    """

    ports: list[int]
    clients: int
    sessions: int
    users: int
    seconds: float
    key: str
    seed: int = 1


class _Client:
    """One connection."""

    def __init__(self, job: Job, number: int, bodies: list[bytes]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", job.ports[number % len(job.ports)]))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent_at = 0.0
        self._chance = Random(f"{job.seed}/{number}")
        self._job, self._bodies = job, bodies
        self._own = range(number, job.sessions, job.clients)
        self._first = list(() if job.seconds else self._own)
        self._got = b""

    def send(self) -> None:
        """Send the next message."""
        session = self._first.pop() if self._first else self._chance.choice(self._own)
        body = self._chance.choice(self._bodies)
        user = session % self._job.users
        head = (
            f"POST /v1/sessions/load-{session}/messages?user_id=u{user} HTTP/1.1\r\n"
            f"Host: 127.0.0.1\r\nAuthorization: Bearer {self._job.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.sent_at = perf_counter()
        self.socket.sendall(head.encode() + body)

    @property
    def has_first(self) -> bool:
        """Whether a session of its own has had no message yet."""
        return bool(self._first)

    def status(self) -> str:
        """The status of the answer, once all of it is here; empty until then."""
        some = self.socket.recv(_MOST)
        if not some:
            return "closed"
        got = self._got = self._got + some
        end = got.find(_END)
        if end < 0:
            return ""
        head = got[:end].lower()
        at = head.index(_SIZE) + len(_SIZE)
        size = int(head[at:].partition(b"\r\n")[0])
        if len(got) < end + len(_END) + size:
            return ""
        self._got = b""
        return head[9:12].decode()


def run(job: Job) -> dict[str, Any]:
    """Do the job.

    Returns:
        Requests that were answered with 200 in how many `seconds`, as `requests`; milliseconds as
        `p50` and `p99`; what else was answered, as `others`; seconds of CPU of this process.
    """
    bodies = [json.dumps({"messages": [chat]}).encode() for chat in chats(job.seed, _BODIES)]
    clients = [_Client(job, number, bodies) for number in range(job.clients)]
    taken: list[float] = []
    others: Counter[str] = Counter()
    with selectors.DefaultSelector() as selector:
        for one in clients:
            selector.register(one.socket, selectors.EVENT_READ, one)
        begun, used = perf_counter(), process_time()
        for one in clients:
            one.send()
        waiting = len(clients)
        while waiting:
            for key, _ in selector.select():
                one = key.data
                status = one.status()
                if not status:
                    continue
                now = perf_counter()
                if status == "200":
                    taken.append(1e3 * (now - one.sent_at))
                else:
                    others[status] += 1
                more = now - begun < job.seconds if job.seconds else one.has_first
                if more and status != "closed":
                    one.send()
                else:
                    selector.unregister(one.socket)
                    waiting -= 1
        seconds = perf_counter() - begun
    for one in clients:
        one.socket.close()
    parts = quantiles(taken, n=100) if len(taken) > 1 else [0.0] * 99
    return {
        "requests": len(taken), "seconds": seconds, "p50": parts[49], "p99": parts[98],
        "others": dict(others), "cpu": process_time() - used,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(run(Job(**json.load(sys.stdin)))))
