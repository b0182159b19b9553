"""Show sessions, messages, search results, and the prompts that models were sent."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from agent_memory.cli import common, terminal
from agent_memory.cli.facts import ForgetOption, SessionOption, WhyOption, forget_shown
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.text import Text

    from agent_memory.core.prompt_log import LoggedPrompt
    from agent_memory.core.records import Entry, Head, Recall
    from agent_memory.engine.memory import AgentMemory


_PAGE = 500


@common.with_memory
def sessions(
    memory: AgentMemory,
    user: Annotated[str | None, Option(metavar="ID", help="Only this user's sessions.")] = None,
    limit: Annotated[int, Option(min=1, help="The maximum number.")] = 100,
    after: Annotated[
        str | None, Option(metavar="SESSION", help="Start after this session.")
    ] = None,
) -> None:
    """List sessions: user, messages, window, and the number of messages pending for each block."""
    page = memory.sessions(user_id=user, limit=limit, after=after)
    blocks = [block.name for block in memory.blocks.values() if block.absorbs]
    numbers = ("messages", "window tokens", *(f"{name} lag" for name in blocks))
    rows = (
        (
            head.session_id,
            head.user_id or terminal.NOTHING,
            str(head.end),
            str(head.window_tokens),
            *(str(head.lag(name) or "") for name in blocks),
        )
        for head in page
    )
    listed = terminal.table(("session", "user", *numbers), rows, right=numbers)
    terminal.show(listed, "No sessions.")
    if len(page) == limit:
        terminal.say(f"Next page: --after {page[-1].session_id}", "dim")


@common.with_memory
def show(
    memory: AgentMemory,
    session: common.SessionArgument,
    full: Annotated[bool, Option("--all", help="The whole log, not only the window.")] = False,
) -> None:
    """Show a session: its system message, its summary and the messages of its window."""
    console = terminal.out()
    head = common.head_of(memory, session)
    terminal.say(_about(head, memory), "dim")
    if head.system:
        terminal.say(f"system: {head.system.text()}", "magenta")
    if head.summary:
        title = f"\nsummary up to #{head.summary.upto}, by {head.summary.by}:"
        terminal.say(f"{title}\n{head.summary.text}", "yellow")
    console.print()
    for entry in _log(memory, head):
        in_window = entry.seq > head.start or entry.seq in head.pinned
        if full or (in_window and not entry.message.is_system):
            console.print(_entry_line(entry, dim=not in_window))


@common.with_memory
def search(
    memory: AgentMemory,
    query: Annotated[str, Argument(help="The query text.")],
    user: common.UserOption = None,
    session: SessionOption = None,
    limit: Annotated[int, Option(min=1, help="The maximum number.")] = 10,
    block: Annotated[
        list[str] | None, Option(metavar="NAME", help="Only from this block; may be repeated.")
    ] = None,
    role: Annotated[
        list[str] | None, Option(help="Only from messages of this role; may be repeated.")
    ] = None,
    since: Annotated[
        datetime | None, Option(help="Only from messages since this time (UTC).")
    ] = None,
    until: Annotated[
        datetime | None, Option(help="Only from messages before this time (UTC).")
    ] = None,
    where: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUE", help="Only from messages with this metadata; may be repeated."),
    ] = None,
    least: Annotated[float | None, Option(help="The lowest score.")] = None,
    explain: Annotated[
        bool, Option("--explain", help="Show the ranking signals of each score.")
    ] = False,
    forget: ForgetOption = False,
    messages: Annotated[
        bool, Option("--messages", help="With --forget: also remove messages from the log.")
    ] = False,
    why: WhyOption = "",
    yes: common.YesOption = False,
) -> None:
    """Search long-term memory, best first."""
    owner = common.owner_of(memory, user, session) if forget else None
    recalls = memory.search(
        query, user_id=user, session_id=session, limit=limit, blocks=block, roles=role,
        since=common.moment_of(since), until=common.moment_of(until),
        where=_where(where), least=least,
    )  # fmt: skip
    terminal.show(terminal.recalls_table(recalls, explain=explain), "Nothing found.")
    if owner is not None:
        forget_shown(owner, recalls, messages=messages, why=why, yes=yes)
    if explain and any(recall.views for recall in recalls):
        terminal.say("Signals add up to a score; `nearest` changes the order only.", "dim")
    if user is None and session is None:
        text = "Only shared records were searched. Pass --user or --session to search a memory."
        terminal.say(text, "dim")


@common.with_memory
def explain(
    memory: AgentMemory,
    question: Annotated[str, Argument(help="The question.")],
    user: common.UserOption = None,
    session: Annotated[
        str | None, Option(metavar="ID", help="The session. Default: a new one.")
    ] = None,
) -> None:
    """Show what would be recalled for a question, what is left out, and why."""
    terminal.say(str(memory.explain(question, user_id=user, session_id=session)))


@common.with_memory
def export(
    memory: AgentMemory,
    session: common.SessionArgument,
    output: Annotated[
        Path | None,
        Option("-o", "--output", metavar="FILE", help="The file to write. Default: stdout."),
    ] = None,
) -> None:
    """Write a session's messages as JSON lines, for `import`.

    `snapshot` also writes the records derived from the messages.
    """
    log = _log(memory, common.head_of(memory, session))
    if output is None:
        for entry in log:
            typer.echo(_line_of(entry), nl=False)
        return
    with output.open("wb") as file:
        count = sum(1 for entry in log if file.write(_line_of(entry)))
    terminal.note(f"{count} messages written to {output}.", "")


@common.with_memory
def stats(memory: AgentMemory) -> None:
    """Print counts, and the pending messages and dead letters of each block."""
    from agent_memory import operations

    totals = memory.stats()
    # the newest error of each block
    errors = {dead.block: dead.error for dead in operations.dead_letters(memory)}
    console = terminal.out()
    rows = (("sessions", f"{totals.sessions:,}"), ("messages", f"{totals.entries:,}"))
    console.print(terminal.table(("what", "number"), rows, right=("number",), header=False))
    if totals.blocks:
        numbers = ("not absorbed yet", "dead letters")
        listed = terminal.table(("block", *numbers, "last error"), right=numbers)
        for name, block in totals.blocks.items():
            error = terminal.one_line(block.error or errors.get(name, terminal.NOTHING))
            listed.add_row(name, f"{block.lag:,}", f"{block.dead_letters:,}", error)
        console.print("", listed, sep="\n")
    if totals.spending is not None:
        spent = totals.spending.spent
        text = f"Spent by memory today (UTC): {spent.calls:,} calls, {spent.tokens:,} tokens"
        reached = totals.spending.reached
        limit = "" if reached is None else f". The limit is reached: {reached}"
        terminal.say(f"{text}, ${spent.cost:,.4f}{limit}.")
    if totals.dead_letters:
        terminal.say("`agent-memory doctor` lists the dead letters.", "dim")


def _about(head: Head, memory: AgentMemory) -> str:
    lags = {name: head.lag(name) for name, block in memory.blocks.items() if block.absorbs}
    parts = [
        head.session_id,
        f"user {head.user_id}" if head.user_id else "no user",
        f"{head.end} messages",
        f"window after #{head.start}: {head.window_tokens} tokens",
        *(f"{name} has {lag} pending" for name, lag in lags.items() if lag),
    ]
    return " · ".join(parts)


def _entry_line(entry: Entry, *, dim: bool = False) -> Text:
    """Return an entry in full: seq, time, role, tokens and text."""
    from rich.text import Text

    from agent_memory.core.transcript import full_text

    message = entry.message
    role = message.role or message.format or "raw"
    name = f" {message.name}" if message.name else ""
    line = Text.assemble(
        (f"#{entry.seq} {entry.created_at:%Y-%m-%d %H:%M} ", "dim"),
        terminal.cell(f"{role}{name}", terminal.COLORS.get(role, "")),
        (f" ({entry.tokens} tokens)\n", "dim"),
        terminal.cell(full_text(message)),
        "\n",
    )
    if dim:
        line.stylize("dim")
    return line


def _where(conditions: list[str] | None) -> dict[str, Any] | None:
    """Parse KEY=VALUE conditions. A value that is not JSON is a text."""
    fields: dict[str, Any] = {}
    for condition in conditions or ():
        key, mark, value = condition.partition("=")
        if not key or not mark:
            raise InvalidInput("--where is not KEY=VALUE. Use --where topic=boats, for example.")
        try:
            fields[key] = json.loads(value)
        except ValueError:
            fields[key] = value
    return fields or None


def _log(memory: AgentMemory, head: Head) -> Iterator[Entry]:
    after = 0
    while page := memory.history(head.session_id, after=after, limit=_PAGE):
        yield from page
        after = page[-1].seq


def _line_of(entry: Entry) -> bytes:
    fields = {**entry.message.to_dict(), "created_at": entry.local_time.isoformat()}
    try:
        return json.dumps(fields, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # lone surrogates are valid JSON only when escaped
        return json.dumps(fields).encode() + b"\n"


_NOTHING_LOGGED = (
    "No prompts of this session were logged. To log prompts from now on, set keep_contexts = true "
    "in the settings of the process that calls the model."
)


@common.with_memory
def why(
    memory: AgentMemory,
    session: common.SessionArgument,
    turn: Annotated[int | None, Option(min=1, help="The turn that begins with message N.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print only the prompts, as JSON.")] = False,
) -> None:
    """List a session's prompts, or show one prompt in full, with what would be recalled now."""
    common.head_of(memory, session)
    after = 0 if turn is None else turn - 1
    prompts = memory.contexts(session, after=after, limit=None if turn is None else 1)
    prompts = [prompt for prompt in prompts if turn in (None, prompt.turn)]
    if not prompts:
        terminal.note(
            _NOTHING_LOGGED if turn is None else f"No prompt of turn {turn} was logged.", ""
        )
        raise typer.Exit(1)
    if as_json:
        logged = [{"turn": prompt.turn, "messages": prompt.messages} for prompt in prompts]
        typer.echo(json.dumps(logged, ensure_ascii=False, indent=2))
    elif turn is None:
        _list(prompts)
    else:
        for prompt in prompts:
            terminal.say("\n".join(_prompt_lines(prompt)))
        if question := prompts[-1].question:
            terminal.say(
                f"\nFor the same question now\n{memory.explain(question, session_id=session)}"
            )


