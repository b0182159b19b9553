"""`RemoteMemory`: `AgentMemory`, kept by a service."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from agent_memory.client.calls import AT_HAND, HANDLES, MOST, SHARED, Call, of
from agent_memory.client.edits import digest_of, sent
from agent_memory.client.handles import (
    NotTheirs,
    Remote,
    handle_class,
    of_another,
    remotely,
    response_of,
)
from agent_memory.client.service import Service
from agent_memory.client.values import made, plain
from agent_memory.core.ids import check_id, check_share
from agent_memory.core.limits import check_callable
from agent_memory.core.receipts import Part, Receipt
from agent_memory.engine.loop.conversing import CompletionStream
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.session import Session
from agent_memory.engine.sharing.shares import Share
from agent_memory.engine.stats import Progress
from agent_memory.engine.user import User
from agent_memory.errors import (
    ConfigError,
    Conflict,
    StoreUnavailable,
    UnsupportedOperation,
)
from agent_memory.models.usage import Account

if TYPE_CHECKING:
    from agent_memory.core.records import Entry, Head
    from agent_memory.engine.sharing.shared import SharedMemory
    from agent_memory.engine.transfer.snapshots.writing import Exported
    from agent_memory.engine.values.key_values import KeyValues
    from agent_memory.ltm_blocks.working import Scratchpad
    from agent_memory.models.embedders.base import Embedder

_CALLS: Mapping[str, Call] = {one.name: one for one in of("memory")}
_OPENED = frozenset(HANDLES) - {"values", "shared", "working"}
_EDITS = 20
_HERE = ("config", "blocks", "components")


@remotely("memory")
class RemoteMemory(AgentMemory):
    """A memory that a service keeps: `agent-memory serve`. `AgentMemory(url)` gives one.

        memory = AgentMemory("https://memory.example.com", api_key="am_...")

    Its calls are those of `AgentMemory`, with their arguments, values and errors. Whose memory a
    call is about follows from the key: one for a single user needs no `user_id`, one for several
    needs it in each call, and an admin's may leave it out as beside the library.

    A request that could not be made, or is to be made later (429, 503), is made again; a write has
    a key of its own, so that it is stored once. What the service lets a request have, in bytes and
    seconds, applies: see `docs/client.md`.

    Args:
        url: The service's address.
        api_key: A key of it, or a JWT that it takes; None for what the environment variable
            `AGENT_MEMORY_SERVICE_KEY` says.
        timeout: So many seconds an answer may let a call wait.
        attempts: So often a request is made before it is given up.
        plain_http: Whether the key may cross a network unencrypted; to this machine it always may.

    Attributes:
        url: As given.

    Raises:
        ConfigError: It is no such address or key, or the key would cross a network unencrypted.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = 70.0,
        attempts: int = 4,
        plain_http: bool = False,
        **fields: Any,
    ) -> None:
        if fields:
            raise ConfigError(
                f"A memory behind a service has its settings there: leave {', '.join(fields)} out. "
                "It takes api_key, timeout, attempts and plain_http."
            )
        service = Service(url, api_key, timeout=timeout, attempts=attempts, plain_http=plain_http)
        self.url = service.url
        self._remote = Remote(service)

    def __repr__(self) -> str:
        return f"RemoteMemory({self.url!r})"

    def __getattr__(self, name: str) -> Any:
        if name in _HERE:
            raise UnsupportedOperation(
                f"A memory behind a service has no `{name}` here: its settings and parts are the "
                "service's. Open the memory in this process for that."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def warm_up(self, user_id: str | None = None) -> None:
        """Nothing: what takes long is loaded where the service runs, which does so as it starts."""

    def close(self) -> None:
        """Release the connections. Idempotent. Other calls raise `MemoryClosed` afterwards."""
        self._remote.service.close()

    def history(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        after: int = 0,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[Entry]:
        """As `AgentMemory.history`, a page after the other."""
        call, about = _CALLS["history"], {"session_id": session_id, "user_id": user_id}
        if limit is None and type(last) is int and last > MOST and type(after) is int:
            head = self.head(session_id, user_id=user_id)
            after, limit, last = max(after, (head.end if head else 0) - last), last, None
        if last is not None or not (limit is None or type(limit) is int):
            given = {**about, "after": after, "limit": limit, "last": last}
            return cast("list[Entry]", self._remote.ask(call, given))
        found: list[Entry] = []
        while limit is None or len(found) < limit:
            most = MOST if limit is None else min(MOST, limit - len(found))
            page = self._remote.ask(call, {**about, "after": after, "limit": most})
            found += page
            if len(page) < most:
                break
            after = page[-1].seq
        return found

    def edit(
        self,
        session_id: str,
        change: Callable[[list[Entry]], Iterable[Any]],
        *,
        user_id: str | None = None,
    ) -> Head:
        """As `AgentMemory.edit`: the function is asked here, with the log as it is read."""
        check_callable("change", change)
        for _ in range(_EDITS):
            log = self.history(session_id, user_id=user_id)
            wanted = plain(sent(log, change(list(log))))
            body = {"session_id": session_id, "seen": digest_of(log), "log": wanted}
            try:
                return cast("Head", self._edited(body, user_id))
            except Conflict:
                continue
        raise StoreUnavailable(f"Session {session_id!r} is written to all the time. Edit it later.")

    def completion(
        self,
        /,
        session_id: str,
        message: Any,
        *,
        user_id: str | None = None,
        model: str | None = None,
        tools: Any = None,
        stream: bool = False,
        max_rounds: int = 8,
        key: str | None = None,
        expected_end: int | None = None,
        **options: Any,
    ) -> Any:
        """As `AgentMemory.completion`, by the service's model. It takes no other model, no options
        for it, and of tools only schemas: a function of yours cannot run there.
        """
        call = _CALLS["completion"]
        given = {"session_id": session_id, "message": message, "user_id": user_id, "tools": tools}
        given |= {"max_rounds": max_rounds, "key": key, "expected_end": expected_end}
        given |= {"model": model, "options": options}
        if not stream:
            return self._remote.ask(call, given)
        body, user_id = self._remote.body(call, given)
        lines = self._remote.lines(f"{call.path}-stream", body, user_id)
        return CompletionStream(_chunks(lines), Account("completion", user_id))

    def delete(self, session_id: str, *, user_id: str | None = None) -> Receipt:
        """As `AgentMemory.delete`. Of a session that the service does not have for this key the
        receipt is made here, and not signed.
        """
        try:
            given = {"session_id": session_id, "user_id": user_id}
            return cast("Receipt", self._remote.ask(_CALLS["delete"], given))
        except NotTheirs:
            gone = Part("the service", "done", "it has no such session for this key")
            return Receipt("session", session_id, "", datetime.now(UTC), (gone,))

    def session(self, session_id: str, user_id: str | None = None) -> RemoteSession:
        """As `AgentMemory.session`."""
        check_id("session_id", session_id)
        if user_id is not None:
            check_id("user_id", user_id)
        return RemoteSession(self, session_id, user_id)

    def user(self, user_id: str) -> RemoteUser:
        """As `AgentMemory.user`."""
        check_id("user_id", user_id)
        return RemoteUser(self, user_id)

    def values(self, user_id: str | None = None, *, embedder: Embedder | None = None) -> KeyValues:
        """As `AgentMemory.values`, by the service's embedder."""
        if embedder is not None:
            raise UnsupportedOperation("The embedder is the service's. Leave `embedder` out.")
        return cast("KeyValues", handle_class("values")(self._remote.of(user_id)))

    def share(self, name: str) -> RemoteShare:
        """As `AgentMemory.share`: to manage one takes an admin's key, and an agent's its id."""
        check_share(name)
        return RemoteShare(self, name)

    def open(self, kind: str) -> Any:
        """As `AgentMemory.open`."""
        return _handle(self._remote, kind)

    def replay(self, block: str) -> Iterator[Progress]:
        """As `AgentMemory.replay`."""
        lines = self._remote.lines("/calls/memory/replay", {"block": block}, None)
        return (made(Progress, one) for one in lines)

    def _edited(self, body: Mapping[str, Any], user_id: str | None) -> Any:
        with of_another(body):
            value = self._remote.service.ask("/calls/memory/edit", body, user_id, again=False)
        return made(_CALLS["update"].types["return"], value)


class RemoteSession(Session):
    """`Session`, of a memory behind a service."""

    _home: RemoteMemory

    def working(self) -> Scratchpad:
        """As `Session.working`."""
        self.head()  # refuses another user's session, as the library here does
        remote = self._home._remote.of(self.user_id, **{AT_HAND: self.session_id})
        return cast("Scratchpad", handle_class("working")(remote))

    def owner(self) -> User:
        """As `Session.owner`."""
        head = self.head()
        owner = self.user_id if head is None else head.user_id or self.user_id
        return RemoteUser(self._home, owner, self.session_id)

    def export(self, to: str | Path | TextIO) -> Exported:
        """As `Session.export`."""
        from agent_memory.engine.transfer.export import written
        from agent_memory.engine.transfer.snapshots.writing import Exported

        body = {"session_id": self.session_id}
        lines = self._home._remote.lines("/calls/session/export", body, self.user_id)
        with written(to) as file:
            while True:
                try:
                    file.write(next(lines))
                except StopIteration as end:
                    return cast("Exported", made(Exported, end.value))


@remotely("user", keeps=("notes", "files", "skills", "spatial"))
class RemoteUser(User):
    """`User`, of a memory behind a service."""

    _memory: RemoteMemory

    @property
    def _remote(self) -> Remote:
        at_hand = {} if self._session_id is None else {AT_HAND: self._session_id}
        return self._memory._remote.of(self.user_id, **at_hand)

    def values(self) -> KeyValues:
        """As `User.values`."""
        return cast("KeyValues", handle_class("values")(self._remote))

    def open(self, kind: str) -> Any:
        """As `User.open`."""
        return _handle(self._remote, kind)


@remotely("share")
class RemoteShare(Share):
    """`Share`, of a memory behind a service."""

    def __init__(self, memory: RemoteMemory, name: str) -> None:
        self._remote = memory._remote.of(None, **{SHARED: name})
        self.name = name

    def agent(self, agent_id: str) -> SharedMemory:
        """As `Share.agent`."""
        check_id("agent_id", agent_id)
        agent: SharedMemory = handle_class("shared")(self._remote.of(agent_id))
        agent.share, agent.agent_id = self.name, agent_id
        return agent


def _handle(remote: Remote, kind: str) -> Any:
    """The handle of a kind of block.

    Raises:
        UnsupportedOperation: It is of a kind of your own, or a block of another name.
    """
    if kind not in _OPENED:
        raise UnsupportedOperation(
            f"A memory behind a service opens {', '.join(sorted(_OPENED))}. What another block "
            "keeps is reached by its tools, or where the memory is open."
        )
    return handle_class(kind)(remote)


def _chunks(lines: Generator[Any, None, Any]) -> Generator[Any, None, Any]:
    from agent_memory.models.loading import load_litellm

    chunk_of = load_litellm().ModelResponseStream
    while True:
        try:
            line = next(lines)
        except StopIteration as end:
            return end.value and response_of(end.value)
        yield chunk_of(**line)
