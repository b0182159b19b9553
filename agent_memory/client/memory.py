"""`RemoteMemory`: an `AgentMemory` behind a service."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TextIO, cast

from agent_memory.client.calls import HANDLES, MOST, Call, of
from agent_memory.client.handles import (
    NotTheirs,
    Remote,
    handle_class,
    remotely,
    request_of,
    response_of,
)
from agent_memory.client.service import Request, Service, is_missing
from agent_memory.client.values import digest_of, parsed, plain, wire_log
from agent_memory.core.limits import at_most, check_callable, check_id, check_share, place_in_log
from agent_memory.core.receipts import Part, Receipt
from agent_memory.core.records import Entry, Head, Scope
from agent_memory.engine.loop.rounds import CompletionStream
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.session import Session
from agent_memory.engine.sharing.shares import Share, SharedMemory
from agent_memory.engine.stats import Progress
from agent_memory.engine.transfer.export import written
from agent_memory.engine.transfer.snapshot import Exported
from agent_memory.engine.user import User
from agent_memory.engine.values.key_values import KeyValues
from agent_memory.errors import (
    AccessDenied,
    ConfigError,
    Conflict,
    StoreUnavailable,
    UnsupportedOperation,
)
from agent_memory.ltm_blocks.notes import Note
from agent_memory.ltm_blocks.working import Scratchpad
from agent_memory.models.embedders.base import Embedder
from agent_memory.models.usage import Account

_CALLS: Mapping[str, Call] = of("memory")
_OPENED = HANDLES - {"values"}
_EDITS = 20
_LOG = "/sessions/{session_id}/messages"
_HERE = ("config", "blocks", "components")


@remotely("memory")
class RemoteMemory(AgentMemory):
    """A memory behind a service (`agent-memory serve`). `AgentMemory(url)` returns one.

        memory = AgentMemory("https://memory.example.com", api_key="am_...")

    It has the calls of `AgentMemory`, with the same arguments, results and errors. The key decides
    the user. A key for one user needs no `user_id`. A key for several users needs a `user_id` in
    each call. An admin's key makes `user_id` optional, as in the library.

    A request is retried if it cannot connect or the answer is 429. A request is also retried if no
    answer arrives or the answer is 503, except for calls that must not run twice, such as `pop` and
    `edit`. Each update has an idempotency key, so that it is stored once. The service limits the
    size and time of requests; see `docs/client.md`.

    Args:
        url: The service's address.
        api_key: An API key or a JWT; None reads the environment variable
            `AGENT_MEMORY_SERVICE_KEY`.
        timeout: Seconds to wait for an answer. By default, a service limits a call to 60 seconds.
        attempts: Maximum number of attempts for a request.
        plain_http: Whether the key may be sent unencrypted over a network. Loopback addresses
            never need encryption.

    Raises:
        ConfigError: The address or the key is invalid, or the key would be sent unencrypted.
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
                f"{', '.join(fields)} must be configured on the service. Here, only "
                "api_key, timeout, attempts and plain_http can be set."
            )
        service = Service(url, api_key, timeout, attempts, plain_http)
        self.url = service.url
        self._remote = Remote(service)

    def __repr__(self) -> str:
        return f"RemoteMemory({self.url!r})"

    def __getattr__(self, name: str) -> Any:
        if name in _HERE:
            raise UnsupportedOperation(
                f"A memory behind a service has no `{name}`. Open the memory in this process to "
                "use it."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def warm_up(self, user_id: str | None = None) -> None:
        """Do nothing: the service warms up when it starts."""

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
        call, about = _CALLS["history"], {"session_id": session_id, "user_id": user_id}
        after, limit = place_in_log("after", after), at_most("limit", limit)
        last = at_most("last", last)
        if limit is None and last is not None and not 0 < last <= MOST:
            head = self.head(session_id, user_id=user_id)
            after, limit, last = max(after, (head.end if head else 0) - last), last, None
        if last is not None:
            arguments = {**about, "after": after, "limit": limit, "last": last}
            return cast("list[Entry]", self._remote.ask(call, arguments))
        entries: list[Entry] = []
        while limit is None or len(entries) < limit:
            most = MOST if limit is None else min(MOST, limit - len(entries))
            page = self._remote.ask(call, {**about, "after": after, "limit": most})
            entries += page
            if len(page) < most:
                break
            after = page[-1].seq
        return entries

    def edit(
        self,
        session_id: str,
        change: Callable[[list[Entry]], Iterable[Any]],
        *,
        user_id: str | None = None,
    ) -> Head:
        """Edit a session's log. `change` runs in this process, and again if the log has changed."""
        check_callable("change", change)
        for _ in range(_EDITS):
            log = self.history(session_id, user_id=user_id)
            wanted = plain(wire_log(log, change(list(log))))
            body = {"session_id": session_id, "digest": digest_of(log), "log": wanted}
            request = request_of("PUT", _LOG, body, user_id, again=False)
            try:
                with _of_another():
                    head = self._remote.service.ask(request)
            except Conflict:
                continue
            return cast("Head", parsed(_CALLS["update"].types["return"], head))
        raise StoreUnavailable(
            f"Session {session_id!r} changed during each of {_EDITS} attempts. Edit it later."
        )

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
        """Let the service's model answer, and store the turn.

        `model` and options cannot be set, because the service decides them. `tools` may only
        contain schemas, because your functions cannot run in the service.
        """
        call = _CALLS["completion"]
        fields = {"session_id": session_id, "message": message, "user_id": user_id, "tools": tools}
        fields |= {"max_rounds": max_rounds, "key": key, "expected_end": expected_end}
        fields |= {"model": model, "options": options}
        if not stream:
            return self._remote.ask(call, fields)
        request = self._remote.request(call, fields)
        events = self._events(replace(request, path=f"{request.path}-stream"))
        return CompletionStream(_chunks(events), Account("completion", user_id))

    def delete(self, session_id: str, *, user_id: str | None = None) -> Receipt:
        """Erase a session.

        If the service has no such session for this key, the result is an unsigned receipt.
        """
        try:
            arguments = {"session_id": session_id, "user_id": user_id}
            return cast("Receipt", self._remote.ask(_CALLS["delete"], arguments))
        except NotTheirs:
            gone = Part("the service", "done", "it has no such session that this key may delete")
            return Receipt("session", session_id, "", datetime.now(UTC), (gone,))

    def session(self, session_id: str, user_id: str | None = None) -> RemoteSession:
        check_id("session_id", session_id)
        if user_id is not None:
            check_id("user_id", user_id)
        return RemoteSession(self, session_id, user_id)

    def user(self, user_id: str) -> RemoteUser:
        check_id("user_id", user_id)
        return RemoteUser(self, user_id)

    def values(self, user_id: str | None = None, *, embedder: Embedder | None = None) -> KeyValues:
        """Return a store of values; see `AgentMemory.values`. `embedder` cannot be set here."""
        if embedder is not None:
            raise UnsupportedOperation("The service has its own embedder. Remove `embedder`.")
        return cast("KeyValues", handle_class("values")(replace(self._remote, user_id=user_id)))

    def share(self, name: str) -> RemoteShare:
        """Return a shared namespace. An admin's key can manage it. An agent's key can use it."""
        check_share(name)
        return RemoteShare(self, name)

    def open(self, kind: str) -> Any:
        return _handle(self._remote, kind)

    def remember(
        self,
        text: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        at: datetime | date | None = None,
        key: str | None = None,
    ) -> Note:
        if session_id is not None:
            check_id("session_id", session_id)
        remote = replace(self._remote, user_id=user_id, session_id=session_id)
        notes = _handle(remote, "notes")
        return cast("Note", notes.add(text, at=at, key=key))

    def delete_user(self, user_id: str) -> Receipt:
        return self.user(user_id).delete()

    def replay(self, block: str) -> Iterator[Progress]:
        request = request_of("POST", "/operations/replay", {"block": block}, None)
        return (parsed(Progress, value) for value in self._events(request))

    def _events(self, request: Request) -> Generator[Any, None, Any]:
        with _of_another():
            return (yield from self._remote.service.events(request))


class RemoteSession(Session):
    """A `Session` of a memory behind a service."""

    @property
    def _service(self) -> RemoteMemory:
        return cast("RemoteMemory", self._memory)

    def working(self) -> Scratchpad:
        self.head()  # raises an error for another user's session, as the library does
        remote = self._service._remote
        remote = replace(remote, user_id=self.user_id, session_id=self.session_id)
        return cast("Scratchpad", handle_class("working")(remote))

    def owner(self) -> User:
        head = self.head()
        owner = self.user_id if head is None else head.user_id or self.user_id
        return RemoteUser(self._service, owner, self.session_id)

    def export(self, to: str | Path | TextIO) -> Exported:
        path, wire_log = "/sessions/{session_id}/export", {"session_id": self.session_id}
        events = self._service._events(request_of("GET", path, wire_log, self.user_id))
        with written(to) as file:
            while True:
                try:
                    file.write(next(events))
                except StopIteration as end:
                    return cast("Exported", parsed(Exported, end.value))


@remotely("user", keeps=("notes", "files", "skills", "spatial", "sessions"))
class RemoteUser(User):
    """A `User` of a memory behind a service."""

    _memory: RemoteMemory

    @property
    def _remote(self) -> Remote:
        remote = self._memory._remote
        return replace(remote, user_id=self.user_id, session_id=self._session_id)

    def values(self) -> KeyValues:
        return cast("KeyValues", handle_class("values")(self._remote))

    def open(self, kind: str) -> Any:
        return _handle(self._remote, kind)

    def _scope(self) -> Scope:
        return Scope(self.user_id, self._session_id)


@remotely("share")
class RemoteShare(Share):
    """A `Share` of a memory behind a service."""

    def __init__(self, memory: RemoteMemory, name: str) -> None:
        self._remote = replace(memory._remote, user_id=None, share=name)
        self.name = name

    def agent(self, agent_id: str) -> SharedMemory:
        check_id("agent_id", agent_id)
        agent: SharedMemory = handle_class("shared")(replace(self._remote, user_id=agent_id))
        agent.share, agent.agent_id = self.name, agent_id
        return agent


@contextmanager
def _of_another() -> Iterator[None]:
    """Replace the service's answer "not found" by `NotTheirs`."""
    try:
        yield
    except AccessDenied as error:
        if is_missing(error):
            raise NotTheirs from None
        raise


def _handle(remote: Remote, kind: str) -> Any:
    if kind not in _OPENED:
        raise UnsupportedOperation(
            f"A memory behind a service can only open {', '.join(sorted(_OPENED))}. For other "
            "blocks, call their tools, or open the memory in this process."
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
