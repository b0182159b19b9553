"""Writes docs/reference from docstrings and `--help`: `make reference`.

It knows no class and no command by its name. What is public, it reads from `__all__`; what public
calls give, from their annotations; which page a name is on follows from its folder.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import typer.main
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.core import TyperCommand, TyperGroup

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
PACKAGE = "agent_memory"
BLOCKS = ROOT / PACKAGE / "ltm_blocks"

MODULES = [
    ".operations",
    "",
    ".errors",
    ".core.records",
    ".core.formats.registry",
    ".core.tools",
    ".integrations.importing",
    ".ltm_blocks",
    ".ltm_blocks.base",
    *(f".ltm_blocks.{one.parent.name}" for one in sorted(BLOCKS.glob("*/__init__.py"))),
    ".standalone.vector_items",
    ".strategies",
    ".stores",
    ".testing",
]
"""Each has an `__all__`; of one without it all classes are public that it defines."""

PAGES = {
    "memory": ("Memories, sessions, users", "`AgentMemory` and its handles."),
    "async": ("Async", "The same calls, awaited."),
    "operations": ("Operations", "Calls for the operation of a deployment."),
    "blocks": ("Blocks", "Long-term memory, and its handles."),
    "strategies": ("Strategies", "Rules for a window that overflows."),
    "config": ("Configuration", "Every setting; [in prose](../configuration.md)."),
    "records": ("Records", "Arguments and results of calls."),
    "errors": ("Errors", "Every error that is raised on purpose."),
    "standalone": ("Standalone parts", "A chat history, indexes, a memory of nothing."),
    "stores": ("Stores", "Opening a store, and writing one."),
    "testing": ("Testing", "Tools for your own tests."),
    "commands": ("Commands", "The command line."),
}
HOMES = {
    "engine": "memory",
    "composite": "memory",
    "aio": "async",
    "config": "config",
    "core": "records",
    "errors": "errors",
    "integrations": "memory",
    "ltm_blocks": "blocks",
    "models": "config",
    "operations": "operations",
    "standalone": "standalone",
    "stores": "stores",
    "strategies": "strategies",
    "testing": "testing",
}
"""The page of what a folder, or a module, of the package defines."""

OPENAPI = "openapi.json"
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises")


class Public:
    """What is public: what `__all__` names, and what public calls give."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self._page: dict[str, str] = {}
        for module in MODULES:
            for one in _members(module):
                self._add(one, HOMES.get(module.split(".")[-1], ""))

    def on(self, page: str) -> list[Any]:
        """The objects of a page: those most used first, as far as their kind tells."""
        found = [one for key, one in self.objects.items() if self._page[key] == page]
        rooms = list(HOMES)
        return sorted(found, key=lambda one: (rooms.index(_room(one)), not _is_face(one)))

    def calls(self, cls: type) -> dict[str, Callable[..., Any]]:
        """The calls to tell of a class: those that no base tells of, and that say something."""
        told = [base for base in cls.__mro__[1:] if base in self.objects.values()]
        return {
            name: call
            for name, call in _calls(cls).items()
            if (call.__doc__ or "").strip()
            and not str(call.__doc__).startswith("See `")
            and not name.startswith("test_")
            and not any(_calls(base).get(name) is call for base in told)
        }

    def _add(self, one: Any, page: str = "") -> None:
        """Add what is named, and what it gives; a function is on the page of who names it."""
        key = f"{one.__module__}.{one.__qualname__}"
        if key in self.objects or not one.__module__.startswith(PACKAGE):
            return
        self.objects[key] = one
        self._page[key] = page if page and not inspect.isclass(one) else HOMES.get(_room(one), "")
        for call in _calls(one).values() if inspect.isclass(one) else [one]:
            for name in re.findall(r"[A-Z]\w+", _annotations(call)):
                home = self._defined.get(name)
                if home is not None:
                    self._add(getattr(importlib.import_module(home), name))

    @cached_property
    def _defined(self) -> dict[str, str]:
        """By the name of each class of the package that has one home, its module.

        What the service answers with is called as what it is made of, and told by its own document.
        """
        homes: dict[str, set[str]] = {}
        for file in sorted((ROOT / PACKAGE).rglob("*.py")):
            if file.is_relative_to(ROOT / PACKAGE / "server"):
                continue
            module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, set()).add(module.removesuffix(".__init__"))
        return {name: min(modules) for name, modules in homes.items() if len(modules) == 1}


