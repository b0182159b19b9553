"""Strict pydantic types that validate untrusted data. Valid values fit into every database."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from agent_memory.core.limits import MAX_ID, is_storable

_MOST = 2**53  # the largest integer that every database and every JSON reader stores exactly
_MAX_DEPTH = 110  # the deepest nesting of a message (100), and of the objects around it


T = TypeVar("T")


class Form(BaseModel):
    """Base of models that convert no value, and refuse unknown fields."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


def check_storable(text: str) -> str:
    """Check that every database can store a text in a column."""
    if not is_storable(text):
        raise ValueError("it holds a NUL or a lone surrogate")
    return text


def check_depth(value: T, most: int = _MAX_DEPTH) -> T:
    """Check that lists and dicts are nested at most `most` levels deep."""
    level: list[Any] = [value]
    for _ in range(most):
        inner = [item for item in level if isinstance(item, dict | list)]
        level = [
            item for outer in inner for item in (outer.values() if type(outer) is dict else outer)
        ]
        if not level:
            return value
    raise ValueError(f"it is nested more than {most} levels deep")


Count = Annotated[int, Field(ge=0, le=_MOST)]
Seq = Annotated[int, Field(ge=1, le=_MOST)]
Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_ID), AfterValidator(check_storable)]
Plain = Annotated[dict[str, Any], AfterValidator(check_depth)]
