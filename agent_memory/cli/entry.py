"""The entry point of `agent-memory`, and the answers to a coding agent's events.

The hook of a prompt takes a fast path: slow imports are made where they are used.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from agent_memory.engine.memory import AgentMemory

_QUICK = "UserPromptSubmit"
_VALUES = {"--agent": "claude-code", "--user": "", "--store": ""}
_STRICT = "--strict"
_WRITING = (["install"], ["uninstall"])
_FAILED = 1  # never 2: to an agent that means "do not go on"
_LONGEST = 64 * 1024 * 1024
_SQLITE = "sqlite:///"
_STORE = "AGENT_MEMORY_STORE"


def main() -> None:
    """Run the command line."""
    arguments = sys.argv[1:]
    if arguments[:2] == ["hook", _QUICK] and (given := _plain(arguments[2:])):
        strict = _STRICT in arguments
        code = answered(_QUICK, given["--agent"], given["--user"], given["--store"], strict=strict)
        os._exit(code)  # nothing is open; the interpreter's cleanup would delay the prompt
    from agent_memory.cli.app import main as whole

    try:
        whole()
    except SystemExit as left:
        if left.code and arguments[:1] == ["hook"] and arguments[1:2] not in _WRITING:
            # a wrong option must not stop an agent
            sys.exit(_FAILED if _STRICT in arguments else 0)
        raise


def _plain(arguments: list[str]) -> dict[str, str] | None:
    """Parse the options of a prompt's hook; None if the full command line must parse them."""
    rest = [argument for argument in arguments if argument != _STRICT]
    pairs = dict(zip(rest[::2], rest[1::2], strict=False))
    known = len(rest) == 2 * len(pairs) and pairs.keys() <= _VALUES.keys()
    given = {**_VALUES, **pairs}
    return given if known and all(given.values()) else None


def answered(
    event: str,
    agent: str,
    user: str,
    store: str | None,
    config: Path | None = None,
    strict: bool = False,
) -> int:
    """Handle the event on standard input. Return the exit code: 1 for a failure if `strict`."""
    from agent_memory.integrations.hooks.run import run

    def opened() -> AgentMemory:
        from agent_memory.cli.common import load_config
        from agent_memory.engine.memory import AgentMemory

        settings = load_config(store, config)
        # The agent is waiting: work that needs a model is left to other processes.
        return AgentMemory(settings.model_copy(update={"model": None, "overflow_mode": "inline"}))

    try:
        told = run(agent, event, _given(), user, _file(store, config), opened)
        if told:
            print(told, flush=True)
    except Exception as error:  # noqa: BLE001 - the agent goes on without memory
        text = " ".join(str(error).split()) or type(error).__name__
        print(f"agent-memory hook {event}: {text}", file=sys.stderr, flush=True)
        return _FAILED if strict else 0
    return 0


def _given() -> bytes:
    from agent_memory.errors import InvalidInput

    if sys.stdin is None or sys.stdin.isatty():
        raise InvalidInput("Standard input has no event. A coding agent runs this command.")
    given = sys.stdin.buffer.read(_LONGEST + 1)
    if len(given) > _LONGEST:
        raise InvalidInput(f"The event has more than {_LONGEST:,} bytes.")
    return given


def _file(store: str | None, config: Path | None) -> str | None:
    """Return the SQLite file that a prompt may read directly; None if other settings apply."""
    others = any(name.startswith("AGENT_MEMORY_") and name != _STORE for name in os.environ)
    if store is None or not store.startswith(_SQLITE) or config is not None or others:
        return None
    return store.removeprefix(_SQLITE)
