"""The library's calls that are about a function, a file or an iterator, which no wire carries: what
the function made, the file's lines, and the steps one by one."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO, Any

from pydantic import Field

from agent_memory.client.edits import digest_of, edited
from agent_memory.client.values import checked, plain
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry
from agent_memory.errors import Conflict
from agent_memory.server.calls.library import LINES, Value, admins_told, pieces, session_of
from agent_memory.server.calls.sessions import OneSession
from agent_memory.server.operation import At, Form, operation

Lines = Iterator[dict[str, Any]]


class Edit(OneSession):
    """What a log is to be."""

    seen: str = Field(max_length=100, description="A digest of the log that it was made of.")
    log: list[int | dict[str, Any]] = Field(
        description="Numbers of messages that stay; new ones, each as {message, created_at}."
    )


class Replay(Form):
    """A block."""

    block: str = Field(min_length=1, description="Its name.")


@operation("POST", "/calls/memory/edit", "delete", anyones=True)
def memory_edit(at: At, asked: Edit) -> Value:
    """Have a session's log be what a function made of it, in one step.

    Refused (409) where the log is not the one any more that it was made of.
    """
    wanted = [one if isinstance(one, int) else checked(Message, one, "log") for one in asked.log]

    def change(log: list[Entry]) -> list[Entry | Message]:
        if digest_of(log) != asked.seen:
            raise Conflict("Somebody else has written meanwhile. Read the log, and decide anew.")
        return edited(log, wanted)

    session_id = session_of(at, asked.session_id, "write")
    with admins_told(at):
        return Value(plain(at.memory.edit(session_id, change, user_id=at.user_id or None)))


@operation("POST", "/calls/memory/replay", "admin", streams=LINES)
def memory_replay(at: At, asked: Replay) -> Lines:
    """Rebuild a block from the log, session by session; its progress after each."""
    return pieces(at.memory.replay(asked.block))


@operation("POST", "/calls/session/export", "read", streams=LINES, anyones=True)
def session_export(at: At, asked: OneSession) -> Lines:
    """Give a session's snapshot, line by line."""
    session = at.memory.session(session_of(at, asked.session_id, "own"), at.user_id or None)
    file = TemporaryFile("w+", encoding="utf-8", newline="\n")  # noqa: SIM115 - read as it is sent
    try:
        with admins_told(at):
            exported = session.export(file)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return _lines(file, plain(exported))


def _lines(file: IO[str], end: Any) -> Lines:
    with file:
        for line in file:
            yield {"value": line}
        yield {"end": end}
