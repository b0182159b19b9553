"""How a value of the engine takes the form of an answer.

The forms of this folder stand in the OpenAPI document; what the engine calls its own may change
beside them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done:
    """That something was done."""

    done: bool = True


def shown(view: type[T], value: object, **given: Any) -> T:
    """A value of the engine in the form of a view, whose fields it has by the same names.

    Args:
        view: The form.
        value: The value.
        **given: Fields that it has otherwise.
    """
    names = (one.name for one in fields(cast("Any", view)) if one.name not in given)
    return view(**{name: getattr(value, name) for name in names}, **given)
