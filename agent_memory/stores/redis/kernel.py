"""`RedisStore`: all data on a Redis or Valkey server.

Each call of the kernel is one script. All keys of a namespace are in one hash slot.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from agent_memory.errors import DISTRIBUTION, SchemaTooNew
from agent_memory.stores.base import Durability
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.stores.redis import scripts
from agent_memory.stores.redis.server import Argument, Lost, RedisServer

_SIGN = 2**63  # added to every number, so that numbers are positive and sort correctly as texts
_PAGE = 1_000
_MOST_DUE = 10_000  # if more documents are due, those with the latest due times wait
_FIRST_KEY = 4
_META, _HOLDERS, _BODY, _IDS, _OWNERS, _SESSIONS = 0, 2, 3, 4, 5, 6
_LEAST, _LIMIT = 1, 3  # places in a selection
_AGAIN = (k.HeldBy, k.Free, k.Exists)
_KINDS = {k.Missing: "M", k.Exists: "E", k.VersionIs: "V", k.HeldBy: "H", k.Free: "F"}
"""The letters by which the script `COMMIT` recognises conditions on documents."""


def prefix_of(namespace: str) -> str:
    """Return the prefix of a namespace's keys. The part in braces decides the hash slot."""
    return f"agent_memory:{{{quote(namespace, safe='')}}}:"


