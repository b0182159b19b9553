"""Token counts by byte-pair encodings. A slow, exact counter is used first, and tiktoken later.

Building tiktoken's tokenizer takes a few hundred milliseconds, and blocks all threads most of that
time. A `MergeCounter` therefore counts the first texts of a process, with the same results. After
about ten short messages, the tokenizer is built in a thread and replaces the `MergeCounter`.

A byte-pair encoding splits a text into pieces by a pattern. Within a piece, it repeatedly merges
the first pair of neighbours that forms the token of the lowest rank, until no pair forms a token.
The vocabularies are files that litellm ships.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import threading
import unicodedata
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from agent_memory.core.cache import Cache
from agent_memory.core.lazy import lazy_property
from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.threads import off_main_thread, start
from agent_memory.errors import ConfigError

if TYPE_CHECKING:
    import tiktoken


DEFAULT_ENCODING = "o200k_base"
UNKNOWN_MODEL_ENCODING = "cl100k_base"  # litellm's choice for a model without a tokenizer
CLAUDE = "claude"

_CLAUDE_FILE = "anthropic_tokenizer.json"

# {upper}: letters that may begin a capitalised word. {lower}: letters that may end it. Combining
# marks and letters without case are in both classes. In the other encodings, a mark is no letter.
_O200K = (
    r"[^\r\n{letter}{digit}]?[{upper}]*[{lower}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n{letter}{digit}]?[{upper}]+[{lower}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[{digit}]{{1,3}}"
    r"| ?[^{space}{letter}{digit}]+[\r\n/]*"
    r"|[{space}]*[\r\n]+"
    r"|[{space}]+(?![^{space}])"
    r"|[{space}]+"
)
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)"
    r"|[^\r\n{letter}{digit}]?[{letter}]+"
    r"|[{digit}]{{1,3}}"
    r"| ?[^{space}{letter}{digit}]+[\r\n]*"
    r"|[{space}]*[\r\n]+"
    r"|[{space}]+(?![^{space}])"
    r"|[{space}]+"
)
_GPT2 = (
    r"'(?:[sdmt]|ll|ve|re)"
    r"| ?[{letter}]+"
    r"| ?[{digit}]+"
    r"| ?[^{space}{letter}{digit}]+"
    r"|[{space}]+(?![^{space}])"
    r"|[{space}]+"
)


@dataclass(frozen=True, slots=True)
class OpenAI:
    """A vocabulary of OpenAI. Each line of its file has a token in base64, and the token's rank."""

    file: str
    pattern: str

    def normal(self, text: str) -> str:
        return text

    def listing(self) -> bytes:
        """Return the names of the tokens, in the order of their ranks."""
        return b"\n" + _bundled(self.file)

    def entry(self, token: bytes) -> bytes:
        """Return the token as it stands in `listing`, with delimiters that make it unique."""
        return b"\n%b " % b2a_base64(token, newline=False)

    def ranks(self) -> dict[bytes, int]:
        """Map every token to a number that grows with its rank."""
        words = _bundled(self.file).split()[::2]
        return dict(zip(map(a2b_base64, words), range(len(words)), strict=True))


class Claude:
    """The vocabulary that Anthropic published, in the JSON of `tokenizers`.

    The counts equal those of `tokenizers`, except that names of special tokens count as ordinary
    text. Anthropic's file ranks merges, not tokens. The order of the tokens gives the same result,
    because exactly one merge of earlier tokens makes each token.
    """

    pattern = _GPT2

    def listing(self) -> bytes:
        numbered = _bundled(_CLAUDE_FILE).partition(b'"vocab":{')[2]
        return numbered.partition(b',"merges":[')[0]  # `"merges"` alone may be the entry of a token

    def entry(self, token: bytes) -> bytes:
        letters = token.decode("latin-1").translate(_LETTERS)
        return json.dumps(letters, ensure_ascii=False).join((",", ":")).encode()

    def ranks(self) -> dict[bytes, int]:
        tokenizer = json.loads(_bundled(_CLAUDE_FILE))
        vocab = tokenizer["model"]["vocab"]
        special = {token["content"] for token in tokenizer["added_tokens"]}
        return {
            token.translate(_BYTES).encode("latin-1"): rank
            for token, rank in vocab.items()
            if token not in special
        }

    def normal(self, text: str) -> str:
        return text if text.isascii() else unicodedata.normalize("NFKC", joined(text))


