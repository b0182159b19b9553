"""What goes into a `VectorIndex`, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from agent_memory.core.ids import check_id
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.keyed_records import require_plain

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Item:
    """What an index keeps under an id.

    Attributes:
        id: Its id; no two of one user have the same in one index.
        text: What it says; embedded where no vector is given.
        vector: Numbers, not all 0; only their proportions count.
        metadata: The caller's own, as plain JSON.
    """

    id: str
    text: str | None = None
    vector: Sequence[float] | np.ndarray | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, value: object) -> Self:
        """Take an item, or its fields in a mapping.

        Raises:
            InvalidInput: It is neither, or a field of it is not usable.
        """
        if isinstance(value, Mapping):
            fields = list(value)
            try:
                value = cls(**value)
            except TypeError:
                raise InvalidInput(
                    f"An item has the fields id, text, vector and metadata, not {fields!r}."
                ) from None
        if not isinstance(value, cls):
            raise InvalidInput(
                f"Cannot take a {type(value).__name__} as an item. Give an Item, or a dict with "
                "`id` and `text` or `vector`."
            )
        check_id("The id of an item", value.id)
        if value.text is None and value.vector is None:
            raise InvalidInput(f"Item {value.id!r} has neither `text` nor `vector`. Give one.")
        if not isinstance(value.text, str | None):
            raise InvalidInput(f"The text of item {value.id!r} is no string.")
        require_plain([value.text, value.metadata], f"Item {value.id!r}")
        if type(value.metadata) is not dict:
            raise InvalidInput(f"The metadata of item {value.id!r} is no dict.")
        return value


@dataclass(frozen=True, slots=True)
class Match:
    """An item that a search found.

    Attributes:
        id: The item's.
        score: The cosine of its vector with the query's, from -1 to 1.
        text: The item's.
        metadata: The item's.
    """

    id: str
    score: float
    text: str | None
    metadata: dict[str, Any]
