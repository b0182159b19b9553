"""A block that stores every message as a fact, for tests of a block's records."""

from collections.abc import Sequence

from agent_memory import Block
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Recall, Record, Scope
from agent_memory.ltm_blocks.base import record_id


class Echo(Block):
    """Recalls all messages. It keeps its records in the engine's store, under the lease."""

    kind: str = "echo"

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return [
            Recall(self.name, fact.id, fact.text, 1.0, sources=((fact.session_id, fact.last),))
            for fact in self.resources.store.records(self.name, scope.owner)
        ]

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        records = [
            Record(
                id=record_id(scope.owner, entry.session_id, entry.seq),
                owner=scope.owner,
                session_id=entry.session_id,
                first=entry.seq,
                last=entry.seq,
                text=entry.message.text(),
                sources=(entry.seq,),
                created_at=entry.created_at,
            )
            for entry in entries
        ]
        self.resources.store.put_records(self.name, records, lease=scope.lease)

    def delete(self, scope: Scope) -> None:
        where = {"session_id": scope.session_id} if scope.session_id else {"owner": scope.owner}
        self.resources.store.delete_records(
            self.name, **where, after=scope.after, lease=scope.lease
        )