def _members(module: str) -> Iterator[Any]:
    try:
        found = importlib.import_module(f"{PACKAGE}{module}")
    except ModuleNotFoundError:
        return
    named = getattr(found, "__all__", None)
    for name in named if named is not None else sorted(vars(found)):
        one = getattr(found, name)
        if not (inspect.isclass(one) or inspect.isfunction(one)) or name.startswith("_"):
            continue
        if named is not None or (inspect.isclass(one) and one.__module__ == found.__name__):
            yield one


def _room(one: Any) -> str:
    return str(one.__module__).split(".")[1]


def _is_face(one: Any) -> bool:
    return inspect.isclass(one) and not dataclasses.is_dataclass(one)


def _is_error(one: Any) -> bool:
    return inspect.isclass(one) and issubclass(one, Exception)


def _annotations(call: Callable[..., Any]) -> str:
    """What a call gives; for a function, what it takes too."""
    found = inspect.unwrap(call).__annotations__
    return str(found if "." not in call.__qualname__ else found.get("return", ""))


def _calls(cls: type) -> dict[str, Callable[..., Any]]:
    """A class's public methods and properties that the package wrote, in their source's order."""
    found: dict[str, Callable[..., Any]] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith(PACKAGE):
            continue
        for name, value in vars(base).items():
            if name.startswith("_"):
                continue
            if isinstance(value, classmethod | staticmethod):
                value = value.__func__
            if isinstance(value, property) and value.fget is not None:
                value = value.fget
            if isinstance(value, cached_property):
                value = value.func
            if callable(value) and not inspect.isclass(value):
                value = inspect.unwrap(value)
            if inspect.isfunction(value):
                found[name] = value
            else:
                found.pop(name, None)
    return found


# --- docstrings -----------------------------------------------------------------------------------


def parsed(doc: str) -> tuple[str, dict[str, list[tuple[str, str]]]]:
    """The prose of a Google-style docstring, and the items of its sections."""
    prose: list[str] = []
    sections: dict[str, list[tuple[str, str]]] = {}
    here: list[tuple[str, str]] | None = None
    for line in inspect.cleandoc(doc).splitlines():
        if line.removesuffix(":") in SECTIONS and line.endswith(":"):
            here = sections.setdefault(line[:-1], [])
        elif line and not line.startswith(" "):
            here = None
            prose.append(line)
        elif here is None:
            prose.append(line)
        elif begun := re.match(r"    (\*{0,2}[\w.]+(?:, [\w.]+)*): (.*)", line):
            here.append((begun[1], begun[2]))
        elif line.strip():
            name, text = here.pop() if here else ("", "")
            here.append((name, f"{text} {line.strip()}".strip()))
    return "\n".join(prose).strip(), sections


def _doc(one: Any, *, without: tuple[str, ...] = ()) -> str:
    """A docstring as Markdown, its sections as lists."""
    prose, sections = parsed(one.__doc__ or "")
    parts = [prose] if prose else []
    for title, items in sections.items():
        if title in without or not items:
            continue
        lines = [f"- `{name}`: {text}" if name else f"- {text}" for name, text in items]
        parts.append("\n".join([f"*{title}:*", "", *lines]))
    return "\n\n".join(parts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- one object -----------------------------------------------------------------------------------


def signature(call: Callable[..., Any], name: str) -> str:
    """How a call is written, without `self` and without long defaults."""
    try:
        given = inspect.signature(call)
    except ValueError:  # of what C defines
        return f"{name}(...)"
    kept = [one for one in given.parameters.values() if one.name not in ("self", "cls")]
    parts: list[str] = []
    for place, one in enumerate(kept):
        if one.kind is one.KEYWORD_ONLY and (
            place == 0 or kept[place - 1].kind not in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        ):
            parts.append("*")
        mark = "*" * ((one.kind is one.VAR_POSITIONAL) + 2 * (one.kind is one.VAR_KEYWORD))
        text = mark + one.name
        if one.annotation is not one.empty:
            text += f": {_type(one.annotation)}"
        if one.default is not one.empty:
            text += f" = {_default(one.default)}"
        parts.append(text)
    gives = (
        "" if given.return_annotation is given.empty else f" -> {_type(given.return_annotation)}"
    )
    line = f"{name}({', '.join(parts)}){gives}"
    if len(line) <= 96:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){gives}"


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)