Vocabulary = OpenAI | Claude

VOCABULARIES: dict[str, Vocabulary] = {
    "o200k_base": OpenAI("fb374d419588a4632f3f557e76b4b70aebbca790", _O200K),
    "cl100k_base": OpenAI("9b5ad71b2ce5302211f9c61530b329a4922fc6a4", _CL100K),
    CLAUDE: Claude(),
}


def joined(text: str) -> str:
    """Join surrogate pairs to characters, and replace lone surrogates."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _letters() -> dict[int, str]:
    """Map each byte to the printable letter that stands for it in the files of `tokenizers`."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {
        byte: chr(256 + place) for place, byte in enumerate(others)
    }


_LETTERS = _letters()
_BYTES = {ord(letter): byte for byte, letter in _LETTERS.items()}


def _bundled(file: str) -> bytes:
    """Read one of litellm's tokenizer files without importing litellm, which takes seconds."""
    spec = importlib.util.find_spec("litellm")
    assert spec is not None, "litellm is a dependency"
    assert spec.origin is not None, "litellm is a package with files"
    folder = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"
    try:
        return (folder / file).read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"litellm has no tokenizer file {file} in {folder}. Install a release of litellm that "
            "agent-memory supports."
        ) from None


# Work is measured in searched bytes. A million bytes take about half a millisecond.
_WORK_PER_CHARACTER = 500
_WORK_PER_PAIR = 200
_MOST_WORK = 150_000_000

_LONGEST_PIECE = 512  # bytes; the work grows with the square of a piece's length

_NO_TOKEN = sys.maxsize

_ASCII = {"upper": "A-Z", "lower": "a-z", "letter": "A-Za-z", "digit": "0-9", "space": r" \t-\r"}
_PROPERTIES = {
    "upper": r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}",
    "lower": r"\p{Ll}\p{Lm}\p{Lo}\p{M}",
    "letter": r"\p{L}",
    "digit": r"\p{N}",
    "space": r"\p{White_Space}",
}
_LONG_S = "\u017f"  # equals an s if the pattern ignores case
_EMOJI = range(0x1F300, 0x1FB00)  # emoji, and code points reserved for emoji


class NotForMerging(Exception):
    """Raised if a text has a character of uncertain class or a long piece, or takes too long."""


