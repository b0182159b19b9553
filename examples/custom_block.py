"""Write a long-term block of your own: it stores messages that contain a promise."""

from __future__ import annotations

from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Literal

from agent_memory import AgentMemory, Block, Entry, FlushToLTM, Message, Recall
from agent_memory.core.records import Record, Scope
from agent_memory.ltm_blocks.base import record_id


class Promises(Block):
    """Messages that say "I will"."""

    kind: Literal["promises"] = "promises"

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        """Store the promises among these entries. A repeated call changes nothing."""
        records = [
            Record(
                id=record_id(self.name, scope.owner, entry.session_id, entry.seq),
                owner=scope.owner,
                session_id=entry.session_id,
                first=entry.seq,
                last=entry.seq,
                text=entry.message.text(),
                sources=(entry.seq,),
                created_at=entry.created_at,
            )
            for entry in entries
            if "i will" in entry.message.text().lower()
        ]
        self.resources.store.put_records(self.name, records, lease=scope.lease)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        """Return the newest promises, regardless of the message."""
        newest = self.resources.store.records(self.name, scope.owner)[::-1][:limit]
        return [Recall(self.name, r.id, r.text, sources=((r.session_id, r.last),)) for r in newest]

    def delete(self, scope: Scope) -> None:
        """Forget a session, its entries after `scope.after`, or a user."""
        store = self.resources.store
        if scope.session_id is None:
            store.delete_records(self.name, owner=scope.owner, lease=scope.lease)
        else:
            store.delete_records(
                self.name, session_id=scope.session_id, after=scope.after, lease=scope.lease
            )


def main() -> None:
    """Let a promise leave the window, then recall it."""
    with (
        TemporaryDirectory() as folder,
        AgentMemory(
            store=f"sqlite:///{folder}/memory.db",
            max_tokens=200,
            overflow=FlushToLTM(blocks=[Promises()]),
        ) as memory,
    ):
        memory.update("s-1", {"role": "user", "content": "I will send form HR-101 by Friday."})
        for day in range(1, 9):
            memory.update("s-1", {"role": "user", "content": f"Day {day}: worked from home again."})

        context = memory.get("s-1", "Anything left to do?")
        shown = [message.text() for message in context.messages]
        print("In the window: ", "; ".join(shown))
        for recall in context.recalls:
            print(f"From {recall.block}: {recall.text} (message {recall.sources[0][1]})")


if __name__ == "__main__":
    main()
