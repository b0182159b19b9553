"""Forms for what comes from somebody else's file: strict, and within what every database keeps."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from agent_memory.core.ids import MAX_ID

_MOST = 2**53  # what every database and every reader of JSON keeps exactly
_MAX_DEPTH = 110  # what messages and notes may be nested, and what they are within


class Form(BaseModel):
    """Base of forms: no value is converted, and nothing is taken that the form does not name."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


def kept_by_all(text: str) -> str:
    """Check that every database can keep a text in a column of its own.

    Raises:
        ValueError: It holds a NUL or a lone surrogate.
    """
    if "\x00" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("it holds a NUL or a lone surrogate")
    return text


def _shallow(value: dict[str, Any]) -> dict[str, Any]:
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        inner = [one for one in level if isinstance(one, dict | list)]
        level = [one for some in inner for one in (some.values() if type(some) is dict else some)]
        if not level:
            return value
    raise ValueError(f"nested more than {_MAX_DEPTH} deep")


Count = Annotated[int, Field(ge=0, le=_MOST)]
Seq = Annotated[int, Field(ge=1, le=_MOST)]
Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_ID), AfterValidator(kept_by_all)]
Plain = Annotated[dict[str, Any], AfterValidator(_shallow)]
