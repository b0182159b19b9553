"""What the agents of all frameworks share: a process that holds some turns of the conversation.

    python -m tests.frameworks.agents.runner NAME STORE SERVER RESULT < TURNS

TURNS is JSON, a list of [session, question]. The answers are written to RESULT.
"""

import asyncio
import inspect
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from pathlib import Path

from agent_memory import AgentMemory
from tests.frameworks.conversation import BUDGET

Turns = Sequence[tuple[str, str]]
Conversation = Callable[[AgentMemory, str, Turns], list[str] | Awaitable[list[str]]]


def main() -> None:
    """Hold the turns that standard input names, with its own memory."""
    name, store, server, result = sys.argv[1:]
    conversation: Conversation = import_module(f"tests.frameworks.agents.{name}").converse
    turns = [(session, question) for session, question in json.load(sys.stdin)]
    with AgentMemory(store=store, max_tokens=BUDGET, recall_timeout=60) as memory:
        answers = conversation(memory, server, turns)
        if inspect.isawaitable(answers):
            answers = asyncio.run(_awaited(answers))
    Path(result).write_text(json.dumps(answers), encoding="utf-8")


async def _awaited(answers: Awaitable[list[str]]) -> list[str]:
    return await answers


if __name__ == "__main__":
    main()
