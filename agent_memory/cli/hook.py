"""`agent-memory hook`: handle a coding agent's events, and install the hooks in its settings.

A hook is ours if its command runs `agent-memory hook`. Other hooks keep their order.
"""

from __future__ import annotations

import copy
import difflib
import getpass
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer import Argument, Option

from agent_memory.cli import common
from agent_memory.core.limits import check_id
from agent_memory.errors import ConfigError, InvalidInput

Settings = dict[str, Any]

_OURS = re.compile(r"\bagent-memory['\"]? hook [A-Z]\w+ ")
_LONGEST = 64 * 1024 * 1024  # bytes of an event

EVENTS = {
    "SessionStart": "Print the context of a new session: what is known, and the last work here.",
    "UserPromptSubmit": "Print what is relevant to a prompt from earlier sessions.",
    "Stop": "Store the new messages.",
    "PreCompact": "Store all messages before the agent compacts its context.",
    "SessionEnd": "Store the new messages at a session's end.",
}
"""The description of each event, by its name in Claude Code."""

_SECONDS = {"SessionStart": 30, "UserPromptSubmit": 10, "Stop": 60, "PreCompact": 300}
_RECALL_SECONDS = 8.0


class Place(NamedTuple):
    """The location of an agent's hooks."""

    home: str  # the settings file of the user, relative to the home folder
    project: str  # the settings file of a project, relative to the project's folder
    events: Mapping[str, str]  # the agent's name of each event, by Claude Code's name


_SAME = {name: name for name in EVENTS}
_WITHOUT_END = {name: name for name in EVENTS if name != "SessionEnd"}
_CURSORS = {
    "SessionStart": "sessionStart",
    "UserPromptSubmit": "beforeSubmitPrompt",
    "Stop": "stop",
    "PreCompact": "preCompact",
    "SessionEnd": "sessionEnd",
}
_GEMINIS = {"SessionStart": "SessionStart", "UserPromptSubmit": "BeforeAgent", "Stop": "AfterAgent"}

PLACES = {
    "claude-code": Place(".claude/settings.json", ".claude/settings.local.json", _SAME),
    "codex": Place(".codex/hooks.json", ".codex/hooks.json", _WITHOUT_END),
    "cursor": Place(".cursor/hooks.json", ".cursor/hooks.json", _CURSORS),
    "gemini-cli": Place(".gemini/settings.json", ".gemini/settings.json", _GEMINIS),
}
"""The location for each agent. Codex has no `SessionEnd` here: only some releases report it."""


def with_hooks(agent: str, command: Sequence[str], settings: Settings) -> Settings:
    """Return settings with our hooks, which replace our earlier hooks and run `command`."""
    place = PLACES[agent]
    changed = without_hooks(settings)
    if agent == "cursor":
        changed.setdefault("version", 1)
    hooks = changed.setdefault("hooks", {})
    for event, named in place.events.items():
        hooks.setdefault(named, []).append(_entry(agent, event, command))
    return changed


def without_hooks(settings: Settings) -> Settings:
    """Return settings without our hooks, and without entries that become empty."""
    changed = copy.deepcopy(settings)
    hooks = changed.get("hooks", {})
    if not isinstance(hooks, dict) or not all(isinstance(group, list) for group in hooks.values()):
        raise ConfigError(
            'The "hooks" of these settings are not an object of lists. Fix the settings and try '
            "again."
        )
    for event, entries in list(hooks.items()):
        remaining = [left for entry in entries if (left := _left(entry)) is not None]
        if remaining:
            hooks[event] = remaining
        elif entries:
            del hooks[event]
    if not hooks and settings.get("hooks"):
        del changed["hooks"]
    return changed


def _entry(agent: str, event: str, command: Sequence[str]) -> Settings:
    program, *options = command
    line = shlex.join([program, "hook", event, "--agent", agent, *options])
    if agent == "cursor":
        return {"command": line}
    seconds = _SECONDS.get(event, 60)
    timeout = 1_000 * seconds if agent == "gemini-cli" else seconds  # Gemini: milliseconds
    return {"hooks": [{"type": "command", "command": line, "timeout": timeout}]}


