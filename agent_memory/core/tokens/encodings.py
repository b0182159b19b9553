"""Encodings that count immediately: a slow exact counter first, tiktoken's tokenizer later.

To build tiktoken's tokenizer takes a few hundred milliseconds, most of which block all threads. A
process's first texts are therefore counted by a `MergeCounter`, with the same result. After many
texts, the tokenizer is built in a thread and replaces it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.threads import apart
from agent_memory.core.tokens.merges import MergeCounter, NotForMerging
from agent_memory.core.tokens.vocabularies import VOCABULARIES, Vocabulary

if TYPE_CHECKING:
    import tiktoken

_BUILD_AFTER = 20_000_000  # work of a MergeCounter: about ten short messages

_MOST_KEPT, _LONG = 4_096, 2_000

# tiktoken panics at a million blanks in a row, so that runs are split.
_BLANKS = 200_000
_MANY_BLANKS = re.compile(r"\s{200000}")

_CLASSES = {
    "upper": r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}",
    "lower": r"\p{Ll}\p{Lm}\p{Lo}\p{M}",
    "letter": r"\p{L}",
    "digit": r"\p{N}",
    "space": r"\s",
}


class Encoding:
    """Counts tokens in one encoding. Safe to share between threads.

    Args:
        name: The name of the encoding.
        vocabulary: Its tokens and pattern.

    Attributes:
        name: The name of the encoding.
        count: Counts the tokens of a text. A faster function replaces it later: look it up for
            each text.
    """

    def __init__(self, name: str, vocabulary: Vocabulary) -> None:
        self.count: Callable[[str], int] = self._count_first
        self.name = name
        self._vocabulary = vocabulary
        self._merges: MergeCounter | None = None
        self._ranks: dict[bytes, int] | None = None
        self._built: Callable[[str], int] | None = None
        self._builder: threading.Thread | None = None
        self._lock = fork_safe_lock(own=True)

    def build(self) -> Callable[[str], int]:
        """Build tiktoken's tokenizer once, and use it from now on."""
        import tiktoken

        ranks = self._table()
        with self._lock:
            if self._built is None:
                owned = dict(ranks)
                encoding = tiktoken.Encoding(
                    self.name,
                    pat_str=self._vocabulary.pattern.format(**_CLASSES),
                    mergeable_ranks=owned,
                    special_tokens={},
                )
                owned.clear()  # tiktoken holds a reference to it, beside its own copy
                self._built = self.count = _counter(encoding, self._vocabulary)
                self._merges = self._ranks = None
            return self._built

    @apart  # it imports, and an interrupted import may never release the import lock
    def _count_first(self, text: str) -> int:
        merges = self._merges
        if merges is None:
            merges = MergeCounter(self._vocabulary, self._table)
            with self._lock:
                if self._built is not None:
                    return self._built(text)
                merges = self._merges = self._merges or merges
        try:
            count = merges(text)
        except NotForMerging:
            return self.build()(text)
        if merges.work > _BUILD_AFTER and self._builder is None:
            self._build_in_thread()
        return count

    def _build_in_thread(self) -> None:
        self._builder = threading.Thread(target=self.build, name="agent-memory-tokenizer")
        # Without another thread, the first counter continues.
        with suppress(RuntimeError):
            self._builder.start()

    def _table(self) -> dict[bytes, int]:
        with self._lock:
            ranks = self._ranks or self._vocabulary.ranks()
            if self._built is None:
                self._ranks = ranks
            return ranks


def encoding(name: str) -> Encoding:
    """Return the shared encoding of that name."""
    return _ENCODINGS[name]


_ENCODINGS = {name: Encoding(name, vocabulary) for name, vocabulary in VOCABULARIES.items()}


def _counter(encoding: tiktoken.Encoding, vocabulary: Vocabulary) -> Callable[[str], int]:
    encode, normal = encoding.encode_ordinary, vocabulary.normal

    def count(text: str) -> int:
        if len(text) < _BLANKS:
            return len(encode(text))
        cuts = [0, *(blanks.end() for blanks in _MANY_BLANKS.finditer(text)), len(text)]
        return sum(len(encode(text[start:end])) for start, end in pairwise(cuts))

    whole = count if normal is None else lambda text: count(normal(text))
    cached_count = lru_cache(_MOST_KEPT)(whole)  # recalled texts are counted at each query
    return lambda text: cached_count(text) if len(text) < _LONG else whole(text)
