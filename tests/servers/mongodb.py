"""MongoDB's wire protocol over SQLite (nx-27017), a substitute for MongoDB's own server."""

import json
import os
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import bson
from pymongo import MongoClient

from tests.servers.process import CannotStart, PrivateServer, accepts

_DATABASE = "agent_memory_test"
_RUN = "from nx_27017.nx_27017 import main; main()"
_OF_ITSELF = (b"hello\0", b"ismaster\0", b"isMaster\0", b"endSessions\0", b"ping\0")
_OP_QUERY, _OP_REPLY = (2004).to_bytes(4, "little"), (1).to_bytes(4, "little")
_REPLY = bytes(16) + (1).to_bytes(4, "little")
_HELLO = {
    "ok": 1, "isWritablePrimary": True, "helloOk": True, "minWireVersion": 17, "maxWireVersion": 25,
    "maxBsonObjectSize": 2**24, "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000,
}  # fmt: skip


class MongoDBServer(PrivateServer):
    """A private nx-27017."""

    def __init__(self, folder: Path) -> None:
        if find_spec("nx_27017") is None:
            raise CannotStart("nx-27017 is not installed: pip install nx-27017")
        super().__init__(folder)

    @property
    def url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/{_DATABASE}"

    def url_at(self, port: int, seconds: float = 0.05) -> str:
        """Return the database's URL over a port, with a limit for finding the server."""
        patience = f"serverSelectionTimeoutMS={int(seconds * 1000)}"
        return f"mongodb://127.0.0.1:{port}/{_DATABASE}?{patience}"

    def fill(self, session_id: str, namespace: str, count: int, text: str) -> None:
        """Make a session with this many entries directly in the server's file."""
        with MongoClient[dict[str, Any]](self.url) as client:
            heads = client[_DATABASE]["agent_memory_documents"]
            which = {"ns": namespace, "c": "head", "id": session_id}
            log = (heads.find_one(which) or {})["log"]
            rows = (
                {
                    "_id": f"{log}.{n}.w", "log": log, "session": session_id, "seq": n, "g": 0,
                    "w": "w", "role": "user", "text": text, "tokens": 3, "total": 3 * n,
                    "encoding": "test", "created_at": n, "body": "",
                }
                for n in range(1, count + 1)
            )  # fmt: skip
            database = sqlite3.connect(self.folder / "data" / f"{_DATABASE}.db")
            with database:
                database.executemany(
                    "INSERT INTO agent_memory_messages (_id, data) VALUES (?, ?)",
                    ((row["_id"], json.dumps(row)) for row in rows),
                )
            database.close()
            at = {"end": count, "total": 3 * count, "spilled": count, "lines": {}, "weight": 0}
            heads.update_one(which, {"$set": at})

    def command(self) -> Sequence[str]:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        files = ["--log-file", os.devnull, "--pid-file", str(self.folder / "server.pid")]
        where = ["--data-dir", str(data), "--host", "127.0.0.1", "--port", str(self.port)]
        return [sys.executable, "-c", _RUN, *where, *files]

    def ready(self) -> bool:
        return accepts(self.port)


class Link:
    """A proxy to a server that acts at a chosen command."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._left = 0
        self._act: Callable[[], object] | None = None
        self._for_good = self._down = False
        self._sockets: list[socket.socket] = []
        self._counting = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def break_at(self, command: int, *, for_good: bool) -> None:
        """Lose the answer to a later command, and break all connections."""
        self._left, self._act, self._for_good = command, None, for_good

    def act_before(self, command: int, act: Callable[[], object]) -> None:
        """Call `act` before a later command reaches the server. It must not use this proxy."""
        self._left, self._act = command, act

    @property
    def came(self) -> bool:
        return self._left <= 0

    def close(self) -> None:
        """Break all connections, and accept no more."""
        self._down = True
        self._listener.close()
        self._hang_up()

    def _hang_up(self) -> None:
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._sockets.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._down:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._to))
            self._sockets += [client, server]
            threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while asked := _message(client):
                chosen = not any(name in asked[:64] for name in _OF_ITSELF) and self._counts_down()
                if chosen and self._act is not None:
                    self._act()
                server.sendall(asked)
                answer = _message(server)
                if chosen and self._act is None:
                    self._down = self._for_good
                    self._hang_up()
                    return
                client.sendall(answer)

    def _counts_down(self) -> bool:
        with self._counting:
            self._left -= 1
            return self._left == 0


class RefusingServer:
    """Speak enough of the protocol to refuse everything with an error `code` of MongoDB."""

    def __init__(self, code: int) -> None:
        self._code = code
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            while asked := _message(client):
                hello = any(name in asked[:64] for name in _OF_ITSELF)
                failed = {"ok": 0, "code": self._code, "errmsg": "no"}
                answer = bson.encode(_HELLO if hello else failed)
                legacy = asked[12:16] == _OP_QUERY
                body = (_REPLY if legacy else bytes(5)) + answer
                kind = _OP_REPLY if legacy else asked[12:16]
                size = (16 + len(body)).to_bytes(4, "little")
                client.sendall(size + asked[4:8] * 2 + kind + body)


def _message(source: socket.socket) -> bytes:
    head = _exactly(source, 4)
    return head + _exactly(source, int.from_bytes(head, "little") - 4) if head else b""


def _exactly(source: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = source.recv(min(count - len(parts), 2**20))
        if not part:
            return b""
        parts += part
    return bytes(parts)