class MergeCounter:
    """Counts the same tokens as tiktoken, without an index. Safe to share between threads.

    A token's rank is its place in the vocabulary's file. Only tokens of the counted text are
    searched there.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.work = 0
        self._normal = vocabulary.normal
        self._entry = vocabulary.entry
        self._listing = vocabulary.listing()
        self._places: dict[bytes, int] = {}
        self._pattern = vocabulary.pattern
        self._split = re.compile(self._pattern.format(**_ASCII)).findall
        self._count = cache(self._count_piece)

    def __call__(self, text: str) -> int:
        self._spend(_WORK_PER_CHARACTER * len(text))
        text = self._normal(text)
        if text.isascii():
            return sum(map(self._count, self._split(text)))
        if not all(map(_is_known, text)):
            raise NotForMerging
        return sum(map(self._count, self._split_any(text)))

    @lazy_property
    def _split_any(self) -> Callable[[str], list[str]]:
        import regex  # type: ignore[import-untyped] # of tiktoken; its import takes 12 ms

        split: Callable[[str], list[str]] = regex.compile(
            self._pattern.format(**_PROPERTIES)
        ).findall
        return split

    def _count_piece(self, piece: str) -> int:
        token = piece.encode()
        if len(token) > _LONGEST_PIECE:
            raise NotForMerging
        return 1 if self._rank(token) != _NO_TOKEN else self._merge(token)

    def _merge(self, token: bytes) -> int:
        rank = self._rank
        parts = [token[i : i + 1] for i in range(len(token))]
        ranks = [rank(left + right) for left, right in pairwise(parts)]
        while ranks and (best := min(ranks)) != _NO_TOKEN:
            self._spend(_WORK_PER_PAIR * len(ranks))
            at = ranks.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del ranks[at]
            if at > 0:
                ranks[at - 1] = rank(parts[at - 1] + parts[at])
            if at < len(ranks):
                ranks[at] = rank(parts[at] + parts[at + 1])
        return len(parts)

    def _rank(self, token: bytes) -> int:
        place = self._places.get(token)
        if place is None:
            offset = self._listing.find(self._entry(token))
            self._spend(offset if offset >= 0 else len(self._listing))
            place = self._places[token] = offset if offset >= 0 else _NO_TOKEN
        return place

    def _spend(self, work: int) -> None:
        self.work += work
        if self.work > _MOST_WORK:
            raise NotForMerging


@cache
def _is_known(character: str) -> bool:
    """Return whether a character has the same class in all releases of Unicode."""
    category = unicodedata.category(character)
    if ord(character) in _EMOJI:
        return True
    is_old = category == unicodedata.ucd_3_2_0.category(character)
    return is_old and category not in ("Cn", "Cs") and character != _LONG_S


_BUILD_AFTER = 20_000_000  # work in searched bytes: about ten short messages

_MOST_CACHED, _MOST_LONG, _LONG = 4_096, 1_024, 2_000

# tiktoken panics at a million blanks in a row. Long runs of blanks are therefore split.
_BLANKS = 200_000
_MANY_BLANKS = re.compile(r"\s{200000}")


class Encoding:
    """Counts tokens in one encoding. Safe to share between threads.

    Attributes:
        count: A function that counts the tokens of a text. Read the attribute for each text,
            because a faster function replaces it later.
    """

    def __init__(self, name: str, vocabulary: Vocabulary) -> None:
        self.count: Callable[[str], int] = self._count_first
        self.name = name
        self._vocabulary = vocabulary
        self._built: Callable[[str], int] | None = None
        self._builder: threading.Thread | None = None
        self._lock = fork_safe_lock(own=True)

    def build(self) -> Callable[[str], int]:
        """Build tiktoken's tokenizer, unless it is built already, and use it from now on."""
        import tiktoken

        with self._lock:
            if self._built is None:
                ranks = self._vocabulary.ranks()
                encoding = tiktoken.Encoding(
                    self.name,
                    pat_str=self._vocabulary.pattern.format(**_PROPERTIES),
                    mergeable_ranks=ranks,
                    special_tokens={},
                )
                ranks.clear()  # tiktoken keeps a reference to this dict, but uses its own copy
                self._built = self.count = _counter(encoding, self._vocabulary)
                vars(self).pop("_merges", None)
            return self._built

    @lazy_property
    def _merges(self) -> MergeCounter:
        return MergeCounter(self._vocabulary)

    @off_main_thread  # an interrupted import may never release the import lock
    def _count_first(self, text: str) -> int:
        merges = self._merges
        try:
            count = merges(text)
        except NotForMerging:
            return self.build()(text)
        if merges.work > _BUILD_AFTER and self._builder is None:
            self._builder = threading.Thread(target=self.build, name="agent-memory-tokenizer")
            # If no thread can be started, the MergeCounter continues.
            with suppress(RuntimeError):
                start(self._builder)
        return count


def encoding(name: str) -> Encoding:
    """Return the shared encoding of a name in `VOCABULARIES`."""
    return _ENCODINGS[name]


_ENCODINGS = {name: Encoding(name, vocabulary) for name, vocabulary in VOCABULARIES.items()}


def _counter(encoding: tiktoken.Encoding, vocabulary: Vocabulary) -> Callable[[str], int]:
    encode, normal = encoding.encode_ordinary, vocabulary.normal

    def count(text: str) -> int:
        text = normal(text)
        if len(text) < _BLANKS:
            return len(encode(text))
        cuts = [0, *(blanks.end() for blanks in _MANY_BLANKS.finditer(text)), len(text)]
        return sum(len(encode(text[start:end])) for start, end in pairwise(cuts))

    short = lru_cache(_MOST_CACHED)(count)  # contexts repeat most of their texts
    long: Cache[tuple[int, int], int] = Cache(_MOST_LONG)

    def cached_count(text: str) -> int:
        if len(text) < _LONG:
            return short(text)
        return long.computed((hash(text), len(text)), lambda: count(text))

    return cached_count
