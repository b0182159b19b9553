"""Counting what messages cost, with the tokenizer of the configured model and no network.

The count of a context is the sum of its messages' counts plus `TokenCounter.overhead`. Each part of
a message is counted by itself and every separator that a chat template puts between parts is
allowed for, so that the sum is not below what the tokenizer says of the rendered whole.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_memory.media import media_tokens
from agent_memory.messages import Message
from agent_memory.processes import fork_safe_lock

DEFAULT_ENCODING = "o200k_base"
UNKNOWN_MODEL_ENCODING = "cl100k_base"  # litellm's choice where it has no tokenizer
CLAUDE = "claude"

# A chat template frames a message with a start mark, its role and line break, an end mark and a
# line break; a name and each tool call are framed in turn.
_PER_MESSAGE = 4
_PER_FIELD = 2
_REPLY_PRIMING = 3


class TokenCounter:
    """Counts texts and messages for one model.

    Uses tiktoken where the model has an encoding there, litellm's bundled Claude tokenizer for
    Claude, and litellm's fallback (cl100k_base) for every other model; then `exact` is False.

    Args:
        model: A litellm model name; None counts with o200k_base.
    """

    def __init__(self, model: str | None = None) -> None:
        self.encoding, self.exact = encoding_for(model)
        self._count: Callable[[str], int] | None = None

    def __repr__(self) -> str:
        return f"TokenCounter({self.encoding!r})"

    @property
    def overhead(self) -> int:
        """Fixed cost of a context, over the sum of its messages."""
        return _REPLY_PRIMING

    def text(self, text: str) -> int:
        """Tokens of a bare text."""
        if self._count is None:
            self._count = load_encoding(self.encoding)
        return self._count(text) if text else 0

    def message(self, message: Message) -> int:
        """Tokens of one message in a context, its role, name, calls and pictures included.

        A raw item costs whichever is more: its JSON, or its chat view. Where its content is a list
        of parts, these cost what they cost in the view: a picture is no text.
        """
        view = message.to_openai()
        if message.role is not None:
            return self.chat(view or {})
        raw = message.raw or {}
        if view is None:
            return _PER_MESSAGE + self._json(raw)
        if isinstance(view.get("content"), list):
            rest = {key: value for key, value in raw.items() if key != "content"}
            return self.chat(view) + self._json(rest)
        return max(self.chat(view), _PER_MESSAGE + self._json(raw))

    def chat(self, message: Mapping[str, Any]) -> int:
        """Tokens of one OpenAI chat dict in a context."""
        cost = _PER_MESSAGE
        for key, value in message.items():
            if value is None:
                continue
            if key == "content":
                cost += self._content(value)
            elif isinstance(value, str):
                cost += self.text(value) + (0 if key == "role" else _PER_FIELD)
            elif key == "tool_calls":
                cost += sum(_PER_MESSAGE + self._call(call) for call in value)
            else:
                cost += _PER_FIELD + self._json(value)
        return cost

    def context(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of a whole list of OpenAI chat dicts."""
        return self.overhead + sum(self.chat(message) for message in messages)

    def _content(self, content: object) -> int:
        if isinstance(content, str):
            return self._line(content)
        if not isinstance(content, list):
            return self._json(content)
        return sum(self._part(part) for part in content)

    def _part(self, part: object) -> int:
        if isinstance(part, str):
            return self._line(part) + 1
        if isinstance(part, dict):
            if part.get("type") == "text" and isinstance(part.get("text"), str):
                return self._line(part["text"]) + 1
            media = media_tokens(part)
            if media is not None:
                file = part.get("file")
                name = file.get("filename") if isinstance(file, dict) else None
                return media + (self.text(name) if isinstance(name, str) else 0)
        return self._json(part)

    def _call(self, call: object) -> int:
        """A call's id, name and arguments; whatever else it carries, as JSON."""
        if not isinstance(call, dict):
            return self._json(call)
        cost = 0
        for key, value in call.items():
            if key == "function" and isinstance(value, dict):
                cost += self._call(value)
            elif isinstance(value, str):
                cost += self.text(value) + _PER_FIELD
            elif value is not None:
                cost += self._json(value) + _PER_FIELD
        return cost

    def _line(self, text: str) -> int:
        """Tokens of a text between line breaks, the breaks themselves not included.

        Only white space merges with a break next to it, and the merged whole may cost more.
        """
        before, after = "\n" * text[:1].isspace(), "\n" * text[-1:].isspace()
        alone = self.text(text)
        if not before and not after:
            return alone
        return max(alone, self.text(f"{before}{text}{after}") - len(before) - len(after))

    def _json(self, value: object) -> int:
        return self.text(json.dumps(value, ensure_ascii=False))


def encoding_for(model: str | None) -> tuple[str, bool]:
    """The encoding for a litellm model name, and whether it is the model's own."""
    if model is None:
        return DEFAULT_ENCODING, True
    name = model.rsplit("/", 1)[-1].lower()
    if "claude" in name:
        # Anthropic publishes no tokenizer for Claude 3 and later; this one is its predecessor's.
        return CLAUDE, False
    from tiktoken.model import encoding_name_for_model

    try:
        encoding = encoding_name_for_model(name)
    except KeyError:
        return UNKNOWN_MODEL_ENCODING, False
    if encoding == "o200k_harmony":
        return DEFAULT_ENCODING, True  # the same vocabulary; only the special tokens differ
    if encoding not in ("o200k_base", "cl100k_base", "p50k_base"):
        return UNKNOWN_MODEL_ENCODING, False  # not bundled: it would have to be downloaded
    return encoding, True


@lru_cache(maxsize=8)
def load_encoding(encoding: str) -> Callable[[str], int]:
    """A function that counts a text's tokens, from files that litellm ships."""
    if encoding == CLAUDE:
        from tokenizers import Tokenizer

        claude = Tokenizer.from_file(str(_bundled() / "anthropic_tokenizer.json"))
        return lambda text: len(claude.encode(_utf(text), add_special_tokens=False).ids)
    import tiktoken

    with _tiktoken_cache(_bundled()):
        encode = tiktoken.get_encoding(encoding).encode_ordinary
    return lambda text: len(encode(text))


def _utf(text: str) -> str:
    """The text with lone surrogates replaced, as tiktoken replaces them."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _bundled() -> Path:
    """Folder of litellm's tokenizer files, found without importing it (that takes seconds)."""
    spec = importlib.util.find_spec("litellm")
    assert spec is not None, "litellm is a dependency"
    assert spec.origin is not None, "litellm is a package with files"
    return Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"


_environment = fork_safe_lock()


@contextmanager
def _tiktoken_cache(folder: Path) -> Iterator[None]:
    """tiktoken finds its files only through this variable, and downloads them otherwise."""
    with _environment:
        before = os.environ.get("TIKTOKEN_CACHE_DIR")
        os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
        try:
            yield
        finally:
            if before is None:
                del os.environ["TIKTOKEN_CACHE_DIR"]
            else:
                os.environ["TIKTOKEN_CACHE_DIR"] = before
