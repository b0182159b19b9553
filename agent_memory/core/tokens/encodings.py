"""Encodings, ready at once: what counts their tokens first is not what counts them later.

Building tiktoken's tokenizer takes a few hundred milliseconds, most of which no other thread of the
process can run in. So a process's first texts are counted by a `MergeCounter`, which says the same;
when they become many, the tokenizer is built in a thread, and takes over.
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

_BUILD_AFTER = 20_000_000  # of a MergeCounter's work: some ten short messages

_MOST_KEPT, _LONG = 4_096, 2_000

# tiktoken panics over a million blanks in a row, so they are cut.
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
        name: Of the encoding.
        vocabulary: Its tokens and pattern.

    Attributes:
        name: Of the encoding.
        count: A function that counts a text's tokens. It is replaced when there is a faster one, so
            it is looked up for each text.
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
        """Build tiktoken's tokenizer, unless that was done, and have it count from now on."""
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
                owned.clear()  # tiktoken holds on to it, and has a copy of its own
                self._built = self.count = _counter(encoding, self._vocabulary)
                self._merges = self._ranks = None
            return self._built

    @apart  # it imports, and an import that is cut short may leave the lock of all imports taken
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
        # Where there can be no more threads, the first texts' counter goes on.
        with suppress(RuntimeError):
            self._builder.start()

    def _table(self) -> dict[bytes, int]:
        with self._lock:
            ranks = self._ranks or self._vocabulary.ranks()
            if self._built is None:
                self._ranks = ranks
            return ranks


def encoding(name: str) -> Encoding:
    """The encoding of that name; the same for all who ask."""
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
    kept = lru_cache(_MOST_KEPT)(whole)  # what is recalled is counted at each question
    return lambda text: kept(text) if len(text) < _LONG else whole(text)
