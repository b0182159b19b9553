"""The entry point of `agent-memory`. A hook of a coding agent never exits with code 2."""

from __future__ import annotations

import sys

_STRICT = "--strict"
_WRITING = (["install"], ["uninstall"])
_FAILED = 1


def main() -> None:
    from agent_memory.cli.app import main as whole

    arguments = sys.argv[1:]
    try:
        whole()
    except SystemExit as left:
        if left.code and arguments[:1] == ["hook"] and arguments[1:2] not in _WRITING:
            # exit code 2 would stop the agent, and a wrong option must not do that
            sys.exit(_FAILED if _STRICT in arguments else 0)
        raise
