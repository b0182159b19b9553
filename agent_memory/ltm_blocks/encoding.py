"""Encoding what was said before anybody asks."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from time import sleep
from typing import TYPE_CHECKING

from agent_memory.core import threads
from agent_memory.core.processes import begin_anew_in_child, fork_safe_lock
from agent_memory.errors import AgentMemoryError

if TYPE_CHECKING:
    from agent_memory.retrieval.encoding import Encoding

logger = logging.getLogger(__name__)

Encode = Callable[[Sequence[str]], "Sequence[Encoding]"]
"""As `Encoder.encode`."""

_MOST_OWNERS = 10_000
_LATER_SECONDS = 0.2  # who says something and ends loads no encoder


class EncodeAhead:
    """Encodes what was said on one thread, in the background, so that questions find it encoded.

    Nothing is lost where it is stopped: what is not encoded is encoded when a question needs it.
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._begin()
        begin_anew_in_child(self, EncodeAhead._begin)

    def _begin(self) -> None:
        self._waiting: OrderedDict[str, Callable[[], bool]] = OrderedDict()
        self._runs = self._stopped = False

    def add(self, owner: str, encode: Callable[[], bool]) -> None:
        """Have a call made soon, again and again while it returns True; one for each owner."""
        with self._lock:
            if self._stopped or len(self._waiting) >= _MOST_OWNERS:
                return
            self._waiting[owner] = encode
            runs, self._runs = self._runs, True
        if not runs:
            threads.start("memory-encoder", self._run)

    def stop(self) -> None:
        """Begin no further call."""
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
                owner, encode = self._waiting.popitem(last=False)
            try:
                more = encode()
            except AgentMemoryError as error:  # a question meets it again, and says so
                logger.info("what was said is not encoded yet: %s", error)
                more = False
            except Exception:  # nobody waits for this thread, which goes on with the others
                logger.exception("what was said is not encoded yet")
                more = False
            with self._lock:
                if more and not self._stopped:
                    self._waiting.setdefault(owner, encode)