def _default(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 and " at 0x" not in text else "..."


def described(one: Any, public: Public) -> str:
    """An object's part of its page."""
    parts = [f"## {one.__name__}"]
    if inspect.isclass(one) and issubclass(one, BaseModel):
        parts += [_doc(one, without=("Attributes",)), _fields(one)]
    elif _is_error(one):
        above = [base.__name__ for base in one.__bases__ if base.__module__.startswith(PACKAGE)]
        parts += [f"A kind of {', '.join(above)}." if above else "", _doc(one)]
    elif inspect.isclass(one):
        parts += [_code(signature(one, one.__name__).split(" -> ")[0]), _doc(one)]
    else:
        parts += [_code(signature(one, one.__name__)), _doc(one)]
    if inspect.isclass(one) and not _is_error(one):
        for name, call in public.calls(one).items():
            own = inspect.getattr_static(one, name)
            is_value = isinstance(own, property | cached_property)
            parts += [
                f"### {one.__name__}.{name}",
                "" if is_value else _code(signature(call, name)),
            ]
            parts.append(_doc(call))
    return "\n\n".join(part for part in parts if part)


def _code(text: str) -> str:
    return f"```text\n{text}\n```"


def _fields(model: type[BaseModel]) -> str:
    """The fields of a pydantic model as a table; what they mean is told in the docstring."""
    told: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base.__module__.startswith(PACKAGE):
            told |= dict(parsed(base.__doc__ or "")[1].get("Attributes", ()))
    rows = [
        f"| `{name}` | {_initial(field)} | {_cell(told.get(name) or field.description or '')} |"
        for name, field in model.model_fields.items()
    ]
    own = dict(parsed(model.__doc__ or "")[1].get("Attributes", ()))
    rows += [
        f"| `{name}` (of the class) | `{getattr(model, name)}` | {_cell(text)} |"
        for name, text in own.items()
        if name not in model.model_fields
    ]
    return (
        "\n".join(["| field | default | meaning |", "| --- | --- | --- |", *rows]) if rows else ""
    )


def _initial(field: FieldInfo) -> str:
    if field.is_required():
        return "(needed)"
    value = field.default_factory() if callable(field.default_factory) else field.default  # type: ignore[call-arg]
    return f"`{_default(value)}`"


# --- commands -------------------------------------------------------------------------------------


def commands(group: TyperGroup, above: str = "agent-memory") -> Iterator[tuple[str, TyperCommand]]:
    """Every command with its full name, those of groups too."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{above} {name}")
        elif isinstance(command, TyperCommand):
            yield f"{above} {name}", command


def _command(name: str, command: TyperCommand) -> str:
    """A command's part of its page: what `--help` says."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    usage = [name]
    for one in arguments:
        shown = one.metavar or str(one.name).upper()
        usage.append(shown if one.required else f"[{shown}]")
    parts = [f"## {name}", _code(" ".join([*usage, "[OPTIONS]"] if options else usage))]
    parts.append(inspect.cleandoc(command.help or ""))
    named = {one: ", ".join([*one.opts, *one.secondary_opts]) for one in [*arguments, *options]}
    rows = [f"| `{name}` | {_cell(vars(one).get('help') or '')} |" for one, name in named.items()]
    if rows:
        parts.append("\n".join(["| argument or option | meaning |", "| --- | --- |", *rows]))
    return "\n\n".join(parts)


# --- pages ----------------------------------------------------------------------------------------


def pages() -> dict[str, str]:
    """The text of each page, by its file's name."""
    from agent_memory.cli.entry import app

    public = Public()
    top = typer.main.get_command(app)
    assert isinstance(top, TyperGroup)
    written: dict[str, str] = {}
    for page, (title, intro) in PAGES.items():
        if page == "commands":
            parts = [_command(name, command) for name, command in commands(top)]
        else:
            parts = [described(one, public) for one in public.on(page)]
        if page == "errors":  # its tree is drawn in the module's docstring
            drawn = str(importlib.import_module(f"{PACKAGE}.errors").__doc__)
            parts.insert(0, _code(drawn.split("\n\n")[1]))
        if parts:
            written[f"{page}.md"] = "\n\n".join([f"# {title}", intro, *parts]) + "\n"
    rows = [f"- [{PAGES[name[:-3]][0]}]({name}): {PAGES[name[:-3]][1]}" for name in written]
    head = "Made from docstrings and `--help` by `make reference`."
    written["README.md"] = "\n".join(["# Reference", "", head, "", *rows, ""])
    return written


def main(folder: Path) -> None:
    """Write the pages to a folder; remove those that are none any more."""
    folder.mkdir(exist_ok=True)
    made = pages()
    for file in folder.glob("*.md"):
        if file.name not in made:
            file.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / OPENAPI).write_text(openapi(), encoding="utf-8")


def openapi() -> str:
    """The service's OpenAPI document."""
    package = importlib.import_module(PACKAGE)
    table = importlib.import_module(f"{PACKAGE}.server.calls").OPERATIONS
    document = importlib.import_module(f"{PACKAGE}.server.operation").document
    return json.dumps(document(table, package.__version__), indent=1) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
