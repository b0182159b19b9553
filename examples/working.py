"""Use a scratchpad for one conversation: code and model write to it, and contexts show it."""

from __future__ import annotations

import json
from typing import Any

from agent_memory import AgentMemory, WorkingMemory

CALLS: list[tuple[str, dict[str, Any]]] = [  # the tool calls of a model
    ("working_set", {"key": "plan", "value": ["get three offers", "compare", "order"]}),
    ("working_set", {"key": "offers", "value": {"Oak & Sons": 310, "Chairly": 285}}),
    ("working_set", {"key": "plan", "value": ["compare", "order"]}),
    ("working_get", {"key": "budget"}),
    ("working_set", {"key": "cheapest", "value": float("inf")}),
    ("working_delete", {"key": "offer"}),
]


def main() -> None:
    """Fill a scratchpad, print the context that shows it, and end the conversation."""
    with AgentMemory(store="memory://", blocks=[WorkingMemory()]) as memory:
        pad = memory.session("chairs", "kim").working()
        pad.set("budget", 300)
        for name, arguments in CALLS:
            result = memory.call_tool("chairs", name, arguments)
            print(f"{name} {json.dumps(arguments)}\n  -> {result}")

        print("\nWhat the model is shown in this conversation:")
        print(memory.get("chairs", "Which one shall we take?").to_messages()[0]["content"])
        other = memory.get("tables", "Which one shall we take?", user_id="kim")
        print("And in another one of the same user:", other.recalls)

        memory.end("chairs")
        print("After the end:", pad.all())


if __name__ == "__main__":
    main()
