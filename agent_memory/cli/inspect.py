"""Show sessions, messages, search results, and the prompts that models were sent."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_memory.cli.common import (
    SessionArgument,
    UserOption,
    YesOption,
    head_of,
    moment_of,
    note,
    out,
    owner_of,
    say,
    with_memory,
)
from agent_memory.cli.facts import ForgetOption, SessionOption, WhyOption, forget_found
from agent_memory.cli.lines import write_line
from agent_memory.cli.view import NOTHING, cell, entry_line, grid, one_line, recalls_table, sources
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent_memory.core.prompt_log import SentContext
    from agent_memory.core.records import Entry, Head, Recall
    from agent_memory.engine.memory import AgentMemory


_PAGE = 500


@with_memory
def sessions(
    memory: AgentMemory,
    user: Annotated[
        str | None, typer.Option(metavar="ID", help="Only this user's sessions.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The maximum number.")] = 100,
    after: Annotated[
        str | None, typer.Option(metavar="SESSION", help="Start after this session.")
    ] = None,
) -> None:
    """List sessions: user, messages, window, and the messages each block has yet to absorb."""
    page = memory.sessions(user_id=user, limit=limit, after=after)
    blocks = [block.name for block in memory.blocks.values() if block.absorbs]
    columns = ("messages", "window tokens", *(f"{name} lag" for name in blocks))
    table = grid("session", "user", *columns, right=columns)
    for head in page:
        lags = (str(head.lag(name) or "") for name in blocks)
        table.add_row(
            cell(head.session_id), cell(head.user_id or NOTHING), str(head.end),
            str(head.window_tokens), *lags,
        )  # fmt: skip
    out().print(table if page else "No sessions.")
    if len(page) == limit:
        say(f"Next page: --after {page[-1].session_id}", "dim")


@with_memory
def show(
    memory: AgentMemory,
    session: SessionArgument,
    whole: Annotated[
        bool, typer.Option("--all", help="The whole log, not only the window.")
    ] = False,
) -> None:
    """Show a session: its system message, its summary and the messages of its window."""
    console = out()
    head = head_of(memory, session)
    say(_about(head, memory), "dim")
    if head.system:
        say(f"system: {head.system.text()}", "magenta")
    if head.summary:
        title = f"\nsummary up to #{head.summary.upto}, by {head.summary.by}:"
        say(f"{title}\n{head.summary.text}", "yellow")
    console.print()
    for entry in _log(memory, head):
        in_window = entry.seq > head.start or entry.seq in head.pinned
        if whole or (in_window and not entry.message.is_system):
            console.print(entry_line(entry, dim=not in_window))


@with_memory
def search(
    memory: AgentMemory,
    query: Annotated[str, typer.Argument(help="The query text.")],
    user: UserOption = None,
    session: SessionOption = None,
    limit: Annotated[int, typer.Option(min=1, help="The maximum number.")] = 10,
    block: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only from this block; may be repeated."),
    ] = None,
    role: Annotated[
        list[str] | None, typer.Option(help="Only from messages of this role; may be repeated.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(help="Only from messages of then or later (UTC).")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(help="Only from messages before then (UTC).")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Only from messages with this metadata; may be repeated."
        ),
    ] = None,
    least: Annotated[float | None, typer.Option(help="The lowest score.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the ranking signals of each score.")
    ] = False,
    forget: ForgetOption = False,
    messages: Annotated[
        bool, typer.Option("--messages", help="With --forget: remove messages from the log too.")
    ] = False,
    why: WhyOption = "",
    yes: YesOption = False,
) -> None:
    """Search long-term memory, best first."""
    owner = owner_of(memory, user, session) if forget else None
    found = memory.search(
        query, user_id=user, session_id=session, limit=limit, blocks=block, roles=role,
        since=moment_of(since), until=moment_of(until), where=_where(where),
        least=least,
    )  # fmt: skip
    out().print(recalls_table(found, explain=explain) if found else "Nothing found.")
    if owner is not None:
        forget_found(owner, found, messages=messages, why=why, yes=yes)
    if explain and any(recall.views for recall in found):
        say("Signals add up to a score; `nearest` changes the order only.", "dim")
    if user is None and session is None:
        text = "Only shared records were searched. To search a user's, pass --user or --session."
        say(text, "dim")


@with_memory
def explain(
    memory: AgentMemory,
    question: Annotated[str, typer.Argument(help="The question.")],
    user: UserOption = None,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="The session. Default: a new one.")
    ] = None,
) -> None:
    """Show what would be recalled for a question, what is left out, and why."""
    say(str(memory.explain(question, user_id=user, session_id=session)))


@with_memory
def export(
    memory: AgentMemory,
    session: SessionArgument,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="The file to write. Default: stdout."),
    ] = None,
) -> None:
    """Write a session's messages as JSON lines, for `import`.

    `snapshot` also writes the records derived from them.
    """
    log = _log(memory, head_of(memory, session))
    if output is None:
        for entry in log:
            typer.echo(write_line(entry), nl=False)
        return
    with output.open("wb") as file:
        count = sum(1 for entry in log if file.write(write_line(entry)))
    note(f"{count} messages written to {output}.", "")


@with_memory
def stats(memory: AgentMemory) -> None:
    """Print counts, and the pending messages and dead letters of each block."""
    from agent_memory import operations

    found = memory.stats()
    errors = {one.block: one.error for one in operations.dead_letters(memory)}  # the newest of each
    console = out()
    table = grid("what", "number", right=("number",), header=False)
    table.add_row("sessions", f"{found.sessions:,}")
    table.add_row("messages", f"{found.entries:,}")
    console.print(table)
    if found.blocks:
        numbers = ("not absorbed yet", "dead letters")
        table = grid("block", *numbers, "last error", right=numbers)
        for name, block in found.blocks.items():
            error = block.error or errors.get(name, NOTHING)
            table.add_row(name, f"{block.lag:,}", f"{block.dead_letters:,}", one_line(error))
        console.print()
        console.print(table)
    if found.spending is not None:
        spent = found.spending.spent
        text = f"Spent by memory today (UTC): {spent.calls:,} calls, {spent.tokens:,} tokens"
        reached = found.spending.reached
        limit = "" if reached is None else f". The limit is reached: {reached}"
        say(f"{text}, ${spent.cost:,.4f}{limit}.")
    if found.dead_letters:
        say("`agent-memory doctor` lists the dead letters.", "dim")


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


def _where(given: list[str] | None) -> dict[str, Any] | None:
    """Parse KEY=VALUE conditions. A value that is not JSON is a text."""
    found: dict[str, Any] = {}
    for one in given or ():
        key, mark, value = one.partition("=")
        if not key or not mark:
            raise InvalidInput("--where is not KEY=VALUE. Use --where topic=boats, for example.")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found or None


def _log(memory: AgentMemory, head: Head) -> Iterator[Entry]:
    after = 0
    while page := memory.history(head.session_id, after=after, limit=_PAGE):
        yield from page
        after = page[-1].seq


_NOTHING_KEPT = (
    "No prompts of this session were logged. To log prompts from now on, set keep_contexts = true "
    "in the settings of the process that answers."
)


@with_memory
def why(
    memory: AgentMemory,
    session: SessionArgument,
    turn: Annotated[
        int | None, typer.Option(min=1, help="The turn that begins with this message.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only the prompts, as JSON.")
    ] = False,
) -> None:
    """List the prompts of a session, or show one in full beside what would be recalled now."""
    head_of(memory, session)
    after = 0 if turn is None else turn - 1
    found = memory.contexts(session, after=after, limit=None if turn is None else 1)
    found = [one for one in found if turn in (None, one.turn)]
    if not found:
        note(_NOTHING_KEPT if turn is None else f"No prompt of turn {turn} was logged.", "")
        raise typer.Exit(1)
    if as_json:
        sent = [{"turn": one.turn, "messages": one.messages} for one in found]
        typer.echo(json.dumps(sent, ensure_ascii=False, indent=2))
    elif turn is None:
        _list(found)
    else:
        for one in found:
            say("\n".join(_told(one)))
        _now(memory, found[-1])


def _list(found: Sequence[SentContext]) -> None:
    numbers = ("turn", "tokens", "kept", "recalled", "left out")
    columns = ("turn", "asked", *numbers[1:], "as it was")
    table = grid(*columns, right=numbers)
    for one in found:
        context = one.context
        kept = "" if context.kept_tokens is None else f"{context.kept_tokens:,}"
        counts = str(len(context.recalls)), str(len(one.left_out))
        table.add_row(
            str(one.turn),
            one_line(one.question),
            f"{context.tokens:,}",
            kept,
            *counts,
            _fidelity(one),
        )
    out().print(table)
    say("To show one in full: --turn N", "dim")


def _told(one: SentContext) -> list[str]:
    context = one.context
    kept = "" if context.kept_tokens is None else f", {context.kept_tokens:,} of them unchanged"
    cost = "an unknown amount" if one.cost is None else f"{one.cost:.4f} $"
    lines = [
        f"Turn {one.turn}, {one.at:%Y-%m-%d %H:%M:%S} UTC: {context.tokens:,} of "
        f"{context.max_tokens:,} tokens{kept}; recalling cost {cost}.",
        f"Compared with what was sent: {_fidelity(one)}.",
        "",
    ]
    for message in one.messages:
        content = message.get("content", message)
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        lines.append(f"[{message.get('role', message.get('type', ''))}] {text}")
    scored = [(recall, f"score {recall.score:.2f}") for recall in context.recalls]
    left_out = [(each.recall, each.why) for each in one.left_out]
    lines += ["", "Recalled:", *_lines(scored), "Left out:", *_lines(left_out)]
    return [*lines, *(f"Warning: {warning}" for warning in context.warnings)]


def _now(memory: AgentMemory, one: SentContext) -> None:
    if one.question:
        now = memory.explain(one.question, session_id=one.session_id)
        say(f"\nFor the same question now\n{now}")


def _lines(found: Sequence[tuple[Recall, str]]) -> list[str]:
    told = []
    for recall, how in found:
        text = " ".join(str(recall).split()) if recall.text else "(not there any more)"
        place = f" ({sources(recall)})" if recall.sources else ""
        told.append(f"  {recall.block}: {text}{place}: {how}")
    return told or ["  nothing"]


def _fidelity(one: SentContext) -> str:
    if one.exact:
        return "the same to the byte"
    return f"{one.missing} parts deleted since" if one.missing else "changed since"
