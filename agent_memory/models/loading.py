"""Import of litellm, which takes seconds, on a background thread before the first model call."""

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
    """Import litellm, configured to be quiet and offline. The first call takes seconds.

    Prices and context windows come from the file that litellm ships.

    Raises:
        ModelUnavailable: The process is exiting, and this is not its main thread.
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
                "No model can be called while the process exits. Call it before that."
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
    """Start a thread that imports litellm, unless it is loaded or loading. Returns immediately.

    A failure is raised again by the next `load_litellm`.
    """
    global _loader
    if "litellm" not in sys.modules and (_loader is None or _loader.ended(0)):
        _loader = Handover("memory-litellm", load_litellm)


def break_off_loading() -> None:
    """At exit, stop a thread that imports litellm, and wait for it up to 5 seconds."""
    _ending.set()
    if _loading.acquire(timeout=_END_SECONDS):
        _loading.release()


def _forget_parts() -> None:
    """Remove litellm's modules that a failed import left, so that the next import runs them."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "litellm"]:
        del sys.modules[name]


class _BrokenOff(BaseException):
    """Stops an import. It is no `Exception`, so that imported code does not catch it."""


class _ImportsUntilExit:
    """A module finder that finds nothing. At exit, it stops the import of `load_litellm`."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Run before each module is looked up."""
        if _ending.is_set() and threading.get_ident() == _importing:
            raise _BrokenOff
