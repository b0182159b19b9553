"""Handle one event of a coding agent, from standard input to exit code.

Each prompt starts a new process, which imports this module. Slow imports are therefore inside
functions.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from agent_memory.errors import InvalidInput
from agent_memory.integrations.hooks.run import run

if TYPE_CHECKING:
    from pathlib import Path

    from agent_memory.engine.memory import AgentMemory

_FAILED = 1  # never 2: exit code 2 stops the agent
_LONGEST = 64 * 1024 * 1024
_SQLITE = "sqlite:///"
_STORE = "AGENT_MEMORY_STORE"


def answered(
    event: str,
    agent: str,
    user: str,
    store: str | None,
    config: Path | None = None,
    strict: bool = False,
) -> int:
    """Handle the event on standard input. Return the exit code: 1 for a failure if `strict`."""

    def opened() -> AgentMemory:
        from agent_memory.cli.common import load_config
        from agent_memory.engine.memory import AgentMemory

        settings = load_config(store, config)
        # The agent is waiting: work that needs a model is left to other processes.
        return AgentMemory(settings.model_copy(update={"model": None, "overflow_mode": "inline"}))

    try:
        output = run(agent, event, _read_event(), user, _file(store, config), opened)
        if output:
            print(output, flush=True)
    except Exception as error:  # noqa: BLE001 - the agent goes on without memory
        text = " ".join(str(error).split()) or type(error).__name__
        print(f"agent-memory hook {event}: {text}", file=sys.stderr, flush=True)
        return _FAILED if strict else 0
    return 0


def _read_event() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise InvalidInput("Standard input has no event. A coding agent runs this command.")
    event = sys.stdin.buffer.read(_LONGEST + 1)
    if len(event) > _LONGEST:
        raise InvalidInput(f"The event has more than {_LONGEST:,} bytes.")
    return event


def _file(store: str | None, config: Path | None) -> str | None:
    """Return the SQLite file that a prompt's hook may read directly, or None."""
    others = any(name.startswith("AGENT_MEMORY_") and name != _STORE for name in os.environ)
    if store is None or not store.startswith(_SQLITE) or config is not None or others:
        return None
    return store.removeprefix(_SQLITE)
