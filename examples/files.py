"""Give a model files: it writes them with a tool in one session, and reads them in another."""

from __future__ import annotations

import json
from typing import Any

from agent_memory import AgentMemory, FileMemory

MONDAY: list[dict[str, Any]] = [
    {"command": "view", "path": "/memories"},
    {
        "command": "create",
        "path": "/memories/garden/tomatoes.md",
        "file_text": "# Tomatoes\n- sown on March 3\n- water every other day\n",
    },
    {
        "command": "str_replace",
        "path": "/memories/garden/tomatoes.md",
        "old_str": "every other day",
        "new_str": "every day, once it is hot",
    },
    {"command": "str_replace", "path": "/memories/garden.md", "old_str": "a", "new_str": "b"},
]
FRIDAY: list[dict[str, Any]] = [
    {"command": "view", "path": "/memories"},
    {"command": "view", "path": "/memories/garden/tomatoes.md"},
    {"command": "view", "path": "/memories/../../etc/passwd"},
]


def main() -> None:
    """Run scripted tool calls of two sessions, as JSON like those of a model."""
    with AgentMemory(store="memory://", blocks=[FileMemory()]) as memory:
        for session, commands in (("monday", MONDAY), ("friday", FRIDAY)):
            print(f"== {session}")
            for command in commands:
                reply = memory.call_tool(session, "files", json.dumps(command), user_id="kim")
                print(f"> {command['command']} {command['path']}\n{reply}")
        print("== Your code sees them too, and nobody else's model does")
        print(memory.user("kim").files().read("/memories/garden/tomatoes.md").splitlines()[2])
        print("ben:", memory.user("ben").files().paths())


if __name__ == "__main__":
    main()
