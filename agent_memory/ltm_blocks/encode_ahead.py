"""Encodes new messages in the background."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from time import sleep

from agent_memory.core import threads
from agent_memory.core.processes import begin_anew_in_child, fork_safe_lock
from agent_memory.errors import AgentMemoryError

logger = logging.getLogger(__name__)

_MOST_KEYS = 10_000
_LATER_SECONDS = 0.2  # delay, so that a process that exits soon loads no encoder


class EncodeAhead:
    """Encodes stored messages on one background thread, before a question needs them.

    After `stop` nothing is lost: a question encodes the messages that are not encoded yet.
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._begin()
        begin_anew_in_child(self, EncodeAhead._begin)

    def _begin(self) -> None:
        self._waiting: OrderedDict[Hashable, Callable[[], bool]] = OrderedDict()
        self._runs = self._stopped = False

    def add(self, key: Hashable, encode: Callable[[], bool]) -> None:
        """Schedule a call of `encode`, which encodes messages.

        The call is repeated while it returns True. It replaces an earlier call for the same key.
        After `stop`, and while 10,000 keys have pending calls, a new call is ignored.
        """
        with self._lock:
            if self._stopped or len(self._waiting) >= _MOST_KEYS:
                return
            self._waiting[key] = encode
            runs, self._runs = self._runs, True
        if not runs:
            threads.Handover("memory-encoder", self._run)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._waiting.clear()

    def _run(self) -> None:
        sleep(_LATER_SECONDS)
        while True:
            with self._lock:
                if not self._waiting:
                    self._runs = False
                    return
                key, encode = self._waiting.popitem(last=False)
            try:
                more = encode()
            except AgentMemoryError as error:  # the next question meets the same error
                logger.info("new messages are not encoded yet: %s", error)
                more = False
            except Exception:  # the thread continues with other keys
                logger.exception("new messages are not encoded yet")
                more = False
            with self._lock:
                if more and not self._stopped:
                    self._waiting.setdefault(key, encode)
