"""Helpers of all commands: options, settings, and opening a memory."""

from __future__ import annotations

import functools
import inspect
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer import Argument, Option

from agent_memory.cli import terminal
from agent_memory.core.limits import without_password as without_password
from agent_memory.errors import AgentMemoryError, ConfigError, InvalidInput, install_command

if TYPE_CHECKING:
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.core.records import Absorbed, Head
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.user import User
    from agent_memory.ltm_blocks.base import Block


def read_config(file: Path | None, options: dict[str, Any]) -> AgentMemoryConfig:
    """Return the settings of FILE or FILE#NAME. The environment and `options` override the file."""
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.engine.deployment import store_config

    if file is None:
        return AgentMemoryConfig(**options)
    name, table = settings_in(file)
    if name is None:
        return AgentMemoryConfig.from_file(file, **options)
    return store_config(name, table, **options)


def settings_in(file: Path) -> tuple[str | None, dict[str, Any]]:
    """Return the name and settings of the store of FILE or FILE#NAME, without the environment."""
    from agent_memory.config.sources import read_settings
    from agent_memory.engine.deployment import STORES, store_tables

    path, name = _parted(file)
    table = read_settings(path)
    if name is None and STORES not in table:
        return None, table
    tables = store_tables(table)
    if name is None and len(tables) == 1:
        name = next(iter(tables))
    if name not in tables:
        which = "several stores" if name is None else f"no store {name!r}"
        ways = " or ".join(f"--config {path}#{store}" for store in tables)
        raise ConfigError(f"{path} describes {which}. Name one: {ways}")
    return name, tables[name]


def store_files(file: Path | None) -> dict[str, Path | None]:
    """Return a dict from the name of each store in a deployment's file to FILE#NAME.

    Any other file describes one store. The key of this store is "".
    """
    from agent_memory.config.sources import read_settings
    from agent_memory.engine.deployment import STORES, store_tables

    if file is None or _parted(file)[1] is not None:
        return {"": file}
    table = read_settings(file)
    names = store_tables(table) if STORES in table else ()
    return {name: Path(f"{file}#{name}") for name in names} or {"": file}


def _parted(file: Path) -> tuple[Path, str | None]:
    path, mark, name = str(file).rpartition("#")
    return (Path(path), name) if mark and not file.exists() else (file, None)


NO_EMBEDDER = (
    "The local embedder is not installed: VectorMemory searches by words only. "
    f"To search by meaning too: {install_command('local')}"
)

_HOW_LONG = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}

FAILED = 1
BAD_SETTINGS = 2
_INTERRUPTED = 130

StoreOption = Annotated[
    str | None,
    Option(
        "--store",
        metavar="URL",
        help="The store's URL, such as sqlite:///memory.db. Default: AGENT_MEMORY_STORE, then the "
        "configuration, then agent_memory.db in this folder.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    Option(
        "--config",
        metavar="FILE",
        help="Settings as TOML, YAML or JSON. AGENT_MEMORY_* variables override them. FILE#NAME "
        "selects one store of a deployment.",
    ),
]
UserOption = Annotated[str | None, Option("--user", metavar="ID", help="The user.")]
ModelOption = Annotated[
    str | None,
    Option("--model", metavar="NAME", help="A litellm model, such as openai/gpt-4o-mini."),
]
SessionArgument = Annotated[str, Argument(help="The session's id.")]
YesOption = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]
BudgetOption = Annotated[
    int | None, Option("--max-tokens", metavar="N", help="The token budget of a context.")
]


def line_of(error: AgentMemoryError) -> str:
    return " ".join([str(error), *getattr(error, "__notes__", ())])


def with_settings(
    command: Callable[..., None], extra: Callable[[], Sequence[Block]] = tuple
) -> Callable[..., None]:
    """Decorate a command whose first argument is an `AgentMemoryConfig`.

    The decorator reads the settings that --store and --config name. `extra` returns the blocks to
    pass to `load_config`.
    """
    # the first argument's type cannot be evaluated, because only type checkers import it
    del inspect.unwrap(command).__annotations__[next(iter(inspect.signature(command).parameters))]
    signature = inspect.signature(command, eval_str=True)
    _, *options = signature.parameters.values()
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    opening = {"store": StoreOption, "config": ConfigOption}
    options += [
        inspect.Parameter(name, kind, default=None, annotation=option)
        for name, option in opening.items()
    ]

    @functools.wraps(command)
    def run(store: str | None = None, config: Path | None = None, **arguments: Any) -> None:
        command(load_config(store, config, extra=extra()), **arguments)

    run.__annotations__ = {option.name: option.annotation for option in options}
    run.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
    return run


