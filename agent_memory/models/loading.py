"""Imports litellm, which takes seconds, on a background thread or with the first model call."""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module
from typing import Any

from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.threads import Handover
from agent_memory.errors import ModelUnavailable

_END_SECONDS = 5.0

_loading = fork_safe_lock(own=True)
_ending = threading.Event()
_importing: int | None = None
_loader: Handover[Any] | None = None


def load_litellm() -> Any:
    """Return litellm, without telemetry and debug output. The first call takes seconds.

    Prices and context windows come from the file that litellm ships, not from a download.

    Raises:
        ModelUnavailable: The process is exiting, and the caller is not its main thread.
    """
    global _importing
    with _loading:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        if threading.current_thread() is not threading.main_thread():
            if _ImportsUntilExit not in sys.meta_path:
                # the finder is never removed, as other threads may be iterating over the list
                sys.meta_path.insert(0, _ImportsUntilExit)
            _importing = threading.get_ident()
        try:
            litellm: Any = import_module("litellm")
        except _BrokenOff:
            raise ModelUnavailable(
                "No model can be called while the process exits. Call the model earlier."
            ) from None
        except BaseException:
            _forget_parts()
            raise
        finally:
            _importing = None
        litellm.telemetry = False
        litellm.suppress_debug_info = True
        return litellm


def load_in_background() -> None:
    """Start a thread that imports litellm, unless it is loaded or loading. Return immediately.

    If the import fails, the next `load_litellm` repeats it.
    """
    global _loader
    if "litellm" not in sys.modules and (_loader is None or _loader.ended(0)):
        _loader = Handover("memory-litellm", load_litellm)


def break_off_loading() -> None:
    """At exit, stop the thread that imports litellm, and wait up to 5 seconds for its end."""
    _ending.set()
    if _loading.acquire(timeout=_END_SECONDS):
        _loading.release()


def _forget_parts() -> None:
    """Remove the modules that a failed import of litellm left. The next import then starts anew."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "litellm"]:
        del sys.modules[name]


class _BrokenOff(BaseException):
    """Stops an import. It is not an `Exception`, so that imported code does not catch it."""


class _ImportsUntilExit:
    """A module finder that finds nothing. At exit, it stops the import of a background thread."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise at exit. The import system calls this method before it looks up a module."""
        if _ending.is_set() and threading.get_ident() == _importing:
            raise _BrokenOff
