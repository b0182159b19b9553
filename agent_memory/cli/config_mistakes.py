"""What is wrong with a table of settings: every mistake in it, each with its place.

No sentence here repeats a value: it may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any, Literal, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.kinds import BUILT_IN, ByKind, find_kind
from agent_memory.errors import AgentMemoryError, InvalidShares, UnknownKind

_PROBE = "\0"
"""A field that no class has. Beside it a field is validated alone: no validator of the whole runs
once a field is wrong."""

_PLENTY = 10**15
"""A budget for everything, so that one which is too small hides no other mistake."""

Path = tuple[str | int, ...]
"""Where in a table something stands."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to mend, or to know.

    Attributes:
        level: "error": it does not open so. "warning": it does, and perhaps not as it was meant.
        where: The field's path in the file, or the environment variable.
        told: What is wrong, and what to do.
    """

    level: Literal["error", "warning"]
    where: str
    told: str


def place(path: Path) -> str:
    """A path as people write it: `stores.support.blocks[0].name`."""
    told = ""
    for part in path:
        told += f"[{part}]" if isinstance(part, int) else f".{part}"
    return told.removeprefix(".")


def unknown(name: object, known: Iterable[str], what: str = "field") -> str:
    """That there is no such name, and which one was meant perhaps."""
    near = get_close_matches(str(name), list(known), n=1)
    return f"There is no such {what}." + (f" Did you mean {near[0]}?" if near else "")


@dataclass(frozen=True, slots=True)
class Examined:
    """What a table of settings holds.

    Attributes:
        config: The configuration of all that is right in it.
        bad: The fields that are not as the table has them there: they, or others with them, are
            wrong.
        wrong: Every mistake, with its path.
    """

    config: AgentMemoryConfig
    bad: frozenset[str]
    wrong: list[tuple[Path, str]]


def examined(table: Mapping[Any, Any]) -> Examined:
    """What a table of settings holds; neither a file nor the environment is asked."""
    wrong = list(_in_fields(AgentMemoryConfig, table))
    bad = {str(path[0]) for path, _ in wrong}
    good = {name: value for name, value in table.items() if str(name) not in bad}
    while True:
        if "max_tokens" in bad:
            good["max_tokens"] = _PLENTY
        try:
            return Examined(AgentMemoryConfig.alone(**good), frozenset(bad), wrong)
        except InvalidShares as error:
            wrong.append((("max_tokens",), str(error)))
            hidden = {"max_tokens"} if "max_tokens" not in bad else {"overflow"}
        except AgentMemoryError as error:
            wrong.append((("blocks",), str(error)))
            hidden = {"blocks", "overflow"}
        except ValidationError as error:
            wrong += _told(error, good)
            hidden = {*good}
        bad |= hidden
        good = {name: value for name, value in good.items() if name not in hidden}


def _in_fields(cls: type[BaseModel], table: Mapping[Any, Any]) -> Iterator[tuple[Path, str]]:
    for name, value in table.items():
        if name not in cls.model_fields:
            yield (str(name),), unknown(name, cls.model_fields)
        elif (group := _group(cls.model_fields[name])) and isinstance(value, dict):
            yield from _under((name,), _of_kind(group, value))
        elif group and isinstance(value, list):
            for i, one in enumerate(value):
                yield from _under((name, i), _of_kind(group, one))
        elif group and value is not None:
            yield (name,), f"This must be a table, or a list of tables, {_kinds(group)}"
        else:
            yield from _alone(cls, name, value)
    for name, field in cls.model_fields.items():
        if field.is_required() and name not in table:
            yield (name,), "This field is needed."


def _of_kind(group: str, value: object) -> Iterator[tuple[Path, str]]:
    """What is wrong with a strategy or a block."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str):
        yield (), f"This must be a table {_kinds(group)}"
        return
    try:
        cls = find_kind(group, kind)
        found = list(_in_fields(cls, value))
        if not found:
            cls(**value)
    except UnknownKind:
        known = _known(group)
        yield ("kind",), f"{unknown(kind, known, 'kind')} Known kinds: {', '.join(known)}."
    except AgentMemoryError as error:
        yield (), str(error)
    except ValidationError as error:
        yield from _told(error, value)
    except RecursionError:
        raise
    except Exception as error:  # noqa: BLE001 - the class, or a module it names, is somebody's own
        yield (), f"{type(error).__name__} when it was made: look into the module that it names."
    else:
        yield from found


def _group(field: FieldInfo) -> str | None:
    """The group of the strategies or blocks that a field takes; None for any other field."""

    def found(annotation: Any) -> Iterator[str]:
        if isinstance(annotation, ByKind):
            yield annotation.group
        for part in get_args(annotation):
            yield from found(part)

    marks = [group for one in (field.annotation, *field.metadata) for group in found(one)]
    return marks[0] if marks else None


def _known(group: str) -> list[str]:
    return sorted({*BUILT_IN[group], *entry_points(group=group).names})


def _kinds(group: str) -> str:
    return f"with a `kind`: {', '.join(_known(group))}."


def _alone(cls: type[BaseModel], name: str, value: object) -> Iterator[tuple[Path, str]]:
    """What is wrong with one field, whatever the others hold."""
    made = cls.__new__(cls)
    try:
        BaseModel.__init__(made, **{name: value, _PROBE: None})
    except ValidationError as error:
        yield from (one for one in _told(error, {name: value}) if one[0][:1] == (name,))
    except AgentMemoryError as error:
        yield (name,), str(error)
    except RecursionError:
        raise
    except Exception as error:  # noqa: BLE001 - a field may name a module of the user's own
        told = f"{type(error).__name__} when it was read: look into the module that it names."
        yield (name,), told


def _under(path: Path, found: Iterable[tuple[Path, str]]) -> Iterator[tuple[Path, str]]:
    return ((path + inner, told) for inner, told in found)


def _told(error: ValidationError, table: object) -> list[tuple[Path, str]]:
    """What pydantic found; of a value that could be several things, why it is none of them."""
    found: dict[Path, list[str]] = {}
    for one in error.errors(include_url=False, include_input=False, include_context=False):
        found.setdefault(_path(one["loc"], table), []).append(one["msg"])
    return [(path, "; or: ".join(told) + ".") for path, told in found.items()]


def _path(loc: Path, value: Any) -> Path:
    """Where in the table an error lies: its own path names the branches of unions too."""
    path: Path = ()
    for i, part in enumerate(loc, 1):
        if isinstance(value, dict) and (part in value or i == len(loc)):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            continue
        path += (part,)
    return path
