"""Export a session to a file, import it into another store, and refuse an altered file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from agent_memory import AgentMemory, VectorMemory, WorkingMemory, operations
from agent_memory.errors import InvalidSnapshot

SAID = [
    "We meet on Tuesdays at half past nine.",
    "The projector in room 4 is broken.",
    "Ben brings the cake this time.",
]


def opened(store: str) -> AgentMemory:
    """Open a memory over a store."""
    return AgentMemory(store=store, blocks=[VectorMemory(), WorkingMemory()])


def main() -> None:
    """Take a snapshot, restore it in another store, and try to restore an altered snapshot."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "team.jsonl"
        with opened("memory://") as memory:
            for text in SAID:
                memory.update("team", {"role": "user", "content": text}, user_id="ada")
            memory.flush("team")
            memory.session("team").working().set("plan", ["order coffee"])
            done = memory.session("team").export(file)
            found = memory.search("When do we meet?", user_id="ada")
        print(f"{done.entries} messages and {done.records} records of blocks.")

        with opened(f"sqlite:///{folder}/other.db") as other:
            head = operations.import_session(other, file)
            print(f"Restored: {head.session_id}, of {head.user_id}, {head.end} messages.")
            again = other.search("When do we meet?", user_id="ada")
            print("The same is found:", [one.id for one in again] == [one.id for one in found])
            print("Its plan:", other.session("team").working().get("plan"))

            other.delete("team")
            file.write_bytes(file.read_bytes().replace(b"room 4", b"room 5"))
            try:
                operations.import_session(other, file, deleted=True)
            except InvalidSnapshot as error:
                print("Refused:", error)
            print("Sessions there:", [one.session_id for one in other.sessions()])


if __name__ == "__main__":
    main()
