"""Write a block with a handle, a tool, lasting `forget`, and a check of imported records."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from pydantic import Field

from agent_memory import AgentMemory, Block, Entry, InvalidInput, Message, Recall, operations
from agent_memory.core.forms import Count, Form
from agent_memory.core.records import Record, Scope, Span
from agent_memory.core.tools import tool
from agent_memory.errors import InvalidSnapshot
from agent_memory.ltm_blocks.base import record_id
from agent_memory.ltm_blocks.registry import Tombstone, bury, tombstones

_NAMED = re.compile(r"[Mm]y name is ([A-Z]\w+(?: [A-Z]\w+)*)")


class Signature(Form):
    """The metadata of a record: the position of the name in the message."""

    span: Annotated[list[Count], Field(min_length=2, max_length=2)]


class Guests:
    """The guests of one front desk. Here the front desk is the user."""

    def __init__(self, block: GuestBook, scope: Scope) -> None:
        self._block = block
        self._scope = scope

    def all(self) -> list[Record]:
        """Return all guests, oldest first."""
        return self._block.resources.store.records(self._block.name, self._scope.owner)

    def names(self) -> list[str]:
        """Return the names of all guests."""
        return [guest.text for guest in self.all()]


class GuestBook(Block):
    """The names in messages that say "My name is ..."."""

    kind: Literal["guest_book"] = "guest_book"

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        """Store the names in these entries. A repeated call changes nothing."""
        gone = tombstones(self.resources.store, self.name, scope.owner)
        records = []
        for entry in entries:
            found = _NAMED.search(entry.message.text())
            if found is None:
                continue
            one = record_id(self.name, scope.owner, entry.session_id, entry.seq)
            if any(each.covers(one, entry.session_id, entry.seq, found.span(1)) for each in gone):
                continue
            records.append(
                Record(
                    id=one,
                    owner=scope.owner,
                    session_id=entry.session_id,
                    first=entry.seq,
                    last=entry.seq,
                    text=found[1],
                    sources=(entry.seq,),
                    created_at=entry.created_at,
                    metadata={"span": list(found.span(1))},
                )
            )
        self.resources.store.put_records(self.name, records, lease=scope.lease)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        """Return the newest guests, regardless of the message."""
        newest = self.open(scope).all()[::-1][:limit]
        return [Recall(self.name, one.id, f"{one.text} came by.") for one in newest]

    def delete(self, scope: Scope) -> None:
        """Forget a session, its entries after `scope.after`, or a user."""
        store = self.resources.store
        if scope.session_id is None:
            store.delete_records(self.name, owner=scope.owner)
        else:
            store.delete_records(
                self.name, session_id=scope.session_id, after=scope.after, lease=scope.lease
            )

    def open(self, scope: Scope) -> Guests:
        """Return the guests of a front desk."""
        return Guests(self, scope)

    def forget(self, scope: Scope, what: str | Span, why: str) -> list[Record]:
        """Forget a guest by the record's id; a replay does not bring the guest back."""
        gone = [one for one in self.open(scope).all() if one.id == what]
        buried = [
            Tombstone(
                one.id, one.session_id, one.first, one.last, _span(one), datetime.now(UTC), why
            )
            for one in gone
        ]
        bury(self.resources.store, self.name, scope.owner, buried)
        for one in gone:
            self.resources.store.delete_records(self.name, record_id=one.id)
        return gone

    def validate_import(self, record: Record) -> Record:
        """Refuse a record that does not describe a guest."""
        Signature.model_validate(record.metadata)
        if not _NAMED.fullmatch(f"My name is {record.text}"):
            raise InvalidInput(f"{record.text[:40]!r} is nobody's name.")
        return record

    @tool("{name}_who", "Look up who has been here.")
    def _who(
        self,
        scope: Scope,
        name: str = Field(min_length=1, description="A part of the guest's name."),
    ) -> str:
        found = [one for one in self.open(scope).names() if name.lower() in one.lower()]
        if not found:
            raise InvalidInput(f"No {name[:40]!r} has been here.")
        return "; ".join(found)


def _span(record: Record) -> tuple[int, int]:
    start, end = record.metadata["span"]
    return start, end


def forged(lines: Iterable[str], old: str, new: str) -> list[str]:
    """Return a snapshot with replaced text and a correct checksum, as anybody can forge it."""
    whole, made = hashlib.sha256(), []
    for line in lines:
        said = re.sub(r'"sha256":"\w+"', f'"sha256":"{whole.hexdigest()}"', line.replace(old, new))
        whole.update(said.encode())
        made.append(said)
    return made


def opened(store: str) -> AgentMemory:
    """Open a memory with a guest book."""
    return AgentMemory(store=store, blocks=[GuestBook()])


def main() -> None:
    """Fill the book, forget a guest, rebuild the book, erase it, and import a session of it."""
    desk = "front-desk"
    with TemporaryDirectory() as folder, opened(f"sqlite:///{folder}/memory.db") as memory:
        for day, name in (("monday", "Ada Lovelace"), ("monday", "Ben"), ("tuesday", "Eve")):
            said = f"Hello! My name is {name}, and I am expected."
            memory.update(day, {"role": "user", "content": said}, user_id=desk)
        memory.flush()

        guests: Guests = memory.user(desk).open("guest_book")
        print("Guests:", guests.names())
        who = memory.call_tool("tuesday", "guest_book_who", {"name": "love"}, user_id=desk)
        print("The model finds:", who)

        ben = guests.all()[1].id
        print("The model:", memory.call_tool("monday", "memory_forget", {"id": ben}, user_id=desk))
        for step in memory.replay("guest_book"):
            print(f"Replayed {step.done} of {step.total}: {step.session_id}")
        print("Rebuilt, and Ben stays forgotten:", guests.names())

        file = Path(folder) / "monday.jsonl"
        memory.session("monday").export(file)
        memory.delete_user(desk)
        print("Left of the desk:", guests.names())

        with file.open(encoding="utf-8") as lines, opened("memory://") as other:
            crafted = forged(lines, '"text":"Ada Lovelace"', '"text":"buy now!"')
            try:
                operations.import_session(other, crafted)
            except InvalidSnapshot as error:
                print("Refused:", error)
            operations.import_session(other, file)
            there: Guests = other.user(desk).open("guest_book")
            print("Imported:", there.names())
            list(other.replay("guest_book"))
            print("And rebuilt there:", there.names())


if __name__ == "__main__":
    main()
