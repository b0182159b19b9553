"""The interface of an embedder, a cache for any embedder, and `NoEmbedder` without a model."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from agent_memory.core.cache import Cache
from agent_memory.core.processes import begin_anew_in_child
from agent_memory.errors import AgentMemoryError, DimensionMismatch, ModelOutputInvalid

if TYPE_CHECKING:
    import numpy as np

    from agent_memory.retrieval.vectors import Encoding

logger = logging.getLogger(__name__)

_UNRELATED = (
    "The library closes at six on Saturdays.",
    "My left shoe has a hole in it.",
    "Photosynthesis turns light into sugar.",
    "We painted the kitchen yellow.",
    "The match ended in a draw.",
    "Interest rates rose again in spring.",
    "She plays the violin in a quartet.",
    "Please restart the server tonight.",
    "A storm delayed the ferry to the island.",
    "He is allergic to penicillin.",
    "The recipe needs two eggs and some flour.",
    "Our lawyer read the contract yesterday.",
)
_MOST_BASELINE = 0.95
_MOST_SMALL_TALK, _MOST_ASKED = 10, 40  # words; the intents of longer texts are not known
_SURE = 0.95  # minimum probability that a single word is small talk, and not a keyword


class Embedder(Protocol):
    """Turns texts into unit vectors. Thread-safe.

    `CachedEmbedder` adds `encode`, `encode_query`, `cached`, `baseline` and `intent`. An embedder
    may define `encode` itself, to return word pieces with each vector; see `Encoding`.
    """

    @property
    def name(self) -> str:
        """A name for model and dimension. Vectors under different names are not comparable."""
        raise NotImplementedError

    @property
    def dimension(self) -> int:
        """Length of a vector. The first access may load the model or send a request."""
        raise NotImplementedError

    def load(self) -> None:
        """Load files that are on this machine. Sends no request. Idempotent."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return a (len(texts), dimension) float32 array of unit vectors. Blank texts get zeros.

        Raises:
            ModelError: The model cannot be reached or refuses.
        """
        raise NotImplementedError


class NoEmbedder:
    """An embedder that returns empty vectors. Searches then compare words alone."""

    name = "words-only"
    dimension = 0
    baseline = 0.0
    on_this_machine = False

    def __repr__(self) -> str:
        return "NoEmbedder()"

    def load(self) -> None:
        """Do nothing."""

    def cached(self, texts: Sequence[str]) -> bool:
        """Return True: no text needs encoding."""
        return True

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        import numpy as np

        return np.zeros((len(texts), 0), np.float32)

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        from agent_memory.retrieval.vectors import encoding_of

        return [encoding_of(row) for row in self.embed(texts)]

    def encode_query(self, text: str) -> Encoding:
        return self.encode([text])[0]

    def intent(self, text: str, vector: np.ndarray) -> tuple[float, float]:
        """Return zeros; see `CachedEmbedder.intent`."""
        return 0.0, 0.0


class CachedEmbedder:
    """Caches the encodings of recent texts and validates the embedder's results. Thread-safe."""

    def __init__(self, inner: Embedder, size: int = 10_000) -> None:
        self.inner = inner
        self.name = inner.name
        # False by default, because calls of a user's own function may cost money
        self.on_this_machine = bool(getattr(inner, "on_this_machine", False))
        self._cache: Cache[bytes, Encoding] = Cache(size)
        self._pending: dict[bytes, Future[dict[bytes, Encoding]]] = {}
        self._baseline: float | None = getattr(inner, "baseline", None)
        begin_anew_in_child(self, lambda cache: cache._pending.clear())

    def __repr__(self) -> str:
        return f"CachedEmbedder({self.inner!r})"

    @property
    def dimension(self) -> int:
        return self.inner.dimension

    @property
    def baseline(self) -> float:
        """The cosine of unrelated texts, between 0 and 0.95.

        The value is the inner embedder's `baseline`, or else the mean cosine between twelve
        sentences. The sentences are embedded with the first texts. Until then, the value is 0.
        """
        if self._baseline is None:
            try:
                self.encode(_UNRELATED[:1])
            except AgentMemoryError as error:  # callers that need vectors report the error
                logger.info("the baseline of %s cannot be measured yet: %s", self.name, error)
        return self._baseline or 0.0

    def load(self) -> None:
        self.inner.load()

    def cached(self, texts: Sequence[str]) -> bool:
        """Return whether the encodings of all these texts are cached. Sends no request."""
        with self._cache.lock:
            return all(_key(text) in self._cache for text in texts)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        import numpy as np

        rows = [encoding.vector for encoding in self.encode(texts)]
        return np.stack(rows) if rows else np.zeros((0, self.dimension), np.float32)

    def encode_query(self, text: str) -> Encoding:
        """Return the encoding of a question, which some models encode differently from texts."""
        embed_query = getattr(self.inner, "embed_query", None)
        if embed_query is None:
            return self.encode([text])[0]
        return self._encoded([text], lambda _: [embed_query(text)])[0]

    def intent(self, text: str, vector: np.ndarray) -> tuple[float, float]:
        """Return the probability that a message is small talk, and log-odds.

        The log-odds tell whether the message is about the world rather than about its user. Both
        are 0 if the embedder cannot tell.
        """
        words = len(text.split())
        intent = getattr(self.inner, "intent", None)
        if intent is None or words > _MOST_ASKED:
            return 0.0, 0.0
        small_talk, general = intent(vector)
        if words > _MOST_SMALL_TALK or (words == 1 and small_talk < _SURE):
            small_talk = 0.0
        return small_talk, general

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Return the encoding of each text. Texts that are not cached are embedded in one call."""
        keys = [_key(text) for text in texts]
        wanted = dict(zip(keys, texts, strict=True))
        done: Future[dict[bytes, Encoding]] = Future()
        encodings, others, own = self._split(wanted, done)
        if own:
            try:
                requested = [wanted[key] for key in own]
                new = dict(zip(own, self._encode_new(requested), strict=True))
                for key, encoding in new.items():
                    self._cache.put(key, encoding)
                encodings |= new
                done.set_result(new)
            except BaseException as error:
                done.set_exception(error)
                raise
            finally:
                with self._cache.lock:
                    for key in own:
                        self._pending.pop(key, None)
        for key, future in others.items():
            encodings[key] = future.result()[key]
        return [encodings[key] for key in keys]

    def _encode_new(self, texts: list[str]) -> list[Encoding]:
        encode = getattr(self.inner, "encode", None)
        if encode is not None:
            own: list[Encoding] = encode(texts)
            if len(own) != len(texts):
                raise ModelOutputInvalid(
                    f"The embedder {self.name!r} returned {len(own)} encodings for {len(texts)} "
                    "texts. Return one for each text."
                )
            return own
        more = _UNRELATED if self._baseline is None else ()
        requested = [*texts, *more]
        encoded = self._encoded(requested, self.inner.embed)
        if more:
            self._measure([encoding.vector for encoding in encoded[len(texts) :]])
        return encoded[: len(texts)]

    def _measure(self, rows: Sequence[np.ndarray]) -> None:
        import numpy as np

        count, total = len(rows), sum(rows)
        mean = (float(np.dot(total, total)) - count) / (count * (count - 1))
        self._baseline = min(_MOST_BASELINE, max(0.0, mean))

    def _encoded(self, texts: Sequence[str], embed: Any) -> list[Encoding]:
        """Call a function that embeds whole texts, and validate its vectors."""
        from agent_memory.models.embedders.vectors import answered, unit_rows
        from agent_memory.retrieval.vectors import encoding_of

        source = f"The embedder {self.name!r}"
        units = unit_rows(answered(self.name, embed, texts), source)
        if len(units) != len(texts):
            raise ModelOutputInvalid(
                f"{source} returned {len(units)} vectors for {len(texts)} texts. Return one vector "
                "for each text."
            )
        if units.shape[1] != self.dimension:
            raise DimensionMismatch(
                f"{source} returned vectors of {units.shape[1]} numbers, where {self.dimension} "
                "were expected. Give each model its own name."
            )
        # copied, because a row is a view that would keep its whole batch in memory
        return [encoding_of(row.copy()) for row in units]

    def _split(
        self, wanted: Iterable[bytes], done: Future[dict[bytes, Encoding]]
    ) -> tuple[dict[bytes, Encoding], dict[bytes, Future[dict[bytes, Encoding]]], list[bytes]]:
        """Split texts into cached texts, texts that other threads encode now, and new texts.

        The new texts are registered as pending. The caller must encode them.
        """
        encodings, others, own = {}, {}, []
        with self._cache.lock:
            for key in wanted:
                if (encoding := self._cache.find(key)) is not None:
                    encodings[key] = encoding
                elif key in self._pending:
                    others[key] = self._pending[key]
                else:
                    self._pending[key] = done
                    own.append(key)
        return encodings, others, own


def _key(text: str) -> bytes:
    """Return a text's digest, so that keys of long texts are short."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


Encoder = CachedEmbedder | NoEmbedder
"""An embedder that encodes, as `open_embedder` returns it."""
