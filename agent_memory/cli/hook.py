"""`agent-memory hook`: a coding agent's events, and the settings that have it tell them."""

from __future__ import annotations

import difflib
import getpass
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_memory.cli.common import (
    ConfigOption,
    StoreOption,
    guarded,
    load_config,
    without_password,
)
from agent_memory.errors import ConfigError, InvalidInput

if TYPE_CHECKING:
    from agent_memory.integrations.hooks.settings import Settings

app = typer.Typer(
    help="Memory for Claude Code, Codex and Cursor, by their hooks: `hook install` sets them up.",
    no_args_is_help=True,
)

_NAME = "agent-memory"
_FILE = ".agent-memory/memory.db"
_SQLITE = "sqlite:///"
_EVENTS = {
    "SessionStart": "Print what a session begins with: what is known, what was done here last.",
    "UserPromptSubmit": "Print what earlier sessions say that bears on a prompt.",
    "Stop": "Store what was said since the last time.",
    "PreCompact": "Store what was said, all of it, before the agent cuts its context.",
    "SessionEnd": "Store what was said since the last time, at a session's end.",
}

AgentOption = Annotated[
    str, typer.Option("--agent", metavar="AGENT", help="claude-code, codex or cursor.")
]
AgentsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[AGENT]...", help="claude-code, codex, cursor; else those found here."),
]
ProjectOption = Annotated[
    bool,
    typer.Option("--project", help="In the settings of this folder alone."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")]


def _event(name: str) -> Callable[..., None]:
    def answer(
        user: Annotated[str, typer.Option("--user", metavar="ID", help="Whose memory.")],
        agent: AgentOption = "claude-code",
        store: StoreOption = None,
        config: ConfigOption = None,
        strict: Annotated[
            bool, typer.Option("--strict", help="Exit with 1 where something failed.")
        ] = False,
    ) -> None:
        from agent_memory.cli.hook_events import answered

        raise typer.Exit(answered(name, agent, user, store, config, strict))

    return answer


for _name, _help in _EVENTS.items():
    app.command(_name, help=_help)(_event(_name))


@app.command()
@guarded
def install(
    agents: AgentsArgument = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            metavar="ID",
            help="Whose memory. Else your login name; with --project, that and the folder.",
        ),
    ] = None,
    project: ProjectOption = False,
    yes: YesOption = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Write the hooks into agents' settings, after showing what changes. What is there stays.

    The store is --store, else AGENT_MEMORY_STORE, else ~/.agent-memory/memory.db.
    """
    from agent_memory.integrations.hooks.settings import with_hooks

    command = [_program(), "--user", _user(user, project), *_where(store, config)]
    for agent in _agents(agents):
        _change(agent, project, yes, partial(with_hooks, agent, command))


@app.command()
@guarded
def uninstall(
    agents: AgentsArgument = None, project: ProjectOption = False, yes: YesOption = False
) -> None:
    """Take the hooks out of agents' settings again, and nothing else. The memory stays."""
    from agent_memory.integrations.hooks.settings import without_hooks

    for agent in _agents(agents):
        _change(agent, project, yes, without_hooks)


def _change(agent: str, project: bool, yes: bool, change: Callable[[Settings], Settings]) -> None:
    from agent_memory.cli.hook_files import read, settings_file, write

    path = settings_file(agent, project)
    text, now = read(path)
    made = change(now)
    if made == now:
        typer.echo(f"{agent}: {path} stays as it is.")
        return
    indent = _indent(text)
    new = json.dumps(made, indent=indent, ensure_ascii=False) + "\n"
    lines = text.splitlines(), new.splitlines()
    typer.echo("\n".join(difflib.unified_diff(*lines, str(path), str(path), lineterm="")))
    if not yes:
        typer.confirm(f"Write {path}?", abort=True)
    write(path, new)
    typer.echo(f"{agent}: written.")


def _indent(text: str) -> str | int:
    found = re.match(r"\s*\{\r?\n([ \t]+)\"", text)
    return found[1] if found else 2


def _agents(named: list[str] | None) -> list[str]:
    from agent_memory.cli.hook_files import folder
    from agent_memory.integrations.hooks.events import AGENTS

    if unknown := [name for name in named or () if name not in AGENTS]:
        raise InvalidInput(f"There are no hooks for {unknown[0]!r}, but for {', '.join(AGENTS)}.")
    found = named or [name for name in AGENTS if folder(name).is_dir()]
    if not found:
        raise InvalidInput(f"No agent was found here. Name one: {', '.join(AGENTS)}.")
    return found


def _program() -> str:
    """The command as an agent finds it, whatever its PATH."""
    own = Path(sys.argv[0])
    found = str(own.absolute()) if own.name == _NAME and own.is_file() else shutil.which(_NAME)
    if found is None:
        raise ConfigError(f"The command {_NAME} is not on the PATH: install the package first.")
    return os.path.abspath(found)


def _user(user: str | None, project: bool) -> str:
    from agent_memory.core.ids import check_id

    if user is None:
        try:
            user = getpass.getuser()
        except (OSError, KeyError):  # no HOME, no name: which of them, the Python decides
            raise InvalidInput("Who you are is not known here. Name it with --user.") from None
        user = f"{user}@{Path.cwd()}" if project else user
    check_id("user_id", user)
    return user


def _where(store: str | None, config: Path | None) -> list[str]:
    """The options that say where the memory is, whatever the folder of a later call."""
    options = []
    if config is not None:
        options = ["--config", str(config.absolute())]
        load_config(store, config)
        if store is None:
            return options
    url = store or os.environ.get("AGENT_MEMORY_STORE") or f"sqlite:///{_home() / _FILE}"
    url = str(load_config(url, None).store)
    if without_password(url) != url:
        raise ConfigError(
            "The store's URL holds a password, which settings of agents are no place for. Write it "
            "into a file of settings, and give that with --config."
        )
    if url.startswith(_SQLITE):
        path = Path(url.removeprefix(_SQLITE)).absolute()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        url = f"{_SQLITE}{path}"
    return [*options, "--store", url]


def _home() -> Path:
    from agent_memory.cli.hook_files import home

    return home()
