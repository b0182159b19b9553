"""Describe a deployment in one file, with the capacity and the strategy of each store."""

from __future__ import annotations

import tempfile
from pathlib import Path

from agent_memory import AgentMemory, Deployment

FILE = """\
# defaults for all stores
retention = "P90D"
recall_timeout = 60.0

[stores.support]
store = "sqlite:///{folder}/support.db"
max_tokens = 400                                             # its capacity in tokens
overflow = {{ kind = "summarize", max_summary_tokens = 80 }}   # what happens when it is full
blocks = [{{ kind = "static", facts = ["The office opens at 8."] }}]

[stores.scratch]
store = "memory://"
retention = "forever"
max_messages = 6                                             # its capacity in messages
overflow = {{ kind = "trim" }}
"""


def talk(memory: AgentMemory) -> None:
    """Store twelve questions and answers."""
    for i in range(1, 13):
        memory.update("s-1", {"role": "user", "content": f"Question {i}: where is desk D-{i}?"})
        memory.update("s-1", {"role": "assistant", "content": f"Desk D-{i} is on floor {i % 4}."})


def main() -> None:
    """Write the file, open all stores, and print how each store stays within its capacity."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deployment.toml"
        path.write_text(FILE.format(folder=Path(folder).as_posix()), encoding="utf-8")
        deployment = Deployment.from_file(path)
        with deployment.open() as memories:
            for name, memory in memories.items():
                talk(memory)
                context = memory.get("s-1", "When does the office open?")
                head = context.head
                print(f"{name}: {len(memory.history('s-1'))} messages in the log")
                print(f"  a context shows {len(context.messages)}, in {context.tokens} tokens")
                print(f"  a summary stands for the rest: {bool(head and head.summary)}")
                print(f"  recalled: {[recall.text for recall in context.recalls]}")


if __name__ == "__main__":
    main()
