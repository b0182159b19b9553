"""`Receipt`: what a deletion erased, or how far a log is durable. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from agent_memory.core.messages import compact_json
from agent_memory.core.records import Entry
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from pydantic import ConfigDict

State = Literal["done", "not supported", "failed"]
_WORST: dict[State, int] = {"done": 0, "not supported": 1, "failed": 2}


@dataclass(frozen=True, slots=True)
class Part:
    """What became of one place.

    Attributes:
        place: The place: the log, a block by its name, a cache, the files, what is out of reach.
        state: "done"; "not supported", where nothing can be done or told here; or "failed".
        why: What there is to say of it.
    """

    place: str
    state: State = "done"
    why: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.state}{f' ({self.why})' if self.why else ''}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What `delete`, `delete_user` and `checkpoint` give. It holds no text of any message.

    Keep it as `to_json()`; `operations.verify` holds it against the store as it is by then.

    Attributes:
        kind: What it is of: the deletion of a "session" or a "user", or a "checkpoint".
        id: The session's or the user's id.
        namespace: The deployment's.
        at: When it was made out.
        parts: What became of each place.
        end: Of a checkpoint: the number of the last message that is durable.
        digest: Of a checkpoint: that message's SHA-256.
        signature: Made with the deployment's encryption key; None where it has none.
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
        """The receipt as one line of JSON."""
        return compact_json({**asdict(self), "at": self.at.isoformat()})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The receipt that `to_json` gave.

        Raises:
            InvalidInput: It is none.
        """
        from pydantic import TypeAdapter

        try:
            receipt = TypeAdapter(cls).validate_json(text, strict=True)
            if receipt.at.utcoffset() is None:
                raise ValueError("no time zone")
        except ValueError as error:  # pydantic's is one, and the one of lone surrogates
            raise InvalidInput("This is no receipt: give what `to_json` wrote, whole.") from error
        return receipt

    @property
    def seal(self) -> str:
        """The SHA-256 of all but the signature: what is signed."""
        unsigned = {**asdict(self), "at": self.at.isoformat(), "signature": None}
        return sha256(compact_json(unsigned).encode()).hexdigest()


def merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """One part for each place, in the order of their first: the worst that was said of it."""
    by_place: dict[str, Part] = {}
    for part in parts:
        known = by_place.setdefault(part.place, part)
        if _WORST[part.state] > _WORST[known.state]:
            by_place[part.place] = part
    return tuple(by_place.values())


def digest_of(entry: Entry) -> str:
    """The SHA-256 of a message at its place."""
    said = compact_json([entry.session_id, entry.seq, entry.message.to_dict()])
    return sha256(said.encode()).hexdigest()
