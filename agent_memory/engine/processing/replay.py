"""Replay: rebuilds a block from the logs, session by session. A replay can be resumed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from agent_memory.engine.paging import all_heads
from agent_memory.engine.processing.session_work import SessionWork
from agent_memory.engine.stats import Progress
from agent_memory.engine.system_records import Kind, SystemRecords
from agent_memory.errors import LeaseLost
from agent_memory.stores.base import SessionStore


def unfinished(records: SystemRecords) -> list[str]:
    """Return a message for each replay that is running or was interrupted."""
    return [
        f"A replay of {block} is running or was interrupted after {begun['done']} sessions. If it "
        f"was interrupted, `agent-memory replay {block}` resumes it."
        for block, begun in records.read(Kind.REPLAYS).items()
    ]


def replay(
    block: str, store: SessionStore, work: SessionWork, records: SystemRecords
) -> Iterator[Progress]:
    """Have a block absorb all sessions again. Other calls work meanwhile.

    The progress is stored, so that an interrupted replay resumes after its last finished session.
    """
    begun = records.read(Kind.REPLAYS).get(block, {"after": None, "done": 0})
    after, done = begun["after"], begun["done"]
    records.write(Kind.REPLAYS, block, after=after, done=done)
    total = store.counts().sessions
    for head in all_heads(store, after=after):
        error = _absorb_again(work, block, head.session_id)
        done += 1
        records.write(Kind.REPLAYS, block, after=head.session_id, done=done)
        yield Progress(block, head.session_id, done, max(done, total), error)
    records.drop(Kind.REPLAYS, block)


def _absorb_again(work: SessionWork, block: str, session_id: str) -> str | None:
    while True:
        with suppress(LeaseLost):  # another worker took over before the cursor was reset
            return work.absorb_again(session_id, block)
