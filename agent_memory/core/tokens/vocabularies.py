"""The vocabularies that litellm ships: what their files say, and how each cuts a text in pieces.

All are byte-pair encodings. A pattern cuts the text in pieces; within a piece, the neighbours that
make the token of the lowest rank are joined, the first such pair first, until none make a token.
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
UNKNOWN_MODEL_ENCODING = "cl100k_base"  # litellm's choice where it has no tokenizer
CLAUDE = "claude"

_CLAUDE_FILE = "anthropic_tokenizer.json"

# Upper stands for letters that may begin a word in capitals, lower for those that may end it;
# letters without case, and marks, are both. Outside o200k a mark is no letter.
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
        """The pattern; its classes of characters are left to be named."""
        ...

    def listing(self) -> bytes:
        """The part of the file that names the tokens, in the order of their ranks."""
        ...

    def entry(self, token: bytes) -> bytes:
        """What the listing has where it names the token, and nowhere else."""
        ...

    def ranks(self) -> dict[bytes, int]:
        """Every token, with a number that grows with its rank."""
        ...

    @property
    def normal(self) -> Callable[[str], str] | None:
        """Gives the text as it is encoded; None for as it is."""
        ...


@dataclass(frozen=True, slots=True)
class OpenAI:
    """A vocabulary of OpenAI's: a line for each token, in base 64, with its rank.

    Attributes:
        file: Name of the file.
        pattern: Cuts a text into pieces.
    """

    file: str
    pattern: str

    def listing(self) -> bytes:
        """The file; a line break comes before its first line too."""
        return b"\n" + _bundled(self.file)

    def entry(self, token: bytes) -> bytes:
        """The token's line up to the rank."""
        return b"\n%b " % b2a_base64(token, newline=False)

    def ranks(self) -> dict[bytes, int]:
        """Every token, numbered by its line."""
        words = _bundled(self.file).split()[::2]
        return dict(zip(map(a2b_base64, words), range(len(words)), strict=True))

    @property
    def normal(self) -> None:
        """Texts are encoded as they are."""


class Claude:
    """The vocabulary that Anthropic published, in the JSON of `tokenizers`.

    It counts as `tokenizers` does, but that the name of a special token is text like any other.
    There, merges have ranks, not tokens. It comes to the same: each token is made by one merge
    alone, of tokens that were made before it.
    """

    pattern = _GPT2

    def listing(self) -> bytes:
        """The object that numbers the tokens; it is in order."""
        numbered = _bundled(_CLAUDE_FILE).partition(b'"vocab":{')[2]
        return numbered.partition(b',"merges":[')[0]  # "merges" is a token too

    def entry(self, token: bytes) -> bytes:
        """The token's key in that object."""
        letters = token.decode("latin-1").translate(_LETTERS)
        return json.dumps(letters, ensure_ascii=False).join((",", ":")).encode()

    def ranks(self) -> dict[bytes, int]:
        """Every token but the special ones."""
        tokenizer = json.loads(_bundled(_CLAUDE_FILE))
        vocab = tokenizer["model"]["vocab"]
        special = {token["content"] for token in tokenizer["added_tokens"]}
        return {
            token.translate(_BYTES).encode("latin-1"): rank
            for token, rank in vocab.items()
            if token not in special
        }

    def normal(self, text: str) -> str:
        """The text in Unicode's form KC."""
        return text if text.isascii() else unicodedata.normalize("NFKC", joined(text))


VOCABULARIES: dict[str, Vocabulary] = {
    "o200k_base": OpenAI("fb374d419588a4632f3f557e76b4b70aebbca790", _O200K),
    "cl100k_base": OpenAI("9b5ad71b2ce5302211f9c61530b329a4922fc6a4", _CL100K),
    "p50k_base": OpenAI("ec7223a39ce59f226a68acc30dc1af2788490e15", _GPT2),
    CLAUDE: Claude(),
}


def joined(text: str) -> str:
    """The text with pairs of surrogates made characters, and single ones replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _letters() -> dict[int, str]:
    """The printable letter that stands for each byte in files of `tokenizers`, from GPT-2 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {
        byte: chr(256 + place) for place, byte in enumerate(others)
    }


_LETTERS = _letters()
_BYTES = {ord(letter): byte for byte, letter in _LETTERS.items()}


def _bundled(file: str) -> bytes:
    """One of litellm's tokenizer files, found without importing it (that takes seconds)."""
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