def with_memory(
    command: Callable[..., None],
    extra: Callable[[], Sequence[Block]] = tuple,
    create: bool = False,
    silent: bool = False,
) -> Callable[..., None]:
    """Decorate a command whose first argument is the memory that --store and --config name.

    `create` allows a missing database, and creates it. `silent` silences the library's warnings.
    """

    @functools.wraps(command)
    def run(settings: AgentMemoryConfig, **arguments: Any) -> None:
        with (
            terminal.quiet() if silent else nullcontext(),
            open_memory(settings, create=create) as memory,
        ):
            command(memory, **arguments)

    return with_settings(run, extra)


@contextmanager
def resumable(stopped: Callable[[], str] = lambda: "Stopped") -> Iterator[None]:
    """On Ctrl-C, print that the same command continues the work, and exit."""
    try:
        yield
    except KeyboardInterrupt:
        terminal.note(f"{stopped()}. Run the same command to continue.")
        raise typer.Exit(_INTERRUPTED) from None


@contextmanager
def on_signals(handler: Callable[[int, object], object]) -> Iterator[None]:
    """Call `handler` for SIGINT and SIGTERM."""
    stops = (signal.SIGINT, signal.SIGTERM)
    earlier = [(stop, signal.signal(stop, handler)) for stop in stops]
    try:
        yield
    finally:
        for stop, before in earlier:
            signal.signal(stop, before)


def fail(text: str, code: int = FAILED) -> NoReturn:
    terminal.note(f"error: {text}", "red")
    raise typer.Exit(code)


def load_config(
    store: str | None, file: Path | None, *, extra: Sequence[Block] = (), **fields: Any
) -> AgentMemoryConfig:
    """Return the configuration. Options override the environment, which overrides the file.

    If the configuration sets neither a strategy nor blocks, the blocks in `extra` are added to the
    defaults. A command about facts, for example, needs a block that stores facts.
    """
    options = {"store": store, **fields}
    options = {name: value for name, value in options.items() if value is not None}
    config = read_config(file, options)
    if not extra or {"overflow", "blocks"} & config.model_fields_set:
        return config
    return read_config(file, {**options, "blocks": [*config.all_blocks, *extra]})


def open_memory(config: AgentMemoryConfig, *, create: bool = False) -> AgentMemory:
    """Open the memory of a configuration. Without `create`, the store must exist."""
    from agent_memory.engine.memory import AgentMemory

    return AgentMemory(config if create else existing(config))


def existing(config: AgentMemoryConfig) -> AgentMemoryConfig:
    """Return the settings without background threads. A missing store raises `ConfigError`."""
    if missing := missing_file(str(config.store)):
        raise ConfigError(
            f"There is no memory at {missing}. Name another store with --store or --config, or "
            "create one with `agent-memory import` or from code."
        )
    return config.model_copy(update={"overflow_mode": "inline"})


def has_failed(absorbed: Absorbed) -> bool:
    """Return whether a block failed. Waiting for a model or a spending limit is not a failure."""
    waits = ("ModelRequired", "SpendingLimitReached")
    return absorbed.error is not None and not absorbed.error.startswith(waits)


def missing_file(store: str) -> Path | None:
    """Return the file of a sqlite: URL or the folder of a folder: URL if it does not exist."""
    begins = next((mark for mark in ("sqlite:///", "folder:///") if store.startswith(mark)), None)
    path = Path(store.removeprefix(begins or ""))
    return path if begins is not None and not path.exists() else None


def head_of(memory: AgentMemory, session_id: str) -> Head:
    head = memory.update(session_id, [])  # a read: it appends nothing
    if not head.end:
        raise InvalidInput(
            f"There is no session {session_id!r}. `agent-memory sessions` lists them."
        )
    return head


def owner_of(memory: AgentMemory, user: str | None, session: str | None) -> User:
    """Return the owner that the options name: a user, a session's user, or the session itself."""
    if session is not None:
        return memory.session(session, user).owner()
    if user is None:
        raise InvalidInput(
            "No user is named. Pass --user, or --session with a session that has no user."
        )
    return memory.user(user)


def moment_of(time: datetime | None) -> datetime | None:
    """Return a time of an option, which has no time zone, as UTC."""
    return None if time is None else time.replace(tzinfo=UTC)


def how_long(option: str, value: str | None) -> timedelta | None:
    """Parse a duration such as 30d. Return None for None."""
    if value is None:
        return None
    match = _HOW_LONG.fullmatch(value)
    if match is None:
        raise InvalidInput(f"{option} is not a duration. Use 30d, 12h or 15m, for example.")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def by_words(embedding: str | None) -> bool:
    """Return whether searches use words only, because there is no embedder."""
    from agent_memory.models.embedders.local import is_installed

    return embedding is None and not is_installed()
