"""Session and memory services for Google's ADK that store in an `AgentMemory`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from agent_memory.core.formats.registry import ADK
from agent_memory.core.limits import MOST
from agent_memory.core.records import Entry
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import MissingExtra
from agent_memory.integrations.adapting import joined, locked, threaded

try:
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.adk.sessions.base_session_service import (
        BaseSessionService,
        GetSessionConfig,
        ListSessionsResponse,
    )
    from google.adk.sessions.session import Session
    from google.adk.sessions.state import State
    from google.genai.types import Content
except ImportError as error:
    raise MissingExtra("Google ADK's services", "google-adk") from error

__all__ = ["AgentMemoryMemoryService", "AgentMemorySessionService"]

_ROOT = "google.adk"
_STATE = "state"
_DELETED = (_ROOT, "deleted")
_RETRIED = 50  # number of newest entries that are searched for a retried event
Json = dict[str, Any]


class AgentMemorySessionService(BaseSessionService):
    """Stores ADK's sessions as sessions of the memory. Blocks absorb their events.

    In the memory, the user's id is "APP/USER", and the session's id "APP/USER/SESSION".
    """

    def __init__(self, memory: AgentMemory) -> None:
        self._memory = memory

    @threaded
    def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: Json | None = None,
        session_id: str | None = None,
    ) -> Session:
        name = (session_id or "").strip() or str(uuid4())
        log = joined(app_name, user_id, name)
        with locked(self._memory, _ROOT, log):
            if self._memory.head(log) is not None:
                raise AlreadyExistsError(f"Session with id {name} already exists.")
            own = self._share(app_name, user_id, state or {})
            metadata = {_STATE: own, "updated": time.time()}
            self._memory.describe(log, metadata, user_id=joined(app_name, user_id))
        return self._session(app_name, user_id, name, metadata, [])

    @threaded
    def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        name = session_id.strip()
        log = joined(app_name, user_id, name)
        head = self._memory.head(log)
        if head is None:
            return None
        last = config.num_recent_events if config else None
        events = [item for entry in self._memory.history(log, last=last) for item in _events(entry)]
        since = config.after_timestamp if config else None
        if since is not None:
            events = [item for item in events if item.timestamp >= since]
        return self._session(app_name, user_id, name, head.metadata, events)

    @threaded
    def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return sessions without their events, the last updated session last."""
        above = joined(app_name) if user_id is None else joined(app_name, user_id)
        sessions = []
        for head in self._memory.sessions(prefix=f"{above}/", limit=MOST):
            _, user_id, name = _parted(head.session_id)
            sessions.append(self._session(app_name, user_id, name, head.metadata, []))
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    @threaded
    def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session, and everything derived from it. Idempotent."""
        self._memory.delete(joined(app_name, user_id, session_id.strip()))

    @threaded
    def get_user_state(self, *, app_name: str, user_id: str) -> Json:
        """Return a user's state in an app. Its keys have no prefix."""
        return self._user_state(app_name, user_id)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event and its state changes, unless it is partial or already stored."""
        if event.partial or not await self._is_new(session, event):
            return event
        await super().append_event(session, event)
        session.last_update_time = event.timestamp
        await self._append(session, event)
        return event

    @threaded
    def _is_new(self, session: Session, event: Event) -> bool:
        log = joined(session.app_name, session.user_id, session.id)
        if self._memory.head(log) is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        recent = [e for entry in self._memory.history(log, last=_RETRIED) for e in _events(entry)]
        return all(other.id != event.id or other != event for other in recent)

    @threaded
    def _append(self, session: Session, event: Event) -> None:
        app, user = session.app_name, session.user_id
        log = joined(app, user, session.id)
        with locked(self._memory, _ROOT, log):
            head = self._memory.head(log)
            if head is None:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            delta = dict(event.actions.state_delta) if event.actions else {}
            own = {**head.metadata.get(_STATE, {}), **self._share(app, user, delta)}
            # the state is stored first: if an error follows, the caller's retry stores both
            self._memory.describe(log, {_STATE: own, "updated": event.timestamp})
            self._memory.update(log, _storable(event), user_id=joined(app, user))

    def _share(self, app: str, user: str, state: Json) -> Json:
        """Store the app's and the user's keys of a state. Return the session's keys."""
        own: Json = {}
        wide: dict[str, Json] = {State.APP_PREFIX: {}, State.USER_PREFIX: {}}
        for key, value in state.items():
            if key.startswith(State.TEMP_PREFIX):
                continue
            prefix = next((name for name in wide if key.startswith(name)), None)
            if prefix is None:
                own[key] = value
            else:
                wide[prefix][key.removeprefix(prefix)] = value
        self._widen((_ROOT, app), None, wide[State.APP_PREFIX])
        self._widen((_ROOT,), joined(app, user), wide[State.USER_PREFIX])
        return own

    def _widen(self, place: tuple[str, ...], owner: str | None, more: Json) -> None:
        if more:
            values = self._memory.values(owner)
            with locked(self._memory, _ROOT, f"{owner}/{place}"):
                values.put(place, _STATE, {**_state(values.get(place, _STATE)), **more})

    def _user_state(self, app: str, user: str) -> Json:
        return _state(self._memory.values(joined(app, user)).get((_ROOT,), _STATE))

    def _session(
        self, app: str, user: str, name: str, metadata: Mapping[str, Any], events: list[Event]
    ) -> Session:
        shared = _state(self._memory.values().get((_ROOT, app), _STATE))
        user_state = self._user_state(app, user)
        state = {
            **metadata.get(_STATE, {}),
            **{State.APP_PREFIX + key: value for key, value in shared.items()},
            **{State.USER_PREFIX + key: value for key, value in user_state.items()},
        }
        return Session(
            app_name=app, user_id=user, id=name, state=state, events=events,
            last_update_time=metadata.get("updated", 0.0),
        )  # fmt: skip


