"""Words in all texts of a user, and the search for them in results of calls."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from hashlib import blake2b
from typing import Any

from pydantic import BaseModel

_SHAPE = re.compile(r"zq[0-9a-f]{12}qz")
_PLAIN = (int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class Canary:
    """The owner of a word: a user, and the number of the user's earlier deletions."""

    user: str
    life: int


class Aviary:
    """All canaries of a run. Each life of a user has its own word, which cannot be guessed."""

    def __init__(self, seed: int) -> None:
        self._key = str(seed).encode()
        self._known: dict[str, Canary] = {}

    def word(self, user: str, life: int) -> str:
        digest = blake2b(f"{user}/{life}".encode(), key=self._key, digest_size=6).hexdigest()
        word = f"zq{digest}qz"
        self._known[word] = Canary(user, life)
        return word

    def whose(self, word: str) -> Canary:
        """Return a word's owner. A word without one was joined from two, or cut."""
        return self._known.get(word, Canary("nobody", 0))


def words_in(value: object) -> set[str]:
    """Return the canaries in a value at any depth: in texts, bytes, keys, fields and errors."""
    return {word for text in texts_in(value) for word in _SHAPE.findall(text)}


def texts_in(value: object) -> Iterator[str]:
    """Yield all texts in a value, each object once."""
    seen: set[int] = set()
    todo: list[Any] = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, _PLAIN) or id(one) in seen:
            continue
        elif isinstance(one, bytes | bytearray):
            yield one.decode("latin-1")
        else:
            seen.add(id(one))
            todo += _components(one)


def _components(one: Any) -> list[Any]:
    if isinstance(one, Mapping):
        return [*one.keys(), *one.values()]
    if isinstance(one, list | tuple | set | frozenset):
        return [*one]
    if isinstance(one, BaseModel):
        return [one.__dict__, one.model_extra]
    if is_dataclass(one):
        return [getattr(one, field.name) for field in fields(one)]
    if isinstance(one, BaseException):
        return [str(one), one.args, one.__cause__, one.__context__, vars(one)]
    return [str(one), getattr(one, "__dict__", None)]
