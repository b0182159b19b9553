"""The user as a whole: taking everything along, and erasing everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent_memory.errors import ConfigError
from agent_memory.server.calls.kept import file_view, note_view, observation_view, skill_view
from agent_memory.server.calls.knowledge import change_view, fact_view
from agent_memory.server.calls.shares import Everything
from agent_memory.server.operation import At, operation
from agent_memory.server.views import talk, upkeep
from agent_memory.server.views.showing import shown

_PAGE = 200

Lines = Iterator[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Said:
    """A message of an export."""

    session_id: str
    seq: int
    message: dict[str, Any]
    created_at: datetime


@operation("GET", "/user/export", "read", streams="application/x-ndjson")
def export_user(at: At, asked: Everything) -> Iterator[dict[str, Any]]:
    """Give all that is kept for the user, one JSON object a line, each with its `kind`.

    The last line is of the kind "end": an export without it was cut short.
    """
    return _exported(at)


@operation("DELETE", "/user", "delete")
def delete_user(at: At, asked: Everything) -> upkeep.Receipt:
    """Erase all of the user's sessions and records; the receipt says what became of each place."""
    return upkeep.receipt(at.memory.delete_user(at.user_id))


def _exported(at: At) -> Lines:
    count = 0
    for kind, one in _all(at):
        count += 1
        yield {"kind": kind, kind: one}
    yield {"kind": "end", "lines": count}


def _all(at: At) -> Iterator[tuple[str, object]]:
    after: str | None = None
    while page := at.memory.sessions(user_id=at.user_id, limit=_PAGE, after=after):
        for head in page:
            yield "session", talk.session(head)
            yield from (("message", one) for one in _messages(at, head.session_id))
        after = page[-1].session_id
    for kind, read in _kept(at):
        with suppress(ConfigError):  # no such block is configured
            yield from ((kind, one) for one in read())


def _messages(at: At, session_id: str) -> Iterator[object]:
    after = 0
    while page := at.memory.history(session_id, user_id=at.user_id, after=after, limit=_PAGE):
        for entry in page:
            yield shown(Said, entry, message=entry.message.to_dict())
        after = page[-1].seq


def _kept(at: At) -> Iterator[tuple[str, Callable[[], Iterable[object]]]]:
    user = at.user
    yield "note", lambda: map(note_view, user.notes().all())
    yield "fact", lambda: map(fact_view, user.facts())
    yield "change", lambda: map(change_view, user.audit())
    yield "profile", lambda: [user.profile().model_dump(mode="json")]
    yield (
        "file",
        lambda: (file_view(path, user.files().read(path)) for path in user.files().paths()),
    )
    yield "skill", lambda: (skill_view(one) for one in user.skills().all() if not one.shared)
    yield "observation", lambda: map(observation_view, user.spatial().all())
