"""The `agent-memory` command. Commands import heavy modules when they run, for a fast --help."""

from __future__ import annotations

import errno
import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from agent_memory.cli import (
    access,
    common,
    config,
    demo,
    doctor,
    facts,
    hook,
    importing,
    inspect,
    serve,
    terminal,
    transfer,
    upkeep,
)
from agent_memory.errors import AgentMemoryError, InvalidSetting


class _Commands(TyperGroup):
    """The commands. An expected error becomes one red line on stderr, and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except AgentMemoryError as error:
            code = common.BAD_SETTINGS if isinstance(error, InvalidSetting) else common.FAILED
            common.fail(common.line_of(error), code)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            common.fail(f"{error.filename or 'Input or output'}: {error.strerror or error}.")
        except UnicodeDecodeError:
            common.fail("A file is not UTF-8 text.", common.BAD_SETTINGS)


app = typer.Typer(
    cls=_Commands,
    name="agent-memory",
    help="Memory for LLM agents: a token budget per session, long-term blocks per user.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo.demo)
app.command()(inspect.sessions)
app.command()(inspect.show)
app.command()(inspect.search)
app.command()(inspect.explain)
app.command()(inspect.why)
app.command()(facts.facts)
app.command()(facts.profile)
app.command()(facts.audit)
app.command()(facts.forget)
app.command()(facts.surplus)
app.command()(inspect.stats)
app.command()(inspect.export)
app.command("import")(importing.import_)
app.command()(importing.cost)
app.command()(transfer.snapshot)
app.command()(transfer.backup)
app.command()(transfer.restore)
app.command()(serve.mcp)
app.command()(serve.serve)
app.command()(upkeep.flush)
app.command()(upkeep.worker)
app.command()(upkeep.retry)
app.command()(upkeep.replay)
app.command()(upkeep.prune)
app.command()(upkeep.delete)
app.command()(upkeep.verify)
app.command()(transfer.migrate)
app.command()(doctor.doctor)
app.add_typer(access.shares, name="shares")
app.add_typer(access.keys, name="keys")
app.add_typer(config.app, name="config")
app.add_typer(hook.app, name="hook")


def _version(wanted: bool) -> None:
    if wanted:
        from agent_memory import __version__

        typer.echo(f"agent-memory {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    terminal.show_warnings()


_WRITING = (["install"], ["uninstall"])


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # characters that a console lacks are replaced
            stream.reconfigure(errors="replace")
    arguments = sys.argv[1:]
    try:
        app()
    except SystemExit as left:
        if left.code and arguments[:1] == ["hook"] and arguments[1:2] not in _WRITING:
            # exit code 2 would stop the agent, and a wrong option must not do that
            sys.exit(common.FAILED if "--strict" in arguments else 0)
        raise
