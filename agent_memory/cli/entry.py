"""The entry point of `agent-memory`. The hook of a prompt skips the other commands' imports."""

from __future__ import annotations

import os
import sys

_QUICK = "UserPromptSubmit"
_VALUES = {"--agent": "claude-code", "--user": "", "--store": ""}
_STRICT = "--strict"
_WRITING = (["install"], ["uninstall"])
_FAILED = 1


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:2] == ["hook", _QUICK] and (flags := _plain(arguments[2:])):
        from agent_memory.cli.hook_events import answered

        strict = _STRICT in arguments
        code = answered(_QUICK, flags["--agent"], flags["--user"], flags["--store"], strict=strict)
        os._exit(code)  # nothing is open; the interpreter's cleanup would delay the prompt
    from agent_memory.cli.app import main as whole

    try:
        whole()
    except SystemExit as left:
        if left.code and arguments[:1] == ["hook"] and arguments[1:2] not in _WRITING:
            # Exit code 2 would stop the agent, and a wrong option must not do that.
            sys.exit(_FAILED if _STRICT in arguments else 0)
        raise


def _plain(arguments: list[str]) -> dict[str, str] | None:
    """Parse the options of a prompt's hook. Return None if the full command line is needed."""
    rest = [argument for argument in arguments if argument != _STRICT]
    pairs = dict(zip(rest[::2], rest[1::2], strict=False))
    is_plain = len(rest) == 2 * len(pairs) and pairs.keys() <= _VALUES.keys()
    options = {**_VALUES, **pairs}
    return options if is_plain and all(options.values()) else None
