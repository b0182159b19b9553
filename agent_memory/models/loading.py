"""Loading litellm, which takes seconds: on a thread of its own, before a model is asked."""

from __future__ import annotations

import logging
import os
import sys
import threading
from contextlib import suppress
from importlib import import_module
from typing import Any

from agent_memory.core.processes import fork_safe_lock
from agent_memory.errors import ModelUnavailable

logger = logging.getLogger(__name__)

_END_SECONDS = 5.0

_loading = fork_safe_lock(own=True)
_ending = threading.Event()
_importing: int | None = None
_loader: threading.Thread | None = None


def load_litellm() -> Any:
    """Import litellm (this takes seconds, once) set up to stay quiet and offline.

    Prices and context windows then come from the file that litellm ships.

    Raises:
        ModelUnavailable: The process ends, and this is not its main thread.
    """
    global _importing
    with _loading:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        if threading.current_thread() is not threading.main_thread():
            if _ImportsUntilExit not in sys.meta_path:
                sys.meta_path.insert(0, _ImportsUntilExit)  # for good: others may be reading it
            _importing = threading.get_ident()
        try:
            litellm: Any = import_module("litellm")
        except _BrokenOff:
            raise ModelUnavailable(
                "No model can be asked while the process ends. Ask again in the next one."
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
    """Have litellm loaded by a thread, unless it is there or on its way. Returns at once.

    Should that fail, `load_litellm` fails too, where somebody can be told.
    """
    global _loader
    if "litellm" in sys.modules or (_loader is not None and _loader.is_alive()):
        return
    _loader = threading.Thread(target=_load, name="memory-litellm", daemon=True)
    with suppress(RuntimeError):  # the interpreter ends, and starts no threads any more
        _loader.start()


def break_off_loading() -> None:
    """At exit: have threads that load litellm stop, and wait for that."""
    _ending.set()
    if _loading.acquire(timeout=_END_SECONDS):
        _loading.release()


def _load() -> None:
    try:
        load_litellm()
    except Exception as error:  # noqa: BLE001 - whoever asks a model meets it again, and is told
        logger.debug("litellm was not loaded beforehand: %r", error)


def _forget_parts() -> None:
    """Drop what was imported of litellm before it failed: a new litellm would not have it set."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "litellm"]:
        del sys.modules[name]


class _BrokenOff(BaseException):
    """Out of an import; no `except Exception` on the way may keep it."""


class _ImportsUntilExit:
    """A finder that finds nothing. At exit it stops what a thread imports for `load_litellm`."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Called for every module before it is looked for."""
        if _ending.is_set() and threading.get_ident() == _importing:
            raise _BrokenOff