def _left(entry: Any) -> Any:
    """Return an entry without our hooks; None if nothing remains."""
    if not isinstance(entry, dict):
        return entry
    hooks = entry.get("hooks")
    if isinstance(hooks, list):
        others = [hook for hook in hooks if not _is_ours(hook)]
        return entry if others == hooks else {**entry, "hooks": others} if others else None
    return None if _is_ours(entry) else entry


def _is_ours(hook: Any) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    return isinstance(command, str) and bool(_OURS.search(command))


_MOVED = {"claude-code": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME"}


def home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise InvalidInput("There is no home folder. Set HOME, or use --project.") from None


def folder(agent: str) -> Path:
    moved = os.environ.get(_MOVED.get(agent, ""))
    return Path(moved) if moved else home() / Path(PLACES[agent].home).parent


def settings_file(agent: str, project: bool) -> Path:
    """Return the file for an agent's hooks, in the user's home or in the current folder."""
    place = PLACES[agent]
    path = Path.cwd() / place.project if project else folder(agent) / Path(place.home).name
    return path.resolve()  # if the path is a link, its target is written


def read(path: Path) -> tuple[str, dict[str, Any]]:
    """Return a file's text and its JSON object; both empty if the file does not exist."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return "", {}
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not JSON: {error}. Fix the file, and run this again."
        ) from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path} is not a JSON object. Fix the file, and run this again.")
    return text, value


def write(path: Path, text: str) -> None:
    """Write a file atomically. A new file is for its owner only. An old file keeps its mode."""
    from agent_memory.engine.transfer.export import written

    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o7777 if path.exists() else 0o600
    with written(path) as file:
        file.write(text)
    path.chmod(mode)


app = typer.Typer(
    help="Memory for Claude Code, Codex, Cursor and Gemini CLI. `hook install` sets it up.",
    no_args_is_help=True,
)

_NAME = "agent-memory"
_FILE = ".agent-memory/memory.db"
_SQLITE = "sqlite:///"

AgentOption = Annotated[
    str, Option("--agent", metavar="AGENT", help="claude-code, codex, cursor or gemini-cli.")
]
AgentsArgument = Annotated[
    list[str] | None,
    Argument(
        metavar="[AGENT]...",
        help="claude-code, codex, cursor, gemini-cli. Default: all agents on this machine.",
    ),
]
ProjectOption = Annotated[bool, Option("--project", help="Only in the settings of this folder.")]


def _event(name: str) -> Callable[..., None]:
    def answer(
        user: Annotated[str, Option(metavar="ID", help="The user.")],
        agent: AgentOption = "claude-code",
        store: common.StoreOption = None,
        config: common.ConfigOption = None,
        strict: Annotated[bool, Option("--strict", help="Exit with 1 if something fails.")] = False,
    ) -> None:
        try:
            _handle(name, agent, user, store, config)
        except Exception as error:  # noqa: BLE001 - the agent goes on without memory
            text = " ".join(str(error).split()) or type(error).__name__
            print(f"agent-memory hook {name}: {text}", file=sys.stderr, flush=True)
            # never 2, which stops the agent
            raise typer.Exit(common.FAILED if strict else 0) from None

    return answer


for _name, _help in EVENTS.items():
    app.command(_name, help=_help)(_event(_name))


def _handle(name: str, agent: str, user: str, store: str | None, config: Path | None) -> None:
    """Handle the event on standard input, and print the hook's output."""
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.integrations.hooks import handle, read_event

    own_name = PLACES[agent].events.get(name, name) if agent in PLACES else name
    event = read_event(agent, name, own_name, _read_event())
    settings = common.load_config(store, config)
    # The agent is waiting: work that needs a model is left to other processes. Recall gets more
    # time, because each hook is a new process, which first loads the encoder.
    patience = max(settings.recall_timeout, _RECALL_SECONDS)
    own = {"model": None, "overflow_mode": "inline", "recall_timeout": patience}
    with AgentMemory(settings.model_copy(update=own)) as memory:
        output = handle(memory, event, user)
    if output:
        print(output, flush=True)


def _read_event() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise InvalidInput("Standard input has no event. A coding agent runs this command.")
    event = sys.stdin.buffer.read(_LONGEST + 1)
    if len(event) > _LONGEST:
        raise InvalidInput(f"The event has more than {_LONGEST:,} bytes.")
    return event


@app.command()
def install(
    agents: AgentsArgument = None,
    user: Annotated[
        str | None,
        Option(
            metavar="ID",
            help="The user. Default: your login name; with --project, login name and folder.",
        ),
    ] = None,
    project: ProjectOption = False,
    yes: common.YesOption = False,
    store: common.StoreOption = None,
    config: common.ConfigOption = None,
) -> None:
    """Show the change, ask, and add the hooks to agents' settings. Other settings stay.

    The store is --store, AGENT_MEMORY_STORE, or ~/.agent-memory/memory.db, in this order.
    """
    command = [_program(), "--user", _user(user, project), *_where(store, config)]
    for agent in _agents(agents):
        _change(agent, project, yes, partial(with_hooks, agent, command))


@app.command()
def uninstall(
    agents: AgentsArgument = None, project: ProjectOption = False, yes: common.YesOption = False
) -> None:
    """Remove the hooks from agents' settings. Other settings and the memory stay."""
    for agent in _agents(agents):
        _change(agent, project, yes, without_hooks)


def _change(agent: str, project: bool, yes: bool, change: Callable[[Settings], Settings]) -> None:
    path = settings_file(agent, project)
    text, now = read(path)
    changed = change(now)
    if changed == now:
        typer.echo(f"{agent}: {path} is unchanged.")
        return
    indented = re.match(r"\s*\{\r?\n([ \t]+)\"", text)
    indent = indented[1] if indented else 2
    new = json.dumps(changed, indent=indent, ensure_ascii=False) + "\n"
    lines = text.splitlines(), new.splitlines()
    typer.echo("\n".join(difflib.unified_diff(*lines, str(path), str(path), lineterm="")))
    if not yes:
        typer.confirm(f"Write {path}?", abort=True)
    write(path, new)
    typer.echo(f"{agent}: written.")


def _agents(named: list[str] | None) -> list[str]:
    if unknown := [name for name in named or () if name not in PLACES]:
        raise InvalidInput(f"{unknown[0]!r} is not supported. Use one of {', '.join(PLACES)}.")
    agents = named or [name for name in PLACES if folder(name).is_dir()]
    if not agents:
        raise InvalidInput(f"No agent was found. Name one of {', '.join(PLACES)}.")
    return agents


def _program() -> str:
    """Return the absolute path of the command, which does not depend on an agent's PATH."""
    own = Path(sys.argv[0])
    path = str(own.absolute()) if own.name == _NAME and own.is_file() else shutil.which(_NAME)
    if path is None:
        raise ConfigError(f"The command {_NAME} is not on the PATH. Install the package first.")
    return os.path.abspath(path)


def _user(user: str | None, project: bool) -> str:
    if user is None:
        try:
            user = getpass.getuser()
        except (OSError, KeyError):  # there is no login name (KeyError: before Python 3.13)
            raise InvalidInput("Your login name is unknown. Pass --user.") from None
        user = f"{user}@{Path.cwd()}" if project else user
    check_id("user_id", user)
    return user


def _where(store: str | None, config: Path | None) -> list[str]:
    """Return the options that name the store, with absolute paths."""
    options = []
    if config is not None:
        options = ["--config", str(config.absolute())]
        common.load_config(store, config)
        if store is None:
            return options
    url = store or os.environ.get("AGENT_MEMORY_STORE") or f"sqlite:///{home() / _FILE}"
    url = str(common.load_config(url, None).store)
    if common.without_password(url) != url:
        raise ConfigError(
            "The store's URL has a password, which should not stand in an agent's settings. Write "
            "the URL to a file of settings, and pass this file with --config."
        )
    if url.startswith(_SQLITE):
        path = Path(url.removeprefix(_SQLITE)).absolute()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        url = f"{_SQLITE}{path}"
    return [*options, "--store", url]