class RedisKernel(k.Kernel):
    """The kernel on Redis; see `Kernel`.

    If the answer to a commit is lost, the commit is sent again, provided that a second run is safe.
    An append is safe: the second run finds its token in the line that the first run wrote. Any
    other batch is safe if running it twice has the same effect as running it once.
    """

    remote = True

    def __init__(self, server: RedisServer, prefix: str) -> None:
        self._server = server
        self._prefix = prefix
        self.layout = f"{self._prefix}layout"
        self._ends, self._names = f"{self._prefix}ends", f"{self._prefix}names"

    def keys(self, collection: str) -> list[str]:
        """Return the keys of a collection, in the order of `KINDS`."""
        return [f"{self._prefix}{kind}:{collection}" for kind in scripts.KINDS]

    def log(self, session: str) -> str:
        return f"{self._prefix}log:{session}"

    def commit(self, batch: k.Batch) -> k.Outcome:
        packing = _Packing(self, batch)
        keys = [self._ends, self._names, self.layout, *packing.keys]
        try:
            reply = self._server.attempt(scripts.COMMIT, keys, 0, *packing.values)
        except Lost:
            if not _can_repeat(batch):
                raise
            reply = self._server.run(scripts.COMMIT, keys, 1, *packing.values)
        return _outcome(batch, reply)

    def extend(self, head: k.DocId, version: int, line: k.Line, micros: int) -> bool:
        token, stop = secrets.token_hex(4), f"{line.seq} {line.total}"
        keys = [self._ends, self.log(line.session), *self.keys(head.collection)[:_HOLDERS]]
        value = _line_value(line, token)
        values = (head.id, version, line.session, line.seq, value, stop, micros)
        try:
            done = self._server.attempt(scripts.EXTEND, keys, *values, "")
        except Lost:
            done = self._server.run(scripts.EXTEND, keys, *values, token)
        return bool(done)

    def documents(
        self, ids: Sequence[k.DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[k.Document | None]:
        by_collection: dict[str, list[str]] = {}
        for at in ids:
            by_collection.setdefault(at.collection, []).append(at.id)
        keys, values = [self._ends], list[Argument]([int(tails), int(bodies)])
        for collection, names in by_collection.items():
            own = self.keys(collection)
            keys += own[_META], own[_BODY]
            values += len(names), *names
        replies = self._server.run(scripts.DOCUMENTS, keys, *values, repeat=True) if ids else []
        documents: dict[k.DocId, k.Document | None] = {}
        for n, (collection, names) in enumerate(by_collection.items()):
            rows = _rows(len(names), *replies[3 * n : 3 * n + 3])
            for name, row in zip(names, rows, strict=True):
                documents[k.DocId(collection, name)] = _document(collection, name.encode(), *row)
        return [documents[at] for at in ids]

    def scan(self, scan: k.Scan) -> list[k.Document]:
        own, (kind, selection) = self.keys(scan.collection), _selection(scan)
        keys = [self._ends, own[_META], own[_BODY], own[kind]]
        wanted = (int(scan.tails), int(scan.bodies), int(scan.names))
        documents: list[k.Document] = []
        while True:
            ids, *columns = self._server.run(scripts.SCAN, keys, *wanted, *selection, repeat=True)
            for name, row in zip(ids, _rows(len(ids), *columns), strict=True):
                document = _document(scan.collection, name, *row, is_name=scan.names)
                if document is not None:
                    documents.append(document)
            if scan.limit is None or selection[_LIMIT] != len(ids) or len(documents) == scan.limit:
                return documents
            # the index named documents that do not exist, so more are read to reach the limit
            selection[_LIMIT] = scan.limit - len(documents)
            owner = "" if kind == _IDS else f"{scan.owner}\0"
            selection[_LEAST] = f"({owner}".encode() + ids[-1]

    def owners(self, collection: str, beginning: str) -> list[str]:
        owners: list[str] = []
        key, least = self.keys(collection)[_OWNERS], f"[{beginning}"
        while True:
            page = self._server.run(scripts.OWNERS, [key], least, beginning, _PAGE, repeat=True)
            owners += [name.decode() for name in page]
            if len(page) < _PAGE:
                return owners
            least = f"({owners[-1]}\1"

    def collections(self, beginning: str) -> list[str]:
        ends = f"[{beginning}", b"(" + beginning.encode() + b"\xff"
        return [name.decode() for name in self._server.ask("ZRANGEBYLEX", self._names, *ends)]

    def due(self, collection: str, limit: int) -> list[k.Document]:
        keys = self.keys(collection)[: _HOLDERS + 1]
        ids = self._server.run(scripts.DUE, keys, limit, _MOST_DUE, repeat=True)
        names = [k.DocId(collection, name.decode(errors="replace")) for name in ids]
        documents = self.documents(names, tails=True)
        return [document for document in documents if document is not None]

    def lines(self, parts: Sequence[k.Part]) -> list[k.Line]:
        keys, values = [self._ends], list[Argument]()
        for part in parts:
            keys.append(self.log(part.session))
            if part.seqs is not None:
                values += part.session, "seqs", len(part.seqs), *part.seqs
            else:
                limit = "" if part.limit is None else part.limit
                values += part.session, "after", part.after, limit
        replies = iter(self._server.run(scripts.LINES, keys, *values, repeat=True) if parts else ())
        lines: list[k.Line] = []
        for part, first, replied in zip(parts, replies, replies, strict=True):
            seqs = range(int(first), int(first) + len(replied)) if part.seqs is None else part.seqs
            pairs = zip(seqs, replied, strict=True)
            lines += [
                _line(part.session, seq, value or b"")
                for seq, value in pairs
                if value is not None or part.seqs is None
            ]
        return lines

    def counts(self, collection: str) -> tuple[int, int]:
        documents: int = self._server.ask("ZCARD", self.keys(collection)[_IDS])
        return documents, int(self._server.ask("HGET", self._ends, "") or 0)

    def erase(self) -> None:
        for node in self._server.nodes():
            node.rewrite_files()

    def close(self) -> None:
        self._server.close()


class RedisStore(KernelStore):
    """A store on a Redis server of version 6.2 or later, or on a compatible server.

    Each change is one atomic Lua script. Leases and due times use the server's clock. Clusters
    are supported: all data of a namespace is in one hash slot.

    Args:
        url: `redis://host:6379/0`, `rediss://...` for TLS, or `unix:///path/to/redis.sock?db=0`.
        namespace: The namespace. Stores of different namespaces are independent.
        durability: "power" requires a server with `appendonly yes` and `appendfsync always`.
            Otherwise the server's settings decide.

    Raises:
        MissingExtra: The driver is not installed.
        StoreUnavailable: The server cannot be reached, or refuses the user.
        ConfigError: The server is less durable than `durability` requires.
        SchemaTooNew: A newer release wrote the database.
    """

    def __init__(
        self, url: str, namespace: str = "default", durability: Durability | None = None
    ) -> None:
        self._server = server = RedisServer(url)
        kernel = RedisKernel(server, prefix_of(namespace))
        super().__init__(kernel)
        try:
            layout = server.ask("GET", kernel.layout)
            if layout not in (None, str(scripts.LAYOUT).encode()):
                raise SchemaTooNew(
                    f"The Redis server at {server.place} was written by a newer release of "
                    f"agent-memory. Upgrade: pip install -U {DISTRIBUTION}"
                )
            if durability == "power":
                for node in server.nodes():
                    node.require_power()
        except BaseException:
            server.close()
            raise

    def durability_note(self) -> str:
        """Describe, by the server's settings, which failures an acknowledged write survives."""
        return self._server.nodes()[0].durability_note()


class _Packing:
    """Encodes a batch as the keys and the arguments of the script `COMMIT`."""

    def __init__(self, kernel: RedisKernel, batch: k.Batch) -> None:
        self._kernel = kernel
        self._collections: dict[str, int] = {}
        self._logs: dict[str, int] = {}
        self.keys: list[str] = []
        values = self._batch(batch)
        names = [part for name, place in self._collections.items() for part in (place, name)]
        self.values: list[Argument] = [len(self._collections), *names, *values]

    def _collection(self, name: str) -> int:
        """Return the position of a collection's first key in `KEYS`, after adding its keys."""
        if name not in self._collections:
            self._collections[name] = _FIRST_KEY + len(self.keys)
            self.keys += self._kernel.keys(name)
        return self._collections[name]

    def _log(self, session: str) -> int:
        if session not in self._logs:
            self._logs[session] = _FIRST_KEY + len(self.keys)
            self.keys.append(self._kernel.log(session))
        return self._logs[session]

    def _batch(self, batch: k.Batch) -> list[Argument]:
        token = log = seq = ""
        parts: list[Argument] = []
        for condition in batch.conditions:
            parts += self._condition(condition)
        if isinstance(next(iter(batch.writes), None), k.DeleteWhere) and any(
            isinstance(write, k.Put) for write in batch.writes
        ):
            parts.append("R")
        for write in batch.writes:
            if isinstance(write, k.Append) and not token:
                token, first = secrets.token_hex(4), write.lines[0]
                log, seq = str(self._log(first.session)), str(first.seq)
            parts += self._write(write, token)
        return [token, log, seq, batch.tail, len(batch.conditions), *parts]

    def _at(self, at: k.DocId) -> tuple[int, str]:
        return self._collection(at.collection), at.id

    def _condition(self, condition: k.Condition) -> tuple[Argument, ...]:
        if isinstance(condition, k.LogEndsAt):
            return "L", *condition
        return _KINDS[type(condition)], *self._at(condition.id), *condition[1:]

    def _write(self, write: k.Write, token: str) -> Iterable[Argument]:
        match write:
            case k.Put(one):
                data = b"\xff" + one.data if one.data else b""  # UTF-8 never has this byte
                return "P", *self._at(one.key), _meta(one), one.body.encode() + data
            case k.Append(lines):
                return self._append(lines, token)
            case k.Wake(ids, micros):
                return [part for at in ids for part in ("W", *self._at(at), micros)]
            case k.Due(at, micros):
                return "U", *self._at(at), "" if micros is None else micros
            case k.Hold(at, holder, micros):
                return "H", *self._at(at), holder, micros
            case k.Delete(ids):
                return [part for at in ids for part in ("D", *self._at(at))]
            case k.DeleteWhere(scan):
                kind, selection = _selection(scan)
                return "K", self._collection(scan.collection), kind, *selection
            case k.Truncate(session, after, total):
                return "T", self._log(session), session, after, total
            case k.Expire(session, upto):
                return "X", self._log(session), session, upto

    def _append(self, lines: Sequence[k.Line], token: str) -> Iterator[Argument]:
        sessions: dict[str, list[k.Line]] = {}
        for line in lines:
            sessions.setdefault(line.session, []).append(line)
        for session, some in sessions.items():
            stop = f"{some[-1].seq} {some[-1].total}"
            yield from ("A", self._log(session), session, len(some), some[0].seq, stop)
            for line in some:
                yield line.seq
                yield _line_value(line, token)


def _can_repeat(batch: k.Batch) -> bool:
    """Return whether it is safe to send a batch twice; see `RedisKernel`."""
    if any(isinstance(write, k.Truncate) for write in batch.writes):
        return False
    if any(isinstance(write, k.Append) for write in batch.writes):
        return True
    held = {condition.id for condition in batch.conditions if isinstance(condition, k.HeldBy)}
    gone = {at for write in batch.writes if isinstance(write, k.Delete) for at in write.ids}
    # releasing a lock twice is safe: nothing depends on the outcome of the second release
    return gone <= held and all(isinstance(condition, _AGAIN) for condition in batch.conditions)


def _selection(scan: k.Scan) -> tuple[int, list[Argument]]:
    """Return the position of a scan's index in `KINDS`, and the arguments of `selected` in Lua."""
    owner, session, below, above = scan.owner, scan.session, scan.first_below, scan.last_above
    limit = -1 if scan.limit is None else scan.limit
    if session:
        kind, nuls, least = _SESSIONS, 2, f"[{session}\0"
        most = f"({session}\1" if below is None else f"({session}\0{_number(below)}"
        session = below = None
    elif owner:
        kind, nuls, most = _OWNERS, 1, f"({owner}\1"
        least = f"({owner}\0{scan.after}" if scan.after else f"[{owner}\0"
        owner = None
    else:
        kind, nuls, most = _IDS, 0, "+"
        least = f"({scan.after}" if scan.after else "-"
    tests = (owner, session, below, above)
    filters = "".join("0" if test is None else "1" for test in tests)
    values = [_number(test) if isinstance(test, int) else test or "" for test in tests]
    return kind, [nuls, least, most, limit, filters, *values]


def _number(value: int) -> str:
    return f"{value + _SIGN:020d}"


def _meta(document: k.Document) -> str:
    first, last = _number(document.first), _number(document.last)
    version, owner, session = str(document.version), document.owner, document.session
    return "\0".join((version, owner, session, first, last, document.about))


def _rows(
    count: int, *columns: Sequence[bytes | None]
) -> Iterator[tuple[bytes | None, bytes | None, bytes | None]]:
    """Yield the meta, body and log end of each document; None for columns not requested."""
    metas, bodies, ends = (column or [None] * count for column in columns)
    return zip(metas, bodies, ends, strict=True)


def _document(
    collection: str,
    key: bytes,
    meta: bytes | None,
    body: bytes | None,
    end: bytes | None = None,
    *,
    is_name: bool = False,
) -> k.Document | None:
    try:
        name = key.decode()
    except UnicodeDecodeError:  # another program added it to the index
        return None
    if meta is None:
        return k.Document(collection, name) if is_name else None
    parts = meta.decode(errors="replace").split("\0", 5)
    version, owner, session, first, last, about = parts + [""] * (6 - len(parts))
    text, _, data = (body or b"").partition(b"\xff")
    return k.Document(
        *(collection, name, owner, session, _int(first, _SIGN), _int(last, _SIGN)),
        *(_int(version), about, text.decode(errors="replace"), data, _tail(end)),
    )


def _int(text: str, less: int = 0) -> int:
    """Return a number. A damaged number stays a text, so that decoding the document fails."""
    try:
        return int(text) - less
    except ValueError:
        return text  # type: ignore[return-value]


def _tail(end: bytes | None) -> k.Tail:
    if end is None:
        return k.EMPTY
    seq, total, *_ = [*end.split(b" "), b"", b""]
    return k.Tail(_int(seq.decode(errors="replace")), _int(total.decode(errors="replace")))


def _line_value(line: k.Line, token: str) -> str:
    """Encode a line: numbers, lengths of texts, then the texts. Lua reads the token."""
    _, _, role, text, created_at, tokens, total, encoding, body = line
    numbers = f"{token} {created_at} {tokens} {total}"
    lengths = f"{len(role)} {len(encoding)} {len(text)}"
    return f"{numbers} {lengths}\n{role}{encoding}{text}{body}"


def _line(session: str, seq: int, value: bytes) -> k.Line:
    try:
        about, _, rest = value.decode().partition("\n")
        _, created_at, tokens, total, role, encoding, text = about.split(" ")
        encoded = int(role) + int(encoding)
        ends = encoded + int(text)
        return k.Line(
            *(session, seq, rest[: int(role)], rest[encoded:ends], int(created_at), int(tokens)),
            *(int(total), rest[int(role) : encoded], rest[ends:]),
        )
    except ValueError:
        return k.Line(session, seq, "", "", 0, 0, 0, "", "{damaged")


def _outcome(batch: k.Batch, reply: Sequence[Any]) -> k.Outcome:
    if reply[0] == 1:
        return k.Outcome(True, {}, {batch.tail: _tail(reply[1])}) if batch.tail else k.DONE
    documents: dict[k.DocId, k.Document | None] = {}
    tails: dict[str, k.Tail] = {}
    values = iter(reply[1:])
    for condition in batch.conditions:
        if isinstance(condition, k.LogEndsAt):
            tails[condition.session] = _tail(next(values))
        else:
            at = condition.id
            documents[at] = _document(at.collection, at.id.encode(), next(values), next(values))
    return k.Outcome(False, documents, tails)