def _list(prompts: Sequence[LoggedPrompt]) -> None:
    numbers = ("turn", "tokens", "unchanged tokens", "recalled", "left out")
    columns = ("turn", "asked", *numbers[1:], "compared")
    listed = terminal.table(columns, right=numbers)
    for prompt in prompts:
        context = prompt.context
        same = "" if context.cacheable_tokens is None else f"{context.cacheable_tokens:,}"
        counts = str(len(context.recalls)), str(len(prompt.left_out))
        begin = (str(prompt.turn), terminal.one_line(prompt.question), f"{context.tokens:,}", same)
        listed.add_row(*begin, *counts, _fidelity(prompt))
    terminal.out().print(listed)
    terminal.say("To show a prompt in full: --turn N", "dim")


def _prompt_lines(prompt: LoggedPrompt) -> list[str]:
    context, same = prompt.context, prompt.context.cacheable_tokens
    unchanged = "" if same is None else f", {same:,} of them unchanged"
    cost = "an unknown amount" if prompt.cost is None else f"{prompt.cost:.4f} $"
    lines = [
        f"Turn {prompt.turn}, {prompt.at:%Y-%m-%d %H:%M:%S} UTC: {context.tokens:,} of "
        f"{context.max_tokens:,} tokens{unchanged}; recalling cost {cost}.",
        f"Compared with what was sent: {_fidelity(prompt)}.",
        "",
    ]
    for message in prompt.messages:
        content = message.get("content", message)
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        lines.append(f"[{message.get('role', message.get('type', ''))}] {text}")
    scored = [(recall, f"score {recall.score:.2f}") for recall in context.recalls]
    left_out = [(each.recall, each.why) for each in prompt.left_out]
    lines += ["", "Recalled:", *_lines(scored), "Left out:", *_lines(left_out)]
    return [*lines, *(f"Warning: {warning}" for warning in context.warnings)]


def _lines(recalls: Sequence[tuple[Recall, str]]) -> list[str]:
    lines = []
    for recall, how in recalls:
        text = " ".join(str(recall).split()) if recall.text else "(not there any more)"
        place = f" ({terminal.sources(recall)})" if recall.sources else ""
        lines.append(f"  {recall.block}: {text}{place}: {how}")
    return lines or ["  nothing"]


def _fidelity(prompt: LoggedPrompt) -> str:
    if prompt.exact:
        return "the same to the byte"
    return f"{prompt.missing} parts deleted since" if prompt.missing else "changed since"
