"""The log: one JSON object a line, without anything that a request or a record says."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import traceback
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from typing import Any, TextIO

from agent_memory.core.tracing import ids

_OWN = ("agent_memory.server", "agent_memory.listening")
_FIELDS = "fields"
_FRAMES = 12


class JsonLines(logging.Formatter):
    """A record as a line.

    Of other modules' records the template is told, without what was put into it, and of errors
    their class and place: a driver's sentence may repeat what somebody said.
    """

    def format(self, record: logging.LogRecord) -> str:
        """As `logging.Formatter.format`."""
        own = record.name.startswith(_OWN)
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage() if own else str(record.msg),
            **getattr(record, _FIELDS, {}),
        }
        traced = ids()
        if traced is not None:
            told["trace_id"], told["span_id"] = traced
        if record.exc_info and record.exc_info[0] is not None:
            kind, _, trace = record.exc_info
            told["error"] = f"{kind.__module__}.{kind.__qualname__}"
            frames = traceback.extract_tb(trace)[-_FRAMES:]
            told["at"] = [f"{one.filename}:{one.lineno} {one.name}" for one in frames]
        return json.dumps(told, ensure_ascii=True)


class Lines(logging.StreamHandler[TextIO]):
    """Writes lines to stderr; those of one turn of an event loop at once.

    To write lets go of the interpreter, which then is to be had back from the threads that do what
    is asked: at each request that takes longer than to write.
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._waiting: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """As `logging.StreamHandler.emit`."""
        if record.levelno > logging.INFO:
            self.flush()
            super().emit(record)
            return
        try:
            self._waiting.append(self.format(record) + self.terminator)
            if len(self._waiting) == 1:
                asyncio.get_running_loop().call_soon(self.flush)
        except RuntimeError:  # on a thread without a loop
            self.flush()
        except Exception:  # noqa: BLE001 - as the standard library's: no line is worth a request
            self.handleError(record)

    def flush(self) -> None:
        """Write what waits."""
        with self.lock or nullcontext():
            waiting, self._waiting = self._waiting, []
            with suppress(OSError):  # nobody reads stderr any more: there is nobody to tell
                self.stream.write("".join(waiting))
                super().flush()


def log_as_json() -> None:
    """Have this process log so, to stderr: its own requests, and what others warn of."""
    # what no line tells need not be looked up for each (see "Optimization" in the docs of logging)
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = Lines()
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    package = logging.getLogger("agent_memory")
    package.handlers.clear()
    package.propagate = True
    logging.getLogger("agent_memory.server").setLevel(logging.INFO)


def fields(**given: object) -> dict[str, Any]:
    """What to give as `extra`, to have it stand in the line."""
    return {_FIELDS: given}