class AgentMemoryMemoryService(BaseMemoryService):
    """Stores and searches users' earlier messages, for ADK's memory tools.

    An event is stored once, even if its session is added repeatedly. Events of an
    `AgentMemorySessionService` with the same memory are already stored.

    Args:
        memory: The memory; its blocks define the search.
    """

    def __init__(self, memory: AgentMemory, *, limit: int = 10) -> None:
        self._memory = memory
        self._limit = limit

    @threaded
    def add_session_to_memory(self, session: Session) -> None:
        self._add(session.app_name, session.user_id, session.id, list(session.events))

    @threaded
    def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        self._add(app_name, user_id, session_id or "events", events)

    @threaded
    def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        words_alone = not self._memory.blocks  # without blocks, one common word is a match
        recalls = self._memory.search(
            query,
            user_id=joined(app_name, user_id),
            limit=self._limit,
            entries=True,
            least=0.0 if words_alone else None,
        )
        memories: dict[str, MemoryEntry] = {}
        for recall in recalls:
            for entry in recall.entries:
                for event in _events(entry):
                    if event.content is not None and not _says(event.content, query):
                        memories.setdefault(event.id, _memory_of(event))
        return SearchMemoryResponse(memories=list(memories.values())[: self._limit])

    @threaded
    def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Forget an event permanently: adding its session again does not restore it."""
        if not memory_id:
            return

        def change(log: list[Entry]) -> list[Entry]:
            return [entry for entry in log if all(item.id != memory_id for item in _events(entry))]

        owner = joined(app_name, user_id)
        for head in self._memory.sessions(prefix=f"{owner}/", limit=MOST):
            entries = self._memory.history(head.session_id)
            if len(change(entries)) < len(entries):
                self._memory.values(owner).put(_DELETED, memory_id, True)
                self._memory.edit(head.session_id, change)

    def _add(self, app: str, user: str, name: str, events: Sequence[Event]) -> None:
        owner, log = joined(app, user), joined(app, user, name)
        stored = {event.id for entry in self._memory.history(log) for event in _events(entry)}
        forgotten = self._memory.values(owner)
        fresh: dict[str, Event] = {}
        for event in events:
            has_content = event.content is not None and bool(event.content.parts)
            if has_content and event.id not in stored and forgotten.get(_DELETED, event.id) is None:
                fresh.setdefault(event.id, event)
        if fresh:
            self._memory.update(log, [_storable(event) for event in fresh.values()], user_id=owner)


def _storable(event: Event) -> Json:
    raw = event.model_dump(mode="json", exclude_none=True)
    return {"raw": raw, "format": ADK, "created_at": datetime.fromtimestamp(event.timestamp, UTC)}


def _events(entry: Entry) -> Iterator[Event]:
    """Yield the event of an entry; nothing for messages from other sources."""
    if entry.message.format == ADK and entry.message.raw is not None:
        yield Event.model_validate(entry.message.raw)


def _memory_of(event: Event) -> MemoryEntry:
    at = datetime.fromtimestamp(event.timestamp).isoformat()
    return MemoryEntry(id=event.id, content=event.content, author=event.author, timestamp=at)


def _says(content: Content, query: str) -> bool:
    """Return whether a message is the query itself: `PreloadMemoryTool` searches for it."""
    return " ".join(part.text for part in content.parts or () if part.text) == query


def _state(item: Any) -> Json:
    return {} if item is None else dict(item.value)


def _parted(name: str) -> list[str]:
    return [part.replace("%2F", "/").replace("%25", "%") for part in name.split("/")]
