"""The service's log: JSON lines, without the content of requests or records."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import traceback
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from typing import Any, TextIO

from agent_memory.core.tracing import ids

_OWN = ("agent_memory.server", "agent_memory.listening")
_FIELDS = "fields"
_FRAMES = 12
_PLACEHOLDER = re.compile(r"%[.0-9]*[a-z]")


class JsonLines(logging.Formatter):
    """Formats a record as a JSON line.

    Arguments and error messages may repeat user data. Records of loggers outside the service are
    therefore written without texts: of their arguments, numbers and classes of errors are shown.
    """

    def format(self, record: logging.LogRecord) -> str:
        own = record.name.startswith(_OWN)
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage() if own else _without_texts(record),
            **getattr(record, _FIELDS, {}),
        }
        traced = ids()
        if traced is not None:
            line["trace_id"], line["span_id"] = traced
        if record.exc_info and record.exc_info[0] is not None:
            kind, _, trace = record.exc_info
            line["error"] = f"{kind.__module__}.{kind.__qualname__}"
            frames = traceback.extract_tb(trace)[-_FRAMES:]
            line["at"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line, ensure_ascii=True)


def _without_texts(record: logging.LogRecord) -> str:
    args = iter(record.args if isinstance(record.args, tuple) else ())

    def shown(_: re.Match[str]) -> str:
        value = next(args, None)
        if isinstance(value, BaseException):
            return type(value).__name__
        return str(value) if isinstance(value, int | float) else "..."

    return _PLACEHOLDER.sub(shown, str(record.msg))


class Lines(logging.StreamHandler[TextIO]):
    """Writes log lines to stderr. All lines of one iteration of the event loop are one write.

    Each write releases the interpreter lock, and worker threads may then keep it for a while.
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._waiting: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record: a warning or an error immediately, any other with the next flush."""
        try:
            self._waiting.append(self.format(record) + self.terminator)
            if record.levelno > logging.INFO:
                self.flush()
            elif len(self._waiting) == 1:
                asyncio.get_running_loop().call_soon(self.flush)
        except RuntimeError:  # this thread has no event loop
            self.flush()
        except Exception:  # noqa: BLE001 - as in the standard library: logging never fails a request
            self.handleError(record)

    def flush(self) -> None:
        with self.lock or nullcontext():
            waiting, self._waiting = self._waiting, []
            with suppress(OSError):  # stderr is closed
                self.stream.write("".join(waiting))
                super().flush()


def log_as_json() -> None:
    """Log to stderr as JSON lines: the service's requests, and warnings of all other loggers."""
    # do not look up attributes that no line uses (see "Optimization" in the docs of logging)
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


def fields(**values: object) -> dict[str, Any]:
    """Return the `extra` argument that adds these fields to a log line."""
    return {_FIELDS: values}
