"""Encoding what was said before anybody asks, and within the time that a question has."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from agent_memory.core import threads
from agent_memory.core.processes import begin_anew_in_child, fork_safe_lock
from agent_memory.errors import AgentMemoryError
from agent_memory.models.embedders.base import Encoder
from agent_memory.models.embedders.none import NoEmbedder

if TYPE_CHECKING:
    from agent_memory.retrieval.encoding import Encoding

logger = logging.getLogger(__name__)

Encode = Callable[[Sequence[str]], "Sequence[Encoding]"]
"""As `Encoder.encode`."""

_BATCH = 8
_MOST_OWNERS = 10_000


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


class SoonEncoded:
    """Encodes texts within a time limit, the last first; others get no vector.

    Args:
        embedder: Encodes them.
        seconds: The limit, over all calls.
    """

    def __init__(self, embedder: Encoder, seconds: float) -> None:
        self._embedder = embedder
        self._until = monotonic() + seconds
        self._whole = True

    def is_whole(self) -> bool:
        """Whether all texts were encoded so far."""
        return self._whole

    def __call__(self, texts: Sequence[str]) -> list[Encoding]:
        """Return the encoding of each text, with a vector of zeros for those left out."""
        found: list[Encoding | None] = [None] * len(texts)
        missing: list[int] = []
        for at, text in enumerate(texts):
            if self._embedder.cached([text]):
                found[at] = self._embedder.encode([text])[0]
            else:
                missing.append(at)
        size = _BATCH if self._embedder.on_this_machine else max(1, len(missing))
        while missing and monotonic() < self._until:
            batch, missing = missing[-size:], missing[:-size]
            made = self._embedder.encode([texts[at] for at in batch])
            for at, one in zip(batch, made, strict=True):
                found[at] = one
        if missing:
            self._whole = False
        blank = self._blank()
        return [blank if one is None else one for one in found]

    def _blank(self) -> Encoding:
        import numpy as np

        dimension = self._embedder.dimension
        (none,) = NoEmbedder().encode([""])
        return none._replace(vector=np.zeros(dimension, np.float32))
