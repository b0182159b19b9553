"""Count frames from a call to its SQL statement: `python -m benchmarks speed frames`.

It profiles an `update` and a `get` with the default blocks on SQLite. For each call, it prints the
call stack of the statement with the most frames, and the number of threads.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, NamedTuple

import agent_memory
from agent_memory import AgentMemory

PACKAGE = str(Path(agent_memory.__file__).parent)
STATEMENTS = ("execute", "executemany")


class Statement(NamedTuple):
    """The functions on the stack when a statement ran, outermost first, and their thread."""

    thread: str
    functions: tuple[str, ...]


class Statements:
    """Collects the SQL statements of a call, in this thread and in threads that start later."""

    def __init__(self) -> None:
        self.found: list[Statement] = []
        threading.setprofile(self._note)

    def of(self, call: Callable[[], Any]) -> list[Statement]:
        """Return the statements of a call."""
        self.found = []
        sys.setprofile(self._note)
        try:
            call()
        finally:
            sys.setprofile(None)
        return self.found

    def _note(self, frame: FrameType | None, event: str, argument: Any) -> None:
        owner = type(getattr(argument, "__self__", None)).__module__
        if event != "c_call" or owner != "sqlite3" or argument.__name__ not in STATEMENTS:
            return
        functions = []
        while frame is not None:
            if frame.f_code.co_filename.startswith(PACKAGE):
                functions.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}")
            frame = frame.f_back
        self.found.append(Statement(threading.current_thread().name, tuple(functions[::-1])))


def main() -> None:
    statements = Statements()
    question = "Which city do I live in?"
    with TemporaryDirectory() as folder, AgentMemory(f"{folder}/memory.db") as memory:
        for number in range(5):
            memory.update("s", f"I moved to Lisbon {number}.", user_id="ana")
        memory.flush()
        memory.get("s", question, user_id="ana")
        memory.update("s", "The session is known now.", user_id="ana")
        calls = {
            "update": lambda: memory.update("s", "I moved on to Porto.", user_id="ana"),
            "get": lambda: memory.get("s", question, user_id="ana"),
        }
        for name, call in calls.items():
            found = statements.of(call)
            deepest = max(found, key=lambda one: len(one.functions))
            threads = len({one.thread for one in found} | {threading.current_thread().name})
            print(f"{name}: {len(deepest.functions)} frames, {threads} threads")
            print("  " + " > ".join(deepest.functions))
