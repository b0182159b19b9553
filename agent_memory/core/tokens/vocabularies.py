"""The vocabularies that litellm ships: their files, and how each splits a text into pieces.

All are byte-pair encodings. A pattern splits the text into pieces. Within a piece, the
neighbours that form the token of the lowest rank are merged, the first such pair first. This is
repeated until no pair forms a token.
"""

from __future__ import annotations

import importlib.util
import json
import unicodedata
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent_memory.errors import ConfigError

DEFAULT_ENCODING = "o200k_base"
UNKNOWN_MODEL_ENCODING = "cl100k_base"  # litellm's choice for a model without a tokenizer
CLAUDE = "claude"

_CLAUDE_FILE = "anthropic_tokenizer.json"

# Upper is for letters that may begin a capitalised word, lower for those that may end it. Letters
# without case, and marks, are in both. Outside o200k, a mark is not a letter.
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


class Vocabulary(Protocol):
    """One encoding: its tokens and its pattern."""

    @property
    def pattern(self) -> str:
        """Return the pattern with placeholders for its character classes."""
        ...

    def listing(self) -> bytes:
        """Return the part of the file that names the tokens, in the order of their ranks."""
        ...

    def entry(self, token: bytes) -> bytes:
        """Return bytes that occur in the listing only at the token's entry."""
        ...

    def ranks(self) -> dict[bytes, int]:
        """Map every token to a number that grows with its rank."""
        ...

    @property
    def normal(self) -> Callable[[str], str] | None:
        """Return a function that normalises texts; None for no change."""
        ...


@dataclass(frozen=True, slots=True)
class OpenAI:
    """A vocabulary of OpenAI: a line for each token, in base64, with its rank.

    Attributes:
        file: Name of the file.
        pattern: Splits a text into pieces.
    """

    file: str
    pattern: str

    def listing(self) -> bytes:
        """Return the file with a line break before its first line."""
        return b"\n" + _bundled(self.file)

    def entry(self, token: bytes) -> bytes:
        """Return the token's line up to the rank."""
        return b"\n%b " % b2a_base64(token, newline=False)

    def ranks(self) -> dict[bytes, int]:
        """Map every token to the number of its line."""
        words = _bundled(self.file).split()[::2]
        return dict(zip(map(a2b_base64, words), range(len(words)), strict=True))

    @property
    def normal(self) -> None:
        """Return None: texts are not changed."""


class Claude:
    """The vocabulary that Anthropic published, in the JSON of `tokenizers`.

    It counts as `tokenizers` does, except that names of special tokens are ordinary text. In that
    file, merges have ranks, and tokens do not. The result is the same, because each token is made
    by exactly one merge of earlier tokens.
    """

    pattern = _GPT2

    def listing(self) -> bytes:
        """Return the object that numbers the tokens, in order."""
        numbered = _bundled(_CLAUDE_FILE).partition(b'"vocab":{')[2]
        return numbered.partition(b',"merges":[')[0]  # "merges" is a token too

    def entry(self, token: bytes) -> bytes:
        """Return the token's key in that object."""
        letters = token.decode("latin-1").translate(_LETTERS)
        return json.dumps(letters, ensure_ascii=False).join((",", ":")).encode()

    def ranks(self) -> dict[bytes, int]:
        """Map every token but the special ones to its number."""
        tokenizer = json.loads(_bundled(_CLAUDE_FILE))
        vocab = tokenizer["model"]["vocab"]
        special = {token["content"] for token in tokenizer["added_tokens"]}
        return {
            token.translate(_BYTES).encode("latin-1"): rank
            for token, rank in vocab.items()
            if token not in special
        }

    def normal(self, text: str) -> str:
        """Return the text in Unicode's form KC."""
        return text if text.isascii() else unicodedata.normalize("NFKC", joined(text))


VOCABULARIES: dict[str, Vocabulary] = {
    "o200k_base": OpenAI("fb374d419588a4632f3f557e76b4b70aebbca790", _O200K),
    "cl100k_base": OpenAI("9b5ad71b2ce5302211f9c61530b329a4922fc6a4", _CL100K),
    "p50k_base": OpenAI("ec7223a39ce59f226a68acc30dc1af2788490e15", _GPT2),
    CLAUDE: Claude(),
}


def joined(text: str) -> str:
    """Join pairs of surrogates to characters, and replace single ones."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _letters() -> dict[int, str]:
    """Map each byte to its printable letter in files of `tokenizers` since GPT-2."""
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
