"""`Receipt`: evidence of a deletion, or of the messages that are stored durably. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256
from typing import ClassVar, Literal, Self

from pydantic import ConfigDict, TypeAdapter

from agent_memory.core.messages import compact_json
from agent_memory.core.records import Entry
from agent_memory.errors import InvalidInput

State = Literal["done", "not supported", "failed"]
_WORST: dict[State, int] = {"done": 0, "not supported": 1, "failed": 2}


@dataclass(frozen=True, slots=True)
class Part:
    """The result for one place where data is stored.

    Attributes:
        place: The log, a block by its name, a cache, the files, or data that cannot be reached.
        state: "done", "failed", or "not supported" if the place cannot be cleared or checked.
        why: The reason, or empty.
    """

    place: str
    state: State = "done"
    why: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.state}{f' ({self.why})' if self.why else ''}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of `delete`, `delete_user` and `checkpoint`. It contains no text of messages.

    Store the text of `to_json()`. `operations.verify` can later compare it with the store.

    Attributes:
        kind: "session" or "user" if one was deleted, or "checkpoint".
        id: The id of the session or user.
        namespace: The namespace of the deployment.
        at: The time of the receipt.
        parts: The result for each place of data.
        end: For a checkpoint, the seq of the last durable message.
        digest: For a checkpoint, the SHA-256 of the last durable message.
        signature: The signature with the deployment's encryption key. None without a key.
    """

    kind: Literal["session", "user", "checkpoint"]
    id: str
    namespace: str
    at: datetime
    parts: tuple[Part, ...]
    end: int = 0
    digest: str = ""
    signature: str | None = None

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "hide_input_in_errors": True}

    def __str__(self) -> str:
        what = f"up to message {self.end} of session" if self.end else f"{self.kind}"
        head = f"{what} {self.id!r}, {self.at:%Y-%m-%d %H:%M:%S} UTC"
        return "\n".join([head, *(f"  {part}" for part in self.parts)])

    def to_json(self) -> str:
        """Return the receipt as one line of JSON."""
        return compact_json({**asdict(self), "at": self.at.isoformat()})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a receipt from a result of `to_json`.

        Raises:
            InvalidInput: The text is not a receipt.
        """
        try:
            receipt = TypeAdapter(cls).validate_json(text, strict=True)
            if receipt.at.utcoffset() is None:
                raise ValueError("no time zone")
        except ValueError as error:  # from pydantic, or because of lone surrogates
            raise InvalidInput(
                "The text is not a receipt. Pass the complete output of `to_json`."
            ) from error
        return receipt

    @property
    def signed_digest(self) -> str:
        """Return the SHA-256 of all fields except the signature. This value is signed."""
        unsigned = {**asdict(self), "at": self.at.isoformat(), "signature": None}
        return sha256(compact_json(unsigned).encode()).hexdigest()


def merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the worst result of each place, in the order in which the places first appear."""
    by_place: dict[str, Part] = {}
    for part in parts:
        worst = by_place.setdefault(part.place, part)
        if _WORST[part.state] > _WORST[worst.state]:
            by_place[part.place] = part
    return tuple(by_place.values())


def digest_of(entry: Entry) -> str:
    """Return the SHA-256 of a message with its session and seq."""
    content = compact_json([entry.session_id, entry.seq, entry.message.to_dict()])
    return sha256(content.encode()).hexdigest()
